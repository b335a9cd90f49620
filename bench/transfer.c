/* SPDX-License-Identifier: MIT
 *
 * bench transfer: measures the speed of put and get between two ranks. A window has two halves:
 * the source of a rank's transfers, and the target of its peers' puts. Rank 0 prints, and chooses
 * the repetitions. The latency is half the time of a put and the put that answers it. The
 * bandwidth is that of a stream with up to DEPTH in flight, until the peer has confirmed that all
 * has arrived.
 */
#include "bench/bench_priv.h"

#include <stdlib.h>
#include <string.h>

#define CHANNEL 9
#define DEPTH 16
#define SAMPLES_MAX 20000
#define SAMPLES_MIN 20

struct bench {
    struct vb_group *group;
    const struct vb_bench_opts *opts;
    struct vb_bench_rungs *rungs;
    struct vb_window *win;
    size_t half;
    int rank, world;
    const char *transport;
    int64_t came; /* number of notes received since the bench started */
    int64_t due;
    struct vb_op ops[DEPTH];
    double *samples_us;
    double gb_s[VB_BENCH_SIZES_MAX]; /* speed of puts in one direction */
    int64_t wrong;
    struct vb_bench_ports ports;
};

/* ---- one put --------------------------------------------------------------------------------- */

static void note_came(void *arg, int rank, uint32_t value)
{
    (void)rank;
    (void)value;
    ((struct bench *)arg)->came++;
}

static bool all_came(void *arg)
{
    const struct bench *b = arg;

    return b->came >= b->due;
}

static vb_status wait_notes(struct bench *b, int64_t n, int from)
{
    b->due += n;
    return vb_group_wait(b->group, all_came, b, "bench transfer", from);
}

static vb_status put(struct bench *b, int to, size_t len, struct vb_op *op)
{
    return vb_put_wait(b->win, to, NULL, 0, b->half, len, VB_NOTE(CHANNEL, 0), op, 0);
}

/* Starts a get from rank 1. */
static vb_status get(struct bench *b, size_t len, struct vb_op *op)
{
    return vb_get_wait(b->win, 1, b->half, 0, len, op, 0);
}

static vb_status put_and_wait(struct bench *b, int to, size_t len)
{
    vb_status st = put(b, to, len, &b->ops[0]);

    return st == VB_OK ? vb_op_wait(b->group, &b->ops[0], "bench transfer", to) : st;
}

/* ---- verify ---------------------------------------------------------------------------------- */

static unsigned char pattern(size_t i, size_t len, int rank)
{
    return (unsigned char)(i * 7 + len + (size_t)rank * 13 + (i >> 11));
}

static int64_t count_wrong(const unsigned char *got, size_t len, int rank)
{
    int64_t wrong = 0;
    size_t i;

    for (i = 0; i < len; i++)
        wrong += got[i] != pattern(i, len, rank);
    return wrong;
}

/* Ranks 0 and 1 put to each other. Then each gets the other's source half. */
static vb_status verify(struct bench *b, size_t len)
{
    unsigned char *own = vb_window_ptr(b->win);
    int peer = 1 - b->rank;
    vb_status st = VB_OK;
    size_t i;

    if (b->rank < 2) {
        for (i = 0; i < len; i++)
            own[i] = pattern(i, len, b->rank);
        memset(own + b->half, 0, len);
    }
    st = vb_group_barrier(b->group);
    if (st == VB_OK && b->rank < 2)
        st = put_and_wait(b, peer, len);
    if (st == VB_OK && b->rank < 2)
        st = wait_notes(b, 1, peer);
    if (st == VB_OK && b->rank < 2) {
        b->wrong += count_wrong(own + b->half, len, peer);
        memset(own + b->half, 0, len);
        st = vb_get(b->win, peer, b->half, 0, len, &b->ops[0]);
    }
    if (st == VB_OK && b->rank < 2)
        st = vb_op_wait(b->group, &b->ops[0], "bench transfer", peer);
    if (st == VB_OK && b->rank < 2)
        b->wrong += count_wrong(own + b->half, len, peer);
    return st == VB_OK ? vb_group_barrier(b->group) : st;
}

