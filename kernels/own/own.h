/* SPDX-License-Identifier: MIT
 *
 * Our own backends of convolutions and linear layers. Their kernels are compiled once for each
 * level of instructions, and each level has a table of them.
 */
#ifndef VB_KERNELS_OWN_OWN_H
#define VB_KERNELS_OWN_OWN_H

#include "kernels/layer/level.h"

#include <stdlib.h>

extern const struct vb_k_backend vb_k_backend_gemm;      /* kernels/own/gemm_layer.c */
extern const struct vb_k_backend vb_k_backend_direct;    /* kernels/own/direct.c: few channels */
extern const struct vb_k_backend vb_k_backend_winograd2; /* kernels/own/winograd.c: F(2x2, 3x3) */
extern const struct vb_k_backend vb_k_backend_winograd4; /* same file: F(4x4, 3x3), F(2x2, 5x5) */
extern const struct vb_k_backend vb_k_backend_pooled;    /* kernels/own/pooled.c: conv-pool only */

struct vb_own_kernels {
    vb_k_prepare *gemm, *direct, *pooled, *winograd2, *winograd4;
};

/* The kernels of each level: kernels/own/own_table.c, compiled once for each level. */
extern const struct vb_own_kernels vb_own_kernels, vb_own_kernels_v3, vb_own_kernels_v4;

/* kernels/own/own.c: returns the kernels of the level in use. */
const struct vb_own_kernels *vb_own_in_use(void);

/* The function run() of all our own backends. */
void vb_own_run(void *state, const struct vb_k_args *args);

/* Defines the backend vb_k_backend_NAME, whose function can() is CAN. */
#define VB_OWN_BACKEND(NAME, CAN)                                                                  \
    static vb_status NAME##_prepare(const struct vb_k_shape *s, enum vb_k_pass pass,               \
                                    void **state_p, size_t *scratch_p)                             \
    {                                                                                              \
        return vb_own_in_use()->NAME(s, pass, state_p, scratch_p);                                 \
    }                                                                                              \
    const struct vb_k_backend vb_k_backend_##NAME = {.name = #NAME,                                \
                                                     .can = (CAN),                                 \
                                                     .prepare = NAME##_prepare,                    \
                                                     .run = vb_own_run,                            \
                                                     .destroy = free};

#endif
