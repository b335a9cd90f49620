/* SPDX-License-Identifier: MIT
 *
 * Tests engine/train/train_verdict.c: which bottleneck is reported for invented figures of a
 * run, and whether its loss still fell.
 *
 * Covers: engine/train/train_verdict.c
 */
#include "engine/train/train_room_priv.h"
#include "tests/support/test.h"

#include <math.h>

#define RANKS 2

/* Returns the result of an invented run: 200 steps in 10 s. Each test changes some figures. */
static struct vb_train_result made_up(struct vb_rank_result ranks[RANKS])
{
    int i;

    memset(ranks, 0, RANKS * sizeof(*ranks));
    for (i = 0; i < RANKS; i++) {
        ranks[i].rank = i;
        snprintf(ranks[i].host, sizeof(ranks[i].host), "host%d", i);
    }
    return (struct vb_train_result){
        .workers = RANKS, .per_rank = ranks, .steps = 200, .train_s = 10, .transport = "shm"};
}

static void compute_is_a_share_of_the_step(void **state)
{
    struct vb_rank_result ranks[RANKS];
    struct vb_train_result r = made_up(ranks);

    (void)state;
    r.phase_s[VB_PHASE_FORWARD] = 4;
    r.phase_s[VB_PHASE_BACKWARD] = 2;
    r.phase_s[VB_PHASE_EVAL] = 2; /* evaluation does not count */
    vb_train_find_bottleneck(&r);
    assert_int_equal(r.bottleneck.resource, VB_COMPUTE);
    assert_true(r.bottleneck.share == 6.0 / 8);
    assert_string_equal(r.bottleneck.why, "30 ms of a step are spent computing");
}

/* A step may contain several waits, and one rank may have waited longer than the average training
 * time of all ranks. */
static void a_straggler_takes_at_most_the_whole_time(void **state)
{
    struct vb_rank_result ranks[RANKS];
    struct vb_train_result r = made_up(ranks);

    (void)state;
    ranks[0].phase_s[VB_PHASE_WAIT] = 10.5;
    ranks[1].late_n = 204;
    ranks[1].late_s = 10;
    ranks[1].late_max_s = 0.25;
    vb_train_find_bottleneck(&r);
    assert_int_equal(r.bottleneck.resource, VB_STRAGGLER);
    assert_true(r.bottleneck.share == 1);
    assert_string_equal(r.bottleneck.why, "rank 1 (host1) made other ranks wait 204 times in 200 "
                                          "steps: on average 50 ms per step, at most 250 ms");
}

/* In asynchronous training the steps of each worker are counted, and waiting for the end of all
 * workers is not waiting for a straggler. */
static void asynchronous_steps_are_those_of_a_worker(void **state)
{
    struct vb_rank_result ranks[RANKS];
    struct vb_train_result r = made_up(ranks);

    (void)state;
    r.apart = true;
    r.phase_s[VB_PHASE_FORWARD] = 4;
    ranks[0].phase_s[VB_PHASE_WAIT] = 8;
    vb_train_find_bottleneck(&r);
    assert_int_equal(r.bottleneck.resource, VB_COMPUTE);
    assert_string_equal(r.bottleneck.why, "40 ms of a step are spent computing");
    ranks[1].late_n = 90;
    ranks[1].late_s = 7;
    ranks[1].late_max_s = 0.1;
    vb_train_find_bottleneck(&r);
    assert_int_equal(r.bottleneck.resource, VB_STRAGGLER);
    assert_string_equal(r.bottleneck.why, "rank 1 (host1) made other ranks wait 90 times in 100 "
                                          "steps: on average 70 ms per step, at most 100 ms");
}

static void no_steps_no_verdict(void **state)
{
    struct vb_rank_result ranks[RANKS];
    struct vb_train_result r = made_up(ranks);

    (void)state;
    r.resumed = r.steps;
    r.phase_s[VB_PHASE_FORWARD] = 4;
    vb_train_find_bottleneck(&r);
    assert_string_equal(r.bottleneck.why, "");
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
        cmocka_unit_test(a_falling_loss_is_told_from_noise),
        cmocka_unit_test(compute_is_a_share_of_the_step),
        cmocka_unit_test(a_straggler_takes_at_most_the_whole_time),
        cmocka_unit_test(asynchronous_steps_are_those_of_a_worker),
        cmocka_unit_test(no_steps_no_verdict),
    };

    return T_RUN(tests);
}
