/* SPDX-License-Identifier: MIT
 *
 * Runs one pass of one backend on a shape and holds it against plain loops that add up in double.
 * For tests that count allocations (tests/alloc.h).
 */
#ifndef VB_TEST_LAYER_H
#define VB_TEST_LAYER_H

#include "kernels/layer_priv.h"
#include "tests/alloc.h"
#include "tests/test.h"

#include <math.h>
#include <omp.h>

#define T_GUARD 16 /* floats behind every output that must stay as they are */

struct t_layer {
    struct vb_k_shape shape;
    size_t n_x, n_w, n_y;
    struct vb_k_args args;
};

/* Numbers from -1 to 1 that follow from a seed. */
static inline float *t_floats(size_t n, uint32_t seed)
{
    float *v = malloc((n + T_GUARD) * sizeof(*v));
    size_t i;

    assert_non_null(v);
    for (i = 0; i < n + T_GUARD; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    return v;
}

static inline void t_layer_init(struct t_layer *t, const struct vb_k_shape *shape)
{
    struct vb_k_shape *s = &t->shape;
    char why[VB_OPTS_WHY];

    *s = *shape;
    assert_int_equal(vb_k_shape_finish(s, why), VB_OK);
    t->n_x = (size_t)s->n * (size_t)(s->c * s->h * s->w);
    t->n_y = (size_t)s->n * (size_t)(s->oc * s->oh * s->ow);
    t->n_w =
        (size_t)s->oc * (size_t)(s->kind == VB_K_CONV ? s->c * s->kh * s->kw : s->c * s->h * s->w);
    t->args = (struct vb_k_args){.x = t_floats(t->n_x, 1),
                                 .w = t_floats(t->n_w, 2),
                                 .b = t_floats((size_t)s->oc, 3),
                                 .dy = t_floats(t->n_y, 4),
                                 .y = t_floats(t->n_y, 5),
                                 .dx = t_floats(t->n_x, 5),
                                 .dw = t_floats(t->n_w, 5),
                                 .db = t_floats((size_t)s->oc, 5)};
}

static inline void t_layer_fini(struct t_layer *t)
{
    free((void *)t->args.x);
    free((void *)t->args.w);
    free((void *)t->args.b);
    free((void *)t->args.dy);
    free(t->args.y);
    free(t->args.dx);
    free(t->args.dw);
    free(t->args.db);
}

/* A linear layer is a convolution whose kernel is as large as its input. */
static inline void t_conv_of(const struct vb_k_shape *s, struct vb_k_shape *conv)
{
    *conv = *s;
    if (s->kind == VB_K_LINEAR) {
        conv->kh = s->h;
        conv->kw = s->w;
        conv->stride = 1;
        conv->pad = 0;
    }
}

/* Where (a, b, y, x) lies in an array of (any, n_b, h, w). */
static inline size_t t_place(int n_b, int a, int b, int y, int x, int h, int w)
{
    size_t plane = (size_t)a * (size_t)n_b + (size_t)b;

    return (plane * (size_t)h + (size_t)y) * (size_t)w + (size_t)x;
}

/* Calls back for every product of the layer with the places of its three numbers. */
typedef void t_product(size_t x, size_t w, size_t y, void *to);

static inline void t_products(const struct vb_k_shape *layer, t_product *product, void *to)
{
    struct vb_k_shape s;
    int n, o, oy, ox, c, ky, kx, iy, ix;

    t_conv_of(layer, &s);
    for (n = 0; n < s.n; n++)
        for (o = 0; o < s.oc; o++)
            for (oy = 0; oy < s.oh; oy++)
                for (ox = 0; ox < s.ow; ox++)
                    for (c = 0; c < s.c; c++)
                        for (ky = 0; ky < s.kh; ky++)
                            for (kx = 0; kx < s.kw; kx++) {
                                iy = oy * s.stride + ky - s.pad;
                                ix = ox * s.stride + kx - s.pad;
                                if (iy >= 0 && iy < s.h && ix >= 0 && ix < s.w)
                                    product(t_place(s.c, n, c, iy, ix, s.h, s.w),
                                            t_place(s.c, o, c, ky, kx, s.kh, s.kw),
                                            t_place(s.oc, n, o, oy, ox, s.oh, s.ow), to);
                            }
}

struct t_sums {
    const struct vb_k_args *args;
    double *y, *dx, *dw;
};

static inline void t_add_product(size_t x, size_t w, size_t y, void *to)
{
    struct t_sums *s = to;

    s->y[y] += (double)s->args->x[x] * (double)s->args->w[w];
    s->dx[x] += (double)s->args->dy[y] * (double)s->args->w[w];
    s->dw[w] += (double)s->args->x[x] * (double)s->args->dy[y];
}

/* The results of all three passes as they should be. */
struct t_want {
    double *y, *dx, *dw, *db;
};

static inline double *t_zeros(size_t n)
{
    double *v = calloc(n, sizeof(*v));

    assert_non_null(v);
    return v;
}

static inline void t_want_init(struct t_want *want, const struct t_layer *t)
{
    const struct vb_k_shape *s = &t->shape;
    size_t plane = (size_t)s->oh * (size_t)s->ow, i, c;
    struct t_sums sums;

    want->y = t_zeros(t->n_y);
    want->dx = t_zeros(t->n_x);
    want->dw = t_zeros(t->n_w);
    want->db = t_zeros((size_t)s->oc);
    sums = (struct t_sums){&t->args, want->y, want->dx, want->dw};
    t_products(s, t_add_product, &sums);
    for (i = 0; i < t->n_y; i++) {
        c = i / plane % (size_t)s->oc;
        want->db[c] += (double)t->args.dy[i];
        want->y[i] += (double)t->args.b[c];
        if (s->relu && want->y[i] < 0)
            want->y[i] = 0;
    }
}

static inline void t_want_fini(struct t_want *want)
{
    free(want->y);
    free(want->dx);
    free(want->dw);
    free(want->db);
}

/* A pass that is ready to run. */
struct t_pass {
    const struct vb_k_backend *backend;
    void *state;
    size_t scratch;
};

static inline void t_pass_init(struct t_pass *p, const struct vb_k_backend *backend,
                               const struct t_layer *t, enum vb_k_pass pass)
{
    p->backend = backend;
    assert_true(backend->can(&t->shape, pass));
    assert_int_equal(backend->prepare(&t->shape, pass, &p->state, &p->scratch), VB_OK);
}

/* Runs with scratch that is full of NaN, and looks that nothing is written behind it, nor
 * allocated. */
static inline void t_pass_run(struct t_pass *p, struct t_layer *t, int threads)
{
    size_t len = (p->scratch + 63) / 64 * 64 + 64, i;
    unsigned char *scratch = aligned_alloc(64, len);
    long before;

    assert_non_null(scratch);
    memset(scratch, 0xff, len);
    t->args.scratch = scratch;
    omp_set_num_threads(threads);
    before = t_allocations;
    p->backend->run(p->state, &t->args);
    assert_int_equal(t_allocations, before);
    for (i = p->scratch; i < len; i++)
        assert_int_equal(scratch[i], 0xff);
    free(scratch);
}

static inline void t_pass_fini(struct t_pass *p)
{
    p->backend->destroy(p->state);
}

/* Same as should be, and what lies behind is as it was filled. */
static inline void t_compare(const char *what, const float *got, const double *want, size_t n,
                             double tolerance)
{
    float *filled = t_floats(n, 5);
    size_t i;

    for (i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - want[i]) <= tolerance))
            fail_msg("%s[%zu]: %g, not %g (tolerance %g)", what, i, (double)got[i], want[i],
                     tolerance);
    }
    assert_memory_equal(got + n, filled + n, T_GUARD * sizeof(*got));
    free(filled);
}

