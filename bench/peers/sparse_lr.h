/* SPDX-License-Identifier: MIT
 *
 * Rows as of click data, and a bare loop that trains logistic regression on them: what the kernels
 * are held against.
 */
#ifndef VB_PEERS_SPARSE_LR_H
#define VB_PEERS_SPARSE_LR_H

#include <stddef.h>
#include <stdint.h>

#define LR_FIELDS 39
#define LR_FEATURES 33762578u

/* Rows of LR_FIELDS entries each; all memory is the caller's. */
struct lr_data {
    size_t n_rows;
    uint32_t *index; /* (n_rows, LR_FIELDS) */
    float *value;
    uint8_t *label;  /* (n_rows) */
    uint32_t *order; /* (n_rows): shuffled */
};

/* 0, or -1: no memory. */
int lr_data_make(size_t n_rows, struct lr_data *data_p);
void lr_data_free(struct lr_data *data);

/* Steps of minibatch SGD on rows order[first] to order[first + steps * batch - 1]. w: LR_FEATURES
 * floats on huge pages; bias: one. logits: room for batch floats. Returns the sum of the losses. */
double lr_bare_steps(const struct lr_data *data, size_t first, size_t steps, size_t batch,
                     float rate, float *w, float *bias, float *logits);

#endif
