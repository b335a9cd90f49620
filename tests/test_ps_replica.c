/* SPDX-License-Identifier: MIT
 *
 * Servers with standbys, under kill -9 at random instants: every gradient counts exactly once in
 * the final parameters, versions are right, snapshots are those of one moment. Server and standby
 * end with the same bits.
 *
 * As in test_ps.c a gradient of worker w is 1 at every parameter of class w (sparse: at its keys),
 * and a step takes it off. Ranks are processes, and share a board with the test.
 */
#include "tests/replica.h"

/* ---- workers --------------------------------------------------------------------------------- */

/* In each shard a class has one number, and with one server they add up to the version. */
static int check_counts(const struct ps_worker *w, const float *params, uint64_t version)
{
    size_t i, classes = (size_t)w->job->workers;
    double sum = 0;
    int wrong = 0, k;

    for (k = 0; k < w->job->servers; k++) {
        const float *shard = params + w->lay.first[k];

        for (i = 0; i < w->lay.n[k]; i++)
            wrong += shard[i] != shard[i % classes];
    }
    for (i = 0; i < classes; i++)
        sum -= (double)params[i];
    wrong +=
        w->job->servers == 1 && sum != (double)version * (double)(w->job->bound == 0 ? classes : 1);
    if (wrong > 0)
        fprintf(stderr, "version %llu has %g gradients, %d parameters differ\n",
                (unsigned long long)version, sum, wrong);
    return wrong;
}

/* The ticket of its step number `own` means that no other is more than bound behind. */
static int check_bound(int64_t own)
{
    int w, wrong = 0;

    for (w = 0; w < board->job.workers && board->job.bound >= 0; w++)
        wrong += board->begun[w] < own - board->job.bound;
    return T_WRONG(wrong == 0);
}

/* Random numbers where the bits of two servers are compared. */
static void make_gradient(const struct ps_worker *w, uint64_t step, float *grads)
{
    size_t i, n = w->job->n, classes = (size_t)w->job->workers;

    for (i = 0; i < n; i++)
        grads[i] = (int)(i % classes) == w->number ? 1 : 0;
    if (w->job->words == 0)
        return;
    for (i = 0; i < n; i++)
        grads[i] = (float)(vb_random(step * 8 + (uint64_t)w->number, i) % 1000) / 999.f - .5f;
}

static vb_status push_one(struct ps_worker *w, uint64_t step, float *own)
{
    const float *params;
    float *grads;
    vb_status st = ps_worker_pull(w, &params);

    if (st == VB_OK)
        st = ps_worker_grads(w, &grads);
    if (st != VB_OK)
        return st;
    grads = grads != NULL ? grads : own;
    make_gradient(w, step, grads);
    board->begun[w->number]++;
    board->total++;
    st = ps_worker_push(w, grads, 1, 1);
    return st == VB_OK ? ps_worker_prefetch(w) : st;
}

static vb_status snapshot(struct ps_worker *w, float *params, int *wrong_p)
{
    uint64_t version = 0;
    vb_status st = ps_worker_snapshot(w, params, NULL, &version);

    if (st == VB_OK && w->job->words == 0)
        *wrong_p += check_counts(w, params, version);
    return st;
}

static vb_status dense_steps(struct ps_worker *w, float *own, int *wrong_p)
{
    vb_status st = VB_OK;
    bool go = true;
    int64_t i;

    for (i = 0; st == VB_OK && *wrong_p == 0; i++) {
        st = ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        *wrong_p += check_bound(i);
        if (i % 37 == 5)
            st = snapshot(w, own, wrong_p);
        pause_at_random((uint64_t)w->number, (uint64_t)i);
        if (st == VB_OK)
            st = push_one(w, (uint64_t)i, own);
    }
    return st;
}

static size_t draw_keys(uint64_t seed, uint64_t i, uint32_t *keys)
{
    uint32_t k;
    size_t n = 0;

    for (k = 0; k < KEYS && n < ROW; k++)
        if (vb_random(seed * 1000 + i, k) % 12 == 0 || (k == KEYS - 1 && n == 0))
            keys[n++] = k;
    return n;
}