/* The outputs of a pass as bytes, to compare two runs. */
static inline float *t_outputs(const struct t_layer *t, enum vb_k_pass pass, size_t *len_p)
{
    size_t oc = (size_t)t->shape.oc;
    const float *from[] = {t->args.y, t->args.dx, t->args.dw};
    size_t n = pass == VB_K_FORWARD ? t->n_y : pass == VB_K_BACKWARD_DATA ? t->n_x : t->n_w;
    float *copy = malloc((n + oc) * sizeof(*copy));

    assert_non_null(copy);
    memcpy(copy, from[pass], n * sizeof(*copy));
    memcpy(copy + n, t->args.db, oc * sizeof(*copy));
    *len_p = (n + oc) * sizeof(*copy);
    return copy;
}

/* How many products are added up for an output. */
static inline double t_terms(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    struct vb_k_shape c;

    t_conv_of(s, &c);
    if (pass == VB_K_FORWARD)
        return (double)c.c * c.kh * c.kw;
    return pass == VB_K_BACKWARD_DATA ? (double)c.oc * c.kh * c.kw : (double)c.n * c.oh * c.ow;
}

/* One pass, by one thread and by two. Numbers are within -1 to 1, so partial sums of k products are
 * about sqrt(k) large; each addition rounds by up to 2^-24 of that, and k roundings of either sign
 * add up to about k / 2 * 2^-24. The worst of many thousand outputs is some times as far off: the
 * tolerance is factor * 4 * (k + 8) * 2^-24, factor 1 for plain sums. */
static inline void t_check(const struct vb_k_backend *backend, const struct vb_k_shape *shape,
                           enum vb_k_pass pass, double factor)
{
    struct t_layer t;
    struct t_want want;
    struct t_pass p;
    float *one, *two;
    double tolerance;
    size_t len;

    t_layer_init(&t, shape);
    tolerance = factor * 4 * (t_terms(&t.shape, pass) + 8) / (1 << 24);
    t_want_init(&want, &t);
    omp_set_num_threads(2);
    t_pass_init(&p, backend, &t, pass);
    t_pass_run(&p, &t, 1);
    one = t_outputs(&t, pass, &len);
    if (pass == VB_K_FORWARD)
        t_compare("y", t.args.y, want.y, t.n_y, tolerance);
    else if (pass == VB_K_BACKWARD_DATA)
        t_compare("dx", t.args.dx, want.dx, t.n_x, tolerance);
    else
        t_compare("dw", t.args.dw, want.dw, t.n_w, tolerance);
    if (pass == VB_K_BACKWARD_WEIGHTS)
        t_compare("db", t.args.db, want.db, (size_t)t.shape.oc, tolerance / factor);
    t_pass_run(&p, &t, 2);
    two = t_outputs(&t, pass, &len);
    assert_memory_equal(one, two, len);
    free(one);
    free(two);
    t_pass_fini(&p);
    t_want_fini(&want);
    t_layer_fini(&t);
}

/* A convolution with square kernels. */
static inline struct vb_k_shape t_conv(int n, int c, int h, int w, int oc, int k, int stride,
                                       int pad)
{
    return (struct vb_k_shape){.kind = VB_K_CONV,
                               .n = n,
                               .c = c,
                               .h = h,
                               .w = w,
                               .oc = oc,
                               .kh = k,
                               .kw = k,
                               .stride = stride,
                               .pad = pad};
}

#endif
