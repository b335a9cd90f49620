/* SPDX-License-Identifier: MIT
 *
 * Tests every pair of hosts in turn, while all other ranks wait: bytes are put and got both ways
 * and compared; then latency and bandwidth of put and get are measured.
 *
 * The lower rank of a pair *drives*. The other *answers*: it does what each note says, until the
 * last. So only the driver looks at the clock.
 */
#include "bench/bench_priv.h"

#include <stdlib.h>
#include <string.h>

#define CHANNEL 10
#define DEPTH VB_BENCH_PAIR_OPS
#define BLOCK ((size_t)64 << 10) /* size of the transfers in a stream */
#define SMALL ((size_t)8)        /* size of a put whose latency is measured */
#define VERIFY (BLOCK + 13)      /* length of verified transfers; odd on purpose */
#define SAMPLES_MIN 8
#define SAMPLES_MAX 2000

/* The meaning of a note to the other side. DONE: everything is done. ECHO: put back a reply. TAKE:
 * check the received bytes. STREAM: do nothing. */
enum { DONE, ECHO, TAKE, STREAM };

/* The window of a rank has two halves: first the source of transfers, then the target of the peer's
 * puts and of its own gets. */
#define HALF ((VERIFY + 4095) / 4096 * 4096)

struct pairs {
    struct vb_group *group;
    struct vb_window *win;
    double seconds;
    int rank, peer;
    int64_t echoes, takes, dones; /* number of notes that arrived and are not handled yet */
    struct vb_op *ops;            /* (DEPTH) operations */
    double samples_us[SAMPLES_MAX];
    struct vb_pair found;
};

static void note_came(void *arg, int rank, uint32_t value)
{
    struct pairs *p = arg;

    (void)rank;
    p->dones += value == DONE;
    p->echoes += value == ECHO;
    p->takes += value == TAKE;
}

static bool any_came(void *arg)
{
    const struct pairs *p = arg;

    return p->echoes > 0 || p->takes > 0 || p->dones > 0;
}

static bool one_came(void *count)
{
    return *(const int64_t *)count > 0;
}

static vb_status put(struct pairs *p, size_t len, int what, struct vb_op *op)
{
    return vb_put_wait(p->win, p->peer, NULL, 0, HALF, len, VB_NOTE(CHANNEL, what), op, 0);
}

static vb_status get(struct pairs *p, size_t len, struct vb_op *op)
{
    return vb_get_wait(p->win, p->peer, HALF, 0, len, op, 0);
}

static vb_status put_and_wait(struct pairs *p, size_t len, int what)
{
    vb_status st = put(p, len, what, &p->ops[0]);

    return st == VB_OK ? vb_op_wait(p->group, &p->ops[0], "doctor", p->peer) : st;
}

/* Waits for a note and handles it. count: the count of such notes in *p. */
static vb_status wait_note(struct pairs *p, int64_t *count)
{
    vb_status st = vb_group_wait(p->group, one_came, count, "doctor", p->peer);

    *count -= st == VB_OK;
    return st;
}

static unsigned char pattern(size_t i, int rank)
{
    return (unsigned char)(i * 7 + (size_t)rank * 13 + (i >> 11) + 1);
}

static void check(struct pairs *p)
{
    unsigned char *got = (unsigned char *)vb_window_ptr(p->win) + HALF;
    size_t i;

    for (i = 0; i < VERIFY; i++)
        p->found.wrong += got[i] != pattern(i, p->peer);
    memset(got, 0, VERIFY);
}

/* Both sides do the same: put, check the received bytes, get, check again. The note TAKE says that
 * the sender's put has arrived. The note DONE says that the sender has finished its get. */
static vb_status verify(struct pairs *p)
{
    vb_status st = put_and_wait(p, VERIFY, TAKE);

    if (st == VB_OK)
        st = wait_note(p, &p->takes);
    if (st != VB_OK)
        return st;
    check(p);
    st = get(p, VERIFY, &p->ops[0]);
    if (st == VB_OK)
        st = vb_op_wait(p->group, &p->ops[0], "doctor", p->peer);
    if (st != VB_OK)
        return st;
    check(p);
    st = put_and_wait(p, 0, DONE);
    return st == VB_OK ? wait_note(p, &p->dones) : st;
}

static double since_us(uint64_t start)
{
    return (double)(vb_clock_ns() - start) / 1000;
}

/* The latency of a put is half the time of a put and its reply. */
static vb_status time_op(struct pairs *p, bool is_put, double *us_p)
{
    uint64_t start = vb_clock_ns(), one;
    vb_status st = VB_OK;
    int n;

    for (n = 0;
         st == VB_OK && n < SAMPLES_MAX && (n < SAMPLES_MIN || since_us(start) < p->seconds * 1e6);
         n++) {
        one = vb_clock_ns();
        st = is_put ? put_and_wait(p, SMALL, ECHO) : get(p, SMALL, &p->ops[0]);
        if (st == VB_OK)
            st = is_put ? wait_note(p, &p->echoes)
                        : vb_op_wait(p->group, &p->ops[0], "doctor", p->peer);
        p->samples_us[n] = since_us(one) / (is_put ? 2 : 1);
    }
    vb_sort(p->samples_us, (size_t)n);
    *us_p = p->samples_us[n / 2];
    return st;
}

/* Transfers blocks until the time is over, with up to DEPTH blocks in flight. The last put of a
 * stream asks for an echo, which tells that all blocks have arrived. */
