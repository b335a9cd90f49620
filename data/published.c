/* SPDX-License-Identifier: MIT
 *
 * Files as their authors publish them: names, sizes and SHA-256 digests, so that a user can be told
 * whether a file is the one that others measured with. Mirrors pack the same files differently, so
 * all figures are those of the uncompressed file. docs/data.md says where the files are published
 * and where each digest comes from. A digest that could not be confirmed is not in the table.
 */
#include "data/data_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 262144
#define CIFAR_BYTES 30730000 /* 10,000 records of 3,073 bytes */

static const struct vb_published table[] = {
    {VB_DATA_MNIST, VB_SYNTH_TRAIN, "train-images-idx3-ubyte", 47040016,
     "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
    {VB_DATA_MNIST, VB_SYNTH_TRAIN, "train-labels-idx1-ubyte", 60008,
     "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
    {VB_DATA_MNIST, VB_SYNTH_TEST, "t10k-images-idx3-ubyte", 7840016,
     "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
    {VB_DATA_MNIST, VB_SYNTH_TEST, "t10k-labels-idx1-ubyte", 10008,
     "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
    {VB_DATA_CIFAR10, VB_SYNTH_TRAIN, "data_batch_1.bin", CIFAR_BYTES, NULL},
    {VB_DATA_CIFAR10, VB_SYNTH_TRAIN, "data_batch_2.bin", CIFAR_BYTES, NULL},
    {VB_DATA_CIFAR10, VB_SYNTH_TRAIN, "data_batch_3.bin", CIFAR_BYTES, NULL},
    {VB_DATA_CIFAR10, VB_SYNTH_TRAIN, "data_batch_4.bin", CIFAR_BYTES, NULL},
    {VB_DATA_CIFAR10, VB_SYNTH_TRAIN, "data_batch_5.bin", CIFAR_BYTES, NULL},
    {VB_DATA_CIFAR10, VB_SYNTH_TEST, "test_batch.bin", CIFAR_BYTES, NULL},
    {VB_DATA_LIBSVM, VB_SYNTH_TRAIN, "a9a", 2327314,
     "7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca"},
    {VB_DATA_LIBSVM, VB_SYNTH_TRAIN, "a9a.t", 1164628,
     "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"},
    {VB_DATA_LIBSVM, VB_SYNTH_TRAIN, "agaricus.txt.train", 742257,
     "915c2def06e9b44a306ad097fe8b6652c7c477d9c1e605bd2130ad20a70a8ad6"},
    {VB_DATA_LIBSVM, VB_SYNTH_TRAIN, "agaricus.txt.test", 183611,
     "765db79391141953d890ce197fe828a621d6487fbba4de5e4d2217bd140371c0"},
};

/* Returns true if path ends with the published name, plain or with .gz. */
static bool has_name(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t len = strlen(name);

    return strncmp(base, name, len) == 0 && (base[len] == '\0' || strcmp(base + len, ".gz") == 0);
}

/* Writes the path of a published file in a folder. Returns false if the folder does not have it.
 * The order is that of the readers: a plain file comes first. */
static bool in_folder(const char *dir, const char *name, char path[PATH_MAX])
{
    static const char *const forms[] = {"%s/%s", "%s/%s.gz"};
    size_t i;

    for (i = 0; i < VB_COUNT(forms); i++)
        if ((size_t)snprintf(path, PATH_MAX, forms[i], dir, name) < PATH_MAX &&
            access(path, F_OK) == 0)
            return true;
    return false;
}

static bool is_folder(const struct vb_data_spec *spec)
{
    return spec->format == VB_DATA_MNIST ||
           (spec->format == VB_DATA_CIFAR10 && vb_cifar_has_parts(spec->path));
}

int vb_data_published(const struct vb_data_spec *spec, enum vb_synth_part part,
                      struct vb_published_file found[VB_PUBLISHED_MAX])
{
    bool folder = spec->path != NULL && is_folder(spec);
    const struct vb_published *p;
    int n = 0;

    if (spec->path == NULL || strlen(spec->path) >= PATH_MAX)
        return 0;
    for (p = table; p < table + VB_COUNT(table) && n < VB_PUBLISHED_MAX; p++) {
        if (p->format != spec->format || (folder && p->part != part))
            continue;
        if (folder ? !in_folder(spec->path, p->name, found[n].path)
                   : !has_name(spec->path, p->name))
            continue;
        if (!folder)
            snprintf(found[n].path, PATH_MAX, "%s", spec->path);
        found[n++].as = p;
    }
    return n;
}

vb_status vb_data_bytes(const char *path, uint64_t most, vb_data_bytes_fn fn, void *arg,
                        uint64_t *bytes_p)
{
    char *piece = malloc(PIECE_BYTES);
    struct stream *s = NULL;
    uint64_t bytes = 0;
    size_t got = PIECE_BYTES;
    vb_status st = piece != NULL ? vb_stream_open(path, &s) : vb_err_sys("malloc");

    while (st == VB_OK && got == PIECE_BYTES && bytes <= most) {
        st = vb_stream_read(s, piece, PIECE_BYTES, &got);
        if (st != VB_OK)
            break;
        fn(arg, piece, got);
        bytes += got;
    }
    vb_stream_close(s);
    free(piece);
    if (st == VB_OK)
        *bytes_p = bytes;
    return st;
}
