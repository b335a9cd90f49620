/* SPDX-License-Identifier: MIT
 *
 * Winograd's short convolutions F(m x m, r x r): a tile of m by m outputs is computed from a window
 * of alpha = m + r - 1 by alpha inputs, with alpha * alpha products instead of m * m * r * r.
 *
 * Windows, taps and products are each transformed by sums along rows, then along columns. The sums
 * depend on alpha, because alpha determines the points where polynomials are evaluated: 0, 1, -1
 * and infinity for 4, and also 2 and -2 for 6. They serve any m and r with that alpha, so a tile of
 * outputs in the forward pass can play the role of the taps in the backward pass. Each lane of a
 * vector holds one tile or one channel.
 */
#ifndef VB_KERNELS_GEMM_WINOGRAD_H
#define VB_KERNELS_GEMM_WINOGRAD_H

#include "kernels/layer/level.h"
#include "kernels/layer/patch.h"
#include "kernels/layer/vec.h"

#define vb_wino_f2_3 VB_AT_LEVEL(vb_wino_f2_3)
#define vb_wino_f4_3 VB_AT_LEVEL(vb_wino_f4_3)
#define vb_wino_f2_5 VB_AT_LEVEL(vb_wino_f2_5)
#define vb_wino_conv VB_AT_LEVEL(vb_wino_conv)
#define vb_wino_weights VB_AT_LEVEL(vb_wino_weights)

#define VB_WINO_ALPHA 6 /* largest alpha */

/* The transformations. Result i is written to to + i * step, and later read at from + i * step. */
struct vb_wino_ops {
    int alpha, m, r;
    /* Transforms a window of alpha by alpha inputs for each lane. Rows are pitch floats apart. */
    void (*input)(const float *const from[VB_LANES], int pitch, float *to, size_t step);
    /* Transforms the r by r taps of a kernel for each lane; rotated by 180 degrees if turned. */
    void (*taps)(const float *const from[VB_LANES], bool turned, float *to, size_t step);
    /* Transforms products into m by m outputs, with bias and ReLU. to is (lanes, m, m). */
    void (*output)(const float *from, size_t step, float bias, bool relu, float *to);
    /* For the gradients of the taps: takes m by m outputs as taps, and computes r by r taps as
     * outputs; to is (lanes, r, r). */
    void (*tile_as_taps)(const float *const from[VB_LANES], int pitch, float *to, size_t step);
    void (*output_as_taps)(const float *from, size_t step, float *to);
};

extern const struct vb_wino_ops vb_wino_f2_3; /* F(2x2, 3x3) */
extern const struct vb_wino_ops vb_wino_f4_3; /* F(4x4, 3x3) */
extern const struct vb_wino_ops vb_wino_f2_5; /* F(2x2, 5x5) */

/* The images of a batch, cut into tiles, with one numbering. The windows of tiles may overlap. */
struct vb_wino_grid {
    struct vb_patch patch; /* describes one tile's window; outputs are rounded up to whole tiles */
    int n, c;              /* number of images, and of channels in each image */
    int m;                 /* side of a tile */
    int across, down;      /* number of tiles in a row and in a column of an image */
};

/* The window of a tile is at at + channel * step in the filled strips. */
struct vb_wino_spot {
    size_t at, step;
};

/* Cuts the outputs of each image into tiles of m by m. p comes from vb_patch_init(). */
void vb_wino_grid_init(struct vb_wino_grid *g, const struct vb_patch *p, int n, int c, int m);

/* Returns the most floats that vb_wino_fill() writes for one channel of n_tiles tiles. */
size_t vb_wino_strips(const struct vb_wino_grid *g, int n_tiles);

/* Copies the parts of x (n, c, h, w) that the n_tiles tiles from first on read, with padding, for
 * n_channels channels from c on. Fills spots (n_tiles) with the place of each window. */
void vb_wino_fill(const struct vb_wino_grid *g, const float *x, int c, int n_channels, int first,
                  int n_tiles, float *strips, struct vb_wino_spot *spots);

/* Returns the number of floats from one result of a transformation to the next. It is an odd number
 * of cache lines, so that the results do not all fall into the same few sets of a cache. */
static inline size_t vb_wino_step(size_t n_floats)
{
    return ((n_floats + 15) / 16 | 1) * 16;
}

/* These two prepare the passes. pass is forward or backward data. */
vb_status vb_wino_conv(const struct vb_wino_ops *ops, const struct vb_k_shape *shape,
                       enum vb_k_pass pass, void **state_p, size_t *scratch_p);
vb_status vb_wino_weights(const struct vb_wino_ops *ops, const struct vb_k_shape *shape,
                          void **state_p, size_t *scratch_p);

#endif
