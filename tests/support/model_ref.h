/* SPDX-License-Identifier: MIT
 *
 * Reference models in double precision, forward and backward, in plain loops. The models that run
 * on kernels must give the same results. This file uses the same tables of layers and vb_random(),
 * but no code of kernels/.
 *
 * Tensors have the same layouts as in models_fixture.h.
 */
#ifndef VB_TESTS_SUPPORT_MODEL_REF_H
#define VB_TESTS_SUPPORT_MODEL_REF_H

#include "models/models.h"
#include "tests/support/test.h"

#include <math.h>

struct t_ref_layer {
    struct vb_k_shape s; /* s.n is not used */
    size_t in, out;      /* number of inputs and of outputs per sample */
    size_t w, b;         /* offsets of weights and biases in the parameters */
    size_t n_w;          /* number of weights; 0 if the layer has no weights */
    double *y, *dy;      /* shape: (batch, out); dy is the gradient of y */
    int row;             /* row of the table of layers; conv-pool is two layers in this file */
};

struct t_ref {
    int n_layers, batch, classes;
    bool transposed; /* the weights are transposed, as in softmax regression */
    struct t_ref_layer layers[2 * VB_LAYERS_MAX];
    size_t n_params;
    double *params, *grads;
    double *x, *dx; /* shape: (batch, inputs of the first layer) */
    /* the fields from here on are set by the last forward pass */
    int n;
    bool training;
    uint64_t seed, step, position;
};

static inline size_t t_ref_product(int a, int b, int c)
{
    return (size_t)a * (size_t)b * (size_t)c;
}

static inline double *t_ref_new(size_t n)
{
    double *v = calloc(n + 1, sizeof(*v));

    assert_non_null(v);
    return v;
}

/* Computes the output shape and the parameters of a layer with a known kind and input. */
static inline void t_ref_shape(struct t_ref *r, struct t_ref_layer *l)
{
    struct vb_k_shape *s = &l->s;
    bool conv = s->kind == VB_K_CONV || s->kind == VB_K_LINEAR;

    if (s->kind == VB_K_LINEAR) { /* the kernel is as large as the input */
        s->kh = s->h;
        s->kw = s->w;
        s->stride = 1;
    }
    s->oc = conv ? s->oc : s->c;
    s->oh = s->stride > 0 ? (s->h + 2 * s->pad - s->kh) / s->stride + 1 : s->h;
    s->ow = s->stride > 0 ? (s->w + 2 * s->pad - s->kw) / s->stride + 1 : s->w;
    l->in = t_ref_product(s->c, s->h, s->w);
    l->out = t_ref_product(s->oc, s->oh, s->ow);
    l->n_w = conv ? (size_t)s->oc * t_ref_product(s->c, s->kh, s->kw) : 0;
    l->w = r->n_params;
    l->b = l->w + l->n_w;
    r->n_params = l->b + (conv ? (size_t)s->oc : 0);
}

static inline void t_ref_add(struct t_ref *r, struct vb_k_shape shape, int row)
{
    struct t_ref_layer *l = &r->layers[r->n_layers++];

    l->row = row;
    l->s = shape;
    if (l > r->layers) {
        l->s.c = l[-1].s.oc;
        l->s.h = l[-1].s.oh;
        l->s.w = l[-1].s.ow;
    }
    t_ref_shape(r, l);
}

static inline void t_ref_create(struct t_ref *r, const struct vb_layer_table *table, int batch)
{
    int i;

    memset(r, 0, sizeof(*r));
    r->batch = batch;
    r->transposed = table->pixels;
    for (i = 0; i < table->n_layers; i++) {
        struct vb_k_shape s = table->layers[i].shape;
        bool pool = s.kind == VB_K_CONV_POOL;

        if (pool) {
            s.kind = VB_K_CONV;
            s.relu = true;
        }
        t_ref_add(r, s, i);
        if (pool)
            t_ref_add(r, (struct vb_k_shape){.kind = VB_K_MAX_POOL, .kh = 2, .kw = 2, .stride = 2},
                      i);
    }
    for (i = 0; i < r->n_layers; i++) {
        r->layers[i].y = t_ref_new((size_t)batch * r->layers[i].out);
        r->layers[i].dy = t_ref_new((size_t)batch * r->layers[i].out);
    }
    r->classes = r->layers[r->n_layers - 1].s.oc;
    r->params = t_ref_new(r->n_params);
    r->grads = t_ref_new(r->n_params);
    r->x = t_ref_new((size_t)batch * r->layers[0].in);
    r->dx = t_ref_new((size_t)batch * r->layers[0].in);
}

