/* SPDX-License-Identifier: MIT
 *
 * Direct convolution forward, and backward to the data, which is the same with dy, and the weights
 * turned round.
 *
 * In registers are some channels (4, 6 or 8, whichever wastes least) by some vectors of neighbours
 * in a row of output. For every tap the vectors of the input are loaded from the strip, wherever
 * they begin, and multiplied with the weights of the channels. Taps are sorted by their row first:
 * those that fall above or below the image are left out. The threads share out bands of images.
 */
#include "kernels/direct_priv.h"
#include "kernels/team_priv.h"
#include "kernels/vec_priv.h"

#include <stdlib.h>

#define WIDTH 8  /* weights of a tap, of which a block of channels uses some */
#define SLACK 16 /* floats that a vector at the end of a strip may read too far */

struct conv {
    struct vb_direct_pass pass;
    struct vb_patch patch;
    int n, c, m; /* samples, channels read and written */
    bool data, relu;
    int block;   /* channels written at a time */
    int vectors; /* of a row at a time, at most */
    int n_taps;  /* of all channels */
    int slots;
    size_t weights, strip; /* floats of scratch; strip of each slot */
    int taps[];            /* where a strip has them */
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* sums (block, vectors) of one place of a row. */
static inline __attribute__((always_inline)) void row_kernel(int block, int vectors, const float *x,
                                                             const float *w, const int *taps,
                                                             int n_taps, vb_v4 *sums)
{
    vb_v4 acc[8][4], xv[4], wv[2];

#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            acc[i][j] = vb_v4_all(0);
    for (int k = 0; k < n_taps; k++, w += WIDTH) {
        const float *from = x + taps[k];

#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            xv[j] = vb_v4_load(from + 4 * j);
        wv[0] = vb_v4_load(w);
        if (block > 4)
            wv[1] = vb_v4_load(w + 4);
#pragma GCC unroll 8
        for (int i = 0; i < block; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                acc[i][j] += xv[j] * wv[i / 4][i % 4];
    }
#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sums[i * vectors + j] = acc[i][j];
}

typedef void kernel(const float *x, const float *w, const int *taps, int n_taps, vb_v4 *sums);

#define KERNEL(BLOCK, VECTORS)                                                                     \
    static void kernel_##BLOCK##_##VECTORS(const float *x, const float *w, const int *taps,        \
                                           int n_taps, vb_v4 *sums)                                \
    {                                                                                              \
        row_kernel(BLOCK, VECTORS, x, w, taps, n_taps, sums);                                      \
    }

KERNEL(4, 1)
KERNEL(4, 2)
KERNEL(4, 3)
KERNEL(4, 4)
KERNEL(6, 1)
KERNEL(6, 2)
KERNEL(6, 3)
KERNEL(6, 4)
KERNEL(8, 1)
KERNEL(8, 2)
KERNEL(8, 3)

static kernel *const kernels[3][4] = {
    {kernel_4_1, kernel_4_2, kernel_4_3, kernel_4_4},
    {kernel_6_1, kernel_6_2, kernel_6_3, kernel_6_4},
    {kernel_8_1, kernel_8_2, kernel_8_3, NULL},
};

/* Weights of a block of channels from m on: (taps, WIDTH). */
static void pack_weights(const struct conv *v, const float *w, int m, float *to)
{
    int per = v->patch.kh * v->patch.kw, k, i, c, tap;
    size_t at;

    for (k = 0; k < v->n_taps; k++, to += WIDTH) {
        c = k / v->patch.kw % v->c;
        tap = k / v->patch.kw / v->c * v->patch.kw + k % v->patch.kw;
        for (i = 0; i < WIDTH; i++) {
            at = v->data ? (size_t)((c * v->m + m + i) * per + per - 1 - tap)
                         : (size_t)(((m + i) * v->c + c) * per + tap);
            to[i] = i < v->block && m + i < v->m ? w[at] : 0;
        }
    }
}

static inline vb_v4 finish(vb_v4 v, float bias, bool relu)
{
    v += bias;
    return relu ? vb_v4_relu(v) : v;
}

/* n neighbours of a row of one channel. */
static inline void store(const vb_v4 *sums, int n, float bias, bool relu, float *y)
{
    vb_v4 last;
    int i;

    for (i = 0; i + 4 <= n; i += 4)
        vb_v4_store(y + i, finish(*sums++, bias, relu));
    if (i == n)
        return;
    last = finish(*sums, bias, relu);
    for (; i < n; i++)
        y[i] = last[i % 4];
}

/* Rows of taps, *from_p to *to_p, that fall into the image for row oy of output. */
static void tap_rows(const struct vb_patch *p, int oy, int *from_p, int *to_p)
{
    int top = oy * p->stride - p->pad_y; /* of the input, for the first row of taps */

    *from_p = top < 0 ? min(-top, p->kh) : 0;
    *to_p = min(p->kh, p->h - top);
    if (*to_p < *from_p)
        *to_p = *from_p;
}

/* Row oy of output of one block of channels. y: of the block's first channel. */
static void run_row(const struct conv *v, const float *strip, const float *w, const float *bias,
                    int n_channels, int oy, float *y)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    int left = divide_up(v->patch.ow, 4), a_row = v->c * v->patch.kw, ox, n, i, from, to;
    vb_v4 sums[8 * 4];

