/* SPDX-License-Identifier: MIT
 *
 * Tests the parameter server under random delays. No gradient may be lost or applied twice, each
 * snapshot must show one moment, no worker may be further ahead than the bound allows, and a step
 * must allocate nothing.
 *
 * Linked with --wrap=malloc and similar options to count allocations.
 *
 * Covers: engine/ps/ps_apply.c engine/ps/ps_layout.c engine/ps/ps_notify.c engine/ps/ps_open.c
 * Covers: engine/ps/ps_pull.c engine/ps/ps_send.c engine/ps/ps_server.c engine/ps/ps_worker.c
 * Covers: engine/ps/ps_worker_end.c engine/ps/ps_worker_open.c kernels/sparse/shared.c
 */
#include "tests/support/alloc.h"
#include "tests/support/fixtures/ps_fixture.h"

/* number of steps; small, because with few cores the worker may not get further */
#define DIES_AFTER 5

struct run {
    struct ps_job job;
    struct p_tally tally;
    bool lags; /* server 1 is slow */
    bool dies; /* worker 1 stops in the middle of the run and comes back later */
    _Atomic bool dead, retired, admitted;
    _Atomic long allocations;         /* allocations of all ranks in the middle of the run */
    struct vb_stale stale[P_WORKERS]; /* staleness, as counted by server 0 */
    struct ps_server_stats stats;
};

static struct run *run; /* in shared memory, because over RDMA ranks are processes */
static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;

/* ---- the server ------------------------------------------------------------------------------ */

/* Retires worker 1 if it has died. Admits it again after the other workers have made some steps. */
static vb_status members(struct ps_server *s)
{
    uint64_t version = atomic_load(&s->head->version);
    vb_status st = VB_OK;

    if (run->dead && !run->retired) {
        st = vb_ps_server_retire(s, 1);
        run->retired = true;
    }
    if (run->retired && !run->admitted && version > (uint64_t)run->job.steps * 3 / 4) {
        st = vb_ps_server_admit(s, 1);
        run->admitted = true;
    }
    return st;
}

static vb_status serve(struct ps_server *s)
{
    struct timespec lag = {.tv_nsec = 2000000};
    vb_status st = vb_ps_server_begin(s);
    uint64_t i = 0;

    while (st == VB_OK && !s->done) {
        if (run->lags && s->k == 1)
            nanosleep(&lag, NULL);
        st = vb_ps_server_round(s);
        if (st == VB_OK && run->dies)
            st = members(s);
        p_pause(&run->tally, 77, i++);
    }
    return st == VB_OK ? vb_ps_server_finish(s) : st;
}

static int server(struct vb_group *g)
{
    float *zero = calloc(run->job.n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = vb_ps_server_create(g, &run->job, zero, NULL, &s);
    int w;

    if (st == VB_OK)
        st = serve(s);
    if (st == VB_OK && s->k == 0) {
        run->stats = s->stats;
        for (w = 0; w < run->job.workers; w++)
            run->stale[w] = s->clients[w].stale;
    }
    vb_ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK);
}

/* ---- dense workers --------------------------------------------------------------------------- */

/* Resets the counts of pushes and replies, as for a worker that the servers will admit again. */
static void restart(struct ps_worker *w)
{
    int k;

    for (k = 0; k < w->job->servers; k++)
        w->links[k].acked = w->links[k].replies = w->links[k].sent = 0;
    w->tickets = w->used = 0;
    w->pushed = 0;
    w->evals = w->saves = 0;
    w->last = w->getting = false;
}

static int check_snapshot(struct ps_worker *w, float *params)
{
    uint64_t version = 0;

    if (vb_ps_worker_snapshot(w, params, NULL, &version) != VB_OK)
        return 1;
    return p_check_counts(w, params, version, run->job.servers == 1);
}

static bool all_pushes_are_taken(void *arg)
{
    const struct ps_worker *w = arg;

    return w->links[0].acked == w->pushed;
}

/* Plays the death of a worker. First waits until the server has taken all pushes, so that no push
 * is on its way when the worker comes back. */
static vb_status die(struct ps_worker *w)
{
    vb_status st = vb_group_wait(w->group, all_pushes_are_taken, w, "acknowledgements", -1);

    restart(w);
    run->dead = true;
    return st;
}

