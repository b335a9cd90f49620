/* SPDX-License-Identifier: MIT
 *
 * Local response normalisation across channels: y = x * scale ^ -beta. Inner loops run over
 * neighbouring pixels. A tile is so narrow that all its channels stay in cache.
 */
#include "kernels/layer/plain.h"

#include <math.h>

struct tile {
    size_t base;  /* index of the first element of the tile, in channel 0 */
    size_t plane; /* number of floats from one channel to the next */
    int n;        /* number of pixels in the tile */
};

static struct tile find(const struct vb_k_shape *s, size_t index)
{
    size_t plane = (size_t)s->h * (size_t)s->w;
    size_t tiles = (plane + PLAIN_LRN_PIXELS - 1) / PLAIN_LRN_PIXELS;
    size_t first = index % tiles * PLAIN_LRN_PIXELS;
    size_t left = plane - first;

    return (struct tile){index / tiles * (size_t)s->c * plane + first, plane,
                         left < PLAIN_LRN_PIXELS ? (int)left : PLAIN_LRN_PIXELS};
}

/* Computes scale ^ -beta of n numbers. The usual value of beta needs no logarithm. */
static void powers(const struct vb_k_shape *s, const float *restrict scale, int n,
                   float *restrict out)
{
    int i;

    if (s->beta == 0.75f)
        for (i = 0; i < n; i++)
            out[i] = 1 / (sqrtf(scale[i]) * sqrtf(sqrtf(scale[i])));
    else
        for (i = 0; i < n; i++)
            out[i] = powf(scale[i], -s->beta);
}

static void scales(const struct vb_k_shape *s, const float *x, const struct tile *t, int c,
                   float *restrict scale)
{
    int half = s->kh / 2, from = c > half ? c - half : 0, other, i;
    int end = c + half < s->c ? c + half + 1 : s->c;
    float share = s->alpha / (float)s->kh;

    memset(scale, 0, (size_t)t->n * sizeof(*scale));
    for (other = from; other < end; other++) {
        const float *restrict v = x + t->base + (size_t)other * t->plane;

        for (i = 0; i < t->n; i++)
            scale[i] += v[i] * v[i];
    }
    for (i = 0; i < t->n; i++)
        scale[i] = s->bias + share * scale[i];
}

void vb_plain_lrn_forward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t index,
                          float *row)
{
    struct tile t = find(s, index);
    float scale[PLAIN_LRN_PIXELS], power[PLAIN_LRN_PIXELS];
    size_t at = t.base;
    int c, i;

    (void)row;
    for (c = 0; c < s->c; c++, at += t.plane) {
        scales(s, a->x, &t, c, scale);
        powers(s, scale, t.n, power);
        for (i = 0; i < t.n; i++)
            a->y[at + (size_t)i] = a->x[at + (size_t)i] * power[i];
    }
}

/* Computes the first part of dx, in which the scale counts as constant. Writes dy * x * scale ^
 * (-beta - 1) to ratio. neighbours_part() adds the gradient through the scales. */
static void own_part(const struct vb_k_shape *s, const struct vb_k_args *a, const struct tile *t,
                     float *ratio)
{
    float scale[PLAIN_LRN_PIXELS], power[PLAIN_LRN_PIXELS], g;
    size_t at = t->base, j;
    int c, i;

    for (c = 0; c < s->c; c++, at += t->plane, ratio += PLAIN_LRN_PIXELS) {
        scales(s, a->x, t, c, scale);
        powers(s, scale, t->n, power);
        for (i = 0; i < t->n; i++) {
            j = at + (size_t)i;
            g = a->dy[j] * power[i];
            a->dx[j] = g;
            ratio[i] = g * a->x[j] / scale[i];
        }
    }
}

static void neighbours_part(const struct vb_k_shape *s, const struct vb_k_args *a,
                            const struct tile *t, int c, const float *ratio)
{
    int half = s->kh / 2, from = c > half ? c - half : 0, other, i;
    int end = c + half < s->c ? c + half + 1 : s->c;
    float sum[PLAIN_LRN_PIXELS] = {0}, factor = 2 * s->alpha / (float)s->kh * s->beta;
    size_t at = t->base + (size_t)c * t->plane;

    for (other = from; other < end; other++)
        for (i = 0; i < t->n; i++)
            sum[i] += ratio[(size_t)other * PLAIN_LRN_PIXELS + (size_t)i];
    for (i = 0; i < t->n; i++)
        a->dx[at + (size_t)i] -= factor * a->x[at + (size_t)i] * sum[i];
}

void vb_plain_lrn_backward(const struct vb_k_shape *s, const struct vb_k_args *a, size_t index,
                           float *row)
{
    struct tile t = find(s, index);
    int c;

    own_part(s, a, &t, row);
    for (c = 0; c < s->c; c++)
        neighbours_part(s, a, &t, c, row);
}
