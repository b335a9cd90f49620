/* SPDX-License-Identifier: MIT
 *
 * Samples that are mostly zero, as images of digits are: only the other pixels are computed with.
 */
#ifndef VB_KERNELS_PIXELS_PIXELS_H
#define VB_KERNELS_PIXELS_PIXELS_H

#include "base/base.h"

#define VB_K_PIXELS_FEATURES 65536

/* The nonzero features of n samples, stored once. An entry takes 3 bytes if the samples have at
 * most 256 different values, otherwise 6. On CPUs with long vectors, if all values are multiples of
 * one number, 16 neighbours are stored together, one byte each. Any thread may read it. */
struct vb_k_pixels;

/* Writes n samples from number first on to x (n, features). Called in order, twice each. */
typedef void (*vb_k_samples_fn)(void *arg, size_t first, size_t n, float *x);

struct vb_k_samples {
    vb_k_samples_fn read;
    void *arg;
    size_t n;
    int features;
    int width; /* features in one row of an image; 0: the samples are not images */
};

vb_status vb_k_pixels_create(const struct vb_k_samples *samples, struct vb_k_pixels **pixels_p);
void vb_k_pixels_destroy(struct vb_k_pixels *pixels);
size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels); /* for tests */

/* The samples order[0] to order[n - 1], each below the number of samples, and the samples of the
 * next batch in soon. The backward pass prefetches the latter while it computes. */
struct vb_k_picked {
    const uint32_t *order;
    size_t n;
    const uint32_t *soon;
    size_t n_soon; /* may be 0 */
};

/* vb_k_linear_forward_ref() on these samples, but a feature that is 0 contributes nothing. */
void vb_k_pixels_forward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                         const float *w, const float *b, int classes, float *logits);

/* Computes the gradients (features, classes) and (classes), summed over the samples in order. */
void vb_k_pixels_backward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                          const float *d, int classes, float *dw, float *db);

/* The same two passes in parts, from the last features to the first, for a caller that gets
 * weights, or needs gradients, one part at a time. The bits are the same. The high of a part is the
 * low of the part before it; the first part ends with the last feature. After the part whose low is
 * 0, all gradients and logits are complete. The first part also handles the biases. Until the last
 * part is done, the caller must not use `done` and `sums` for anything else. */
#define VB_K_PIXELS_SUMS 40 /* four sums for each of ten classes */

struct vb_k_pixels_part {
    int low, high;  /* features: low to high - 1 */
    uint32_t *done; /* (n) */
    float *sums;    /* (n, VB_K_PIXELS_SUMS); used by forward only */
};

bool vb_k_pixels_has_parts(const struct vb_k_pixels *pixels, int classes);
void vb_k_pixels_forward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const struct vb_k_pixels_part *part, const float *w, const float *b,
                              float *logits);
void vb_k_pixels_backward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                               const struct vb_k_pixels_part *part, const float *d, float *dw,
                               float *db);

/* Adds scale times the gradients to dw and db: SGD if dw are the weights and scale = -rate / n. */
void vb_k_pixels_add(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                     const float *d, float scale, int classes, float *dw, float *db);

#endif
