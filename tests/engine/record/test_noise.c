/* SPDX-License-Identifier: MIT
 *
 * Tests the gradient noise scale. Where all weights are 0, the gradient of a sample has a simple
 * formula, so the scale of a data set can be computed exactly. Jobs with a rate that changes
 * nothing must measure it, within the statistical error that they state, over each way of summing.
 *
 * Covers: engine/record/train_noise.c
 */
#include "engine/train/trainer.h"
#include "tests/support/ranks.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#include <math.h>

#define N 2000 /* samples */
#define STEPS 2500
#define IMAGES "synth:n=2000,test=10"
#define ROWS "synth:kind=criteo,n=2000,test=10,features=1000"
#define CLASSES 10
#define SEED 5

/* ---- the exact answer ------------------------------------------------------------------------ */

/* Sums over all samples: of the squared norms of their gradients, and of the gradients. */
struct exact {
    double squares;
    double *sum;
    size_t n_params;
};

static void open_data(const char *data, enum vb_synth_kind kind, struct vb_dataset *set)
{
    struct vb_data_spec spec;
    char why[VB_OPTS_WHY];

    assert_int_equal(vb_data_spec_parse(data, &spec, why), VB_OK);
    vb_data_spec_prefer(&spec, kind);
    assert_int_equal(vb_data_open(&spec, SEED, VB_SYNTH_TRAIN, set), VB_OK);
    assert_int_equal(set->n, N);
}

/* The samples are draws, so the squared norm of their mean is too large by the variance of a mean.
 */
static double exact_scale(struct exact *e)
{
    double mean2 = 0, trace;
    size_t i;

    for (i = 0; i < e->n_params; i++)
        mean2 += e->sum[i] / N * (e->sum[i] / N);
    trace = (e->squares - N * mean2) / (N - 1);
    free(e->sum);
    return trace / (mean2 - trace / N);
}

/* All classes have the probability 0.1. */
static double exact_softmax(void)
{
    struct vb_dataset set;
    struct exact e = {0};
    uint32_t i;
    int c, f;

    open_data(IMAGES, VB_SYNTH_DIGITS, &set);
    e.n_params = (size_t)(set.features + 1) * CLASSES;
    e.sum = calloc(e.n_params, sizeof(*e.sum));
    for (i = 0; i < N; i++) {
        float *x = calloc((size_t)set.features + 1, sizeof(*x));
        uint16_t y;

        vb_dataset_pick(&set, &i, 1, x, &y);
        x[set.features] = 1; /* the bias */
        for (c = 0; c < CLASSES; c++)
            for (f = 0; f <= set.features; f++) {
                double g = (0.1 - (c == y)) * (double)x[f];

                e.sum[(size_t)c * (size_t)(set.features + 1) + (size_t)f] += g;
                e.squares += g * g;
            }
        free(x);
    }
    vb_dataset_destroy(&set);
    return exact_scale(&e);
}

/* Both classes have the probability 0.5. */
static double exact_sparse(void)
{
    struct vb_dataset set;
    struct exact e = {0};
    struct vb_rows rows = {.room = 0};
    uint32_t i;
    int64_t k;

    open_data(ROWS, VB_SYNTH_CRITEO, &set);
    e.n_params = (size_t)set.features + 1;
    e.sum = calloc(e.n_params, sizeof(*e.sum));
    rows.room = set.row_max;
    rows.at = calloc(2, sizeof(*rows.at));
    rows.index = calloc((size_t)set.row_max, sizeof(*rows.index));
    rows.value = calloc((size_t)set.row_max, sizeof(*rows.value));
    rows.y = calloc(1, sizeof(*rows.y));
    for (i = 0; i < N; i++) {
        double g, error;

        assert_int_equal(vb_dataset_rows(&set, &i, 1, &rows), VB_OK);
        error = 0.5 - rows.y[0];
        for (k = 0; k < rows.at[1]; k++) {
            g = error * (double)rows.value[k];
            e.sum[rows.index[k]] += g;
            e.squares += g * g;
        }
        e.sum[set.features] += error; /* the bias */
        e.squares += error * error;
    }
    free(rows.at);
    free(rows.index);
    free(rows.value);
    free(rows.y);
    vb_dataset_destroy(&set);
    return exact_scale(&e);
}

/* ---- what jobs measure ----------------------------------------------------------------------- */

struct run {
    const char *model, *data;
    int batch;
    int64_t shared_update_min; /* 4: the ranks share the update */
    double clip;
    struct vb_noise_result noise; /* of rank 0 */
};

