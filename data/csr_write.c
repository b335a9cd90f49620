/* SPDX-License-Identifier: MIT
 *
 * Writes a .csr file into an unnamed file, so that nothing is left if the writer is killed, then
 * names it and renames it over the old one. Without unnamed files, uses a temporary file.
 */
#include "data/csr_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct csr_writer {
    struct row_sink sink; /* must be the first member: put() casts the address of the sink */
    char path[PATH_MAX], temp[PATH_MAX];
    int fd;     /* -1: the file is finished or was never opened */
    bool named; /* a file with the name temp exists */
    uint64_t offset;
    struct csr_block *blocks;
    uint32_t n_blocks;
    size_t blocks_cap;
    uint32_t n, nnz; /* this and the rest: the block that is being filled */
    uint32_t at[CSR_BLOCK_ROWS + 1];
    uint32_t *words;
    size_t n_words, words_cap;
};

static vb_status write_at(struct csr_writer *w, const void *data, size_t len, uint64_t offset)
{
    const char *from = data;
    ssize_t n;

    while (len > 0) {
        n = pwrite(w->fd, from, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return vb_err_sys("write %s", w->path);
        from += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return VB_OK;
}

/* Appends data to the file and adds the data to the checksum *crc. */
static vb_status append(struct csr_writer *w, const void *data, size_t len, uint32_t *crc)
{
    vb_status st = write_at(w, data, len, w->offset);

    *crc = vb_crc32c(*crc, data, len);
    w->offset += len;
    return st;
}

static vb_status end_block(struct csr_writer *w)
{
    const uint32_t zero = 0;
    struct csr_block *b;
    uint32_t crc = 0;
    vb_status st;

    if (w->n == 0)
        return VB_OK;
    b = vb_grown(w->blocks, &w->blocks_cap, w->n_blocks + 1, sizeof(*b));
    if (b == NULL)
        return vb_err_sys("realloc");
    w->blocks = b;
    b += w->n_blocks++;
    *b = (struct csr_block){.offset = w->offset,
                            .first = (uint64_t)w->sink.rows - w->n,
                            .n = w->n,
                            .nnz = w->nnz,
                            .words = (uint32_t)w->n_words};
    st = append(w, w->at, ((size_t)w->n + 1) * 4, &crc);
    if (st == VB_OK)
        st = append(w, w->words, w->n_words * 4, &crc);
    if (st == VB_OK)
        st = append(w, &zero, csr_block_bytes(b) - ((size_t)w->n + 1 + w->n_words) * 4, &crc);
    b->crc = crc;
    w->n = w->nnz = 0;
    w->n_words = 0;
    return st;
}

static vb_status put(struct row_sink *sink, const struct row *row)
{
    struct csr_writer *w = (struct csr_writer *)sink;
    size_t n = (size_t)row->n, n_values = (size_t)row->n_values, all;
    uint32_t *words;

    while (n_values > 0 && row->value[n_values - 1] == 1)
        n_values--; /* values after the last one that is not 1 are not stored */
    all = w->n_words + 1 + n + n_values;
    if (all > UINT32_MAX)
        return vb_err(VB_ERR_INPUT, "%s: row %lld is too long", w->path,
                      (long long)w->sink.rows - 1);
    words = vb_grown(w->words, &w->words_cap, all, sizeof(*words));
    if (words == NULL)
        return vb_err_sys("realloc");
    w->words = words;
    words += w->n_words;
    words[0] = (uint32_t)n_values * 2 + row->y;
    if (n > 0)
        memcpy(words + 1, row->index, n * sizeof(*row->index));
    if (n_values > 0)
        memcpy(words + 1 + n, row->value, n_values * sizeof(*row->value));
    w->n_words = all;
    w->nnz += (uint32_t)n;
    w->at[++w->n] = (uint32_t)w->n_words;
    if (w->n < CSR_BLOCK_ROWS && w->nnz < CSR_BLOCK_NNZ)
        return VB_OK;
    return end_block(w);
}

/* The path of an open file in /proc, by which linkat() can give it a name. */
#define FD_PATH "/proc/self/fd/%d"

/* Returns -1 if there are no unnamed files, or if the file could not be given a name later. */
static int open_unnamed(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".", name[32];
    int fd;

    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path) + 1, path);
    fd = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    snprintf(name, sizeof(name), FD_PATH, fd);
    if (access(name, F_OK) == 0)
        return fd;
    close(fd); /* /proc is not mounted, so the file could not be given a name */
    return -1;
}

