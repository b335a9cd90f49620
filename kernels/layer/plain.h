/* SPDX-License-Identifier: MIT
 *
 * The parts of the backend "plain". Each function computes one tile of one pass, on the calling
 * thread.
 */
#ifndef VB_KERNELS_LAYER_PLAIN_H
#define VB_KERNELS_LAYER_PLAIN_H

#include "kernels/layer/backend.h"

extern const struct vb_k_backend vb_k_backend_plain; /* kernels/layer/plain.c */

/* Computes one tile. row is work memory of the calling thread. */
typedef void plain_tile_fn(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                           float *row);

/* kernels/layer/plain_pool.c: a tile is one of the n * c planes. row has w floats. */
plain_tile_fn vb_plain_max_forward, vb_plain_max_backward;
plain_tile_fn vb_plain_avg_forward, vb_plain_avg_backward;

/* kernels/layer/plain_lrn.c: a tile is up to PLAIN_LRN_PIXELS pixels of a sample, with all
 * channels. row has c * PLAIN_LRN_PIXELS floats. */
#define PLAIN_LRN_PIXELS 64
plain_tile_fn vb_plain_lrn_forward, vb_plain_lrn_backward;

#endif
