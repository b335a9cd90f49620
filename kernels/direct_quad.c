/* SPDX-License-Identifier: MIT
 *
 * Four samples side by side, and back.
 */
#include "kernels/direct_priv.h"
#include "kernels/vec_priv.h"

#include <string.h>

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* n neighbours of all samples; from: a row of each. */
static void join(const float *const from[4], int n_samples, int n, float *to)
{
    vb_v4 r[4];
    int i = 0, l;

    for (; n_samples == 4 && i + 4 <= n; i += 4) {
        for (l = 0; l < 4; l++)
            r[l] = vb_v4_load(from[l] + i);
        vb_v4_transpose(r);
        for (l = 0; l < 4; l++)
            vb_v4_store(to + (i + l) * 4, r[l]);
    }
    for (; i < n; i++) {
        for (l = 0; l < 4; l++)
            to[i * 4 + l] = l < n_samples ? from[l][i] : 0;
    }
}

static void fill_row(const struct vb_patch *p, const float *const from[4], int n_samples, float *to)
{
    int before = min(p->pad_x, p->pitch), n = min(p->w, p->pitch - before);

    memset(to, 0, (size_t)before * 4 * sizeof(*to));
    join(from, n_samples, n, to + before * 4);
    memset(to + (before + n) * 4, 0, (size_t)(p->pitch - before - n) * 4 * sizeof(*to));
}

static void fill_row_sorted(const struct vb_patch *p, const float *const from[4], int n_samples,
                            float *to)
{
    int phase, i, ix, l;

    for (phase = 0; phase < p->stride; phase++) {
        ix = phase - p->pad_x;
        for (i = 0; i < p->phase_w; i++, ix += p->stride, to += 4) {
            for (l = 0; l < 4; l++)
                to[l] = ix >= 0 && ix < p->w && l < n_samples ? from[l][ix] : 0;
        }
    }
}

void vb_direct_fill(const struct vb_patch *p, const float *x, size_t x_step, int n, int channels,
                    int oy, float *strip)
{
    const float *from[4];
    int c, r, iy, l;

    for (c = 0; c < channels; c++, x += (size_t)p->h * (size_t)p->w) {
        for (r = 0; r < p->strip_h; r++, strip += (size_t)p->pitch * 4) {
            iy = oy * p->stride + r - p->pad_y;
            if (iy < 0 || iy >= p->h) {
                memset(strip, 0, (size_t)p->pitch * 4 * sizeof(*strip));
                continue;
            }
            for (l = 0; l < 4; l++)
                from[l] = x + (size_t)min(l, n - 1) * x_step + (size_t)iy * (size_t)p->w;
            if (p->stride == 1)
                fill_row(p, from, n, strip);
            else
                fill_row_sorted(p, from, n, strip);
        }
    }
}

void vb_direct_split(const float *from, int n, int n_samples, bool relu, float *y, size_t y_step)
{
    vb_v4 r[4];
    int i = 0, l;

    for (; i + 4 <= n; i += 4) {
        for (l = 0; l < 4; l++)
            r[l] = vb_v4_load(from + (i + l) * 4);
        vb_v4_transpose(r);
        for (l = 0; l < n_samples; l++)
            vb_v4_store(y + (size_t)l * y_step + i, relu ? vb_v4_relu(r[l]) : r[l]);
    }
    for (; i < n; i++) {
        for (l = 0; l < n_samples; l++)
            y[(size_t)l * y_step + (size_t)i] = relu ? vb_relu(from[i * 4 + l]) : from[i * 4 + l];
    }
}

typedef uint8_t bytes4 __attribute__((vector_size(4)));

/* The larger one and its place, the first of two that are equal. NaN wins, and stays. */
static inline void larger(vb_v4 *best, vb_v4i *place, vb_v4 v, vb_v4i v_place)
{
    vb_v4i wins = (v > *best) | (v != v); /* NOLINT(misc-redundant-expression): NaN */

    *best = vb_v4_pick(wins, v, *best);
    *place = (wins & v_place) | (~wins & *place);
}

/* One result of each sample, and its place as a float's bits. */
static inline void pool_one(const float *row0, const float *row1, vb_v4 *y, vb_v4 *place_p)
{
    const vb_v4i one = {1, 1, 1, 1};
    vb_v4 best = vb_v4_load(row0);
    vb_v4i place = {0}, positive;

    larger(&best, &place, vb_v4_load(row0 + 4), one);
    larger(&best, &place, vb_v4_load(row1), one * 2);
    larger(&best, &place, vb_v4_load(row1 + 4), one * 3);
    positive = best > 0;
    *y = vb_v4_relu(best);
    *place_p = (vb_v4)((positive & place) | (~positive & (one * VB_K_NOWHERE)));
}

/* Up to four neighbours of each sample. */
static inline void pool_four(const float *row0, const float *row1, int n, int n_samples, float *y,
                             uint8_t *where, size_t y_step)
{
    vb_v4 r[4] = {{0}, {0}, {0}, {0}}, p[4] = {{0}, {0}, {0}, {0}};
    bytes4 b;
    int i, l;

    for (i = 0; i < n; i++)
        pool_one(row0 + 8 * i, row1 + 8 * i, &r[i], &p[i]);
    vb_v4_transpose(r);
    vb_v4_transpose(p);
    for (l = 0; l < n_samples; l++) {
        b = __builtin_convertvector((vb_v4i)p[l], bytes4);
        if (n == 4)
            vb_v4_store(y + (size_t)l * y_step, r[l]);
        else
            memcpy(y + (size_t)l * y_step, &r[l], (size_t)n * sizeof(*y));
        memcpy(where + (size_t)l * y_step, &b, (size_t)n);
    }
}

void vb_direct_pool(const float *row0, const float *row1, int n, int n_samples, float *y,
                    uint8_t *where, size_t y_step)
{
    int i = 0;

    for (; i + 4 <= n; i += 4)
        pool_four(row0 + 8 * i, row1 + 8 * i, 4, n_samples, y + i, where + i, y_step);
    if (i < n)
        pool_four(row0 + 8 * i, row1 + 8 * i, n - i, n_samples, y + i, where + i, y_step);
}
