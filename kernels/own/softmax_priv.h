/* SPDX-License-Identifier: MIT
 *
 * Declares the function that computes vb_k_softmax_xent(), at each level of instructions.
 */
#ifndef VB_KERNELS_OWN_SOFTMAX_PRIV_H
#define VB_KERNELS_OWN_SOFTMAX_PRIV_H

#include "kernels/layer/level.h"

typedef double vb_softmax_fn(float *logits, const uint16_t *y, size_t n, int classes,
                             int *correct_p);

vb_softmax_fn vb_softmax_rows, vb_softmax_rows_v3,
    vb_softmax_rows_v4; /* kernels/own/softmax_rows.c */

#endif
