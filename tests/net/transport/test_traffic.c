/* SPDX-License-Identifier: MIT
 *
 * Counts the bytes that groups move over every transport, against bytes that are known.
 *
 * Covers: net/traffic.c
 */
#include "net/traffic.h"
#include "net/wire/wire_data.h"
#include "tests/support/ranks.h"
#include "tests/support/rdma.h"

#include <stdatomic.h>

#define CHANNEL 5
#define LARGE ((size_t)5 << 20) /* several pieces over RDMA */
#define SMALL 64
#define N_SMALL 500
#define GOT ((size_t)700 << 10)
#define SLACK 4096 /* barriers and credits */

static void links_are_kept_when_they_end(void **state)
{
    struct vb_flow ours = {.sent = 10, .received = 20}, theirs = {.sent = 1, .received = 2};
    struct vb_traffic_link a = {.ours = &ours, .theirs = &theirs}, b = {.theirs = &theirs};
    struct vb_traffic traffic = {.links = NULL};
    uint64_t sent, received;

    (void)state;
    vb_traffic_init(&traffic);
    vb_traffic_sent(&traffic, 100);
    vb_traffic_received(&traffic, 200);
    vb_traffic_add(&traffic, &a);
    vb_traffic_add(&traffic, &b);
    vb_traffic_read(&traffic, &sent, &received);
    assert_int_equal(sent, 100 + 10 + 2 + 2);
    assert_int_equal(received, 200 + 20 + 1 + 1);
    vb_traffic_remove(&traffic, &a);
    vb_traffic_remove(&traffic, &a); /* a second time does nothing */
    vb_flow_add(&ours.sent, 1000);   /* nobody looks any more */
    vb_traffic_read(&traffic, &sent, &received);
    assert_int_equal(sent, 100 + 10 + 2 + 2);
    assert_int_equal(received, 200 + 20 + 1 + 1);
    vb_traffic_remove(&traffic, &b);
    vb_traffic_fini(&traffic);
    vb_traffic_sent(NULL, 1); /* nobody counts */
    vb_traffic_add(NULL, &a);
    vb_traffic_remove(NULL, &a);
}

/* ---- puts and gets --------------------------------------------------------------------------- */

static void count_note(void *arg, int rank, uint32_t value)
{
    (void)rank;
    (void)value;
    ++*(int *)arg;
}

static bool all_came(void *arg)
{
    return *(const int *)arg == N_SMALL + 1;
}

/* Reads the counters all the time, as a recorder does, and looks whether they ever fall. */
struct reader {
    struct vb_group *group;
    _Atomic bool stop;
    int fell;
    pthread_t thread;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    uint64_t sent = 0, received = 0, s, v;

    while (!atomic_load(&r->stop)) {
        vb_group_bytes(r->group, &s, &v);
        r->fell += s < sent || v < received;
        sent = s;
        received = v;
        sched_yield();
    }
    return NULL;
}

static int move(struct vb_group *g, struct vb_window *win)
{
    struct vb_op ops[N_SMALL + 1] = {0}, get = {0};
    int i, wrong = 0;

    for (i = 0; i < N_SMALL; i++)
        wrong += T_WRONG(vb_put_wait(win, 1, NULL, 0, 0, SMALL, VB_NOTE(CHANNEL, 0), &ops[i], 0) ==
                         VB_OK);
    wrong +=
        T_WRONG(vb_put_wait(win, 1, NULL, 0, 0, LARGE, VB_NOTE(CHANNEL, 0), &ops[i], 0) == VB_OK);
    for (i = 0; i <= N_SMALL; i++)
        wrong += T_WRONG(vb_op_wait(g, &ops[i], "a put", 1) == VB_OK);
    wrong += T_WRONG(vb_get_wait(win, 1, 0, 0, GOT, &get, 0) == VB_OK);
    return wrong + T_WRONG(vb_op_wait(g, &get, "a get", 1) == VB_OK);
}

static bool is_about(uint64_t moved, uint64_t least)
{
    if (moved < least || moved > least + SLACK)
        fprintf(stderr, "%llu bytes, not from %llu to %llu\n", (unsigned long long)moved,
                (unsigned long long)least, (unsigned long long)least + SLACK);
    return moved >= least && moved <= least + SLACK;
}

