/* SPDX-License-Identifier: MIT
 *
 * Compares every backend, pass and shape with the reference. Also tests that results have the same
 * bits for any number of threads, that NaN and infinity reach the results, and that passes allocate
 * nothing.
 *
 * Tolerance. A float sum of k products has an error of about sqrt(k) roundings, and of at most k.
 * One rounding is relative to the sum of the products' absolute values, which the reference
 * computes. We allow 4 * sqrt(k) + 4 roundings. Winograd kernels first add and subtract
 * neighbouring inputs. So for them a rounding is relative to the tensor's largest sum of absolute
 * values, times the magnification of the transforms (16 for F(2x2), 256 for F(4x4)).
 *
 * The inputs of max pooling are multiples of 1/4, so that many are equal. Sums of their products
 * are exact, except in Winograd kernels, so all backends find the same largest of four values.
 *
 * Covers: kernels/blas/blas_layer.c kernels/layer/plain.c kernels/layer/plain_lrn.c
 * Covers: kernels/layer/plain_pool.c kernels/layer/shape.c kernels/layer/then_pool.c
 * Covers: kernels/onednn/onednn_desc.c kernels/onednn/onednn_layer.c
 * Covers: kernels/own/pooled_data.c kernels/own/pooled_sum.c kernels/own/pooled_weights.c
 */
#include "kernels/choice/choice_priv.h"
#include "tests/support/levels.h"
#include "tests/support/alloc.h"
#include "tests/support/fixtures/layers_fixture.h"

#include <math.h>
#include <omp.h>

#define ROUNDING 6e-8 /* relative error of one rounding to float \ */

/* ---- running a backend ----------------------------------------------------------------------- */

struct prepared {
    const struct vb_k_backend *backend;
    void *state;
    struct t_tensor scratch;
};

static void prepare(struct prepared *p, const struct vb_k_backend *backend,
                    const struct vb_k_shape *s, enum vb_k_pass pass)
{
    size_t bytes = 0;

    p->backend = backend;
    if (backend->prepare(s, pass, &p->state, &bytes) != VB_OK)
        fail_msg("%s: the backend says that it can compute the pass, but cannot prepare it",
                 backend->name);
    assert_int_equal(bytes % sizeof(float), 0);
    t_tensor_create(&p->scratch, bytes / sizeof(float));
}

static void finish(struct prepared *p)
{
    t_tensor_destroy(&p->scratch);
    p->backend->destroy(p->state);
}

/* Runs a pass. Results and scratch memory are filled with NaN before, so that the test notices
 * results that are not written and scratch memory that is read before it is written. */
static void run(struct prepared *p, struct t_layer *l, enum vb_k_pass pass, int threads)
{
    struct vb_k_args args = t_args(l);

    t_set(&p->scratch, NAN);
    t_set(&l->t[t_result(pass)], NAN);
    if (pass == VB_K_BACKWARD_WEIGHTS)
        t_set(&l->t[T_DB], NAN);
    if (pass == VB_K_FORWARD)
        memset(l->where, 0xff, vb_k_shape_outputs(&l->s));
    args.scratch = p->scratch.v;
    omp_set_num_threads(threads);
    p->backend->run(p->state, &args);
    omp_set_num_threads(2);
}

/* The results of the reference, computed once for all backends of a shape and a pass, because the
 * reference is slow. */
struct reference {
    bool made, has_sums;
    struct t_layer want, sums;
};

static struct reference reference;

static void forget_reference(void)
{
    if (!reference.made)
        return;
    t_layer_destroy(&reference.want);
    if (reference.has_sums)
        t_layer_destroy(&reference.sums);
    reference.made = reference.has_sums = false;
}

typedef void (*check_fn)(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                         enum vb_k_pass pass);

static void each_backend(check_fn check, const struct vb_k_shape *shape, enum vb_k_pass pass)
{
    struct vb_k_shape s = *shape;
    char why[VB_OPTS_WHY];
    int b;

    if (vb_k_shape_finish(&s, why) != VB_OK)
        fail_msg("%s", why);
    for (b = 0; b < vb_k_n_backends; b++) {
        omp_set_num_threads(2);
        if (vb_k_has_pass(s.kind, pass) && vb_k_backends[b]->can(&s, pass))
            check(vb_k_backends[b], &s, pass);
    }
    forget_reference();
}

