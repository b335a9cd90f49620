/* SPDX-License-Identifier: MIT
 *
 * Shared by the fuzzers of readers. The input becomes a file in memory. If the reader accepts the
 * file, the data must be valid.
 */
#ifndef VB_TESTS_FUZZ_FUZZ_DATA_H
#define VB_TESTS_FUZZ_FUZZ_DATA_H

#include "data/data_priv.h"
#include "tests/fuzz/fuzz_file.h"

/* Checks every row of an accepted data set. */
static inline void fuzz_check_rows(const struct vb_dataset *set)
{
    struct row_room room;
    struct row row;
    int i, e;

    if (set->kind != VB_DATA_ROWS || set->n < 1 || set->features < 1)
        abort();
    for (i = 0; i < set->n; i++) {
        if (vb_dataset_row(set, i, &row, &room) != VB_OK || row.n > set->row_max || row.y > 1)
            abort();
        for (e = 0; e < row.n; e++)
            if (row.index[e] >= (uint32_t)set->features ||
                (e > 0 && row.index[e] <= row.index[e - 1]) ||
                row_value(&row, e) - row_value(&row, e) != 0)
                abort();
    }
}

/* Reads the input with a reader of rows, and checks the data set if the reader accepts it. */
static inline void fuzz_rows(vb_status (*read)(const char *, int, struct row_sink *), int features,
                             const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    struct vb_dataset set;
    struct rows_mem *mem;

    if (vb_rows_mem_create(0, &mem) != VB_OK)
        abort();
    if (read(path, features, vb_rows_mem_sink(mem)) == VB_OK &&
        vb_rows_mem_finish(mem, path, &set) == VB_OK) {
        fuzz_check_rows(&set);
        vb_dataset_destroy(&set);
    }
    vb_rows_mem_destroy(mem);
}

#endif
