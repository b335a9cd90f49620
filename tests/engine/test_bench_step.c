/* SPDX-License-Identifier: MIT
 *
 * Tests the smallest batch at which computing hides the transfer. Also runs steps without sums,
 * sums without steps, and the whole measurement on two ranks, which are threads.
 *
 * Covers: engine/bench/bench_step.c engine/bench/bench_step_hidden.c
 */
#include "engine/train/trainer.h"
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"
#include "tests/support/test.h"
#include "tests/support/fixtures/train_opts_fixture.h"

#define POINTS 5

/* Computing takes compute_0 + compute * batch. The transfer takes transfer_0 + transfer * batch. */
struct lines {
    double compute_0, compute, transfer_0, transfer;
    int64_t bytes_a_sample;
};

static int64_t expected_from(const struct lines *l, double noise)
{
    static const int batches[POINTS] = {4, 16, 64, 256, 1024};
    struct vb_step_point points[POINTS] = {0};
    int i;

    for (i = 0; i < POINTS; i++) {
        double up = 1 + (i % 2 == 0 ? noise : -noise);

        points[i].batch = batches[i];
        points[i].bytes = 4000 + l->bytes_a_sample * batches[i];
        points[i].compute_ms = (l->compute_0 + l->compute * batches[i]) * up;
        points[i].transfer_ms = (l->transfer_0 + l->transfer * batches[i]) / up;
    }
    return vb_step_expected_from(points, POINTS);
}

static void transfer_is_hidden_where_lines_cross(void **state)
{
    struct lines dense = {.compute_0 = 0.1, .compute = 0.02, .transfer_0 = 0.9};
    struct lines sparse = {0.5, 0.03, 2.0, 0.01, 8};

    (void)state;
    assert_int_equal(expected_from(&dense, 0), 40);
    assert_int_equal(expected_from(&sparse, 0), 75);
    dense.transfer_0 = 0.901; /* now the exact result is 40.05 */
    assert_int_equal(expected_from(&dense, 0), 41);
    dense.transfer_0 = 0.1 + 0.02 * 1000000;
    assert_int_equal(expected_from(&dense, 0), 1000000);
}

/* Measurement errors of 5 % change the result by about 5 %, although the largest batch takes 200
 * times as long as the smallest. */
static void noise_changes_the_result_little(void **state)
{
    struct lines dense = {.compute_0 = 0.01, .compute = 0.02, .transfer_0 = 0.9};
    int64_t exact = expected_from(&dense, 0), noisy = expected_from(&dense, 0.05);

    (void)state;
    assert_int_equal(exact, 45);
    assert_in_range(noisy, 38, 52);
}

static void transfer_is_always_or_never_hidden(void **state)
{
    struct lines fast = {.compute_0 = 0.1, .compute = 0.02, .transfer_0 = 0.01};
    struct lines slow = {.compute_0 = 0.1, .compute = 0.02, .transfer_0 = 30000};
    struct lines lists = {0.1, 0.01, 0.2, 0.02, 8};
    struct lines thin = {0.3, 0.02, 0.2, 0.02, 8};

    (void)state;
    assert_int_equal(expected_from(&fast, 0), 1);
    assert_int_equal(expected_from(&slow, 0), 0);
    /* With more samples the transfer of lists grows faster than the computing that could hide
     * it. */
    assert_int_equal(expected_from(&lists, 0), 0);
    assert_int_equal(expected_from(&thin, 0), 1);
}

/* A line through these points would have a negative value at batch 0. */
static void times_are_not_extrapolated_below_zero(void **state)
{
    struct vb_step_point points[2] = {
        {.batch = 7, .bytes = 40, .compute_ms = 0.015, .transfer_ms = 0},
        {.batch = 300, .bytes = 40, .compute_ms = 1.633, .transfer_ms = 0},
    };

    (void)state;
    assert_int_equal(vb_step_expected_from(points, 2), 1);
    /* Now the larger batch seems faster, as if the measurement of the smaller batch was
     * disturbed. */
    points[0].compute_ms = 2;
    points[0].transfer_ms = points[1].transfer_ms = 1.5;
    assert_int_equal(vb_step_expected_from(points, 2), 1);
    points[0].transfer_ms = points[1].transfer_ms = 2.5;
    assert_int_equal(vb_step_expected_from(points, 2), 0);
}