static void each_combination(check_fn check)
{
    size_t i;
    int pass;

    for (i = 0; i < VB_COUNT(t_shapes); i++)
        for (pass = 0; pass < VB_K_PASSES; pass++)
            each_backend(check, &t_shapes[i], (enum vb_k_pass)pass);
}

static void describe(char *buf, size_t size, const struct vb_k_backend *backend,
                     const struct vb_k_shape *s, enum vb_k_pass pass)
{
    snprintf(buf, size,
             "backend %s, layer %s, pass %s (samples %d, channels %d, height %d, width %d, output "
             "channels %d, kernel "
             "%d x %d, stride %d, padding %d)",
             backend->name, vb_k_kind_str(s->kind), vb_k_pass_str(pass), s->n, s->c, s->h, s->w,
             s->oc, s->kh, s->kw, s->stride, s->pad);
}

/* ---- comparison with the reference ----------------------------------------------------------- */

/* Returns the number of products that a pass adds up for one result. */
static double terms(const struct vb_k_shape *s, enum vb_k_pass pass)
{
    double outputs = pass == VB_K_BACKWARD_DATA      ? (double)vb_k_shape_inputs(s)
                     : pass == VB_K_BACKWARD_WEIGHTS ? (double)vb_k_shape_weights(s)
                                                     : (double)vb_k_shape_outputs(s);

    if (vb_k_shape_flops(s, pass) == 0)
        return (double)s->kh * (s->kw > 0 ? s->kw : 1);
    return vb_k_shape_flops(s, pass) / 2 / outputs + 1;
}

static void make_absolute(struct t_tensor *t)
{
    size_t i;

    for (i = 0; i < t->n; i++)
        t->v[i] = fabsf(t->v[i]);
}

/* Runs the pass of the reference on absolute values. The results in `sums` are sums of absolute
 * values. */
static void absolute_sums(const struct vb_k_shape *s, enum vb_k_pass pass, struct t_layer *sums)
{
    struct vb_k_args args;
    int i;

    t_layer_create(sums, s);
    for (i = T_X; i <= T_DY; i++)
        if (vb_k_has_pass(s->kind, VB_K_BACKWARD_WEIGHTS) || s->kind == VB_K_AVG_POOL)
            make_absolute(&sums->t[i]);
    args = t_args(sums);
    vb_k_layer_ref(&sums->s, pass, &args);
    for (i = T_Y; i <= T_DB; i++)
        make_absolute(&sums->t[i]);
}

static double winograd_factor(const char *backend)
{
    if (strncmp(backend, "winograd2", 9) == 0)
        return 16;
    return strncmp(backend, "winograd4", 9) == 0 ? 256 : 0;
}

static double largest(const struct t_tensor *t)
{
    double max = 0;
    size_t i;

    for (i = 0; i < t->n; i++)
        if ((double)t->v[i] > max)
            max = (double)t->v[i];
    return max;
}

static void compare(const struct t_tensor *got, const struct t_tensor *want,
                    const struct t_tensor *sums, double allowed, double factor, const char *what)
{
    double top = factor > 0 ? largest(sums) : 0, limit, off;
    size_t i;

    for (i = 0; i < want->n; i++) {
        limit = ROUNDING * allowed * (factor > 0 ? factor * top : (double)sums->v[i]) + 1e-30;
        off = fabs((double)got->v[i] - (double)want->v[i]);
        if (!(off <= limit))
            fail_msg("%s: element %zu is %.9g, expected %.9g; the error is %g, the limit is %g",
                     what, i, (double)got->v[i], (double)want->v[i], off, limit);
    }
}

/* Returns the factor for kernels whose error is compared with the largest result, or 0. Winograd
 * kernels are described above. A normalisation has factor 4, because its scale is computed with
 * square roots or a power, and its gradient is a difference. */
static double factor_of(const struct vb_k_backend *backend, const struct vb_k_shape *s)
{
    return s->kind == VB_K_LRN ? 4 : winograd_factor(backend->name);
}

