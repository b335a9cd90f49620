/* SPDX-License-Identifier: MIT
 *
 * Computes the forward and backward data passes of a convolution as a matrix product: y (oc,
 * pixels) = w (oc, taps) * patches (taps, pixels); backward with dy and rotated weights.
 *
 * The pixels are cut into tiles: a few rows of an image or a few images. Each thread takes some
 * tiles. The taps are cut into blocks of whole channels. For a tile and a block, the rows are
 * copied with their padding (patch.h), packed one panel at a time, and each panel is multiplied by
 * all packed weights of the block while it is in the first-level cache.
 */
#include "kernels/gemm/gemm_layer.h"
#include "kernels/gemm/gemm_priv.h"
#include "kernels/layer/patch.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define TILE_PIXELS 480

struct conv {
    struct vb_k_pass_state pass;
    struct vb_patch patch;
    int n, c, m; /* numbers of samples, of channels read, and of channels written */
    bool data;   /* backward data: the weights are rotated */
    bool relu;
    int block_c;     /* number of channels in a block of taps */
    int tile_images; /* number of images in a tile; 1 if a tile is a few rows */
    int bands;       /* number of tiles in an image */
    int slots;
    size_t weights;             /* number of floats of scratch for the packed weights */
    size_t strips, panel, sums; /* numbers of floats of scratch for each slot */
    int *pixels; /* offset in a strip of each pixel of a full tile, filled up to whole panels */
    int taps[];  /* offset in a strip of each tap of a block */
};

/* Returns weight (m, channel, tap) of the product. */
static float weight(const struct conv *v, const float *w, int m, int channel, int tap)
{
    size_t taps = (size_t)v->patch.kh * (size_t)v->patch.kw;

    if (v->data)
        return w[((size_t)channel * (size_t)v->m + (size_t)m) * taps + (taps - 1 - (size_t)tap)];
    return w[((size_t)m * (size_t)v->c + (size_t)channel) * taps + (size_t)tap];
}

/* Packs the panel of weights whose first row is m, for all blocks. The offset of a block's panels
 * depends only on the number of taps before it. */
static void pack_weights(const struct conv *v, const float *w, int m, float *packed)
{
    int taps = v->patch.kh * v->patch.kw, rows = vb_gemm_rows(v->m), c, first, count, k;
    float *to;

    for (first = 0; first < v->c; first += v->block_c) {
        count = vb_min(v->block_c, v->c - first);
        to = packed + (size_t)first * (size_t)taps * (size_t)rows +
             (size_t)m * (size_t)(count * taps);
        for (c = first; c < first + count; c++) {
            for (k = 0; k < taps; k++) {
                for (int i = m; i < m + VB_GEMM_MR; i++)
                    *to++ = i < v->m ? weight(v, w, i, c, k) : 0;
            }
        }
    }
}

/* Packs four columns of a panel. This is fast if the columns are neighbours in the strip. */
static void pack_quad(const float *strip, const int *pixels, const int *taps, int k, float *to)
{
    int i;

    if (pixels[3] == pixels[0] + 3 && pixels[1] == pixels[0] + 1 && pixels[2] == pixels[0] + 2) {
        strip += pixels[0];
        for (i = 0; i < k; i++, to += VB_GEMM_NR)
            vb_v4_store(to, vb_v4_load(strip + taps[i]));
        return;
    }
    for (i = 0; i < k; i++, to += VB_GEMM_NR) {
        to[0] = strip[pixels[0] + taps[i]];
        to[1] = strip[pixels[1] + taps[i]];
        to[2] = strip[pixels[2] + taps[i]];
        to[3] = strip[pixels[3] + taps[i]];
    }
}

/* Adds the products of the block of channels that begins with `first` to the sums of the tile. */
static void run_block(const struct conv *v, const float *x, const float *packed, int first,
                      int images, int oy, int n_pixels, float *slot)
{
    int count = vb_min(v->block_c, v->c - first), taps = v->patch.kh * v->patch.kw;
    int m_panels = vb_divide_up(v->m, VB_GEMM_MR), k = count * taps, i, p, q;
    size_t image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    float *strips = slot, *panel = strips + v->strips, *sums = panel + v->panel;

    x += (size_t)first * (size_t)v->patch.h * (size_t)v->patch.w;
    packed += (size_t)first * (size_t)taps * (size_t)vb_gemm_rows(v->m);
    for (i = 0; i < images; i++)
        vb_patch_fill(&v->patch, x + (size_t)i * image, count, oy,
                      strips + (size_t)i * (size_t)v->block_c * vb_patch_plane(&v->patch));
    for (p = 0; p < n_pixels; p += VB_GEMM_NR) {
        for (q = 0; q < VB_GEMM_NR; q += 4)
            pack_quad(strips, v->pixels + p + q, v->taps, k, panel + q);
        vb_gemm_block(m_panels, 1, k, packed, panel, sums, first > 0);
        sums += (size_t)m_panels * VB_GEMM_MR * VB_GEMM_NR;
    }
}

/* Stores n pixels of one panel, which belong to one image, for all channels. */
static void store_panel(const struct conv *v, const float *sums, const float *bias, int n, float *y)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    int m, i;

    for (m = 0; m < v->m; m++, sums += VB_GEMM_NR, y += plane) {
        float b = bias == NULL ? 0 : bias[m];

        for (i = 0; i < n; i++)
            y[i] = v->relu ? vb_relu(sums[i] + b) : sums[i] + b;
    }
}

