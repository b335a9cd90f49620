/* SPDX-License-Identifier: MIT
 *
 * The passes of the backend "gemm". The comments name the files.
 */
#ifndef VB_KERNELS_GEMM_GEMM_LAYER_H
#define VB_KERNELS_GEMM_GEMM_LAYER_H

#include "kernels/layer/level.h"

#define vb_gemm_conv_forward VB_AT_LEVEL(vb_gemm_conv_forward)
#define vb_gemm_conv_data VB_AT_LEVEL(vb_gemm_conv_data)
#define vb_gemm_conv_weights VB_AT_LEVEL(vb_gemm_conv_weights)
#define vb_gemm_linear_forward VB_AT_LEVEL(vb_gemm_linear_forward)
#define vb_gemm_linear_data VB_AT_LEVEL(vb_gemm_linear_data)
#define vb_gemm_linear_weights VB_AT_LEVEL(vb_gemm_linear_weights)

typedef vb_status vb_gemm_prepare(const struct vb_k_shape *shape, void **state_p,
                                  size_t *scratch_p);

vb_gemm_prepare vb_gemm_conv_forward;   /* kernels/gemm/gemm_conv.c */
vb_gemm_prepare vb_gemm_conv_data;      /* the same file; stride 1 only */
vb_gemm_prepare vb_gemm_conv_weights;   /* kernels/gemm/gemm_conv_weights.c */
vb_gemm_prepare vb_gemm_linear_forward; /* kernels/gemm/gemm_linear.c */
vb_gemm_prepare vb_gemm_linear_data;
vb_gemm_prepare vb_gemm_linear_weights;

#endif
