/* SPDX-License-Identifier: MIT
 *
 * Computes the backward weights pass of a convolution as a matrix product: dw (oc, taps) = dy (oc,
 * pixels) * patches (pixels, taps), summed over the samples.
 *
 * Each thread takes tiles of dw, some rows and some panels of taps, and goes through the samples,
 * one band of rows at a time, so every sum runs in the order of samples and pixels. A band is
 * copied with its padding (patch.h). dy is packed again for each tile, for TILE_PANELS panels.
 */
#include "kernels/gemm/gemm_layer.h"
#include "kernels/gemm/gemm_priv.h"
#include "kernels/layer/patch.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define TILE_PANELS 16
#define TILE_ROWS 256

struct weights {
    struct vb_k_pass_state pass;
    struct vb_patch patch;
    int n, c, oc;
    int taps;                 /* number of taps of all channels together */
    int tile_taps, tile_rows; /* size of a tile of dw */
    int slots;
    size_t strip, rows, panel, sums; /* numbers of floats of scratch for each slot */
};

/* A tile of dw while it is computed. */
struct tile {
    int oc, n_oc;            /* first row, number of rows */
    int tap, n_taps;         /* first column, number of columns; counted over all channels */
    int channel, n_channels; /* first channel, number of channels that the columns belong to */
    float *strip, *rows, *panel, *sums;
};

static void tile_init(const struct weights *v, int i, float *slot, struct tile *t)
{
    int across = vb_divide_up(v->taps, v->tile_taps), per = v->patch.kh * v->patch.kw;

    t->oc = i / across * v->tile_rows;
    t->n_oc = vb_min(v->tile_rows, v->oc - t->oc);
    t->tap = i % across * v->tile_taps;
    t->n_taps = vb_min(v->tile_taps, v->taps - t->tap);
    t->channel = t->tap / per;
    t->n_channels = (t->tap + t->n_taps - 1) / per - t->channel + 1;
    t->strip = slot;
    t->rows = t->strip + v->strip;
    t->panel = t->rows + v->rows;
    t->sums = t->panel + v->panel;
}

/* Returns column i of the tile in the strip. Columns that fill up a panel repeat the last one. */
static const float *column(const struct weights *v, const struct tile *t, int i)
{
    int per = v->patch.kh * v->patch.kw, tap = t->tap + vb_min(i, t->n_taps - 1);

    return t->strip + vb_patch_tap(&v->patch, tap / per - t->channel, tap % per / v->patch.kw,
                                   tap % v->patch.kw);
}

/* Packs the panel of columns that begins with `first`. The panel is (pixels of the band, NR). */
static void pack_panel(const struct weights *v, const struct tile *t, int first, int rows)
{
    const float *from[4];
    int i, q, row;
    size_t at;

    for (q = 0; q < VB_GEMM_NR; q += 4) {
        for (row = 0; row < rows; row++) {
            at = vb_patch_pixel(&v->patch, row, 0);
            for (i = 0; i < 4; i++)
                from[i] = column(v, t, first + q + i) + at;
            vb_gemm_pack_four(from, v->patch.ow, VB_GEMM_NR,
                              t->panel + (size_t)row * (size_t)v->patch.ow * VB_GEMM_NR + q);
        }
    }
}

/* Adds the contribution of a band, the rows from oy on, of the sample at x and dy. */
static void run_band(const struct weights *v, const struct tile *t, const float *x, const float *dy,
                     int oy, bool add)
{
    int rows = vb_min(v->patch.rows, v->patch.oh - oy), k = rows * v->patch.ow, i;
    int m_panels = vb_divide_up(t->n_oc, VB_GEMM_MR);
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    float *sums = t->sums;

    vb_patch_fill(&v->patch, x + (size_t)t->channel * (size_t)v->patch.h * (size_t)v->patch.w,
                  t->n_channels, oy, t->strip);
    for (i = 0; i < t->n_oc; i += VB_GEMM_MR)
        vb_gemm_pack_lines(dy + (size_t)(t->oc + i) * plane + (size_t)oy * (size_t)v->patch.ow,
                           plane, vb_min(VB_GEMM_MR, t->n_oc - i), k, VB_GEMM_MR,
                           t->rows + (size_t)i * (size_t)k);
    for (i = 0; i < t->n_taps; i += VB_GEMM_NR) {
        pack_panel(v, t, i, rows);
        vb_gemm_block(m_panels, 1, k, t->rows, t->panel, sums, add);
        sums += (size_t)m_panels * VB_GEMM_MR * VB_GEMM_NR;
    }
}

