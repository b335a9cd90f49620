/* SPDX-License-Identifier: MIT
 *
 * Tests collectives that outlive the death of ranks. Ranks die before a request, with many requests
 * under way, or while the others regroup. The survivors must be told which rank is gone, regroup,
 * and then get the same bits as a fresh group that only they are in. Opening collectives fails soon
 * if a rank dies meanwhile.
 *
 * Covers: net/group/regroup.c net/coll/coll_regroup.c net/group/group_sync.c
 */
#include "net/group/group_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/fixtures/coll_fixture.h"

#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define FLIGHT 12
#define PIECE ((size_t)3500) /* number of floats of the longest vector in a flight */
#define N_ELEMS (FLIGHT * PIECE)
#define LOSSES 2    /* the maximum number of deaths in a job */
#define SLACK_S 30  /* a death must be noticed within this time */
#define OPENINGS 12 /* number of deaths over each transport */
#define MANY 200    /* number of times that the same members regroup */

enum moment { BEFORE, MIDDLE, WHILE_REGROUPING };

/* One job. It lies in memory that all processes share. */
struct life {
    struct vb_coll_opts opts;
    int split; /* number of ranks per host; 0: the real hosts */
    enum moment moment;
    unsigned seed;
    int n_victims, victims[LOSSES];
    int members[T_RANKS_MAX], n_members; /* the survivors */
    uint32_t digest[T_RANKS_MAX];        /* of the results in the fresh group, by place */
    bool is_fresh;
    _Atomic int n_open;        /* number of ranks that have opened the collectives */
    _Atomic bool parked, over; /* of the victim that is a thread */
};

static struct life *life;

/* ---- work ------------------------------------------------------------------------------------ */

static size_t length_of(int k)
{
    static const size_t lens[] = {1, 7, 100, 600, 1500, 2100, PIECE};

    return lens[k % (int)VB_COUNT(lens)];
}

/* Starts many sums, and waits for those that were started. Returns the first failure. */
static vb_status fly(struct vb_coll *coll)
{
    struct vb_req reqs[FLIGHT];
    vb_status st = VB_OK, first = VB_OK;
    int k, n;

    for (n = 0; n < FLIGHT && first == VB_OK; n++)
        first = vb_allreduce_start(coll, (size_t)n * PIECE * sizeof(float), length_of(n),
                                   VB_REDUCE_MEAN, &reqs[n]);
    n -= first != VB_OK;
    for (k = 0; k < n; k++) {
        st = vb_wait(coll, &reqs[k]);
        first = first == VB_OK ? st : first;
    }
    return first;
}

/* Sums until this fails. */
static vb_status fly_on(struct vb_coll *coll)
{
    uint64_t deadline = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    vb_status st = VB_OK;

    while (st == VB_OK && vb_clock_ns() < deadline)
        st = fly(coll);
    return st;
}

/* The sum of the values of ids, in this order. */
static float want(const int *ids, int n, t_value_fn fn, size_t i, unsigned round,
                  enum vb_reduce how, enum vb_wire wire)
{
    bool narrow = wire == VB_WIRE_BF16;
    float sum = narrow ? t_bf16(fn(ids[0], i, round)) : fn(ids[0], i, round), next;
    int r;

    for (r = 1; r < n; r++) {
        next = narrow ? t_bf16(fn(ids[r], i, round)) : fn(ids[r], i, round);
        sum += next;
    }
    if (how == VB_REDUCE_MEAN)
        sum *= 1.0f / (float)n;
    return narrow ? t_bf16(sum) : sum;
}

static int differences(const float *data, size_t n_elems, const int *ids, int n, t_value_fn fn,
                       unsigned round, enum vb_reduce how)
{
    size_t i;

    for (i = 0; i < n_elems; i++)
        if (t_bits(data[i]) != t_bits(want(ids, n, fn, i, round, how, life->opts.wire))) {
            fprintf(stderr, "element %zu of %zu is %.9g\n", i, n_elems, (double)data[i]);
            return 1;
        }
    return 0;
}

