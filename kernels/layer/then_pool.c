/* SPDX-License-Identifier: MIT
 *
 * Computes conv-pool layers with the backends for convolutions ("blas+pool" and so on): forward
 * computes the whole convolution in scratch memory and then pools it; backward does the reverse.
 */
#include "kernels/layer/then_pool.h"

#include <stdlib.h>

struct then_pool {
    const struct vb_k_backend *conv;
    struct vb_k_shape s, whole; /* whole: shape of the convolution */
    enum vb_k_pass pass;
    void *state;  /* state of conv */
    size_t inner; /* size of conv's scratch in bytes; the convolution's y or dy comes after it */
};

static inline float larger(float best, float v)
{
    return ((v > best) | (v != v)) ? v : best; /* a NaN wins, and stays */
}

/* Pools two rows of the convolution's output, after its ReLU, into n results. */
static void pool_row(const float *restrict row0, const float *restrict row1, int n,
                     float *restrict y, uint8_t *restrict where)
{
    int i, place;

    for (i = 0; i < n; i++) {
        float a = row0[2 * i], b = row0[2 * i + 1], c = row1[2 * i], d = row1[2 * i + 1];
        float best = larger(larger(larger(a, b), c), d);

        place = a == best ? 0 : b == best ? 1 : c == best ? 2 : 3;
        y[i] = best;
        where[i] = (uint8_t)(best > 0 ? place : VB_K_NOWHERE);
    }
}

static void spread_row(const float *restrict dy, const uint8_t *restrict where, int n,
                       float *restrict row0, float *restrict row1)
{
    int i;

    for (i = 0; i < n; i++) {
        row0[2 * i] = where[i] == 0 ? dy[i] : 0;
        row0[2 * i + 1] = where[i] == 1 ? dy[i] : 0;
        row1[2 * i] = where[i] == 2 ? dy[i] : 0;
        row1[2 * i + 1] = where[i] == 3 ? dy[i] : 0;
    }
}

/* Pools one of the n * oc planes. */
static void pool_plane(const struct then_pool *st, const struct vb_k_args *a, const float *whole,
                       size_t plane)
{
    size_t w = (size_t)st->whole.ow, at = plane * (size_t)st->s.oh * (size_t)st->s.ow;
    int y;

    whole += plane * (size_t)st->whole.oh * w;
    for (y = 0; y < st->s.oh; y++, whole += 2 * w, at += (size_t)st->s.ow)
        pool_row(whole, whole + w, st->s.ow, a->y + at, a->where + at);
}

static void spread_plane(const struct then_pool *st, const struct vb_k_args *a, float *whole,
                         size_t plane)
{
    size_t w = (size_t)st->whole.ow, at = plane * (size_t)st->s.oh * (size_t)st->s.ow;
    int y;

    whole += plane * (size_t)st->whole.oh * w;
    for (y = 0; y < st->s.oh; y++, whole += 2 * w, at += (size_t)st->s.ow) {
        spread_row(a->dy + at, a->where + at, st->s.ow, whole, whole + w);
        if (st->whole.ow % 2 != 0)
            whole[w - 1] = whole[2 * w - 1] = 0;
    }
    memset(whole, 0, (size_t)(st->whole.oh % 2) * w * sizeof(*whole));
}

void vb_then_pool_run(void *state, const struct vb_k_args *args)
{
    const struct then_pool *st = state;
    size_t planes = (size_t)st->s.n * (size_t)st->s.oc, i;
    float *whole = (float *)(void *)((char *)args->scratch + st->inner);
    struct vb_k_args conv = *args;

    if (st->pass == VB_K_FORWARD) {
        conv.y = whole;
        st->conv->run(st->state, &conv);
#pragma omp parallel for schedule(static)
        for (i = 0; i < planes; i++)
            pool_plane(st, args, whole, i);
        return;
    }
#pragma omp parallel for schedule(static)
    for (i = 0; i < planes; i++)
        spread_plane(st, args, whole, i);
    conv.dy = whole;
    st->conv->run(st->state, &conv);
}

bool vb_then_pool_can(const struct vb_k_backend *conv, const struct vb_k_shape *s,
                      enum vb_k_pass pass)
{
    struct vb_k_shape whole = vb_k_shape_conv(s);

    return s->kind == VB_K_CONV_POOL && conv->can(&whole, pass);
}

vb_status vb_then_pool_prepare(const struct vb_k_backend *conv, const struct vb_k_shape *s,
                               enum vb_k_pass pass, void **state_p, size_t *scratch_p)
{
    struct then_pool *st = calloc(1, sizeof(*st));
    size_t inner = 0;
    vb_status status;

    if (st == NULL)
        return vb_err_sys("calloc");
    st->conv = conv;
    st->s = *s;
    st->whole = vb_k_shape_conv(s);
    st->pass = pass;
    status = conv->prepare(&st->whole, pass, &st->state, &inner);
    if (status != VB_OK) {
        free(st);
        return status;
    }
    st->inner = (inner + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
    *scratch_p = st->inner + vb_k_shape_outputs(&st->whole) * sizeof(float);
    *state_p = st;
    return VB_OK;
}

void vb_then_pool_destroy(void *state)
{
    struct then_pool *st = state;

    st->conv->destroy(st->state);
    free(st);
}
