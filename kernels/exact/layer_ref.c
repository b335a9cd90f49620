/* SPDX-License-Identifier: MIT
 *
 * The specification of layers: plain loops that add in double precision, against which fast kernels
 * are tested. A linear layer is a convolution whose kernel is as large as its input.
 */
#include "kernels/layer/backend.h"

#include <math.h>

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

static double relu(double v)
{
    return v < 0 ? 0 : v; /* a NaN stays */
}

/* each() calls fn for every element (n, c, y, x) of a tensor. */
typedef void (*element_fn)(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c,
                           int y, int x);

static void each(const struct vb_k_shape *s, const struct vb_k_args *a, int n, struct dims d,
                 element_fn fn)
{
    int i, c, y, x;

    for (i = 0; i < n; i++)
        for (c = 0; c < d.c; c++)
            for (y = 0; y < d.h; y++)
                for (x = 0; x < d.w; x++)
                    fn(s, a, i, c, y, x);
}

/* ---- convolution ----------------------------------------------------------------------------- */

static double conv_at(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int oc, int oy,
                      int ox)
{
    double sum = a->b != NULL ? (double)a->b[oc] : 0;
    int c, ky, kx, y, x;

    for (c = 0; c < s->c; c++)
        for (ky = 0; ky < s->kh; ky++)
            for (kx = 0; kx < s->kw; kx++)
                if (seen(s, oy, ky, s->h, &y) && seen(s, ox, kx, s->w, &x))
                    sum += (double)a->x[at(in_dims(s), n, c, y, x)] *
                           (double)a->w[at(kernel_dims(s), oc, c, ky, kx)];
    return sum;
}

static void conv_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int oc,
                         int oy, int ox)
{
    double sum = conv_at(s, a, n, oc, oy, ox);

    a->y[at(out_dims(s), n, oc, oy, ox)] = (float)(s->relu ? relu(sum) : sum);
}

/* Computes four outputs of the convolution, rounds them to float, and takes the largest; the first
 * one if several are equal. A NaN counts as larger than any number. */
static void conv_pool_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int oc,
                              int oy, int ox)
{
    size_t here = at(out_dims(s), n, oc, oy, ox);
    int place, best_place = 0;
    float best = 0, v;

    for (place = 0; place < 4; place++) {
        v = (float)conv_at(s, a, n, oc, 2 * oy + place / 2, 2 * ox + place % 2);
        if (place == 0 || v > best || (isnan(v) && !isnan(best))) {
            best = v;
            best_place = place;
        }
    }
    a->y[here] = (float)relu((double)best);
    a->where[here] = best > 0 ? (uint8_t)best_place : VB_K_NOWHERE;
}

/* Finds the gradient of an output of the convolution; false: its pooling took another one. */
static bool gradient(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int oc, int oy,
                     int ox, double *g_p)
{
    int half = s->kind == VB_K_CONV_POOL ? 2 : 1;
    size_t here = at(out_dims(s), n, oc, oy / half, ox / half);

    if (oy / half >= s->oh || ox / half >= s->ow)
        return false;
    *g_p = (double)a->dy[here];
    return half == 1 || a->where[here] == oy % 2 * 2 + ox % 2;
}

static void conv_backward_data(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c,
                               int y, int x)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    int oc, ky, kx, oy, ox;
    double sum = 0, g;

    for (oc = 0; oc < s->oc; oc++)
        for (ky = 0; ky < s->kh; ky++)
            for (kx = 0; kx < s->kw; kx++)
                if (sees(s, y, ky, conv.oh, &oy) && sees(s, x, kx, conv.ow, &ox) &&
                    gradient(s, a, n, oc, oy, ox, &g))
                    sum += g * (double)a->w[at(kernel_dims(s), oc, c, ky, kx)];
    a->dx[at(in_dims(s), n, c, y, x)] = (float)sum;
}

static void conv_backward_weights(const struct vb_k_shape *s, const struct vb_k_args *a, int oc,
                                  int c, int ky, int kx)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    int n, oy, ox, y, x;
    double sum = 0, g;

    for (n = 0; n < s->n; n++)
        for (oy = 0; oy < conv.oh; oy++)
            for (ox = 0; ox < conv.ow; ox++)
                if (seen(s, oy, ky, s->h, &y) && seen(s, ox, kx, s->w, &x) &&
                    gradient(s, a, n, oc, oy, ox, &g))
                    sum += (double)a->x[at(in_dims(s), n, c, y, x)] * g;
    a->dw[at(kernel_dims(s), oc, c, ky, kx)] = (float)sum;
}

static void bias_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int oc)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);
    double sum = 0, g;
    int n, oy, ox;

    for (n = 0; n < s->n; n++)
        for (oy = 0; oy < conv.oh; oy++)
            for (ox = 0; ox < conv.ow; ox++)
                if (gradient(s, a, n, oc, oy, ox, &g))
                    sum += g;
    a->db[oc] = (float)sum;
}

static void conv(const struct vb_k_shape *s, enum vb_k_pass pass, const struct vb_k_args *a)
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

