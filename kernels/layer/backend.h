/* SPDX-License-Identifier: MIT
 *
 * The interface of backends. A backend says which shapes it can compute, prepares one pass of one
 * shape, and runs it any number of times without allocating. Backends are chosen by timing them.
 */
#ifndef VB_KERNELS_LAYER_BACKEND_H
#define VB_KERNELS_LAYER_BACKEND_H

#include "kernels/kernels.h"

/* When a backend may be chosen. Without --fast-math the rounding error of a pass must not be larger
 * than that of sums of floats, in any order; tests/kernels/test_rounding.c compares them. */
enum vb_k_use {
    VB_K_ANY_TIME,
    VB_K_FAST_MATH,  /* rounds more; chosen with --fast-math only */
    VB_K_ONLY_NAMED, /* never chosen; a plan may name it */
};

struct vb_k_backend {
    const char *name; /* "onednn", "blas", "gemm", "direct", "winograd2", "winograd4", "plain" */
    enum vb_k_use use;

    /* Returns true if the backend can compute the pass. Any shape may be given. Cheap. */
    bool (*can)(const struct vb_k_shape *shape, enum vb_k_pass pass);

    /* Prepares a pass. *state_p is the state for run(); the caller owns the state until destroy().
     * *scratch_p is the size of the scratch memory in bytes. run() uses as many threads as the
     * OpenMP team has at that time; results do not depend on the number of threads. */
    vb_status (*prepare)(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p);
    void (*run)(void *state, const struct vb_k_args *args);
    void (*destroy)(void *state);
};

/* kernels/layer/plain.c: computes db (oc) from dy (n, oc, pixels), the same bits for any team. */
void vb_k_bias_grad(const float *dy, int n, int oc, size_t pixels, float *db);

/* kernels/layer/shape.c: an element is dropped if its random 32 bits are below this number. */
uint32_t vb_k_dropout_below(float rate);

static inline int vb_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int vb_divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Range [first, end) of the outputs in a row whose window has its column kx inside the input. */
static inline int vb_k_first_inside(const struct vb_k_shape *s, int kx)
{
    int before = s->pad - kx;

    return before <= 0 ? 0 : (before + s->stride - 1) / s->stride;
}

static inline int vb_k_end_inside(const struct vb_k_shape *s, int kx)
{
    int room = s->w - 1 + s->pad - kx;

    return room < 0 ? 0 : vb_min(room / s->stride + 1, s->ow);
}

/* kernels/exact/layer_ref.c: the specification of all layers, in plain loops that add in double. */
void vb_k_layer_ref(const struct vb_k_shape *shape, enum vb_k_pass pass,
                    const struct vb_k_args *args);

#endif
