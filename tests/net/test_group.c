/* SPDX-License-Identifier: MIT
 *
 * Tests groups of ranks, as threads and as processes, over every transport: the promises of put and
 * get, windows, and the basic collectives.
 *
 * Covers: net/group/group_info.c net/group/group_sync.c net/group/pair.c net/group/pairs.c
 * Covers: net/group/progress.c net/group/progress_thread.c net/group/put.c net/group/window.c
 * Covers: net/shm/shm_setup.c
 */
#include "tests/support/alloc.h"
#include "tests/support/rdma.h"
#include "tests/support/ranks.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#define KIB 1024
#define CHANNEL 5
/* timeout of a wait in vain; the ranks must also connect within this time */
#define IN_VAIN_MS 1500u

static enum vb_transport_choice transports[T_TRANSPORTS];
static size_t n_transports;

/* Limits of the tests. For RDMA they are easier to meet, because an emulated machine is slow. */
static int most_ranks = 5;
static int some_ranks = 3;
static int n_flood = 5000;
static size_t large = 64u << 20;
/* largest allowed CPU time while waiting, as a share of one core */
static double idle_share = 0.05;

static void find_transports(void)
{
    n_transports = t_find_transports(transports);
    if (getenv("VB_RANK") != NULL)
        some_ranks = t_number("VB_WORLD");
    if (t_rdma_only()) {
        most_ranks = 3;
        n_flood = 500;
        /* On an emulated machine the heartbeats alone need this share. A spinning rank would need
         * 1. */
        idle_share = 0.4;
        large = 9u << 20; /* longer than the longest message of soft-RoCE */
    }
}

/* Runs a function in groups of 1 to 5 ranks over every transport. */
static void everywhere(t_rank_fn fn, void *arg)
{
    struct t_job job = {.fn = fn, .arg = arg};
    size_t t;

    for (t = 0; t < n_transports; t++) {
        for (job.world = 1; job.world <= most_ranks; job.world++) {
            job.transport = transports[t];
            t_as_threads(&job);
        }
    }
    job.world = some_ranks;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        if (job.transport != VB_TRANSPORT_VERBS) /* over verbs the ranks are always processes */
            t_as_processes(&job);
        job.progress = true;
        t_as_threads(&job);
        job.progress = false;
    }
    /* with two ranks a wait sleeps in the only socket, and with more ranks in epoll */
    job.never_spin = true;
    job.transport = VB_TRANSPORT_TCP;
    for (job.world = 2; job.world <= 3 && !t_rdma_only(); job.world++)
        t_as_threads(&job);
}

/* ---- collectives ----------------------------------------------------------------------------- */

static int collectives(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, i, round;
    int64_t mine, all[T_RANKS_MAX];
    char text[VB_RECORD_MAX];

    (void)arg;
    for (round = 0; round < 50; round++) {
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        mine = rank * 1000 + round;
        wrong += T_WRONG(vb_group_gather(g, &mine, sizeof(mine), all) == VB_OK);
        for (i = 0; i < world; i++)
            wrong += T_WRONG(all[i] == i * 1000 + round);
        memset(text, rank == round % world ? 'x' : 'o', sizeof(text));
        wrong += T_WRONG(vb_group_broadcast(g, round % world, text, sizeof(text)) == VB_OK);
        wrong += T_WRONG(text[0] == 'x' && text[sizeof(text) - 1] == 'x');
    }
    return wrong;
}

static void collectives_work(void **state)
{
    (void)state;
    everywhere(collectives, NULL);
}

/* ---- puts ------------------------------------------------------------------------------------ */

static const size_t sizes[] = {0, 1, 7, 1000, 64 * KIB + 3, 3 * 1024 * KIB + 1};
#define N_SIZES VB_COUNT(sizes)
#define SLOT (4u * 1024 * KIB) /* memory for one put from one peer */

struct inbox {
    struct vb_window *win;
    /* number of the next note from each rank; the last element is the rank of the receiver */
    int next[T_RANKS_MAX];
    int wrong;
    int total, due;
};

static unsigned char pattern(int from, int to, size_t k, size_t i)
{
    return (unsigned char)(from * 31 + to * 17 + (int)k * 7 + (int)(i % 251));
}