/* ---- measurements ---------------------------------------------------------------------------- */

/* Makes n repetitions with len bytes. Rank 0 stores the time of each in samples_us; of a stream,
 * the total. Ranks that take no part return immediately. */
typedef vb_status (*measure_fn)(struct bench *b, size_t len, int64_t n);

static double since_us(uint64_t start)
{
    return (double)(vb_clock_ns() - start) / 1000;
}

static vb_status ping_pong(struct bench *b, size_t len, int64_t n)
{
    vb_status st = VB_OK;
    uint64_t start;
    int64_t i;

    for (i = 0; i < n && st == VB_OK && b->rank < 2; i++) {
        start = vb_clock_ns();
        if (b->rank == 0)
            st = put(b, 1, len, &b->ops[0]);
        if (st == VB_OK)
            st = wait_notes(b, 1, 1 - b->rank);
        if (st == VB_OK && b->rank == 1)
            st = put(b, 0, len, &b->ops[0]);
        if (st == VB_OK)
            st = vb_op_wait(b->group, &b->ops[0], "bench transfer", 1 - b->rank);
        if (i < SAMPLES_MAX)
            b->samples_us[i] = since_us(start) / 2;
    }
    return st;
}

static vb_status get_latency(struct bench *b, size_t len, int64_t n)
{
    vb_status st = VB_OK;
    uint64_t start;
    int64_t i;

    for (i = 0; i < n && st == VB_OK && b->rank == 0; i++) {
        start = vb_clock_ns();
        st = get(b, len, &b->ops[0]);
        if (st == VB_OK)
            st = vb_op_wait(b->group, &b->ops[0], "bench transfer", 1);
        if (i < SAMPLES_MAX)
            b->samples_us[i] = since_us(start);
    }
    if (st == VB_OK && b->rank == 0)
        st = put_and_wait(b, 1, 0);
    return st == VB_OK && b->rank == 1 ? wait_notes(b, 1, 0) : st;
}

/* Makes n puts, or n gets from rank 1, with up to DEPTH in flight. */
static vb_status stream(struct bench *b, size_t len, int64_t n, bool is_put)
{
    vb_status st = VB_OK;
    int64_t i;

    for (i = 0; i < n && st == VB_OK; i++) {
        if (i >= DEPTH)
            st = vb_op_wait(b->group, &b->ops[i % DEPTH], "bench transfer", 1 - b->rank);
        if (st == VB_OK)
            st = is_put ? put(b, 1 - b->rank, len, &b->ops[i % DEPTH])
                        : get(b, len, &b->ops[i % DEPTH]);
    }
    for (i = i < DEPTH ? 0 : i - DEPTH; i < n && st == VB_OK; i++)
        st = vb_op_wait(b->group, &b->ops[i % DEPTH], "bench transfer", 1 - b->rank);
    return st;
}

static vb_status stream_one_way(struct bench *b, size_t len, int64_t n)
{
    uint64_t start = vb_clock_ns();
    vb_status st = VB_OK;

    if (b->rank == 0) {
        st = stream(b, len, n, true);
        if (st == VB_OK)
            st = wait_notes(b, 1, 1);
    } else if (b->rank == 1) {
        st = wait_notes(b, n, 0);
        if (st == VB_OK)
            st = put_and_wait(b, 0, 0);
    }
    b->samples_us[0] = since_us(start);
    return st;
}

static vb_status stream_both_ways(struct bench *b, size_t len, int64_t n)
{
    uint64_t start = vb_clock_ns();
    vb_status st = VB_OK;

    if (b->rank < 2) {
        st = stream(b, len, n, true);
        if (st == VB_OK)
            st = wait_notes(b, n, 1 - b->rank);
        if (st == VB_OK)
            st = put_and_wait(b, 1 - b->rank, 0); /* tells the peer that its puts have arrived */
        if (st == VB_OK)
            st = wait_notes(b, 1, 1 - b->rank);
    }
    b->samples_us[0] = since_us(start);
    return st;
}

