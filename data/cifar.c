/* SPDX-License-Identifier: MIT
 *
 * Reads CIFAR-10 in its binary format. A record has 3,073 bytes: one byte for the class, and 3 x 32
 * x 32 bytes for the pixels.
 */
#include "data/data_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE 32
#define PIXELS (3 * SIDE * SIDE)
#define RECORD (1 + PIXELS)
#define CLASSES 10
#define PIECE 64 /* number of records read at a time */
#define FILES_MAX 5

/* The records of all files, one after the other. */
struct records {
    uint8_t *data;
    size_t n, cap;
};

static vb_status read_piece(struct stream *s, struct records *r, bool *more_p)
{
    uint64_t offset = vb_stream_offset(s);
    size_t i = r->n, got;
    uint8_t *data = NULL;
    vb_status st;

    if (r->n < INT32_MAX - PIECE)
        data = vb_grown(r->data, &r->cap, r->n + PIECE, RECORD);
    if (data == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu images", r->n + PIECE);
    r->data = data;
    st = vb_stream_read(s, r->data + r->n * RECORD, (size_t)PIECE * RECORD, &got);
    if (st != VB_OK)
        return st;
    r->n += got / RECORD;
    if (got % RECORD != 0)
        return vb_err(VB_ERR_INPUT, "%s: offset %llu: the file ends within a record of %d bytes",
                      s->path, (unsigned long long)vb_stream_offset(s), RECORD);
    for (; i < r->n; i++, offset += RECORD)
        if (r->data[i * RECORD] >= CLASSES)
            return vb_err(VB_ERR_INPUT, "%s: offset %llu: found class %d, expected 0 to 9", s->path,
                          (unsigned long long)offset, r->data[i * RECORD]);
    *more_p = got > 0;
    return VB_OK;
}

static vb_status read_file(const char *path, struct records *r)
{
    size_t before = r->n;
    bool more = true;
    struct stream *s;
    vb_status st = vb_stream_open(path, &s);

    if (st != VB_OK)
        return st;
    while (st == VB_OK && more)
        st = read_piece(s, r, &more);
    if (st == VB_OK && r->n == before)
        st = vb_err(VB_ERR_INPUT, "%s: offset 0: the file is empty", path);
    vb_stream_close(s);
    return st;
}

vb_status vb_cifar_read(const char *const *paths, int n, struct vb_dataset *set_p)
{
    struct records r = {.n = 0};
    vb_status st = VB_OK;
    size_t at;
    int i;

    for (i = 0; st == VB_OK && i < n; i++)
        st = read_file(paths[i], &r);
    if (st == VB_OK)
        st = vb_images_create((int)r.n, 3, SIDE, SIDE, CLASSES, set_p);
    for (at = 0; st == VB_OK && at < r.n; at++) {
        set_p->store->y[at] = r.data[at * RECORD];
        memcpy(set_p->store->pixels + at * PIXELS, r.data + at * RECORD + 1, PIXELS);
    }
    free(r.data);
    return st;
}

bool vb_cifar_has_parts(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Finds the file NAME.bin or NAME.bin.gz in a folder. */
static vb_status find(const char *dir, const char *name, char path[PATH_MAX])
{
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s.bin", dir, name) < PATH_MAX &&
        access(path, F_OK) == 0)
        return VB_OK;
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s.bin.gz", dir, name) < PATH_MAX &&
        access(path, F_OK) == 0)
        return VB_OK;
    return vb_err(VB_ERR_NO_FILE,
                  "%s: the folder has no file %s.bin, neither plain nor with .gz; to use one file "
                  "alone, write cifar10:FILE",
                  dir, name);
}

/* Reads the files of a folder. A part of the files is refused: whoever copied them may not know. */
static vb_status read_folder(const char *dir, const char *const *names, int n,
                             struct vb_dataset *set_p)
{
    char(*found)[PATH_MAX] = calloc((size_t)n, sizeof(*found));
    const char *paths[FILES_MAX];
    vb_status st = VB_OK;
    int i;

    if (found == NULL)
        return vb_err_sys("calloc");
    for (i = 0; st == VB_OK && i < n; i++) {
        paths[i] = found[i];
        st = find(dir, names[i], found[i]);
    }
    if (st == VB_OK)
        st = vb_cifar_read(paths, n, set_p);
    free(found);
    return st;
}

vb_status vb_cifar_open(const char *path, enum vb_synth_part part, struct vb_dataset *set_p)
{
    static const char *const train[FILES_MAX] = {"data_batch_1", "data_batch_2", "data_batch_3",
                                                 "data_batch_4", "data_batch_5"};
    static const char *const test[] = {"test_batch"};

    if (!vb_cifar_has_parts(path))
        return vb_cifar_read(&path, 1, set_p);
    return part == VB_SYNTH_TEST ? read_folder(path, test, 1, set_p)
                                 : read_folder(path, train, FILES_MAX, set_p);
}