/* Stores all pixels of a tile. A panel may continue in the next image. */
static void store_tile(const struct conv *v, const float *sums, const float *bias, int n_pixels,
                       int image_pixels, float *y)
{
    size_t image = (size_t)v->m * (size_t)v->patch.oh * (size_t)v->patch.ow;
    int p, n, col;

    for (p = 0; p < n_pixels; p += n) {
        col = p % VB_GEMM_NR;
        n = vb_min(VB_GEMM_NR - col, image_pixels - p % image_pixels);
        n = vb_min(n, n_pixels - p);
        store_panel(v,
                    sums + (size_t)(p / VB_GEMM_NR) * (size_t)vb_gemm_rows(v->m) * VB_GEMM_NR + col,
                    bias, n, y + (size_t)(p / image_pixels) * image + p % image_pixels);
    }
}

static void run_tile(const struct conv *v, const float *x, const float *packed, const float *bias,
                     float *y, int tile, float *slot)
{
    int sample = tile / v->bands * v->tile_images, oy = tile % v->bands * v->patch.rows;
    int images = vb_min(v->tile_images, v->n - sample),
        rows = vb_min(v->patch.rows, v->patch.oh - oy);
    int n_pixels = images * rows * v->patch.ow, first;
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;

    x += (size_t)sample * (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    y += (size_t)sample * (size_t)v->m * plane + (size_t)oy * (size_t)v->patch.ow;
    for (first = 0; first < v->c; first += v->block_c)
        run_block(v, x, packed, first, images, oy, n_pixels, slot);
    store_tile(v, slot + v->strips + v->panel, bias, n_pixels, rows * v->patch.ow, y);
}

static void conv_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    const float *x = v->data ? args->dy : args->x, *bias = v->data ? NULL : args->b;
    float *y = v->data ? args->dx : args->y, *packed = args->scratch;
    int tiles = vb_divide_up(v->n, v->tile_images) * v->bands;
    size_t slot = v->strips + v->panel + v->sums;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *own = packed + v->weights + (size_t)omp_get_thread_num() * slot;

#pragma omp for schedule(static)
        for (int m = 0; m < v->m; m += VB_GEMM_MR)
            pack_weights(v, args->w, m, packed);
#pragma omp for schedule(static)
        for (int tile = 0; tile < tiles; tile++)
            run_tile(v, x, packed, bias, y, tile, own);
    }
}

static void fill_tables(struct conv *v, int n_pixels)
{
    int rows = v->patch.rows * v->patch.ow, i, p, taps = v->patch.kh * v->patch.kw;
    size_t image = (size_t)v->block_c * vb_patch_plane(&v->patch);

    for (i = 0; i < v->block_c * taps; i++)
        v->taps[i] =
            (int)vb_patch_tap(&v->patch, i / taps, i % taps / v->patch.kw, i % v->patch.kw);
    for (i = 0; i < vb_gemm_cols(n_pixels); i++) {
        p = vb_min(i, n_pixels - 1);
        v->pixels[i] = (int)((size_t)(p / rows) * image +
                             vb_patch_pixel(&v->patch, p % rows / v->patch.ow, p % v->patch.ow));
    }
}

/* Cuts the work into tiles of about TILE_PIXELS pixels and blocks of about VB_GEMM_KC taps. */
static void cut(struct conv *v)
{
    struct vb_patch *p = &v->patch;
    int blocks = vb_divide_up(v->c * p->kh * p->kw, VB_GEMM_KC);

    v->block_c = vb_divide_up(v->c, vb_min(blocks, v->c));
    v->tile_images = vb_min(v->n, TILE_PIXELS / (p->oh * p->ow));
    if (v->tile_images > 0) {
        v->bands = 1;
    } else {
        v->tile_images = 1;
        v->bands = vb_min(vb_divide_up(p->oh * p->ow, TILE_PIXELS), p->oh);
    }
    vb_patch_rows(p, vb_divide_up(p->oh, v->bands));
    v->bands = vb_divide_up(p->oh, p->rows);
}

static vb_status conv_create(const struct conv *init, void **state_p, size_t *scratch_p)
{
    struct conv v = *init, *new;
    int n_pixels, k;

    cut(&v);
    n_pixels = v.tile_images * v.patch.rows * v.patch.ow;
    k = v.block_c * v.patch.kh * v.patch.kw;
    v.pass.run = conv_run;
    v.slots = vb_team_slots();
    v.weights =
        vb_team_align((size_t)vb_gemm_rows(v.m) * (size_t)v.c * (size_t)(v.patch.kh * v.patch.kw));
    v.strips = vb_team_align((size_t)v.tile_images * (size_t)v.block_c * vb_patch_plane(&v.patch));
    v.panel = vb_team_align((size_t)k * VB_GEMM_NR);
    v.sums = vb_team_align((size_t)vb_gemm_rows(v.m) * (size_t)vb_gemm_cols(n_pixels));
    new = malloc(sizeof(*new) + (size_t)(k + vb_gemm_cols(n_pixels)) * sizeof(int));
    if (new == NULL)
        return vb_err_sys("malloc");
    *new = v;
    new->pixels = new->taps + k;
    fill_tables(new, n_pixels);
    *state_p = new;
    *scratch_p = (v.weights + (size_t)v.slots * (v.strips + v.panel + v.sums)) * sizeof(float);
    return VB_OK;
}

vb_status vb_gemm_conv_forward(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    struct conv v = {.n = s->n, .c = s->c, .m = s->oc, .relu = s->relu};

    vb_patch_init(&v.patch, s);
    return conv_create(&v, state_p, scratch_p);
}

vb_status vb_gemm_conv_data(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    struct conv v = {.n = s->n, .c = s->oc, .m = s->c, .data = true};

    vb_patch_init_data(&v.patch, s);
    return conv_create(&v, state_p, scratch_p);
}
