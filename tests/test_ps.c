/* SPDX-License-Identifier: MIT
 *
 * The parameter server under random delays: no gradient is lost or applied twice, snapshots are
 * those of one moment, no worker is further ahead than it may be, and a step allocates nothing.
 *
 * A gradient of worker w is 1 at every parameter of class w, and a step takes it off: so parameters
 * count the gradients of each worker, exactly.
 *
 * Linked with --wrap=malloc and its like.
 */
#include "engine/ps_priv.h"
#include "tests/alloc.h"
#include "tests/ranks.h"

#include <math.h>
#include <time.h>

#define WORKERS_MAX 4
#define KEYS 400
#define ROW 40       /* keys of a batch */
#define DIES_AFTER 5 /* steps: few, for where cores are scarce it may not come to more */

struct run {
    struct ps_job job;
    bool delays;
    size_t nonsense;                    /* which of the pushes that make no sense */
    bool dies;                          /* worker 1 stops half-way, and comes back later */
    _Atomic int64_t begun[WORKERS_MAX]; /* gradients that a worker has begun to push */
    _Atomic uint32_t of_key[KEYS];      /* gradients that have named a key */
    _Atomic bool dead, retired, admitted;
    _Atomic long allocations;           /* of all, in the middle of the run */
    struct vb_stale stale[WORKERS_MAX]; /* as server 0 saw it */
    struct ps_server_stats stats;
};

static void pause_at_random(const struct run *run, uint64_t seed, uint64_t i)
{
    uint64_t r = vb_random(seed, i);
    struct timespec ts = {.tv_nsec = (long)(r % 64 == 0 ? 2000000 : r % 200000)};

    if (run->delays && r % 3 == 0)
        nanosleep(&ts, NULL);
}

/* ---- the server ------------------------------------------------------------------------------ */

/* A worker that has died is retired; when the others have gone on it may take part again. */
static vb_status members(struct run *run, struct ps_server *s)
{
    uint64_t version = atomic_load(&s->head->version);
    vb_status st = VB_OK;

    if (run->dead && !run->retired) {
        st = ps_server_retire(s, 1);
        run->retired = true;
    }
    if (run->retired && !run->admitted && version > (uint64_t)run->job.steps * 3 / 4) {
        st = ps_server_admit(s, 1);
        run->admitted = true;
    }
    return st;
}

static vb_status serve(struct run *run, struct ps_server *s)
{
    vb_status st = ps_server_begin(s);
    uint64_t i = 0;

    while (st == VB_OK && !s->over) {
        st = ps_server_round(s);
        if (st == VB_OK && run->dies)
            st = members(run, s);
        pause_at_random(run, 77, i++);
    }
    return st == VB_OK ? ps_server_finish(s) : st;
}

static int server(struct vb_group *g, struct run *run)
{
    float *zero = calloc(run->job.n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = ps_server_create(g, &run->job, zero, NULL, &s);
    int w;

    if (st == VB_OK)
        st = serve(run, s);
    if (st == VB_OK && s->k == 0) {
        run->stats = s->stats;
        for (w = 0; w < run->job.workers; w++)
            run->stale[w] = s->seats[w].stale;
    }
    ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK);
}

/* ---- what workers check ---------------------------------------------------------------------- */

/* In each shard a class has one number, and with one server they add up to the version. */
static int check_counts(const struct run *run, const struct ps_worker *w, const float *params,
                        uint64_t version, bool exact)
{
    size_t i, classes = (size_t)run->job.workers;
    double sum = 0;
    int wrong = 0, k;

    for (k = 0; k < run->job.servers; k++) {
        const float *shard = params + w->lay.first[k];

        for (i = 0; i < w->lay.n[k]; i++)
            wrong += shard[i] != shard[i % classes];
    }
    for (i = 0; i < classes; i++)
        sum -= (double)params[i];
    /* a round has one of each worker */
    wrong += exact && sum != (double)version * (run->job.bound == 0 ? run->job.workers : 1);
    if (wrong > 0)
        fprintf(stderr, "version %llu has %g gradients, %d parameters differ\n",
                (unsigned long long)version, sum, wrong);
    return wrong;
}

/* The ticket of its step number `own` means that no other is more than bound behind. */
static int check_bound(const struct run *run, int64_t own)
{
    int w, wrong = 0;

    for (w = 0; w < run->job.workers && run->job.bound >= 0; w++)
        wrong += run->begun[w] < own - run->job.bound;
    return T_WRONG(wrong == 0);
}