/* The headers of a put and of a get, and of the reply to a get. */
static uint64_t head_bytes(const struct vb_group *g, bool put)
{
    const char *name = vb_group_transport(g, 1 - vb_group_rank(g));

    if (strcmp(name, "tcp") == 0)
        return DATA_HEAD_BYTES;
    return strcmp(name, "verbs") == 0 && put ? 4 : 0; /* the immediate data */
}

static int put_and_get(struct vb_group *g, void *arg)
{
    uint64_t sent[2], received[2], out, in;
    struct reader reader = {.group = g};
    struct vb_window *win;
    int wrong = 0, came = 0;
    bool owner_sees;

    (void)arg;
    wrong += T_WRONG(pthread_create(&reader.thread, NULL, read_on, &reader) == 0);
    wrong += T_WRONG(vb_window_create(g, LARGE, &win) == VB_OK);
    wrong += T_WRONG(vb_channel_open(g, CHANNEL, count_note, &came) == VB_OK);
    vb_group_bytes(g, &sent[0], &received[0]); /* after the barrier the other rank begins */
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 0)
        wrong += move(g, win);
    else
        wrong += T_WRONG(vb_group_wait(g, all_came, &came, "all puts", 0) == VB_OK);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_group_bytes(g, &sent[1], &received[1]);
    out = LARGE + N_SMALL * SMALL + (N_SMALL + 1) * head_bytes(g, true) + head_bytes(g, false);
    in = GOT + head_bytes(g, false);
    if (vb_group_rank(g) == 0) {
        wrong += T_WRONG(is_about(sent[1] - sent[0], out));
        wrong += T_WRONG(is_about(received[1] - received[0], in));
    } else {
        owner_sees = strcmp(vb_group_transport(g, 0), "verbs") != 0;
        wrong += T_WRONG(is_about(received[1] - received[0], out));
        wrong += T_WRONG(is_about(sent[1] - sent[0], owner_sees ? in : 0));
    }
    atomic_store(&reader.stop, true);
    pthread_join(reader.thread, NULL);
    wrong += T_WRONG(reader.fell == 0);
    vb_window_destroy(win);
    return wrong;
}

static void puts_and_gets_are_counted(void **state)
{
    struct t_job job = {.fn = put_and_get, .world = 2};
    enum vb_transport_choice transports[T_TRANSPORTS];
    size_t i, n = t_find_transports(transports);

    (void)state;
    for (i = 0; i < n; i++) {
        job.transport = transports[i];
        t_as_threads(&job);
        job.progress = true;
        t_as_threads(&job);
        job.progress = false;
        if (job.transport != VB_TRANSPORT_VERBS)
            t_as_processes(&job);
    }
}

/* ---- mapped memory --------------------------------------------------------------------------- */

/* Each rank reads its share of the other's vector and writes the sum of its share to it; the other
 * rank does the same with it. */
static int sum_mapped(struct vb_group *g, void *arg)
{
    enum { ELEMS = 1 << 20, TIMES = 5 };
    uint64_t sent[2], received[2], bytes = (uint64_t)ELEMS * sizeof(float) * TIMES;
    struct vb_coll *coll;
    struct vb_req req;
    int i, wrong = 0;

    (void)arg;
    wrong += T_WRONG(vb_coll_open(g, ELEMS * sizeof(float), NULL, &coll) == VB_OK);
    vb_group_bytes(g, &sent[0], &received[0]);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    for (i = 0; i < TIMES; i++) {
        wrong += T_WRONG(vb_allreduce_start(coll, 0, ELEMS, VB_REDUCE_SUM, &req) == VB_OK);
        wrong += T_WRONG(vb_wait(coll, &req) == VB_OK);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    vb_group_bytes(g, &sent[1], &received[1]);
    wrong += T_WRONG(is_about(sent[1] - sent[0], bytes));
    wrong += T_WRONG(is_about(received[1] - received[0], bytes));
    vb_coll_close(coll);
    return wrong;
}

static void sums_in_mapped_memory_are_counted(void **state)
{
    struct t_job job = {.fn = sum_mapped, .world = 2, .transport = VB_TRANSPORT_SHM};

    (void)state;
    if (t_rdma_only())
        skip();
    t_as_threads(&job);
    t_as_processes(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_kept_when_they_end),
        cmocka_unit_test(puts_and_gets_are_counted),
        cmocka_unit_test(sums_in_mapped_memory_are_counted),
    };

    return T_RUN(tests);
}