static void few_points_are_enough(void **state)
{
    struct vb_step_point points[2] = {
        {.batch = 10, .bytes = 40, .compute_ms = 1, .transfer_ms = 4},
        {.batch = 10, .bytes = 40, .compute_ms = 1, .transfer_ms = 4},
    };

    (void)state;
    assert_int_equal(vb_step_expected_from(points, 0), 0);
    /* With only one point, all samples are assumed to take the same time. */
    assert_int_equal(vb_step_expected_from(points, 1), 40);
    assert_int_equal(vb_step_expected_from(points, 2), 40);
    /* as with one rank, which transfers nothing */
    points[0].transfer_ms = points[1].transfer_ms = 0;
    assert_int_equal(vb_step_expected_from(points, 2), 1);
}

/* What was measured is never contradicted. */
static void nothing_is_claimed_where_transfer_is_exposed(void **state)
{
    struct vb_step_point points[3] = {
        {.batch = 10, .bytes = 40, .compute_ms = 1, .transfer_ms = 1, .step_ms = 2},
        {.batch = 100, .bytes = 40, .compute_ms = 10, .transfer_ms = 1, .step_ms = 11},
        {.batch = 1000, .bytes = 40, .compute_ms = 100, .transfer_ms = 1, .step_ms = 100},
    };
    int64_t from;

    (void)state;
    assert_int_equal(vb_step_expected_from(points, 3), 10);
    assert_int_equal(vb_step_hidden_from(points, 3), 10);
    points[0].exposed_ms = 1;
    points[1].exposed_ms = 1.1; /* a tenth */
    points[2].exposed_ms = 2;   /* a fiftieth */
    from = vb_step_expected_from(points, 3);
    assert_in_range(from, 250, 300); /* 5 % lie at 10^0.43 times 100 */
    assert_int_equal(vb_step_hidden_from(points, 3), 1000);
    points[2].exposed_ms = 26;
    assert_int_equal(vb_step_expected_from(points, 3), 0);
    points[0].transfer_ms = points[1].transfer_ms = points[2].transfer_ms = 200;
    assert_int_equal(vb_step_expected_from(points, 3), 2000); /* beyond what was measured */
    assert_int_equal(vb_step_hidden_from(points, 3), 0);
}

/* Computing takes 0.1 ms a sample and hides the transfer from batch 300 on. */
static struct vb_step_point point_at(int64_t batch)
{
    double ms = 0.1 * (double)batch;

    return (struct vb_step_point){.batch = (int)batch,
                                  .bytes = 40,
                                  .compute_ms = ms,
                                  .transfer_ms = 30,
                                  .exposed_ms = batch < 300 ? ms : 0,
                                  .step_ms = batch < 300 ? 2 * ms : ms};
}

/* Measures what is asked for, until nothing is. Returns the number of points. */
static int refined(int64_t first, int64_t most, int64_t *from_p)
{
    struct vb_step_point points[VB_STEP_BATCHES_MAX] = {point_at(first)};
    int64_t next;
    int n;

    for (n = 1; n < VB_STEP_BATCHES_MAX; n++) {
        next = vb_step_next_batch(points, n, first, most);
        if (next == 0)
            break;
        points[n] = point_at(next);
    }
    *from_p = vb_step_hidden_from(points, n);
    return n;
}

static void the_crossing_is_measured(void **state)
{
    int64_t from;

    (void)state;
    assert_in_range(refined(100, 100000, &from), 3, 10); /* from below */
    assert_in_range(from, 271, 330);
    assert_in_range(refined(4000, 100000, &from), 3, 10); /* from above */
    assert_in_range(from, 271, 330);
    assert_in_range(refined(100, 200, &from), 2, 2);   /* the data allows no larger batch */
    assert_in_range(refined(10, 100000, &from), 2, 4); /* too far away */
}