static void linear(const struct vb_k_shape *s, enum vb_k_pass pass, const struct vb_k_args *a)
{
    struct vb_k_shape same = *s;

    same.kh = s->h;
    same.kw = s->w;
    same.stride = 1;
    same.pad = 0;
    conv(&same, pass, a);
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* Returns the index of the first largest input in a window. A NaN is larger than any number. */
static size_t max_place(const struct vb_k_shape *s, const float *in, int n, int c, int oy, int ox)
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

static void max_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int oy,
                        int ox)
{
    a->y[at(out_dims(s), n, c, oy, ox)] = a->x[max_place(s, a->x, n, c, oy, ox)];
}

static void max_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int y,
                         int x)
{
    size_t here = at(in_dims(s), n, c, y, x);
    int ky, kx, oy, ox;
    double sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (sees(s, y, ky, s->oh, &oy) && sees(s, x, kx, s->ow, &ox) &&
                max_place(s, a->x, n, c, oy, ox) == here)
                sum += (double)a->dy[at(out_dims(s), n, c, oy, ox)];
    a->dx[here] = (float)sum;
}

static void avg_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int oy,
                        int ox)
{
    int ky, kx, y, x;
    double sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (seen(s, oy, ky, s->h, &y) && seen(s, ox, kx, s->w, &x))
                sum += (double)a->x[at(in_dims(s), n, c, y, x)];
    a->y[at(out_dims(s), n, c, oy, ox)] = (float)(sum / (s->kh * s->kw));
}

static void avg_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int y,
                         int x)
{
    int ky, kx, oy, ox;
    double sum = 0;

    for (ky = 0; ky < s->kh; ky++)
        for (kx = 0; kx < s->kw; kx++)
            if (sees(s, y, ky, s->oh, &oy) && sees(s, x, kx, s->ow, &ox))
                sum += (double)a->dy[at(out_dims(s), n, c, oy, ox)];
    a->dx[at(in_dims(s), n, c, y, x)] = (float)(sum / (s->kh * s->kw));
}

/* ---- one element to one element -------------------------------------------------------------- */

static void relu_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int y,
                         int x)
{
    size_t i = at(in_dims(s), n, c, y, x);

    a->y[i] = (float)relu((double)a->x[i]);
}

static void relu_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c,
                          int y, int x)
{
    size_t i = at(in_dims(s), n, c, y, x);

    a->dx[i] = a->y[i] > 0 ? a->dy[i] : 0;
}

/* Returns v, scaled, or 0 if element i is dropped. Two neighbours share a random number. */
static float dropped(const struct vb_k_shape *s, const struct vb_k_args *a, size_t i, float v)
{
    uint64_t random = vb_random(vb_random(a->seed, a->step), i / 2);
    uint32_t mine = (uint32_t)(i % 2 == 0 ? random : random >> 32);

    return mine < vb_k_dropout_below(s->rate) ? 0 : v * (1 / (1 - s->rate));
}

static void dropout_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c,
                            int y, int x)
{
    size_t i = at(in_dims(s), n, c, y, x);

    a->y[i] = dropped(s, a, i, a->x[i]);
}

static void dropout_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c,
                             int y, int x)
{
    size_t i = at(in_dims(s), n, c, y, x);

    a->dx[i] = dropped(s, a, i, a->dy[i]);
}

/* ---- local response normalisation ------------------------------------------------------------ */

/* Returns the scale in y = x * scale ^ -beta. */
static double lrn_scale(const struct vb_k_shape *s, const float *in, int n, int c, int y, int x)
{
    int half = s->kh / 2, other;
    double sum = 0, v;

    for (other = c - half; other <= c + half; other++) {
        if (other < 0 || other >= s->c)
            continue;
        v = (double)in[at(in_dims(s), n, other, y, x)];
        sum += v * v;
    }
    return (double)s->bias + (double)s->alpha / s->kh * sum;
}

static void lrn_forward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int y,
                        int x)
{
    size_t i = at(in_dims(s), n, c, y, x);

    a->y[i] = (float)((double)a->x[i] * pow(lrn_scale(s, a->x, n, c, y, x), -(double)s->beta));
}

/* An input affects its own output, and the scale of its neighbours. */
static void lrn_backward(const struct vb_k_shape *s, const struct vb_k_args *a, int n, int c, int y,
                         int x)
{
    size_t i = at(in_dims(s), n, c, y, x), j;
    double beta = (double)s->beta, sum = 0;
    int half = s->kh / 2, other;

    for (other = c - half; other <= c + half; other++) {
        if (other < 0 || other >= s->c)
            continue;
        j = at(in_dims(s), n, other, y, x);
        sum +=
            (double)a->dy[j] * (double)a->x[j] * pow(lrn_scale(s, a->x, n, other, y, x), -beta - 1);
    }
    a->dx[i] = (float)((double)a->dy[i] * pow(lrn_scale(s, a->x, n, c, y, x), -beta) -
                       2 * (double)s->alpha / s->kh * beta * (double)a->x[i] * sum);
}

/* ---------------------------------------------------------------------------------------------- */

void vb_k_layer_ref(const struct vb_k_shape *s, enum vb_k_pass pass, const struct vb_k_args *a)
{
    static const element_fn table[][2] = {
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
