/* SPDX-License-Identifier: MIT
 *
 * Tests the death of a server where it affects more than the number of gradients: rounds that do
 * not wait for the last worker, update rules that are applied lazily, and workers that join after
 * the death.
 *
 * Covers: engine/ps/ps_apply.c engine/ps/ps_failover.c engine/ps/ps_replica.c
 * Covers: kernels/sparse/lazy.c
 */
#include "tests/support/replica.h"

/* Pushes a gradient. Calls vb_ps_worker_grads() each time, because the memory for the gradient may
 * change. */
static vb_status push(struct ps_worker *w, const float *own)
{
    float *grads;
    vb_status st = vb_ps_worker_grads(w, &grads);

    if (st == VB_OK && grads != NULL)
        memcpy(grads, own, w->job->n * sizeof(*own));
    if (st == VB_OK)
        st = vb_ps_worker_push(w, own, 1, 1);
    return st == VB_OK ? vb_ps_worker_prefetch(w) : st;
}

/* ---- rounds with a backup -------------------------------------------------------------------- */

/* Each class counts the gradients of one worker. The values that a round subtracts sum up to the
 * number of classes, whatever number of gradients the round has. */
static int check_rounds(const struct ps_worker *w, const float *params, uint64_t version)
{
    size_t i, classes = (size_t)w->job->workers;
    double sum = 0;
    int wrong = T_WRONG(version == (uint64_t)w->job->steps);

    for (i = 0; i < w->job->n; i++)
        wrong += params[i] != params[i % classes];
    for (i = 0; i < classes; i++)
        sum -= (double)params[i];
    return wrong + T_WRONG(sum == (double)version * (double)classes);
}

/* Makes the steps of a worker. The last worker is slow, so that its gradients are dropped. */
static vb_status backup_steps(struct ps_worker *w, float *own)
{
    struct timespec slow = {.tv_nsec = 1000000};
    const float *params;
    vb_status st = VB_OK;
    bool go = true;
    uint64_t i;
    size_t j;

    for (j = 0; j < w->job->n; j++)
        own[j] = (int)(j % (size_t)w->job->workers) == w->number ? 1.f : 0.f;
    for (i = 0; st == VB_OK; i++) {
        st = vb_ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        st = vb_ps_worker_pull(w, &params);
        p_pause(&board->tally, (uint64_t)w->number, i);
        if (w->number == w->job->workers - 1 && i % 4 == 0)
            nanosleep(&slow, NULL);
        board->tally.total++;
        if (st == VB_OK)
            st = push(w, own);
    }
    return st;
}

/* ---- update rules that are applied lazily ---------------------------------------------------- */

/* Computes gradients from the received weights, so that a wrong weight affects all later steps. */
static void make_values(const struct ps_worker *w, uint64_t i, const float *weights, size_t n,
                        float *values)
{
    size_t j;

    for (j = 0; j < n; j++)
        values[j] = .1f * weights[j] +
                    (float)(vb_random(i * 8 + (uint64_t)w->number, j) % 1000) / 999.f - .5f;
}

static vb_status lazy_step(struct ps_worker *w, uint64_t i, uint32_t keys[2][P_ROW], size_t n[2])
{
    int now = (int)(i % 2), next = 1 - now;
    const float *weights;
    float values[P_ROW];
    vb_status st = vb_ps_worker_values(w, keys[now], n[now], &weights);

    if (st != VB_OK)
        return st;
    make_values(w, i, weights, n[now], values);
    p_pause(&board->tally, (uint64_t)w->number, i);
    n[next] = p_draw_keys((uint64_t)w->number + 1, i + 1, keys[next]);
    board->tally.total++;
    return vb_ps_worker_push_sparse(w, keys[now], values, n[now], 1, 1, keys[next], n[next]);
}