/* Checks promises 1, 2, 5 and 6: when a note arrives, the bytes of its put have arrived. Notes
 * arrive in the order of posting, with bytes or without. */
static void arrived(void *arg, int rank, uint32_t value)
{
    struct inbox *in = arg;
    const unsigned char *slot;
    size_t k = value, i;

    in->wrong += T_WRONG((int)value == in->next[rank]);
    in->next[rank]++;
    in->total++;
    if (k >= N_SIZES)
        return;
    slot = (const unsigned char *)vb_window_ptr(in->win) + (size_t)rank * SLOT;
    for (i = 0; i < sizes[k]; i += 1 + sizes[k] / 64)
        if (slot[i] != pattern(rank, in->next[T_RANKS_MAX - 1], k, i))
            in->wrong++;
    if (sizes[k] > 0 &&
        slot[sizes[k] - 1] != pattern(rank, in->next[T_RANKS_MAX - 1], k, sizes[k] - 1))
        in->wrong++;
}

static bool all_came(void *arg)
{
    struct inbox *in = arg;

    return in->total == in->due;
}

/* Puts blocks of each size to every rank. After the barrier the slots may be used for the next
 * size. */
static int puts_of_all_sizes(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, to;
    struct inbox in = {0};
    struct vb_op op = {0};
    unsigned char *own;
    size_t k, i;

    (void)arg;
    in.next[T_RANKS_MAX - 1] = rank; /* the last element is the rank of the receiver */
    wrong += T_WRONG(vb_window_create(g, (size_t)(world + 1) * SLOT, &in.win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, arrived, &in) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    own = (unsigned char *)vb_window_ptr(in.win) + (size_t)world * SLOT;
    for (k = 0; k < N_SIZES; k++) {
        for (to = 0; to < world; to++) {
            for (i = 0; i < sizes[k]; i++)
                own[i] = pattern(rank, to, k, i);
            wrong += T_WRONG(vb_put(in.win, to, (size_t)world * SLOT, (size_t)rank * SLOT, sizes[k],
                                    VB_NOTE(CHANNEL, k), &op) == VB_OK);
            wrong += T_WRONG(vb_op_wait(g, &op, "a put", to) == VB_OK);
            memset(own, 0xee, sizes[k]); /* promise 3: after op is done, the source may be reused */
        }
        in.due = (int)(k + 1) * world;
        wrong += T_WRONG(vb_group_wait(g, all_came, &in, "puts of one size", -1) == VB_OK);
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    }
    vb_window_destroy(in.win);
    vb_channel_close(g, CHANNEL);
    return wrong + in.wrong;
}

static void puts_arrive(void **state)
{
    (void)state;
    everywhere(puts_of_all_sizes, NULL);
}

/* ---- gets ------------------------------------------------------------------------------------ */

static int gets_of_all_sizes(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, from;
    struct vb_window *win;
    struct vb_op op = {0};
    unsigned char *mine;
    size_t k, i;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 2 * SLOT, &win) == VB_OK);
    mine = vb_window_ptr(win);
    for (i = 0; i < SLOT; i++)
        mine[i] = pattern(rank, 0, 0, i);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (k = 0; k < N_SIZES; k++) {
        for (from = 0; from < world; from++) {
            memset(mine + SLOT, 0, sizes[k] + 1);
            wrong += T_WRONG(vb_get(win, from, SLOT, 3, sizes[k], &op) == VB_OK);
            wrong += T_WRONG(vb_op_wait(g, &op, "a get", from) == VB_OK);
            for (i = 0; i < sizes[k]; i += 1 + sizes[k] / 64)
                if (mine[SLOT + i] != pattern(from, 0, 0, i + 3))
                    wrong++;
            wrong += T_WRONG(mine[SLOT + sizes[k]] == 0);
        }
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    return wrong;
}

static void gets_copy(void **state)
{
    (void)state;
    everywhere(gets_of_all_sizes, NULL);
}

static void count_note(void *arg, int rank, uint32_t value)
{
    int *counts = arg;

    if (counts[rank] == (int)value)
        counts[rank]++;
}

/* Checks promise 8: a rank with a progress thread serves gets while it does something else. The
 * sleeping rank changes its window when it wakes up. A get that was served before does not see this
 * change. */
