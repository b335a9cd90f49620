/* SPDX-License-Identifier: MIT
 *
 * Passes samples in an array to vb_k_pixels_create().
 */
#ifndef VB_TESTS_SUPPORT_SAMPLES_H
#define VB_TESTS_SUPPORT_SAMPLES_H

#include "kernels/kernels.h"

#include <string.h>

struct t_samples {
    const float *x; /* shape: (n, features) */
    size_t features;
};

static inline void t_samples_read(void *arg, size_t first, size_t n, float *x)
{
    const struct t_samples *s = arg;

    memcpy(x, s->x + first * s->features, n * s->features * sizeof(*x));
}

/* Creates pixels from images, each of which consists of rows of `width` pixels. */
static inline vb_status t_pixels_images(const float *x, size_t n, int features, int width,
                                        struct vb_k_pixels **pixels_p)
{
    struct t_samples s = {.x = x, .features = (size_t)features};
    struct vb_k_samples samples = {t_samples_read, &s, n, features, width};

    return vb_k_pixels_create(&samples, pixels_p);
}

static inline vb_status t_pixels_list(const float *x, size_t n, int features,
                                      struct vb_k_pixels **pixels_p)
{
    return t_pixels_images(x, n, features, 0, pixels_p);
}

#endif
