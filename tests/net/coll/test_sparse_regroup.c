/* SPDX-License-Identifier: MIT
 *
 * Tests sparse allreduces that outlive the death of ranks. Ranks die between two calls or in the
 * middle of one. The survivors regroup and must then get the sums of their own lists, bit for bit,
 * on the sparse and on the dense path.
 *
 * Covers: net/sparse/sparse_regroup.c
 */
#include "net/group/group_inside.h"
#include "net/sparse/sparse_priv.h"
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"

#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

#define FEATURES 6000u
#define MAX_NNZ 1500u
#define SHORT_NNZ 40u /* short enough to be sent with its head */
#define MANY 200      /* number of times that the same members regroup */
#define SLACK_S 30

/* One job. It lies in memory that all processes share. */
struct life {
    enum vb_sparse_path path;
    bool in_the_middle; /* ranks die in the middle of a call, otherwise between two calls */
    unsigned seed;
    int n_deaths; /* ranks die one after another, from the highest one or from the lowest */
    bool from_lowest;
    _Atomic int n_open;
};

static struct life *life;

/* ---- lists ----------------------------------------------------------------------------------- */

struct list {
    uint32_t index[MAX_NNZ];
    float value[MAX_NNZ];
    size_t n;
};

/* Every rank can make the lists of all ranks. */
static void make_list(struct list *l, int rank, unsigned round)
{
    uint64_t key = (uint64_t)rank * 1000003 + round * 77;
    uint32_t step, i;

    l->n = round % 2 == 0 ? SHORT_NNZ : MAX_NNZ - 10 * (unsigned)rank;
    step = FEATURES / (uint32_t)l->n;
    for (i = 0; i < l->n; i++) {
        l->index[i] = i * step + (uint32_t)(vb_mix(key + i) % step);
        l->value[i] = (float)((double)(int64_t)vb_mix(key ^ (i << 12)) / 3e15);
    }
}

/* Compares a result with the sum of the lists of the members, in their order. */
static int differences(const uint32_t *index, const float *value, size_t n, const int *members,
                       int n_members, unsigned round)
{
    static _Thread_local float sum[FEATURES];
    static _Thread_local bool has[FEATURES];
    static _Thread_local struct list l;
    size_t i, at = 0;
    int r;

    memset(has, 0, sizeof(has));
    for (r = 0; r < n_members; r++) {
        make_list(&l, members[r], round);
        for (i = 0; i < l.n; i++) {
            sum[l.index[i]] = has[l.index[i]] ? sum[l.index[i]] + l.value[i] : l.value[i];
            has[l.index[i]] = true;
        }
    }
    for (i = 0; i < FEATURES; i++) {
        if (!has[i])
            continue;
        if (at == n || index[at] != i ||
            vb_float_bits(value[at]) != vb_float_bits(sum[i] / (float)n_members)) {
            fprintf(stderr, "the sum of feature %zu is wrong\n", i);
            return 1;
        }
        at++;
    }
    return T_WRONG(at == n);
}

static vb_status sum_once(struct vb_group *g, struct vb_sparse *s, unsigned round,
                          const int *members, int n_members, int *wrong_p)
{
    static _Thread_local struct list l;
    const uint32_t *index;
    const float *value;
    vb_status st;
    size_t n;

    make_list(&l, vb_group_rank(g), round);
    st = vb_sparse_allreduce(s, l.index, l.value, l.n, VB_REDUCE_MEAN, &index, &value, &n);
    if (st == VB_OK)
        *wrong_p += differences(index, value, n, members, n_members, round);
    return st;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* The i-th rank that dies. */
static int victim(int world, int i)
{
    return life->from_lowest ? i : world - 1 - i;
}

static int members_after(int world, int deaths, int *members)
{
    int n = world - deaths, i;

    for (i = 0; i < n; i++)
        members[i] = life->from_lowest ? deaths + i : i;
    return n;
}

static void die(struct vb_group *g, struct vb_sparse *s)
{
    unsigned seed = life->seed, round = 0;
    struct itimerval at = {.it_value = {.tv_usec = 1 + rand_r(&seed) % 15000}};
    struct timespec nap = {.tv_nsec = 1000000};
    int all[T_RANKS_MAX], none = 0;

    while (life->n_open < vb_group_world(g)) /* nobody survives a death while it opens */
        nanosleep(&nap, NULL);
    if (!life->in_the_middle)
        raise(SIGKILL);
    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &at, NULL);
    members_after(vb_group_world(g), 0, all);
    for (;;)
        (void)sum_once(g, s, round++, all, 0, &none);
}

/* Sums until a rank is gone. Before that, all sums must be right. */
static int expect_loss(struct vb_group *g, struct vb_sparse *s, const int *members, int n)
{
    uint64_t deadline = vb_clock_ns() + SLACK_S * UINT64_C(1000000000);
    unsigned round = 0;
    int wrong = 0;
    vb_status st;

    do
        st = sum_once(g, s, round++, members, n, &wrong);
    while (st == VB_OK && vb_clock_ns() < deadline);
    return wrong + T_WRONG(st == VB_ERR_PEER) + T_WRONG(vb_group_status(g) == VB_OK) +
           T_WRONG(vb_group_missing(g) != VB_NO_PLACE) +
           T_WRONG(sum_once(g, s, round, members, n, &wrong) == VB_ERR_PEER);
}