static vb_status get_stream(struct bench *b, size_t len, int64_t n)
{
    uint64_t start = vb_clock_ns();
    vb_status st = b->rank == 0 ? stream(b, len, n, false) : VB_OK;

    b->samples_us[0] = since_us(start);
    if (st == VB_OK && b->rank == 0)
        st = put_and_wait(b, 1, 0);
    return st == VB_OK && b->rank == 1 ? wait_notes(b, 1, 0) : st;
}

/* Every rank puts to the next rank and waits for the put of the rank before it. */
static vb_status round_robin(struct bench *b, size_t len, int64_t n)
{
    int next = (b->rank + 1) % b->world, before = (b->rank + b->world - 1) % b->world;
    vb_status st = VB_OK;
    uint64_t start;
    int64_t i;

    for (i = 0; i < n && st == VB_OK; i++) {
        start = vb_clock_ns();
        st = put(b, next, len, &b->ops[0]);
        if (st == VB_OK)
            st = wait_notes(b, 1, before);
        if (st == VB_OK)
            st = vb_op_wait(b->group, &b->ops[0], "bench transfer", next);
        if (i < SAMPLES_MAX)
            b->samples_us[i] = since_us(start);
    }
    return st;
}

/* ---- how often ------------------------------------------------------------------------------- */

/* Makes a few repetitions, then as many (*n_p) as fill the time, which rank 0 computes. */
static vb_status repeat(struct bench *b, size_t len, measure_fn measure, int64_t *n_p)
{
    uint64_t start;
    int64_t n = 4;
    double took_s;
    vb_status st;

    do { /* repeated until a run is long enough to be reliable */
        st = vb_group_barrier(b->group);
        start = vb_clock_ns();
        if (st == VB_OK)
            st = measure(b, len, n);
        took_s = (double)(vb_clock_ns() - start) / 1e9 + 1e-9;
        n = (int64_t)((double)n * b->opts->seconds / took_s);
        if (n < SAMPLES_MIN)
            n = SAMPLES_MIN;
        if (took_s < b->opts->seconds / 20 && n > 4096)
            n /= 8; /* the run was too short to be reliable, so it is repeated */
        else
            took_s = b->opts->seconds;
        if (st == VB_OK)
            st = vb_group_broadcast(b->group, 0, &n, sizeof(n));
        if (st == VB_OK)
            st = vb_group_broadcast(b->group, 0, &took_s, sizeof(took_s));
    } while (st == VB_OK && took_s < b->opts->seconds / 20);
    if (st == VB_OK)
        st = vb_group_barrier(b->group);
    *n_p = n;
    return st == VB_OK ? measure(b, len, n) : st;
}

/* ---- a line of the table --------------------------------------------------------------------- */

struct kind {
    const char *op, *dir;
    measure_fn latency; /* NULL: not measured */
    measure_fn stream;  /* NULL: not measured */
    int streams;        /* number of streams that run at the same time */
};

/* Returns measure, or NULL if this measurement was not requested. */
static measure_fn if_asked(const struct bench *b, measure_fn measure, enum vb_bench_part part)
{
    return b->opts->parts & 1u << part ? measure : NULL;
}

