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

/* Each in a file of its own; every slot is filled. */
extern const struct vb_k_backend vb_k_backend_onednn;    /* kernels/onednn_layer.c */
extern const struct vb_k_backend vb_k_backend_blas;      /* kernels/blas_layer.c */
extern const struct vb_k_backend vb_k_backend_plain;     /* kernels/plain.c: pooling and the like */
extern const struct vb_k_backend vb_k_backend_gemm;      /* kernels/gemm_layer.c: our own GEMM */
extern const struct vb_k_backend vb_k_backend_direct;    /* kernels/direct.c: few channels */
extern const struct vb_k_backend vb_k_backend_winograd2; /* kernels/winograd.c: F(2x2, 3x3) */
extern const struct vb_k_backend vb_k_backend_winograd4; /* ... F(4x4, 3x3) */
extern const struct vb_k_backend vb_k_backend_pooled;    /* kernels/pooled.c: conv-pool alone */
extern const struct vb_k_backend vb_k_backend_blas_pool; /* kernels/then_pool.c: conv-pool too */
extern const struct vb_k_backend vb_k_backend_onednn_pool;
extern const struct vb_k_backend vb_k_backend_gemm_pool;
extern const struct vb_k_backend vb_k_backend_direct_pool;
extern const struct vb_k_backend vb_k_backend_winograd2_pool;
extern const struct vb_k_backend vb_k_backend_winograd4_pool;

/* ---- what backends share --------------------------------------------------------------------- */

/* kernels/blas.c: c (m, n) = a (m, k) * b (k, n) + beta * c, row-major, on the calling thread
 * alone. A transposed one lies in memory as (k, m) or (n, k); the last of each pair is the row
 * length. */
struct vb_k_matrix {
    const float *v;
    bool transposed;
    size_t row;
};

void vb_k_sgemm(int m, int n, int k, struct vb_k_matrix a, struct vb_k_matrix b, float beta,
                float *c, size_t c_row);

/* Before the first product. BLAS keeps to the thread that calls it from now on: its own threads
 * would change the bits. And it has the room that it takes for products; later it would ask for
 * ever. */
vb_status vb_k_blas_ready(void);

/* kernels/onednn.c: "2.6.3" */
void vb_k_onednn_version(char *buf, size_t size);

/* kernels/plain.c: db (oc) of dy (n, oc, pixels), the same for any number of threads. */
void vb_k_bias_grad(const float *dy, int n, int oc, size_t pixels, float *db);

/* An element is dropped if its random number of 32 bits is below this. */
uint32_t vb_k_dropout_below(float rate);

/* All backends, in the order in which they are tried. */
extern const struct vb_k_backend *const vb_k_backends[];
extern const int vb_k_n_backends;

/* NULL: there is none of that name. */
const struct vb_k_backend *vb_k_backend_find(const char *name);

/* ---- the choice ------------------------------------------------------------------------------ */

/* kernels/choice_time.c: the fastest backend for a pass. Candidates that are clearly slower drop
 * out on smaller versions of the shape, so this takes milliseconds. NULL: none can do it. */
vb_status vb_k_choose(const struct vb_k_shape *shape, enum vb_k_pass pass,
                      const struct vb_k_backend **backend_p);

/* kernels/choice_cache.c: NULL: not known. */
const struct vb_k_backend *vb_k_cache_find(const struct vb_k_cache *cache,
                                           const struct vb_k_shape *shape, enum vb_k_pass pass);
void vb_k_cache_add(struct vb_k_cache *cache, const struct vb_k_shape *shape, enum vb_k_pass pass,
                    const struct vb_k_backend *backend);

/* ---- the references of layers ---------------------------------------------------------------- */

/* kernels/layer_ref.c: the specification, in plain loops that add up in double. Any kind. */
void vb_k_layer_ref(const struct vb_k_shape *shape, enum vb_k_pass pass,
                    const struct vb_k_args *args);

/* kernels/choice_check.c: as vb_k_check_all(), with these backends. */
vb_status vb_k_check_these(const struct vb_k_backend *const *backends, int n_backends,
                           const struct vb_k_shape *shape, enum vb_k_pass pass,
                           struct vb_k_checked checked[VB_K_CANDIDATES_MAX], int *n_p);

#endif
