/* SPDX-License-Identifier: MIT
 *
 * Tests servers with standbys, which are killed by SIGKILL at random moments. Every gradient must
 * count exactly once in the final parameters, versions must be right, and each snapshot must show
 * one moment. Server and standby must end with the same bits.
 *
 * Ranks are processes. They write their results to a board in memory that they share with the test.
 *
 * Covers: engine/ps/ps_failover.c
 */
#include "tests/support/replica.h"

/* ---- workers --------------------------------------------------------------------------------- */

/* Slows the workers down until the joiner has joined, so that steps are left for the joiner. */
static void wait_for_joiner(void)
{
    struct timespec nap = {.tv_nsec = 2000000};

    if (board->job.join_slots > 0 && board->tally.begun[board->job.workers] == 0)
        nanosleep(&nap, NULL);
}

/* Waits, so that the job does not end before the test, which may be slow, has done its kills. The
 * worker that must get a request for an evaluation does not wait before it has got the request. */
static void pass_gate(const struct ps_worker *w)
{
    struct timespec nap = {.tv_nsec = 100000};

    while (board->gate > 0 && board->tally.total >= board->gate &&
           !(w->number == board->mortal && board->evals[w->number] == 0))
        nanosleep(&nap, NULL);
}

/* Makes a gradient of random numbers if the bits of two servers are compared, and of ones
 * otherwise. */
static void make_gradient(const struct ps_worker *w, uint64_t step, float *grads)
{
    size_t i;

    if (w->job->words == 0) {
        p_ones(w, step, grads);
        return;
    }
    for (i = 0; i < w->job->n; i++)
        grads[i] = (float)(vb_random(step * 8 + (uint64_t)w->number, i) % 1000) / 999.f - .5f;
}

static vb_status snapshot(struct ps_worker *w, float *params, int *wrong_p)
{
    uint64_t version = 0;
    vb_status st = vb_ps_worker_snapshot(w, params, NULL, &version);

    if (st == VB_OK && w->job->words == 0)
        *wrong_p += p_check_counts(w, params, version, w->job->servers == 1);
    return st;
}

/* Takes requests for evaluations, before which no worker gets a ticket. */
static vb_status take_request(struct ps_worker *w, float *own, int *wrong_p)
{
    vb_status st = vb_ps_worker_await_work(w);

    board->evals[w->number] = w->evals;
    while (st == VB_OK && w->due != 0) {
        w->due = 0;
        st = snapshot(w, own, wrong_p);
        if (st == VB_OK)
            st = vb_ps_worker_await_work(w);
    }
    return st;
}

/* The worker loses the server, which lives: the connection between the two has failed. */
static vb_status may_desert(struct ps_worker *w, int64_t step)
{
    if (w->number != board->deserter || step != 5)
        return VB_OK;
    return vb_group_retire(w->group, vb_ps_server_rank(w->job, 0), "the test drops the server");
}

static vb_status dense_steps(struct ps_worker *w, float *own, int *wrong_p)
{
    vb_status st = VB_OK;
    bool go = true;
    int64_t i;

    for (i = 0; st == VB_OK && *wrong_p == 0; i++) {
        st = take_request(w, own, wrong_p);
        if (st == VB_OK)
            st = may_desert(w, i);
        if (st == VB_OK)
            st = vb_ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        *wrong_p += p_check_bound(w->job, &board->tally, i);
        if (i % 37 == 5)
            st = snapshot(w, own, wrong_p);
        p_pause(&board->tally, (uint64_t)w->number, (uint64_t)i);
        wait_for_joiner();
        pass_gate(w);
        if (st == VB_OK)
            st = p_push(w, &board->tally, make_gradient, (uint64_t)i, own);
    }
    return st;
}