/* One sum over all data. Whole numbers must be exact in any order. */
static int sum_all(struct vb_coll *coll, const int *ids, t_value_fn fn, unsigned round,
                   enum vb_reduce how, uint32_t *crc_p)
{
    float *data = vb_coll_data(coll);
    size_t n = N_ELEMS - 3;
    struct vb_req req;
    int wrong;

    t_fill(data, n, fn, ids[coll->rank], round);
    wrong = T_WRONG(vb_allreduce_start(coll, 0, n, how, &req) == VB_OK);
    if (wrong == 0)
        wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    if (wrong == 0 && (fn == t_whole || life->opts.order == VB_ORDER_RANK))
        wrong += differences(data, n, ids, coll->world, fn, round, how);
    *crc_p = vb_crc32c(*crc_p, data, n * sizeof(*data));
    return wrong;
}

static int sum_many(struct vb_coll *coll, const int *ids, unsigned round, uint32_t *crc_p)
{
    float *data = vb_coll_data(coll);
    int wrong;

    t_fill(data, N_ELEMS, t_any, ids[coll->rank], round);
    wrong = T_WRONG(fly(coll) == VB_OK);
    for (int k = 0; k < FLIGHT; k++)
        *crc_p = vb_crc32c(*crc_p, data + (size_t)k * PIECE, length_of(k) * sizeof(*data));
    return wrong;
}

static int scatter(struct vb_coll *coll, const int *ids, uint32_t *crc_p)
{
    float *data = vb_coll_data(coll);
    size_t first, n;
    struct vb_req req;

    t_fill(data, N_ELEMS, t_any, ids[coll->rank], 77);
    vb_coll_share(N_ELEMS, coll->world, coll->rank, &first, &n);
    if (vb_reduce_scatter_start(coll, 0, N_ELEMS, VB_REDUCE_SUM, &req) != VB_OK ||
        vb_wait(coll, &req) != VB_OK)
        return 1;
    *crc_p = vb_crc32c(*crc_p, data + first, n * sizeof(*data));
    return 0;
}