static int train(struct vb_group *g, void *arg)
{
    struct run *run = arg;
    struct vb_train_result result;
    struct vb_train_opts o;
    vb_status st;

    t_train_opts(run->model, run->data, g, &o);
    o.length.batch = run->batch;
    o.length.steps = STEPS;
    o.learn.rule = "sgd";
    o.learn.lr = 1e-30;
    o.learn.clip = run->clip;
    o.sums.shared_update_min = run->shared_update_min;
    st = vb_train(&o, &result);
    if (st != VB_OK)
        return 1;
    if (vb_group_rank(g) == 0)
        run->noise = result.noise;
    vb_train_result_fini(&result);
    return 0;
}

/* The error that is stated is a bound, so 4 of them are rarely exceeded by chance. */
static void check(struct run *run, enum vb_transport_choice transport, int world, double exact)
{
    struct t_job job = {.transport = transport, .world = world, .fn = train, .arg = run};
    const struct vb_noise_result *r = &run->noise;

    t_as_threads(&job);
    print_message("%s, %d ranks, transport %d%s%s: %.2f +- %.2f, %lld steps; exact %.2f\n",
                  run->model, world, (int)transport, run->shared_update_min == 4 ? ", shared" : "",
                  run->clip > 0 ? ", clipped" : "", r->scale, r->error, (long long)r->steps, exact);
    assert_null(r->why);
    assert_true(r->steps >= 20);
    assert_true(r->error > 0 && r->error < exact);
    assert_true(fabs(r->scale - exact) <= 4 * r->error);
}

static void test_softmax(void **state)
{
    struct run run = {
        .model = "softmax", .data = IMAGES, .batch = 40, .shared_update_min = INT64_MAX};
    double exact = exact_softmax();

    (void)state;
    check(&run, VB_TRANSPORT_SHM, 2, exact);
    check(&run, VB_TRANSPORT_TCP, 3, exact);
    run.clip = 1e6;
    check(&run, VB_TRANSPORT_TCP, 2, exact);
    run.clip = 0;
    run.shared_update_min = 4;
    check(&run, VB_TRANSPORT_SHM, 3, exact);
}

static void test_sparse(void **state)
{
    struct run run = {.model = "sparse-lr", .data = ROWS, .batch = 10};
    double exact = exact_sparse();

    (void)state;
    check(&run, VB_TRANSPORT_SHM, 2, exact);
    check(&run, VB_TRANSPORT_TCP, 3, exact);
}

static void test_one_rank(void **state)
{
    struct vb_train_opts o = {.model = "softmax",
                              .mode = VB_MODE_SINGLE,
                              .seed = SEED,
                              .data = {.text = IMAGES, .test_limit = 10},
                              .length = {.batch = 20, .steps = 10},
                              .learn = {.warmup = -1, .momentum = -1, .weight_decay = -1},
                              .place.threads = 1,
                              .group.world = 1};
    struct vb_train_result result;
    char why[VB_OPTS_WHY];

    (void)state;
    assert_int_equal(vb_data_spec_parse(IMAGES, &o.data.ask.data, why), VB_OK);
    assert_int_equal(vb_train(&o, &result), VB_OK);
    assert_true(isnan(result.noise.scale));
    assert_non_null(strstr(result.noise.why, "one rank"));
    vb_train_result_fini(&result);
}

/* ---- the sums -------------------------------------------------------------------------------- */

/* Without chance the sums give the exact ratio: |G|^2 = 4, tr(S) = 100. */
static void test_sums(void **state)
{
    struct vb_noise ranks[2] = {{.n = 0}, {.n = 0}};
    double error;
    int i;

    (void)state;
    assert_true(isnan(vb_noise_scale(ranks, 2, &error)));
    for (i = 0; i < 50; i++) {
        vb_noise_add(&ranks[0], 10, 4 + 100. / 10, 30, 4 + 100. / 30);
        vb_noise_add(&ranks[1], 20, 4 + 100. / 20, 30, 4 + 100. / 30);
        vb_noise_add(&ranks[1], 20, (double)INFINITY, 30, 4);
    }
    assert_int_equal(ranks[1].n, 50);
    assert_float_equal(vb_noise_scale(ranks, 2, &error), 25, 1e-9);
    assert_true(error >= 0 && error < 1e-5);
}

/* A gradient that is only noise has no scale. */
static void test_only_noise(void **state)
{
    struct vb_noise noise = {.n = 0};
    double error;
    int i;

    (void)state;
    for (i = 0; i < 100; i++) /* the sum is as large as chance makes it, and sometimes larger */
        vb_noise_add(&noise, 10, 10, 20, i % 2 == 0 ? 5.4 : 4.65);
    assert_true(isnan(vb_noise_scale(&noise, 1, &error)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax),
                                       cmocka_unit_test(test_sparse),
                                       cmocka_unit_test(test_one_rank), cmocka_unit_test(test_sums),
                                       cmocka_unit_test(test_only_noise)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