/* Checks that the final parameters count all gradients that the workers have begun. */
static int check_final(const struct ps_worker *w, const float *params, uint64_t version)
{
    int wrong = T_WRONG(version == (uint64_t)w->job->steps), c;

    if (w->job->words > 0)
        return wrong;
    if (w->job->sparse) {
        for (c = 0; c < P_KEYS; c++)
            wrong += T_WRONG((double)params[c] == -(double)board->tally.of_key[c]);
        return wrong;
    }
    for (c = 0; c < vb_ps_clients(w->job); c++) {
        double begun = (double)board->tally.begun[c], least = begun;

        /* the last gradients of a killed worker may be missing */
        least -= c == board->mortal ? w->lay.slots : 0;
        wrong += T_WRONG(-(double)params[c] <= begun && -(double)params[c] >= least);
    }
    return wrong + p_check_counts(w, params, version, w->job->servers == 1);
}

static bool server_is_gone(void *arg)
{
    const struct ps_worker *w = arg;

    return vb_group_gone(w->group, vb_ps_server_rank(w->job, 0));
}

static vb_status join(struct vb_group *g, struct ps_worker **w_p)
{
    vb_status st = vb_ps_worker_join(g, &board->job, w_p);

    board->joined = true;
    if (st == VB_OK && board->hello_after)
        st = vb_group_wait(g, server_is_gone, *w_p, "a server's end", -1);
    return st == VB_OK ? vb_ps_worker_hello(*w_p, false) : st;
}

/* The standby sends a worker away that has lost a server which lives. */
static bool was_sent_away(const struct ps_worker *w)
{
    int standby = vb_ps_standby_rank(w->job, 0);

    board->sent_away = vb_group_end(w->group, standby) == VB_END_DROPPED_US;
    return board->sent_away;
}

static int work(struct vb_group *g, bool late)
{
    const struct ps_job *job = &board->job;
    float *own = calloc(job->n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = 0;
    vb_status st = late ? join(g, &w) : vb_ps_worker_create(g, job, &w);

    board->opened++;
    if (st == VB_OK)
        st = job->sparse ? p_sparse_steps(w, &board->tally, &wrong) : dense_steps(w, own, &wrong);
    if (st == VB_OK && wrong == 0)
        st = vb_ps_worker_end(w, own, NULL, &version);
    if (st == VB_OK && wrong == 0)
        st = vb_ps_worker_bye(w);
    if (st == VB_OK && wrong == 0)
        wrong = check_final(w, own, version);
    if (st == VB_ERR_PEER && w->number == board->deserter && was_sent_away(w))
        st = VB_OK;
    wrong += T_WRONG(st == (board->to_stop ? VB_ERR_PEER : VB_OK));
    vb_ps_worker_close(w);
    free(own);
    return wrong;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void make_momentum(void)
{
    board->job.words = 1;
    board->job.rule = (struct vb_k_rule){.kind = VB_K_MOMENTUM, .momentum = .9f};
    board->job.schedule.base = .01;
}

static int kill_dense(enum vb_transport_choice transport, int64_t bound, size_t n, uint64_t seed)
{
    int i, k, hits = 0, workers = bound == 0 ? 2 : 3;

    for (i = 0; i < KILLS; i++)
        for (k = 1; k <= 2; k++) {
            prepare(transport, workers, k, bound, n);
            hits += run_and_kill(workers + i % k, seed * 100 + (uint64_t)(i * 2 + k));
        }
    return hits;
}

/* Workers get small parameters by replies or from mapped memory, and large ones by get. */
static void a_server_may_die(void **state)
{
    static const size_t sizes[] = {50, 40000};
    int hits = 0;
    size_t t, s;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (s = 0; s < VB_COUNT(sizes); s++)
            hits += kill_dense(transports[t], PS_UNBOUNDED, sizes[s], t * 10 + s);
    assert_true(hits > 0);
}

static void bounds_hold_after_a_failover(void **state)
{
    int hits = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        hits += kill_dense(transports[t], 2, 600, 40 + t);
        hits += kill_dense(transports[t], 0, 600, 50 + t);
    }
    assert_true(hits > 0);
}

static void sparse_servers_may_die(void **state)
{
    int i, k, hits = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < KILLS; i++)
            for (k = 1; k <= 2; k++) {
                prepare(transports[t], 3, k, i == 1 ? 2 : PS_UNBOUNDED, P_KEYS);
                make_sparse();
                hits += run_and_kill(3 + i % k, 600 + t * 10 + (uint64_t)(i * 2 + k));
            }
    assert_true(hits > 0);
}