static void count_allocations(int64_t i)
{
    if (i == run->job.steps / 16)
        run->allocations = -t_allocations;
    if (i == run->job.steps / 8)
        run->allocations += t_allocations;
}

static int dense_steps(struct ps_worker *w, float *own)
{
    int64_t i = 0;
    int wrong = 0;
    bool go = true;

    while (go && wrong == 0) {
        wrong += T_WRONG(vb_ps_worker_ticket(w, &go) == VB_OK);
        if (!go || wrong > 0)
            break;
        wrong += p_check_bound(&run->job, &run->tally, i);
        if (run->tally.nap_ns > 0 && i % 37 == 5)
            wrong += check_snapshot(w, own);
        p_pause(&run->tally, (uint64_t)w->number, (uint64_t)i);
        wrong += T_WRONG(p_push(w, &run->tally, p_ones, (uint64_t)i, own) == VB_OK);
        if (w->number == 0)
            count_allocations(i);
        if (run->dies && w->number == 1 && ++i == DIES_AFTER)
            wrong += T_WRONG(die(w) == VB_OK);
        else
            i += !(run->dies && w->number == 1);
    }
    return wrong;
}

static int dense_worker(struct vb_group *g)
{
    float *own = calloc(run->job.n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = T_WRONG(vb_ps_worker_create(g, &run->job, &w) == VB_OK), c;

    if (wrong == 0)
        wrong = dense_steps(w, own);
    if (wrong == 0)
        wrong = T_WRONG(vb_ps_worker_end(w, own, NULL, &version) == VB_OK);
    if (wrong == 0)
        wrong = p_check_counts(w, own, version, true);
    for (c = 0; c < run->job.workers && wrong == 0; c++)
        wrong += T_WRONG((double)own[c] == -(double)run->tally.begun[c]);
    if (wrong > 0)
        /* otherwise other ranks would wait for this one */
        vb_group_abort(g, "a worker has found something wrong");
    vb_ps_worker_close(w);
    free(own);
    return wrong;
}

static int dense_member(struct vb_group *g, void *arg)
{
    (void)arg;
    return vb_group_rank(g) < run->job.workers ? dense_worker(g) : server(g);
}

/* ---- sparse workers -------------------------------------------------------------------------- */

static int sparse_worker(struct vb_group *g)
{
    struct ps_worker *w = NULL;
    float params[P_KEYS];
    uint64_t version = 0;
    int wrong = T_WRONG(vb_ps_worker_create(g, &run->job, &w) == VB_OK), k, bad = 0;

    if (wrong == 0)
        wrong = T_WRONG(p_sparse_steps(w, &run->tally, &bad) == VB_OK) + bad;
    if (wrong == 0)
        wrong = T_WRONG(vb_ps_worker_end(w, params, NULL, &version) == VB_OK);
    for (k = 0; k < P_KEYS && wrong == 0; k++)
        wrong += T_WRONG((double)params[k] == -(double)run->tally.of_key[k]);
    if (wrong > 0)
        vb_group_abort(g, "a worker has found something wrong");
    vb_ps_worker_close(w);
    return wrong;
}

static int sparse_member(struct vb_group *g, void *arg)
{
    (void)arg;
    return vb_group_rank(g) < run->job.workers ? sparse_worker(g) : server(g);
}

/* ---- a bound at several servers -------------------------------------------------------------- */

/* The parameters of each shard count the gradients of each worker. Step `own` of a worker must have
 * parameters in which, at every server, no worker is behind by more than the bound. */
static int check_bound_at(const float *counts, int64_t own)
{
    int w, wrong = 0;

    for (w = 0; w < run->job.workers; w++)
        wrong += (int64_t)-counts[w] < own - run->job.bound;
    return T_WRONG(wrong == 0);
}

static int bounded_dense_step(struct ps_worker *w, int64_t own, float *grads)
{
    const float *params = NULL;
    int k, wrong = T_WRONG(vb_ps_worker_pull(w, &params) == VB_OK);
    size_t c, classes = (size_t)vb_ps_clients(w->job);
    float counts[P_WORKERS] = {0};

    for (k = 0; k < w->job->servers && wrong == 0; k++) {
        for (c = w->lay.first[k]; c < w->lay.first[k] + classes; c++)
            counts[c % classes] = params[c];
        wrong += check_bound_at(counts, own);
    }
    return wrong + T_WRONG(p_push(w, &run->tally, p_ones, (uint64_t)own, grads) == VB_OK);
}

/* The batch has a key for each worker at each server. */
static int bounded_sparse_step(struct ps_worker *w, int64_t own, const uint32_t *keys, size_t n)
{
    const float *values = NULL;
    float ones[2 * P_WORKERS] = {0};
    int k, wrong = T_WRONG(vb_ps_worker_values(w, keys, n, &values) == VB_OK);

    for (k = 0; k < 2 && wrong == 0; k++) {
        wrong += check_bound_at(values + k * run->job.workers, own);
        ones[k * run->job.workers + w->number] = 1;
    }
    p_count(w, &run->tally);
    return wrong + T_WRONG(vb_ps_worker_push_sparse(w, keys, ones, n, 1, 1, keys, n) == VB_OK);
}

static int bounded_steps(struct ps_worker *w, float *own)
{
    uint32_t keys[2 * P_WORKERS];
    size_t i, n = 2 * (size_t)run->job.workers;
    bool go = true;
    int64_t step;
    int wrong = 0;

    for (i = 0; i < n; i++)
        keys[i] = (uint32_t)(i < n / 2 ? i : w->lay.first[1] + i - n / 2);
    if (run->job.sparse)
        wrong = T_WRONG(vb_ps_worker_ask(w, keys, n) == VB_OK);
    for (step = 0; go && wrong == 0; step++) {
        wrong += T_WRONG(vb_ps_worker_ticket(w, &go) == VB_OK);
        if (go && wrong == 0)
            wrong = run->job.sparse ? bounded_sparse_step(w, step, keys, n)
                                    : bounded_dense_step(w, step, own);
    }
    return wrong;
}

static int bounded_member(struct vb_group *g, void *arg)
{
    float *own = calloc(run->job.n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong;

    (void)arg;
    if (vb_group_rank(g) >= run->job.workers) {
        free(own);
        return server(g);
    }
    wrong = T_WRONG(vb_ps_worker_create(g, &run->job, &w) == VB_OK);
    if (wrong == 0)
        wrong = bounded_steps(w, own);
    if (wrong == 0)
        wrong = T_WRONG(vb_ps_worker_end(w, own, NULL, &version) == VB_OK);
    if (wrong > 0)
        vb_group_abort(g, "a worker has found something wrong");
    vb_ps_worker_close(w);
    free(own);
    return wrong;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void prepare(int workers, int servers, int64_t bound, size_t n)
{
    *run = (struct run){.job = {.workers = workers,
                                .servers = servers,
                                .bound = bound,
                                .n = n,
                                .steps = p_steps(300),
                                .rule = {.kind = VB_K_SGD},
                                .schedule = {.kind = VB_K_RATE_CONSTANT, .base = 1}},
                        .tally = {.nap_ns = 200000}};
}

static void run_job(enum vb_transport_choice transport, t_rank_fn fn)
{
    struct t_job job = {
        .transport = transport, .world = run->job.workers + run->job.servers, .fn = fn};
    int64_t begun = 0;
    int w;

    t_as_threads(&job);
    for (w = 0; w < run->job.workers; w++)
        begun += run->tally.begun[w];
    if (run->job.bound != 0) {
        assert_int_equal(begun, run->job.steps);
        assert_int_equal(run->stats.applied, run->job.steps);
    }
}

/* Workers get parameters by replies, by get, and from mapped memory, with one server and with
 * several. */
static void no_gradient_is_lost(void **state)
{
    static const size_t sizes[] = {50, 40000};
    size_t t, s;
    int k;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (s = 0; s < VB_COUNT(sizes); s++)
            for (k = 1; k <= 2; k++) {
                prepare(3, k, PS_UNBOUNDED, sizes[s]);
                run_job(transports[t], dense_member);
            }
}

static void no_worker_exceeds_the_bound(void **state)
{
    int64_t bound;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (bound = 1; bound <= 4; bound += 3) {
            prepare(3, 1, bound, 600);
            run_job(transports[t], dense_member);
            prepare(2, 2, bound, 40000);
            run_job(transports[t], dense_member);
        }
}

/* Server 1 is slow, so its gradients are often older than those of server 0. */
static void the_bound_holds_at_all_servers(void **state)
{
    size_t t;
    int i;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (i = 0; i < 4; i++) {
            prepare(3, 2, 1 + i / 2, i % 2 == 0 ? 40000 : P_KEYS);
            run->lags = true;
            run->tally.nap_ns = 0;
            run->job.sparse = i % 2 == 1;
            run->job.max_keys = i % 2 == 1 ? P_ROW : 0;
            run_job(transports[t], bounded_member);
        }
}

static void no_sparse_gradient_is_lost(void **state)
{
    size_t t;
    int k;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (k = 1; k <= 3; k++) {
            prepare(3, k, k == 2 ? 2 : PS_UNBOUNDED, P_KEYS);
            run->job.sparse = true;
            run->job.max_keys = P_ROW;
            run_job(transports[t], sparse_member);
        }
}

/* A round applies the mean of 4 gradients at a rate of 4, so each gradient counts as 1. */
static void rounds_have_all_gradients(void **state)
{
    size_t t;
    int k, w;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (k = 0; k <= 2; k++) { /* 0: one server with a large shard */
            prepare(4, k > 0 ? k : 1, 0, k > 0 ? 600 : 40000);
            run->job.schedule.base = 4;
            run->job.steps = p_steps(60);
            run_job(transports[t], dense_member);
            assert_int_equal(run->stats.applied, run->job.steps);
            for (w = 0; w < 4; w++) {
                assert_int_equal(run->tally.begun[w], run->job.steps);
                assert_int_equal(run->stale[w].max, 0);
            }
        }
}

static void a_worker_is_retired_and_admitted(void **state)
{
    static const size_t sizes[] = {50, 40000};
    size_t t, s;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (s = 0; s < VB_COUNT(sizes); s++) {
            prepare(3, 1, PS_UNBOUNDED, sizes[s]);
            run->dies = true;
            run_job(transports[t], dense_member);
            assert_true(run->retired && run->admitted);
            assert_true(run->tally.begun[1] >= DIES_AFTER);
        }
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

static struct ps_job jobs[3]; /* the job, as each rank sees it */

static int disagree(struct vb_group *g, void *arg)
{
    const struct ps_job *job = &jobs[vb_group_rank(g)];
    float zero[2 * P_KEYS] = {0};
    struct ps_worker *w = NULL;
    struct ps_server *s = NULL;
    vb_status st;

    (void)arg;
    if (vb_group_rank(g) < job->workers)
        st = vb_ps_worker_create(g, job, &w);
    else
        st = vb_ps_server_create(g, job, zero, NULL, &s);
    if (st != VB_ERR_INPUT)
        vb_group_abort(g, "a rank has not noticed that the jobs differ");
    vb_ps_worker_close(w);
    vb_ps_server_close(s);
    return T_WRONG(st == VB_ERR_INPUT);
}

/* The ranks read different data, so that they see different numbers of parameters or keys. */
static void ranks_that_disagree_are_refused(void **state)
{
    struct t_job job = {.world = 3, .fn = disagree};
    struct t_stderr err;
    char text[4096];
    int r, i;

    (void)state;
    for (i = 0; i < 4; i++) {
        prepare(2, 1, i % 2 == 0 ? PS_UNBOUNDED : 0, P_KEYS);
        run->job.sparse = true;
        run->job.max_keys = P_ROW;
        for (r = 0; r < 3; r++)
            jobs[r] = run->job;
        if (i < 2)
            jobs[1].n = 2 * P_KEYS;
        else
            jobs[1].max_keys = 2 * P_ROW;
        job.transport = i % 2 == 0 ? VB_TRANSPORT_SHM : VB_TRANSPORT_TCP;
        t_stderr_catch(&err);
        t_as_threads(&job);
        t_stderr_release(&err, text, sizeof(text));
        assert_non_null(strstr(text, i < 2 ? "has 800 parameters and batches of at most 40 keys"
                                           : "has 400 parameters and batches of at most 80 keys"));
    }
}

static void steps_allocate_nothing(void **state)
{
    static const size_t sizes[] = {50, 40000};
    size_t t, s;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (s = 0; s < VB_COUNT(sizes); s++) {
            prepare(2, 1, 8, sizes[s]);
            run->job.steps = p_steps(2000);
            run->tally.nap_ns = 0;
            run_job(transports[t], dense_member);
            assert_int_equal(run->allocations, 0);
        }
}

/* ---- parameters do not change while a worker uses them --------------------------------------- */

enum stage { BEGINS, COMPUTES, IS_OVER };

static _Atomic int stage;

static void wait_for_stage(enum stage s)
{
    while (stage < (int)s)
        sched_yield();
}

/* Applies the pushes of worker 0 while worker 0 computes its next step. Then retires the other
 * worker, whose tickets go to worker 0. */
static int slow_server(struct vb_group *g)
{
    float zero[P_WORKERS] = {0};
    struct ps_server *s = NULL;
    vb_status st = vb_ps_server_create(g, &run->job, zero, NULL, &s);

    if (st == VB_OK)
        st = vb_ps_server_begin(s);
    wait_for_stage(COMPUTES);
    while (st == VB_OK && s->clients[0].clock == 0)
        st = vb_ps_server_round(s);
    if (st == VB_OK)
        st = vb_ps_server_retire(s, 1);
    while (st == VB_OK && !s->done)
        st = vb_ps_server_round(s);
    if (st == VB_OK)
        st = vb_ps_server_finish(s);
    stage = IS_OVER;
    vb_ps_server_close(s);
    return T_WRONG(st == VB_OK);
}

static bool has_third_ticket(void *arg)
{
    return ((const struct ps_worker *)arg)->tickets == 3;
}

/* Computes the second step with parameters that do not contain the first gradient of this worker
 * yet. */
static int slow_worker(struct ps_worker *w)
{
    float own[P_WORKERS] = {0}, before = 0;
    const float *params = NULL;
    uint64_t version;
    bool go = false;
    int wrong;

    wrong = T_WRONG(vb_ps_worker_ticket(w, &go) == VB_OK && go);
    wrong += T_WRONG(p_push(w, &run->tally, p_ones, 0, own) == VB_OK);
    wrong += T_WRONG(vb_ps_worker_ticket(w, &go) == VB_OK && go);
    wrong += T_WRONG(vb_ps_worker_pull(w, &params) == VB_OK);
    if (wrong == 0)
        before = params[0]; /* the gradients of this worker will change this value */
    stage = COMPUTES;
    wrong += T_WRONG(vb_group_wait(w->group, has_third_ticket, w, "a ticket", -1) == VB_OK);
    wrong += T_WRONG(wrong > 0 || params[0] == before);
    wrong += T_WRONG(vb_ps_worker_push(w, own, 1, 1) == VB_OK);
    wrong += dense_steps(w, own);
    return wrong + T_WRONG(vb_ps_worker_end(w, own, NULL, &version) == VB_OK);
}

static int read_slowly(struct vb_group *g, void *arg)
{
    struct ps_worker *w = NULL;
    int wrong;

    (void)arg;
    if (vb_group_rank(g) == run->job.workers)
        return slow_server(g);
    wrong = T_WRONG(vb_ps_worker_create(g, &run->job, &w) == VB_OK);
    if (wrong == 0 && w->number == 0)
        wrong = slow_worker(w);
    wait_for_stage(IS_OVER);
    vb_ps_worker_close(w);
    return wrong;
}

static void a_reply_does_not_change_while_it_is_read(void **state)
{
    struct t_job job = {.fn = read_slowly, .world = 3, .transport = VB_TRANSPORT_TCP};

    (void)state;
    memset(run, 0, sizeof(*run));
    run->job = (struct ps_job){.workers = 2,
                               .servers = 1,
                               .bound = PS_UNBOUNDED,
                               .steps = 4,
                               .n = P_WORKERS,
                               .schedule = {.base = 1}};
    stage = BEGINS;
    t_as_threads(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gradient_is_lost),
        cmocka_unit_test(no_worker_exceeds_the_bound),
        cmocka_unit_test(the_bound_holds_at_all_servers),
        cmocka_unit_test(no_sparse_gradient_is_lost),
        cmocka_unit_test(rounds_have_all_gradients),
        cmocka_unit_test(a_worker_is_retired_and_admitted),
        cmocka_unit_test(a_reply_does_not_change_while_it_is_read),
        cmocka_unit_test(ranks_that_disagree_are_refused),
        cmocka_unit_test(steps_allocate_nothing),
    };

    run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED)
        return 1;
    n_transports = t_find_transports(transports);
    return T_RUN(tests);
}