static int serve_while_busy(struct vb_group *g, void *arg)
{
    struct timespec pause = {.tv_nsec = 800 * 1000 * 1000};
    struct vb_window *win;
    struct vb_op op = {0};
    unsigned char *own;
    int wrong = 0;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 2 * KIB, &win) == VB_OK);
    own = vb_window_ptr(win);
    own[0] = 'z'; /* 'z' means that the rank is asleep */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 1) {
        nanosleep(&pause, NULL);
        own[0] = 'w';
    } else {
        wrong += T_WRONG(vb_get(win, 1, KIB, 0, 1, &op) == VB_OK);
        wrong += T_WRONG(vb_op_wait(g, &op, "a get", 1) == VB_OK);
        wrong += T_WRONG(own[KIB] == 'z');
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    return wrong;
}

static void gets_are_served_while_a_rank_computes(void **state)
{
    struct t_job job = {.fn = serve_while_busy, .world = 2, .progress = true};

    (void)state;
    job.transport = n_transports == 1 ? VB_TRANSPORT_VERBS : VB_TRANSPORT_TCP;
    t_as_processes(&job);
}

/* ---- a large message ------------------------------------------------------------------------- */

static bool one_came(void *arg)
{
    return *(const int *)arg > 0;
}

static int large_put_and_get(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), peer = 1 - rank, wrong = 0;
    struct vb_window *win;
    struct vb_op op = {0};
    unsigned char *own;
    int counts[T_RANKS_MAX] = {0};
    size_t i;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 2 * large, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, counts) == VB_OK);
    own = vb_window_ptr(win);
    for (i = 0; i < large; i++)
        own[i] = pattern(rank, 0, 0, i);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(vb_put(win, peer, 0, large, large, VB_NOTE(CHANNEL, 0), &op) == VB_OK);
    wrong += T_WRONG(vb_op_wait(g, &op, "a large put", peer) == VB_OK);
    wrong += T_WRONG(vb_group_wait(g, one_came, &counts[peer], "a large put", peer) == VB_OK);
    for (i = 0; i < large; i++)
        wrong += own[large + i] != pattern(peer, 0, 0, i);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    memset(own + large, 0, large);
    wrong += T_WRONG(vb_get(win, peer, large, 0, large, &op) == VB_OK);
    wrong += T_WRONG(vb_op_wait(g, &op, "a large get", peer) == VB_OK);
    for (i = 0; i < large; i++)
        wrong += own[large + i] != pattern(peer, 0, 0, i);
    vb_window_destroy(win);
    vb_channel_close(g, CHANNEL);
    return wrong;
}

/* Only TCP can put from memory that is in no window. */
static int put_from_anywhere(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), peer = 1 - rank, wrong = 0;
    bool tcp = strcmp(vb_group_transport(g, peer), "tcp") == 0;
    unsigned char from[KIB];
    struct vb_window *win;
    struct vb_op op = {0};
    int counts[T_RANKS_MAX] = {0};
    vb_status st;
    size_t i;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, KIB, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, counts) == VB_OK);
    for (i = 0; i < KIB; i++)
        from[i] = pattern(rank, 0, 0, i);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    st = vb_put_wait(win, peer, from, 1, 0, KIB - 1, VB_NOTE(CHANNEL, 0), &op, 0);
    wrong += T_WRONG(st == (tcp ? VB_OK : VB_ERR_UNSUPPORTED));
    if (tcp) {
        wrong += T_WRONG(vb_op_wait(g, &op, "a put", peer) == VB_OK);
        wrong += T_WRONG(vb_group_wait(g, one_came, &counts[peer], "a put", peer) == VB_OK);
        for (i = 0; i < KIB - 1; i++)
            wrong += ((unsigned char *)vb_window_ptr(win))[i] != pattern(peer, 0, 0, i + 1);
    }
    wrong += T_WRONG(vb_put_wait(win, peer, from, 0, vb_window_len(win, peer), 1, 0, &op, 0) ==
                     VB_ERR_USAGE);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    vb_channel_close(g, CHANNEL);
    return wrong;
}

static void puts_from_anywhere_arrive_over_tcp(void **state)
{
    struct t_job job = {.fn = put_from_anywhere, .world = 2};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_threads(&job);
    }
}

static void large_puts_and_gets_arrive(void **state)
{
    struct t_job job = {.fn = large_put_and_get, .world = 2};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_processes(&job);
    }
}

