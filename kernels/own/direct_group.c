/* SPDX-License-Identifier: MIT
 *
 * Interleaves the samples of a group, and separates them again, four pixels at a time.
 */
#include "kernels/own/direct_priv.h"
#include "kernels/layer/quads.h"

/* Interleaves n neighbouring pixels of all samples. from points to a row of each sample. */
static void join(const float *const from[VB_DIRECT_GROUP], int n_samples, int n, float *to)
{
    vb_vec r[4];
    int i = 0, l;

    for (; n_samples == VB_DIRECT_GROUP && i + 4 <= n; i += 4) {
        vb_quads_load(from, (size_t)i, r);
        for (l = 0; l < 4; l++)
            vb_vec_store(to + (i + l) * VB_DIRECT_GROUP, r[l]);
    }
    for (; i < n; i++) {
        for (l = 0; l < VB_DIRECT_GROUP; l++)
            to[i * VB_DIRECT_GROUP + l] = l < n_samples ? from[l][i] : 0;
    }
}

static void fill_row(const struct vb_patch *p, const float *const from[VB_DIRECT_GROUP],
                     int n_samples, float *to)
{
    int before = vb_min(p->pad_x, p->pitch), n = vb_min(p->w, p->pitch - before);

    memset(to, 0, (size_t)before * VB_DIRECT_GROUP * sizeof(*to));
    join(from, n_samples, n, to + before * VB_DIRECT_GROUP);
    memset(to + (before + n) * VB_DIRECT_GROUP, 0,
           (size_t)(p->pitch - before - n) * VB_DIRECT_GROUP * sizeof(*to));
}

static void fill_row_sorted(const struct vb_patch *p, const float *const from[VB_DIRECT_GROUP],
                            int n_samples, float *to)
{
    int phase, i, ix, l;

    for (phase = 0; phase < p->stride; phase++) {
        ix = phase - p->pad_x;
        for (i = 0; i < p->phase_w; i++, ix += p->stride, to += VB_DIRECT_GROUP) {
            for (l = 0; l < VB_DIRECT_GROUP; l++)
                to[l] = ix >= 0 && ix < p->w && l < n_samples ? from[l][ix] : 0;
        }
    }
}

void vb_direct_fill(const struct vb_patch *p, const float *x, size_t x_step, int n, int channels,
                    int oy, float *strip)
{
    const float *from[VB_DIRECT_GROUP];
    int c, r, iy, l;

    for (c = 0; c < channels; c++, x += (size_t)p->h * (size_t)p->w) {
        for (r = 0; r < p->strip_h; r++, strip += (size_t)p->pitch * VB_DIRECT_GROUP) {
            iy = oy * p->stride + r - p->pad_y;
            if (iy < 0 || iy >= p->h) {
                memset(strip, 0, (size_t)p->pitch * VB_DIRECT_GROUP * sizeof(*strip));
                continue;
            }
            for (l = 0; l < VB_DIRECT_GROUP; l++)
                from[l] = x + (size_t)vb_min(l, n - 1) * x_step + (size_t)iy * (size_t)p->w;
            if (p->stride == 1)
                fill_row(p, from, n, strip);
            else
                fill_row_sorted(p, from, n, strip);
        }
    }
}

/* Returns the four neighbouring pixels of sample l, after the transposition. */
static inline vb_v4 four_of(const vb_vec r[4], int l)
{
#if VB_LANES == 4
    return r[l];
#else
    return vb_v4_load((const float *)&r[l % 4] + l / 4 * 4);
#endif
}

void vb_direct_split(const float *from, int n, int n_samples, bool relu, float *y, size_t y_step)
{
    vb_vec r[4];
    vb_v4 v;
    int i = 0, l;

    for (; i + 4 <= n; i += 4) {
        for (l = 0; l < 4; l++)
            r[l] = vb_vec_load(from + (i + l) * VB_DIRECT_GROUP);
        vb_quads_turn(r);
        for (l = 0; l < n_samples; l++) {
            v = four_of(r, l);
            vb_v4_store(y + (size_t)l * y_step + i, relu ? vb_v4_relu(v) : v);
        }
    }
    for (; i < n; i++) {
        for (l = 0; l < n_samples; l++)
            y[(size_t)l * y_step + (size_t)i] =
                relu ? vb_relu(from[i * VB_DIRECT_GROUP + l]) : from[i * VB_DIRECT_GROUP + l];
    }
}