/* Makes the steps of a worker and takes snapshots with the optimizer state, as for checkpoints. */
static vb_status lazy_steps(struct ps_worker *w)
{
    static float params[P_KEYS], state[2 * P_KEYS];
    uint32_t keys[2][P_ROW];
    uint64_t i, version;
    bool go = true;
    size_t n[2];
    vb_status st;

    n[0] = p_draw_keys((uint64_t)w->number + 1, 0, keys[0]);
    st = vb_ps_worker_ask(w, keys[0], n[0]);
    for (i = 0; st == VB_OK; i++) {
        st = vb_ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        if (w->number == 0 && i % 7 == 3)
            st = vb_ps_worker_snapshot(w, params, state, &version);
        if (st == VB_OK)
            st = lazy_step(w, i, keys, n);
    }
    return st;
}

/* ---- workers that join after the death ------------------------------------------------------- */

static vb_status steps_until_told(struct ps_worker *w, float *own)
{
    struct timespec nap = {.tv_nsec = 200000};
    size_t j, classes = (size_t)vb_ps_clients(w->job);
    const float *params;
    vb_status st = VB_OK;
    bool go = true;

    for (j = 0; j < w->job->n; j++)
        own[j] = j % classes == (size_t)w->number ? 1.f : 0.f;
    while (st == VB_OK && go && !board->stop) {
        st = vb_ps_worker_ticket(w, &go);
        if (st == VB_OK)
            st = vb_ps_worker_pull(w, &params);
        board->tally.begun[w->number]++;
        board->tally.total++;
        if (st == VB_OK)
            st = push(w, own);
        board->joined = board->joined || w->number >= w->job->workers;
        nanosleep(&nap, NULL);
    }
    return st;
}

static int check_slots(const struct ps_worker *w, const float *params)
{
    int c, wrong = 0;

    for (c = 0; c < vb_ps_clients(w->job); c++)
        wrong += T_WRONG((double)params[c] == -(double)board->tally.begun[c]);
    return wrong;
}

/* ---- all workers ----------------------------------------------------------------------------- */

static vb_status steps(struct ps_worker *w, float *own)
{
    if (w->job->join_slots > 0)
        return steps_until_told(w, own);
    return w->job->sparse ? lazy_steps(w) : backup_steps(w, own);
}

static int check(const struct ps_worker *w, const float *params, uint64_t version)
{
    if (w->job->join_slots > 0)
        return check_slots(w, params);
    return w->job->sparse ? 0 : check_rounds(w, params, version);
}

static vb_status take_part(struct ps_worker *w, float *own, int *wrong_p)
{
    uint64_t version;
    vb_status st = steps(w, own);

    if (st == VB_OK)
        st = vb_ps_worker_end(w, own, NULL, &version);
    if (st == VB_OK)
        *wrong_p = check(w, own, version);
    return st == VB_OK ? vb_ps_worker_bye(w) : st;
}

static int work(struct vb_group *g, bool late)
{
    const struct ps_job *job = &board->job;
    float *own = calloc(job->n, sizeof(*own));
    struct ps_worker *w = NULL;
    int wrong = 0;
    vb_status st = late ? vb_ps_worker_join(g, job, &w) : vb_ps_worker_create(g, job, &w);

    board->opened++;
    if (late && st == VB_ERR_ACCESS) {
        board->refused++;
        free(own);
        return 0;
    }
    if (st == VB_OK && late)
        st = vb_ps_worker_hello(w, false);
    if (st == VB_OK)
        st = take_part(w, own, &wrong);
    vb_ps_worker_close(w);
    free(own);
    return wrong + T_WRONG(st == VB_OK);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Returns the rank that was the server at the end. If a server dies after it has sent its last
 * message, the standby sends this message again. */
static int last_server(void)
{
    int one = vb_ps_server_rank(&board->job, 0);

    return board->version[one] > 0 ? one : vb_ps_standby_rank(&board->job, 0);
}

/* Every gradient must be either part of a round or dropped, whichever server received it. */
static void rounds_with_a_backup_survive_a_death(void **state)
{
    int i, who, hits = 0;
    int64_t dropped = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < 2 * KILLS; i++) {
            prepare(transports[t], 3, 1, 0, i % 2 == 0 ? 60 : 20000);
            board->job.backup = 1;
            hits += run_and_kill(3, 800 + t * 10 + (uint64_t)i);
            who = last_server();
            assert_int_equal(board->took[who] + board->dropped[who], board->tally.total);
            dropped += board->dropped[who];
        }
    assert_true(hits > 0);
    assert_true(dropped > 0);
}