/* ---- channels -------------------------------------------------------------------------------- */

#define FIXED_CHANNEL (VB_CHANNEL_DYNAMIC - 1) /* the last channel that is not allocated */

/* Fixed channels and allocated channels have different numbers, and all ranks get the same numbers.
 * If no channel is left, the allocation must fail. */
static int allocate_channels(struct vb_group *g, void *arg)
{
    int wrong = 0, i, channel = -1, again = -1;
    struct vb_coll *coll;

    (void)arg;
    wrong += T_WRONG(vb_channel_open(g, FIXED_CHANNEL, count_note, NULL) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, VB_CHANNEL_DYNAMIC, count_note, NULL) == VB_ERR_USAGE);
    for (i = VB_CHANNEL_DYNAMIC; i < VB_CHANNELS; i++) {
        wrong += T_WRONG(vb_channel_alloc(g, count_note, NULL, &channel) == VB_OK);
        wrong += T_WRONG(channel == i);
    }
    wrong += T_WRONG(vb_channel_alloc(g, count_note, NULL, &again) == VB_ERR_USAGE);
    wrong += T_WRONG(again == -1);
    wrong += T_WRONG(vb_coll_open(g, KIB, NULL, &coll) == VB_ERR_USAGE);
    vb_channel_close(g, VB_CHANNEL_DYNAMIC + 7);
    wrong += T_WRONG(vb_channel_alloc(g, count_note, NULL, &again) == VB_OK);
    wrong += T_WRONG(again == VB_CHANNEL_DYNAMIC + 7);
    for (i = VB_CHANNEL_DYNAMIC; i < VB_CHANNELS; i++)
        vb_channel_close(g, i);
    vb_channel_close(g, FIXED_CHANNEL);
    return wrong;
}

static void channels_do_not_collide(void **state)
{
    struct t_job job = {.fn = allocate_channels, .world = 2, .transport = VB_TRANSPORT_SHM};

    (void)state;
    t_as_threads(&job);
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* Checks that no thread of any rank allocates memory after set-up. */
static int count_allocations(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, i;
    struct timespec pause = {.tv_nsec = 600 * 1000 * 1000};
    struct vb_window *win;
    struct vb_op op = {0};
    int counts[T_RANKS_MAX] = {0};
    long before;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 64 * KIB, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, counts) == VB_OK);
    nanosleep(&pause, NULL); /* until heartbeats have begun */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    before = t_allocations;
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; i < 3000 && wrong == 0; i++) {
        while (vb_put(win, (rank + 1) % world, 0, 0, 1000, VB_NOTE(CHANNEL, i), &op) == VB_AGAIN)
            wrong += T_WRONG(vb_progress(g) == VB_OK);
        wrong += T_WRONG(vb_op_wait(g, &op, "a put", (rank + 1) % world) == VB_OK);
        if (i % 100 == 0)
            wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    }
    nanosleep(&pause, NULL);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(t_allocations == before);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    vb_channel_close(g, CHANNEL);
    return wrong;
}

static void nothing_is_allocated_after_set_up(void **state)
{
    struct t_job job = {.fn = count_allocations, .world = some_ranks};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_threads(&job);
    }
    assert_true(t_allocations > 0); /* otherwise the counter does not work */
}

/* ---- CPU use while waiting ------------------------------------------------------------------- */

static double cpu_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Rank 0 is slow. The other ranks may use only a small share of a core while they wait for rank
 * 0. */
static int wait_for_slow_rank(struct vb_group *g, void *arg)
{
    struct timespec pause = {.tv_nsec = 700 * 1000 * 1000};
    uint64_t start;
    double used;
    int wrong;

    (void)arg;
    wrong = T_WRONG(vb_group_barrier(g) == VB_OK);
    start = vb_clock_ns();
    used = cpu_s();
    if (vb_group_rank(g) == 0)
        nanosleep(&pause, NULL);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    used = (cpu_s() - used) / ((double)(vb_clock_ns() - start) / 1e9);
    return wrong + T_WRONG(used < idle_share);
}

static void waiting_costs_little(void **state)
{
    struct t_job job = {.fn = wait_for_slow_rank, .world = some_ranks};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_processes(&job);
    }
}

