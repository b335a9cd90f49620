/* SPDX-License-Identifier: MIT
 *
 * Tests a parameter server whose workers are killed at random moments, and workers that join. No
 * gradient may be lost, applied twice or applied in part, and the requested number of gradients
 * must be applied.
 *
 * Workers are processes. They note on a board which pushes they have begun and which were
 * acknowledged. If a worker was killed, the servers may have applied any number of the pushes
 * that were begun but not acknowledged.
 *
 * Covers: engine/ps/ps_apply.c engine/ps/ps_notify.c engine/ps/ps_server.c
 */
#include "tests/support/fixtures/ps_fixture.h"

#define WORKERS 3
#define LATE 2
#define SEATS (WORKERS + LATE) /* must be the size of the arrays in the tally */
#define PROCS 8
#define WAIT_S 60

struct board {
    struct ps_job job;
    enum vb_transport_choice transport;
    char root[32];
    struct p_tally tally;
    _Atomic int64_t acked[SEATS];
    _Atomic bool killed[SEATS]; /* true if a worker with this number was killed */
    _Atomic bool seen[SEATS];
    _Atomic int n_ended; /* number of workers that reached the end */
    /* worker 1 dies while it has a ticket, after the other workers have used theirs */
    bool trap;
    bool sleepy; /* the server does nothing until worker 2 is dead */
    _Atomic bool asleep;
    _Atomic int joiners; /* number of workers that the test starts late and that are not seen yet */
    _Atomic uint32_t shares[SEATS]; /* the last share that the server sent to each worker */
    int64_t applied;
    int n_faults;
};

static struct board *board;
static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;
static int root_fd = -1;
static pid_t pids[PROCS];
static int n_procs;

/* ---- ranks ----------------------------------------------------------------------------------- */

static void options(int rank, struct vb_group_opts *o)
{
    struct t_job job = {.transport = board->transport, .world = WORKERS + board->job.servers};

    t_group_opts(&job, rank, board->root, root_fd, o);
    o->elastic = true;
    o->slots = job.world + board->job.join_slots;
}

static bool worker_2_is_gone(void *arg)
{
    return vb_group_gone(((const struct ps_server *)arg)->group, 2);
}

/* Waits once until worker 2 is dead. So the server finds the pushes and the death of worker 2 at
 * the same time. */
static vb_status sleep_once(struct ps_server *s)
{
    if (!board->sleepy || board->asleep || board->tally.begun[2] < 20)
        return VB_OK;
    board->asleep = true;
    return vb_group_wait(s->group, worker_2_is_gone, s, "a death", -1);
}

static vb_status run(struct ps_server *s)
{
    vb_status st = vb_ps_server_begin(s);

    while (st == VB_OK && !s->done) {
        st = vb_ps_server_round(s);
        if (st == VB_OK)
            st = sleep_once(s);
    }
    return st == VB_OK ? vb_ps_server_finish(s) : st;
}

static int serve(struct vb_group *g)
{
    float *zero = calloc(board->job.n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = vb_ps_server_create(g, &board->job, zero, NULL, &s);

    if (st == VB_OK)
        st = run(s);
    if (st == VB_OK)
        st = vb_ps_server_linger(s);
    if (s != NULL && s->k == 0) {
        board->applied = s->stats.applied;
        board->n_faults = s->faults.n;
    }
    vb_ps_server_leave(s);
    vb_group_close(g);
    vb_ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK);
}

/* A round applies the mean at a rate of 6. So a gradient counts as 2 in a round of three gradients,
 * and as 3 in a round of two. Worker 1 took part only in the first rounds. */
static int check_rounds(const struct ps_worker *w, const float *params, uint64_t version)
{
    double steps = (double)w->job->steps, with_all = -(double)params[1] / 2;

    return T_WRONG((int64_t)version == w->job->steps) +
           T_WRONG(with_all >= (double)board->acked[1] &&
                   with_all <= (double)board->tally.begun[1]) +
           T_WRONG(-(double)params[0] == 2 * with_all + 3 * (steps - with_all)) +
           T_WRONG(params[0] == params[2]) +
           T_WRONG(board->tally.begun[w->number] == w->job->steps);
}

/* Checks how many gradients of each worker the parameters count. In a shard all parameters of a
 * class have the same value. With several servers, a gradient of a killed worker may have reached
 * only one of them. */
