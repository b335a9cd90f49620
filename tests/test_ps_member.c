/* SPDX-License-Identifier: MIT
 *
 * Workers of a parameter server that are killed at some moment, and others that join: no gradient
 * is lost or applied twice, none is applied in part, and there are as many as were asked for.
 *
 * Workers are processes, which note on a board what they have begun to push and what was
 * acknowledged: of a worker that was killed anything in between may have been applied.
 */
#include "tests/ps.h"

#include <signal.h>
#include <sys/prctl.h>

#define WORKERS 3
#define LATE 2
#define SEATS (WORKERS + LATE) /* as many as in the tally */
#define PROCS 8
#define WAIT_S 60

struct board {
    struct ps_job job;
    enum vb_transport_choice transport;
    char root[32];
    struct p_tally tally;
    _Atomic int64_t acked[SEATS];
    _Atomic bool killed[SEATS]; /* somebody who had the seat */
    _Atomic bool seen[SEATS];
    _Atomic int n_ended; /* workers that came to the end */
    bool trap;           /* worker 1 dies with a ticket, when the others have had theirs */
    bool sleepy;         /* the server does nothing until worker 2 is gone */
    _Atomic bool asleep;
    _Atomic uint32_t shares[SEATS]; /* as a worker was told last */
    int64_t applied;
    int n_faults;
};

static struct board *board;
static enum vb_transport_choice transports[3];
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
    o->slots = job.world + board->job.late;
}

static bool worker_2_is_gone(void *arg)
{
    return vb_group_gone(((const struct ps_server *)arg)->group, 2);
}

/* It finds all in its queue together: pushes of a worker, and that it is gone. */
static vb_status sleep_once(struct ps_server *s)
{
    if (!board->sleepy || board->asleep || board->tally.begun[2] < 20)
        return VB_OK;
    board->asleep = true;
    return vb_group_wait(s->group, worker_2_is_gone, s, "a death", -1);
}

static vb_status run(struct ps_server *s)
{
    vb_status st = ps_server_begin(s);

    while (st == VB_OK && !s->over) {
        st = ps_server_round(s);
        if (st == VB_OK)
            st = sleep_once(s);
    }
    return st == VB_OK ? ps_server_finish(s) : st;
}

static int serve(struct vb_group *g)
{
    float *zero = calloc(board->job.n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = ps_server_create(g, &board->job, zero, NULL, &s);

    if (st == VB_OK)
        st = run(s);
    if (st == VB_OK)
        st = ps_server_linger(s);
    if (s != NULL && s->k == 0) {
        board->applied = s->stats.applied;
        board->n_faults = s->n_faults;
    }
    ps_server_leave(s);
    vb_group_close(g);
    ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK);
}

/* A round takes the mean, at a rate of 6: of three gradients each counts as 2, of two as 3. Worker
 * 1 was in the first ones. */
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

/* Each class has one number in all shards; with several servers a gradient of one that was killed
 * may have come to one of them alone. */
