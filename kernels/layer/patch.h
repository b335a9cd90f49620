/* SPDX-License-Identifier: MIT
 *
 * A convolution reads patches of its input. A *strip* is a copy of as many rows of the input as a
 * few rows of output need, with padding, and with the columns sorted by their remainder modulo the
 * stride. In the strip, the input of tap k for the output at p is at tap(k) + pixel(p), without any
 * special case. Neighbours in a row of output read neighbours in the strip, whatever the stride is.
 */
#ifndef VB_KERNELS_LAYER_PATCH_H
#define VB_KERNELS_LAYER_PATCH_H

#include "kernels/layer/backend.h"

/* Describes how the forward pass of a layer reads x, or how its backward data pass reads dy. */
struct vb_patch {
    int h, w;   /* size of the image that is read */
    int oh, ow; /* size of the output */
    int kh, kw;
    int stride;
    int pad_y, pad_x;
    int rows;    /* largest number of rows of output that a strip serves */
    int strip_h; /* number of rows in a strip */
    int phase_w; /* number of columns of a strip with the same remainder modulo the stride */
    int pitch;   /* number of floats in a row of a strip */
};

/* Describes how the forward pass of a layer reads x. Call vb_patch_rows() afterwards. */
void vb_patch_init(struct vb_patch *p, const struct vb_k_shape *shape);

/* The same for the backward data pass, which reads dy with rotated weights. Only for stride 1. */
void vb_patch_init_data(struct vb_patch *p, const struct vb_k_shape *shape);

/* Sets the number of rows of output that a strip serves. */
void vb_patch_rows(struct vb_patch *p, int rows);

static inline size_t vb_patch_plane(const struct vb_patch *p) /* number of floats in one channel */
{
    return (size_t)p->strip_h * (size_t)p->pitch;
}

/* Return the offset in a strip of a tap, and of an output. row counts from the strip's first. */
static inline size_t vb_patch_tap(const struct vb_patch *p, int channel, int ky, int kx)
{
    return (size_t)channel * vb_patch_plane(p) + (size_t)ky * (size_t)p->pitch +
           (size_t)(kx % p->stride * p->phase_w + kx / p->stride);
}

static inline size_t vb_patch_pixel(const struct vb_patch *p, int row, int ox)
{
    return (size_t)(row * p->stride) * (size_t)p->pitch + (size_t)ox;
}

/* Fills the strip for the rows of output from oy on. x is (channels, h, w). */
void vb_patch_fill(const struct vb_patch *p, const float *x, int channels, int oy, float *strip);

#endif