/* Puts the number `bad` into the middle of the data that the pass reads. If bad is 0, changes
 * nothing. */
static void put_bad(struct t_layer *l, enum vb_k_pass pass, float bad)
{
    struct t_tensor *t = &l->t[pass == VB_K_BACKWARD_DATA ? T_DY : T_X];

    if (bad != 0)
        t->v[t->n / 2] = bad;
}

static const struct reference *reference_of(const struct vb_k_shape *s, enum vb_k_pass pass,
                                            float bad)
{
    struct vb_k_args args;

    if (reference.made)
        return &reference;
    reference.made = true;
    t_layer_create(&reference.want, s);
    put_bad(&reference.want, pass, bad);
    args = t_args(&reference.want);
    vb_k_layer_ref(&reference.want.s, pass, &args);
    reference.has_sums = bad == 0;
    if (reference.has_sums)
        absolute_sums(s, pass, &reference.sums);
    return &reference;
}

static void compare_all(const struct vb_k_backend *backend, const struct t_layer *got,
                        const struct reference *ref, enum vb_k_pass pass, const char *what)
{
    const struct vb_k_shape *s = &got->s;
    double allowed = 4 * sqrt(terms(s, pass)) + 4;
    int result = t_result(pass);

    compare(&got->t[result], &ref->want.t[result], &ref->sums.t[result], allowed,
            factor_of(backend, s), what);
    if (pass == VB_K_BACKWARD_WEIGHTS)
        compare(&got->t[T_DB], &ref->want.t[T_DB], &ref->sums.t[T_DB], allowed, 0, what);
    if (pass == VB_K_FORWARD && s->kind == VB_K_CONV_POOL && winograd_factor(backend->name) == 0 &&
        memcmp(got->where, ref->want.where, vb_k_shape_outputs(s)) != 0)
        fail_msg("%s: pooling did not choose the largest of four inputs", what);
}

static void check_result(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                         enum vb_k_pass pass)
{
    const struct reference *ref = reference_of(s, pass, 0);
    struct prepared p;
    struct t_layer got;
    char what[256];
    int threads;

    prepare(&p, backend, s, pass);
    t_layer_create(&got, s);
    describe(what, sizeof(what), backend, s, pass);
    for (threads = 1; threads <= 2; threads++) {
        run(&p, &got, pass, threads);
        compare_all(backend, &got, ref, pass, what);
    }
    finish(&p);
    t_layer_destroy(&got);
}

