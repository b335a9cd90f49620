/* SPDX-License-Identifier: MIT
 *
 * The passes of the backend "direct".
 */
#ifndef VB_KERNELS_OWN_DIRECT_PRIV_H
#define VB_KERNELS_OWN_DIRECT_PRIV_H

#include "kernels/layer/level.h"
#include "kernels/layer/patch.h"
#include "kernels/layer/vec.h"

#define vb_direct_fill VB_AT_LEVEL(vb_direct_fill)
#define vb_direct_split VB_AT_LEVEL(vb_direct_split)
#define vb_direct_pool VB_AT_LEVEL(vb_direct_pool)
#define vb_direct_conv VB_AT_LEVEL(vb_direct_conv)
#define vb_direct_weights VB_AT_LEVEL(vb_direct_weights)

/* Samples are computed in groups, with one in each lane of a vector, so that the length of a row
 * does not matter. A strip has VB_DIRECT_GROUP floats where one of patch.h has one. */
#define VB_DIRECT_GROUP VB_LANES

/* Number of vector registers that a kernel can use. */
#if defined(__x86_64__) && !defined(__AVX512F__)
#define VB_DIRECT_REGISTERS 16
#else
#define VB_DIRECT_REGISTERS 32
#endif

/* Fills the strip of a group, for the rows of output from oy on. x is the first sample, (channels,
 * h, w). The n samples are x_step floats apart. Other lanes become 0. */
void vb_direct_fill(const struct vb_patch *p, const float *x, size_t x_step, int n, int channels,
                    int oy, float *strip);

/* Writes n pixels of a group to the rows of its samples, y_step floats apart, perhaps with ReLU. */
void vb_direct_split(const float *from, int n, int n_samples, bool relu, float *y, size_t y_step);

/* The same for two rows of 2 * n pixels, with ReLU and max pooling. where is as in vb_k_args. */
void vb_direct_pool(const float *row0, const float *row1, int n, int n_samples, float *y,
                    uint8_t *where, size_t y_step);

/* Prepares a convolution (forward or backward data), or the forward pass of a conv-pool layer. */
vb_status vb_direct_conv(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p);
vb_status vb_direct_weights(const struct vb_k_shape *shape, void **state_p, size_t *scratch_p);

#endif