static void a_standby_may_die(void **state)
{
    int i, hits = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < KILLS; i++) {
            prepare(transports[t], 2, 1 + i % 2, i == 2 ? 0 : PS_UNBOUNDED, 50);
            hits += run_and_kill(vb_ps_standby_rank(&board->job, 0), 700 + t * 10 + (uint64_t)i);
        }
    assert_true(hits > 0);
}

/* With momentum and random gradients, a server and its standby must have the same bits at the same
 * version. */
static void server_and_standby_have_the_same_bits(void **state)
{
    static const int64_t bounds[] = {PS_UNBOUNDED, 2, 0};
    size_t t, b, size;
    int k, one, other;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (b = 0; b < VB_COUNT(bounds); b++) {
            prepare(transports[t], 3, 2, bounds[b], 600);
            make_momentum();
            begin();
            end();
            assert_int_equal(board->faults, 0);
            for (k = 0; k < 2; k++) {
                one = vb_ps_server_rank(&board->job, k);
                other = vb_ps_standby_rank(&board->job, k);
                size = 600 * sizeof(float);
                assert_int_equal(board->version[one], board->job.steps);
                assert_int_equal(board->version[other], board->job.steps);
                assert_memory_equal(board->params[one], board->params[other], size);
                assert_memory_equal(board->state[one], board->state[other], size);
                assert_true(board->state[one][0] != 0);
            }
        }
}

/* With a bound of 0, a run in which a server dies must end with the bits of a run without a
 * death. */
static void a_death_changes_no_bit(void **state)
{
    static float in_peace[2][600];
    size_t t;
    int i, k, hits = 0;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 3, 2, 0, 600);
        make_momentum();
        begin();
        end();
        for (k = 0; k < 2; k++)
            memcpy(in_peace[k], board->params[vb_ps_server_rank(&board->job, k)],
                   sizeof(in_peace[k]));
        for (i = 0; i < KILLS; i++) {
            prepare(transports[t], 3, 2, 0, 600);
            make_momentum();
            hits += run_and_kill(vb_ps_server_rank(&board->job, i % 2), 800 + t * 10 + (uint64_t)i);
            for (k = 0; k < 2; k++)
                assert_memory_equal(board->params[vb_ps_standby_rank(&board->job, k)], in_peace[k],
                                    sizeof(in_peace[k]));
            k = 1 - i % 2;
            assert_memory_equal(board->params[vb_ps_server_rank(&board->job, k)], in_peace[k],
                                sizeof(in_peace[k]));
        }
    }
    assert_true(in_peace[0][0] != 0 && hits > 0);
}

/* The standby dies first, then the server. The job must fail, because the parameters are lost. */
static void the_death_of_both_ends_the_job(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 2, 1, PS_UNBOUNDED, 50);
        board->job.steps = 1000000;
        board->to_stop = true;
        begin();
        assert_true(kill_at(3, 20, 0));
        assert_true(kill_at(2, board->tally.total + 50, 1000000));
        end();
    }
}

/* A worker joins a job with k servers, and one server dies. The server dies while the worker joins
 * (meanwhile) or just before. */
static void join_around_a_death(enum vb_transport_choice transport, int k, bool meanwhile)
{
    prepare(transport, 2, k, PS_UNBOUNDED, 50);
    board->job.join_slots = 1;
    /* the job must not end before the worker has joined */
    board->job.steps *= t_rdma_only() ? 200 : 20;
    board->hello_after = meanwhile;
    begin();
    if (!meanwhile)
        assert_true(kill_at(2, 20, 0));
    pids[world_of(&board->job)] = start(-1);
    if (meanwhile) {
        UNTIL(board->joined);
        assert_true(kill_at(2, 1, 0));
    }
    end();
    assert_true(board->tally.begun[2] > 0);
}

