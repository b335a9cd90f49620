/* SPDX-License-Identifier: MIT
 *
 * A convolution reads patches of its input. Here a strip of the input, as many rows as a few rows
 * of output need, is copied with its padding, and with the columns sorted by their remainder modulo
 * the stride. In the copy the input of tap k for the output at p is at tap(k) + pixel(p), without
 * any special case, and neighbours in a row of output read neighbours whatever the stride.
 */
#ifndef VB_PATCH_PRIV_H
#define VB_PATCH_PRIV_H

#include "kernels/layer_priv.h"

/* The same for a layer's forward pass, and for its backward one seen as a convolution of dy. */
struct vb_patch {
    int h, w;   /* of what is read */
    int oh, ow; /* of what comes out */
    int kh, kw;
    int stride;
    int pad_y, pad_x;
    int rows;    /* of output that a strip serves, at most */
    int strip_h; /* rows of a strip */
    int phase_w; /* columns of one remainder */
    int pitch;   /* floats of a row of a strip */
};

/* How a layer's forward pass reads x. vb_patch_rows() follows. */
void vb_patch_init(struct vb_patch *p, const struct vb_k_shape *shape);

/* How dx is computed from dy, stride 1 only: dy is read with the weights turned round. */
void vb_patch_init_data(struct vb_patch *p, const struct vb_k_shape *shape);

/* Sets how many rows of output a strip serves. */
void vb_patch_rows(struct vb_patch *p, int rows);

static inline size_t vb_patch_plane(const struct vb_patch *p) /* floats of a channel of a strip */
{
    return (size_t)p->strip_h * (size_t)p->pitch;
}

/* Where the input of a tap and of an output lie; row counts from the first one of the strip. */
static inline size_t vb_patch_tap(const struct vb_patch *p, int channel, int ky, int kx)
{
    return (size_t)channel * vb_patch_plane(p) + (size_t)ky * (size_t)p->pitch +
           (size_t)(kx % p->stride * p->phase_w + kx / p->stride);
}

static inline size_t vb_patch_pixel(const struct vb_patch *p, int row, int ox)
{
    return (size_t)(row * p->stride) * (size_t)p->pitch + (size_t)ox;
}

/* Fills the strip of the rows of output from oy on. x: (channels, h, w). */
void vb_patch_fill(const struct vb_patch *p, const float *x, int channels, int oy, float *strip);

#endif