static int check_snapshot(const struct run *run, struct ps_worker *w, float *params)
{
    uint64_t version = 0;

    if (ps_worker_snapshot(w, params, NULL, &version) != VB_OK)
        return 1;
    return check_counts(run, w, params, version, run->job.servers == 1);
}

/* ---- dense workers --------------------------------------------------------------------------- */

static bool all_is_in(void *arg)
{
    const struct ps_worker *w = arg;

    return w->links[0].acked == w->pushed;
}

/* All that it has pushed was taken in, so nothing is on its way when it comes back. */
static vb_status die(struct run *run, struct ps_worker *w)
{
    vb_status st = vb_group_wait(w->group, all_is_in, w, "acknowledgements", -1);

    ps_worker_restart(w);
    run->dead = true;
    return st;
}

static vb_status push_one(struct run *run, struct ps_worker *w, float *own)
{
    const float *params;
    float *grads;
    vb_status st = ps_worker_pull(w, &params);
    size_t i;

    if (st == VB_OK)
        st = ps_worker_grads(w, &grads);
    if (st != VB_OK)
        return st;
    grads = grads != NULL ? grads : own;
    for (i = 0; i < run->job.n; i++)
        grads[i] = (int)(i % (size_t)run->job.workers) == w->number ? 1 : 0;
    run->begun[w->number]++;
    st = ps_worker_push(w, grads, 1, 1);
    return st == VB_OK ? ps_worker_prefetch(w) : st;
}

static void count_allocations(struct run *run, int64_t i)
{
    if (i == run->job.steps / 16)
        run->allocations = -t_allocations;
    if (i == run->job.steps / 8)
        run->allocations += t_allocations;
}

static int dense_steps(struct run *run, struct ps_worker *w, float *own)
{
    int64_t i = 0;
    int wrong = 0;
    bool go = true;

    while (go && wrong == 0) {
        wrong += T_WRONG(ps_worker_ticket(w, &go) == VB_OK);
        if (!go || wrong > 0)
            break;
        wrong += check_bound(run, i);
        if (run->delays && i % 37 == 5)
            wrong += check_snapshot(run, w, own);
        pause_at_random(run, (uint64_t)w->number, (uint64_t)i);
        wrong += T_WRONG(push_one(run, w, own) == VB_OK);
        if (w->number == 0)
            count_allocations(run, i);
        if (run->dies && w->number == 1 && ++i == DIES_AFTER)
            wrong += T_WRONG(die(run, w) == VB_OK);
        else
            i += !(run->dies && w->number == 1);
    }
    return wrong;
}