/* The server dies before the joiner has sent its hello, so the hello arrives during the
 * failover. */
static void a_worker_may_join_during_a_failover(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        join_around_a_death(transports[t], 1, true);
        join_around_a_death(transports[t], 2, true);
    }
}

/* When the worker joins, some ranks have noticed the death of the server, and others have not. */
static void a_worker_may_join_after_a_failover(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        join_around_a_death(transports[t], 1, false);
        join_around_a_death(transports[t], 2, false);
    }
}

/* The other ranks give up a server that stops responding. If this server shares memory with them,
 * they kill it, because it could wake up in the middle of a put. */
static void a_stopped_server_is_replaced(void **state)
{
    size_t t;
    int status;
    pid_t pid;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 2, 1, PS_UNBOUNDED, 50);
        board->patience = .5;
        board->gate = 60;
        begin();
        UNTIL(board->opened >= world_of(&board->job) && board->tally.total >= 20);
        pid = pids[2];
        assert_int_equal(kill(pid, SIGSTOP), 0);
        board->gate = 0;
        pids[2] = 0;
        end();
        if (transports[t] != VB_TRANSPORT_SHM)
            assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(board->faults > 0);
    }
}

/* The connection between a worker and the server fails, but both live, and the standby reaches
 * both. The worker must not wait until the job ends. The job goes on without it until its last
 * step, which waits for the worker's end. */
static void a_worker_that_has_lost_a_living_server_is_sent_away(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 3, 1, PS_UNBOUNDED, 50);
        board->deserter = board->mortal = 2;
        board->gate = 60;
        begin();
        UNTIL(board->sent_away);
        board->gate = 0;
        end();
        assert_int_equal(board->faults, 2); /* the server reports it, and its standby */
        assert_int_equal(board->version[vb_ps_server_rank(&board->job, 0)], board->job.steps);
    }
}

/* Worker 0 gets a request for one evaluation. Then worker 0 dies, and so does the server. No other
 * worker may get a request for the same evaluation. */
static void an_evaluation_is_not_requested_twice(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 3, 1, PS_UNBOUNDED, 50);
        board->job.eval_every = board->job.steps * 10;
        board->job.steps *= 20;
        board->mortal = 0;
        board->gate = board->job.eval_every + 100;
        begin();
        UNTIL(board->evals[0] == 1);
        assert_true(kill_at(0, 1, 0));
        board->gate = board->tally.total + 100;
        assert_true(kill_at(3, board->tally.total + 50, 0));
        board->gate = 0;
        end();
        assert_true(board->faults > 0);
        assert_int_equal(board->evals[1], 0);
        assert_int_equal(board->evals[2], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_server_may_die, tear_down),
        cmocka_unit_test_teardown(bounds_hold_after_a_failover, tear_down),
        cmocka_unit_test_teardown(sparse_servers_may_die, tear_down),
        cmocka_unit_test_teardown(a_standby_may_die, tear_down),
        cmocka_unit_test_teardown(server_and_standby_have_the_same_bits, tear_down),
        cmocka_unit_test_teardown(the_death_of_both_ends_the_job, tear_down),
        cmocka_unit_test_teardown(a_death_changes_no_bit, tear_down),
        cmocka_unit_test_teardown(a_worker_may_join_during_a_failover, tear_down),
        cmocka_unit_test_teardown(a_worker_may_join_after_a_failover, tear_down),
        cmocka_unit_test_teardown(a_stopped_server_is_replaced, tear_down),
        cmocka_unit_test_teardown(a_worker_that_has_lost_a_living_server_is_sent_away, tear_down),
        cmocka_unit_test_teardown(an_evaluation_is_not_requested_twice, tear_down),
    };

    worker = work;
    return make_board() ? T_RUN(tests) : 1;
}
