/* SPDX-License-Identifier: MIT
 *
 * Computes the backward weights pass with Winograd's convolutions. The gradients of the r by r taps
 * of a pair of channels are the outputs of a convolution of a window of x, with the m by m
 * gradients of its tile as taps. The products are summed over all tiles before the last
 * transformation.
 *
 *   d (xi, oc, tiles)  the transformed tiles of dy, of a block of tiles, packed as panels
 *   v (xi, c, tiles)   the transformed windows of x, also packed
 *   p (xi, oc, c)      += d * v for each xi, block after block
 *
 * Each thread transforms some groups of channels; when all are done, each thread multiplies some
 * xi. A vector of v has one lane for each channel. A vector of d has one lane for each pair of a
 * tile and a row of a panel.
 */
#include "kernels/gemm/gemm_priv.h"
#include "kernels/layer/team.h"
#include "kernels/gemm/winograd.h"

#include <stdlib.h>

#define BLOCK_TILES 128 /* largest number of tiles in a block */
#define LANE_TILES (VB_LANES / VB_GEMM_MR)

struct weights {
    struct vb_k_pass_state pass;
    const struct vb_wino_ops *ops;
    struct vb_wino_grid x, dy;
    int n, c, oc, pixels;
    int block; /* number of tiles in a block */
    int slots;
    size_t d_step, v_step, p_step; /* numbers of floats from one xi to the next */
    size_t d, v, p;                /* numbers of floats of scratch */
    size_t strips, spots;          /* numbers of floats of scratch for each slot */
};

/* The tiles of dy and the windows of x that a thread transforms, all of one block. */
struct part {
    int first, n;  /* first tile, number of tiles */
    float *strips; /* the strips of some channels */
    struct vb_wino_spot *spots;
};

/* Transforms a vector of channels of x from c on. Missing channels repeat the last one. */
static void transform_x(const struct weights *v, const struct part *b, const float *x, int c,
                        float *to)
{
    int n = vb_min(VB_LANES, v->c - c), t, l;
    const float *from[VB_LANES];

    to += (size_t)(c / VB_GEMM_NR) * (size_t)b->n * VB_GEMM_NR + c % VB_GEMM_NR;
    vb_wino_fill(&v->x, x, c, n, b->first, b->n, b->strips, b->spots);
    for (t = 0; t < b->n; t++, to += VB_GEMM_NR) {
        for (l = 0; l < VB_LANES; l++)
            from[l] = b->strips + b->spots[t].at + (size_t)vb_min(l, n - 1) * b->spots[t].step;
        v->ops->input(from, v->x.patch.pitch, to, v->v_step);
    }
}

/* Transforms the last tiles of a panel, fewer than a vector has, through a buffer. */
static void store_last(const struct weights *v, const float *const from[VB_LANES], int n_floats,
                       float *to)
{
    float all[VB_WINO_ALPHA * VB_WINO_ALPHA * VB_LANES];
    int xi;

    v->ops->tile_as_taps(from, v->dy.patch.pitch, all, VB_LANES);
    for (xi = 0; xi < v->ops->alpha * v->ops->alpha; xi++)
        memcpy(to + (size_t)xi * v->d_step, all + xi * VB_LANES, (size_t)n_floats * sizeof(*to));
}

/* Transforms the tiles of dy for the channels of the panel that begins with m. */
static void transform_dy(const struct weights *v, const struct part *b, const float *dy, int m,
                         float *to)
{
    int n = vb_min(VB_GEMM_MR, v->oc - m), t, l;
    const float *from[VB_LANES];

    to += (size_t)m * (size_t)b->n;
    vb_wino_fill(&v->dy, dy, m, n, b->first, b->n, b->strips, b->spots);
    for (t = 0; t < b->n; t += LANE_TILES, to += VB_LANES) {
        for (l = 0; l < VB_LANES; l++) {
            const struct vb_wino_spot *s = &b->spots[vb_min(t + l / VB_GEMM_MR, b->n - 1)];

            from[l] = b->strips + s->at + (size_t)vb_min(l % VB_GEMM_MR, n - 1) * s->step;
        }
        if (t + LANE_TILES <= b->n)
            v->ops->tile_as_taps(from, v->dy.patch.pitch, to, v->d_step);
        else
            store_last(v, from, (b->n - t) * VB_GEMM_MR, to);
    }
}

