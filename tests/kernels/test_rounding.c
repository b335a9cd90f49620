/* SPDX-License-Identifier: MIT
 *
 * Tests what kernels may round. Errors are measured against the reference in double precision. The
 * measure is single precision itself: the error of one running sum of floats. Every backend that
 * may be chosen without --fast-math must stay within twice that error, in each pass of each layer
 * and in the parameters after 20 steps of training. Those that need --fast-math must exceed it:
 * otherwise they would not need it.
 *
 * The argument "slow" stands for the small AlexNet.
 *
 * Covers: bench/kernels_check.c bench/exact_steps.c kernels/exact/layer_ref64.c
 * Covers: kernels/exact/layer_running.c kernels/choice/backends.c kernels/choice/choice_plan.c
 */
#include "bench/bench.h"
#include "bench/exact_steps.h"
#include "kernels/choice/choice_priv.h"
#include "tests/support/fixtures/layers_fixture.h"

#include <math.h>
#include <omp.h>

#define CONV(outputs, side, padding)                                                               \
    .kind = VB_K_CONV, .oc = (outputs), .kh = (side), .kw = (side), .stride = 1, .pad = (padding), \
    .relu = true

/* Convolutions that all backends can compute, those of Winograd included. */
static const struct vb_layer_row rows[] = {
    {"conv1", {.c = 3, .h = 10, .w = 10, CONV(16, 5, 2)}},
    {"conv2", {CONV(32, 3, 1)}},
    {"pool2", {.kind = VB_K_MAX_POOL, .kh = 2, .kw = 2, .stride = 2}},
    {"conv3", {CONV(32, 3, 1)}},
    {"drop4", {.kind = VB_K_DROPOUT, .rate = 0.5f}},
    {"fc4", {.kind = VB_K_LINEAR, .oc = 10}},
};

static const struct vb_layer_table convs = {"convs", VB_COUNT(rows), rows, false};

static void check_table(const struct vb_layer_table *table, int batch)
{
    struct vb_bench_kernels o = {.table = table, .batch = batch, .threads = 1};

    assert_non_null(table);
    assert_int_equal(vb_bench_kernels_rounding(&o), VB_OK);
}

static void backends_are_within_the_spread(void **state)
{
    (void)state;
    check_table(&convs, 2);
    check_table(vb_layer_table_find("lenet"), 1);
}

static void backends_are_within_the_spread_in_alexnet32(void **state)
{
    (void)state;
    check_table(vb_layer_table_find("alexnet32"), 2);
}

/* Returns how many of the backends that need --fast-math are in the list; all must exceed. */
static int must_exceed(const struct vb_k_checked *checked, int n)
{
    struct vb_bench_rounding r = {.layer = "conv", .pass = "any"};
    int i, found = 0;

    for (i = 0; i < n; i++)
        if (strcmp(checked[i].backend, VB_K_RUNNING) == 0)
            r.running = checked[i].error;
    assert_true(r.running > 0);
    for (i = 0; i < n; i++) {
        r.error = checked[i].error;
        found += checked[i].fast_math;
        assert_true(!checked[i].fast_math || !vb_bench_rounding_within(&r));
    }
    return found;
}

static void fast_math_is_needed_where_it_is_asked_for(void **state)
{
    static const struct vb_k_shape shapes[] = {T_CONV(2, 24, 10, 10, 24, 3, 3, 1, 1, false),
                                               T_CONV(2, 24, 10, 10, 24, 5, 5, 1, 2, false)};
    struct vb_k_checked checked[VB_K_CANDIDATES_MAX];
    char why[VB_OPTS_WHY];
    struct vb_k_shape s;
    int pass, n;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(shapes); i++) {
        s = shapes[i];
        assert_int_equal(vb_k_shape_finish(&s, why), VB_OK);
        for (pass = 0; pass < VB_K_PASSES; pass++) {
            assert_int_equal(vb_k_check_all(&s, pass, true, checked, &n), VB_OK);
            assert_int_equal(must_exceed(checked, n), 1);
        }
    }
}

static void larger_errors_are_not_within(void **state)
{
    struct vb_bench_rounding r = {.running = 1e-6};

    (void)state;
    r.error = 1.9e-6;
    assert_true(vb_bench_rounding_within(&r));
    r.error = 2.1e-6;
    assert_false(vb_bench_rounding_within(&r));
    r.error = (double)NAN;
    assert_false(vb_bench_rounding_within(&r));
    r.error = (double)INFINITY;
    assert_false(vb_bench_rounding_within(&r));
}

/* The measure must measure: with a running sum the parameters differ from those in double
 * precision by a rounding error, and no more. With F(4x4) they differ by more. */
static void steps_show_the_error_of_kernels(void **state)
{
    double running, wino, off;
    struct vb_exact_steps *steps;

    (void)state;
    assert_int_equal(vb_exact_steps_create(&convs, 2, VB_BENCH_STEPS, &steps), VB_OK);
    assert_true(vb_exact_steps_uses(steps, "winograd4"));
    assert_false(vb_exact_steps_uses(steps, "pooled"));
    assert_false(vb_exact_steps_uses(steps, "nobody"));
    assert_int_equal(vb_exact_steps_error(steps, VB_K_RUNNING, &running, &off), VB_OK);
    assert_true(running > 1e-8 && running < 1e-5 && off > running);
    assert_int_equal(vb_exact_steps_error(steps, "winograd4", &wino, &off), VB_OK);
    print_message("running %.2e, winograd4 %.2e\n", running, wino);
    assert_true(wino > running && wino < 1e-4);
    vb_exact_steps_destroy(steps);
    vb_exact_steps_destroy(NULL);
}

static void plans_prefer_a_backend(void **state)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    struct vb_k_plan *plan = calloc(1, sizeof(*plan));
    const struct vb_k_choice *choice;
    int i;

    (void)state;
    assert_non_null(plan);
    assert_int_equal(vb_layer_table_shapes(&convs, 2, shapes), VB_OK);
    for (i = 0; i < convs.n_layers; i++)
        assert_int_equal(vb_k_plan_prefer(plan, rows[i].name, &shapes[i], "winograd2"), VB_OK);
    assert_string_equal(vb_k_plan_find(plan, "conv2", VB_K_FORWARD), "winograd2");
    assert_string_equal(vb_k_plan_find(plan, "conv1", VB_K_FORWARD), "blas"); /* 5 x 5 */
    assert_string_equal(vb_k_plan_find(plan, "pool2", VB_K_BACKWARD_DATA), "plain");
    assert_null(vb_k_plan_fast_math(plan));
    assert_int_equal(vb_k_plan_prefer(plan, "more", &shapes[1], "winograd4"), VB_OK);
    choice = vb_k_plan_fast_math(plan);
    assert_non_null(choice);
    assert_string_equal(choice->layer, "more");
    free(plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_are_within_the_spread),
        cmocka_unit_test(fast_math_is_needed_where_it_is_asked_for),
        cmocka_unit_test(larger_errors_are_not_within),
        cmocka_unit_test(steps_show_the_error_of_kernels),
        cmocka_unit_test(plans_prefer_a_backend),
    };
    const struct CMUnitTest slow[] = {
        cmocka_unit_test(backends_are_within_the_spread_in_alexnet32)};

    (void)argv;
    omp_set_num_threads(1); /* the references have one thread, and small layers gain nothing */
    return argc > 1 ? T_RUN(slow) : T_RUN(tests);
}