static vb_status stream(struct pairs *p, bool puts, double *gb_s_p)
{
    uint64_t start = vb_clock_ns();
    vb_status st = VB_OK;
    int n, i;

    for (n = 0; st == VB_OK && (n < SAMPLES_MIN || since_us(start) < p->seconds * 1e6); n++) {
        if (n >= DEPTH)
            st = vb_op_wait(p->group, &p->ops[n % DEPTH], "doctor", p->peer);
        if (st == VB_OK)
            st = puts ? put(p, BLOCK, STREAM, &p->ops[n % DEPTH])
                      : get(p, BLOCK, &p->ops[n % DEPTH]);
    }
    for (i = 0; st == VB_OK && i < DEPTH; i++)
        st = vb_op_wait(p->group, &p->ops[i], "doctor", p->peer);
    if (st == VB_OK && puts)
        st = put_and_wait(p, 0, ECHO);
    if (st == VB_OK && puts)
        st = wait_note(p, &p->echoes);
    *gb_s_p = (double)n * (double)BLOCK / since_us(start) / 1000;
    return st;
}

static vb_status drive(struct pairs *p)
{
    vb_status st = verify(p);

    if (st == VB_OK)
        st = time_op(p, true, &p->found.put_us);
    if (st == VB_OK)
        st = time_op(p, false, &p->found.get_us);
    if (st == VB_OK)
        st = stream(p, true, &p->found.put_gb_s);
    if (st == VB_OK)
        st = stream(p, false, &p->found.get_gb_s);
    return st == VB_OK ? put_and_wait(p, 0, DONE) : st;
}

static vb_status answer(struct pairs *p)
{
    vb_status st = verify(p);

    while (st == VB_OK) {
        st = vb_group_wait(p->group, any_came, p, "doctor", p->peer);
        if (st != VB_OK || p->dones > 0)
            break;
        p->echoes--;
        st = put_and_wait(p, SMALL, ECHO);
    }
    p->dones = 0;
    return st;
}

static vb_status one_pair(struct pairs *p, int a, int b)
{
    unsigned char *own = vb_window_ptr(p->win);
    vb_status st = VB_OK;
    size_t i;

    memset(&p->found, 0, sizeof(p->found));
    if (p->rank == a || p->rank == b) {
        p->peer = p->rank == a ? b : a;
        for (i = 0; i < VERIFY; i++)
            own[i] = pattern(i, p->rank);
        memset(own + HALF, 0, VERIFY);
    }
    st = vb_group_barrier(p->group); /* no rank puts before the other rank is ready */
    if (st == VB_OK && p->rank == a)
        st = drive(p);
    if (st == VB_OK && p->rank == b)
        st = answer(p);
    return st;
}

/* Combines the results of a pair. The driver knows the times, both ranks know their numbers of
 * wrong bytes, and one rank of each host knows the counts of the ports. */
static vb_status join(struct pairs *p, struct vb_bench_ports *ports, int a, int b,
                      struct vb_pair *pair)
{
    int world = vb_group_world(p->group);
    struct vb_pair *all = calloc((size_t)world, sizeof(*all));
    int64_t moved[VB_PORT_TROUBLES];
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_bench_ports_next(ports, moved);
    if (st == VB_OK)
        st = vb_group_gather(p->group, &p->found, sizeof(p->found), all);
    if (st == VB_OK) {
        *pair = all[a];
        pair->wrong += all[b].wrong;
        pair->a = a;
        pair->b = b;
        memcpy(pair->moved, moved, sizeof(moved));
        snprintf(pair->host_a, sizeof(pair->host_a), "%.63s", vb_group_host(p->group, a));
        snprintf(pair->host_b, sizeof(pair->host_b), "%.63s", vb_group_host(p->group, b));
    }
    free(all);
    /* only the two ranks of a pair know the transport between them, so one of them tells all */
    if (st == VB_OK && p->rank == a)
        snprintf(pair->transport, sizeof(pair->transport), "%.15s",
                 vb_group_transport(p->group, b));
    if (st == VB_OK)
        st = vb_group_broadcast(p->group, a, pair->transport, sizeof(pair->transport));
    return st;
}

static vb_status all_pairs(struct pairs *p, const int *ranks, int n, struct vb_pair *pairs)
{
    struct vb_bench_ports ports;
    int i, j, k = 0;
    vb_status st = vb_bench_ports_start(p->group, &ports);

    for (i = 0; i < n; i++)
        for (j = i + 1; j < n && st == VB_OK; j++, k++) {
            st = one_pair(p, ranks[i], ranks[j]);
            if (st == VB_OK)
                st = join(p, &ports, ranks[i], ranks[j], &pairs[k]);
        }
    return st;
}

vb_status vb_bench_pairs(struct vb_group *group, const int *ranks, int n, double seconds,
                         struct vb_op ops[VB_BENCH_PAIR_OPS], struct vb_pair *pairs)
{
    struct pairs *p = calloc(1, sizeof(*p));
    vb_status st;

    if (p == NULL)
        return vb_err_sys("calloc");
    p->group = group;
    p->ops = ops;
    p->rank = vb_group_rank(group);
    p->seconds = seconds;
    st = vb_window_create(group, 2 * HALF, &p->win);
    if (st == VB_OK) {
        st = vb_channel_open(group, CHANNEL, note_came, p);
        if (st == VB_OK)
            st = vb_group_barrier(group);
        if (st == VB_OK)
            st = all_pairs(p, ranks, n, pairs);
        vb_window_destroy(p->win);
        vb_channel_close(group, CHANNEL);
    }
    free(p);
    return st;
}
