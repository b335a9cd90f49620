/* SPDX-License-Identifier: MIT
 *
 * Reads checkpoints by mapping them. Everything is checked before it is used: first the lengths,
 * against the size of the file, then the checksums, then the contents. The contents are checked
 * although the checksums are correct, because the writer may have been wrong.
 */
#include "engine/checkpoint/checkpoint_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The state of reading one file. */
struct reader {
    const char *path;
    char *why; /* buffer of CP_WHY bytes for the reason of a failure */
    const uint8_t *map;
    uint64_t len;
    struct cp_head head;
    const struct cp_entry *table;
};

static vb_status refuse(const struct reader *r, uint64_t offset, const char *what)
{
    snprintf(r->why, CP_WHY, "%s: offset %llu: %s", r->path, (unsigned long long)offset, what);
    return VB_ERR_INPUT;
}

static vb_status fail(const struct reader *r, const char *call)
{
    int err = errno;
    char reason[64];

    snprintf(r->why, CP_WHY, "cannot %s %s: %s", call, r->path,
             strerror_r(err, reason, sizeof(reason)));
    return err != 0 ? vb_status_from_errno(err) : VB_ERR_IO;
}

static vb_status check_head(struct reader *r)
{
    struct cp_head *h = &r->head;

    memcpy(h, r->map, r->len < sizeof(*h) ? (size_t)r->len : sizeof(*h));
    if (memcmp(h->magic, CP_MAGIC, sizeof(h->magic)) != 0)
        return refuse(r, 0, "this is not a checkpoint");
    if (r->len < sizeof(*h))
        return refuse(r, r->len, "the file ends within the header");
    if (h->version != CP_VERSION)
        return refuse(r, 8, "the version of the format is not 1");
    if (h->crc != cp_head_crc(*h))
        return refuse(r, 12, "the checksum of the header is wrong");
    if (h->file_bytes != r->len)
        return refuse(r, 16, "the file is not as long as its header says");
    if (h->step < 0)
        return refuse(r, 24, "the step is negative");
    if (h->n_arrays > VB_CHECKPOINT_ARRAYS_MAX || h->options_bytes > VB_CHECKPOINT_TEXT_MAX ||
        h->plan_bytes > VB_CHECKPOINT_TEXT_MAX)
        return refuse(r, 40, "the header announces more arrays or text than a checkpoint may have");
    if (h->chunk_bytes != CP_CHUNK || h->zero != 0)
        return refuse(r, 56, "the size of chunks is not 1 MiB");
    if (vb_cp_wrong_name(h->model) != NULL)
        return refuse(r, 64, vb_cp_wrong_name(h->model));
    return VB_OK;
}

static bool all_zero(const uint8_t *bytes, uint64_t n)
{
    while (n > 0 && *bytes == 0) {
        bytes++;
        n--;
    }
    return n == 0;
}

static vb_status check_name(const struct reader *r, uint32_t number)
{
    uint64_t at = sizeof(r->head) + number * sizeof(struct cp_entry);
    const char *name = r->table[number].name;
    uint32_t i;

    if (vb_cp_wrong_name(name) != NULL)
        return refuse(r, at, vb_cp_wrong_name(name));
    for (i = 0; i < number; i++)
        if (strcmp(r->table[i].name, name) == 0)
            return refuse(r, at, "two arrays have the same name");
    return VB_OK;
}

/* Checks the table of arrays. Arrays must follow each other without gaps, up to the end. */
static vb_status check_table(const struct reader *r)
{
    uint64_t offset = cp_front_bytes(&r->head), left, bytes, at;
    const struct cp_entry *e;
    vb_status st;
    uint32_t i;

    for (i = 0; i < r->head.n_arrays; i++) {
        e = &r->table[i];
        at = sizeof(r->head) + i * sizeof(*e);
        left = r->len - sizeof(struct cp_end) - offset;
        st = check_name(r, i);
        if (st != VB_OK)
            return st;
        if ((e->type != VB_ARRAY_F32 && e->type != VB_ARRAY_U32) || (e->flags & ~CP_STATE) != 0)
            return refuse(r, at + 32, "an array has an unknown type");
        if (!vb_cp_data_bytes(e->rows, e->cols, left, &bytes) || cp_array_bytes(bytes) > left)
            return refuse(r, at + 40, "an array is larger than the file");
        if (e->offset != offset)
            return refuse(r, at + 56, "an array does not begin where the array before it ends");
        offset += cp_array_bytes(bytes);
    }
    if (offset != r->len - sizeof(struct cp_end))
        return refuse(r, 16, "the arrays do not fill the file");
    return VB_OK;
}

