/* SPDX-License-Identifier: MIT
 *
 * How a pass of a layer is computed: backends, one table each. A backend says which shapes it can
 * do, prepares one pass of one shape, and runs it any number of times without allocating. Which
 * backend is taken is decided by timing them.
 */
#ifndef VB_LAYER_PRIV_H
#define VB_LAYER_PRIV_H

#include "kernels/kernels.h"

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

/* ---- what backends share --------------------------------------------------------------------- */

/* kernels/plain.c: db (oc) of dy (n, oc, pixels), the same for any number of threads. */
void vb_k_bias_grad(const float *dy, int n, int oc, size_t pixels, float *db);

/* kernels/shape.c: an element is dropped if its random number of 32 bits is below this. */
uint32_t vb_k_dropout_below(float rate);

/* ---- the references of layers ---------------------------------------------------------------- */

/* kernels/layer_ref.c: the specification, in plain loops that add up in double. Any kind. */
void vb_k_layer_ref(const struct vb_k_shape *shape, enum vb_k_pass pass,
                    const struct vb_k_args *args);

#endif
