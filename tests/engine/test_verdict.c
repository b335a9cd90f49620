/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_verdict.c: whether the loss of a run still fell, and which facts of its
 * result the verdict gets.
 *
 * Covers: engine/train/train_verdict.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/test.h"

#include <math.h>

/* The verdict gets the phases of the ranks, and not the time of evaluations. */
static void facts_are_those_of_the_result(void **state)
{
    struct vb_rank_result ranks[2] = {{.rank = 0, .host = "a", .train_s = 10},
                                      {.rank = 1, .host = "b", .train_s = 10}};
    struct vb_train_result r = {.workers = 2,
                                .rows = 2,
                                .per_rank = ranks,
                                .steps = 200,
                                .train_s = 10,
                                .step_s = 8,
                                .transport = "shm"};

    (void)state;
    ranks[0].phase_s[VB_PHASE_EVAL] = ranks[1].phase_s[VB_PHASE_EVAL] = 2;
    ranks[0].phase_s[VB_PHASE_FORWARD] = 2;
    ranks[0].phase_s[VB_PHASE_WAIT] = 6;
    ranks[1].phase_s[VB_PHASE_BACKWARD] = 8;
    ranks[1].late_s = 6;
    ranks[1].late_n = 200;
    vb_train_find_bottleneck(&r, false);
    assert_int_equal(r.bottleneck.resource, VB_STRAGGLER);
    assert_int_equal(r.bottleneck.rank, 1);
    assert_true(fabs(r.bottleneck.share - 0.75) < 1e-9);
    r.apart = true; /* nobody waits for another but at the end */
    vb_train_find_bottleneck(&r, false);
    assert_int_equal(r.bottleneck.resource, VB_COMPUTE);
    vb_train_find_bottleneck(&r, true);
    assert_int_equal(r.bottleneck.resource, VB_STRAGGLER);
    r.resumed = r.steps;
    vb_train_find_bottleneck(&r, false);
    assert_string_equal(r.bottleneck.why, "");
}

static double advised(const struct vb_bottleneck *b, const char *change)
{
    int i;

    for (i = 0; i < b->n_advice; i++)
        if (strcmp(b->advice[i].change, change) == 0)
            return b->advice[i].steps_per_s;
    return 0;
}

static void a_faster_algorithm_is_advised(void **state)
{
    struct vb_rank_result ranks[2] = {{.rank = 0, .train_s = 10}, {.rank = 1, .train_s = 10}};
    struct vb_train_result r = {.workers = 2,
                                .rows = 2,
                                .per_rank = ranks,
                                .steps = 200,
                                .train_s = 10,
                                .step_s = 10,
                                .transport = "tcp",
                                .machine = {.forecast = {2000, 500, VB_ALGO_OWNER}}};
    int i;

    (void)state;
    for (i = 0; i < 2; i++) {
        ranks[i].phase_s[VB_PHASE_FORWARD] = 2;
        ranks[i].phase_s[VB_PHASE_COMM] = 8;
    }
    vb_train_find_bottleneck(&r, false);
    assert_int_equal(r.bottleneck.resource, VB_NETWORK);
    assert_float_equal(advised(&r.bottleneck, "--algo owner"), 20 / (1 - 0.8 * 0.75), 1e-6);
    r.machine.forecast.best = VB_ALGO_AUTO; /* buckets of different sizes */
    vb_train_find_bottleneck(&r, false);
    assert_true(advised(&r.bottleneck, "--algo auto") > 20);
    r.machine.forecast = (struct vb_coll_forecast){0};
    vb_train_find_bottleneck(&r, false);
    assert_true(advised(&r.bottleneck, "--algo auto") == 0);
}

/* Worker 0 has the server beside it, and the other one waits for a link. */
static void the_transport_is_that_of_the_worker_that_waits(void **state)
{
    struct vb_rank_result ranks[3] = {{.rank = 0, .train_s = 10, .transport = "shm"},
                                      {.rank = 1, .train_s = 10, .transport = "tcp"},
                                      {.rank = 2, .train_s = 10, .server = true}};
    struct vb_train_result r = {.workers = 2,
                                .rows = 3,
                                .per_rank = ranks,
                                .apart = true,
                                .steps = 200,
                                .train_s = 10,
                                .step_s = 10,
                                .transport = "shm",
                                .machine = {.link = {.latency_us = 100, .gb_s = 0.1}}};

    (void)state;
    ranks[0].phase_s[VB_PHASE_COMM] = 3;
    ranks[0].phase_s[VB_PHASE_FORWARD] = 7;
    ranks[1].phase_s[VB_PHASE_COMM] = 9;
    ranks[1].phase_s[VB_PHASE_FORWARD] = 1;
    ranks[2].phase_s[VB_PHASE_WAIT] = 10;
    vb_train_find_bottleneck(&r, false);
    assert_int_equal(r.bottleneck.resource, VB_NETWORK);
    assert_non_null(strstr(r.bottleneck.why, "transfer over tcp"));
    ranks[0].phase_s[VB_PHASE_COMM] = 10;
    ranks[0].phase_s[VB_PHASE_FORWARD] = 0;
    vb_train_find_bottleneck(&r, false);
    assert_non_null(strstr(r.bottleneck.why, "transfer over shm"));
}

/* Returns the verdict on a run of 10 * n steps, by the mean losses of its last two tenths. */
static struct vb_improving after(double before, double last, double noise, int n)
{
    struct vb_trainer t = {.recipe = {.steps = 10 * (int64_t)n}};
    int64_t step;

    for (step = 1; step <= t.recipe.steps; step++) {
        double mean = step <= 8 * n ? 1e9 : step <= 9 * n ? before : last;

        t.loss = mean + (step % 2 == 0 ? noise : -noise);
        vb_train_note_loss(&t, step);
    }
    return vb_train_improving(&t.tenths);
}

static void a_falling_loss_is_told_from_noise(void **state)
{
    struct vb_improving r = after(0.5, 0.4, 0.05, 100);

    (void)state;
    assert_true(r.known && r.still);
    assert_true(r.before > 0.499 && r.before < 0.501 && r.last > 0.399 && r.last < 0.401);
    assert_false(after(0.5, 0.49, 0.3, 100).still); /* within the noise */
    assert_false(after(0.5, 0.499, 0, 100).still);  /* nobody would care */
    assert_false(after(0.4, 0.5, 0.05, 100).still); /* it rose */
    assert_false(after(0.5, 0.4, 0.05, 10).known);  /* too few steps */
    assert_false(after(0.5, (double)NAN, 0, 100).known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_those_of_the_result),
        cmocka_unit_test(a_faster_algorithm_is_advised),
        cmocka_unit_test(the_transport_is_that_of_the_worker_that_waits),
        cmocka_unit_test(a_falling_loss_is_told_from_noise),
    };

    return T_RUN(tests);
}