static vb_status check_front(struct reader *r)
{
    uint64_t bytes = cp_front_bytes(&r->head);
    uint64_t at = sizeof(r->head) + r->head.n_arrays * sizeof(struct cp_entry);
    uint64_t len = (uint64_t)r->head.options_bytes + r->head.plan_bytes;

    if (bytes > r->len || r->len - bytes < sizeof(struct cp_end))
        return refuse(r, r->len, "the file ends within the table of arrays");
    if (vb_crc32c(0, r->map + sizeof(r->head), bytes - sizeof(r->head)) != r->head.rest_crc)
        return refuse(r, sizeof(r->head), "the checksum of the table of arrays is wrong");
    r->table = (const struct cp_entry *)(const void *)(r->map + sizeof(r->head));
    if (memchr(r->map + at, 0, len) != NULL)
        return refuse(r, at, "a text has a zero byte");
    at += len;
    if (!all_zero(r->map + at, bytes - at))
        return refuse(r, at, "the bytes after the texts must be zero, but are not");
    return VB_OK;
}

static vb_status check_array(const struct reader *r, const struct cp_entry *e)
{
    uint64_t len = (uint64_t)e->rows * (uint64_t)e->cols * sizeof(float), at, n;
    const uint8_t *data = r->map + e->offset, *crcs = data + len;
    uint32_t want;

    for (at = 0; at < len; at += n, crcs += sizeof(want)) {
        n = len - at < CP_CHUNK ? len - at : CP_CHUNK;
        memcpy(&want, crcs, sizeof(want));
        if (vb_crc32c(0, data + at, n) != want)
            return refuse(r, e->offset + at, "the checksum of a piece of an array is wrong");
    }
    n = e->offset + cp_array_bytes(len) - (uint64_t)(crcs - r->map);
    if (!all_zero(crcs, n))
        return refuse(r, (uint64_t)(crcs - r->map),
                      "the bytes after an array must be zero, but are not");
    return VB_OK;
}

static vb_status check_before_arrays(struct reader *r)
{
    vb_status st = check_head(r);

    if (st == VB_OK)
        st = check_front(r);
    return st == VB_OK ? check_table(r) : st;
}

static vb_status check_all(struct reader *r)
{
    vb_status st = check_before_arrays(r);
    struct cp_end end;
    uint32_t i;

    if (st != VB_OK)
        return st;
    memcpy(&end, r->map + r->len - sizeof(end), sizeof(end));
    if (memcmp(end.magic, CP_END_MAGIC, sizeof(end.magic)) != 0 || end.file_bytes != r->len)
        return refuse(r, r->len - sizeof(end), "the end of the file is missing");
    for (i = 0; st == VB_OK && i < r->head.n_arrays; i++)
        st = check_array(r, &r->table[i]);
    return st;
}

static vb_status take_all(const struct reader *r, struct vb_checkpoint *cp)
{
    const char *texts = (const char *)(r->table + r->head.n_arrays);
    int i;

    memcpy(cp->model, r->head.model, sizeof(cp->model));
    cp->step = r->head.step;
    cp->seed = r->head.seed;
    cp->options = strndup(texts, r->head.options_bytes); /* the texts have no zeros */
    cp->plan = strndup(texts + r->head.options_bytes, r->head.plan_bytes);
    cp->arrays = calloc(r->head.n_arrays + 1, sizeof(*cp->arrays));
    if (cp->options == NULL || cp->plan == NULL || cp->arrays == NULL)
        return fail(r, "allocate memory for");
    cp->n_arrays = (int)r->head.n_arrays;
    for (i = 0; i < cp->n_arrays; i++) {
        const struct cp_entry *e = &r->table[i];

        cp->arrays[i] = (struct vb_checkpoint_array){.type = (enum vb_array_type)e->type,
                                                     .state = (e->flags & CP_STATE) != 0,
                                                     .rows = e->rows,
                                                     .cols = e->cols,
                                                     .data = r->map + e->offset};
        memcpy(cp->arrays[i].name, e->name, sizeof(e->name));
        if (strcmp(e->name, CP_VIEW) == 0)
            (void)vb_cp_view_take(&cp->arrays[i], &cp->view);
    }
    return VB_OK;
}