    tap_rows(&v->patch, oy, &from, &to);
    for (ox = 0; left > 0; ox += 4 * n, left -= n) {
        n = divide_up(left, divide_up(left, v->vectors)); /* about the same each time */
        kernels[v->block / 2 - 2][n - 1](strip + ox, w + from * a_row * WIDTH,
                                         v->taps + from * a_row, (to - from) * a_row, sums);
        for (i = 0; i < n_channels; i++)
            store(sums + i * n, min(4 * n, v->patch.ow - ox), bias == NULL ? 0 : bias[i], v->relu,
                  y + (size_t)i * plane + ox);
    }
}

static void run_band(const struct conv *v, const float *x, const float *w, const float *bias,
                     int oy, float *strip, float *y)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    int rows = min(v->patch.rows, v->patch.oh - oy), m, r;

    vb_patch_fill(&v->patch, x, v->c, oy, strip);
    for (m = 0; m < v->m; m += v->block, w += (size_t)v->n_taps * WIDTH) {
        for (r = 0; r < rows; r++)
            run_row(v, strip + vb_patch_pixel(&v->patch, r, 0), w, bias == NULL ? NULL : bias + m,
                    min(v->block, v->m - m), oy + r,
                    y + (size_t)m * plane + (size_t)(oy + r) * (size_t)v->patch.ow);
    }
}

static void conv_run(struct vb_direct_pass *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    const float *x = v->data ? args->dy : args->x, *bias = v->data ? NULL : args->b;
    float *y = v->data ? args->dx : args->y, *w = args->scratch;
    int bands = divide_up(v->patch.oh, v->patch.rows), blocks = divide_up(v->m, v->block);
    size_t x_image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    size_t y_image = (size_t)v->m * (size_t)v->patch.oh * (size_t)v->patch.ow;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *strip = w + v->weights + (size_t)omp_get_thread_num() * v->strip;

#pragma omp for schedule(static)
        for (int i = 0; i < blocks; i++)
            pack_weights(v, args->w, i * v->block, w + (size_t)i * (size_t)v->n_taps * WIDTH);
#pragma omp for schedule(static)
        for (int i = 0; i < v->n * bands; i++)
            run_band(v, x + (size_t)(i / bands) * x_image, w, bias, i % bands * v->patch.rows,
                     strip, y + (size_t)(i / bands) * y_image);
    }
}

/* The block of channels that leaves least over; of two the larger one. */
static void choose_block(struct conv *v)
{
    static const int vectors[] = {4, 4, 3}; /* with the block they fill the registers */
    int i, waste, least = v->m + WIDTH;

    for (i = 2; i >= 0; i--) {
        waste = divide_up(v->m, 4 + 2 * i) * (4 + 2 * i) - v->m;
        if (waste < least) {
            least = waste;
            v->block = 4 + 2 * i;
            v->vectors = vectors[i];
        }
    }
}

vb_status vb_direct_conv(const struct vb_k_shape *s, enum vb_k_pass pass, void **state_p,
                         size_t *scratch_p)
{
    bool data = pass == VB_K_BACKWARD_DATA;
    int c = data ? s->oc : s->c, per = s->kh * s->kw, i;
    struct conv *v = calloc(1, sizeof(*v) + (size_t)(c * per) * sizeof(int));

    if (v == NULL)
        return vb_err_sys("calloc");
    v->pass.run = conv_run;
    v->data = data;
    v->relu = s->relu && !data;
    v->n = s->n;
    v->c = c;
    v->m = data ? s->c : s->oc;
    v->n_taps = c * per;
    if (data)
        vb_patch_init_data(&v->patch, s);
    else
        vb_patch_init(&v->patch, s);
    vb_direct_rows(&v->patch, c);
    choose_block(v);
    for (i = 0; i < v->n_taps; i++)
        v->taps[i] = (int)vb_patch_tap(&v->patch, i / s->kw % c, i / s->kw / c, i % s->kw);
    v->slots = vb_team_slots();
    v->weights = vb_team_align((size_t)divide_up(v->m, v->block) * (size_t)v->n_taps * WIDTH);
    v->strip = vb_team_align((size_t)c * vb_patch_plane(&v->patch) + SLACK);
    *state_p = v;
    *scratch_p = (v->weights + (size_t)v->slots * v->strip) * sizeof(float);
    return VB_OK;
}