/* The points on both sides of the crossing are measured in turn until each was measured often
 * enough. */
static void the_points_around_the_crossing_are_measured_again(void **state)
{
    struct vb_step_point points[3] = {point_at(100), point_at(290), point_at(310)};
    int i, n = 0;
    int64_t next;

    (void)state;
    for (i = 0; i < 3; i++)
        points[i].times = 1;
    while ((next = vb_step_unsure_batch(points, 3)) != 0 && n < 10) {
        struct vb_step_point again = point_at(next);

        assert_int_equal(next, n % 2 == 0 ? 290 : 310);
        vb_step_merge(&points[next == 290 ? 1 : 2], &again);
        n++;
    }
    assert_int_equal(n, 4);
    assert_int_equal(points[0].times, 1);
    assert_int_equal(vb_step_unsure_batch(points, 2), 0); /* nothing is hidden */
    assert_int_equal(vb_step_unsure_batch(points + 2, 1), 0);
}

static void measurements_of_a_batch_are_averaged(void **state)
{
    struct vb_step_point point = {
        .times = 2, .step_ms = 3, .compute_ms = 2.5, .transfer_ms = 1, .exposed_ms = 0.5};
    struct vb_step_point again = {
        .times = 1, .step_ms = 6, .compute_ms = 1, .transfer_ms = 4, .exposed_ms = 5};

    (void)state;
    vb_step_merge(&point, &again);
    assert_int_equal(point.times, 3);
    assert_float_equal(point.step_ms, 4, 1e-9);
    assert_float_equal(point.compute_ms, 2, 1e-9);
    assert_float_equal(point.transfer_ms, 2, 1e-9);
    assert_float_equal(point.exposed_ms, 2, 1e-9);
}

/* ---- two ranks ------------------------------------------------------------------------------- */

static void fill_opts(const char *model, const char *data, struct vb_group *g,
                      struct vb_train_opts *o)
{
    t_train_opts(model, data, g, o);
    o->length.batch = 15;
    o->data.whole_steps = true;
    o->length.steps = 100;
}

/* Returns whether all ranks have the same parameters. */
static bool equal(struct vb_trainer *t)
{
    size_t n;
    const float *params = t->ops->params(t, &n);
    uint32_t own = vb_crc32c(0, params, n * sizeof(*params)), all[2] = {0, 1};

    return vb_group_gather(t->place.group, &own, sizeof(own), all) == VB_OK && all[0] == all[1];
}

static int check_steps(struct vb_trainer *t)
{
    size_t bytes = 0;
    long before;
    int wrong;

    wrong = T_WRONG(t->data.train.n == 180); /* 200 samples, rounded down to whole steps of 30 */
    wrong += T_WRONG(vb_trainer_step(t) == VB_OK && equal(t));
    wrong += T_WRONG(t->ops->sum_again(t, &bytes) == VB_OK && bytes > 0 && bytes % 4 == 0);
    wrong += T_WRONG(equal(t)); /* sum_again() has updated no parameters */
    wrong += T_WRONG(vb_trainer_step(t) == VB_OK && equal(t));
    (void)vb_group_barrier(t->place.group);
    before = t_allocations;
    t->sums.off = true;
    wrong += T_WRONG(vb_trainer_step(t) == VB_OK);
    t->sums.off = false;
    wrong += T_WRONG(t->ops->sum_again(t, &bytes) == VB_OK);
    (void)vb_group_barrier(t->place.group);
    wrong += T_WRONG(t_allocations == before);
    (void)vb_group_barrier(t->place.group);
    return wrong + T_WRONG(!equal(t));
}

static int with_and_without_sums(struct vb_group *g, void *arg)
{
    const char *const *which = arg;
    struct vb_train_opts o;
    struct vb_trainer t;
    int wrong;

    fill_opts(which[0], which[1], g, &o);
    wrong = T_WRONG(vb_trainer_open(&t, &o, NULL) == VB_OK);
    if (wrong == 0)
        wrong = check_steps(&t);
    vb_trainer_close(&t);
    return wrong;
}

