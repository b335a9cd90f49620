/* SPDX-License-Identifier: MIT
 *
 * The backend "gemm": convolutions and linear layers as matrix products of our own. Nothing is
 * lowered in memory: packing reads the patches of an image.
 *
 * NaN and infinity go where the sums of the reference take them, for what fills up panels never
 * meets an output that is kept; but the zeros of an image's padding meet the gradient, so a NaN in
 * dy also reaches the weights of taps that lie beside the image.
 */
#include "kernels/own_priv.h"

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
    const struct vb_own_kernels *own = vb_own_in_use();

    return (s->kind == VB_K_CONV ? own->gemm_conv : own->gemm_linear)(s, pass, state_p, scratch_p);
}

const struct vb_k_backend vb_k_backend_gemm = {
    .name = "gemm",
    .can = layer_can,
    .prepare = layer_prepare,
    .run = vb_own_run,
    .destroy = free,
};