static vb_status map_file(const struct reader *r, struct vb_checkpoint *cp)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe must not block */
    vb_status st = VB_OK;
    struct stat info;

    if (fd < 0)
        return fail(r, "open");
    if (fstat(fd, &info) != 0) {
        st = fail(r, "stat");
    } else if (!S_ISREG(info.st_mode)) {
        st = refuse(r, 0, "this is not a regular file");
    } else if (info.st_size == 0) {
        st = refuse(r, 0, "the file is empty");
    } else {
        cp->map = vb_file_map(fd, (size_t)info.st_size, r->path);
        cp->map_bytes = (size_t)info.st_size;
        if (cp->map == NULL)
            st = fail(r, "map");
    }
    close(fd);
    return st;
}

vb_status vb_cp_load(const char *path, char why[CP_WHY], struct vb_checkpoint **cp_p)
{
    struct reader r = {.path = path, .why = why};
    struct vb_checkpoint *cp = calloc(1, sizeof(*cp));
    vb_status st;

    if (cp == NULL)
        return fail(&r, "allocate memory for");
    st = map_file(&r, cp);
    if (cp->map != NULL) {
        r.map = cp->map;
        r.len = cp->map_bytes;
        st = check_all(&r);
        if (st == VB_OK)
            st = take_all(&r, cp);
    }
    if (st != VB_OK) {
        vb_checkpoint_free(cp);
        return st;
    }
    *cp_p = cp;
    return VB_OK;
}

static bool find_view(const struct reader *r, struct vb_checkpoint_view *view_p)
{
    const struct cp_entry *e;
    uint32_t i;

    for (i = 0; i < r->head.n_arrays; i++) {
        e = &r->table[i];
        if (strcmp(e->name, CP_VIEW) == 0 && check_array(r, e) == VB_OK)
            return vb_cp_view_take(
                &(struct vb_checkpoint_array){.type = (enum vb_array_type)e->type,
                                              .rows = e->rows,
                                              .cols = e->cols,
                                              .data = r->map + e->offset},
                view_p);
    }
    return false;
}

bool vb_cp_view(const char *path, struct vb_checkpoint_view *view_p)
{
    char why[CP_WHY];
    struct reader r = {.path = path, .why = why};
    struct vb_checkpoint cp = {.n_arrays = 0};
    bool known = false;

    if (map_file(&r, &cp) == VB_OK) {
        r.map = cp.map;
        r.len = cp.map_bytes;
        known = check_before_arrays(&r) == VB_OK && find_view(&r, view_p);
    }
    vb_file_unmap(cp.map, cp.map_bytes);
    return known;
}

vb_status vb_checkpoint_read(const char *path, struct vb_checkpoint **cp_p)
{
    char why[CP_WHY];
    vb_status st = vb_cp_load(path, why, cp_p);

    return st == VB_OK ? VB_OK : vb_err(st, "%s", why);
}

void vb_checkpoint_free(struct vb_checkpoint *cp)
{
    if (cp == NULL)
        return;
    vb_file_unmap(cp->map, cp->map_bytes);
    free(cp->options);
    free(cp->plan);
    free(cp->arrays);
    free(cp);
}

const struct vb_checkpoint_array *vb_checkpoint_find(const struct vb_checkpoint *cp,
                                                     const char *name)
{
    int i;

    for (i = 0; i < cp->n_arrays; i++)
        if (strcmp(cp->arrays[i].name, name) == 0)
            return &cp->arrays[i];
    return NULL;
}

const void *vb_checkpoint_data(const struct vb_checkpoint *cp, const char *name,
                               enum vb_array_type type, size_t n)
{
    const struct vb_checkpoint_array *a = vb_checkpoint_find(cp, name);

    if (a != NULL && a->type == type && (uint64_t)a->rows * (uint64_t)a->cols == n)
        return a->data;
    vb_err(VB_ERR_INPUT, "the checkpoint has no array %s of %zu numbers", name, n);
    return NULL;
}