/* ---- back-pressure --------------------------------------------------------------------------- */

#define FLOOD_MAX 5000

static struct vb_op flood_ops[T_RANKS_MAX][FLOOD_MAX];

/* Checks promise 7: a sender that gets VB_AGAIN still receives from other ranks. Every rank sends
 * many puts to every rank. */
static int flood(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, i, to, again = 0;
    int counts[T_RANKS_MAX] = {0};
    struct vb_window *win;
    vb_status st;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, (size_t)world * KIB, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, counts) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; i < n_flood; i++) {
        for (to = 0; to < world && wrong == 0;) {
            st = vb_put(win, to, (size_t)rank * KIB, (size_t)rank * KIB, (size_t)(i % KIB),
                        VB_NOTE(CHANNEL, i), &flood_ops[rank][i]);
            if (st == VB_AGAIN) {
                again++;
                wrong += T_WRONG(vb_progress(g) == VB_OK);
                continue;
            }
            wrong += T_WRONG(st == VB_OK);
            if (++to < world)
                wrong += T_WRONG(vb_op_wait(g, &flood_ops[rank][i], "flood", to) == VB_OK);
        }
    }
    for (to = 0; to < world; to++)
        while (counts[to] < n_flood && wrong == 0)
            wrong += T_WRONG(vb_progress(g) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; i < n_flood && wrong == 0; i++)
        wrong += T_WRONG(vb_op_wait(g, &flood_ops[rank][i], "flood", -1) == VB_OK);
    vb_window_destroy(win);
    vb_channel_close(g, CHANNEL);
    return wrong;
}

static atomic_int gave_up;

/* Rank 1 handles nothing until a put of rank 0 has timed out because the queue was full. After that
 * there is space again. */
static int wait_for_room(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), wrong = 0, i;
    int counts[T_RANKS_MAX] = {0};
    struct vb_window *win;
    vb_status st = VB_OK;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 2 * KIB, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, counts) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; rank == 0 && i < FLOOD_MAX && st == VB_OK; i++)
        st = vb_put_wait(win, 1, NULL, 0, 0, KIB, VB_NOTE(CHANNEL, i), &flood_ops[0][i], 100);
    if (rank == 0) {
        wrong += T_WRONG(st == VB_ERR_TIMEOUT) + T_WRONG(flood_ops[0][i - 1].done);
        wrong += T_WRONG(flood_ops[0][i - 1].status == VB_ERR_TIMEOUT);
        atomic_store(&gave_up, 1);
        wrong += T_WRONG(vb_put_wait(win, 1, NULL, 0, 0, KIB, VB_NOTE(CHANNEL, i - 1),
                                     &flood_ops[0][i - 1], 0) == VB_OK);
        wrong += T_WRONG(vb_get_wait(win, 1, KIB, 0, KIB, &flood_ops[0][i], 0) == VB_OK);
        wrong += T_WRONG(vb_op_wait(g, &flood_ops[0][i], "a get", 1) == VB_OK);
    }
    while (rank == 1 && atomic_load(&gave_up) == 0)
        sched_yield();
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    vb_channel_close(g, CHANNEL);
    return wrong;
}

static void a_put_waits_for_room(void **state)
{
    struct t_job job = {.fn = wait_for_room, .world = 2, .transport = VB_TRANSPORT_TCP};

    (void)state;
    atomic_store(&gave_up, 0);
    t_as_threads(&job);
}

static void full_queues_drain(void **state)
{
    struct t_job job = {.fn = flood, .world = some_ranks};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_threads(&job);
        t_as_processes(&job);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static int out_of_bounds(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, to = (rank + 1) % world;
    struct vb_window *win;
    struct vb_op op = {0};
    size_t mine, theirs;

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, (size_t)(rank + 1) * 64 * KIB, &win) == VB_OK);
    mine = vb_window_len(win, rank);
    theirs = vb_window_len(win, to);
    wrong += T_WRONG(theirs >= (size_t)(to + 1) * 64 * KIB);
    wrong += T_WRONG(vb_put(win, to, 0, theirs, 1, 0, &op) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_put(win, to, mine, 0, 1, 0, &op) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_put(win, to, 0, SIZE_MAX, 2, 0, &op) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_put(win, to, 0, 0, SIZE_MAX, 0, &op) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_get(win, to, 0, theirs - 1, 2, &op) == VB_ERR_USAGE);
    wrong += T_WRONG(vb_get(win, to, mine - 1, 0, 2, &op) == VB_ERR_USAGE);
    vb_window_destroy(win);
    return wrong;
}