static void store_tile(const struct weights *v, const struct tile *t, float *dw)
{
    size_t panel = (size_t)vb_gemm_rows(t->n_oc) * VB_GEMM_NR;
    int m, i;

    for (m = 0; m < t->n_oc; m++) {
        for (i = 0; i < t->n_taps; i++)
            dw[(size_t)(t->oc + m) * (size_t)v->taps + (size_t)(t->tap + i)] =
                t->sums[(size_t)(i / VB_GEMM_NR) * panel +
                        (size_t)(m * VB_GEMM_NR + i % VB_GEMM_NR)];
    }
}

static void run_tile(const struct weights *v, const struct vb_k_args *args, int i, float *slot)
{
    size_t x_image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    size_t y_image = (size_t)v->oc * (size_t)v->patch.oh * (size_t)v->patch.ow;
    struct tile t;
    int s, oy;

    tile_init(v, i, slot, &t);
    for (s = 0; s < v->n; s++) {
        for (oy = 0; oy < v->patch.oh; oy += v->patch.rows)
            run_band(v, &t, args->x + (size_t)s * x_image, args->dy + (size_t)s * y_image, oy,
                     s > 0 || oy > 0);
    }
    store_tile(v, &t, args->dw);
}

static void weights_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct weights *v = (const struct weights *)pass;
    int tiles = vb_divide_up(v->taps, v->tile_taps) * vb_divide_up(v->oc, v->tile_rows);
    size_t slot = v->strip + v->rows + v->panel + v->sums;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *own = (float *)args->scratch + (size_t)omp_get_thread_num() * slot;

#pragma omp for schedule(static) nowait
        for (int i = 0; i < tiles; i++)
            run_tile(v, args, i, own);
#pragma omp for schedule(static)
        for (int m = 0; m < v->oc; m++)
            args->db[m] = vb_sum_channel(args->dy, v->n, v->oc, v->patch.oh * v->patch.ow, m);
    }
}

/* Cuts dw into tiles of about the same size. Their number is even, which suits two threads. */
static void cut(struct weights *v)
{
    int panels = vb_divide_up(v->taps, VB_GEMM_NR), across;

    across = vb_divide_up(panels, TILE_PANELS);
    across = vb_min(vb_divide_up(across, 2) * 2, panels);
    v->tile_taps = vb_divide_up(panels, across) * VB_GEMM_NR;
    v->tile_rows = vb_gemm_rows(vb_divide_up(v->oc, vb_divide_up(v->oc, TILE_ROWS)));
    vb_patch_rows(&v->patch, v->patch.ow < VB_GEMM_KC ? VB_GEMM_KC / v->patch.ow : 1);
    if (v->patch.rows > v->patch.oh)
        vb_patch_rows(&v->patch, v->patch.oh);
    else
        vb_patch_rows(&v->patch,
                      vb_divide_up(v->patch.oh, vb_divide_up(v->patch.oh, v->patch.rows)));
}

vb_status vb_gemm_conv_weights(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    struct weights v = {.n = s->n, .c = s->c, .oc = s->oc, .taps = s->c * s->kh * s->kw}, *new;
    int k, channels;

    vb_patch_init(&v.patch, s);
    cut(&v);
    k = v.patch.rows * v.patch.ow;
    channels = vb_min(s->c, v.tile_taps / (s->kh * s->kw) + 2);
    v.pass.run = weights_run;
    v.slots = vb_team_slots();
    v.strip = vb_team_align((size_t)channels * vb_patch_plane(&v.patch));
    v.rows = vb_team_align((size_t)v.tile_rows * (size_t)k);
    v.panel = vb_team_align((size_t)k * VB_GEMM_NR);
    v.sums = vb_team_align((size_t)v.tile_rows * (size_t)v.tile_taps);
    new = malloc(sizeof(*new));
    if (new == NULL)
        return vb_err_sys("malloc");
    *new = v;
    *state_p = new;
    *scratch_p = (size_t)v.slots * (v.strip + v.rows + v.panel + v.sums) * sizeof(float);
    return VB_OK;
}