static vb_status sparse_steps(struct ps_worker *w, int *wrong_p)
{
    uint64_t i = 0, seed = (uint64_t)w->number + 1;
    uint32_t keys[2][ROW];
    const float *values;
    float ones[ROW];
    size_t n[2], j;
    bool go = true;
    vb_status st;

    for (j = 0; j < ROW; j++)
        ones[j] = 1;
    n[0] = draw_keys(seed, 0, keys[0]);
    st = ps_worker_ask(w, keys[0], n[0]);
    for (; st == VB_OK && *wrong_p == 0; i++) {
        uint32_t *now = keys[i % 2], *next = keys[(i + 1) % 2];

        st = ps_worker_ticket(w, &go);
        if (!go || st != VB_OK)
            break;
        *wrong_p += check_bound((int64_t)i);
        st = ps_worker_values(w, now, n[i % 2], &values);
        for (j = 0; st == VB_OK && j < n[i % 2]; j++)
            *wrong_p += T_WRONG((double)-values[j] <= (double)board->of_key[now[j]]);
        pause_at_random(seed, i);
        n[(i + 1) % 2] = draw_keys(seed, i + 1, next);
        for (j = 0; j < n[i % 2]; j++)
            board->of_key[now[j]]++;
        board->begun[w->number]++;
        board->total++;
        if (st == VB_OK)
            st = ps_worker_push_sparse(w, now, ones, n[i % 2], 1, 1, next, n[(i + 1) % 2]);
    }
    return st;
}

/* The final parameters count all gradients that were begun. */
static int check_final(const struct ps_worker *w, const float *params, uint64_t version)
{
    int wrong = T_WRONG(version == (uint64_t)w->job->steps), c;

    if (w->job->words > 0)
        return wrong;
    if (w->job->sparse) {
        for (c = 0; c < KEYS; c++)
            wrong += T_WRONG((double)params[c] == -(double)board->of_key[c]);
        return wrong;
    }
    for (c = 0; c < w->job->workers; c++)
        wrong += T_WRONG((double)params[c] == -(double)board->begun[c]);
    return wrong + check_counts(w, params, version);
}

static int worker(struct vb_group *g, bool late)
{
    const struct ps_job *job = &board->job;
    float *own = calloc(job->n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = T_WRONG(!late);
    vb_status st = ps_worker_create(g, job, &w);

    board->opened++;
    if (st == VB_OK)
        st = job->sparse ? sparse_steps(w, &wrong) : dense_steps(w, own, &wrong);
    if (st == VB_OK && wrong == 0)
        st = ps_worker_end(w, own, NULL, &version);
    if (st == VB_OK && wrong == 0)
        st = ps_worker_bye(w);
    if (st == VB_OK && wrong == 0)
        wrong = check_final(w, own, version);
    wrong += T_WRONG(st == (board->to_stop ? VB_ERR_PEER : VB_OK));
    ps_worker_close(w);
    free(own);
    return wrong;
}

/* ---- runs ------------------------------------------------------------------------------------ */

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

/* By replies or from memory that is mapped, then by get. */
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

static void bounds_hold_beyond_it(void **state)
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

static void sparse_ones_may_die(void **state)
{
    int i, k, hits = 0;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < KILLS; i++)
            for (k = 1; k <= 2; k++) {
                prepare(transports[t], 3, k, i == 1 ? 2 : PS_UNBOUNDED, KEYS);
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
            hits += run_and_kill(ps_standby_rank(&board->job, 0), 700 + t * 10 + (uint64_t)i);
        }
    assert_true(hits > 0);
}

/* Momentum, and gradients of random numbers: equal versions, equal bits. */
static void both_have_the_same_bits(void **state)
{
    static const int64_t bounds[] = {PS_UNBOUNDED, 2, 0};
    size_t t, b, size;
    int k, one, other;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (b = 0; b < VB_COUNT(bounds); b++) {
            prepare(transports[t], 3, 2, bounds[b], 600);
            board->job.words = 1;
            board->job.rule = (struct vb_k_rule){.kind = VB_K_MOMENTUM, .momentum = .9f};
            board->job.schedule.base = .01;
            begin();
            end();
            assert_int_equal(board->faults, 0);
            for (k = 0; k < 2; k++) {
                one = ps_server_rank(&board->job, k);
                other = ps_standby_rank(&board->job, k);
                size = 600 * sizeof(float);
                assert_int_equal(board->version[one], board->job.steps);
                assert_int_equal(board->version[other], board->job.steps);
                assert_memory_equal(board->params[one], board->params[other], size);
                assert_memory_equal(board->state[one], board->state[other], size);
                assert_true(board->state[one][0] != 0);
            }
        }
}

/* The standby dies, then the server: that is the end, and nobody goes on with what it lacks. */
static void both_may_not_die(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 2, 1, PS_UNBOUNDED, 50);
        board->job.steps = 1000000;
        board->to_stop = true;
        begin();
        assert_true(kill_at(3, 20, 0));
        assert_true(kill_at(2, board->total + 50, 1000000));
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_server_may_die, tear_down),
        cmocka_unit_test_teardown(bounds_hold_beyond_it, tear_down),
        cmocka_unit_test_teardown(sparse_ones_may_die, tear_down),
        cmocka_unit_test_teardown(a_standby_may_die, tear_down),
        cmocka_unit_test_teardown(both_have_the_same_bits, tear_down),
        cmocka_unit_test_teardown(both_may_not_die, tear_down),
    };

    return make_board() ? T_RUN(tests) : 1;
}
