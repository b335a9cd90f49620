/* SPDX-License-Identifier: MIT
 *
 * Computes the forward pass and the backward data pass with Winograd's convolutions. The backward
 * data pass is the same computation with dy and with weights rotated by 180 degrees. xi numbers the
 * alpha * alpha products of a tile.
 *
 *   u (xi, m, c)      the transformed weights, packed as panels, once for each run
 *   v (xi, c, tiles)  the transformed windows of a block of tiles, also packed
 *   p (xi, m, tiles)  = u * v for each xi, some rows m at a time, then transformed into outputs
 *
 * Each thread takes some blocks of tiles. A block is small enough for v and p to stay mostly in the
 * second-level cache; u comes from the third-level cache.
 */
#include "kernels/gemm/gemm_priv.h"
#include "kernels/layer/team.h"
#include "kernels/gemm/winograd.h"

#include <stdlib.h>

#define BLOCK_PANELS 2 /* largest number of panels of tiles in a block */
#define BLOCK_ROWS 64  /* number of rows of p computed at a time */
#define BLOCK_COST 16  /* loading u takes as long as computing this many tiles */
#define FILL_CHANNELS 8

/* A vector of u has one lane for each pair of a channel and a row of a panel. */
#define LANE_CHANNELS (VB_LANES / VB_GEMM_MR)

struct conv {
    struct vb_k_pass_state pass;
    const struct vb_wino_ops *ops;
    struct vb_wino_grid grid;
    int c, m;   /* numbers of channels read and of channels written */
    int oh, ow; /* size of the output */
    bool data, relu;
    int block; /* number of tiles in a block */
    int slots;
    size_t u_step, v_step, p_step; /* numbers of floats from one xi to the next */
    size_t u, v, p, strips;        /* numbers of floats of scratch, in each slot except u */
    size_t spots, places;
};

/* Finds the taps of the rows from m on and the channels from c on. Lanes of rows and channels that
 * do not exist repeat the last one; their results are not stored. */
static void find_taps(const struct conv *v, const float *w, int m, int c, const float **from)
{
    size_t taps = (size_t)v->ops->r * (size_t)v->ops->r;
    int l;

    for (l = 0; l < VB_LANES; l++) {
        size_t row = (size_t)vb_min(m + l % VB_GEMM_MR, v->m - 1);
        size_t channel = (size_t)vb_min(c + l / VB_GEMM_MR, v->c - 1);

        if (v->data)
            from[l] = w + (channel * (size_t)v->m + row) * taps;
        else
            from[l] = w + (row * (size_t)v->c + channel) * taps;
    }
}

/* Transforms the last channels of a panel, fewer than a vector has, through a buffer. */
static void transform_last(const struct conv *v, const float *w, int m, int c, float *u)
{
    float all[VB_WINO_ALPHA * VB_WINO_ALPHA * VB_LANES];
    const float *from[VB_LANES];
    int xi;

    find_taps(v, w, m, c, from);
    v->ops->taps(from, v->data, all, VB_LANES);
    for (xi = 0; xi < v->ops->alpha * v->ops->alpha; xi++)
        memcpy(u + (size_t)xi * v->u_step, all + xi * VB_LANES,
               (size_t)((v->c - c) * VB_GEMM_MR) * sizeof(*u));
}

static void transform_weights(const struct conv *v, const float *w, int m, float *u)
{
    size_t taps = (size_t)v->ops->r * (size_t)v->ops->r;
    size_t next = LANE_CHANNELS * taps * (v->data ? (size_t)v->m : 1);
    const float *from[VB_LANES];
    int c, l;

    u += (size_t)m * (size_t)v->c;
    find_taps(v, w, m, 0, from);
    for (c = 0; c + LANE_CHANNELS <= v->c; c += LANE_CHANNELS, u += VB_LANES) {
        v->ops->taps(from, v->data, u, v->u_step);
        for (l = 0; l < VB_LANES; l++)
            from[l] += next;
    }
    if (c < v->c)
        transform_last(v, w, m, c, u);
}

/* The place of a tile's outputs, counted from the beginning of a channel of the first sample, and
 * the number of rows and columns of the tile that are inside the image. */
struct place {
    size_t at;
    int rows, cols;
};

/* A block of tiles while it is computed. */
struct block {
    int first, n; /* first tile, number of tiles */
    float *v, *p, *strips;
    struct vb_wino_spot *spots;
    struct place *places;
};