static void transform_block(const struct weights *v, const struct vb_k_args *args, int first, int n,
                            float *slot)
{
    float *p = args->scratch, *d = p + v->p, *x = d + v->d;
    struct part b = {.first = first, .n = n, .strips = slot};

    b.spots = (struct vb_wino_spot *)(slot + v->strips);
#pragma omp for schedule(static) nowait
    for (int m = 0; m < v->oc; m += VB_GEMM_MR)
        transform_dy(v, &b, args->dy, m, d);
#pragma omp for schedule(static)
    for (int c = 0; c < v->c; c += VB_LANES)
        transform_x(v, &b, args->x, c, x);
}

/* Computes row oc of dw. */
static void store_row(const struct weights *v, const float *p, int oc, float *dw)
{
    float last[VB_LANES * VB_WINO_ALPHA * VB_WINO_ALPHA] = {0};
    int taps = v->ops->r * v->ops->r, c, n;
    const float *from;

    dw += (size_t)oc * (size_t)v->c * (size_t)taps;
    for (c = 0; c < v->c; c += VB_LANES, dw += VB_LANES * taps) {
        n = vb_min(VB_LANES, v->c - c);
        from = p + (size_t)(c / VB_GEMM_NR) * (size_t)vb_gemm_rows(v->oc) * VB_GEMM_NR +
               (size_t)(oc * VB_GEMM_NR + c % VB_GEMM_NR);
        v->ops->output_as_taps(from, v->p_step, n == VB_LANES ? dw : last);
        if (n < VB_LANES)
            memcpy(dw, last, (size_t)(n * taps) * sizeof(*dw));
    }
}

static void weights_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct weights *v = (const struct weights *)pass;
    int tiles = v->x.n * v->x.across * v->x.down;
    float *p = args->scratch, *d = p + v->p, *x = d + v->d;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = x + v->v + (size_t)omp_get_thread_num() * (v->strips + v->spots);

        for (int first = 0; first < tiles; first += v->block) {
            int n = vb_min(v->block, tiles - first);

            transform_block(v, args, first, n, slot);
#pragma omp for schedule(static)
            for (int xi = 0; xi < v->ops->alpha * v->ops->alpha; xi++)
                vb_gemm_block(vb_divide_up(v->oc, VB_GEMM_MR), vb_divide_up(v->c, VB_GEMM_NR), n,
                              d + (size_t)xi * v->d_step, x + (size_t)xi * v->v_step,
                              p + (size_t)xi * v->p_step, first > 0);
        }
#pragma omp for schedule(static)
        for (int oc = 0; oc < v->oc; oc++) {
            store_row(v, p, oc, args->dw);
            args->db[oc] = vb_sum_channel(args->dy, v->n, v->oc, v->pixels, oc);
        }
    }
}

static void sizes(struct weights *v)
{
    size_t n = (size_t)v->ops->alpha * (size_t)v->ops->alpha, block = (size_t)v->block;
    size_t x = vb_wino_strips(&v->x, v->block), dy = vb_wino_strips(&v->dy, v->block);

    v->d_step = vb_wino_step(block * (size_t)vb_gemm_rows(v->oc));
    v->v_step = vb_wino_step(block * (size_t)vb_gemm_cols(v->c));
    v->p_step = vb_wino_step((size_t)vb_gemm_rows(v->oc) * (size_t)vb_gemm_cols(v->c));
    v->d = n * v->d_step;
    v->v = n * v->v_step;
    v->p = n * v->p_step;
    v->strips = vb_team_align(x * VB_LANES > dy * VB_GEMM_MR ? x * VB_LANES : dy * VB_GEMM_MR);
    v->spots = vb_team_align(block * sizeof(struct vb_wino_spot) / sizeof(float));
}

vb_status vb_wino_weights(const struct vb_wino_ops *ops, const struct vb_k_shape *s, void **state_p,
                          size_t *scratch_p)
{
    struct weights *v = calloc(1, sizeof(*v));
    struct vb_patch p;

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = weights_run;
    v->ops = ops;
    v->n = s->n;
    v->c = s->c;
    v->oc = s->oc;
    v->pixels = s->oh * s->ow;
    vb_patch_init(&p, s);
    vb_wino_grid_init(&v->x, &p, s->n, s->c, ops->m);
    p = (struct vb_patch){
        .h = s->oh, .w = s->ow, .oh = s->oh, .ow = s->ow, .kh = 1, .kw = 1, .stride = 1};
    vb_wino_grid_init(&v->dy, &p, s->n, s->oc, ops->m);
    v->block = vb_min(BLOCK_TILES, s->n * v->x.across * v->x.down);
    v->slots = vb_team_slots();
    sizes(v);
    *state_p = v;
    *scratch_p = (v->p + v->d + v->v + (size_t)v->slots * (v->strips + v->spots)) * sizeof(float);
    return VB_OK;
}
