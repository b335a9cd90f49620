/* SPDX-License-Identifier: MIT
 *
 * Our own backends of convolutions and linear layers (own.c). Their kernels are compiled once for
 * each level of instructions.
 */
#ifndef VB_KERNELS_OWN_OWN_H
#define VB_KERNELS_OWN_OWN_H

#include "kernels/layer/level.h"

extern const struct vb_k_backend vb_k_backend_gemm;
extern const struct vb_k_backend vb_k_backend_direct;    /* few channels */
extern const struct vb_k_backend vb_k_backend_winograd2; /* F(2x2, 3x3) */
extern const struct vb_k_backend vb_k_backend_winograd4; /* F(4x4, 3x3), F(2x2, 5x5) */
extern const struct vb_k_backend vb_k_backend_pooled;    /* conv-pool only */

/* The kernels of each level: kernels/own/own_table.c, compiled once for each level. */
struct vb_own_kernels {
    vb_k_prepare *gemm, *direct, *pooled, *winograd2, *winograd4;
};

extern const struct vb_own_kernels vb_own_kernels, vb_own_kernels_v3, vb_own_kernels_v4;

/* vb_k_softmax_xent() at each level: kernels/own/softmax_rows.c. */
typedef double vb_softmax_fn(float *logits, const uint16_t *y, size_t n, int classes,
                             int *correct_p);
vb_softmax_fn vb_softmax_rows, vb_softmax_rows_v3, vb_softmax_rows_v4;

#endif
