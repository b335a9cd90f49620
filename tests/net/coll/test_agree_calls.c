/* SPDX-License-Identifier: MIT
 *
 * Tests the calls of groups that agree, one by one: committing, proofs from outside, and what other
 * groups do. test_agree.c has ranks that train and die.
 *
 * Covers: net/control/agree.c net/group/group_agree.c
 */
#include "net/group/group_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int n_here;

static void wait_for(const _Atomic int *count, int n)
{
    struct timespec nap = {.tv_nsec = 1000000};

    while (*count < n)
        nanosleep(&nap, NULL);
}

/* Ranks of one process have no proofs of each other. Rank 1 is told that rank 0 is gone. */
static int be_told(struct vb_group *g, void *arg)
{
    struct vb_agreed agreed;
    int wrong = 0;

    (void)arg;
    n_here++;
    wait_for(&n_here, 2);
    if (vb_group_rank(g) == 1) {
        wrong += T_WRONG(vb_group_commit(g, 1));
        wrong += T_WRONG(vb_group_retire(g, 0, "a test") == VB_OK);
        wrong += T_WRONG(!vb_group_commit(g, 2));
        vb_group_proved(g, 0);
        wrong += T_WRONG(vb_group_agree(g, &agreed) == VB_OK);
        wrong += T_WRONG(agreed.n == 1 && agreed.members[0] == 1 && agreed.holder == 1);
        wrong += T_WRONG(agreed.step == 1 && agreed.number > 1 && agreed.number <= VB_VIEW_MAX);
        wrong += T_WRONG(!vb_group_commit(g, 2)); /* not before this rank has come to the view */
        wrong += T_WRONG(vb_group_regroup(g, agreed.members, 1, agreed.number) == VB_OK);
        wrong += T_WRONG(vb_group_commit(g, 2));
        n_here++;
    }
    wait_for(&n_here, 3);
    return wrong;
}

static void a_proof_lets_one_of_two_go_on(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .agrees = true, .world = 2, .fn = be_told};
    struct t_stderr caught;
    char text[4096];

    (void)state;
    t_stderr_catch(&caught);
    t_as_threads(&job);
    t_stderr_release(&caught, text, sizeof(text));
}

static int commit_many(struct vb_group *g, void *arg)
{
    int64_t step;
    long before;
    int wrong = 0;

    (void)arg;
    vb_group_begin_at(g, 7);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    before = t_allocations;
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(!vb_group_commit(g, 7) && !vb_group_commit(g, 9) && !vb_group_commit(g, -1));
    for (step = 8; step < 1000; step++)
        wrong += T_WRONG(vb_group_commit(g, step));
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    return wrong + T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void steps_are_committed_one_by_one_without_memory(void **state)
{
    struct t_job job = {
        .transport = VB_TRANSPORT_TCP, .agrees = true, .world = 3, .fn = commit_many};

    (void)state;
    t_as_threads(&job);
}

static int agree_on_nothing(struct vb_group *g, void *arg)
{
    struct vb_agreed agreed;
    struct t_stderr caught;
    char text[1024];
    int wrong;

    (void)arg;
    vb_group_proved(g, 1 - vb_group_rank(g)); /* does nothing */
    wrong = T_WRONG(vb_group_commit(g, 1) && vb_group_commit(g, 1) && vb_group_commit(g, 77));
    t_stderr_catch(&caught);
    wrong += T_WRONG(vb_group_agree(g, &agreed) == VB_ERR_USAGE);
    t_stderr_release(&caught, text, sizeof(text));
    return wrong + T_WRONG(strstr(text, "do not agree") != NULL) +
           T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void other_groups_commit_everything(void **state)
{
    struct t_job job = {
        .transport = VB_TRANSPORT_TCP, .elastic = true, .world = 2, .fn = agree_on_nothing};

    (void)state;
    t_as_processes(&job);
    job.elastic = false;
    t_as_processes(&job);
}

/* Nobody is gone, so there is nothing to agree on. */
static int agree_in_vain(struct vb_group *g, void *arg)
{
    struct vb_agreed agreed;
    struct t_stderr caught;
    char text[1024];
    vb_status st;

    (void)arg;
    t_stderr_catch(&caught);
    st = vb_group_agree(g, &agreed);
    t_stderr_release(&caught, text, sizeof(text));
    return T_WRONG(st == VB_ERR_TIMEOUT) + T_WRONG(strstr(text, "ranks 0-1; gone: none") != NULL) +
           T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void waiting_for_a_view_has_an_end(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP,
                        .agrees = true,
                        .world = 2,
                        .timeout_ms = 2000,
                        .fn = agree_in_vain};

    (void)state;
    t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_proof_lets_one_of_two_go_on),
        cmocka_unit_test(steps_are_committed_one_by_one_without_memory),
        cmocka_unit_test(other_groups_commit_everything),
        cmocka_unit_test(waiting_for_a_view_has_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