/* Every rank gets a piece of each other rank, then all bytes of the last rank. */
static int gather_and_broadcast(struct vb_coll *coll, const int *ids)
{
    size_t at[T_RANKS_MAX], lens[T_RANKS_MAX], each = N_ELEMS / (size_t)coll->world, i;
    float *data = vb_coll_data(coll);
    struct vb_req req;
    int r, wrong = 0;

    t_fill(data, N_ELEMS, t_whole, ids[coll->rank], 5);
    for (r = 0; r < coll->world; r++) {
        at[r] = (size_t)r * each * sizeof(float);
        lens[r] = each * sizeof(float);
    }
    wrong += T_WRONG(vb_allgather_start(coll, at, lens, &req) == VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    for (i = 0; i < each * (size_t)coll->world; i++)
        wrong += data[i] != t_whole(ids[i / each], i, 5);
    t_fill(data, N_ELEMS, t_whole, ids[coll->rank], 6);
    wrong += T_WRONG(vb_broadcast_start(coll, coll->world - 1, 0, N_ELEMS * sizeof(float), &req) ==
                     VB_OK);
    wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    for (i = 0; i < N_ELEMS; i++)
        wrong += data[i] != t_whole(ids[coll->world - 1], i, 6);
    wrong += T_WRONG(vb_barrier_start(coll, &req) == VB_OK);
    return wrong + T_WRONG(vb_wait(coll, &req) == VB_OK);
}

/* Records of the group among the members. */
static int records(struct vb_group *g, const struct vb_coll *coll, const int *ids)
{
    int all[T_RANKS_MAX] = {0}, mine = ids[coll->rank], r, wrong = 0;

    wrong += T_WRONG(vb_group_view_world(g) == coll->world);
    wrong += T_WRONG(vb_group_view_rank(g) == coll->rank);
    wrong += T_WRONG(vb_group_gather(g, &mine, sizeof(mine), all) == VB_OK);
    for (r = 0; r < coll->world; r++)
        wrong += T_WRONG(all[r] == ids[r]);
    wrong += T_WRONG(vb_group_broadcast(g, coll->world - 1, &mine, sizeof(mine)) == VB_OK);
    wrong += T_WRONG(mine == ids[coll->world - 1]);
    return wrong + T_WRONG(vb_group_barrier(g) == VB_OK);
}

/* Runs every kind of operation. ids[i] is the number from which the rank at place i computes its
 * data. Returns the number of errors, and a digest of all sums. */
static int everything(struct vb_group *g, struct vb_coll *coll, const int *ids, uint32_t *crc_p)
{
    int wrong = 0;

    *crc_p = 0;
    wrong += sum_all(coll, ids, t_whole, 1, VB_REDUCE_SUM, crc_p);
    wrong += sum_many(coll, ids, 2, crc_p);
    wrong += sum_all(coll, ids, t_any, 3, VB_REDUCE_MEAN, crc_p);
    wrong += scatter(coll, ids, crc_p);
    wrong += gather_and_broadcast(coll, ids);
    wrong += records(g, coll, ids);
    wrong += sum_many(coll, ids, 4, crc_p);
    return wrong;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* This process dies after up to `most_us`. */
static void die_soon(struct vb_group *g, unsigned most_us)
{
    unsigned seed = life->seed * 31 + (unsigned)vb_group_rank(g);
    struct itimerval at = {.it_value = {.tv_usec = 1 + rand_r(&seed) % most_us}};

    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &at, NULL);
}

static bool is_victim(int v, int rank)
{
    return v < life->n_victims && life->victims[v] == rank;
}

/* The ranks of the start without the first n victims. */
static int members_after(int world, int n, int *members)
{
    int r, v, n_members = 0;

    for (r = 0; r < world; r++) {
        for (v = 0; v < n && life->victims[v] != r; v++)
            ;
        if (v == n)
            members[n_members++] = r;
    }
    return n_members;
}

/* A rank that only computes learns of the loss, too, if it asks. */
static int ask_until_lost(struct vb_group *g, int rank)
{
    uint64_t deadline = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    struct timespec nap = {.tv_nsec = 1000000};

    while (vb_group_lost(g) < 0 && vb_clock_ns() < deadline)
        nanosleep(&nap, NULL);
    return T_WRONG(vb_group_lost(g) == rank);
}

static int expect_loss(struct vb_group *g, struct vb_coll *coll, int v)
{
    uint64_t begin = vb_clock_ns();
    struct vb_req req;
    int wrong = 0;

    if (v == 0 && life->moment == BEFORE)
        wrong += ask_until_lost(g, life->victims[v]);
    wrong += T_WRONG(fly_on(coll) == VB_ERR_PEER);
    wrong += T_WRONG(vb_clock_ns() - begin < SLACK_S * UINT64_C(1000000000));
    wrong += T_WRONG(vb_group_status(g) == VB_OK);    /* nobody has aborted the group */
    if (v == 0 && life->moment != WHILE_REGROUPING) { /* else the next victim may be dead, too */
        wrong += T_WRONG(vb_group_missing(g) == life->victims[v]);
        wrong += T_WRONG(vb_group_gone(g, life->victims[v]));
    }
    wrong += T_WRONG(vb_allreduce_start(coll, 0, 8, VB_REDUCE_SUM, &req) == VB_ERR_PEER);
    return wrong + T_WRONG(vb_group_barrier(g) == VB_ERR_PEER);
}

static void die(struct vb_group *g, struct vb_coll *coll)
{
    struct timespec nap = {.tv_nsec = 1000000};

    while (life->n_open < vb_group_world(g)) /* nobody survives a death while it opens */
        nanosleep(&nap, NULL);
    if (life->moment == BEFORE)
        raise(SIGKILL);
    die_soon(g, 20000);
    for (;;)
        (void)fly(coll);
}

/* Loses the victims one after another. Does not return on a victim. */
static int lose_all(struct vb_group *g, struct vb_coll *coll)
{
    int members[T_RANKS_MAX], n, v, rank = vb_group_rank(g), wrong = 0;
    vb_status st;

    life->n_open++;
    for (v = 0; v < life->n_victims && wrong == 0; v++) {
        if (is_victim(v, rank))
            die(g, coll);
        wrong += expect_loss(g, coll, v);
        if (life->moment == WHILE_REGROUPING && is_victim(v + 1, rank))
            die_soon(g, 3000);
        n = members_after(vb_group_world(g), v + 1, members);
        st = vb_group_regroup(g, members, n, (uint32_t)v + 1);
        if (life->moment == WHILE_REGROUPING && is_victim(v + 1, rank))
            for (;;)
                (void)fly(coll);
        wrong += T_WRONG(st == VB_OK || (st == VB_ERR_PEER && v + 1 < life->n_victims));
    }
    return wrong;
}

static int live_quietly(struct vb_group *g, struct vb_coll *coll)
{
    uint32_t crc;
    int wrong = life->is_fresh ? 0 : lose_all(g, coll);

    if (wrong > 0)
        return wrong;
    wrong = everything(g, coll, life->members, &crc);
    if (life->is_fresh)
        life->digest[coll->rank] = crc;
    return wrong + T_WRONG(crc == life->digest[coll->rank]);
}

static bool names(const char *text, int rank)
{
    char name[32];

    snprintf(name, sizeof(name), "because rank %d (", rank);
    return strstr(text, name) != NULL;
}

static int live(struct vb_group *g, void *arg)
{
    struct t_stderr caught;
    char text[16384];
    struct vb_coll *coll;
    int wrong;

    (void)arg;
    if (vb_coll_open_split(g, N_ELEMS * sizeof(float), &life->opts, life->split, &coll) != VB_OK)
        return 1;
    t_stderr_catch(&caught);
    wrong = live_quietly(g, coll);
    vb_coll_close(coll);
    t_stderr_release(&caught, text, sizeof(text));
    if (wrong > 0)
        fprintf(stderr, "rank %d of %d, algorithm %s, moment %d, seed %u:\n%s", vb_group_rank(g),
                vb_group_world(g), vb_algo_str(life->opts.algo), (int)life->moment, life->seed,
                text);
    else if (!life->is_fresh && life->moment != WHILE_REGROUPING)
        for (int v = 0; v < life->n_victims; v++)
            wrong += T_WRONG(names(text, life->victims[v]));
    return wrong;
}

/* Runs a fresh group of the survivors, then a group that loses the victims. */
static void run(const struct t_place *place, int world, enum vb_algo algo, enum vb_wire wire,
                enum moment moment, unsigned seed)
{
    struct t_job job = {.transport = place->transport,
                        .progress = place->progress,
                        .elastic = true,
                        .timeout_ms = 20000,
                        .fn = live};
    unsigned mortals = 0;
    int v;

    memset(life, 0, sizeof(*life));
    life->opts = (struct vb_coll_opts){
        .order = algo >= VB_ALGO_RING ? VB_ORDER_ANY : VB_ORDER_RANK, .algo = algo, .wire = wire};
    life->split = place->split;
    life->moment = moment;
    life->seed = seed;
    life->n_victims = moment == WHILE_REGROUPING || (world > 2 && seed % 3 == 0) ? 2 : 1;
    life->victims[0] = (int)(seed % (unsigned)world);
    life->victims[1] = (int)((seed + 1 + seed / 7 % ((unsigned)world - 1)) % (unsigned)world);
    life->n_members = members_after(world, life->n_victims, life->members);
    life->is_fresh = true;
    job.world = life->n_members;
    t_as_processes(&job);
    life->is_fresh = false;
    job.world = world;
    for (v = 0; v < life->n_victims; v++)
        mortals |= 1u << life->victims[v];
    t_as_mortals(&job, mortals);
}

static bool is_possible(const struct t_place *place, enum vb_algo algo)
{
    return algo != VB_ALGO_MAPPED || (place->transport == VB_TRANSPORT_SHM && place->split == 0);
}

/* Every algorithm in every place, with 2 to 5 ranks in turn. */
static void lose_at(enum moment moment, unsigned seed)
{
    int a, least = moment == WHILE_REGROUPING ? 3 : 2, world;
    size_t p;

    for (p = 0; p < VB_COUNT(t_places); p++)
        for (a = VB_ALGO_AUTO; a < VB_ALGOS; a++) {
            if (!t_runs_over(t_places[p].transport) || !is_possible(&t_places[p], (enum vb_algo)a))
                continue;
            world = least + (int)(seed++ % (unsigned)(6 - least));
            if (t_places[p].transport != VB_TRANSPORT_VERBS || world <= t_rdma_ranks())
                run(&t_places[p], world, (enum vb_algo)a, VB_WIRE_F32, moment, seed);
        }
}

static void a_rank_dies_before_a_request(void **state)
{
    (void)state;
    lose_at(BEFORE, 1);
}

static void a_rank_dies_with_many_requests_under_way(void **state)
{
    (void)state;
    lose_at(MIDDLE, 2);
}

static void a_rank_dies_while_others_regroup(void **state)
{
    (void)state;
    lose_at(WHILE_REGROUPING, 3);
}

/* Opens collectives, which measures the links, until a rank dies. */
static int open_again_and_again(struct vb_group *g, void *arg)
{
    uint64_t end = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    struct vb_coll *coll;
    char text[256];
    vb_status st = VB_OK;

    (void)arg;
    if (is_victim(0, vb_group_rank(g)))
        die_soon(g, 40000);
    vb_log_catch(text, sizeof(text));
    while (st == VB_OK && vb_clock_ns() < end) {
        st = vb_coll_open_split(g, N_ELEMS * sizeof(float), &life->opts, life->split, &coll);
        if (st == VB_OK)
            vb_coll_close(coll);
    }
    vb_log_catch(NULL, 0);
    return T_WRONG(st != VB_OK) + T_WRONG(vb_clock_ns() < end);
}

static void a_rank_dies_while_others_open(void **state)
{
    struct t_job job = {.elastic = true,
                        .world = 3,
                        .timeout_ms = 10000, /* less than the ranks wait for an error */
                        .fn = open_again_and_again};
    unsigned seed;

    (void)state;
    for (seed = 0; seed < 2 * OPENINGS; seed++) {
        memset(life, 0, sizeof(*life));
        job.transport = seed % 2 == 0 ? VB_TRANSPORT_SHM : VB_TRANSPORT_TCP;
        life->n_victims = 1;
        life->victims[0] = (int)(seed / 2 % 3);
        life->seed = seed;
        t_as_processes_but(&job, life->victims[0]);
    }
}

static void bfloat16_is_rounded_as_before(void **state)
{
    static const enum vb_algo algos[] = {VB_ALGO_AUTO, VB_ALGO_GATHER, VB_ALGO_EXCHANGE};
    size_t a;

    (void)state;
    for (a = 0; a < VB_COUNT(algos); a++) {
        run(&t_places[0], 4, algos[a], VB_WIRE_BF16, MIDDLE, 10 + (unsigned)a);
        run(&t_places[2], 3, algos[a], VB_WIRE_BF16, MIDDLE, 20 + (unsigned)a);
    }
}

/* ---- ranks as threads: without deaths -------------------------------------------------------- */

/* Regroups again and again with all ranks. Some of them have requests under way. */
static int regroup_many(struct vb_group *g, void *arg)
{
    int members[T_RANKS_MAX], wrong = 0, fds = 0, n = vb_group_world(g);
    struct vb_coll *coll;
    struct vb_req req;
    uint32_t view, crc;
    long before = 0;

    (void)arg;
    n = members_after(n, 0, members);
    if (vb_coll_open_split(g, N_ELEMS * sizeof(float), &life->opts, life->split, &coll) != VB_OK)
        return 1;
    for (view = 1; view <= MANY && wrong == 0; view++) {
        if (view == 3) { /* the first rounds open what is opened when it is first used */
            fds = vb_group_rank(g) == 0 ? t_count_fds() : 0; /* allocates */
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
            before = t_allocations;
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        }
        wrong += T_WRONG(fly(coll) == VB_OK);
        if (((int)view + vb_group_rank(g)) % 3 > 0) {
            wrong += T_WRONG(vb_allreduce_start(coll, 0, PIECE, VB_REDUCE_SUM, &req) == VB_OK);
            wrong += T_WRONG(vb_group_regroup(g, members, n, view) == VB_OK);
            (void)vb_wait(coll, &req); /* the request may have been done before */
        } else {
            wrong += T_WRONG(vb_group_regroup(g, members, n, view) == VB_OK);
        }
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 0)
        wrong += T_WRONG(t_count_fds() == fds);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += everything(g, coll, members, &crc);
    vb_coll_close(coll);
    return wrong;
}

static void regrouping_allocates_nothing(void **state)
{
    struct t_job job = {.elastic = true, .world = 3, .fn = regroup_many};
    size_t p;

    (void)state;
    for (p = 0; p < VB_COUNT(t_places); p++) {
        if (!t_runs_over(t_places[p].transport))
            continue;
        memset(life, 0, sizeof(*life));
        job.transport = t_places[p].transport;
        job.progress = t_places[p].progress;
        life->split = t_places[p].split;
        t_as_threads(&job);
    }
    assert_true(t_allocations > 0); /* otherwise the counter does not work */
}

/* ---- ranks as threads: a rank is left out ---------------------------------------------------- */

/* The last rank stops in the middle of its work, without a goodbye. */
static int stop_working(struct vb_group *g, struct vb_coll *coll)
{
    struct timespec nap = {.tv_nsec = 1000000};
    struct vb_req req;
    int wrong = T_WRONG(vb_allreduce_start(coll, 0, PIECE, VB_REDUCE_SUM, &req) == VB_OK);

    life->parked = true;
    while (!life->over)
        nanosleep(&nap, NULL);
    (void)vb_wait(coll, &req); /* all ranks have started this request, so it may be done */
    return wrong + T_WRONG(vb_barrier_start(coll, &req) != VB_OK || vb_wait(coll, &req) != VB_OK) +
           T_WRONG(vb_group_status(g) != VB_OK);
}

static int leave_one_out(struct vb_group *g, void *arg)
{
    int members[T_RANKS_MAX], n = vb_group_world(g) - 1, wrong;
    struct timespec nap = {.tv_nsec = 1000000};
    struct vb_coll *coll;
    struct vb_req req, after;
    uint32_t crc;

    (void)arg;
    members_after(n, 0, members);
    if (vb_coll_open_split(g, N_ELEMS * sizeof(float), &life->opts, life->split, &coll) != VB_OK)
        return 1;
    wrong = T_WRONG(fly(coll) == VB_OK);
    if (vb_group_rank(g) == n) {
        wrong += stop_working(g, coll);
    } else {
        wrong += T_WRONG(vb_allreduce_start(coll, 0, PIECE, VB_REDUCE_SUM, &req) == VB_OK);
        wrong += T_WRONG(vb_broadcast_start(coll, n, PIECE * 4, 64, &after) == VB_OK);
        while (!life->parked)
            nanosleep(&nap, NULL);
        wrong += T_WRONG(vb_group_regroup(g, members, n, 9) == VB_OK);
        (void)vb_wait(coll, &after);
        wrong += everything(g, coll, members, &crc);
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        life->over = true;
    }
    vb_coll_close(coll);
    return wrong;
}

static void a_rank_that_is_left_out_does_no_harm(void **state)
{
    struct t_job job = {.elastic = true, .fn = leave_one_out};
    size_t p;
    int world;

    (void)state;
    for (p = 0; p < VB_COUNT(t_places); p++)
        for (world = 2; world <= 4; world++) {
            if (t_places[p].transport == VB_TRANSPORT_VERBS)
                continue; /* ranks that are processes do not see that the last one has stopped */
            memset(life, 0, sizeof(*life));
            job.transport = t_places[p].transport;
            job.progress = t_places[p].progress;
            job.world = world;
            life->split = t_places[p].split;
            t_as_threads(&job);
        }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static int wrong_calls(struct vb_group *g, void *arg)
{
    int all[] = {0, 1}, swapped[] = {1, 0}, stranger[] = {0, 1, 2}, other[1], wrong = 0;
    struct t_stderr caught;
    char text[4096];

    (void)arg;
    other[0] = 1 - vb_group_rank(g);
    t_stderr_catch(&caught);
    wrong += T_WRONG(vb_group_regroup(g, all, 2, 0) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_regroup(g, all, 2, VB_VIEW_MAX + 1) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_regroup(g, swapped, 2, 1) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_regroup(g, stranger, 3, 1) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_regroup(g, other, 1, 1) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_regroup(g, all, 0, 1) == VB_ERR_USAGE);
    t_stderr_release(&caught, text, sizeof(text));
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK); /* refused calls have stopped nothing */
    wrong += T_WRONG(vb_group_regroup(g, all, 2, VB_VIEW_MAX) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static int not_elastic(struct vb_group *g, void *arg)
{
    int all[] = {0, 1};

    (void)arg;
    return T_WRONG(vb_group_regroup(g, all, 2, 1) == VB_ERR_USAGE) +
           T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void wrong_calls_are_refused(void **state)
{
    struct t_job job = {
        .transport = VB_TRANSPORT_TCP, .elastic = true, .world = 2, .fn = wrong_calls};

    (void)state;
    t_as_processes(&job);
    job.elastic = false;
    job.fn = not_elastic;
    t_as_processes(&job);
}

static bool is_gone(void *arg)
{
    return vb_group_gone(arg, 1);
}

/* Rank 1 announces that it is ready for a view for which it has not stopped. */
static int announce_early(struct vb_group *g, void *arg)
{
    struct timespec nap = {.tv_nsec = 1000000};
    struct vb_op op;

    if (vb_group_rank(g) == 0)
        return T_WRONG(vb_group_wait(g, is_gone, g, "rank 1", -1) == VB_OK) +
               T_WRONG(strstr(vb_group_gone_why(g, 1), "a view that is not due") != NULL);
    (void)vb_put(g->sync.win, 0, 0, 0, 0, VB_NOTE(VB_CHANNEL_VIEW, *(const uint32_t *)arg), &op);
    while (vb_progress(g) == VB_OK)
        nanosleep(&nap, NULL);
    return 0;
}

static void announcements_that_are_not_due_are_refused(void **state)
{
    static uint32_t values[] = {1u << 23 | 1, 0, 1u << 23};
    struct t_job job = {
        .transport = VB_TRANSPORT_TCP, .elastic = true, .world = 2, .fn = announce_early};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(values); i++) {
        job.arg = &values[i];
        t_as_processes(&job);
    }
}

static int only_one_calls(struct vb_group *g, void *arg)
{
    int all[] = {0, 1}, wrong;

    (void)arg;
    if (vb_group_rank(g) == 1) {
        while (!life->over)
            (void)vb_progress(g);
        return 0;
    }
    wrong = T_WRONG(vb_group_regroup(g, all, 2, 1) == VB_ERR_TIMEOUT);
    wrong += T_WRONG(vb_group_barrier(g) == VB_ERR_PEER);
    life->over = true;
    return wrong;
}

static void regrouping_has_a_deadline(void **state)
{
    struct t_job job = {.transport = VB_TRANSPORT_TCP,
                        .elastic = true,
                        .world = 2,
                        .timeout_ms = 1500,
                        .fn = only_one_calls};

    (void)state;
    memset(life, 0, sizeof(*life));
    t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies_before_a_request),
        cmocka_unit_test(a_rank_dies_with_many_requests_under_way),
        cmocka_unit_test(a_rank_dies_while_others_regroup),
        cmocka_unit_test(a_rank_dies_while_others_open),
        cmocka_unit_test(bfloat16_is_rounded_as_before),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(announcements_that_are_not_due_are_refused),
        cmocka_unit_test(regrouping_has_a_deadline),
        cmocka_unit_test(regrouping_allocates_nothing),
        cmocka_unit_test(a_rank_that_is_left_out_does_no_harm),
    };

    life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return life == MAP_FAILED ? 1 : T_RUN(tests);
}
