/* SPDX-License-Identifier: MIT
 *
 * Rows of click data in memory, and a bare loop that trains logistic regression on them. Our
 * kernels are compared with this loop.
 */
#ifndef VB_BENCH_PEERS_BARE_SPARSE_LR_H
#define VB_BENCH_PEERS_BARE_SPARSE_LR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LR_FIELDS 39
#define LR_FEATURES 33762578u

struct lr_data {
    size_t n_rows, nnz;
    bool even;        /* every row has LR_FIELDS entries */
    uint64_t *offset; /* (n_rows + 1) start of each row */
    uint32_t *index;  /* (nnz) features */
    float *value;
    uint8_t *label;  /* (n_rows) labels */
    uint32_t *order; /* (n_rows) row numbers in shuffled order */
};

/* Runs steps of minibatch SGD on the rows order[first] to order[first + steps * batch - 1]. w is
 * on huge pages, logits has room for batch floats. Returns the sum of the losses. */
double lr_bare_steps(const struct lr_data *data, size_t first, size_t steps, size_t batch,
                     float rate, float *w, float *bias, float *logits);

#endif