static void find_places(const struct conv *v, const struct block *b)
{
    int per = v->grid.across * v->grid.down, side = v->ops->m, i;

    for (i = 0; i < b->n; i++) {
        int t = b->first + i, oy = t % per / v->grid.across * side;
        int ox = t % v->grid.across * side;

        b->places[i].at = (size_t)(t / per) * (size_t)v->m * (size_t)v->oh * (size_t)v->ow +
                          (size_t)oy * (size_t)v->ow + (size_t)ox;
        b->places[i].rows = vb_min(side, v->oh - oy);
        b->places[i].cols = vb_min(side, v->ow - ox);
    }
}

/* Transforms the windows of all tiles for channel c. Lanes without a tile repeat the last one. */
static void transform_channel(const struct conv *v, const struct block *b, int c, int in_strip)
{
    const float *from[VB_LANES];
    int t, l;

    for (t = 0; t < b->n; t += VB_LANES) {
        for (l = 0; l < VB_LANES; l++) {
            const struct vb_wino_spot *s = &b->spots[vb_min(t + l, b->n - 1)];

            from[l] = b->strips + s->at + (size_t)in_strip * s->step;
        }
        v->ops->input(from, v->grid.patch.pitch,
                      b->v + ((size_t)(t / VB_GEMM_NR) * (size_t)v->c + (size_t)c) * VB_GEMM_NR +
                          t % VB_GEMM_NR,
                      v->v_step);
    }
}

static void transform_input(const struct conv *v, const struct block *b, const float *x)
{
    int c, i, n;

    for (c = 0; c < v->c; c += FILL_CHANNELS) {
        n = vb_min(FILL_CHANNELS, v->c - c);
        vb_wino_fill(&v->grid, x, c, n, b->first, b->n, b->strips, b->spots);
        for (i = 0; i < n; i++)
            transform_channel(v, b, c + i, i);
    }
}

static inline void store_cols(const float *from, int n, float *to)
{
    int i;

    if (n == 4) {
        vb_v4_store(to, vb_v4_load(from));
    } else if (n == 2) {
        vb_v2_store(to, vb_v2_load(from));
    } else {
        for (i = 0; i < n; i++)
            to[i] = from[i];
    }
}

/* Transforms one channel of the tiles from t on, which belong to one panel, into outputs. */
static void transform_row(const struct conv *v, const struct block *b, const float *from, int t,
                          float bias, float *y)
{
    int n = vb_min(b->n, t + VB_GEMM_NR), side = v->ops->m, l, i;
    float tiles[VB_LANES * VB_WINO_ALPHA * VB_WINO_ALPHA];

    for (; t < n; t += VB_LANES, from += VB_LANES) {
        v->ops->output(from, v->p_step, bias, v->relu, tiles);
        for (l = 0; l < vb_min(VB_LANES, n - t); l++) {
            const struct place *at = &b->places[t + l];

            for (i = 0; i < at->rows; i++) /* the part of the tile that is inside the image */
                store_cols(tiles + (l * side + i) * side, at->cols, y + at->at + i * v->ow);
        }
    }
}

/* Transforms the products of BLOCK_ROWS channels from `first` on into outputs. */
static void transform_output(const struct conv *v, const struct block *b, int first,
                             const float *bias, float *y)
{
    int rows = vb_min(BLOCK_ROWS, vb_gemm_rows(v->m) - first), n = vb_min(BLOCK_ROWS, v->m - first);
    size_t plane = (size_t)v->oh * (size_t)v->ow;
    int t, i;

    for (t = 0; t < b->n; t += VB_GEMM_NR) {
        for (i = 0; i < n; i++)
            transform_row(v, b, b->p + ((size_t)t * (size_t)rows + (size_t)i * VB_GEMM_NR), t,
                          bias == NULL ? 0 : bias[first + i], y + (size_t)(first + i) * plane);
    }
}

/* Computes p = u * v for BLOCK_ROWS rows from `first` on and all xi. */
static void multiply(const struct conv *v, const struct block *b, const float *u, int first)
{
    int m_panels = vb_min(BLOCK_ROWS, vb_gemm_rows(v->m) - first) / VB_GEMM_MR, xi;
    int n_panels = vb_divide_up(b->n, VB_GEMM_NR);

    for (xi = 0; xi < v->ops->alpha * v->ops->alpha; xi++)
        vb_gemm_block(m_panels, n_panels, v->c,
                      u + (size_t)xi * v->u_step + (size_t)first * (size_t)v->c,
                      b->v + (size_t)xi * v->v_step, b->p + (size_t)xi * v->p_step, false);
}

