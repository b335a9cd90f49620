/* SPDX-License-Identifier: MIT
 *
 * Fuzzes IDX files. The first byte says whether the input is the file of images or the file of
 * labels; the other file is correct.
 *
 * Covers: data/idx.c
 */
#include "tests/fuzz/fuzz_data.h"

static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4};
static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9};
static char right[2][64];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int i, fd;

    (void)argc;
    (void)argv;
    for (i = 0; i < 2; i++) {
        fd = memfd_create("right", MFD_CLOEXEC);
        snprintf(right[i], sizeof(right[i]), "/proc/self/fd/%d", fd);
        if (write(fd, i == 0 ? images : labels, i == 0 ? sizeof(images) : sizeof(labels)) < 1)
            abort();
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vb_data_facts facts;
    struct vb_dataset set;
    const char *path;
    vb_status st;

    if (size == 0)
        return 0;
    path = fuzz_file(data + 1, size - 1);
    st = data[0] % 2 == 0 ? vb_idx_read(path, right[1], &set) : vb_idx_read(right[0], path, &set);
    if (st != VB_OK)
        return 0;
    if (set.n != 2 || vb_data_look(&set, &facts) != VB_OK)
        abort();
    vb_data_facts_fini(&facts);
    vb_dataset_destroy(&set);
    return 0;
}
