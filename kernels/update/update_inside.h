/* SPDX-License-Identifier: MIT
 *
 * Updates one parameter in float, for dense and sparse loops. Also declares the parts of a norm,
 * for loops that compute sums of squares themselves.
 */
#ifndef VB_KERNELS_UPDATE_UPDATE_INSIDE_H
#define VB_KERNELS_UPDATE_UPDATE_INSIDE_H

#include "kernels/kernels.h"

#include <float.h>
#include <math.h>

/* A parameter, and up to two numbers of state. */
struct update_one {
    float w, s, t;
};

/* Returns the updated parameter. g includes scale and decay. kind is a constant if inlined. */
static inline __attribute__((always_inline)) struct update_one update_one(enum vb_k_rule_kind kind,
                                                                          const struct vb_k_rule *r,
                                                                          float rate, float g,
                                                                          struct update_one p)
{
    float root, grown, sum, shrunk, size;

    switch (kind) {
    case VB_K_SGD:
        p.w -= rate * g;
        break;
    case VB_K_MOMENTUM:
        p.s = r->momentum * p.s + g;
        p.w -= rate * p.s;
        break;
    case VB_K_NESTEROV:
        p.s = r->momentum * p.s + g;
        p.w -= rate * (g + r->momentum * p.s);
        break;
    case VB_K_ADAGRAD:
        p.s += g * g;
        p.w -= rate * g / (sqrtf(p.s) + r->eps);
        break;
    case VB_K_FTRL:
        sum = p.t + g * g;
        root = sqrtf(sum);
        /* sqrt(sum) - sqrt(t), without the digits that a subtraction would lose; never 0 / 0 */
        grown = g * g / (root + sqrtf(p.t) + FLT_MIN);
        p.s += g - grown / rate * p.w;
        p.t = sum;
        size = fabsf(p.s);
        shrunk = copysignf(size - r->l1, p.s) / ((r->beta + root) / rate + r->l2);
        shrunk = size <= r->l1 ? 0 : -shrunk; /* a NaN is not <=, so it stays */
        p.w = g == 0 ? p.w : shrunk;
        break;
    }
    return p;
}

#define UPDATE_CHUNK 16384 /* number of parameters that a thread takes at a time */
#define UPDATE_PARALLEL (4 * UPDATE_CHUNK)

/* Returns the beginning of part c of the norm, which is also the end of part c - 1. */
size_t vb_update_part_begin(const struct vb_k_norm *norm, size_t c);

/* Updates the parameters first to end - 1, on the calling thread. */
void vb_update_chunk(const struct vb_k_rule *rule, const struct vb_k_update *u, size_t first,
                     size_t end);

double vb_update_squares(const float *v, size_t n); /* returns the sum of squares */

#endif
