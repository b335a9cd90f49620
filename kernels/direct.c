/* SPDX-License-Identifier: MIT
 *
 * The backend "direct": convolutions with few channels, where packing and full panels of a matrix
 * product would cost more than the product. It works on strips of the input (patch_priv.h), a
 * vector along a row of pixels at a time, as the strip has them.
 *
 * NaN and infinity go where the sums of the reference take them; in backward weights a gradient
 * that is no number also meets the zeros of the padding.
 */
#include "kernels/own_priv.h"

#include <stdlib.h>

/* More taps than this are better packed. */
#define TAPS_MAX 1024
/* Sums of gradients, four times the weights, should stay in the second level of cache. */
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

static vb_status direct_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                                size_t *scratch_p)
{
    return vb_own_in_use()->direct(s, pass, state_p, scratch_p);
}

const struct vb_k_backend vb_k_backend_direct = {
    .name = "direct",
    .can = direct_can,
    .prepare = direct_prepare,
    .run = vb_own_run,
    .destroy = free,
};
