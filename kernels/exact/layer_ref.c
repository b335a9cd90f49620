/* SPDX-License-Identifier: MIT
 *
 * The specification of layers: plain loops that add in double precision, against which fast kernels
 * are tested. A linear layer is a convolution of a row whose kernel is as long as the row.
 *
 * The loops are compiled three times, with other types of numbers: here for floats that are added
 * in double, in layer_ref64.c for doubles, and in layer_running.c for floats that are added in
 * float.
 */
#include "kernels/layer/backend.h"

#include <math.h>

#ifndef LAYER_REF
#define LAYER_REF vb_k_layer_ref
#define LAYER_ARGS vb_k_args
#define REAL float /* type of the elements of tensors */
#define SUM double /* type of sums */
#define POW pow
#endif

/* The sizes that locate an element in a tensor (n, c, h, w). */
struct dims {
    int c, h, w;
};

static size_t at(struct dims d, int n, int c, int y, int x)
{
    return (((size_t)n * (size_t)d.c + (size_t)c) * (size_t)d.h + (size_t)y) * (size_t)d.w +
           (size_t)x;
}

static struct dims in_dims(const struct vb_k_shape *s)
{
    return (struct dims){s->c, s->h, s->w};
}

static struct dims out_dims(const struct vb_k_shape *s)
{
    return (struct dims){s->oc, s->oh, s->ow};
}

static struct dims kernel_dims(const struct vb_k_shape *s)
{
    return (struct dims){s->c, s->kh, s->kw};
}

/* Finds the row or column of the input that place k of the kernel reads; false: in the padding. */
static bool seen(const struct vb_k_shape *s, int out, int k, int size, int *in_p)
{
    *in_p = out * s->stride - s->pad + k;
    return *in_p >= 0 && *in_p < size;
}

/* The reverse: finds the output that reads an input at place k of the kernel; false: none. */
static bool sees(const struct vb_k_shape *s, int in, int k, int size, int *out_p)
{
    int from = in + s->pad - k;

    *out_p = from / s->stride;
    return from >= 0 && from % s->stride == 0 && *out_p < size;
}

static SUM relu(SUM v)
{
    return v < 0 ? 0 : v; /* a NaN stays */
}

/* An element of a tensor (n, c, h, w), and its index. */
struct item {
    size_t i;
    int n, c, y, x;
};

typedef void item_fn(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e);

/* Calls fn for every element of a tensor. */
static void each(const struct vb_k_shape *s, const struct LAYER_ARGS *a, int n, struct dims d,
                 item_fn *fn)
{
    struct item e = {0};

    for (e.n = 0; e.n < n; e.n++)
        for (e.c = 0; e.c < d.c; e.c++)
            for (e.y = 0; e.y < d.h; e.y++)
                for (e.x = 0; e.x < d.w; e.x++, e.i++)
                    fn(s, a, e);
}

static SUM conv_at(const struct vb_k_shape *s, const struct LAYER_ARGS *a, int n, int oc, int oy,
                   int ox)
{
    int c, ky, kx, y, x = ox * s->stride - s->pad, first = x < 0 ? -x : 0;
    int end = s->w - x < s->kw ? s->w - x : s->kw;
    SUM sum = a->b != NULL ? (SUM)a->b[oc] : 0;
    const REAL *in, *w;

    for (c = 0; c < s->c; c++)
        for (ky = 0; ky < s->kh; ky++) {
            if (!seen(s, oy, ky, s->h, &y))
                continue;
            in = a->x + at(in_dims(s), n, c, y, 0);
            w = a->w + at(kernel_dims(s), oc, c, ky, 0);
            for (kx = first; kx < end; kx++)
                sum += (SUM)in[x + kx] * (SUM)w[kx];
        }
    return sum;
}

static void conv_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    SUM sum = conv_at(s, a, e.n, e.c, e.y, e.x);

    a->y[e.i] = (REAL)(s->relu ? relu(sum) : sum);
}

/* Computes four outputs of the convolution, rounds them to float, and takes the largest; the first
 * one if several are equal. A NaN counts as larger than any number. */
static void conv_pool_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    int place, best_place = 0;
    REAL best = 0, v;

    for (place = 0; place < 4; place++) {
        v = (REAL)conv_at(s, a, e.n, e.c, 2 * e.y + place / 2, 2 * e.x + place % 2);
        if (place == 0 || v > best || (isnan(v) && !isnan(best))) {
            best = v;
            best_place = place;
        }
    }
    a->y[e.i] = (REAL)relu((SUM)best);
    a->where[e.i] = best > 0 ? (uint8_t)best_place : VB_K_NOWHERE;
}