typedef uint8_t bytes4 __attribute__((vector_size(4)));

/* Replaces *best and *place in the lanes where v is larger. A NaN is larger than any number. */
static inline void larger(vb_vec *best, vb_veci *place, vb_vec v, vb_veci v_place)
{
    vb_veci wins = (v > *best) | (v != v); /* NOLINT(misc-redundant-expression): NaN */

    *best = (vb_vec)((wins & (vb_veci)v) | (~wins & (vb_veci)*best));
    *place = (wins & v_place) | (~wins & *place);
}

/* Computes one max pooling for each sample. The place is stored in the bits of a float. */
static inline void pool_one(const float *row0, const float *row1, vb_vec *y, vb_vec *place_p)
{
    const vb_veci one = 1 - (vb_veci){0};
    vb_vec best = vb_vec_load(row0);
    vb_veci place = {0}, positive;

    larger(&best, &place, vb_vec_load(row0 + VB_DIRECT_GROUP), one);
    larger(&best, &place, vb_vec_load(row1), one * 2);
    larger(&best, &place, vb_vec_load(row1 + VB_DIRECT_GROUP), one * 3);
    positive = best > 0;
    *y = vb_vec_relu(best);
    *place_p = (vb_vec)((positive & place) | (~positive & (one * VB_K_NOWHERE)));
}

/* Turns the places of four pixels into four bytes for each sample, the first pixel lowest. */
static inline void transpose_places(vb_vec p[4])
{
#if VB_LANES == 4
    vb_quads_turn(p);
#else
    p[0] = (vb_vec)((vb_veci)p[0] | (vb_veci)p[1] << 8 | (vb_veci)p[2] << 16 | (vb_veci)p[3] << 24);
#endif
}

/* Returns the four bytes of sample l, after the transposition. */
static inline bytes4 places_of(const vb_vec p[4], int l)
{
#if VB_LANES == 4
    return __builtin_convertvector((vb_v4i)p[l], bytes4);
#else
    bytes4 b;

    memcpy(&b, (const float *)&p[0] + l, sizeof(b));
    return b;
#endif
}

/* Computes up to four neighbouring results of each sample. */
static inline void pool_four(const float *row0, const float *row1, int n, int n_samples, float *y,
                             uint8_t *where, size_t y_step)
{
    vb_vec r[4] = {{0}, {0}, {0}, {0}}, p[4] = {{0}, {0}, {0}, {0}};
    bytes4 b;
    vb_v4 v;
    int i, l;

    for (i = 0; i < n; i++)
        pool_one(row0 + i * 2 * VB_DIRECT_GROUP, row1 + i * 2 * VB_DIRECT_GROUP, &r[i], &p[i]);
    vb_quads_turn(r);
    transpose_places(p);
    for (l = 0; l < n_samples; l++) {
        v = four_of(r, l);
        b = places_of(p, l);
        if (n == 4)
            vb_v4_store(y + (size_t)l * y_step, v);
        else
            memcpy(y + (size_t)l * y_step, &v, (size_t)n * sizeof(*y));
        memcpy(where + (size_t)l * y_step, &b, (size_t)n);
    }
}

void vb_direct_pool(const float *row0, const float *row1, int n, int n_samples, float *y,
                    uint8_t *where, size_t y_step)
{
    const size_t step = 2 * VB_DIRECT_GROUP;
    size_t i = 0, end = (size_t)n;

    for (; i + 4 <= end; i += 4)
        pool_four(row0 + step * i, row1 + step * i, 4, n_samples, y + i, where + i, y_step);
    if (i == end)
        return;
    if (VB_LANES > 4 &&
        end > 4) { /* some pixels are stored twice, which is cheaper than storing fewer than four */
        i = end - 4;
        pool_four(row0 + step * i, row1 + step * i, 4, n_samples, y + i, where + i, y_step);
    } else {
        pool_four(row0 + step * i, row1 + step * i, (int)(end - i), n_samples, y + i, where + i,
                  y_step);
    }
}
