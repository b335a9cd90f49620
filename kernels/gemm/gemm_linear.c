/* SPDX-License-Identifier: MIT
 *
 * Linear layers. With small batches each weight is used only a few times, so packing the weights in
 * the usual way would cost as much as a quarter of the product. Each thread takes some outputs, so
 * every sum runs in one order.
 *
 * Forward: y (n, oc) = x (n, in) * w (oc, in) transposed. The inputs of a row are contiguous, so
 * vectors hold the sums of several inputs. Four samples are multiplied by four rows of w at a time.
 *
 * Backward data: dx (n, in) = dy (n, oc) * w. Blocks of w are copied row by row into panels that
 * stay in the second-level cache, which is cheap because nothing is transposed.
 *
 * Backward weights: dw (oc, in) = dy transposed (oc, n) * x (n, in), with packed dy and x.
 */
#include "kernels/gemm/gemm_layer.h"
#include "kernels/gemm/gemm_priv.h"
#include "kernels/layer/team.h"

#include <stdlib.h>

#define FORWARD_ROWS 64 /* number of rows of w in a tile */
/* Number of inputs in a block. Compared with a block, adding up the lanes costs little. */
#define FORWARD_K (64 * VB_LANES)
#define DATA_PANELS 64  /* largest number of panels of w in a tile */
#define DATA_K 64       /* number of rows of w in a block */
#define WEIGHTS_ROWS 64 /* number of rows of dw in a tile */
#define WEIGHTS_PANELS 128

struct linear {
    struct vb_k_pass_state pass;
    int n, in, oc;
    bool relu;
    int slots;
    int tile_panels;     /* backward data: number of panels of w in a tile */
    size_t shared, slot; /* numbers of floats of scratch: for all threads, for each slot */
};

static int forward_in(int in) /* returns the number of inputs, rounded up to whole vectors */
{
    return vb_divide_up(in, VB_LANES) * VB_LANES;
}

/* Packs four samples of x. x is cut into blocks of FORWARD_K inputs; in a block, four samples are
 * stored together as (vectors, 4 samples, lanes), filled up with zeros. Unpacked, rows of w and x
 * at a distance of a power of two would evict each other from the cache. */
static void forward_pack(const struct linear *v, const float *x, int quad, float *packed)
{
    int in = forward_in(v->in), quads = vb_divide_up(v->n, 4), first, k, i, p, l;
    float *to;

    for (first = 0; first < v->in; first += FORWARD_K) {
        k = vb_min(FORWARD_K, in - first);
        to = packed + ((size_t)first * (size_t)quads + (size_t)quad * (size_t)k) * 4;
        for (p = first; p < first + k; p += VB_LANES) {
            for (i = quad * 4; i < quad * 4 + 4; i++, to += VB_LANES) {
                for (l = 0; l < VB_LANES; l++)
                    to[l] = i < v->n && p + l < v->in
                                ? x[(size_t)i * (size_t)v->in + (size_t)(p + l)]
                                : 0;
            }
        }
    }
}

/* Returns the sum of the quads of a vector. */
static inline vb_v4 fold(vb_vec v)
{
#if VB_LANES == 4
    return v;
#elif VB_LANES == 8
    return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
    vb_v8 s = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);

    return __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
#endif
}

/* Adds the inputs from p on, which do not fill a vector. sums is as in dot_block(). */
static inline void dot_rest(const float *x, const float *const w[4], int p, int k, vb_v4 acc[4][4],
                            vb_v4 sums[4])
{
    int l = 0;

    for (; p + 4 <= k; p += 4, l += 4) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                acc[i][j] += vb_v4_load(x + i * VB_LANES + l) * vb_v4_load(w[j] + p);
    }
    for (int i = 0; i < 4; i++) {
        vb_v4_transpose(acc[i]);
        sums[i] = (acc[i][0] + acc[i][1]) + (acc[i][2] + acc[i][3]);
    }
    for (; p < k; p++, l++) {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sums[i][j] += x[i * VB_LANES + l] * w[j][p];
    }
}