static vb_status open_temp(struct csr_writer *w)
{
    w->fd = open_unnamed(w->path);
    if (w->fd >= 0)
        return VB_OK;
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    w->named = w->fd >= 0;
    return w->named ? VB_OK : vb_err_sys("create %s", w->path);
}

/* Only a named file can be renamed over another, so the unnamed file gets the name temp. */
static vb_status name_temp(struct csr_writer *w)
{
    char name[32];

    if (w->named)
        return VB_OK;
    snprintf(name, sizeof(name), FD_PATH, w->fd);
    (void)unlink(w->temp); /* a killed process that had the same id may have left this file */
    if (linkat(AT_FDCWD, name, AT_FDCWD, w->temp, AT_SYMLINK_FOLLOW) != 0)
        return vb_err_sys("create %s", w->path);
    w->named = true;
    return VB_OK;
}

vb_status vb_csr_writer_create(const char *path, int features, struct csr_writer **w_p)
{
    struct csr_writer *w = calloc(1, sizeof(*w));
    vb_status st;

    if (w == NULL)
        return vb_err_sys("calloc");
    w->fd = -1;
    w->sink.put = put;
    w->sink.features = features;
    w->offset = sizeof(struct csr_head);
    if ((size_t)snprintf(w->path, sizeof(w->path), "%s", path) >= sizeof(w->path) ||
        (size_t)snprintf(w->temp, sizeof(w->temp), "%s.%ld.tmp", path, (long)gettid()) >=
            sizeof(w->temp)) {
        free(w);
        return vb_err(VB_ERR_USAGE, "cannot write %.64s...: the path is too long", path);
    }
    st = vb_file_may_replace(path);
    if (st == VB_OK)
        st = open_temp(w);
    if (st != VB_OK) {
        free(w);
        return st;
    }
    *w_p = w;
    return VB_OK;
}

struct row_sink *vb_csr_writer_sink(struct csr_writer *w)
{
    return &w->sink;
}

static vb_status write_ends(struct csr_writer *w)
{
    struct csr_head head = {.version = CSR_VERSION,
                            .rows = (uint64_t)w->sink.rows,
                            .nonzeros = (uint64_t)w->sink.nonzeros,
                            .positive = (uint64_t)w->sink.positive,
                            .features = w->sink.features > 0 ? (uint32_t)w->sink.features : 1,
                            .row_max = (uint32_t)w->sink.row_max,
                            .table = w->offset,
                            .n_blocks = w->n_blocks};
    vb_status st;

    memcpy(head.magic, CSR_MAGIC, sizeof(head.magic));
    st = append(w, w->blocks, w->n_blocks * sizeof(*w->blocks), &head.table_crc);
    head.crc = csr_head_crc(head);
    if (st == VB_OK)
        st = write_at(w, &head, sizeof(head), 0);
    if (st == VB_OK && fsync(w->fd) != 0)
        st = vb_err_sys("sync %s", w->path);
    return st;
}

vb_status vb_csr_writer_finish(struct csr_writer *w)
{
    vb_status st;

    if (w->sink.rows == 0)
        return vb_err(VB_ERR_INPUT, "%s: no rows to write", w->path);
    st = end_block(w);
    if (st == VB_OK)
        st = write_ends(w);
    if (st == VB_OK)
        st = name_temp(w);
    if (st == VB_OK && rename(w->temp, w->path) != 0)
        st = vb_err_sys("cannot rename %s to %s", w->temp, w->path);
    if (st != VB_OK)
        return st;
    close(w->fd);
    w->fd = -1;
    return vb_file_sync_folder(w->path);
}

void vb_csr_writer_destroy(struct csr_writer *w)
{
    if (w == NULL)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        if (w->named)
            unlink(w->temp);
    }
    free(w->blocks);
    free(w->words);
    free(w);
}
