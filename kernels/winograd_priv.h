/* SPDX-License-Identifier: MIT
 *
 * Winograd's short convolutions F(m x m, r x r): a tile of m by m outputs comes from a window of
 * alpha = m + r - 1 by alpha inputs by alpha * alpha products instead of m * m * r * r.
 *
 * The sums of a window, of taps and of products are each taken along rows, then columns. They
 * depend on alpha, as the points where polynomials are evaluated do: 0, 1, -1 and infinity for 4,
 * also 2 and -2 for 6. Any m and r that make alpha go with them, so that what is a tile of outputs
 * forward can be the taps backward. Here as many tiles or channels at a time as a vector has lanes,
 * one in each.
 */
#ifndef VB_WINOGRAD_PRIV_H
#define VB_WINOGRAD_PRIV_H

#include "kernels/level_priv.h"
#include "kernels/patch_priv.h"
#include "kernels/vec_priv.h"

#define vb_wino_f2_3 VB_AT_LEVEL(vb_wino_f2_3)
#define vb_wino_f4_3 VB_AT_LEVEL(vb_wino_f4_3)
#define vb_wino_f2_5 VB_AT_LEVEL(vb_wino_f2_5)
#define vb_wino_conv VB_AT_LEVEL(vb_wino_conv)
#define vb_wino_weights VB_AT_LEVEL(vb_wino_weights)

#define VB_WINO_ALPHA 6 /* at most */

/* Result i of a transformation goes to to + i * step, and likewise comes from there. */
struct vb_wino_ops {
    int alpha, m, r;
    /* A window of alpha by alpha inputs for each lane, rows pitch apart. */
    void (*input)(const float *const from[VB_LANES], int pitch, float *to, size_t step);
    /* Taps of a kernel for each lane, r by r, or turned round. */
    void (*taps)(const float *const from[VB_LANES], bool turned, float *to, size_t step);
    /* Outputs, m by m, with bias and ReLU: to (lanes, m, m). */
    void (*output)(const float *from, size_t step, float bias, bool relu, float *to);
    /* For gradients of the taps: m by m outputs as if they were taps, and r by r taps as outputs:
     * to (lanes, r, r). */
    void (*tile_as_taps)(const float *const from[VB_LANES], int pitch, float *to, size_t step);
    void (*output_as_taps)(const float *from, size_t step, float *to);
};

extern const struct vb_wino_ops vb_wino_f2_3; /* F(2x2, 3x3) */
extern const struct vb_wino_ops vb_wino_f4_3; /* F(4x4, 3x3) */
extern const struct vb_wino_ops vb_wino_f2_5; /* F(2x2, 5x5) */

/* Images cut into tiles that are numbered through the batch. The windows that belong to them may
 * overlap. */
struct vb_wino_grid {
    struct vb_patch patch; /* of one tile's window; its outputs are filled up to whole tiles */
    int n, c;              /* images, and channels of each */
    int m;                 /* side of a tile */
    int across, down;      /* tiles of an image */
};

/* Where the window of a tile lies: at + channel * step in the strips that were filled. */
struct vb_wino_spot {
    size_t at, step;
};

/* Tiles of oh by ow outputs. p says how they are read, as vb_patch_init() sets it. */
void vb_wino_grid_init(struct vb_wino_grid *g, const struct vb_patch *p, int n, int c, int m);

/* Floats that vb_wino_fill() writes at most for n_tiles tiles, a channel. */
size_t vb_wino_strips(const struct vb_wino_grid *g, int n_tiles);

/* Copies the parts of x (n, c, h, w) that tiles from first on need, with their padding, channels
 * from c on. spots: (n_tiles). */
void vb_wino_fill(const struct vb_wino_grid *g, const float *x, int c, int n_channels, int first,
                  int n_tiles, float *strips, struct vb_wino_spot *spots);

/* Floats between the results of a transformation: an odd number of cache lines, so that they do not
 * all fall into the same few places of a cache. */
static inline size_t vb_wino_step(size_t n_floats)
{
    return ((n_floats + 15) / 16 | 1) * 16;
}

/* The passes. pass: forward, or backward data. */
vb_status vb_wino_conv(const struct vb_wino_ops *ops, const struct vb_k_shape *shape,
                       enum vb_k_pass pass, void **state_p, size_t *scratch_p);
vb_status vb_wino_weights(const struct vb_wino_ops *ops, const struct vb_k_shape *shape,
                          void **state_p, size_t *scratch_p);

#endif