/* Finds the gradient of an output of the convolution; false: its pooling took another one. */
static bool gradient(const struct vb_k_shape *s, const struct LAYER_ARGS *a, int n, int oc, int oy,
                     int ox, SUM *g_p)
{
    int half = s->kind == VB_K_CONV_POOL ? 2 : 1;
    size_t here = at(out_dims(s), n, oc, oy / half, ox / half);

    if (oy / half >= s->oh || ox / half >= s->ow)
        return false;
    *g_p = (SUM)a->dy[here];
    return half == 1 || a->where[here] == oy % 2 * 2 + ox % 2;
}

static void conv_backward_data(const struct vb_k_shape *s, const struct LAYER_ARGS *a,
                               struct item e)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    int oc, ky, kx, oy, ox;
    SUM sum = 0, g;

    for (oc = 0; oc < s->oc; oc++)
        for (ky = 0; ky < s->kh; ky++)
            for (kx = 0; kx < s->kw && sees(s, e.y, ky, conv.oh, &oy); kx++)
                if (sees(s, e.x, kx, conv.ow, &ox) && gradient(s, a, e.n, oc, oy, ox, &g))
                    sum += g * (SUM)a->w[at(kernel_dims(s), oc, e.c, ky, kx)];
    a->dx[e.i] = (REAL)sum;
}

/* e is an element of the weights (oc, c, kh, kw). */
static void conv_backward_weights(const struct vb_k_shape *s, const struct LAYER_ARGS *a,
                                  struct item e)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    int n, oy, ox, y, x;
    SUM sum = 0, g;

    for (n = 0; n < s->n; n++)
        for (oy = 0; oy < conv.oh; oy++)
            for (ox = 0; ox < conv.ow && seen(s, oy, e.y, s->h, &y); ox++)
                if (seen(s, ox, e.x, s->w, &x) && gradient(s, a, n, e.n, oy, ox, &g))
                    sum += (SUM)a->x[at(in_dims(s), n, e.c, y, x)] * g;
    a->dw[e.i] = (REAL)sum;
}

static void bias_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, int oc)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    SUM sum = 0, g;
    int n, oy, ox;

    for (n = 0; n < s->n; n++)
        for (oy = 0; oy < conv.oh; oy++)
            for (ox = 0; ox < conv.ow; ox++)
                if (gradient(s, a, n, oc, oy, ox, &g))
                    sum += g;
    a->db[oc] = (REAL)sum;
}

static void conv(const struct vb_k_shape *s, enum vb_k_pass pass, const struct LAYER_ARGS *a)
{
    int oc;

    if (pass == VB_K_FORWARD)
        each(s, a, s->n, out_dims(s), s->kind == VB_K_CONV_POOL ? conv_pool_forward : conv_forward);
    else if (pass == VB_K_BACKWARD_DATA)
        each(s, a, s->n, in_dims(s), conv_backward_data);
    else
        each(s, a, s->oc, kernel_dims(s), conv_backward_weights);
    for (oc = 0; oc < s->oc && pass == VB_K_BACKWARD_WEIGHTS && a->db != NULL; oc++)
        bias_backward(s, a, oc);
}

/* A linear layer sees its input as one long row: (n, 1, 1, inputs), and weights (oc, 1, 1, inputs).
 */
static void linear_backward_data(const struct vb_k_shape *s, const struct LAYER_ARGS *a,
                                 struct item e)
{
    SUM sum = 0;
    int oc;

    for (oc = 0; oc < s->oc; oc++)
        sum += (SUM)a->dy[at(out_dims(s), e.n, oc, 0, 0)] *
               (SUM)a->w[at(kernel_dims(s), oc, 0, 0, e.x)];
    a->dx[e.i] = (REAL)sum;
}

static void linear(const struct vb_k_shape *s, enum vb_k_pass pass, const struct LAYER_ARGS *a)
{
    struct vb_k_shape row = *s;

    row.w = row.kw = s->c * s->h * s->w;
    row.c = row.h = row.kh = row.stride = 1;
    row.pad = 0;
    if (pass == VB_K_BACKWARD_DATA)
        each(&row, a, row.n, in_dims(&row), linear_backward_data);
    else
        conv(&row, pass, a);
}

/* Returns the index of the first largest input in a window. A NaN is larger than any number. */
static size_t max_place(const struct vb_k_shape *s, const REAL *in, int n, int c, int oy, int ox)
{
    size_t best = 0, here;
    bool any = false;
    int ky, kx, y, x;

    for (ky = 0; ky < s->kh; ky++) {
        for (kx = 0; kx < s->kw; kx++) {
            if (!seen(s, oy, ky, s->h, &y) || !seen(s, ox, kx, s->w, &x))
                continue;
            here = at(in_dims(s), n, c, y, x);
            if (!any || in[here] > in[best] || (isnan(in[here]) && !isnan(in[best])))
                best = here;
            any = true;
        }
    }
    return best; /* padding is smaller than the kernel, so every window contains an input */
}

static void max_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    a->y[e.i] = a->x[max_place(s, a->x, e.n, e.c, e.y, e.x)];
}

