/* SPDX-License-Identifier: MIT
 *
 * Computes the gradient of a bias: a sum over samples and pixels, in an order that depends on the
 * shape alone.
 */
#ifndef VB_KERNELS_LAYER_SUM_H
#define VB_KERNELS_LAYER_SUM_H

#include "kernels/layer/vec.h"

#include <stddef.h>

/* Returns the sum of n numbers, in 16 partial sums: rounding errors grow with n / 16. */
static inline float vb_sum(const float *v, size_t n)
{
    vb_v4 s[4] = {{0}, {0}, {0}, {0}};
    float tail = 0;
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++)
            s[j] += vb_v4_load(v + i + 4 * j);
    for (; i < n; i++)
        tail += v[i];
    s[0] = (s[0] + s[1]) + (s[2] + s[3]);
    return ((s[0][0] + s[0][1]) + (s[0][2] + s[0][3])) + tail;
}

/* Returns the sum of channel c of dy (n, channels, pixels) over all samples. */
static inline float vb_sum_channel(const float *dy, int n, int channels, int pixels, int c)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += vb_sum(dy + ((size_t)i * (size_t)channels + (size_t)c) * (size_t)pixels,
                      (size_t)pixels);
    return sum;
}

#endif
