/* SPDX-License-Identifier: MIT
 *
 * The matrix product of OpenBLAS, and the backend that is built on it.
 */
#ifndef VB_KERNELS_BLAS_BLAS_H
#define VB_KERNELS_BLAS_BLAS_H

#include "kernels/layer/backend.h"

extern const struct vb_k_backend vb_k_backend_blas; /* kernels/blas/blas_layer.c */

/* A matrix (m, k) or (k, n) in memory. A transposed matrix lies in memory as (k, m) or (n, k). */
struct vb_k_matrix {
    const float *v;
    bool transposed;
    size_t row; /* number of floats from the start of one row in memory to the next */
};

/* Computes c (m, n) = a (m, k) * b (k, n) + beta * c, row-major, on the calling thread. */
void vb_k_sgemm(int m, int n, int k, struct vb_k_matrix a, struct vb_k_matrix b, float beta,
                float *c, size_t c_row);

/* Must be called before the first product. It confines OpenBLAS to the calling thread, because
 * OpenBLAS's own threads would change the bits. It also makes OpenBLAS allocate its work memory:
 * if memory is short later, OpenBLAS retries for ever. */
vb_status vb_k_blas_ready(void);

#endif