static void backends_agree_with_the_reference(void **state)
{
    (void)state;
    each_combination(check_result);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void check_bits(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                       enum vb_k_pass pass)
{
    static const int teams[] = {2, 3, 1};
    struct t_layer first, again;
    struct prepared p;
    char what[256];
    size_t i;

    t_layer_create(&first, s);
    omp_set_num_threads(3); /* the largest number of threads in `teams` */
    prepare(&p, backend, &first.s, pass);
    t_layer_create(&again, s);
    describe(what, sizeof(what), backend, &first.s, pass);
    run(&p, &first, pass, 1);
    for (i = 0; i < VB_COUNT(teams); i++) {
        run(&p, &again, pass, teams[i]);
        if (memcmp(first.t[t_result(pass)].v, again.t[t_result(pass)].v,
                   first.t[t_result(pass)].n * sizeof(float)) != 0 ||
            memcmp(first.t[T_DB].v, again.t[T_DB].v, first.t[T_DB].n * sizeof(float)) != 0 ||
            memcmp(first.where, again.where, vb_k_shape_outputs(s)) != 0)
            fail_msg("%s: the bits of the result differ with %d threads", what, teams[i]);
    }
    finish(&p);
    t_layer_destroy(&again);
    t_layer_destroy(&first);
}

/* Checks that the bits are also equal if the pass was prepared for another number of threads. */
static void check_bits_prepared(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                                enum vb_k_pass pass)
{
    struct t_layer one, two;
    struct prepared p, q;
    char what[256];

    t_layer_create(&one, s);
    omp_set_num_threads(1);
    prepare(&p, backend, &one.s, pass);
    omp_set_num_threads(2);
    prepare(&q, backend, &one.s, pass);
    t_layer_create(&two, s);
    describe(what, sizeof(what), backend, &one.s, pass);
    run(&p, &one, pass, 2);
    run(&q, &two, pass, 1);
    if (memcmp(one.t[t_result(pass)].v, two.t[t_result(pass)].v,
               one.t[t_result(pass)].n * sizeof(float)) != 0)
        fail_msg("%s: the bits of the result depend on the number of threads that the layer was "
                 "prepared for",
                 what);
    finish(&q);
    finish(&p);
    t_layer_destroy(&two);
    t_layer_destroy(&one);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    each_combination(check_bits);
    each_combination(check_bits_prepared);
}

/* ---- NaN and infinity ------------------------------------------------------------------------ */

/* Returns whether NaN or infinity may reach results that do not depend on it. It may reach all
 * results of the same Winograd tile, and results where it is multiplied by the zeros that pooling
 * leaves. */
static bool may_spread(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                       enum vb_k_pass pass)
{
    return winograd_factor(backend->name) != 0 ||
           (s->kind == VB_K_CONV_POOL && pass != VB_K_FORWARD);
}

/* Puts a NaN or an infinity into the input. Results that depend on it must not be finite. All other
 * results must be finite, unless may_spread(). */
static void check_bad_number(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                             enum vb_k_pass pass, float bad)
{
    const struct t_tensor *want = &reference_of(s, pass, bad)->want.t[t_result(pass)];
    struct t_layer got;
    struct prepared p;
    char what[256];
    size_t i;

    prepare(&p, backend, s, pass);
    t_layer_create(&got, s);
    describe(what, sizeof(what), backend, s, pass);
    put_bad(&got, pass, bad);
    run(&p, &got, pass, 2);
    for (i = 0; i < want->n; i++) {
        float w = want->v[i], g = got.t[t_result(pass)].v[i];

        if (may_spread(backend, s, pass) ? !isfinite(w) && isfinite(g)
                                         : !isfinite(w) != !isfinite(g))
            fail_msg("%s: with %g as input, element %zu is %g, expected %g", what, (double)bad, i,
                     (double)g, (double)w);
        if (isnan(w) && !isnan(g))
            fail_msg("%s: with NaN as input, element %zu is %g, expected NaN", what, i, (double)g);
    }
    finish(&p);
    t_layer_destroy(&got);
}

static void check_nan(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                      enum vb_k_pass pass)
{
    check_bad_number(backend, s, pass, NAN);
}

static void check_infinity(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                           enum vb_k_pass pass)
{
    /* layers with ReLU, conv-pool and LRN are left out, because infinity minus infinity and
     * infinity divided by infinity are not defined */
    if (!s->relu && s->kind != VB_K_CONV_POOL && s->kind != VB_K_LRN)
        check_bad_number(backend, s, pass, INFINITY);
}

static void nan_and_infinity_reach_the_results(void **state)
{
    (void)state;
    each_combination(check_nan);
    each_combination(check_infinity);
}

static void first_maximum_takes_the_gradient(void **state)
{
    const float x[] = {1, 2, 2, 0, NAN, 5, NAN, 7}, dy[] = {3, 4};
    static const float want[] = {0, 3, 0, 0, 4, 0, 0, 0};
    struct vb_k_shape s = T_POOL(VB_K_MAX_POOL, 1, 2, 2, 2, 2, 2, 2, 0);
    float y[2], dx[8];
    struct vb_k_args args = {.x = x, .y = y, .dy = dy, .dx = dx};
    char why[VB_OPTS_WHY];

    (void)state;
    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    vb_k_layer_ref(&s, VB_K_FORWARD, &args);
    assert_true(y[0] == 2 && isnan(y[1]));
    vb_k_layer_ref(&s, VB_K_BACKWARD_DATA, &args);
    assert_memory_equal(dx, want, sizeof(want));
}

/* ---- dropout --------------------------------------------------------------------------------- */

static void count_dropped(float rate, uint64_t step, float *y, size_t n)
{
    struct vb_k_shape s = {.kind = VB_K_DROPOUT, .n = 1, .c = (int)n, .h = 1, .w = 1, .rate = rate};
    float *x = vb_alloc_aligned(n * sizeof(float));
    struct vb_k_args args = {.x = x, .y = y, .seed = 3, .step = step};
    char why[VB_OPTS_WHY];
    size_t i, dropped = 0;

    assert_non_null(x);
    for (i = 0; i < n; i++)
        x[i] = 1;
    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    vb_k_layer_ref(&s, VB_K_FORWARD, &args);
    for (i = 0; i < n; i++) {
        dropped += y[i] == 0;
        assert_true(y[i] == 0 || y[i] == 1 / (1 - rate));
    }
    /* the number of dropped elements is within five standard deviations */
    assert_true(fabs((double)dropped - (double)rate * (double)n) <=
                5 * sqrt((double)n * (double)rate * (1 - (double)rate)));
    free(x);
}

static void dropout_depends_on_seed_and_step(void **state)
{
    static float a[20000], b[20000];

    (void)state;
    count_dropped(0.5f, 1, a, VB_COUNT(a));
    count_dropped(0.5f, 1, b, VB_COUNT(b));
    assert_memory_equal(a, b, sizeof(a));
    count_dropped(0.5f, 2, b, VB_COUNT(b));
    assert_memory_not_equal(a, b, sizeof(a));
    count_dropped(0.1f, 1, a, VB_COUNT(a));
    count_dropped(0, 1, a, VB_COUNT(a));
}

/* The masks of a step are those of its samples, in whatever batches it is computed. A sample has an
 * odd number of elements, so neighbours of different samples share a random number. */
static void dropout_depends_on_the_position_of_a_sample(void **state)
{
    enum { SAMPLES = 6, ELEMENTS = 4099, PARTS = 3 };
    static const int first[PARTS + 1] = {0, 1, 4, SAMPLES};
    static float x[SAMPLES * ELEMENTS], whole[SAMPLES * ELEMENTS], part[SAMPLES * ELEMENTS];
    struct vb_k_shape s = {
        .kind = VB_K_DROPOUT, .n = SAMPLES, .c = ELEMENTS, .h = 1, .w = 1, .rate = 0.5f};
    struct vb_k_args args = {.x = x, .y = whole, .seed = 3, .step = 8};
    struct vb_k_tuning tuning = {.backend = {"plain", "plain"}};
    struct vb_k_layer *layer;
    char why[VB_OPTS_WHY];
    size_t i;
    int p;

    (void)state;
    for (i = 0; i < VB_COUNT(x); i++)
        x[i] = 1;
    assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
    vb_k_layer_ref(&s, VB_K_FORWARD, &args);
    for (p = 0; p < PARTS; p++) {
        s.n = first[p + 1] - first[p];
        args.first = (uint64_t)first[p];
        args.y = part + first[p] * ELEMENTS;
        assert_int_equal(vb_k_layer_create(&s, &tuning, &layer), VB_OK);
        vb_k_layer_run(layer, VB_K_FORWARD, &args);
        vb_k_layer_destroy(layer);
    }
    assert_memory_equal(whole, part, sizeof(whole));
}

/* ---- allocations ----------------------------------------------------------------------------- */

static void check_allocations(const struct vb_k_backend *backend, const struct vb_k_shape *s,
                              enum vb_k_pass pass)
{
    struct t_layer l;
    struct prepared p;
    long before;

    t_layer_create(&l, s);
    prepare(&p, backend, &l.s, pass);
    run(&p, &l, pass, 2);
    before = t_allocations;
    run(&p, &l, pass, 2);
    run(&p, &l, pass, 1);
    assert_int_equal(t_allocations, before);
    finish(&p);
    t_layer_destroy(&l);
}

static void nothing_is_allocated(void **state)
{
    (void)state;
    each_combination(check_allocations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_agree_with_the_reference),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(nan_and_infinity_reach_the_results),
        cmocka_unit_test(first_maximum_takes_the_gradient),
        cmocka_unit_test(dropout_depends_on_seed_and_step),
        cmocka_unit_test(dropout_depends_on_the_position_of_a_sample),
        cmocka_unit_test(nothing_is_allocated),
    };

    return T_RUN_LEVELS(tests);
}