static inline void t_ref_destroy(struct t_ref *r)
{
    int i;

    for (i = 0; i < r->n_layers; i++) {
        free(r->layers[i].y);
        free(r->layers[i].dy);
    }
    free(r->params);
    free(r->grads);
    free(r->x);
    free(r->dx);
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* Finds the outputs of one dimension for which position k of the kernel is not in the padding.
 * These are the outputs *from_p to *end_p - 1. */
static inline void t_ref_range(const struct vb_k_shape *s, int k, int in, int out, int *from_p,
                               int *end_p)
{
    int from = 0, end = out;

    while (from < end && from * s->stride - s->pad + k < 0)
        from++;
    while (end > from && (end - 1) * s->stride - s->pad + k >= in)
        end--;
    *from_p = from;
    *end_p = end;
}

/* One row of the input and one row of the output, connected by one position of the kernel. */
struct t_ref_row {
    const double *x;
    double *dx;
    double *y; /* forward: the output; backward: the gradient of the output */
    int n, stride;
};

typedef void (*t_ref_row_fn)(const struct t_ref_row *row, double w, double *dw);

static inline void t_ref_row_forward(const struct t_ref_row *row, double w, double *dw)
{
    int i;

    (void)dw;
    for (i = 0; i < row->n; i++)
        row->y[i] += row->x[i * row->stride] * w;
}

static inline void t_ref_row_backward(const struct t_ref_row *row, double w, double *dw)
{
    double sum = 0;
    int i;

    for (i = 0; i < row->n; i++) {
        sum += row->x[i * row->stride] * row->y[i];
        row->dx[i * row->stride] += row->y[i] * w;
    }
    *dw += sum;
}

/* Calls fn on all rows, for one position of the kernel, one input channel and one output
 * channel. */
static inline void t_ref_place(const struct vb_k_shape *s, const double *x, double *dx, double *y,
                               int ky, int kx, t_ref_row_fn fn, double w, double *dw)
{
    int oy, oy_end, ox, ox_end;

    t_ref_range(s, ky, s->h, s->oh, &oy, &oy_end);
    t_ref_range(s, kx, s->w, s->ow, &ox, &ox_end);
    for (; oy < oy_end; oy++) {
        int at = (oy * s->stride - s->pad + ky) * s->w + ox * s->stride - s->pad + kx;
        struct t_ref_row row = {x + at, dx != NULL ? dx + at : NULL, y + oy * s->ow + ox,
                                ox_end - ox, s->stride};

        fn(&row, w, dw);
    }
}

/* Runs a linear layer: forward if dx and dy are NULL, otherwise backward. */
static inline void t_ref_linear(const struct t_ref *r, const struct t_ref_layer *l, const double *x,
                                double *dx, double *y, const double *dy)
{
    size_t o, i, at;

    for (o = 0; o < l->out; o++) {
        for (i = 0; i < l->in; i++) {
            at = r->transposed ? l->w + i * l->out + o : l->w + o * l->in + i;
            if (dy == NULL)
                y[o] += x[i] * r->params[at];
            else
                r->grads[at] += x[i] * dy[o];
            if (dx != NULL)
                dx[i] += r->params[at] * dy[o];
        }
    }
}

/* Runs a convolution of one sample. */
static inline void t_ref_conv(const struct t_ref *r, const struct t_ref_layer *l, const double *x,
                              double *dx, double *y, t_ref_row_fn fn)
{
    const struct vb_k_shape *s = &l->s;
    int oc, c, ky, kx, plane = s->h * s->w;
    size_t at = l->w;

    for (oc = 0; oc < s->oc; oc++, y += s->oh * s->ow)
        for (c = 0; c < s->c; c++)
            for (ky = 0; ky < s->kh; ky++)
                for (kx = 0; kx < s->kw; kx++, at++)
                    t_ref_place(s, x + c * plane, dx != NULL ? dx + c * plane : NULL, y, ky, kx, fn,
                                r->params[at], &r->grads[at]);
}

static inline void t_ref_weights_forward(const struct t_ref *r, const struct t_ref_layer *l,
                                         const double *x, double *y)
{
    size_t i, plane = t_ref_product(1, l->s.oh, l->s.ow);

    for (i = 0; i < l->out; i++)
        y[i] = r->params[l->b + i / plane];
    if (l->s.kind == VB_K_LINEAR)
        t_ref_linear(r, l, x, NULL, y, NULL);
    else
        t_ref_conv(r, l, x, NULL, y, t_ref_row_forward);
    for (i = 0; i < l->out && l->s.relu; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

static inline void t_ref_weights_backward(const struct t_ref *r, const struct t_ref_layer *l,
                                          const double *x, double *dx, const double *y, double *dy)
{
    size_t i, plane = t_ref_product(1, l->s.oh, l->s.ow);

    for (i = 0; i < l->out; i++) {
        if (l->s.relu && !(y[i] > 0))
            dy[i] = 0;
        r->grads[l->b + i / plane] += dy[i];
    }
    if (l->s.kind == VB_K_LINEAR)
        t_ref_linear(r, l, x, dx, NULL, dy);
    else
        t_ref_conv(r, l, x, dx, dy, t_ref_row_backward);
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* The range of inputs that one output of pooling depends on, without the padding. */
struct t_ref_window {
    int c, y, y_end, x, x_end;
};

static inline struct t_ref_window t_ref_window(const struct vb_k_shape *s, size_t o)
{
    int ox = (int)o % s->ow, oy = (int)o / s->ow % s->oh;
    int y = oy * s->stride - s->pad, x = ox * s->stride - s->pad;

    return (struct t_ref_window){(int)o / s->ow / s->oh, y < 0 ? 0 : y,
                                 y + s->kh < s->h ? y + s->kh : s->h, x < 0 ? 0 : x,
                                 x + s->kw < s->w ? x + s->kw : s->w};
}

/* Returns the index of the largest input. If several inputs are equally large, returns the first
 * one. */
static inline size_t t_ref_max(const struct vb_k_shape *s, size_t o, const double *in)
{
    struct t_ref_window w = t_ref_window(s, o);
    int y, x, at, best = (w.c * s->h + w.y) * s->w + w.x;

    for (y = w.y; y < w.y_end; y++)
        for (x = w.x; x < w.x_end; x++) {
            at = (w.c * s->h + y) * s->w + x;
            best = in[at] > in[best] ? at : best;
        }
    return (size_t)best;
}

/* Returns the average of the window. The padding counts as zeros. */
static inline double t_ref_avg(const struct vb_k_shape *s, size_t o, const double *in)
{
    struct t_ref_window w = t_ref_window(s, o);
    double sum = 0;
    int y, x;

    for (y = w.y; y < w.y_end; y++)
        for (x = w.x; x < w.x_end; x++)
            sum += in[(w.c * s->h + y) * s->w + x];
    return sum / (s->kh * s->kw);
}

static inline void t_ref_avg_backward(const struct vb_k_shape *s, size_t o, double *dx,
                                      const double *dy)
{
    struct t_ref_window w = t_ref_window(s, o);
    int y, x;

    for (y = w.y; y < w.y_end; y++)
        for (x = w.x; x < w.x_end; x++)
            dx[(w.c * s->h + y) * s->w + x] += dy[o] / (s->kh * s->kw);
}

/* ---- normalisation --------------------------------------------------------------------------- */

static inline double t_ref_scale(const struct vb_k_shape *s, size_t i, const double *x)
{
    size_t plane = t_ref_product(1, s->h, s->w);
    int c = (int)(i / plane), other;
    double sum = 0;

    for (other = c - s->kh / 2; other <= c + s->kh / 2; other++)
        if (other >= 0 && other < s->c) {
            double v = x[(size_t)other * plane + i % plane];

            sum += v * v;
        }
    return (double)s->bias + (double)s->alpha / s->kh * sum;
}

/* y[i] = x[i] * scale ^ -beta, and the derivative of scale by x[j] is 2 alpha / kh x[j]. */
static inline void t_ref_lrn_backward(const struct vb_k_shape *s, size_t i, const double *x,
                                      double *dx, const double *dy)
{
    double scale = t_ref_scale(s, i, x), beta = (double)s->beta;
    size_t plane = t_ref_product(1, s->h, s->w), j;
    int c = (int)(i / plane), other;

    dx[i] += dy[i] * pow(scale, -beta);
    for (other = c - s->kh / 2; other <= c + s->kh / 2; other++)
        if (other >= 0 && other < s->c) {
            j = (size_t)other * plane + i % plane;
            dx[j] -=
                dy[i] * x[i] * beta * pow(scale, -beta - 1) * 2 * (double)s->alpha / s->kh * x[j];
        }
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Returns the factor that dropout multiplies element i of the whole batch by. Two elements share
 * one random number. Elements are counted from the first sample of the step. */
static inline double t_ref_kept(const struct t_ref *r, int layer, size_t i)
{
    double rate = (double)r->layers[layer].s.rate;
    uint64_t own = vb_random(r->seed, (uint64_t)r->layers[layer].row);
    uint64_t place = r->position * r->layers[layer].in + i;
    uint64_t random = vb_random(vb_random(own, r->step), place / 2);
    uint32_t mine = (uint32_t)(place % 2 == 0 ? random : random >> 32);

    if (!r->training)
        return 1;
    return (double)mine < rate * 4294967296.0 ? 0 : 1 / (1 - rate);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Computes output i of sample n. */
static inline void t_ref_element(struct t_ref *r, int layer, int n, size_t i, const double *x,
                                 double *y)
{
    const struct t_ref_layer *l = &r->layers[layer];

    switch (l->s.kind) {
    case VB_K_MAX_POOL:
        y[i] = x[t_ref_max(&l->s, i, x)];
        break;
    case VB_K_AVG_POOL:
        y[i] = t_ref_avg(&l->s, i, x);
        break;
    case VB_K_RELU:
        y[i] = x[i] > 0 ? x[i] : 0;
        break;
    case VB_K_LRN:
        y[i] = x[i] * pow(t_ref_scale(&l->s, i, x), -(double)l->s.beta);
        break;
    case VB_K_DROPOUT:
        y[i] = x[i] * t_ref_kept(r, layer, (size_t)n * l->out + i);
        break;
    default:
        fail();
    }
}

static inline void t_ref_element_back(struct t_ref *r, int layer, int n, size_t i, const double *x,
                                      double *dx, const double *dy)
{
    const struct t_ref_layer *l = &r->layers[layer];

    switch (l->s.kind) {
    case VB_K_MAX_POOL:
        dx[t_ref_max(&l->s, i, x)] += dy[i];
        break;
    case VB_K_AVG_POOL:
        t_ref_avg_backward(&l->s, i, dx, dy);
        break;
    case VB_K_RELU:
        dx[i] += x[i] > 0 ? dy[i] : 0;
        break;
    case VB_K_LRN:
        t_ref_lrn_backward(&l->s, i, x, dx, dy);
        break;
    case VB_K_DROPOUT:
        dx[i] += dy[i] * t_ref_kept(r, layer, (size_t)n * l->out + i);
        break;
    default:
        fail();
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static inline double *t_ref_input(struct t_ref *r, int layer, int n)
{
    double *x = layer == 0 ? r->x : r->layers[layer - 1].y;

    return x + (size_t)n * r->layers[layer].in;
}

/* Returns the cross-entropy of a sample and stores the gradient of the logits in dy. */
static inline double t_ref_loss(const double *logits, double *dy, int label, int classes)
{
    double max = logits[0], sum;
    int c;

    for (c = 1; c < classes; c++)
        max = logits[c] > max ? logits[c] : max;
    sum = exp(logits[0] - max);
    for (c = 1; c < classes; c++)
        sum += exp(logits[c] - max);
    for (c = 0; c < classes; c++)
        dy[c] = exp(logits[c] - max) / sum - (c == label);
    return log(sum) + max - logits[label];
}

/* Returns the summed loss of the first batch->n samples of x. */
static inline double t_ref_forward(struct t_ref *r, const float *x,
                                   const struct vb_model_batch *batch)
{
    struct t_ref_layer *l = r->layers;
    double loss = 0;
    size_t i;
    int n, k;

    r->n = batch->n;
    r->training = batch->training;
    r->seed = batch->seed;
    r->step = batch->step;
    r->position = batch->position;
    for (i = 0; i < (size_t)batch->n * l->in; i++)
        r->x[i] = (double)x[i];
    for (n = 0; n < batch->n; n++) {
        for (k = 0; k < r->n_layers; k++) {
            l = &r->layers[k];
            if (l->n_w > 0)
                t_ref_weights_forward(r, l, t_ref_input(r, k, n), l->y + (size_t)n * l->out);
            for (i = 0; i < l->out && l->n_w == 0; i++)
                t_ref_element(r, k, n, i, t_ref_input(r, k, n), l->y + (size_t)n * l->out);
        }
        loss += t_ref_loss(l->y + (size_t)n * l->out, l->dy + (size_t)n * l->out, batch->y[n],
                           r->classes);
    }
    return loss;
}

static inline void t_ref_layer_backward(struct t_ref *r, int k, int n)
{
    struct t_ref_layer *l = &r->layers[k];
    double *x = t_ref_input(r, k, n), *dy = l->dy + (size_t)n * l->out;
    double *dx = (k > 0 ? l[-1].dy : r->dx) + (size_t)n * l->in;
    size_t i;

    for (i = 0; i < l->in; i++)
        dx[i] = 0;
    if (l->n_w > 0)
        t_ref_weights_backward(r, l, x, dx, l->y + (size_t)n * l->out, dy);
    for (i = 0; i < l->out && l->n_w == 0; i++)
        t_ref_element_back(r, k, n, i, x, dx, dy);
}

/* Computes the gradients. A forward pass must have run before. */
static inline void t_ref_backward(struct t_ref *r)
{
    size_t i;
    int n, k;

    for (i = 0; i < r->n_params; i++)
        r->grads[i] = 0;
    for (n = 0; n < r->n; n++)
        for (k = r->n_layers - 1; k >= 0; k--)
            t_ref_layer_backward(r, k, n);
}

#endif