/* Runs a function over every transport and asserts that a rank printed the text `said`. */
static void everywhere_prints(t_rank_fn fn, const char *said)
{
    struct t_job job = {.fn = fn, .world = some_ranks};
    struct t_stderr t;
    char text[8192];

    t_stderr_catch(&t);
    for (size_t i = 0; i < n_transports; i++) {
        job.transport = transports[i];
        t_as_threads(&job);
    }
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, said));
}

static void bounds_are_checked(void **state)
{
    (void)state;
    everywhere_prints(out_of_bounds, "out of bounds");
}

/* A note on a channel that is not open is dropped. Later notes still arrive. */
static int send_stray_note(struct vb_group *g, void *arg)
{
    int rank = vb_group_rank(g), world = vb_group_world(g), wrong = 0, to = (rank + 1) % world;
    struct vb_window *win;
    struct vb_op op = {0};

    (void)arg;
    wrong += T_WRONG(vb_window_create(g, 64, &win) == VB_OK);
    wrong += T_WRONG(vb_put(win, to, 0, 0, 8, VB_NOTE(CHANNEL, 1), &op) == VB_OK);
    wrong += T_WRONG(vb_op_wait(g, &op, "a stray note", -1) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_window_destroy(win);
    return wrong;
}

static void stray_notes_are_refused(void **state)
{
    (void)state;
    everywhere_prints(send_stray_note, "which is not open; the note was dropped");
}

/* ---- ranks that die -------------------------------------------------------------------------- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Rank 1 ends without a goodbye, at a time when the other ranks have opened the group. The wait of
 * the other ranks must end long before the timeout. */
static int dies(struct vb_group *g, void *arg)
{
    struct timespec ts = {.tv_nsec = 300000000};
    uint64_t start = vb_clock_ns();
    int from = 1;

    (void)arg;
    if (vb_group_rank(g) == from) {
        nanosleep(&ts, NULL);
        _exit(0); /* the parent accepts no other status than 0 */
    }
    return T_WRONG(vb_group_wait(g, never, NULL, "a rank that is dead", from) == VB_ERR_PEER) +
           T_WRONG(vb_clock_ns() - start < 10000000000u);
}

static void a_dead_rank_is_reported(void **state)
{
    struct t_job job = {.fn = dies, .world = some_ranks};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_processes(&job);
    }
    job.never_spin = true;
    job.transport = VB_TRANSPORT_TCP;
    for (job.world = 2; job.world <= 3 && !t_rdma_only(); job.world++)
        t_as_processes(&job);
}

/* Rank 0 waits in vain. The other ranks stay until rank 0 has left. */
static int wait_until_timeout(struct vb_group *g, void *arg)
{
    uint64_t start = vb_clock_ns();
    vb_status st;

    (void)arg;
    if (vb_group_rank(g) == 0)
        return T_WRONG(vb_group_wait(g, never, NULL, "nothing", 1) == VB_ERR_TIMEOUT) +
               T_WRONG(vb_clock_ns() - start >= IN_VAIN_MS * 1000000u);
    do {
        st = vb_group_wait(g, never, NULL, "its end", 0);
    } while (st == VB_ERR_TIMEOUT);
    return T_WRONG(st == VB_ERR_PEER);
}

static void a_wait_ends_at_its_timeout(void **state)
{
    struct t_job job = {.fn = wait_until_timeout,
                        .transport = VB_TRANSPORT_TCP,
                        .timeout_ms = IN_VAIN_MS,
                        .never_spin = true};
    struct t_stderr t;
    char text[8192];

    (void)state;
    if (t_rdma_only())
        return;
    t_stderr_catch(&t);
    for (job.world = 2; job.world <= 3; job.world++)
        t_as_processes(&job);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "waited 1.5 s for rank 1"));
}

/* Returns true after several calls. A wait calls this function after each sleep. */
static bool asked_often(void *arg)
{
    int *n = arg;

    return ++*n >= 8;
}