static void run_block(const struct conv *v, const struct vb_k_args *args, int first, float *slot)
{
    struct block b = {.first = first, .v = slot};
    const float *bias = v->data ? NULL : args->b;
    float *y = v->data ? args->dx : args->y;
    int row;

    b.n = vb_min(v->block, v->grid.n * v->grid.across * v->grid.down - first);
    b.p = b.v + v->v;
    b.strips = b.p + v->p;
    b.spots = (struct vb_wino_spot *)(b.strips + v->strips);
    b.places = (struct place *)(b.strips + v->strips + v->spots);
    find_places(v, &b);
    transform_input(v, &b, v->data ? args->dy : args->x);
    for (row = 0; row < v->m; row += BLOCK_ROWS) {
        multiply(v, &b, args->scratch, row);
        transform_output(v, &b, row, bias, y);
    }
}

static void conv_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    int tiles = v->grid.n * v->grid.across * v->grid.down;
    size_t slot = v->v + v->p + v->strips + v->spots + v->places;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *own = (float *)args->scratch + v->u + (size_t)omp_get_thread_num() * slot;

#pragma omp for schedule(static)
        for (int m = 0; m < v->m; m += VB_GEMM_MR)
            transform_weights(v, args->w, m, args->scratch);
#pragma omp for schedule(static)
        for (int first = 0; first < tiles; first += v->block)
            run_block(v, args, first, own);
    }
}

/* Chooses the number of tiles in a block for the shortest time of the busiest thread; if several
 * are equal, the largest. Results do not depend on it. */
static int block_tiles(int tiles, int slots)
{
    int block, best = 0, cost, best_cost = 0;

    for (block = BLOCK_PANELS * VB_GEMM_NR; block > 0; block -= VB_GEMM_NR) {
        cost = (tiles + block * slots - 1) / (block * slots) * (block + BLOCK_COST);
        if (best == 0 || cost < best_cost) {
            best = block;
            best_cost = cost;
        }
    }
    return best;
}

static void sizes(struct conv *v)
{
    size_t n = (size_t)v->ops->alpha * (size_t)v->ops->alpha, c = (size_t)v->c;
    size_t block = (size_t)v->block;

    v->u_step = vb_wino_step((size_t)vb_gemm_rows(v->m) * c);
    v->v_step = vb_wino_step(block * c);
    v->p_step = vb_wino_step(block * (size_t)vb_min(BLOCK_ROWS, vb_gemm_rows(v->m)));
    v->u = n * v->u_step;
    v->v = n * v->v_step;
    v->p = n * v->p_step;
    v->strips = vb_team_align(vb_wino_strips(&v->grid, v->block) * FILL_CHANNELS);
    v->spots = vb_team_align(block * sizeof(struct vb_wino_spot) / sizeof(float));
    v->places = vb_team_align(block * sizeof(struct place) / sizeof(float));
}

vb_status vb_wino_conv(const struct vb_wino_ops *ops, const struct vb_k_shape *s,
                       enum vb_k_pass pass, void **state_p, size_t *scratch_p)
{
    struct conv *v = calloc(1, sizeof(*v));
    struct vb_patch p;

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = conv_run;
    v->ops = ops;
    v->data = pass == VB_K_BACKWARD_DATA;
    v->relu = s->relu && !v->data;
    v->c = v->data ? s->oc : s->c;
    v->m = v->data ? s->c : s->oc;
    v->oh = v->data ? s->h : s->oh;
    v->ow = v->data ? s->w : s->ow;
    if (v->data)
        vb_patch_init_data(&p, s);
    else
        vb_patch_init(&p, s);
    vb_wino_grid_init(&v->grid, &p, s->n, v->c, ops->m);
    v->slots = vb_team_slots();
    v->block = block_tiles(v->grid.n * v->grid.across * v->grid.down, v->slots);
    sizes(v);
    *state_p = v;
    *scratch_p = (v->u + (size_t)v->slots * (v->v + v->p + v->strips + v->spots + v->places)) *
                 sizeof(float);
    return VB_OK;
}