static vb_status one_line(struct bench *b, const struct kind *kind, int size)
{
    size_t len = b->opts->sizes[size];
    struct vb_bench_line line = {.transport = b->transport,
                                 .ranks = b->world,
                                 .op = kind->op,
                                 .dir = kind->dir,
                                 .bytes = len,
                                 .p50_us = -1,
                                 .p99_us = -1,
                                 .gb_s = -1,
                                 .pct = -1,
                                 .below = ""};
    int64_t n, moved[VB_PORT_TROUBLES];
    vb_status st = VB_OK;

    if (kind->latency != NULL) {
        st = repeat(b, len, kind->latency, &n);
        n = n < SAMPLES_MAX ? n : SAMPLES_MAX;
        vb_sort(b->samples_us, (size_t)n);
        line.p50_us = b->samples_us[n / 2];
        line.p99_us = b->samples_us[n * 99 / 100];
    }
    if (st == VB_OK && kind->stream != NULL) {
        st = repeat(b, len, kind->stream, &n);
        if (st == VB_OK)
            line.gb_s = (double)len * (double)n * kind->streams / b->samples_us[0] / 1000;
    }
    if (st == VB_OK)
        st = vb_bench_ports_next(&b->ports, moved);
    if (st != VB_OK || b->rank != 0)
        return st;
    line.retries = moved[VB_PORT_RETRIES];
    line.out_of_seq = moved[VB_PORT_OUT_OF_SEQ];
    line.rnr = moved[VB_PORT_RNR];
    if (kind->streams == 1 && b->rungs->gb_s[size] > 0 && line.gb_s >= 0) {
        line.pct = 100 * line.gb_s / b->rungs->gb_s[size];
        line.below = b->rungs->below;
    }
    vb_bench_print(&line, b->opts->json);
    if (strcmp(kind->op, "put") == 0 && kind->streams == 1)
        b->gb_s[size] = line.gb_s;
    return VB_OK;
}

static vb_status all_lines(struct bench *b)
{
    const struct kind kinds[] = {
        {"put", "uni", if_asked(b, ping_pong, VB_BENCH_PUT_LATENCY),
         if_asked(b, stream_one_way, VB_BENCH_PUT), 1},
        {"put", "bi", NULL, if_asked(b, stream_both_ways, VB_BENCH_BOTH), 2},
        {"get", "uni", if_asked(b, get_latency, VB_BENCH_GET_LATENCY),
         if_asked(b, get_stream, VB_BENCH_GET), 1},
        {"round", "uni", if_asked(b, round_robin, VB_BENCH_ROUND), NULL, 1},
    };
    size_t n_kinds = VB_COUNT(kinds), k;
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < b->opts->n_sizes && st == VB_OK; i++) {
        st = verify(b, b->opts->sizes[i]);
        for (k = 0; k < n_kinds && st == VB_OK; k++)
            if (kinds[k].latency != NULL || kinds[k].stream != NULL)
                st = one_line(b, &kinds[k], i);
    }
    return st;
}

static vb_status run(struct bench *b)
{
    vb_status st;

    b->half = bench_largest(b->opts);
    st = vb_window_create(b->group, 2 * b->half, &b->win);
    if (st != VB_OK)
        return st;
    st = vb_channel_open(b->group, CHANNEL, note_came, b);
    if (st == VB_OK)
        st = vb_group_barrier(b->group);
    if (st == VB_OK)
        st = vb_bench_ports_start(b->group, &b->ports);
    if (st == VB_OK)
        st = all_lines(b);
    if (st == VB_OK && !b->opts->json)
        st = vb_bench_ports_print(&b->ports);
    vb_window_destroy(b->win);
    vb_channel_close(b->group, CHANNEL);
    return st;
}

vb_status vb_bench_transfer(struct vb_group *group, const struct vb_bench_opts *opts,
                            struct vb_bench_rungs *rungs, int64_t *wrong_p)
{
    struct bench b = {.group = group,
                      .opts = opts,
                      .rungs = rungs,
                      .rank = vb_group_rank(group),
                      .world = vb_group_world(group)};
    vb_status st;

    if (b.world < 2)
        return vb_err(VB_ERR_USAGE, "bench transfer needs two ranks");
    b.transport = vb_group_transport(group, b.rank == 0 ? 1 : 0);
    b.samples_us = calloc(SAMPLES_MAX, sizeof(*b.samples_us));
    if (b.samples_us == NULL)
        return vb_err_sys("calloc");
    st = run(&b);
    free(b.samples_us);
    memcpy(rungs->gb_s, b.gb_s, sizeof(rungs->gb_s));
    snprintf(rungs->below, sizeof(rungs->below), "%s", b.transport);
    *wrong_p = b.wrong;
    return st;
}
