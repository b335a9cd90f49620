/* SPDX-License-Identifier: MIT
 *
 * Direct convolution forward, and backward to the data, which is the same with dy, and the weights
 * turned round.
 *
 * In registers are some channels (4, 6 or 8, whichever wastes least) by some neighbours in a row of
 * output. For every tap their inputs are loaded from the strip and multiplied with the weights of
 * the channels. Taps are sorted by their row first: those that fall above or below the image are
 * left out. The threads share out bands of quads of samples.
 */
#include "kernels/direct_priv.h"
#include "kernels/team_priv.h"
#include "kernels/vec_priv.h"

#include <stdlib.h>

#define WIDTH 8 /* weights of a tap, of which a block of channels uses some */

/* Floats of a strip: larger ones would leave the second level of cache. */
#define STRIP_MAX (24 * 1024)

struct conv {
    struct vb_direct_pass pass;
    struct vb_patch patch;
    int n, c, m; /* samples, channels read and written */
    bool data, relu;
    int block;  /* channels written at a time */
    int pixels; /* of a row at a time, at most */
    int n_taps; /* of all channels */
    int slots;
    size_t weights, strip, row; /* floats of scratch; strip and row of each slot */
    int taps[];                 /* where a strip has them */
};

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Sums of a block of channels and some pixels; channels go out_step apart to out. */
static inline __attribute__((always_inline)) void row_kernel(int block, int pixels, const float *x,
                                                             const float *w, const int *taps,
                                                             int n_taps, float *out,
                                                             size_t out_step)
{
    vb_v4 acc[8][4], xv[4], wv[2];

#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < pixels; j++)
            acc[i][j] = vb_v4_all(0);
    for (int k = 0; k < n_taps; k++, w += WIDTH) {
        const float *from = x + taps[k];

#pragma GCC unroll 4
        for (int j = 0; j < pixels; j++)
            xv[j] = vb_v4_load(from + 4 * j);
        wv[0] = vb_v4_load(w);
        if (block > 4)
            wv[1] = vb_v4_load(w + 4);
#pragma GCC unroll 8
        for (int i = 0; i < block; i++)
#pragma GCC unroll 4
            for (int j = 0; j < pixels; j++)
                acc[i][j] += xv[j] * wv[i / 4][i % 4];
    }
#pragma GCC unroll 8
    for (int i = 0; i < block; i++)
#pragma GCC unroll 4
        for (int j = 0; j < pixels; j++)
            vb_v4_store(out + (size_t)i * out_step + 4 * j, acc[i][j]);
}

typedef void kernel(const float *x, const float *w, const int *taps, int n_taps, float *out,
                    size_t out_step);

#define KERNEL(BLOCK, PIXELS)                                                                      \
    static void kernel_##BLOCK##_##PIXELS(const float *x, const float *w, const int *taps,         \
                                          int n_taps, float *out, size_t out_step)                 \
    {                                                                                              \
        row_kernel(BLOCK, PIXELS, x, w, taps, n_taps, out, out_step);                              \
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

/* Rows of taps, *from_p to *to_p, that fall into the image for row oy of output. */
static void tap_rows(const struct vb_patch *p, int oy, int *from_p, int *to_p)
{
    int top = oy * p->stride - p->pad_y; /* of the input, for the first row of taps */

    *from_p = top < 0 ? min(-top, p->kh) : 0;
    *to_p = min(p->kh, p->h - top);
    if (*to_p < *from_p)
        *to_p = *from_p;
}

/* Row oy of output of one block of channels, into row (block, ow) of a quad. */
static void run_row(const struct conv *v, const float *strip, const float *w, int oy, float *row)
{
    int left = v->patch.ow, a_row = v->c * v->patch.kw, ox, n, from, to;

    tap_rows(&v->patch, oy, &from, &to);
    for (ox = 0; left > 0; ox += n, left -= n) {
        n = divide_up(left, divide_up(left, v->pixels)); /* about the same each time */
        kernels[v->block / 2 - 2][n - 1](strip + (size_t)ox * 4, w + (size_t)(from * a_row) * WIDTH,
                                         v->taps + from * a_row, (to - from) * a_row,
                                         row + (size_t)ox * 4, (size_t)v->patch.ow * 4);
    }
}

/* Bias and ReLU, then to the samples. y: the row in the block's first channel of the first sample.
 */
static void store_row(const struct conv *v, float *row, const float *bias, int n_channels,
                      int n_samples, float *y)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    int i, j, ow = v->patch.ow;

    for (i = 0; i < n_channels; i++, row += (size_t)ow * 4) {
        for (j = 0; bias != NULL && j < ow; j++)
            vb_v4_store(row + j * 4, vb_v4_load(row + j * 4) + bias[i]);
        for (j = 0; v->relu && j < ow; j++)
            vb_v4_store(row + j * 4, vb_v4_relu(vb_v4_load(row + j * 4)));
        vb_direct_split(row, ow, n_samples, y + (size_t)i * plane, (size_t)v->m * plane);
    }
}

