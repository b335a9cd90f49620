/* SPDX-License-Identifier: MIT
 *
 * Computes the places of the tiles of a batch, and fills the strips that the tiles are read from.
 */
#include "kernels/gemm/winograd.h"

void vb_wino_grid_init(struct vb_wino_grid *g, const struct vb_patch *p, int n, int c, int m)
{
    *g = (struct vb_wino_grid){.patch = *p, .n = n, .c = c, .m = m};
    g->across = vb_divide_up(p->ow, m);
    g->down = vb_divide_up(p->oh, m);
    g->patch.ow = g->across * m;
    g->patch.oh = g->down * m;
    vb_patch_rows(&g->patch, m);
}

size_t vb_wino_strips(const struct vb_wino_grid *g, int n_tiles)
{
    int pieces = (n_tiles - 1) / (g->across * g->down) + 2;
    int rows = n_tiles / g->across + 2 * pieces;

    return ((size_t)rows * (size_t)g->m + (size_t)pieces * (size_t)(g->patch.kh - 1)) *
           (size_t)g->patch.pitch;
}

/* Fills the strip of the tiles from first to end - 1, which belong to one image. */
static size_t fill_piece(const struct vb_wino_grid *g, const float *x, int c, int n_channels,
                         int first, int end, float *strip, struct vb_wino_spot *spots, size_t at)
{
    int per = g->across * g->down, image = first / per, row = first % per / g->across, i;
    struct vb_patch p = g->patch;
    size_t plane;

    vb_patch_rows(&p, ((end - 1) % per / g->across - row + 1) * g->m);
    plane = (size_t)p.h * (size_t)p.w;
    vb_patch_fill(&p, x + ((size_t)image * (size_t)g->c + (size_t)c) * plane, n_channels,
                  row * g->m, strip);
    for (i = first; i < end; i++, spots++) {
        spots->at =
            at + vb_patch_pixel(&p, (i % per / g->across - row) * g->m, i % g->across * g->m);
        spots->step = vb_patch_plane(&p);
    }
    return (size_t)n_channels * vb_patch_plane(&p);
}

void vb_wino_fill(const struct vb_wino_grid *g, const float *x, int c, int n_channels, int first,
                  int n_tiles, float *strips, struct vb_wino_spot *spots)
{
    int per = g->across * g->down, end = first + n_tiles, next;
    size_t at = 0;

    for (; first < end; spots += next - first, first = next) {
        next = vb_min(end, (first / per + 1) * per);
        at += fill_piece(g, x, c, n_channels, first, next, strips + at, spots, at);
    }
}
