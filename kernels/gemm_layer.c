/* SPDX-License-Identifier: MIT
 *
 * The backend "gemm": convolutions and linear layers as matrix products of our own. Nothing is
 * lowered in memory: packing reads the patches of an image.
 *
 * NaN and infinity go where the sums of the reference take them, for what fills up panels never
 * meets an output that is kept; but the zeros of an image's padding meet the gradient, so a NaN in
 * dy also reaches the weights of taps that lie beside the image.
 */
#include "kernels/gemm_layer_priv.h"

#include <stdlib.h>

static bool layer_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    if (s->kind == VB_K_CONV)
        return pass != VB_K_BACKWARD_DATA || s->stride == 1;
    return s->kind == VB_K_LINEAR;
}

static vb_status layer_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                               size_t *scratch_p)
{
    static vb_gemm_prepare *const conv[VB_K_PASSES] = {vb_gemm_conv_forward, vb_gemm_conv_data,
                                                       vb_gemm_conv_weights};
    static vb_gemm_prepare *const linear[VB_K_PASSES] = {
        vb_gemm_linear_forward, vb_gemm_linear_data, vb_gemm_linear_weights};
    struct vb_gemm_pass *state = NULL;
    vb_status st;

    st = (s->kind == VB_K_CONV ? conv : linear)[pass](s, &state, scratch_p);
    if (st == VB_OK)
        *state_p = state;
    return st;
}

static void layer_run(void *state, const struct vb_k_args *args)
{
    struct vb_gemm_pass *pass = state;

    pass->run(pass, args);
}

const struct vb_k_backend vb_k_backend_gemm = {
    .name = "gemm",
    .can = layer_can,
    .prepare = layer_prepare,
    .run = layer_run,
    .destroy = free,
};
