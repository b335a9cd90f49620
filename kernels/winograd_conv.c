/* SPDX-License-Identifier: MIT
 *
 * Winograd forward, and backward to the data, which is the same with dy, and the weights turned
 * round. xi counts the alpha * alpha products of a tile.
 *
 *   u (xi, m, c)      the transformed weights, packed as panels, once a run
 *   v (xi, c, tiles)  the transformed windows of a block of tiles, likewise
 *   p (xi, m, tiles)  = u * v for each xi, some rows m at a time, then transformed into outputs
 *
 * The threads share out the blocks of tiles. A block is small enough for v and p to stay in the
 * second level of cache, more or less; u comes from the third.
 */
#include "kernels/gemm_priv.h"
#include "kernels/team_priv.h"
#include "kernels/winograd_priv.h"

#include <stdlib.h>

#define BLOCK_PANELS 2 /* of tiles, in a block */
#define BLOCK_ROWS 64  /* of p */
#define FILL_CHANNELS 8

#define BLOCK_TILES (BLOCK_PANELS * VB_GEMM_NR)

struct conv {
    struct vb_k_pass_state pass;
    const struct vb_wino_ops *ops;
    struct vb_wino_grid grid;
    int c, m;   /* channels read and written */
    int oh, ow; /* of what is written */
    bool data, relu;
    int slots;
    size_t u_step, v_step, p_step; /* from one xi to the next */
    size_t u, v, p, strips, spots; /* floats of scratch; all but u of each slot */
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* Taps of four rows m and channel c. */
static void gather_taps(const struct conv *v, const float *w, int m, int c, vb_v4 *taps)
{
    int n = v->ops->r * v->ops->r, l, i;
    const float *from;

    for (l = 0; l < 4; l++) {
        if (m + l >= v->m) {
            for (i = 0; i < n; i++)
                taps[i][l] = 0;
        } else if (v->data) {
            from = w + ((size_t)c * (size_t)v->m + (size_t)(m + l)) * (size_t)n;
            for (i = 0; i < n; i++)
                taps[i][l] = from[n - 1 - i];
        } else {
            from = w + ((size_t)(m + l) * (size_t)v->c + (size_t)c) * (size_t)n;
            for (i = 0; i < n; i++)
                taps[i][l] = from[i];
        }
    }
}

static void transform_weights(const struct conv *v, const float *w, int m, float *u)
{
    vb_v4 taps[25];
    int c;

    u += (size_t)m * (size_t)v->c;
    for (c = 0; c < v->c; c++, u += VB_GEMM_MR) {
        gather_taps(v, w, m, c, taps);
        v->ops->taps(taps, u, v->u_step);
    }
}

/* A block of tiles while it is computed. */
struct block {
    int first, n; /* tiles */
    float *v, *p, *strips;
    struct vb_wino_spot *spots;
};

/* Lanes that no tile is left for repeat the last one; nobody looks at what becomes of them. */
static void transform_channel(const struct conv *v, const struct block *b, int c, int in_strip)
{
    const float *from[4];
    int t, l;

    for (t = 0; t < b->n; t += 4) {
        for (l = 0; l < 4; l++) {
            const struct vb_wino_spot *s = &b->spots[min(t + l, b->n - 1)];

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
        n = min(FILL_CHANNELS, v->c - c);
        vb_wino_fill(&v->grid, x, c, n, b->first, b->n, b->strips, b->spots);
        for (i = 0; i < n; i++)
            transform_channel(v, b, c + i, i);
    }
}

static inline float finish(float f, float bias, bool relu)
{
    f += bias;
    return relu ? vb_relu(f) : f;
}

/* The outputs of tile t, lane l of out, cut at the edge of the image. y: of one channel of the
 * first sample. */
static void store_tile(const struct conv *v, int t, const vb_v4 *out, int l, float bias, float *y)
{
    int per = v->grid.across * v->grid.down, side = v->ops->m, i, j;
    int oy = t % per / v->grid.across * side, ox = t % v->grid.across * side;
    int rows = min(side, v->oh - oy), cols = min(side, v->ow - ox);

    y += (size_t)(t / per) * (size_t)v->m * (size_t)v->oh * (size_t)v->ow +
         (size_t)oy * (size_t)v->ow + (size_t)ox;
    for (i = 0; i < rows; i++, y += v->ow) {
        for (j = 0; j < cols; j++)
            y[j] = finish(out[i * side + j][l], bias, v->relu);
    }
}

static void transform_output(const struct conv *v, const struct block *b, int first_m, int m,
                             const float *bias, float *y)
{
    int m_panels = min(BLOCK_ROWS, vb_gemm_rows(v->m) - first_m) / VB_GEMM_MR, t, l;
    const float *from = b->p + (size_t)(m - first_m) * VB_GEMM_NR;
    vb_v4 out[VB_WINO_ALPHA * VB_WINO_ALPHA];

    y += (size_t)m * (size_t)v->oh * (size_t)v->ow;
    for (t = 0; t < b->n; t += 4) {
        v->ops->output(from +
                           (size_t)(t / VB_GEMM_NR) * (size_t)m_panels * VB_GEMM_MR * VB_GEMM_NR +
                           t % VB_GEMM_NR,
                       v->p_step, out);
        for (l = 0; l < min(4, b->n - t); l++)
            store_tile(v, b->first + t + l, out, l, bias == NULL ? 0 : bias[m], y);
    }
}

/* Rows from first on of all products. */
static void multiply(const struct conv *v, const struct block *b, const float *u, int first)
{
    int m_panels = min(BLOCK_ROWS, vb_gemm_rows(v->m) - first) / VB_GEMM_MR, xi;
    int n_panels = vb_gemm_panels(b->n, VB_GEMM_NR);

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
    int row, m;

    b.n = min(BLOCK_TILES, v->grid.n * v->grid.across * v->grid.down - first);
    b.p = b.v + v->v;
    b.strips = b.p + v->p;
    b.spots = (struct vb_wino_spot *)(b.strips + v->strips);
    transform_input(v, &b, v->data ? args->dy : args->x);
    for (row = 0; row < v->m; row += BLOCK_ROWS) {
        multiply(v, &b, args->scratch, row);
        for (m = row; m < min(row + BLOCK_ROWS, v->m); m++)
            transform_output(v, &b, row, m, bias, y);
    }
}

static void conv_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    int tiles = v->grid.n * v->grid.across * v->grid.down;
    size_t slot = v->v + v->p + v->strips + v->spots;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *own = (float *)args->scratch + v->u + (size_t)omp_get_thread_num() * slot;

#pragma omp for schedule(static)
        for (int m = 0; m < v->m; m += VB_GEMM_MR)
            transform_weights(v, args->w, m, args->scratch);
#pragma omp for schedule(static)
        for (int first = 0; first < tiles; first += BLOCK_TILES)
            run_block(v, args, first, own);
    }
}

static void sizes(struct conv *v)
{
    size_t n = (size_t)v->ops->alpha * (size_t)v->ops->alpha, c = (size_t)v->c;

    v->u_step = vb_wino_step((size_t)vb_gemm_rows(v->m) * c);
    v->v_step = vb_wino_step(BLOCK_TILES * c);
    v->p_step = vb_wino_step(BLOCK_TILES * (size_t)min(BLOCK_ROWS, vb_gemm_rows(v->m)));
    v->u = n * v->u_step;
    v->v = n * v->v_step;
    v->p = n * v->p_step;
    v->strips = vb_team_align(vb_wino_strips(&v->grid, BLOCK_TILES) * FILL_CHANNELS);
    v->spots = vb_team_align(BLOCK_TILES * sizeof(struct vb_wino_spot) / sizeof(float));
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
    sizes(v);
    *state_p = v;
    *scratch_p = (v->u + (size_t)v->slots * (v->v + v->p + v->strips + v->spots)) * sizeof(float);
    return VB_OK;
}
