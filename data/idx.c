/* SPDX-License-Identifier: MIT
 *
 * Reads and writes IDX files, the format of MNIST: two zero bytes, the type of the numbers (8:
 * bytes), the number of dimensions, each dimension (32 bits, big-endian), the numbers.
 */
#include "data/data_priv.h"

#include <endian.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPE_BYTES 8
#define SIDE_MAX 4096
#define CLASSES_MAX 256

static vb_status read_head(struct stream *s, int n_dims, uint32_t *dims)
{
    uint8_t head[4];
    vb_status st = vb_stream_exact(s, head, 4, "the header");
    int i;

    if (st != VB_OK)
        return st;
    if (head[0] != 0 || head[1] != 0 || head[2] != TYPE_BYTES || head[3] != n_dims)
        return vb_err(
            VB_ERR_INPUT, "%s: offset 0: %02x%02x%02x%02x is not the start of an IDX file of %s",
            s->path, head[0], head[1], head[2], head[3], n_dims == 1 ? "labels" : "images");
    st = vb_stream_exact(s, dims, (size_t)n_dims * 4, "the header");
    if (st != VB_OK)
        return st;
    for (i = 0; i < n_dims; i++)
        dims[i] = be32toh(dims[i]);
    return VB_OK;
}

/* Checks the dimensions of a file before memory is allocated for its contents. */
static vb_status check_size(struct stream *s, const uint32_t *dims, int n_dims)
{
    uint64_t bytes = dims[0];

    if (dims[0] == 0 || dims[0] > INT32_MAX)
        return vb_err(VB_ERR_INPUT, "%s: offset 4: found %u samples, expected 1 to %d", s->path,
                      dims[0], INT32_MAX);
    if (n_dims == 3) {
        if (dims[1] == 0 || dims[1] > SIDE_MAX || dims[2] == 0 || dims[2] > SIDE_MAX)
            return vb_err(
                VB_ERR_INPUT,
                "%s: offset 8: found images of %u x %u pixels, expected sides from 1 to %d",
                s->path, dims[1], dims[2], SIDE_MAX);
        bytes *= (uint64_t)dims[1] * dims[2];
    }
    if (bytes > vb_stream_room(s))
        return vb_err(VB_ERR_INPUT,
                      "%s: offset %llu: expected %llu more bytes, but at most %llu can follow",
                      s->path, (unsigned long long)vb_stream_offset(s), (unsigned long long)bytes,
                      (unsigned long long)vb_stream_room(s));
    return VB_OK;
}

static vb_status read_images(const char *path, struct vb_dataset *set)
{
    struct stream *s;
    uint32_t dims[3] = {0};
    vb_status st = vb_stream_open(path, &s);

    if (st != VB_OK)
        return st;
    st = read_head(s, 3, dims);
    if (st == VB_OK)
        st = check_size(s, dims, 3);
    if (st == VB_OK)
        st = vb_images_create((int)dims[0], 1, (int)dims[1], (int)dims[2], 0, set);
    if (st == VB_OK)
        st = vb_stream_exact(s, set->store->pixels, (size_t)set->n * (size_t)set->features,
                             "the pixels");
    if (st == VB_OK)
        st = vb_stream_end(s);
    vb_stream_close(s);
    return st;
}

/* Reads the labels as bytes into the first half of y, then widens them in place from the end. */
static vb_status read_labels(const char *path, struct vb_dataset *set)
{
    uint8_t *bytes = (uint8_t *)set->store->y;
    struct stream *s;
    uint32_t dims[1] = {0};
    vb_status st = vb_stream_open(path, &s);
    int i, most = 0;

    if (st != VB_OK)
        return st;
    st = read_head(s, 1, dims);
    if (st == VB_OK)
        st = check_size(s, dims, 1);
    if (st == VB_OK && dims[0] != (uint32_t)set->n)
        st = vb_err(VB_ERR_INPUT, "%s: offset 4: found %u labels, expected %d, one per image", path,
                    dims[0], set->n);
    if (st == VB_OK)
        st = vb_stream_exact(s, bytes, (size_t)set->n, "the labels");
    if (st == VB_OK)
        st = vb_stream_end(s);
    vb_stream_close(s);
    if (st != VB_OK)
        return st;
    for (i = set->n - 1; i >= 0; i--) {
        most = bytes[i] > most ? bytes[i] : most;
        set->store->y[i] = bytes[i];
    }
    set->classes = most + 1 > 10 ? most + 1 : 10;
    return VB_OK;
}