static void max_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    int ky, kx, oy, ox;
    SUM sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (sees(s, e.y, ky, s->oh, &oy) && sees(s, e.x, kx, s->ow, &ox) &&
                max_place(s, a->x, e.n, e.c, oy, ox) == e.i)
                sum += (SUM)a->dy[at(out_dims(s), e.n, e.c, oy, ox)];
    a->dx[e.i] = (REAL)sum;
}

static void avg_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    int ky, kx, y, x;
    SUM sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (seen(s, e.y, ky, s->h, &y) && seen(s, e.x, kx, s->w, &x))
                sum += (SUM)a->x[at(in_dims(s), e.n, e.c, y, x)];
    a->y[e.i] = (REAL)(sum / (SUM)(s->kh * s->kw));
}

static void avg_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    int ky, kx, oy, ox;
    SUM sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (sees(s, e.y, ky, s->oh, &oy) && sees(s, e.x, kx, s->ow, &ox))
                sum += (SUM)a->dy[at(out_dims(s), e.n, e.c, oy, ox)];
    a->dx[e.i] = (REAL)(sum / (SUM)(s->kh * s->kw));
}

static void relu_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    (void)s;
    a->y[e.i] = (REAL)relu((SUM)a->x[e.i]);
}

static void relu_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    (void)s;
    a->dx[e.i] = a->y[e.i] > 0 ? a->dy[e.i] : 0;
}

/* Returns v, scaled, or 0 if element i is dropped. Two neighbours share a random number. Elements
 * are counted from sample 0 of the step. */
static REAL dropped(const struct vb_k_shape *s, const struct LAYER_ARGS *a, size_t i, REAL v)
{
    uint64_t place = a->first * (vb_k_shape_inputs(s) / (size_t)s->n) + i;
    uint64_t random = vb_random(vb_random(a->seed, a->step), place / 2);
    uint32_t mine = (uint32_t)(place % 2 == 0 ? random : random >> 32);

    return mine < vb_k_dropout_below(s->rate) ? 0 : v * (1 / (1 - s->rate));
}

static void dropout_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    a->y[e.i] = dropped(s, a, e.i, a->x[e.i]);
}

static void dropout_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    a->dx[e.i] = dropped(s, a, e.i, a->dy[e.i]);
}

/* Returns the scale in y = x * scale ^ -beta. */
static SUM lrn_scale(const struct vb_k_shape *s, const REAL *in, int n, int c, int y, int x)
{
    int half = s->kh / 2, other = c > half ? c - half : 0;
    SUM sum = 0, v;

    for (; other <= c + half && other < s->c; other++) {
        v = (SUM)in[at(in_dims(s), n, other, y, x)];
        sum += v * v;
    }
    return (SUM)s->bias + (SUM)s->alpha / (SUM)s->kh * sum;
}

static void lrn_forward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    SUM scale = lrn_scale(s, a->x, e.n, e.c, e.y, e.x);

    a->y[e.i] = (REAL)((SUM)a->x[e.i] * POW(scale, -(SUM)s->beta));
}

/* An input affects its own output, and the scale of its neighbours. */
static void lrn_backward(const struct vb_k_shape *s, const struct LAYER_ARGS *a, struct item e)
{
    SUM beta = (SUM)s->beta, scale = lrn_scale(s, a->x, e.n, e.c, e.y, e.x), sum = 0;
    int half = s->kh / 2, other = e.c > half ? e.c - half : 0;
    size_t j;

    for (; other <= e.c + half && other < s->c; other++) {
        j = at(in_dims(s), e.n, other, e.y, e.x);
        sum +=
            (SUM)a->dy[j] * (SUM)a->x[j] * POW(lrn_scale(s, a->x, e.n, other, e.y, e.x), -beta - 1);
    }
    a->dx[e.i] = (REAL)((SUM)a->dy[e.i] * POW(scale, -beta) -
                        2 * (SUM)s->alpha / (SUM)s->kh * beta * (SUM)a->x[e.i] * sum);
}

void LAYER_REF(const struct vb_k_shape *s, enum vb_k_pass pass, const struct LAYER_ARGS *a)
{
    static item_fn *const table[][2] = {
        [VB_K_MAX_POOL] = {max_forward, max_backward},
        [VB_K_AVG_POOL] = {avg_forward, avg_backward},
        [VB_K_RELU] = {relu_forward, relu_backward},
        [VB_K_LRN] = {lrn_forward, lrn_backward},
        [VB_K_DROPOUT] = {dropout_forward, dropout_backward},
    };

    if (!vb_k_has_pass(s->kind, pass))
        return;
    if (s->kind == VB_K_CONV || s->kind == VB_K_CONV_POOL)
        conv(s, pass, a);
    else if (s->kind == VB_K_LINEAR)
        linear(s, pass, a);
    else if (pass == VB_K_FORWARD)
        each(s, a, s->n, out_dims(s), table[s->kind][0]);
    else
        each(s, a, s->n, in_dims(s), table[s->kind][1]);
}