static int dense_worker(struct vb_group *g, struct run *run)
{
    float *own = calloc(run->job.n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = T_WRONG(ps_worker_create(g, &run->job, &w) == VB_OK), c;

    if (wrong == 0)
        wrong = dense_steps(run, w, own);
    if (wrong == 0)
        wrong = T_WRONG(ps_worker_end(w, own, NULL, &version) == VB_OK);
    if (wrong == 0)
        wrong = check_counts(run, w, own, version, true);
    for (c = 0; c < run->job.workers && wrong == 0; c++)
        wrong += T_WRONG((double)own[c] == -(double)run->begun[c]);
    if (wrong > 0)
        vb_group_abort(g, "a worker has found something wrong"); /* nobody is to wait for it */
    ps_worker_close(w);
    free(own);
    return wrong;
}

static int dense_member(struct vb_group *g, void *arg)
{
    struct run *run = arg;

    return vb_group_rank(g) < run->job.workers ? dense_worker(g, run) : server(g, run);
}

/* ---- sparse workers -------------------------------------------------------------------------- */

static size_t draw_keys(uint64_t seed, uint64_t i, uint32_t *keys)
{
    uint32_t k;
    size_t n = 0;

    for (k = 0; k < KEYS && n < ROW; k++)
        if (vb_random(seed * 1000 + i, k) % 12 == 0 || (k == KEYS - 1 && n == 0))
            keys[n++] = k;
    return n;
}

/* What was read cannot be more than what has been pushed by then. */
static int check_values(struct run *run, const uint32_t *keys, const float *values, size_t n)
{
    int wrong = 0;
    size_t i;

    for (i = 0; i < n; i++)
        wrong += values[i] > 0 || values[i] != floorf(values[i]) ||
                 (double)-values[i] > (double)run->of_key[keys[i]];
    return T_WRONG(wrong == 0);
}

static int sparse_steps(struct run *run, struct ps_worker *w)
{
    uint32_t keys[2][ROW];
    const float *values;
    float ones[ROW];
    size_t n[2], j;
    uint64_t i = 0, seed = (uint64_t)w->number + 1;
    bool go = true;
    int wrong;

    for (j = 0; j < ROW; j++)
        ones[j] = 1;
    n[0] = draw_keys(seed, 0, keys[0]);
    wrong = T_WRONG(ps_worker_ask(w, keys[0], n[0]) == VB_OK);
    for (; wrong == 0; i++) {
        uint32_t *now = keys[i % 2], *next = keys[(i + 1) % 2];

        wrong += T_WRONG(ps_worker_ticket(w, &go) == VB_OK);
        if (!go || wrong > 0)
            break;
        wrong += check_bound(run, (int64_t)i);
        wrong += T_WRONG(ps_worker_values(w, now, n[i % 2], &values) == VB_OK);
        wrong += check_values(run, now, values, n[i % 2]);
        pause_at_random(run, seed, i);
        n[(i + 1) % 2] = draw_keys(seed, i + 1, next);
        for (j = 0; j < n[i % 2]; j++)
            run->of_key[now[j]]++;
        run->begun[w->number]++;
        wrong += T_WRONG(
            ps_worker_push_sparse(w, now, ones, n[i % 2], 1, 1, next, n[(i + 1) % 2]) == VB_OK);
    }
    return wrong;
}

static int sparse_worker(struct vb_group *g, struct run *run)
{
    struct ps_worker *w = NULL;
    float params[KEYS];
    uint64_t version = 0;
    int wrong = T_WRONG(ps_worker_create(g, &run->job, &w) == VB_OK), k;

    if (wrong == 0)
        wrong = sparse_steps(run, w);
    if (wrong == 0)
        wrong = T_WRONG(ps_worker_end(w, params, NULL, &version) == VB_OK);
    for (k = 0; k < KEYS && wrong == 0; k++)
        wrong += T_WRONG((double)params[k] == -(double)run->of_key[k]);
    if (wrong > 0)
        vb_group_abort(g, "a worker has found something wrong");
    ps_worker_close(w);
    return wrong;
}

static int sparse_member(struct vb_group *g, void *arg)
{
    struct run *run = arg;

    return vb_group_rank(g) < run->job.workers ? sparse_worker(g, run) : server(g, run);
}

/* ---- pushes that make no sense --------------------------------------------------------------- */

static const struct ps_push nonsense[] = {
    {.flags = PS_NO_GRADIENT, .n_keys = UINT32_MAX},
    {.flags = PS_NO_GRADIENT, .n_values = ROW + 1, .n_keys = 1},
    {.flags = PS_NO_GRADIENT, .n_keys = ROW, .reply_at = 1},
    {.flags = PS_OWN_KEYS, .n_keys = 2, .n_values = 1},
    {.flags = PS_OWN_KEYS, .samples = UINT32_MAX},
    {.flags = PS_OWN_KEYS, .seq = 7},
};

static int push_nonsense(struct vb_group *g, const struct run *run)
{
    struct ps_worker *w = NULL;
    vb_status st = ps_worker_create(g, &run->job, &w);

    if (st == VB_OK) {
        memcpy((char *)vb_window_ptr(w->slots) + w->lay.push[0], &nonsense[run->nonsense],
               sizeof(struct ps_push));
        st = ps_put(g, w->slots, w->links[0].rank, w->lay.push[0], 0, sizeof(struct ps_push),
                    PS_NOTE(PS_PUSH, 0), &w->links[0].push_ops[0]);
    }
    if (st == VB_OK)
        st = vb_op_wait(g, &w->links[0].push_ops[0], "a push", -1);
    ps_worker_close(w);
    return T_WRONG(st == VB_OK);
}

static int nonsense_member(struct vb_group *g, void *arg)
{
    struct run *run = arg;
    struct ps_server *s = NULL;
    float zero[KEYS] = {0};
    vb_status st;

    if (vb_group_rank(g) < run->job.workers)
        return push_nonsense(g, run);
    st = ps_server_create(g, &run->job, zero, NULL, &s);
    if (st == VB_OK)
        st = ps_server_run(s);
    ps_server_close(s);
    return T_WRONG(st == VB_ERR_INPUT);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const enum vb_transport_choice transports[] = {VB_TRANSPORT_SHM, VB_TRANSPORT_TCP};

static void prepare(struct run *run, int workers, int servers, int64_t bound, size_t n)
{
    *run = (struct run){.job = {.workers = workers,
                                .servers = servers,
                                .bound = bound,
                                .n = n,
                                .steps = 300,
                                .rule = {.kind = VB_K_SGD},
                                .schedule = {.kind = VB_K_RATE_CONSTANT, .base = 1}},
                        .delays = true};
}

static void go(struct run *run, enum vb_transport_choice transport, t_rank_fn fn)
{
    struct t_job job = {
        .transport = transport, .world = run->job.workers + run->job.servers, .fn = fn, .arg = run};
    int64_t begun = 0;
    int w;

    t_as_threads(&job);
    for (w = 0; w < run->job.workers; w++)
        begun += run->begun[w];
    if (run->job.bound != 0) {
        assert_int_equal(begun, run->job.steps);
        assert_int_equal(run->stats.applied, run->job.steps);
    }
}

/* By replies, by get, from memory that is mapped; one server and several. */
static void no_gradient_is_lost(void **state)
{
    static const size_t sizes[] = {50, 40000};
    struct run run;
    size_t t, s;
    int k;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (s = 0; s < VB_COUNT(sizes); s++)
            for (k = 1; k <= 2; k++) {
                prepare(&run, 3, k, PS_UNBOUNDED, sizes[s]);
                go(&run, transports[t], dense_member);
            }
}

static void nobody_runs_ahead(void **state)
{
    struct run run;
    int64_t bound;
    size_t t;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (bound = 1; bound <= 4; bound += 3) {
            prepare(&run, 3, 1, bound, 600);
            go(&run, transports[t], dense_member);
            prepare(&run, 2, 2, bound, 40000);
            go(&run, transports[t], dense_member);
        }
}

static void sparse_gradients_neither(void **state)
{
    struct run run;
    size_t t;
    int k;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (k = 1; k <= 3; k++) {
            prepare(&run, 3, k, k == 2 ? 2 : PS_UNBOUNDED, KEYS);
            run.job.sparse = true;
            run.job.max_keys = ROW;
            go(&run, transports[t], sparse_member);
        }
}

/* A round takes the mean of 4, at a rate of 4: each counts as 1. */
static void rounds_have_all_gradients(void **state)
{
    struct run run;
    size_t t;
    int k, w;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (k = 1; k <= 2; k++) {
            prepare(&run, 4, k, 0, 600);
            run.job.schedule.base = 4;
            run.job.steps = 60;
            go(&run, transports[t], dense_member);
            assert_int_equal(run.stats.applied, 60);
            for (w = 0; w < 4; w++) {
                assert_int_equal(run.begun[w], 60);
                assert_int_equal(run.stale[w].max, 0);
            }
        }
}

static void a_worker_is_retired_and_admitted(void **state)
{
    struct run run;
    size_t t;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++) {
        prepare(&run, 3, 1, PS_UNBOUNDED, 50);
        run.dies = true;
        go(&run, transports[t], dense_member);
        assert_true(run.retired && run.admitted);
        assert_true(run.begun[1] >= DIES_AFTER);
    }
}

static void nonsense_is_refused(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2, .fn = nonsense_member};
    struct t_stderr err;
    char text[4096];
    struct run run;

    (void)state;
    prepare(&run, 1, 1, PS_UNBOUNDED, KEYS);
    run.job.sparse = true;
    run.job.max_keys = ROW;
    job.arg = &run;
    for (run.nonsense = 0; run.nonsense < VB_COUNT(nonsense); run.nonsense++) {
        t_stderr_catch(&err);
        t_as_threads(&job);
        t_stderr_release(&err, text, sizeof(text));
        assert_non_null(strstr(text, "worker 0 pushed"));
    }
}

static void steps_allocate_nothing(void **state)
{
    static const size_t sizes[] = {50, 40000};
    struct run run;
    size_t t, s;

    (void)state;
    for (t = 0; t < VB_COUNT(transports); t++)
        for (s = 0; s < VB_COUNT(sizes); s++) {
            prepare(&run, 2, 1, 8, sizes[s]);
            run.job.steps = 2000;
            run.delays = false;
            go(&run, transports[t], dense_member);
            assert_int_equal(run.allocations, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gradient_is_lost),
        cmocka_unit_test(nobody_runs_ahead),
        cmocka_unit_test(sparse_gradients_neither),
        cmocka_unit_test(rounds_have_all_gradients),
        cmocka_unit_test(a_worker_is_retired_and_admitted),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(steps_allocate_nothing),
    };

    return T_RUN(tests);
}
