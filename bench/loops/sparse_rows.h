/* SPDX-License-Identifier: MIT
 *
 * Rows for bench/loops/sparse_lr.c, in shuffled order.
 */
#ifndef VB_BENCH_LOOPS_SPARSE_ROWS_H
#define VB_BENCH_LOOPS_SPARSE_ROWS_H

#include "base/base.h"
#include "bench/peers/bare_sparse_lr.h"

/* Makes n_rows rows, which are never freed. data is head (a few hundred features per field, as in
 * the data that other programs were measured on), tail (the same with a long tail of rare
 * features), or what vb_data_spec_parse() accepts, with n_rows rows and at most LR_FEATURES. */
vb_status lr_rows(const char *data, size_t n_rows, struct lr_data *data_p);

/* Writes the rows to a file for other programs, in little-endian order. The file has the fields of
 * struct lr_data: n_rows and nnz as 64-bit numbers, then offset, index, value, label. */
vb_status lr_rows_write(const struct lr_data *data, const char *path);

/* Counts the distinct features of the first n rows in shuffled order. */
vb_status lr_rows_touched(const struct lr_data *data, size_t n, size_t *touched_p);

#endif
