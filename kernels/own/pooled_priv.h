/* SPDX-License-Identifier: MIT
 *
 * The backward passes of a layer that combines convolution, ReLU and max pooling of 2 x 2. In a
 * window, at most one output has a gradient: the one that args.where names. A sum is therefore a
 * list of numbers g, each with the patch that g is multiplied by:
 *   backward weights  for a channel of y: its g times what the kernel saw of x
 *   backward data     for a window: the g of all channels times the weights of the channel
 * In scratch memory, channels come last, so that a row of a patch, kw * c floats, is contiguous.
 */
#ifndef VB_KERNELS_OWN_POOLED_PRIV_H
#define VB_KERNELS_OWN_POOLED_PRIV_H

#include "kernels/layer/level.h"
#include "kernels/layer/vec.h"

#define vb_pooled_patch_init VB_AT_LEVEL(vb_pooled_patch_init)
#define vb_pooled_sum VB_AT_LEVEL(vb_pooled_sum)
#define vb_pooled_image_init VB_AT_LEVEL(vb_pooled_image_init)
#define vb_pooled_image_fill VB_AT_LEVEL(vb_pooled_image_fill)
#define vb_pooled_image_empty VB_AT_LEVEL(vb_pooled_image_empty)
#define vb_pooled_weights VB_AT_LEVEL(vb_pooled_weights)
#define vb_pooled_data VB_AT_LEVEL(vb_pooled_data)

/* A number g, and the offset of the first row of the patch that g is multiplied by. */
struct vb_pooled_term {
    float g;
    uint32_t at;
};

/* The size of patches: the number of rows, and the number of floats and of vectors in a row. */
struct vb_pooled_patch {
    int rows, floats, vectors;
    size_t pitch; /* number of floats from one row to the next */
};

/* Sets all fields except pitch. */
void vb_pooled_patch_init(struct vb_pooled_patch *patch, int rows, int floats);

/* Computes sums[r * sums_pitch + i] += g * from[at + r * pitch + i] over all terms, for each row r
 * and i below floats, or up to VB_LANES * vectors. */
void vb_pooled_sum(const struct vb_pooled_patch *patch, const float *from,
                   const struct vb_pooled_term *terms, size_t n, float *sums, size_t sums_pitch);

/* A sample with its padding and with its channels last: (h + 2 * pad, w + 2 * pad, c). */
struct vb_pooled_image {
    int c, h, w, pad;
    size_t pitch; /* number of floats in a row */
    size_t len;   /* number of floats in the image, and some more that the last vector may reach */
};

void vb_pooled_image_init(struct vb_pooled_image *image, const struct vb_k_shape *shape);

/* fill copies a sample (c, h, w) to an image and clears the rest; empty copies it back. */
void vb_pooled_image_fill(const struct vb_pooled_image *image, const float *x, float *to);
void vb_pooled_image_empty(const struct vb_pooled_image *image, const float *from, float *x);

/* These two prepare the passes. */
vb_status vb_pooled_weights(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);
vb_status vb_pooled_data(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);

#endif
