/* SPDX-License-Identifier: MIT
 *
 * Computes layers whose speed is limited by memory, in loops that compilers turn into vector
 * instructions. The shape alone determines the tiles, and one thread computes each tile.
 */
#include "kernels/layer/plain.h"

#include <omp.h>
#include <stdlib.h>

#define BLOCK 4096 /* number of elements in a tile of element-wise layers */
/* With at most this number of elements, waking the other threads costs more than it saves. */
#define FEW (4 * BLOCK)
#define OUTPUTS_A_TILE 64 /* number of outputs in one tile of a bias gradient */

static size_t block_end(size_t first, size_t n)
{
    return n - first < BLOCK ? n : first + BLOCK;
}

static void relu_forward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                         float *row)
{
    size_t i = tile * BLOCK, end = block_end(i, vb_k_shape_inputs(s));
    const float *restrict x = a->x;
    float *restrict y = a->y;

    (void)row;
    for (; i < end; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* a NaN stays */
}

static void relu_backward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                          float *row)
{
    size_t i = tile * BLOCK, end = block_end(i, vb_k_shape_inputs(s));
    const float *restrict y = a->y, *restrict dy = a->dy;
    float *restrict dx = a->dx;

    (void)row;
    for (; i < end; i++)
        dx[i] = y[i] > 0 ? dy[i] : 0;
}

/* Applies dropout to elements [i, end) of v. Elements are counted from sample 0 of the step, so
 * that a sample has the same elements dropped in any batch. Elements 2k and 2k + 1 share a random
 * number.
 */
static void drop(const struct vb_k_shape *s, const struct vb_k_args *a, size_t i, size_t end,
                 const float *v, float *out)
{
    uint64_t key = vb_random(a->seed, a->step), random;
    uint64_t skipped = a->first * (vb_k_shape_inputs(s) / (size_t)s->n);
    uint32_t below = vb_k_dropout_below(s->rate);
    float scale = 1 / (1 - s->rate);

    if ((skipped + i) % 2 != 0 && i < end) {
        random = vb_random(key, (skipped + i) / 2);
        out[i] = (uint32_t)(random >> 32) < below ? 0 : v[i] * scale;
        i++;
    }
    for (; i + 1 < end; i += 2) {
        random = vb_random(key, (skipped + i) / 2);
        out[i] = (uint32_t)random < below ? 0 : v[i] * scale;
        out[i + 1] = (uint32_t)(random >> 32) < below ? 0 : v[i + 1] * scale;
    }
    if (i < end)
        out[i] = (uint32_t)vb_random(key, (skipped + i) / 2) < below ? 0 : v[i] * scale;
}

static void dropout_forward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                            float *row)
{
    size_t i = tile * BLOCK;

    (void)row;
    drop(s, a, i, block_end(i, vb_k_shape_inputs(s)), a->x, a->y);
}

static void dropout_backward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t tile,
                             float *row)
{
    size_t i = tile * BLOCK;

    (void)row;
    drop(s, a, i, block_end(i, vb_k_shape_inputs(s)), a->dy, a->dx);
}

