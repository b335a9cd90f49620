/* SPDX-License-Identifier: MIT
 *
 * The backend "direct": convolutions with so few channels that packing and full panels of a matrix
 * product would cost more than the product. The backend works on strips of the input (patch.h), in
 * which the samples of a group are interleaved (direct_priv.h).
 *
 * NaN and infinity propagate as in the sums of the reference. In the backward weights pass, a
 * gradient that is NaN or infinite is also multiplied by the zeros of the padding.
 */
#include "kernels/own/own.h"

/* Largest number of taps. Layers with more taps are faster with a packed matrix product. */
#define TAPS_MAX 1024
/* Largest number of weights. The sums of gradients should stay in the second-level cache; they take
 * four times as many floats. */
#define WEIGHTS_MAX (32 * 1024)

static bool direct_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    long long taps = (long long)s->kh * s->kw;

    if (s->kind != VB_K_CONV)
        return false;
    if (pass == VB_K_FORWARD)
        return taps * s->c <= TAPS_MAX;
    if (pass == VB_K_BACKWARD_DATA)
        return s->stride == 1 && taps * s->oc <= TAPS_MAX;
    return taps * s->c * s->oc <= WEIGHTS_MAX;
}

VB_OWN_BACKEND(direct, direct_can)
