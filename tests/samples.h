/* SPDX-License-Identifier: MIT
 *
 * Samples in an array, as vb_k_pixels_create() reads them.
 */
#ifndef VB_TEST_SAMPLES_H
#define VB_TEST_SAMPLES_H

#include "kernels/kernels.h"

#include <string.h>

struct t_samples {
    const float *x; /* (n, features) */
    size_t features;
};

static inline void t_samples_read(void *arg, size_t first, size_t n, float *x)
{
    const struct t_samples *s = arg;

    memcpy(x, s->x + first * s->features, n * s->features * sizeof(*x));
}

static inline vb_status t_pixels_list(const float *x, size_t n, int features,
                                      struct vb_k_pixels **pixels_p)
{
    struct t_samples s = {.x = x, .features = (size_t)features};

    return vb_k_pixels_create(t_samples_read, &s, n, features, pixels_p);
}

#endif
