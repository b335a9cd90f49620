/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the cache of chosen backends. Random input never has the correct first line, which names
 * this machine, so the fuzzer also tries the input after a correct first line.
 *
 * Covers: kernels/choice/choice_cache.c
 */
#include "kernels/blas/blas.h"
#include "kernels/choice/choice_priv.h"
#include "tests/fuzz/fuzz.h"

#include <glob.h>

static char root[] = "/tmp/verbena-fuzz-XXXXXX";
static char path[128], key[VB_LINE];

/* The files in seeds/plan_cache contain choices for this shape. */
static const struct vb_k_shape shape = {
    .kind = VB_K_LINEAR, .n = 1, .c = 4, .h = 1, .w = 1, .oc = 2, .oh = 1, .ow = 1};

static void remove_root(void)
{
    unlink(path);
    rmdir(root);
}

/* Gets the name of the cache file and its first line. To do so, opens a cache, adds a choice, and
 * reads the file that the cache has written. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct vb_k_cache *cache;
    char pattern[64];
    glob_t found;

    (void)argc;
    (void)argv;
    if (mkdtemp(root) == NULL || vb_k_cache_open(root, &cache) != VB_OK)
        abort();
    vb_k_cache_add(cache, &shape, VB_K_FORWARD, false, &vb_k_backend_blas);
    vb_k_cache_close(cache);
    snprintf(pattern, sizeof(pattern), "%s/plan-*", root);
    if (glob(pattern, 0, NULL, &found) != 0 || found.gl_pathc != 1)
        abort();
    snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    if (!vb_probe_line(key, sizeof(key), "%s", path))
        abort();
    atexit(remove_root);
    return 0;
}

static void try(const char *first, const uint8_t *data, size_t size)
{
    const struct vb_k_backend *backend;
    struct vb_k_cache *cache;
    FILE *file = fopen(path, "w");
    int pass;

    if (file == NULL || fprintf(file, "%s", first) < 0 || fwrite(data, 1, size, file) != size ||
        fclose(file) != 0)
        abort();
    if (vb_k_cache_open(root, &cache) != VB_OK)
        abort(); /* a broken file must give an empty cache */
    for (pass = 0; pass < VB_K_PASSES; pass++) {
        backend = vb_k_cache_find(cache, &shape, (enum vb_k_pass)pass, false);
        if (backend != NULL && vb_k_backend_find(backend->name) != backend)
            abort();
    }
    vb_k_cache_close(cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char first[VB_LINE + 1];

    snprintf(first, sizeof(first), "%s\n", key);
    try("", data, size);
    try(first, data, size);
    return 0;
}
