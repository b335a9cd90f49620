/* SPDX-License-Identifier: MIT
 *
 * Runs one pass of one backend on a shape and compares it with the reference, which sums in double
 * precision. The test program must count allocations (tests/support/alloc.h).
 */
#ifndef VB_TESTS_SUPPORT_LAYER_FIXTURE_H
#define VB_TESTS_SUPPORT_LAYER_FIXTURE_H

#include "kernels/layer/backend.h"
#include "tests/support/alloc.h"
#include "tests/support/random.h"
#include "tests/support/test.h"

#include <math.h>
#include <omp.h>

#define T_GUARD 16 /* number of floats after every output; a pass must not change them */

struct t_layer {
    struct vb_k_shape shape;
    size_t n_x, n_w, n_y;
    struct vb_k_args args;
};

/* Returns numbers from -1 to 1, computed from a seed. */
static inline float *t_floats(size_t n, uint32_t seed)
{
    float *v = malloc((n + T_GUARD) * sizeof(*v));

    assert_non_null(v);
    t_random_fill(v, n + T_GUARD, seed);
    return v;
}

static inline void t_layer_init(struct t_layer *t, const struct vb_k_shape *shape)
{
    struct vb_k_shape *s = &t->shape;
    char why[VB_OPTS_WHY];

    *s = *shape;
    assert_int_equal(vb_k_shape_finish(s, why), VB_OK);
    t->n_x = vb_k_shape_inputs(s);
    t->n_y = vb_k_shape_outputs(s);
    t->n_w = vb_k_shape_weights(s);
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

/* The correct results of a pass, rounded to float. The rounding error is at most 2^-24 of a value,
 * far below all tolerances in these tests. */
struct t_want {
    float *y, *dx, *dw, *db;
};

static inline float *t_zeros(size_t n)
{
    float *v = calloc(n + 1, sizeof(*v)); /* one more than n, because n may be 0 */

    assert_non_null(v);
    return v;
}

static inline void t_want_init(struct t_want *want, const struct t_layer *t, enum vb_k_pass pass)
{
    struct vb_k_args args = t->args;

    args.y = want->y = t_zeros(t->n_y);
    args.dx = want->dx = t_zeros(t->n_x);
    args.dw = want->dw = t_zeros(t->n_w);
    args.db = want->db = t_zeros((size_t)t->shape.oc);
    vb_k_layer_ref(&t->shape, pass, &args);
}

static inline void t_want_fini(struct t_want *want)
{
    free(want->y);
    free(want->dx);
    free(want->dw);
    free(want->db);
}

/* A prepared pass of a backend. */
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

/* Runs the pass with scratch memory full of NaN. Checks that the pass writes nothing after the end
 * of the scratch memory and allocates nothing. */
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

/* Compares the outputs with the correct values, and checks that the guard after the outputs is
 * unchanged. */
static inline void t_compare(const char *what, const float *got, const float *want, size_t n,
                             double tolerance)
{
    float *filled = t_floats(n, 5);
    size_t i;

    for (i = 0; i < n; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= tolerance))
            fail_msg("%s, element %zu: found %g, expected %g (tolerance %g)", what, i,
                     (double)got[i], (double)want[i], tolerance);
    }
    assert_memory_equal(got + n, filled + n, T_GUARD * sizeof(*got));
    free(filled);
}

/* Returns a copy of the outputs of a pass, to compare two runs. */
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

/* Returns the number of products that are summed for one output. */
static inline double t_terms(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    /* a layer that is no convolution is linear: its kernel is as large as its input */
    bool conv = s->kind == VB_K_CONV;

    if (pass == VB_K_FORWARD)
        return (double)vb_k_shape_weights(s) / s->oc;
    if (pass == VB_K_BACKWARD_DATA)
        return (double)s->oc * (conv ? s->kh * s->kw : s->h * s->w);
    return (double)s->n * s->oh * s->ow;
}

/* Checks one pass with one thread and with two. All numbers are in -1 to 1, so partial sums of k
 * products are about sqrt(k) large. Each addition rounds by up to 2^-24 of the partial sum, and k
 * roundings of either sign add up to about k / 2 * 2^-24. The worst of many thousand outputs has an
 * error several times as large, so the tolerance is factor * 4 * (k + 8) * 2^-24, with factor 1 for
 * plain sums. */
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
    t_want_init(&want, &t, pass);
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

/* Runs a pass on a layer with NaN or infinity in its inputs. An output must be non-finite if it
 * depends on such an input, and finite otherwise. */
static inline void t_check_finite(const struct vb_k_backend *backend, struct t_layer *t,
                                  enum vb_k_pass pass)
{
    const float *got, *expected;
    struct t_want want;
    struct t_pass p;
    size_t i, n;

    t_want_init(&want, t, pass);
    t_pass_init(&p, backend, t, pass);
    t_pass_run(&p, t, 1);
    got = pass == VB_K_FORWARD ? t->args.y : pass == VB_K_BACKWARD_DATA ? t->args.dx : t->args.dw;
    expected = pass == VB_K_FORWARD ? want.y : pass == VB_K_BACKWARD_DATA ? want.dx : want.dw;
    n = pass == VB_K_FORWARD ? t->n_y : pass == VB_K_BACKWARD_DATA ? t->n_x : t->n_w;
    for (i = 0; i < n; i++)
        assert_int_equal(isfinite(got[i]), isfinite(expected[i]));
    t_pass_fini(&p);
    t_want_fini(&want);
}

/* Returns the shape of a convolution with square kernels. */
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