static int check_counts(const struct ps_worker *w, const float *params, uint64_t version)
{
    int c, k, slots = vb_ps_clients(w->job), wrong = 0;
    double sum = 0;
    size_t i;

    for (k = 0; k < w->job->servers; k++)
        for (i = 0; i < w->lay.n[k]; i++)
            wrong += params[w->lay.first[k] + i] != params[w->lay.first[k] + i % (size_t)slots];
    if (w->job->bound == 0)
        return wrong + check_rounds(w, params, version);
    for (c = 0; c < slots; c++) {
        double n = -(double)params[c];

        sum += n;
        wrong += n > (double)board->tally.begun[c] || n < (double)board->acked[c];
        wrong += !board->killed[c] && n != (double)board->tally.begun[c];
    }
    wrong += sum != (double)version || (int64_t)version != w->job->steps;
    if (wrong > 0)
        fprintf(stderr, "found %d errors: version %llu has the sum of %g gradients\n", wrong,
                (unsigned long long)version, sum);
    return wrong;
}

static bool is_trapped(const struct ps_worker *w)
{
    int64_t own = board->tally.begun[1], others = board->tally.begun[0] + board->tally.begun[2];

    if (!board->trap || w->number != 1)
        return false;
    return w->job->bound == 0 ? own == 30 : own + others >= w->job->steps - 50;
}

/* Kills worker 1 after the other workers have done all steps that they can do without it. In a
 * round, only the gradient of worker 1 is missing. */
static void die_if_trapped(const struct ps_worker *w)
{
    struct timespec nap = {.tv_nsec = 200000000};

    if (!is_trapped(w))
        return;
    nanosleep(&nap, NULL);
    board->killed[1] = true;
    raise(SIGKILL);
}

/* On a busy machine a joiner takes long to start. So the second half of the steps is slow until all
 * joiners are there: the job must not end before. */
static void pause_between_steps(const struct ps_worker *w)
{
    bool slow = board->joiners > 0 && board->acked[w->number] > w->job->steps / (2 * WORKERS);
    struct timespec nap = {.tv_nsec = slow ? 20000000 : 50000};

    nanosleep(&nap, NULL);
}

static vb_status steps(struct ps_worker *w, float *own)
{
    int64_t before = board->acked[w->number];
    vb_status st = VB_OK;
    bool go = true;

    board->seen[w->number] = true;
    while (st == VB_OK && go) {
        st = vb_ps_worker_ticket(w, &go);
        board->acked[w->number] = before + w->links[0].acked;
        if (st == VB_OK && go)
            die_if_trapped(w);
        if (st == VB_OK && go)
            st = p_push(w, &board->tally, p_ones, 0, own);
        pause_between_steps(w);
    }
    return st;
}