static void make_lazy(enum vb_transport_choice transport, enum vb_k_rule_kind kind)
{
    prepare(transport, 3, 2, 0, P_KEYS);
    make_sparse();
    board->job.rule = (struct vb_k_rule){.kind = kind, .momentum = .9f, .decay = .01f};
    board->job.words = vb_k_sparse_words(&board->job.rule);
    board->job.schedule.base = .05;
}

/* Returns the final parameters of shard k from the server or its standby, or NULL if both are
 * dead. */
static const float *final_of(int k)
{
    int one = vb_ps_server_rank(&board->job, k), other = vb_ps_standby_rank(&board->job, k);

    if (board->version[one] == (uint64_t)board->job.steps)
        return board->params[one];
    return board->version[other] == (uint64_t)board->job.steps ? board->params[other] : NULL;
}

/* With a bound of 0 the result of all steps is determined, so a run in which a server dies must end
 * with the same bits. */
static void lazy_rules_have_the_same_bits(void **state)
{
    static const enum vb_k_rule_kind kinds[] = {VB_K_MOMENTUM, VB_K_NESTEROV, VB_K_SGD};
    static float want[2][P_KEYS];
    int k, i, hits = 0;
    size_t t;

    (void)state;
    for (i = 0; i < KILLS; i++) {
        make_lazy(transports[0], kinds[i]);
        begin();
        end();
        for (k = 0; k < 2; k++)
            memcpy(want[k], board->params[vb_ps_server_rank(&board->job, k)], sizeof(want[k]));
        for (t = 0; t < n_transports; t++) {
            make_lazy(transports[t], kinds[i]);
            hits += run_and_kill(3 + i % 2, 900 + t * 10 + (uint64_t)i);
            for (k = 0; k < 2; k++) {
                assert_non_null(final_of(k));
                assert_memory_equal(want[k], final_of(k), sizeof(want[k]));
            }
        }
    }
    assert_true(hits > 0);
}

/* The group has one slot for a joiner, and the slot of the dead server. The first joiner takes
 * part, the second one is refused with a reason, and the job continues. */
static void the_slot_of_a_dead_server_stays_empty(void **state)
{
    int64_t total;
    int status;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 2, 1, PS_UNBOUNDED, 60);
        board->job.join_slots = 1;
        board->job.steps = INT64_MAX;
        begin();
        assert_true(kill_at(2, 50, 0));
        pids[4] = start(-1);
        UNTIL(board->joined);
        pids[5] = start(-1);
        assert_int_equal(waitpid(pids[5], &status, 0), pids[5]);
        pids[5] = 0;
        assert_int_equal(status, 0);
        assert_int_equal(board->refused, 1);
        total = board->tally.total;
        /* now all ranks have noticed that the second joiner left */
        UNTIL(board->tally.total >= total + 300);
        board->stop = true;
        end();
        assert_int_equal(board->faults, 2); /* the death of the server, and the first joiner */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(rounds_with_a_backup_survive_a_death, tear_down),
        cmocka_unit_test_teardown(lazy_rules_have_the_same_bits, tear_down),
        cmocka_unit_test_teardown(the_slot_of_a_dead_server_stays_empty, tear_down),
    };

    worker = work;
    return make_board() ? T_RUN(tests) : 1;
}