/* Multiplies four samples by four rows of w. sums[i] has sample i, one lane for each row of w. */
static inline void dot_block(const float *x, const float *const w[4], int k, vb_v4 sums[4])
{
    vb_vec acc[4][4] = {{{0}}}, xv, wv[4];
    vb_v4 folded[4][4];
    int p = 0;

    for (; p + VB_LANES <= k; p += VB_LANES, x += 4 * VB_LANES) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            wv[j] = vb_vec_load(w[j] + p);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            xv = vb_vec_load(x + i * VB_LANES);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                acc[i][j] += xv * wv[j];
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            folded[i][j] = fold(acc[i][j]);
    dot_rest(x, w, p, k, folded, sums);
}

/* Prefetches a share of the next four rows of w. On Arm the CPU does this by itself. */
static inline void forward_ask(const struct linear *v, const float *w, int from, int to)
{
#if defined(__x86_64__)
    for (int p = from; p < to; p += 16)
        for (size_t j = 4; j < 8; j++)
            __builtin_prefetch(w + j * (size_t)v->in + p, 0, 2);
#else
    (void)v;
    (void)w;
    (void)from;
    (void)to;
#endif
}

/* Adds to y the products of k inputs from `first` on and of the four rows of w from `row` on. */
static void forward_rows(const struct linear *v, const struct vb_k_args *args, int row, int first,
                         int k)
{
    const float *x =
        (const float *)args->scratch + (size_t)first * (size_t)vb_divide_up(v->n, 4) * 4;
    int n_rows = vb_min(4, v->oc - row), i, j, s;
    const float *w[4];
    vb_v4 sums[4];
    float *y;

    for (i = 0; i < 4; i++) /* missing rows repeat the last one; their results are not stored */
        w[i] = args->w + (size_t)(row + vb_min(i, n_rows - 1)) * (size_t)v->in + (size_t)first;
    for (s = 0; s < v->n; s += 4, x += (size_t)forward_in(k) * 4) {
        if (row + 8 <= v->oc)
            forward_ask(v, w[0], k * s / v->n / 16 * 16, k * vb_min(s + 4, v->n) / v->n);
        dot_block(x, w, k, sums);
        for (i = 0; i < vb_min(4, v->n - s); i++) {
            y = args->y + (size_t)(s + i) * (size_t)v->oc + (size_t)row;
            for (j = 0; j < n_rows; j++)
                y[j] = first == 0 ? sums[i][j] : y[j] + sums[i][j];
        }
    }
}

static void forward_end(const struct linear *v, const struct vb_k_args *args, int row, int n_rows)
{
    float *y;
    int s, j;

    for (s = 0; s < v->n; s++) {
        y = args->y + (size_t)s * (size_t)v->oc;
        for (j = row; j < row + n_rows; j++) {
            y[j] += args->b[j];
            if (v->relu)
                y[j] = vb_relu(y[j]);
        }
    }
}

static void forward_tile(const struct linear *v, const struct vb_k_args *args, int row)
{
    int n_rows = vb_min(FORWARD_ROWS, v->oc - row), first, i;

    for (first = 0; first < v->in; first += FORWARD_K) {
        for (i = 0; i < n_rows; i += 4)
            forward_rows(v, args, row + i, first, vb_min(FORWARD_K, v->in - first));
    }
    forward_end(v, args, row, n_rows);
}

static void forward_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct linear *v = (const struct linear *)pass;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
#pragma omp for schedule(static)
        for (int quad = 0; quad < vb_divide_up(v->n, 4); quad++)
            forward_pack(v, args->x, quad, args->scratch);
#pragma omp for schedule(static)
        for (int row = 0; row < v->oc; row += FORWARD_ROWS)
            forward_tile(v, args, row);
    }
}

/* Packs one panel of samples of dy, in blocks of DATA_K outputs. */
static void data_pack_dy(const struct linear *v, const float *dy, int sample, float *packed)
{
    int first, k;

    for (first = 0; first < v->oc; first += DATA_K) {
        k = vb_min(DATA_K, v->oc - first);
        vb_gemm_pack_lines(dy + (size_t)sample * (size_t)v->oc + (size_t)first, (size_t)v->oc,
                           vb_min(VB_GEMM_MR, v->n - sample), k, VB_GEMM_MR,
                           packed + (size_t)first * (size_t)vb_gemm_rows(v->n) +
                               (size_t)sample * (size_t)k);
    }
}

static void data_store(const struct linear *v, const float *sums, int first, int n_cols, float *dx)
{
    size_t panel = (size_t)vb_gemm_rows(v->n) * VB_GEMM_NR;
    int col, s;

    for (col = 0; col < n_cols; col += VB_GEMM_NR, sums += panel) {
        for (s = 0; s < v->n; s++)
            memcpy(dx + (size_t)s * (size_t)v->in + (size_t)(first + col), sums + s * VB_GEMM_NR,
                   (size_t)vb_min(VB_GEMM_NR, n_cols - col) * sizeof(*dx));
    }
}