/* Rows from oy on of the quad that begins with sample s. */
static void run_band(const struct conv *v, const struct vb_k_args *args, int s, int oy, float *slot)
{
    size_t plane = (size_t)v->patch.oh * (size_t)v->patch.ow;
    size_t image = (size_t)v->c * (size_t)v->patch.h * (size_t)v->patch.w;
    int rows = min(v->patch.rows, v->patch.oh - oy), n = min(VB_DIRECT_QUAD, v->n - s), m, r;
    const float *w = args->scratch;
    float *y = (v->data ? args->dx : args->y) + (size_t)s * (size_t)v->m * plane;

    vb_direct_fill(&v->patch, (v->data ? args->dy : args->x) + (size_t)s * image, image, n, v->c,
                   oy, slot);
    for (m = 0; m < v->m; m += v->block, w += (size_t)v->n_taps * WIDTH) {
        for (r = 0; r < rows; r++) {
            run_row(v, slot + vb_patch_pixel(&v->patch, r, 0) * 4, w, oy + r, slot + v->strip);
            store_row(v, slot + v->strip, v->data ? NULL : args->b + m, min(v->block, v->m - m), n,
                      y + (size_t)m * plane + (size_t)(oy + r) * (size_t)v->patch.ow);
        }
    }
}

static void conv_run(struct vb_direct_pass *pass, const struct vb_k_args *args)
{
    const struct conv *v = (const struct conv *)pass;
    int bands = divide_up(v->patch.oh, v->patch.rows), blocks = divide_up(v->m, v->block);
    int quads = divide_up(v->n, VB_DIRECT_QUAD);
    float *w = args->scratch;

#pragma omp parallel num_threads(vb_team_size(v->slots))
    {
        float *slot = w + v->weights + (size_t)omp_get_thread_num() * (v->strip + v->row);

#pragma omp for schedule(static)
        for (int i = 0; i < blocks; i++)
            pack_weights(v, args->w, i * v->block, w + (size_t)i * (size_t)v->n_taps * WIDTH);
#pragma omp for schedule(static)
        for (int i = 0; i < quads * bands; i++)
            run_band(v, args, i / bands * VB_DIRECT_QUAD, i % bands * v->patch.rows, slot);
    }
}

/* The block of channels that leaves least over; of two the larger one. */
static void choose_block(struct conv *v)
{
    static const int pixels[] = {4, 4, 3}; /* with the block they fill the registers */
    int i, waste, least = v->m + WIDTH;

    for (i = 2; i >= 0; i--) {
        waste = divide_up(v->m, 4 + 2 * i) * (4 + 2 * i) - v->m;
        if (waste < least) {
            least = waste;
            v->block = 4 + 2 * i;
            v->pixels = pixels[i];
        }
    }
}

/* As many rows of output to a strip as fit, at least one. */
static void choose_rows(struct vb_patch *p, int channels)
{
    int rows = p->oh;

    vb_patch_rows(p, rows);
    while (rows > 1 && (size_t)channels * vb_patch_plane(p) * 4 > STRIP_MAX) {
        rows = (rows + 1) / 2;
        vb_patch_rows(p, rows);
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
    choose_rows(&v->patch, c);
    choose_block(v);
    for (i = 0; i < v->n_taps; i++)
        v->taps[i] = (int)vb_patch_tap(&v->patch, i / s->kw % c, i / s->kw / c, i % s->kw) * 4;
    v->slots = vb_team_slots();
    v->weights = vb_team_align((size_t)divide_up(v->m, v->block) * (size_t)v->n_taps * WIDTH);
    v->strip = vb_team_align((size_t)c * vb_patch_plane(&v->patch) * 4);
    v->row = vb_team_align((size_t)v->block * (size_t)v->patch.ow * 4);
    *state_p = v;
    *scratch_p = (v->weights + (size_t)v->slots * (v->strip + v->row)) * sizeof(float);
    return VB_OK;
}
