/* SPDX-License-Identifier: MIT
 *
 * The backend "gemm": convolutions and linear layers with our own matrix product. No matrix of
 * columns is built in memory: packing reads the patches of an image directly.
 *
 * NaN and infinity propagate as in the sums of the reference, because the zeros that fill up panels
 * never affect an output that is kept. But the zeros of an image's padding are multiplied by the
 * gradient, so a NaN in dy also reaches the weights of taps outside the image.
 */
#include "kernels/own/own.h"

static bool layer_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    if (s->kind == VB_K_CONV)
        return pass != VB_K_BACKWARD_DATA || s->stride == 1;
    return s->kind == VB_K_LINEAR;
}

VB_OWN_BACKEND(gemm, layer_can)