void vb_k_relu_mask(const float *y, float *dy, size_t n)
{
    size_t i;

#pragma omp parallel for schedule(static) if (n > FEW)
    for (i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

static double row_sum(const float *v, size_t n)
{
    float lanes[8] = {0};
    double sum = 0;
    size_t i;
    int l;

    for (i = 0; i + 8 <= n; i += 8)
        for (l = 0; l < 8; l++)
            lanes[l] += v[i + (size_t)l];
    for (; i < n; i++)
        sum += (double)v[i];
    for (l = 0; l < 8; l++)
        sum += (double)lanes[l];
    return sum;
}

/* Sums the gradients of outputs [first, end) over the samples. The outputs of a linear layer are
 * neighbours in memory, so its sums run side by side. */
static void bias_tile(const float *dy, int n, int oc, size_t pixels, int first, int end, float *db)
{
    double sum[OUTPUTS_A_TILE] = {0};
    const float *row;
    int i, o;

    for (i = 0; i < n; i++) {
        row = dy + (size_t)i * (size_t)oc * pixels;
        for (o = first; o < end; o++)
            sum[o - first] +=
                pixels == 1 ? (double)row[o] : row_sum(row + (size_t)o * pixels, pixels);
    }
    for (o = first; o < end; o++)
        db[o] = (float)sum[o - first];
}

void vb_k_bias_grad(const float *dy, int n, int oc, size_t pixels, float *db)
{
    int size = pixels == 1 ? OUTPUTS_A_TILE : 4, o;
    size_t all = (size_t)n * (size_t)oc * pixels;

#pragma omp parallel for schedule(static) if (all > FEW)
    for (o = 0; o < oc; o += size)
        bias_tile(dy, n, oc, pixels, o, oc - o < size ? oc : o + size, db);
}

struct plain_state {
    struct vb_k_shape s;
    plain_tile_fn *fn;
    size_t tiles;
    size_t row; /* number of floats of work memory for each thread */
    int slots;  /* number of threads that have work memory */
};

static plain_tile_fn *const table[][2] = {
    [VB_K_MAX_POOL] = {vb_plain_max_forward, vb_plain_max_backward},
    [VB_K_AVG_POOL] = {vb_plain_avg_forward, vb_plain_avg_backward},
    [VB_K_RELU] = {relu_forward, relu_backward},
    [VB_K_LRN] = {vb_plain_lrn_forward, vb_plain_lrn_backward},
    [VB_K_DROPOUT] = {dropout_forward, dropout_backward},
};

static bool plain_can(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    return !vb_k_has_pass(s->kind, VB_K_BACKWARD_WEIGHTS) && vb_k_has_pass(s->kind, pass);
}

static void cut(struct plain_state *st)
{
    const struct vb_k_shape *s = &st->s;
    size_t plane = (size_t)s->h * (size_t)s->w;

    if (s->kind == VB_K_MAX_POOL || s->kind == VB_K_AVG_POOL) {
        st->tiles = (size_t)s->n * (size_t)s->c;
        st->row = (size_t)s->w;
    } else if (s->kind == VB_K_LRN) {
        st->tiles = (size_t)s->n * ((plane + PLAIN_LRN_PIXELS - 1) / PLAIN_LRN_PIXELS);
        st->row = (size_t)s->c * PLAIN_LRN_PIXELS;
    } else {
        st->tiles = (vb_k_shape_inputs(s) + BLOCK - 1) / BLOCK;
    }
    st->row = (st->row + 15) / 16 * 16;
}

static vb_status plain_prepare(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                               size_t *scratch_p)
{
    struct plain_state *st = calloc(1, sizeof(*st));

    if (st == NULL)
        return vb_err_sys("calloc");
    st->s = *s;
    st->fn = table[s->kind][pass];
    cut(st);
    st->slots = omp_get_max_threads();
    *scratch_p = (size_t)st->slots * st->row * sizeof(float);
    *state_p = st;
    return VB_OK;
}

static void plain_run(void *state, const struct vb_k_args *a)
{
    const struct plain_state *st = state;
    int team = vb_k_shape_inputs(&st->s) <= FEW ? 1 : vb_min(st->slots, omp_get_max_threads());
    size_t i;

#pragma omp parallel for schedule(static) num_threads(team)
    for (i = 0; i < st->tiles; i++)
        st->fn(&st->s, a, i,
               st->row == 0 ? NULL : (float *)a->scratch + (size_t)omp_get_thread_num() * st->row);
}

const struct vb_k_backend vb_k_backend_plain = {
    .name = "plain",
    .can = plain_can,
    .prepare = plain_prepare,
    .run = plain_run,
    .destroy = free,
};