/* Computes the product of a block of k rows of w. Prefetches the columns that the next block, which
 * has next_k rows, will pack as one panel. */
static void data_block(const struct linear *v, const float *dy, const float *panels, int n_cols,
                       int k, const float *next, int next_k, float *sums, bool add)
{
    int m_panels = vb_divide_up(v->n, VB_GEMM_MR), col, i, row, end;

    for (col = 0; col < n_cols; col += VB_GEMM_NR, panels += (size_t)k * VB_GEMM_NR) {
        for (i = 0; i < m_panels; i++, sums += VB_GEMM_MR * VB_GEMM_NR) {
            end = col + VB_GEMM_NR <= n_cols ? next_k * (i + 1) / m_panels : 0;
            for (row = next_k * i / m_panels; row < end; row++) {
                __builtin_prefetch(next + col + (size_t)row * (size_t)v->in, 0, 2);
                __builtin_prefetch(next + col + (size_t)row * (size_t)v->in + VB_GEMM_NR - 1, 0, 2);
            }
            vb_gemm_tile(k, dy + (size_t)i * (size_t)k * VB_GEMM_MR, panels, sums, VB_GEMM_NR, add);
        }
    }
}

static void data_tile(const struct linear *v, const struct vb_k_args *args, int first, float *slot)
{
    int n_cols = vb_min(v->tile_panels * VB_GEMM_NR, v->in - first), row, k;
    const float *dy = args->scratch, *w = args->w + first;
    float *sums = slot + (size_t)(DATA_K * v->tile_panels * VB_GEMM_NR);

    for (row = 0; row < v->oc; row += k, w += (size_t)k * (size_t)v->in) {
        k = vb_min(DATA_K, v->oc - row);
        vb_gemm_pack_k_wide(w, (size_t)v->in, n_cols, k, slot);
        data_block(v, dy + (size_t)row * (size_t)vb_gemm_rows(v->n), slot, n_cols, k,
                   w + (size_t)k * (size_t)v->in, vb_min(DATA_K, v->oc - row - k), sums, row > 0);
    }
    data_store(v, sums, first, n_cols, args->dx);
}

static void data_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct linear *v = (const struct linear *)pass;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = (float *)args->scratch + v->shared + (size_t)omp_get_thread_num() * v->slot;

#pragma omp for schedule(static)
        for (int s = 0; s < v->n; s += VB_GEMM_MR)
            data_pack_dy(v, args->dy, s, args->scratch);
#pragma omp for schedule(static)
        for (int first = 0; first < v->in; first += v->tile_panels * VB_GEMM_NR)
            data_tile(v, args, first, slot);
    }
}

/* Returns the panels of x in scratch. */
static float *weights_x(const struct linear *v, float *scratch)
{
    return scratch + (size_t)vb_gemm_rows(v->oc) * (size_t)v->n;
}

static void weights_pack(const struct linear *v, const struct vb_k_args *args)
{
    float *rows = args->scratch, *x = weights_x(v, args->scratch);

#pragma omp for schedule(static) nowait
    for (int m = 0; m < v->oc; m += VB_GEMM_MR)
        vb_gemm_pack_k(args->dy + m, (size_t)v->oc, vb_min(VB_GEMM_MR, v->oc - m), v->n, VB_GEMM_MR,
                       rows + (size_t)m * (size_t)v->n);
#pragma omp for schedule(static)
    for (int i = 0; i < v->in; i += VB_GEMM_NR)
        vb_gemm_pack_k(args->x + i, (size_t)v->in, vb_min(VB_GEMM_NR, v->in - i), v->n, VB_GEMM_NR,
                       x + (size_t)i * (size_t)v->n);
}

