/* SPDX-License-Identifier: MIT
 *
 * Backward through a convolution, ReLU and max pooling of 2 x 2 at once. Of the four outputs of the
 * convolution in a window at most one has a gradient, the one that args.where names, so all sums
 * are lists of numbers g, each with the patch that it is multiplied with:
 *   backward weights  of a channel of y: its g by what the kernel saw of x
 *   backward data     of a window: the g of all channels by the weights of the channel
 * Samples lie with their channels last in scratch memory, so that a row of a patch, kw * c floats,
 * is in one piece.
 */
#ifndef VB_POOLED_PRIV_H
#define VB_POOLED_PRIV_H

#include "kernels/level_priv.h"
#include "kernels/vec_priv.h"

#define vb_pooled_patch_init VB_AT_LEVEL(vb_pooled_patch_init)
#define vb_pooled_sum VB_AT_LEVEL(vb_pooled_sum)
#define vb_pooled_image_init VB_AT_LEVEL(vb_pooled_image_init)
#define vb_pooled_image_fill VB_AT_LEVEL(vb_pooled_image_fill)
#define vb_pooled_image_empty VB_AT_LEVEL(vb_pooled_image_empty)
#define vb_pooled_weights VB_AT_LEVEL(vb_pooled_weights)
#define vb_pooled_data VB_AT_LEVEL(vb_pooled_data)

/* A patch times g; at: where its first row begins. */
struct vb_pooled_term {
    float g;
    uint32_t at;
};

/* Patches of rows of some floats, in vectors of VB_LANES. */
struct vb_pooled_patch {
    int rows, floats, vectors;
    size_t pitch; /* how far apart rows are */
};

/* All but pitch. */
void vb_pooled_patch_init(struct vb_pooled_patch *patch, int rows, int floats);

/* kernels/pooled_sum.c: sums[r * sums_pitch + i] += g * from[at + r * pitch + i] of all terms, for
 * each row r and i below floats; maybe also for those up to VB_LANES * vectors. */
void vb_pooled_sum(const struct vb_pooled_patch *patch, const float *from,
                   const struct vb_pooled_term *terms, size_t n, float *sums, size_t sums_pitch);

/* A sample with its padding and its channels last: (h + 2 * pad, w + 2 * pad, c). */
struct vb_pooled_image {
    int c, h, w, pad;
    size_t pitch; /* floats of a row */
    size_t len;   /* of all, and some behind, as vectors may reach beyond the last row */
};

void vb_pooled_image_init(struct vb_pooled_image *image, const struct vb_k_shape *shape);

/* To (c, h, w) and back. The padding is filled with zeros, and what is behind. */
void vb_pooled_image_fill(const struct vb_pooled_image *image, const float *x, float *to);
void vb_pooled_image_empty(const struct vb_pooled_image *image, const float *from, float *x);

/* The passes. */
vb_status vb_pooled_weights(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);
vb_status vb_pooled_data(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);

#endif