static int check_counts(const struct ps_worker *w, const float *params, uint64_t version)
{
    int c, k, seats = ps_seats(w->job), wrong = 0;
    double sum = 0;
    size_t i;

    for (k = 0; k < w->job->servers; k++)
        for (i = 0; i < w->lay.n[k]; i++)
            wrong += params[w->lay.first[k] + i] != params[w->lay.first[k] + i % (size_t)seats];
    if (w->job->bound == 0)
        return wrong + check_rounds(w, params, version);
    for (c = 0; c < seats; c++) {
        double n = -(double)params[c];

        sum += n;
        wrong += n > (double)board->tally.begun[c] || n < (double)board->acked[c];
        wrong += !board->killed[c] && n != (double)board->tally.begun[c];
    }
    wrong += sum != (double)version || (int64_t)version != w->job->steps;
    if (wrong > 0)
        fprintf(stderr, "%d wrong: version %llu has %g gradients\n", wrong,
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

/* The others have done what they can without it by then: of a round, all but its gradient is there.
 */
static void die_late(const struct ps_worker *w)
{
    struct timespec nap = {.tv_nsec = 200000000};

    if (!is_trapped(w))
        return;
    nanosleep(&nap, NULL);
    board->killed[1] = true;
    raise(SIGKILL);
}

static vb_status steps(struct ps_worker *w, float *own)
{
    int64_t before = board->acked[w->number];
    struct timespec nap = {.tv_nsec = 50000};
    vb_status st = VB_OK;
    bool go = true;

    board->seen[w->number] = true;
    while (st == VB_OK && go) {
        st = ps_worker_ticket(w, &go);
        board->acked[w->number] = before + w->links[0].acked;
        if (st == VB_OK && go)
            die_late(w);
        if (st == VB_OK && go)
            st = p_push(w, &board->tally, p_ones, 0, own);
        nanosleep(&nap, NULL);
    }
    return st;
}

static int work(struct vb_group *g, bool late)
{
    float *own = calloc(board->job.n, sizeof(*own));
    struct ps_worker *w = NULL;
    uint64_t version = 0;
    int wrong = 0;
    vb_status st = late ? ps_worker_join(g, &board->job, &w) : ps_worker_create(g, &board->job, &w);

    if (st == VB_OK && late)
        st = ps_worker_hello(w, false);
    if (st == VB_OK)
        st = steps(w, own);
    if (st == VB_OK)
        st = ps_worker_end(w, own, NULL, &version);
    if (st == VB_OK)
        wrong = check_counts(w, own, version);
    if (st == VB_OK)
        st = ps_worker_bye(w);
    board->n_ended++;
    if (w != NULL)
        board->shares[w->number] = w->shares;
    ps_worker_leave(w);
    vb_group_close(g);
    ps_worker_close(w);
    free(own);
    return wrong + T_WRONG(st == VB_OK);
}

static int be_rank(int rank)
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

/* rank -1: one that joins */
static int start(int rank)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(be_rank(rank) != 0);
    }
    assert_true(pid > 0);
    pids[n_procs] = pid;
    return n_procs++;
}

/* ---- the test's side ------------------------------------------------------------------------- */

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
    board->killed[number] = true; /* before it is, so that nobody looks in between */
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
                        .late = LATE,
                        .bound = bound,
                        .n = n,
                        .steps = bound == 0 ? p_steps(200) : 4000, /* one joins meanwhile */
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

/* One of three is killed, one joins and is killed, and another joins. */
static void come_and_go(enum vb_transport_choice transport, int servers, int64_t bound, size_t n,
                        unsigned *seed)
{
    int proc;

    prepare(transport, servers, bound, n);
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

/* Worker 1 ends itself where die_late() says. */
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

/* The last tickets of one that dies become others', who must not have gone by then. */
static void nor_at_the_end(void **state)
{
    static const int64_t bounds[] = {PS_UNBOUNDED, 5};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(bounds); i++)
        run_into_the_trap(transports[i % n_transports], bounds[i]);
}

/* Its death completes the round that the others wait in; of the next one each has its half. */
static void shares_are_cut_anew(void **state)
{
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        run_into_the_trap(transports[t], 0);
        assert_int_equal(board->tally.begun[1], 30);
        assert_int_equal(board->shares[0], 0 << 10 | 2);
        assert_int_equal(board->shares[2], 1 << 10 | 2);
    }
}

/* Worker 2 dies with pushes that the server has not looked at: their acknowledgements go nowhere,
 * which is nothing to the one that has its seat then. */
static void a_seat_is_used_again(void **state)
{
    struct timespec nap = {.tv_nsec = 100000000};
    int64_t begun;
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        prepare(transports[t], 1, PS_UNBOUNDED, 50);
        board->job.late = 0;
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
        cmocka_unit_test_teardown(nor_at_the_end, tear_down),
        cmocka_unit_test_teardown(shares_are_cut_anew, tear_down),
        cmocka_unit_test_teardown(a_seat_is_used_again, tear_down),
    };

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    n_transports = t_find_transports(transports);
    return T_RUN(tests);
}