/* Computes one tile of dw. At the edge it computes a full tile in a buffer and copies from it. */
static void weights_tile(const struct linear *v, const float *rows, const float *x, int m, int i,
                         float *dw)
{
    float edge[VB_GEMM_MR * VB_GEMM_NR];
    float *to = dw + (size_t)m * (size_t)v->in + (size_t)i;
    int r;

    if (m + VB_GEMM_MR <= v->oc && i + VB_GEMM_NR <= v->in) {
        vb_gemm_tile(v->n, rows, x, to, (size_t)v->in, false);
        return;
    }
    vb_gemm_tile(v->n, rows, x, edge, VB_GEMM_NR, false);
    for (r = 0; r < vb_min(VB_GEMM_MR, v->oc - m); r++)
        memcpy(to + (size_t)r * (size_t)v->in, edge + r * VB_GEMM_NR,
               (size_t)vb_min(VB_GEMM_NR, v->in - i) * sizeof(*to));
}

/* Computes WEIGHTS_ROWS rows of dw. A part of x stays in cache for all panels of rows. */
static void weights_rows(const struct linear *v, const struct vb_k_args *args, int first)
{
    const float *rows = args->scratch, *x = weights_x(v, args->scratch);
    int part, m, i, cols = WEIGHTS_PANELS * VB_GEMM_NR;

    for (part = 0; part < v->in; part += cols) {
        for (m = first; m < vb_min(first + WEIGHTS_ROWS, v->oc); m += VB_GEMM_MR) {
            for (i = part; i < vb_min(part + cols, v->in); i += VB_GEMM_NR)
                weights_tile(v, rows + (size_t)m * (size_t)v->n, x + (size_t)i * (size_t)v->n, m, i,
                             args->dw);
        }
    }
}

/* Whole rows of dy are added, because the gradients of one bias are far apart in memory. */
static void weights_bias(const struct linear *v, const struct vb_k_args *args, int first)
{
    int end = vb_min(first + WEIGHTS_ROWS, v->oc), s, j;

    for (j = first; j < end; j++)
        args->db[j] = 0;
    for (s = 0; s < v->n; s++) {
        for (j = first; j < end; j++)
            args->db[j] += args->dy[(size_t)s * (size_t)v->oc + (size_t)j];
    }
}

static void weights_run(struct vb_k_pass_state *pass, const struct vb_k_args *args)
{
    const struct linear *v = (const struct linear *)pass;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        weights_pack(v, args);
#pragma omp for schedule(static)
        for (int first = 0; first < v->oc; first += WEIGHTS_ROWS) {
            weights_rows(v, args, first);
            weights_bias(v, args, first);
        }
    }
}

static vb_status linear_create(const struct vb_k_shape *s, struct linear v, void **state_p,
                               size_t *scratch_p)
{
    struct linear *new = malloc(sizeof(*new));

    if (new == NULL)
        return vb_err_sys("malloc");
    *new = v;
    new->n = s->n;
    new->in = s->c * s->h * s->w;
    new->oc = s->oc;
    new->relu = s->relu;
    new->slots = vb_team_slots();
    *state_p = new;
    *scratch_p = (v.shared + (size_t) new->slots *v.slot) * sizeof(float);
    return VB_OK;
}

vb_status vb_gemm_linear_forward(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    size_t in = (size_t)s->c * (size_t)s->h * (size_t)s->w;
    struct linear v = {.pass.run = forward_run};

    v.shared = vb_team_align((in + VB_LANES - 1) * (size_t)vb_divide_up(s->n, 4) * 4);
    return linear_create(s, v, state_p, scratch_p);
}

vb_status vb_gemm_linear_data(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    int panels = vb_divide_up(s->c * s->h * s->w, VB_GEMM_NR);
    int tiles =
        /* The number of tiles is a multiple of 4, which a few threads can share evenly. */
        vb_divide_up(vb_divide_up(panels, DATA_PANELS), 4) * 4;
    size_t rows = (size_t)vb_gemm_rows(s->n);
    struct linear v = {.pass.run = data_run, .tile_panels = vb_divide_up(panels, tiles)};

    v.shared = vb_team_align(rows * (size_t)s->oc);
    v.slot = vb_team_align((DATA_K + rows) * (size_t)(v.tile_panels * VB_GEMM_NR));
    return linear_create(s, v, state_p, scratch_p);
}

vb_status vb_gemm_linear_weights(const struct vb_k_shape *s, void **state_p, size_t *scratch_p)
{
    size_t n = (size_t)s->n;
    struct linear v = {.pass.run = weights_run};

    v.shared =
        vb_team_align(((size_t)vb_gemm_rows(s->oc) + (size_t)vb_gemm_cols(s->c * s->h * s->w)) * n);
    return linear_create(s, v, state_p, scratch_p);
}
