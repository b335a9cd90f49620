/* SPDX-License-Identifier: MIT
 *
 * Rows for bench/sparse_lr.c, in shuffled order.
 */
#ifndef VB_BENCH_SPARSE_ROWS_H
#define VB_BENCH_SPARSE_ROWS_H

#include "base/base.h"
#include "bench/peers/sparse_lr.h"

/* n_rows rows, which are never freed. data is one of
 *
 *   head  a few hundred features of each field: a batch of 100 touches 1,790 of all features, one
 *         of 1,000 9,418, which is as in the data that others were measured on
 *   tail  a long tail besides: 1,613, 11,544, and of 100,000 550,000
 *
 * or what vb_data_spec_parse() takes, "csr:FILE", "synth:kind=criteo,n=400000", of at least n_rows
 * rows and at most LR_FEATURES features. */
vb_status lr_rows(const char *data, size_t n_rows, struct lr_data *data_p);

/* For programs that are not ours, all little-endian and as in struct lr_data: n_rows and nnz as
 * 64-bit numbers, offset, index, value, label. */
vb_status lr_rows_write(const struct lr_data *data, const char *path);

/* How many features the first n rows in shuffled order name. */
vb_status lr_rows_touched(const struct lr_data *data, size_t n, size_t *touched_p);

#endif
