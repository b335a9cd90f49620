/* SPDX-License-Identifier: MIT
 *
 * Runs the workers, servers and standbys of a parameter server, each as a process. Tests kill some
 * of the processes. The processes share `board` with the test. The test supplies the function that
 * workers run.
 */
#ifndef VB_TESTS_SUPPORT_REPLICA_H
#define VB_TESTS_SUPPORT_REPLICA_H

#include "tests/support/fixtures/ps_fixture.h"

#include <sys/mman.h>

#define RANKS_MAX 8 /* maximum number of ranks, and of processes */
#define N_MAX 40000
#define KILLS (t_rdma_only() ? 1 : 3)

struct board {
    struct ps_job job;
    enum vb_transport_choice transport;
    /* whether the job is expected to stop with an error, because it cannot continue */
    bool to_stop;
    bool hello_after; /* whether a joiner says hello only after it knows that server 0 is gone */
    double patience;  /* factor for all timeouts; 0: the default */
    int mortal;       /* the worker that will be killed; -1: none */
    int deserter;     /* the worker that drops server 0 in step 5; -1: none */
    _Atomic bool sent_away; /* the standby has told it that the server goes on */
    char root[32];
    struct p_tally tally;
    _Atomic uint32_t evals[P_WORKERS]; /* number of evaluations that each worker was asked for */
    _Atomic bool joined;
    _Atomic int opened; /* number of processes whose group is complete */
    /* number of faults; servers report this field and all fields up to `state` */
    _Atomic int faults;
    /* number of gradients that each server has dropped and applied */
    int64_t dropped[RANKS_MAX], took[RANKS_MAX];
    /* version of each server; written last, because a server may die while it reports */
    _Atomic uint64_t version[RANKS_MAX];
    float params[RANKS_MAX][N_MAX]; /* the parameters of each server at the end */
    float state[RANKS_MAX][N_MAX];
    _Atomic bool stop; /* tells the workers to end */
    /* number of gradients that workers may begin before the test opens the gate; 0: the gate is
     * open */
    _Atomic int64_t gate;
    _Atomic int refused; /* number of joiners that were refused */
};

static struct board *board;
static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;
static pid_t pids[RANKS_MAX];
static int root_fd = -1;

static int (*worker)(struct vb_group *g, bool late); /* set by main() of the test */

/* ---- servers --------------------------------------------------------------------------------- */

static inline void tell_board(const struct ps_server *s, int rank)
{
    size_t bytes = s->lay.n[s->k] * sizeof(float);
    int w;

    board->faults += s->faults.n;
    memcpy(board->params[rank], s->params, bytes);
    if (s->job->words > 0)
        memcpy(board->state[rank], s->state, bytes * (size_t)s->job->words);
    for (w = 0; w < vb_ps_clients(s->job); w++) {
        board->dropped[rank] += (int64_t)s->clients[w].stale.dropped;
        board->took[rank] += (int64_t)s->clients[w].stale.n;
    }
    board->version[rank] = vb_ps_version_of(s);
}

static inline int server(struct vb_group *g)
{
    const struct ps_job *job = &board->job;
    float *zero = calloc(job->n, sizeof(*zero));
    struct ps_server *s = NULL;
    vb_status st = vb_ps_server_create(g, job, zero, NULL, &s);

    board->opened++;
    if (st == VB_OK)
        st = vb_ps_server_run(s);
    if (st == VB_OK)
        st = vb_ps_server_linger(s);
    if (st == VB_OK)
        tell_board(s, vb_group_rank(g));
    vb_ps_server_close(s);
    free(zero);
    return T_WRONG(st == VB_OK || board->to_stop);
}

/* ---- processes ------------------------------------------------------------------------------- */

static inline int world_of(const struct ps_job *job)
{
    return job->workers + vb_ps_server_ranks(job);
}