static int work(struct vb_group *g, bool late)
{
    float *own = calloc(board->job.n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = 0;
    vb_status st =
        late ? vb_ps_worker_join(g, &board->job, &w) : vb_ps_worker_create(g, &board->job, &w);

    if (st == VB_OK && late)
        st = vb_ps_worker_hello(w, false);
    if (st == VB_OK && late)
        board->joiners--;
    if (st == VB_OK)
        st = steps(w, own);
    if (st == VB_OK)
        st = vb_ps_worker_end(w, own, NULL, &version);
    if (st == VB_OK)
        wrong = check_counts(w, own, version);
    if (st == VB_OK)
        st = vb_ps_worker_bye(w);
    board->n_ended++;
    if (w != NULL)
        board->shares[w->number] = w->shares;
    vb_ps_worker_leave(w);
    vb_group_close(g);
    vb_ps_worker_close(w);
    free(own);
    return wrong + T_WRONG(st == VB_OK);
}

static int run_rank(int rank)
{
    struct vb_group_opts opts;
    struct vb_group *g = NULL;
    vb_status st;

    options(rank, &opts);
    st = rank >= 0 ? vb_group_open(&opts, &g) : vb_group_join(&opts, &g);
    if (st != VB_OK)
        return 1;
    return rank >= WORKERS ? serve(g) : work(g, rank < 0);
}

/* Starts a process for this rank, or for a joiner if rank is -1. */
static int start(int rank)
{
    pid_t pid = t_fork();

    if (pid == 0)
        _exit(run_rank(rank) != 0);
    pids[n_procs] = pid;
    return n_procs++;
}

/* ---- the test process ------------------------------------------------------------------------ */

#define UNTIL(what)                                                                                \
    do {                                                                                           \
        uint64_t until_ = vb_clock_ns() + WAIT_S * UINT64_C(1000000000);                           \
        struct timespec nap_ = {.tv_nsec = 1000000};                                               \
        while (!(what)) {                                                                          \
            assert_true(vb_clock_ns() < until_);                                                   \
            nanosleep(&nap_, NULL);                                                                \
        }                                                                                          \
    } while (0)

static void kill_at_random(int proc, int number, unsigned *seed)
{
    struct timespec nap = {.tv_nsec = rand_r(seed) % 3000000};
    int64_t from = board->tally.begun[number];

    UNTIL(board->tally.begun[number] > from + 20);
    nanosleep(&nap, NULL);
    /* set before the kill, so that no check can run between the kill and this line */
    board->killed[number] = true;
    assert_int_equal(kill(pids[proc], SIGKILL), 0);
    assert_int_equal(waitpid(pids[proc], NULL, 0), pids[proc]);
    pids[proc] = 0;
}

static void prepare(enum vb_transport_choice transport, int servers, int64_t bound, size_t n)
{
    memset(board, 0, sizeof(*board));
    board->job =
        (struct ps_job){.workers = WORKERS,
                        .servers = servers,
                        .join_slots = LATE,
                        .bound = bound,
                        .n = n,
                        /* enough steps for a worker to join before the end */
                        .steps = bound == 0 ? p_steps(200) : 4000,
                        .rule = {.kind = VB_K_SGD},
                        .schedule = {.kind = VB_K_RATE_CONSTANT, .base = bound == 0 ? 6 : 1}};
    board->transport = transport;
}

static void begin(void)
{
    int r;

    n_procs = 0;
    root_fd = t_listen(board->root);
    for (r = 0; r < WORKERS + board->job.servers; r++)
        start(r);
    close(root_fd);
    root_fd = -1;
}

static void end(void)
{
    t_end_all(pids, n_procs);
    assert_int_equal(board->applied, board->job.steps);
}

static int tear_down(void **state)
{
    (void)state;
    t_kill_all(pids, n_procs);
    return 0;
}

/* One of three workers is killed. Then one worker joins and is killed, and another worker joins. */
static void come_and_go(enum vb_transport_choice transport, int servers, int64_t bound, size_t n,
                        unsigned *seed)
{
    int proc;

    prepare(transport, servers, bound, n);
    board->joiners = LATE;
    begin();
    kill_at_random(2, 2, seed);
    proc = start(-1);
    UNTIL(board->seen[WORKERS]);
    kill_at_random(proc, WORKERS, seed);
    start(-1);
    UNTIL(board->seen[WORKERS + 1]);
    end();
    assert_true(board->tally.begun[WORKERS + 1] > 0);
    assert_int_equal(board->n_faults, 4);
    assert_int_equal(board->n_ended, 3);
}

static void no_gradient_is_lost(void **state)
{
    static const size_t sizes[] = {50, 20000};
    unsigned seed = 20261115;
    size_t t, s;

    (void)state;
    for (t = 0; t < n_transports; t++)
        for (s = 0; s < VB_COUNT(sizes); s++)
            come_and_go(transports[t], 1 + (int)s, s == 0 ? PS_UNBOUNDED : 2, sizes[s], &seed);
}

/* Runs a job in which worker 1 kills itself in die_if_trapped(). */
static void run_into_the_trap(enum vb_transport_choice transport, int64_t bound)
{
    prepare(transport, 1, bound, 50);
    board->trap = true;
    begin();
    assert_int_equal(waitpid(pids[1], NULL, 0), pids[1]);
    pids[1] = 0;
    end();
    assert_true(board->killed[1]);
}

/* The last tickets of a dead worker go to the other workers, which must not have ended before. */
static void no_gradient_is_lost_at_the_end(void **state)
{
    static const int64_t bounds[] = {PS_UNBOUNDED, 5};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bounds); i++)
        run_into_the_trap(transports[i % n_transports], bounds[i]);
}

/* The death of worker 1 completes the round in which the other workers wait. In the next round each
 * of them gets half of the samples. */
static void shares_are_recomputed_after_a_death(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        run_into_the_trap(transports[t], 0);
        assert_int_equal(board->tally.begun[1], 30);
        assert_int_equal(board->shares[0], PS_SHARE_PACK(0, 2));
        assert_int_equal(board->shares[2], PS_SHARE_PACK(1, 2));
    }
}

/* Worker 2 dies while the server has not read some of its pushes. The acknowledgements of these
 * pushes are lost. The worker that gets the same number next must not be affected. */
static void the_number_of_a_dead_worker_is_reused(void **state)
{
    struct timespec nap = {.tv_nsec = 100000000};
    int64_t begun;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 1, PS_UNBOUNDED, 50);
        board->job.join_slots = 0;
        board->joiners = 1;
        board->sleepy = true;
        begin();
        UNTIL(board->asleep);
        nanosleep(&nap, NULL);
        board->killed[2] = true;
        assert_int_equal(kill(pids[2], SIGKILL), 0);
        assert_int_equal(waitpid(pids[2], NULL, 0), pids[2]);
        pids[2] = 0;
        begun = board->tally.begun[2];
        start(-1);
        end();
        assert_true(board->tally.begun[2] > begun + PS_OPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_gradient_is_lost, tear_down),
        cmocka_unit_test_teardown(no_gradient_is_lost_at_the_end, tear_down),
        cmocka_unit_test_teardown(shares_are_recomputed_after_a_death, tear_down),
        cmocka_unit_test_teardown(the_number_of_a_dead_worker_is_reused, tear_down),
    };

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    n_transports = t_find_transports(transports);
    return T_RUN(tests);
}