/* Rank 1 closes the group: it waits in a barrier, says goodbye and exits. Rank 0 continues to wait,
 * as if a message were still on the wire. */
static int wait_after_a_goodbye(struct vb_group *g, void *arg)
{
    int n = 0;

    (void)arg;
    if (vb_group_rank(g) == 1)
        return 0;
    return T_WRONG(vb_group_barrier(g) == VB_OK) +
           T_WRONG(vb_group_wait(g, asked_often, &n, "its last note", 1) == VB_OK) +
           T_WRONG(vb_group_wait(g, never, NULL, "nothing", 1) == VB_ERR_PEER);
}

static void notes_before_a_goodbye_arrive(void **state)
{
    struct t_job job = {.fn = wait_after_a_goodbye, .world = 2, .never_spin = true};
    size_t t;

    (void)state;
    for (t = 0; t < n_transports; t++) {
        job.transport = transports[t];
        t_as_processes(&job);
    }
}

static _Atomic bool has_closed;

/* Rank 1 fails and destroys its window without waiting for rank 0. Rank 0 is a thread of the same
 * process and still reads from this window, so the memory must stay mapped. */
static int reads_after_an_abort(struct vb_group *g, void *arg)
{
    struct vb_window *win;
    char *theirs;
    int wrong = 0;

    (void)arg;
    if (vb_window_create(g, KIB, &win) != VB_OK)
        return 1;
    theirs = vb_window_peer(win, 1);
    if (vb_group_rank(g) == 1)
        theirs[5] = 'x';
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 1) {
        vb_group_abort(g, "enough");
        vb_window_destroy(win);
        has_closed = true;
        return wrong;
    }
    while (!has_closed)
        sched_yield();
    wrong += T_WRONG(theirs[5] == 'x');
    vb_window_destroy(win);
    return wrong;
}

static void a_window_stays_mapped_while_threads_read(void **state)
{
    struct t_job job = {.fn = reads_after_an_abort, .world = 2, .transport = VB_TRANSPORT_SHM};

    (void)state;
    has_closed = false;
    if (t_rdma_only() || getenv("VB_RANK") != NULL)
        return;
    t_as_threads(&job);
}

static int gives_up(struct vb_group *g, void *arg)
{
    (void)arg;
    /* After this barrier all ranks have joined. Some ranks may notice the abort already in this
     * barrier. */
    (void)vb_group_barrier(g);
    if (vb_group_rank(g) == 0) {
        vb_group_abort(g, "the disk is full");
        return 0;
    }
    return T_WRONG(vb_group_barrier(g) == VB_ERR_PEER);
}

static void an_abort_reaches_all_ranks(void **state)
{
    struct t_job job = {.fn = gives_up, .world = some_ranks, .transport = transports[0]};
    struct t_stderr t;
    char text[8192];

    (void)state;
    t_stderr_catch(&t);
    t_as_processes(&job);
    t_stderr_release(&t, text, sizeof(text));
    /* On several machines the messages of the other ranks are not in this text. */
    if (getenv("VB_RANK") == NULL)
        assert_non_null(strstr(text, "gave up: the disk is full"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_work),
        cmocka_unit_test(puts_arrive),
        cmocka_unit_test(gets_copy),
        cmocka_unit_test(full_queues_drain),
        cmocka_unit_test(a_put_waits_for_room),
        cmocka_unit_test(channels_do_not_collide),
        cmocka_unit_test(gets_are_served_while_a_rank_computes),
        cmocka_unit_test(large_puts_and_gets_arrive),
        cmocka_unit_test(puts_from_anywhere_arrive_over_tcp),
        cmocka_unit_test(nothing_is_allocated_after_set_up),
        cmocka_unit_test(waiting_costs_little),
        cmocka_unit_test(bounds_are_checked),
        cmocka_unit_test(stray_notes_are_refused),
        cmocka_unit_test(a_wait_ends_at_its_timeout),
        cmocka_unit_test(notes_before_a_goodbye_arrive),
        cmocka_unit_test(a_window_stays_mapped_while_threads_read),
        cmocka_unit_test(an_abort_reaches_all_ranks),
        cmocka_unit_test(
            /* must be the last test, because a dead rank cannot run another one */
            a_dead_rank_is_reported),
    };

    find_transports();
    return T_RUN(tests);
}
