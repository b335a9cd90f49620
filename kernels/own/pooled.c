/* SPDX-License-Identifier: MIT
 *
 * The backend "pooled": conv-pool layers with few channels. The forward pass is a direct
 * convolution that pools before it stores. The backward passes sum only over outputs that have a
 * gradient (pooled_priv.h).
 */
#include "kernels/own/own.h"

/* Largest numbers of taps and of weights. Larger layers are faster with a packed matrix product. */
#define TAPS_MAX 1024
#define WEIGHTS_MAX (32 * 1024)

/* Offsets into the images of a few samples must fit into 32 bits. */
#define IMAGE_MAX (1 << 24)

static bool pooled_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    double taps = (double)s->kh * s->kw * s->c;
    double image = (double)(s->h + 2 * s->pad) * (s->w + 2 * s->pad) * s->c;

    if (s->kind != VB_K_CONV_POOL)
        return false;
    if (pass == VB_K_FORWARD)
        return taps <= TAPS_MAX;
    if (pass == VB_K_BACKWARD_DATA && (s->stride > s->kh || s->stride > s->kw))
        return false; /* with a large stride, patches would be mostly zeros */
    return taps * s->oc <= WEIGHTS_MAX && image <= IMAGE_MAX;
}

VB_OWN_BACKEND(pooled, pooled_can)