static int survive(struct vb_group *g, struct vb_sparse *s)
{
    int members[T_RANKS_MAX], world = vb_group_world(g), n, i, wrong = 0;
    unsigned round;

    life->n_open++;
    for (i = 0; i < life->n_deaths && wrong == 0; i++) {
        if (victim(world, i) == vb_group_rank(g))
            die(g, s);
        n = members_after(world, i, members);
        wrong += expect_loss(g, s, members, n);
        n = members_after(world, i + 1, members);
        wrong += T_WRONG(vb_group_regroup(g, members, n, (uint32_t)i + 1) == VB_OK ||
                         i + 1 < life->n_deaths);
    }
    n = members_after(world, life->n_deaths, members);
    for (round = 0; round < 6 && wrong == 0; round++)
        wrong += T_WRONG(sum_once(g, s, round, members, n, &wrong) == VB_OK);
    return wrong;
}

static struct vb_sparse *open_sparse(struct vb_group *g)
{
    struct vb_sparse_opts opts = {.features = FEATURES, .max_nnz = MAX_NNZ, .path = life->path};
    struct vb_sparse *s = NULL;

    return vb_sparse_open(g, &opts, &s) == VB_OK ? s : NULL;
}

static int live(struct vb_group *g, void *arg)
{
    struct t_stderr caught;
    struct vb_sparse *s;
    char text[16384];
    int wrong;

    (void)arg;
    s = open_sparse(g);
    if (s == NULL)
        return 1;
    t_stderr_catch(&caught);
    wrong = survive(g, s);
    vb_sparse_close(s);
    t_stderr_release(&caught, text, sizeof(text));
    wrong += T_WRONG(strstr(text, "because rank ") != NULL);
    if (wrong > 0)
        fprintf(stderr, "rank %d of %d, path %d, seed %u:\n%s", vb_group_rank(g), vb_group_world(g),
                (int)life->path, life->seed, text);
    return wrong;
}

static void run(enum vb_transport_choice transport, int world, int n_deaths, unsigned seed)
{
    struct t_job job = {.transport = transport,
                        .world = world,
                        .elastic = true,
                        .progress = seed % 3 == 0,
                        .timeout_ms = 20000,
                        .fn = live};
    unsigned mortals = 0;
    int i;

    life->seed = seed;
    life->from_lowest = seed % 2 == 0;
    life->n_deaths = n_deaths;
    life->n_open = 0;
    for (i = 0; i < n_deaths; i++)
        mortals |= 1u << victim(world, i);
    t_as_mortals(&job, mortals);
}

static void lose(bool in_the_middle)
{
    enum vb_transport_choice transports[T_TRANSPORTS];
    size_t n = t_find_transports(transports), t;
    unsigned seed = 1;
    int path, world;

    memset(life, 0, sizeof(*life));
    life->in_the_middle = in_the_middle;
    for (t = 0; t < n; t++)
        for (path = VB_SPARSE_AUTO; path <= VB_SPARSE_DENSE; path++)
            for (world = 2; world <= (transports[t] == VB_TRANSPORT_VERBS ? 3 : 5); world++) {
                life->path = (enum vb_sparse_path)path;
                run(transports[t], world, 1, seed++);
            }
}

static void a_rank_dies_between_two_calls(void **state)
{
    (void)state;
    lose(false);
}

static void a_rank_dies_in_the_middle_of_a_call(void **state)
{
    (void)state;
    lose(true);
}

static void one_rank_is_left(void **state)
{
    (void)state;
    memset(life, 0, sizeof(*life));
    run(VB_TRANSPORT_SHM, 3, 2, 1);
    run(VB_TRANSPORT_TCP, 3, 2, 2);
    life->path = VB_SPARSE_DENSE;
    run(VB_TRANSPORT_SHM, 3, 2, 3);
    run(VB_TRANSPORT_TCP, 3, 2, 4);
}

/* ---- without deaths -------------------------------------------------------------------------- */

/* Regroups again and again with all ranks. Some of them have begun a call. */
static int regroup_many(struct vb_group *g, void *arg)
{
    int members[T_RANKS_MAX], n = members_after(vb_group_world(g), 0, members), wrong = 0;
    struct vb_sparse *s = open_sparse(g);
    static _Thread_local struct list l;
    unsigned view;
    long before = 0;

    (void)arg;
    if (s == NULL)
        return 1;
    make_list(&l, vb_group_rank(g), 1);
    for (view = 1; view <= MANY && wrong == 0; view++) {
        if (view == 3) {
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
            before = t_allocations;
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        }
        wrong += T_WRONG(sum_once(g, s, view, members, n, &wrong) == VB_OK);
        if ((view + (unsigned)vb_group_rank(g)) % 3 > 0)
            wrong += T_WRONG(vb_sparse_start(s, l.index, l.value, l.n, VB_REDUCE_SUM) == VB_OK);
        wrong += T_WRONG(vb_group_regroup(g, members, n, view) == VB_OK);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_sparse_close(s);
    return wrong;
}

static void regrouping_allocates_nothing(void **state)
{
    struct t_job job = {.elastic = true, .world = 3, .fn = regroup_many};
    int path;

    (void)state;
    memset(life, 0, sizeof(*life));
    for (path = VB_SPARSE_AUTO; path <= VB_SPARSE_DENSE; path++) {
        life->path = (enum vb_sparse_path)path;
        job.transport = VB_TRANSPORT_SHM;
        job.progress = false;
        t_as_threads(&job);
        job.transport = VB_TRANSPORT_TCP;
        t_as_threads(&job);
        job.progress = true;
        t_as_threads(&job);
    }
    assert_true(t_allocations > 0); /* otherwise the counter does not work */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_dies_between_two_calls),
        cmocka_unit_test(a_rank_dies_in_the_middle_of_a_call),
        cmocka_unit_test(one_rank_is_left),
        cmocka_unit_test(regrouping_allocates_nothing),
    };

    life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return life == MAP_FAILED ? 1 : T_RUN(tests);
}
