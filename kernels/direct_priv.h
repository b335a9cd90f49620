/* SPDX-License-Identifier: MIT
 *
 * The passes of the backend "direct".
 */
#ifndef VB_DIRECT_PRIV_H
#define VB_DIRECT_PRIV_H

#include "kernels/level_priv.h"
#include "kernels/patch_priv.h"
#include "kernels/vec_priv.h"

#define vb_direct_fill VB_AT_LEVEL(vb_direct_fill)
#define vb_direct_split VB_AT_LEVEL(vb_direct_split)
#define vb_direct_pool VB_AT_LEVEL(vb_direct_pool)
#define vb_direct_conv VB_AT_LEVEL(vb_direct_conv)
#define vb_direct_weights VB_AT_LEVEL(vb_direct_weights)

/* Samples are computed in groups: one in each lane of a vector, so that neither the length of a row
 * nor its padding matters. A strip of a group has as many floats where patch_priv.h has one. */
#define VB_DIRECT_GROUP VB_LANES

/* How many vectors a kernel may keep in registers, all told. */
#if defined(__x86_64__) && !defined(__AVX512F__)
#define VB_DIRECT_REGISTERS 16
#else
#define VB_DIRECT_REGISTERS 32
#endif

/* Fills the strip of a group, of the rows of output from oy on. x: of its first sample, channels of
 * (h, w) each; n samples, at most a group, x_step apart; lanes without a sample are zeros. */
void vb_direct_fill(const struct vb_patch *p, const float *x, size_t x_step, int n, int channels,
                    int oy, float *strip);

/* Turns n pixels of a group back into rows of its samples, y_step apart, with ReLU if so. */
void vb_direct_split(const float *from, int n, int n_samples, bool relu, float *y, size_t y_step);

/* The same of two rows of 2 * n pixels, with ReLU and then max pooling; where: as in vb_k_args, one
 * for each result. */
void vb_direct_pool(const float *row0, const float *row1, int n, int n_samples, float *y,
                    uint8_t *where, size_t y_step);

/* A convolution, or a conv-pool layer forward. */
vb_status vb_direct_conv(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p);
vb_status vb_direct_weights(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);

#endif
