/* SPDX-License-Identifier: MIT
 *
 * engine/train_verdict.c: what is said to have held a run up, from figures that are made up.
 */
#include "engine/train_room_priv.h"
#include "tests/test.h"

#define RANKS 2

/* A run of 200 steps in 10 s, but for what the test says. */
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

static void computing_is_a_share(void **state)
{
    struct vb_rank_result ranks[RANKS];
    struct vb_train_result r = made_up(ranks);

    (void)state;
    r.phase_s[VB_PHASE_FORWARD] = 4;
    r.phase_s[VB_PHASE_BACKWARD] = 2;
    r.phase_s[VB_PHASE_EVAL] = 2; /* which does not count */
    vb_train_find_bottleneck(&r);
    assert_int_equal(r.bottleneck.resource, VB_COMPUTE);
    assert_true(r.bottleneck.share == 6.0 / 8);
    assert_string_equal(r.bottleneck.why, "30 ms of a step are spent computing");
}

/* A step may have several waits; and one rank may have waited for longer than ranks trained on
 * average. */
static void a_straggler_is_at_most_all(void **state)
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
    assert_string_equal(
        r.bottleneck.why,
        "rank 1 (host1) made others wait 204 times in 200 steps, 50 ms a step and at most 250 ms");
}

/* Workers that make steps of their own: a step is one of theirs, and who waits for the end of all
 * waits for nobody who is late. */
static void a_step_is_a_workers(void **state)
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
    assert_string_equal(
        r.bottleneck.why,
        "rank 1 (host1) made others wait 90 times in 100 steps, 70 ms a step and at most 100 ms");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computing_is_a_share),
        cmocka_unit_test(a_straggler_is_at_most_all),
        cmocka_unit_test(a_step_is_a_workers),
        cmocka_unit_test(no_steps_no_verdict),
    };

    return T_RUN(tests);
}