static void steps_can_run_without_sums(void **state)
{
    static const char *const models[][2] = {{"softmax", "synth:200"},
                                            {"lenet", "synth:200"},
                                            {"sparse-lr", "synth:n=200,features=5000"}};
    enum vb_transport_choice transport;
    size_t i;

    (void)state;
    for (transport = VB_TRANSPORT_SHM; transport <= VB_TRANSPORT_TCP; transport++)
        for (i = 0; i < VB_COUNT(models); i++) {
            struct t_job job = {.transport = transport,
                                .world = 2,
                                .fn = with_and_without_sums,
                                .arg = (void *)models[i]};

            t_as_threads(&job);
        }
}

static void count(void *arg, const struct vb_step_result *result)
{
    *(int *)arg += result->n;
}

static int measure(struct vb_group *g, void *arg)
{
    struct vb_step_opts o = {.batches = {3, 7, 30}, .n_batches = 3, .seconds = 0.001};
    struct vb_step_result r;
    int i, wrong, seen = 0;

    (void)arg;
    /* 100 samples are not a whole number of steps of these batches. */
    fill_opts("softmax", "synth:100", g, &o.train);
    o.each = count;
    o.each_arg = &seen;
    wrong = T_WRONG(vb_bench_step(&o, &r) == VB_OK && r.n == 3 && r.ranks == 2);
    wrong += T_WRONG(seen == (vb_group_rank(g) == 0 ? 1 + 2 + 3 : 0));
    for (i = 0; i < r.n; i++) {
        const struct vb_step_point *p = &r.points[i];

        wrong += T_WRONG(p->batch == o.batches[i] && p->bytes == 7850 * 4);
        wrong += T_WRONG(p->compute_ms > 0 && p->transfer_ms > 0 && p->step_ms > 0);
        wrong += T_WRONG(p->exposed_ms >= 0 && p->exposed_ms < p->step_ms);
    }
    return wrong;
}

static void every_point_is_measured(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = measure};

    (void)state;
    t_as_threads(&job);
}

static int measure_large_batches(struct vb_group *g, void *arg)
{
    struct vb_step_opts o = {.batches = {3, 51}, .n_batches = 2, .seconds = 0.001};
    struct vb_step_result r;
    vb_status *got = arg;

    fill_opts("softmax", "synth:100", g, &o.train);
    got[vb_group_rank(g)] = vb_bench_step(&o, &r);
    return 0;
}

static void batches_larger_than_the_data_set(void **state)
{
    vb_status got[2] = {VB_OK, VB_OK};
    struct t_job job = {
        .transport = VB_TRANSPORT_SHM, .world = 2, .fn = measure_large_batches, .arg = got};
    struct t_stderr caught;
    char text[2048];

    (void)state;
    t_stderr_catch(&caught);
    t_as_threads(&job);
    t_stderr_release(&caught, text, sizeof(text));
    /* the failure of the first rank may reach the other one before it notices its own */
    assert_true(got[0] == VB_ERR_USAGE || got[1] == VB_ERR_USAGE);
    assert_true(got[0] == VB_ERR_USAGE || got[0] == VB_ERR_PEER);
    assert_true(got[1] == VB_ERR_USAGE || got[1] == VB_ERR_PEER);
    assert_non_null(strstr(text, "a step of 102 samples"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfer_is_hidden_where_lines_cross),
        cmocka_unit_test(noise_changes_the_result_little),
        cmocka_unit_test(transfer_is_always_or_never_hidden),
        cmocka_unit_test(few_points_are_enough),
        cmocka_unit_test(times_are_not_extrapolated_below_zero),
        cmocka_unit_test(nothing_is_claimed_where_transfer_is_exposed),
        cmocka_unit_test(the_crossing_is_measured),
        cmocka_unit_test(the_points_around_the_crossing_are_measured_again),
        cmocka_unit_test(measurements_of_a_batch_are_averaged),
        cmocka_unit_test(steps_can_run_without_sums),
        cmocka_unit_test(every_point_is_measured),
        cmocka_unit_test(batches_larger_than_the_data_set),
    };

    return T_RUN(tests);
}
