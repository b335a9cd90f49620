/* SPDX-License-Identifier: MIT
 *
 * The passes of the backend "gemm", one file each kind.
 */
#ifndef VB_GEMM_LAYER_PRIV_H
#define VB_GEMM_LAYER_PRIV_H

#include "kernels/layer_priv.h"

/* What every state begins with. The state is one block of memory. */
struct vb_gemm_pass {
    void (*run)(struct vb_gemm_pass *pass, const struct vb_k_args *args);
};

typedef vb_status vb_gemm_prepare(const struct vb_k_shape *shape, struct vb_gemm_pass **pass_p,
                                  size_t *scratch_p);

vb_gemm_prepare vb_gemm_conv_forward;   /* kernels/gemm_conv.c */
vb_gemm_prepare vb_gemm_conv_data;      /* ... stride 1 */
vb_gemm_prepare vb_gemm_conv_weights;   /* kernels/gemm_conv_weights.c */
vb_gemm_prepare vb_gemm_linear_forward; /* kernels/gemm_linear.c */
vb_gemm_prepare vb_gemm_linear_data;
vb_gemm_prepare vb_gemm_linear_weights;

#endif
