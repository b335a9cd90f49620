/* SPDX-License-Identifier: MIT
 *
 * Fuzzes CIFAR-10 records. Inputs are short and records are long, so each byte stands for 64 bytes
 * of the file.
 *
 * Covers: data/cifar.c
 */
#include "tests/fuzz/fuzz_data.h"

#define STRETCH 64
#define INPUT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[INPUT_MAX * STRETCH];
    struct vb_data_facts facts;
    struct vb_dataset set;
    const char *path;
    size_t i, cut;

    if (size > INPUT_MAX)
        return 0;
    for (i = 0; i < size; i++)
        memset(file + i * STRETCH, data[i], STRETCH);
    cut = size > 0 ? data[0] % STRETCH : 0; /* so that some files end inside a record */
    path = size % 4 == 0 ? fuzz_file(data, size) : fuzz_file(file, size * STRETCH - cut);
    if (vb_cifar_read(&path, 1, &set) != VB_OK)
        return 0;
    if (set.n < 1 || vb_data_look(&set, &facts) != VB_OK)
        abort();
    vb_data_facts_fini(&facts);
    vb_dataset_destroy(&set);
    return 0;
}