vb_status vb_idx_read(const char *images, const char *labels, struct vb_dataset *set_p)
{
    struct vb_dataset set = {.n = 0};
    vb_status st = read_images(images, &set);

    if (st == VB_OK)
        st = read_labels(labels, &set);
    if (st != VB_OK) {
        vb_dataset_destroy(&set);
        return st;
    }
    *set_p = set;
    return VB_OK;
}

/* Finds a file of MNIST, which may have one of several names. */
static vb_status find(const char *dir, const char *stem, const char *type, char path[PATH_MAX])
{
    static const char *const forms[] = {"%s/%s-%s-ubyte", "%s/%s-%s-ubyte.gz", "%s/%s.%s-ubyte",
                                        "%s/%s.%s-ubyte.gz"};
    size_t i;

    for (i = 0; i < VB_COUNT(forms); i++) {
        if ((size_t)snprintf(path, PATH_MAX, forms[i], dir, stem, type) >= PATH_MAX)
            return vb_err(VB_ERR_USAGE, "cannot read %.64s...: the path is too long", dir);
        if (access(path, F_OK) == 0)
            return VB_OK;
    }
    return vb_err(VB_ERR_NO_FILE,
                  "%s: the folder has no file %s-%s-ubyte, neither plain nor with .gz", dir, stem,
                  type);
}

vb_status vb_mnist_open(const char *dir, enum vb_synth_part part, struct vb_dataset *set_p)
{
    bool train = part == VB_SYNTH_TRAIN;
    char images[PATH_MAX], labels[PATH_MAX];
    vb_status st;

    st = find(dir, train ? "train-images" : "t10k-images", "idx3", images);
    if (st == VB_OK)
        st = find(dir, train ? "train-labels" : "t10k-labels", "idx1", labels);
    if (st != VB_OK)
        return st;
    return vb_idx_read(images, labels, set_p);
}

static vb_status write_idx(const char *path, const uint32_t *dims, int n_dims, uint8_t *file,
                           size_t len)
{
    uint32_t dim;
    int i;

    file[2] = TYPE_BYTES;
    file[3] = (uint8_t)n_dims;
    for (i = 0; i < n_dims; i++) {
        dim = htobe32(dims[i]);
        memcpy(file + 4 + 4 * (size_t)i, &dim, sizeof(dim));
    }
    return vb_file_replace(path, file, len);
}

vb_status vb_idx_write(const struct vb_dataset *set, const char *images, const char *labels)
{
    uint32_t dims[3] = {(uint32_t)set->n, (uint32_t)set->h, (uint32_t)set->w};
    size_t row = (size_t)set->features, n = (size_t)set->n, i;
    uint8_t *pixels, *y;
    vb_status st;

    if (set->kind != VB_DATA_IMAGES || set->c != 1 || set->classes > CLASSES_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%s: an IDX file holds only images of one channel and at most 256 classes",
                      images);
    pixels = calloc(1, 16 + n * row);
    y = calloc(1, 8 + n);
    if (pixels == NULL || y == NULL) {
        st = vb_err(VB_ERR_NO_MEMORY, "%s: no memory for %zu images", images, n);
    } else {
        for (i = 0; i < n; i++)
            y[8 + i] = (uint8_t)vb_dataset_image(set, (int)i, pixels + 16 + i * row);
        st = write_idx(images, dims, 3, pixels, 16 + n * row);
        if (st == VB_OK)
            st = write_idx(labels, dims, 1, y, 8 + n);
    }
    free(pixels);
    free(y);
    return st;
}
