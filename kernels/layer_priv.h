/* SPDX-License-Identifier: MIT
 *
 * How a pass of a layer is computed: backends, one table each. A backend says which shapes it can
 * do, prepares one pass of one shape, and runs it any number of times without allocating. Which
 * backend is taken is decided by timing them.
 */
#ifndef VB_LAYER_PRIV_H
#define VB_LAYER_PRIV_H

#include "kernels/kernels.h"

/* The tensors of a pass; those that it does not use are NULL. Inputs and outputs do not overlap.
 *   forward           x w b -> y   (with ReLU, where the shape has it)
 *   backward data     w dy -> dx   (pooling and the like: x y too)
 *   backward weights  x dy -> dw db (summed over the batch, overwritten)
 * dy is the gradient before the ReLU: who calls has masked it already. */
struct vb_k_args {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    void *scratch; /* as much as the backend asked for, aligned to 64 bytes, kept by nobody */
};

struct vb_k_backend {
    const char *name; /* "onednn", "blas", "gemm", "direct", "winograd2", "winograd4", "plain" */

    /* May be asked about any shape. Cheap. */
    bool (*can)(const struct vb_k_shape *shape, enum vb_k_pass pass);

    /* state_p: what run() needs, owned by the caller until destroy(); scratch_p: bytes. The number
     * of threads is that of the OpenMP team at each run(); results do not depend on it. */
    vb_status (*prepare)(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p);
    void (*run)(void *state, const struct vb_k_args *args);
    void (*destroy)(void *state);
};

/* Each in a file of its own; every slot is filled. */
extern const struct vb_k_backend vb_k_backend_onednn;    /* kernels/onednn_layer.c */
extern const struct vb_k_backend vb_k_backend_blas;      /* kernels/blas_layer.c */
extern const struct vb_k_backend vb_k_backend_plain;     /* kernels/plain.c: pooling and the like */
extern const struct vb_k_backend vb_k_backend_gemm;      /* kernels/gemm_layer.c: our own GEMM */
extern const struct vb_k_backend vb_k_backend_direct;    /* kernels/direct.c: few channels */
extern const struct vb_k_backend vb_k_backend_winograd2; /* kernels/winograd.c: F(2x2, 3x3) */
extern const struct vb_k_backend vb_k_backend_winograd4; /* ... F(4x4, 3x3) */

/* ---- the references of layers ---------------------------------------------------------------- */

/* kernels/layer_ref.c: the specification, in plain loops that add up in double. Any kind. */
void vb_k_layer_ref(const struct vb_k_shape *shape, enum vb_k_pass pass,
                    const struct vb_k_args *args);

#endif