/* Runs one rank of the job, or a joiner if rank is -1. Returns 0 if there was no error. */
static inline int member(int rank)
{
    struct t_job job = {.transport = board->transport, .world = world_of(&board->job)};
    struct vb_group_opts opts;
    struct vb_group *g;
    int wrong;

    vb_log_set_rank(rank);
    vb_log_set_level(VB_LEVEL_ERROR);
    t_group_opts(&job, rank, board->root, root_fd, &opts);
    opts.elastic = true;
    opts.slots = job.world + board->job.join_slots;
    if (board->patience > 0)
        opts.patience = board->patience * (opts.patience > 0 ? opts.patience : 1);
    if ((rank < 0 ? vb_group_join(&opts, &g) : vb_group_open(&opts, &g)) != VB_OK)
        return 1;
    wrong = rank < board->job.workers ? worker(g, rank < 0) : server(g);
    vb_group_close(g);
    return wrong;
}

static inline pid_t start(int rank)
{
    pid_t pid = t_fork();

    if (pid == 0)
        _exit(member(rank) == 0 ? 0 : 1);
    return pid;
}

static inline void begin(void)
{
    int i;

    root_fd = t_listen(board->root);
    for (i = 0; i < world_of(&board->job); i++)
        pids[i] = start(i);
    close(root_fd);
    root_fd = -1;
}

#define UNTIL(what)                                                                                \
    do {                                                                                           \
        struct timespec look_ = {.tv_nsec = 50000};                                                \
        int tries_;                                                                                \
        for (tries_ = 0; !(what); tries_++) {                                                      \
            assert_true(tries_ < 1000000);                                                         \
            nanosleep(&look_, NULL);                                                               \
        }                                                                                          \
    } while (0)

/* Kills the rank nap_ns after workers have begun `total` gradients. Returns whether the rank was
 * still running. */
static inline bool kill_at(int rank, int64_t total, long nap_ns)
{
    struct timespec nap = {.tv_nsec = nap_ns};
    int status;

    UNTIL(board->opened >= world_of(&board->job) && board->tally.total >= total);
    nanosleep(&nap, NULL);
    assert_int_equal(kill(pids[rank], SIGKILL), 0);
    assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
    pids[rank] = 0;
    return WIFSIGNALED(status);
}

static inline void end(void)
{
    t_end_all(pids, RANKS_MAX);
}

/* Kills the processes that a failed test has left. */
static inline int tear_down(void **state)
{
    (void)state;
    t_kill_all(pids, RANKS_MAX);
    return 0;
}

static inline void prepare(enum vb_transport_choice transport, int workers, int servers,
                           int64_t bound, size_t n)
{
    memset(board, 0, sizeof(*board));
    board->transport = transport;
    board->tally.nap_ns = 100000;
    board->mortal = board->deserter = -1;
    board->job =
        (struct ps_job){.workers = workers,
                        .servers = servers,
                        .replicas = 2,
                        .bound = bound,
                        .n = n,
                        .steps = p_steps(bound == 0 ? 60 : 150),
                        .rule = {.kind = VB_K_SGD},
                        /* with bound 0 the mean of a round is applied; with this rate each gradient
                         * counts as 1 */
                        .schedule = {.kind = VB_K_RATE_CONSTANT, .base = bound == 0 ? workers : 1}};
}

static inline void make_sparse(void)
{
    board->job.sparse = true;
    board->job.max_keys = P_ROW;
}

/* Runs a job and kills the rank at a random moment. All other ranks must run to the end. Returns
 * whether the rank was still running and a server reported a fault. */
static inline int run_and_kill(int rank, uint64_t seed)
{
    /* with backup workers, a round may end with fewer gradients than workers; the missing gradients
     * are never counted */
    int per_step = board->job.bound == 0 ? board->job.workers - board->job.backup : 1;
    int64_t gradients = board->job.steps * per_step;
    bool hit;

    seed += t_number("VB_TEST_SEED") > 0 ? (uint64_t)t_number("VB_TEST_SEED") * 10000 : 0;
    begin();
    hit = kill_at(rank, 1 + (int64_t)(vb_random(seed, 1) % (uint64_t)gradients),
                  (long)(vb_random(seed, 2) % 2000000));
    end();
    return hit && board->faults > 0; /* a death after the last message is not reported as a fault */
}

static inline bool make_board(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    n_transports = t_find_transports(transports);
    return board != MAP_FAILED;
}

#endif
