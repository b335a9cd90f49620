/* SPDX-License-Identifier: MIT
 *
 * Writes a checkpoint. Arrays are written in large pieces, from the caller's memory without a copy,
 * or from a buffer that the caller fills in.
 * The checksum of a piece is computed just before the piece is written, so that the piece is in the
 * cache. A checkpoint gets its name only when it is complete and on the disk.
 */
#include "engine/checkpoint/checkpoint_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct writer {
    char path[PATH_MAX], temp[PATH_MAX];
    int fd;
    uint64_t offset;
    struct cp_watch *watch; /* NULL: nobody watches */
};

/* ---- checks ---------------------------------------------------------------------------------- */

const char *vb_cp_wrong_name(const char name[VB_CHECKPOINT_NAME])
{
    size_t len = strnlen(name, VB_CHECKPOINT_NAME), i;

    if (len == 0 || len == VB_CHECKPOINT_NAME)
        return len == 0 ? "a name is empty" : "a name has no end";
    if (name[0] == '.')
        return "a name begins with a dot";
    for (i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
            return "a name has a character that is not allowed";
    for (; i < VB_CHECKPOINT_NAME; i++)
        if (name[i] != '\0')
            return "a name is not filled up with zeros";
    return NULL;
}

bool vb_cp_data_bytes(int64_t rows, int64_t cols, uint64_t limit, uint64_t *bytes_p)
{
    uint64_t elems = limit / sizeof(float); /* both types have this size */

    if (rows < 0 || cols < 1 || (uint64_t)rows > elems / (uint64_t)cols)
        return false;
    *bytes_p = (uint64_t)rows * (uint64_t)cols * sizeof(float);
    return true;
}

/* Copies a name into a zeroed field of the file, without the bytes that follow the name in memory.
 * Checks the name. */
static vb_status take_name(const char *path, const char from[VB_CHECKPOINT_NAME],
                           char to[VB_CHECKPOINT_NAME])
{
    size_t len = strnlen(from, VB_CHECKPOINT_NAME);
    const char *wrong;

    memcpy(to, from, len);
    wrong = vb_cp_wrong_name(to);
    if (wrong != NULL)
        return vb_err(VB_ERR_USAGE, "cannot write %s: %s: %.*s", path, wrong, (int)len, from);
    return VB_OK;
}

static vb_status take_array(const char *path, const struct vb_checkpoint_array *a,
                            struct cp_entry *entry, uint64_t *offset_p)
{
    vb_status st = take_name(path, a->name, entry->name);
    uint64_t bytes;

    if (st != VB_OK)
        return st;
    if ((a->type != VB_ARRAY_F32 && a->type != VB_ARRAY_U32) ||
        !vb_cp_data_bytes(a->rows, a->cols, INT64_MAX / 4, &bytes) ||
        bytes > INT64_MAX / 2 - *offset_p || (bytes > 0 && a->data == NULL && a->fetch == NULL))
        return vb_err(VB_ERR_USAGE,
                      "cannot write %s: array %s has an impossible type, shape or data", path,
                      entry->name);
    entry->type = (uint32_t)a->type;
    entry->flags = a->state ? CP_STATE : 0;
    entry->rows = a->rows;
    entry->cols = a->cols;
    entry->offset = *offset_p;
    *offset_p += cp_array_bytes(bytes);
    return VB_OK;
}

static vb_status take_table(const char *path, const struct vb_checkpoint *cp,
                            struct cp_entry *table, uint64_t *offset_p)
{
    vb_status st = VB_OK;
    int i, k;

    for (i = 0; st == VB_OK && i < cp->n_arrays; i++) {
        st = take_array(path, &cp->arrays[i], &table[i], offset_p);
        for (k = 0; st == VB_OK && k < i; k++)
            if (strcmp(table[k].name, table[i].name) == 0)
                st = vb_err(VB_ERR_USAGE, "cannot write %s: two arrays are named %s", path,
                            table[i].name);
    }
    return st;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static vb_status append(struct writer *w, const void *data, size_t len)
{
    const char *from = data;
    ssize_t n;

    while (len > 0) {
        n = write(w->fd, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return vb_err_sys("cannot write %s at offset %llu", w->path,
                              (unsigned long long)w->offset);
        from += n;
        len -= (size_t)n;
        w->offset += (uint64_t)n;
    }
    return VB_OK;
}

/* Looks at a piece before it is written, while it is in the cache. */
static vb_status look_at(struct writer *w, const struct vb_checkpoint_array *a, const char *piece,
                         size_t len)
{
    const float *data = (const float *)(const void *)piece;
    size_t i, n = len / sizeof(*data);

    if (w->watch == NULL)
        return VB_OK;
    if (atomic_load_explicit(&w->watch->cancel, memory_order_relaxed))
        return vb_err(VB_ERR_TIMEOUT, "cannot write %s: the disk took too long", w->path);
    if (a->state || a->type != VB_ARRAY_F32)
        return VB_OK;
    for (i = 0; i < n && isfinite(data[i]); i++)
        ;
    if (i == n)
        return VB_OK;
    snprintf(w->watch->bad, sizeof(w->watch->bad), "%s", a->name);
    return vb_err(VB_ERR_INPUT, "%s is not finite, so no checkpoint is written", a->name);
}

/* Returns the piece of an array that begins at byte `at`; NULL if it cannot be read. */
static const char *piece_of(const struct vb_checkpoint_array *a, size_t at, size_t len, char *room)
{
    if (a->fetch == NULL)
        return (const char *)a->data + at;
    return a->fetch(a->from, at, len, room) ? room : NULL;
}

/* Writes the elements of an array, and fills in the checksums of the chunks. */
static vb_status append_chunks(struct writer *w, const struct vb_checkpoint_array *a, size_t len,
                               char *room, uint32_t *crc)
{
    vb_status st = VB_OK;
    const char *piece;
    size_t at, n;

    for (at = 0; st == VB_OK && at < len; at += n) {
        n = len - at < CP_CHUNK ? len - at : CP_CHUNK;
        piece = piece_of(a, at, n, room);
        if (piece == NULL)
            return vb_err(VB_ERR_TIMEOUT,
                          "cannot write %s: the thread that writes did not run for seconds, and "
                          "training has gone on",
                          w->path);
        st = look_at(w, a, piece, n);
        *crc++ = vb_crc32c(0, piece, n);
        if (st == VB_OK)
            st = append(w, piece, n);
    }
    return st;
}

/* Writes the elements of an array, then the checksums of the chunks, then zeros. */
static vb_status append_array(struct writer *w, const struct vb_checkpoint_array *a)
{
    static const char zeros[CP_ALIGN];
    size_t len = (size_t)a->rows * (size_t)a->cols * sizeof(float);
    size_t crc_bytes = cp_n_chunks(len) * sizeof(uint32_t), room = a->fetch != NULL ? CP_CHUNK : 0;
    char *memory = malloc(room + crc_bytes + 1);
    uint32_t *crcs;
    vb_status st;

    if (memory == NULL)
        return vb_err_sys("malloc");
    crcs = (uint32_t *)(void *)(memory + room);
    st = append_chunks(w, a, len, memory, crcs);
    if (st == VB_OK)
        st = append(w, crcs, crc_bytes);
    free(memory);
    return st == VB_OK ? append(w, zeros, (size_t)(cp_align(w->offset) - w->offset)) : st;
}

/* Writes everything before the arrays, in one piece. */
static vb_status append_front(struct writer *w, const struct vb_checkpoint *cp,
                              struct cp_head *head)
{
    uint64_t bytes = cp_front_bytes(head), offset = bytes;
    char *front = calloc(1, bytes), *text;
    vb_status st;

    if (front == NULL)
        return vb_err_sys("calloc");
    st = take_name(w->path, cp->model, head->model);
    if (st == VB_OK)
        st = take_table(w->path, cp, (struct cp_entry *)(void *)(front + sizeof(*head)), &offset);
    if (st == VB_OK) {
        text = front + sizeof(*head) + head->n_arrays * sizeof(struct cp_entry);
        if (head->options_bytes > 0)
            memcpy(text, cp->options, head->options_bytes);
        if (head->plan_bytes > 0)
            memcpy(text + head->options_bytes, cp->plan, head->plan_bytes);
        head->file_bytes = offset + sizeof(struct cp_end);
        head->rest_crc = vb_crc32c(0, front + sizeof(*head), bytes - sizeof(*head));
        head->crc = cp_head_crc(*head);
        memcpy(front, head, sizeof(*head));
        st = append(w, front, bytes);
    }
    free(front);
    return st;
}

static vb_status append_all(struct writer *w, const struct vb_checkpoint *cp, struct cp_head *head)
{
    struct cp_end end;
    vb_status st = append_front(w, cp, head);
    int i;

    for (i = 0; st == VB_OK && i < cp->n_arrays; i++)
        st = append_array(w, &cp->arrays[i]);
    if (st != VB_OK)
        return st;
    memcpy(end.magic, CP_END_MAGIC, sizeof(end.magic));
    end.file_bytes = head->file_bytes;
    st = append(w, &end, sizeof(end));
    VB_ASSERT(st != VB_OK || w->offset == head->file_bytes);
    return st;
}

bool vb_checkpoint_copy(const struct vb_checkpoint_array *a, void *to)
{
    size_t len = (size_t)a->rows * (size_t)a->cols * sizeof(float);

    if (a->fetch != NULL)
        return a->fetch(a->from, 0, len, to);
    if (len > 0)
        memcpy(to, a->data, len);
    return true;
}

/* ---- the file -------------------------------------------------------------------------------- */

static vb_status sync_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    vb_status st = VB_OK;

    if (fd < 0)
        return vb_err_sys("cannot open the folder %s", dir);
    if (fsync(fd) != 0 && errno != EINVAL) /* EINVAL: this file system cannot sync folders */
        st = vb_err_sys("cannot sync the folder %s", dir);
    close(fd);
    return st;
}

static vb_status make_folder(const char *dir)
{
    char parent[PATH_MAX];

    if (mkdir(dir, 0777) != 0)
        return errno == EEXIST
                   ? VB_OK
                   : vb_file_denied(vb_err_sys("cannot create the folder %s", dir), dir);
    snprintf(parent, sizeof(parent), "%s/..", dir);
    return sync_folder(parent);
}

static vb_status start(const struct vb_checkpoint *cp, const char *dir, struct writer *w,
                       struct cp_head *head)
{
    size_t options = cp->options != NULL ? strlen(cp->options) : 0;
    size_t plan = cp->plan != NULL ? strlen(cp->plan) : 0;

    if (cp->step < 0 || cp->n_arrays < 0 || cp->n_arrays > VB_CHECKPOINT_ARRAYS_MAX ||
        options > VB_CHECKPOINT_TEXT_MAX || plan > VB_CHECKPOINT_TEXT_MAX)
        return vb_err(VB_ERR_USAGE,
                      "cannot write a checkpoint to %s: its step, arrays or texts are invalid",
                      dir);
    if (!vb_cp_path(w->path, dir, cp->step) ||
        (size_t)snprintf(w->temp, PATH_MAX, "%s.%ld.tmp", w->path, (long)getpid()) >= PATH_MAX)
        return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", dir);
    head->step = cp->step;
    head->seed = cp->seed;
    head->n_arrays = (uint32_t)cp->n_arrays;
    head->options_bytes = (uint32_t)options;
    head->plan_bytes = (uint32_t)plan;
    head->chunk_bytes = CP_CHUNK;
    memcpy(head->magic, CP_MAGIC, sizeof(head->magic));
    return make_folder(dir);
}

/* The job goes on without this writer if another one has written in a later view. This one would
 * replace or remove the other's files, and the job would be resumed from its steps. */
static vb_status check_view(const struct writer *w, const char *dir, const struct vb_checkpoint *cp)
{
    char path[PATH_MAX], text[VB_CHECKPOINT_VIEW_TEXT], later[VB_CHECKPOINT_VIEW_TEXT];
    struct vb_checkpoint_view view;

    if (w->watch == NULL || cp->view.run == 0 ||
        vb_checkpoint_later(dir, INT64_MAX, &cp->view, path, sizeof(path), &view) < 0)
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "cannot write %s in %s of its job: the job goes on without this rank, because %s "
                  "is of %s",
                  w->path, vb_checkpoint_view_text(&cp->view, text), path,
                  vb_checkpoint_view_text(&view, later));
}

static vb_status finish(struct writer *w, const char *dir, const struct vb_checkpoint *cp)
{
    vb_status st;

    if (fsync(w->fd) != 0)
        return vb_err_sys("cannot sync %s at offset %llu", w->path, (unsigned long long)w->offset);
    st = check_view(w, dir, cp); /* writing takes long */
    if (st != VB_OK)
        return st;
    if (rename(w->temp, w->path) != 0)
        return vb_err_sys("cannot rename %s to %s", w->temp, w->path);
    return sync_folder(dir);
}

vb_status vb_cp_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                      struct cp_watch *watch, double *seconds_p)
{
    uint64_t begin_ns = vb_clock_ns();
    struct cp_head head = {.version = CP_VERSION};
    struct writer w = {.fd = -1, .watch = watch};
    vb_status st = start(cp, dir, &w, &head);

    if (st == VB_OK)
        st = vb_file_may_replace(w.path);
    if (st == VB_OK)
        st = check_view(&w, dir, cp);
    if (st != VB_OK)
        return st;
    vb_cp_remove_stale(dir);
    w.fd = open(w.temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (w.fd < 0)
        return vb_file_denied(vb_err_sys("cannot create %s", w.path), w.path);
    st = append_all(&w, cp, &head);
    if (st == VB_OK)
        st = finish(&w, dir, cp);
    close(w.fd);
    if (st != VB_OK) {
        unlink(w.temp); /* if only the sync of the folder failed, the file was already renamed */
        return st;
    }
    if (keep > 0)
        vb_cp_remove_old(dir, cp->step, keep);
    if (seconds_p != NULL)
        *seconds_p = (double)(vb_clock_ns() - begin_ns) / 1e9;
    return VB_OK;
}

vb_status vb_checkpoint_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                              double *seconds_p)
{
    return vb_cp_write(dir, cp, keep, NULL, seconds_p);
}
