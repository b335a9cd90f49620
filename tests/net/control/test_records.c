/* SPDX-License-Identifier: MIT
 *
 * Tests records on their way to rank 0, and the comparison of clocks: frames of hostile peers,
 * floods, a rank 0 that is gone, clocks that differ.
 *
 * Covers: net/control/control_record.c net/control/control_clock.c net/wire/wire_record.c
 * Covers: net/group/group_record.c
 */
#include "net/control/control_priv.h"
#include "net/group/group_priv.h"
#include "record/record.h"
#include "tests/support/alloc.h"
#include "tests/support/ranks.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define S UINT64_C(1000000000)
#define SOON (vb_clock_ns() + 30 * S)

static void nap_ms(int ms)
{
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

/* ---- names and payloads ---------------------------------------------------------------------- */

static void only_own_files_are_allowed(void **state)
{
    static const char *const good[] = {"rank12/steps.bin", "rank12/log.txt", "rank12/events.jsonl",
                                       "rank12/net-eth0.7.bin", "rank12/a..b.bin"};
    static const char *const bad[] = {"",
                                      "rank12",
                                      "rank12/",
                                      "rank12/.bin",
                                      "rank12/..bin",
                                      "rank12/../rank0/steps.bin",
                                      "rank12/../x.bin",
                                      "rank12/a/b.bin",
                                      "/rank12/steps.bin",
                                      "./rank12/steps.bin",
                                      "rank1/steps.bin",
                                      "rank012/steps.bin",
                                      "rank+12/steps.bin",
                                      "rank13/steps.bin",
                                      "rank12/steps.bin ",
                                      "rank12/st eps.bin",
                                      "rank12/st\neps.bin",
                                      "rank12/st\\eps.bin",
                                      "rank12/run.json",
                                      "rank12/log.txt.",
                                      "rank12/other.txt",
                                      "run.json"};
    char name[VB_RECORD_NAME_MAX + 8] = "rank12/";
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(good); i++)
        assert_true(vb_wire_record_name_ok(good[i], 12));
    for (i = 0; i < VB_COUNT(bad); i++)
        if (vb_wire_record_name_ok(bad[i], 12))
            fail_msg("\"%s\" is allowed", bad[i]);
    memset(name + 7, 'x', sizeof(name) - 7);
    memcpy(name + VB_RECORD_NAME_MAX - 4, ".bin", 5);
    assert_true(vb_wire_record_name_ok(name, 12));
    memcpy(name + VB_RECORD_NAME_MAX - 4, "x.bin", 6);
    assert_false(vb_wire_record_name_ok(name, 12));
}

static void payloads_are_checked(void **state)
{
    unsigned char bytes[WIRE_RECORD_BYTES_MAX], large[WIRE_RECORD_BYTES_MAX + 1] = {0};
    struct wire_record r = {.file = "rank1/a.bin", .first = true, .bytes = bytes, .len_bytes = 3};
    unsigned char out[WIRE_RECORD_BYTES_MAX];
    struct wire_records w = {
        .state = WIRE_RECORDS_END, .lost_bytes = UINT64_C(1) << 40, .lost_rows = 5};
    struct wire_record in;
    size_t len, cut;

    (void)state;
    memset(bytes, 7, sizeof(bytes));
    len = vb_wire_record_encode(&r, out);
    assert_true(vb_wire_record_decode(out, len, 1, &in));
    assert_string_equal(in.file, "rank1/a.bin");
    assert_true(in.first && in.len_bytes == 3 && in.bytes[2] == 7);
    assert_false(vb_wire_record_decode(out, len, 2, &in));
    for (cut = 0; cut <= 2 + strlen(r.file); cut++) /* no bytes, a cut name, no name */
        assert_false(vb_wire_record_decode(out, cut, 1, &in));
    out[0] = 2;
    assert_false(vb_wire_record_decode(out, len, 1, &in));
    out[0] = 0;
    for (cut = 0; cut < 256; cut++) { /* a length of the name that is not that of the name */
        out[1] = (unsigned char)cut;
        assert_true(vb_wire_record_decode(out, len, 1, &in) == (cut == strlen(r.file)));
    }
    r.len_bytes = VB_RECORD_BYTES_MAX;
    len = vb_wire_record_encode(&r, large);
    assert_true(vb_wire_record_decode(large, len, 1, &in));
    assert_false(vb_wire_record_decode(large, len + 1, 1, &in));
    vb_wire_records_encode(&w, out);
    assert_true(vb_wire_records_decode(out, &w) && w.lost_bytes == UINT64_C(1) << 40 &&
                w.lost_rows == 5);
    out[0] = 9;
    assert_false(vb_wire_records_decode(out, &w));
}

static void rates_are_kept(void **state)
{
    struct rate rate = {.per_ns = 1e-3, .most = 5000, .left = 5000}; /* 1 MB/s */
    uint64_t now = S, taken = 0;
    int i;

    (void)state;
    for (i = 0; i < 10000; i++, now += 100000) /* one second, 10 MB offered */
        taken += vb_rate_take(&rate, 1000, now) ? 1000 : 0;
    assert_in_range(taken, 1000000, 1006000);
    now += 100 * S;
    assert_true(vb_rate_take(&rate, 5000, now)); /* what was saved is bounded */
    assert_false(vb_rate_take(&rate, 1000, now));
    assert_in_range(vb_rate_wait_ns(&rate, 1000), 1000000, 1000002);
    assert_true(vb_rate_take(&rate, 1000, now + vb_rate_wait_ns(&rate, 1000)));
}

/* ---- one connection without threads ---------------------------------------------------------- */

#define ROOM (WIRE_RECORD_BYTES_MAX + 256)

struct side {
    struct control c;
    struct conn conns[2];
    int peer, wire;
};

static const unsigned char key[AUTH_KEY_BYTES] = {1, 2, 3};

static void side_open(struct side *s, int rank)
{
    struct auth_session session;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    memset(s, 0, sizeof(*s));
    s->c = (struct control){.opts = {.world = 2, .slots = 2, .rank = rank, .epoch = 1},
                            .conns = s->conns,
                            .joining = -1,
                            .wake_fd = -1,
                            .epoll_fd = -1};
    s->peer = 1 - rank;
    s->wire = fds[1];
    pthread_mutex_init(&s->c.lock, NULL);
    pthread_cond_init(&s->c.changed, NULL);
    vb_conn_init(&s->conns[0]);
    vb_conn_init(&s->conns[1]);
    vb_auth_session(&session, key, rank == 0 ? AUTH_LISTENER : AUTH_CALLER);
    vb_conn_up(&s->c, s->peer, fds[0], &session);
    s->conns[s->peer].has_info = true;
}

static void side_close(struct side *s)
{
    vb_conn_fini(&s->conns[0]);
    vb_conn_fini(&s->conns[1]);
    vb_record_free(&s->c);
    vb_clock_free(&s->c);
    pthread_cond_destroy(&s->c.changed);
    pthread_mutex_destroy(&s->c.lock);
    close(s->wire);
}

/* A frame of the peer arrives. Returns whether the connection is still up. */
static bool comes(struct side *s, struct auth_session *from, uint16_t type, const void *payload,
                  size_t len)
{
    static unsigned char bytes[ROOM];
    size_t n = vb_auth_frame(&from->out, type, payload, len, bytes);

    assert_int_equal(write(s->wire, bytes, n), n);
    vb_conn_read(&s->c, s->peer);
    return s->conns[s->peer].fd >= 0;
}

static size_t record_of(const char *file, size_t len, unsigned char out[WIRE_RECORD_BYTES_MAX])
{
    static const unsigned char bytes[VB_RECORD_BYTES_MAX];
    struct wire_record r = {.first = true, .bytes = bytes, .len_bytes = len};

    snprintf(r.file, sizeof(r.file), "%s", file);
    return vb_wire_record_encode(&r, out);
}

/* Sends one frame to a fresh rank, and returns whether it keeps the sender. */
static bool survives(int rank, bool joining, uint16_t type, const void *payload, size_t len)
{
    struct auth_session from;
    struct side s;
    bool up;

    side_open(&s, rank);
    s.c.joining = joining ? s.peer : -1;
    vb_auth_session(&from, key, rank == 0 ? AUTH_CALLER : AUTH_LISTENER);
    up = comes(&s, &from, type, payload, len);
    side_close(&s);
    return up;
}

static void hostile_frames_end_the_connection(void **state)
{
    unsigned char out[WIRE_RECORD_BYTES_MAX], token[VB_FOLDER_TOKEN] = {1}, times[WIRE_TIME_BYTES];
    unsigned char zeros[WIRE_RECORDS_BYTES] = {0};
    size_t len = record_of("rank1/steps.bin", 100, out);

    (void)state;
    assert_true(survives(0, false, WIRE_RECORD, out, len));
    assert_false(survives(0, true, WIRE_RECORD, out, len));  /* not a member yet */
    assert_false(survives(1, false, WIRE_RECORD, out, len)); /* not to rank 0 */
    len = record_of("rank0/steps.bin", 100, out);
    assert_false(survives(0, false, WIRE_RECORD, out, len)); /* a file of another rank */
    len = record_of("rank1/../run.json", 100, out);
    assert_false(survives(0, false, WIRE_RECORD, out, len));
    assert_false(survives(0, false, WIRE_RECORD, out, 5)); /* too short for its type */
    assert_false(survives(0, false, WIRE_RECORDS, zeros, sizeof(zeros)));
    assert_false(survives(0, false, WIRE_FOLDER, token, sizeof(token))); /* not from rank 0 */
    assert_true(survives(1, false, WIRE_FOLDER, token, sizeof(token)));
    memset(times, 0, sizeof(times));
    assert_false(survives(0, false, WIRE_TIME, times, sizeof(times))); /* nobody has asked */
    assert_false(survives(0, false, WIRE_TIME_ASK, times, 8));         /* only rank 0 asks */
    assert_true(survives(1, false, WIRE_TIME_ASK, times, 8));
}

static void the_reason_names_the_record(void **state)
{
    unsigned char out[WIRE_RECORD_BYTES_MAX];
    size_t len = record_of("rank0/steps.bin", 100, out);
    struct auth_session from;
    struct side s;
    char text[256];

    (void)state;
    side_open(&s, 0);
    vb_auth_session(&from, key, AUTH_CALLER);
    assert_false(comes(&s, &from, WIRE_RECORD, out, len));
    assert_int_equal(vb_control_status(&s.c, text, sizeof(text)), VB_ERR_PEER);
    assert_non_null(strstr(text, "for a file that is not its own"));
    side_close(&s);
}

/* The box of the test has room for a number of records, which it never empties. */
struct box {
    int room, n;
};

static bool box_put(void *arg, int rank, const char *file, bool first, const void *bytes,
                    size_t len_bytes)
{
    struct box *box = arg;

    (void)bytes;
    assert_true(rank == 1 && first && strcmp(file, "rank1/steps.bin") == 0 && len_bytes > 0);
    if (box->n == box->room)
        return false;
    box->n++;
    return true;
}

/* A flood costs no memory here beyond one frame, and what is dropped is counted. */
static void floods_are_dropped_and_counted(void **state)
{
    unsigned char out[WIRE_RECORD_BYTES_MAX];
    size_t len = record_of("rank1/steps.bin", VB_RECORD_BYTES_MAX, out);
    struct box box = {.room = 5};
    struct vb_record_stats stats;
    struct auth_session from;
    struct side s;
    long before = 0;
    int i;

    (void)state;
    side_open(&s, 0);
    s.c.records.fn = box_put;
    s.c.records.arg = &box;
    vb_auth_session(&from, key, AUTH_CALLER);
    for (i = 0; i < 1000; i++) {
        if (i == 1)
            before = t_allocations;
        assert_true(comes(&s, &from, WIRE_RECORD, out, len));
    }
    assert_int_equal(t_allocations, before);
    stats = vb_control_record_stats(&s.c);
    assert_int_equal(stats.received, 5);
    assert_int_equal(stats.dropped, 995);
    assert_true(stats.dropped_bytes == UINT64_C(995) * VB_RECORD_BYTES_MAX);
    side_close(&s);
}

/* Even with room for all, no more than the rate and what a rank may have saved is taken. */
static void too_fast_records_are_dropped(void **state)
{
    unsigned char out[WIRE_RECORD_BYTES_MAX];
    size_t len = record_of("rank1/steps.bin", VB_RECORD_BYTES_MAX, out);
    struct box box = {.room = 1 << 30};
    struct vb_record_stats stats;
    struct auth_session from;
    uint64_t begin;
    struct side s;
    double most;
    int i;

    (void)state;
    side_open(&s, 0);
    s.c.records.fn = box_put;
    s.c.records.arg = &box;
    s.c.records.bytes_per_s = 100000;
    vb_auth_session(&from, key, AUTH_CALLER);
    begin = vb_clock_ns();
    for (i = 0; i < 500; i++)
        assert_true(comes(&s, &from, WIRE_RECORD, out, len));
    most = 400000 + 125000 * (double)(vb_clock_ns() - begin) / 1e9;
    stats = vb_control_record_stats(&s.c);
    assert_int_equal(stats.received + stats.dropped, 500);
    assert_true(stats.received >= 20 && (double)stats.received_bytes <= most);
    side_close(&s);
}

/* ---- groups ---------------------------------------------------------------------------------- */

#define FILE_BYTES (1 << 20)
#define PIECE 5000

/* What rank 0 has received of each rank. */
struct got {
    unsigned char *bytes[3];
    size_t len[3];
    bool wrong;
};

static unsigned char byte_of(int rank, size_t at)
{
    return (unsigned char)(at * 31 + at / 257 + (size_t)rank);
}

static bool got_put(void *arg, int rank, const char *file, bool first, const void *bytes,
                    size_t len_bytes)
{
    struct got *got = arg;

    got->wrong |= first != (got->len[rank] == 0) || strstr(file, "steps.bin") == NULL ||
                  got->len[rank] + len_bytes > FILE_BYTES;
    if (!got->wrong)
        memcpy(got->bytes[rank] + got->len[rank], bytes, len_bytes);
    got->len[rank] += len_bytes;
    return true;
}

/* Sends a whole file, and waits where the queue is full. Returns the number of errors. */
static int send_all(struct vb_group *g, int rank)
{
    unsigned char piece[PIECE];
    char file[32];
    size_t at, n, i;
    vb_status st;
    uint64_t deadline = SOON;

    snprintf(file, sizeof(file), "rank%d/steps.bin", rank);
    for (at = 0; at < FILE_BYTES; at += n) {
        n = FILE_BYTES - at < PIECE ? FILE_BYTES - at : PIECE;
        for (i = 0; i < n; i++)
            piece[i] = byte_of(rank, at + i);
        while ((st = vb_group_send_record(g, file, at == 0, piece, n)) == VB_AGAIN &&
               vb_clock_ns() < deadline)
            nap_ms(1);
        if (st != VB_OK)
            return 1;
    }
    return 0;
}

static int check_got(const struct got *got)
{
    int wrong = T_WRONG(!got->wrong), rank;
    size_t at;

    for (rank = 1; rank < 3; rank++) {
        wrong += T_WRONG(got->len[rank] == FILE_BYTES);
        for (at = 0; at < FILE_BYTES && got->bytes[rank][at] == byte_of(rank, at); at++)
            ;
        wrong += T_WRONG(at == FILE_BYTES);
    }
    return wrong;
}

static unsigned heard_of_all(struct vb_group *g)
{
    unsigned n = 0;
    int i;

    for (i = 0; i < vb_group_slots(g); i++)
        n += g->heard[i];
    return n;
}

/* Ranks 1 and 2 send a file each. Nothing comes over the data connections meanwhile. */
static int ship_files(struct vb_group *g, void *arg)
{
    static const unsigned char token[VB_FOLDER_TOKEN] = {42};
    unsigned char told[VB_FOLDER_TOKEN] = {0};
    struct got *got = arg;
    int rank = vb_group_rank(g), wrong = 0;
    uint64_t deadline = SOON;
    unsigned heard = heard_of_all(g);

    vb_group_record_rate(g, 100000000);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(heard_of_all(g) > heard); /* the count works */
    heard = heard_of_all(g);
    if (rank == 0) {
        wrong += T_WRONG(vb_group_send_record(g, "rank0/a.bin", true, "x", 1) == VB_ERR_USAGE);
        vb_group_on_record(g, got_put, got);
        vb_group_offer_folder(g, token);
        wrong += T_WRONG(vb_group_wait_records(g, deadline) == VB_OK);
        vb_group_on_record(g, NULL, NULL);
        wrong += check_got(got);
        wrong += T_WRONG(vb_group_record_stats(g).dropped == 0);
        wrong += T_WRONG(vb_group_record_stats(g).lost_bytes == 33);
        wrong += T_WRONG(vb_group_record_stats(g).lost_rows == 1 + 2);
    } else {
        while (!vb_group_folder(g, told) && vb_clock_ns() < deadline)
            nap_ms(1);
        wrong += T_WRONG(memcmp(told, token, sizeof(token)) == 0);
        wrong += T_WRONG(!vb_group_folder(g, told)); /* it is told once */
        vb_group_sees_folder(g, false);
        wrong += T_WRONG(vb_group_send_record(g, "rank0/a.bin", true, "x", 1) == VB_ERR_USAGE);
        wrong += T_WRONG(vb_group_send_record(g, "../a.bin", true, "x", 1) == VB_ERR_USAGE);
        wrong += send_all(g, rank);
        wrong += T_WRONG(vb_group_end_records(g, rank == 1 ? 33 : 0, rank, deadline) == VB_OK);
        wrong += T_WRONG(vb_group_record_stats(g).sent_bytes >= FILE_BYTES);
    }
    wrong += T_WRONG(heard_of_all(g) == heard);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void records_arrive_whole_and_in_order(void **state)
{
    struct got got = {{malloc(1), malloc(FILE_BYTES), malloc(FILE_BYTES)}, {0}, false};
    struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 3, .fn = ship_files, .arg = &got};
    int i;

    (void)state;
    t_as_threads(&job);
    for (i = 0; i < 3; i++)
        free(got.bytes[i]);
}

static bool take_any(void *arg, int rank, const char *file, bool first, const void *bytes,
                     size_t len_bytes)
{
    _Atomic uint64_t *got = arg;

    (void)file;
    (void)first;
    (void)bytes;
    got[rank] += len_bytes;
    return true;
}

/* A slow rate: the queue fills, VB_AGAIN takes nothing, and what was sent keeps the rate. */
static int slow_rate(struct vb_group *g, void *arg)
{
    static const unsigned char bytes[VB_RECORD_BYTES_MAX];
    _Atomic uint64_t *got = arg;
    uint64_t begin = vb_clock_ns(), queued = 0;
    double seconds;
    int wrong = 0;
    vb_status st;

    vb_group_record_rate(g, 200000);
    if (vb_group_rank(g) == 0)
        vb_group_on_record(g, take_any, got);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 1) {
        while ((st = vb_group_send_record(g, "rank1/a.bin", false, bytes, sizeof(bytes))) == VB_OK)
            queued += sizeof(bytes);
        wrong += T_WRONG(st == VB_AGAIN && queued >= 400000 && queued < 700000);
        nap_ms(500);
        seconds = (double)(vb_clock_ns() - begin) / 1e9;
        wrong += T_WRONG((double)vb_group_record_stats(g).sent_bytes < 90000 + 200000 * seconds);
        /* the rest does not wait longer than the deadline */
        wrong += T_WRONG(vb_group_end_records(g, 0, 0, vb_clock_ns() + S / 10) == VB_ERR_TIMEOUT);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 0)
        wrong += T_WRONG(got[1] > 0 && vb_group_record_stats(g).dropped == 0);
    return wrong;
}

static void a_full_queue_takes_nothing(void **state)
{
    _Atomic uint64_t got[2] = {0};
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = slow_rate, .arg = got};

    (void)state;
    t_as_threads(&job);
}

/* Rank 1 ignores every limit and floods rank 0 for two seconds, longer than a silent rank may be.
 * Rank 2 is still served, and nobody is lost. */
static int flood(struct vb_group *g, void *arg)
{
    unsigned char out[WIRE_RECORD_BYTES_MAX];
    size_t len = record_of("rank1/steps.bin", VB_RECORD_BYTES_MAX, out);
    _Atomic uint64_t *got = arg;
    uint64_t deadline;
    struct control *c = g->control;
    int wrong = 0, rank = vb_group_rank(g);
    bool full;

    if (rank == 0)
        vb_group_on_record(g, take_any, got);
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    deadline = vb_clock_ns() + 4 * S;
    while (rank == 1 && vb_clock_ns() < deadline) {
        pthread_mutex_lock(&c->lock);
        full = c->conns[0].out.len > 1u << 20;
        if (!full)
            wrong += T_WRONG(vb_conn_send(c, 0, WIRE_RECORD, out, len) == VB_OK);
        pthread_mutex_unlock(&c->lock);
        if (full)
            nap_ms(1);
    }
    while (rank == 2 && vb_clock_ns() < deadline) {
        wrong += T_WRONG(vb_group_send_record(g, "rank2/a.bin", true, out, 100) == VB_OK);
        nap_ms(50);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (rank == 0) {
        wrong += T_WRONG(got[1] < 12000000); /* four seconds, and what four seconds save */
        wrong += T_WRONG(got[2] >= 1000);
        wrong += T_WRONG(vb_group_record_stats(g).dropped > 100);
    }
    return wrong;
}

static void a_flood_leaves_others_alone(void **state)
{
    _Atomic uint64_t got[3] = {0};
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 3, .fn = flood, .arg = got};

    (void)state;
    t_as_threads(&job);
}

/* ---- rank 0 is gone -------------------------------------------------------------------------- */

static void *short_root(void *arg)
{
    struct vb_group *g;
    struct vb_group_opts *o = arg;

    if (vb_group_open(o, &g) == VB_OK)
        vb_group_close(g);
    return NULL;
}

static void records_are_lost_with_rank_0(void **state)
{
    const struct t_job job = {.transport = VB_TRANSPORT_TCP, .world = 2};
    struct vb_group_opts opts[2];
    struct vb_group *g;
    pthread_t thread;
    char root[32];
    int fd = t_listen(root), i;
    uint64_t deadline = SOON;
    vb_status st = VB_OK;

    (void)state;
    for (i = 0; i < 2; i++) {
        t_group_opts(&job, i, root, fd, &opts[i]);
        opts[i].elastic = true;
    }
    assert_int_equal(pthread_create(&thread, NULL, short_root, &opts[0]), 0);
    assert_int_equal(vb_group_open(&opts[1], &g), VB_OK);
    while (st != VB_ERR_PEER && vb_clock_ns() < deadline) {
        st = vb_group_send_record(g, "rank1/a.bin", false, "x", 1);
        assert_true(st == VB_OK || st == VB_AGAIN || st == VB_ERR_PEER);
        nap_ms(1);
    }
    assert_int_equal(st, VB_ERR_PEER);
    assert_int_equal(vb_group_end_records(g, 0, 0, vb_clock_ns() + 60 * S), VB_ERR_PEER);
    assert_true(vb_clock_ns() < deadline);
    pthread_join(thread, NULL);
    vb_group_close(g);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void lists_keep_the_shortest_of_each_interval(void **state)
{
    static struct clock_peer p;
    struct vb_clock_exchange x;
    uint64_t i, trip;
    int k;

    (void)state;
    for (i = 0; i < 3000; i++) { /* ten a second; every tenth has a short round trip */
        trip = i % 10 == 7 ? 1000 : 500000;
        x = (struct vb_clock_exchange){.asked_ns = 10 * S + i * S / 10};
        x.received_ns = x.answered_ns = x.asked_ns;
        x.returned_ns = x.asked_ns + trip;
        vb_clock_add(&p, &x);
    }
    assert_true(p.n > VB_CLOCK_EXCHANGES / 3 && p.n <= VB_CLOCK_EXCHANGES);
    for (k = 1; k < p.n; k++) {
        assert_true(p.list[k].asked_ns > p.list[k - 1].asked_ns);
        assert_true(p.list[k].returned_ns - p.list[k].asked_ns == 1000 || p.interval_ns < S);
    }
    assert_true(p.list[p.n - 1].asked_ns > 309 * S - p.interval_ns);
}

/* Two times of rank 1, read one after the other: of the machine, and of its injected clock. */
struct pair {
    _Atomic bool there;
    uint64_t true_ns, record_ns;
};

static int compare(struct vb_group *g, void *arg)
{
    struct pair *pair = arg;
    struct vb_clock_exchange x[VB_CLOCK_EXCHANGES];
    static struct vb_clock_fit fit;
    uint64_t at, error, until = vb_clock_ns() + 5 * S / 2;
    int wrong = 0, n;

    if (vb_group_rank(g) == 1) {
        vb_clock_inject((int64_t)(5 * S), 100);
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
        while (vb_clock_ns() < until)
            nap_ms(10);
        pair->true_ns = vb_clock_ns();
        pair->record_ns = vb_record_clock_ns();
        pair->there = true;
        return wrong + T_WRONG(vb_group_barrier(g) == VB_OK);
    }
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    wrong += T_WRONG(vb_group_exchanges(g, 1, x) == 0);
    wrong += T_WRONG(vb_group_compare_clocks(g) == VB_OK);
    while (!pair->there && vb_clock_ns() < until + 30 * S)
        nap_ms(10);
    vb_group_compare_last(g, SOON);
    n = vb_group_exchanges(g, 1, x);
    wrong += T_WRONG(n >= 3 && vb_group_exchanges(g, 0, x) == 0);
    n = vb_group_exchanges(g, 1, x);
    vb_clock_fit(x, n, &fit);
    at = vb_clock_correct(&fit, pair->record_ns, &error);
    /* reading the two clocks of the pair takes time too, more on a busy machine */
    wrong += T_WRONG(at + error + 1000 >= pair->true_ns && at <= pair->true_ns + error + S / 20);
    wrong += T_WRONG(error < S / 10 && fit.n > 0);
    wrong += T_WRONG(fit.knots[0].offset_ns > (int64_t)(49 * S / 10) &&
                     fit.knots[0].offset_ns < (int64_t)(51 * S / 10));
    return wrong + T_WRONG(vb_group_barrier(g) == VB_OK);
}

static void clocks_are_compared(void **state)
{
    struct pair *pair =
        mmap(NULL, sizeof(*pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct t_job job = {.transport = VB_TRANSPORT_SHM, .world = 2, .fn = compare, .arg = pair};

    (void)state;
    assert_true(pair != MAP_FAILED);
    t_as_processes(&job);
    munmap(pair, sizeof(*pair));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_own_files_are_allowed),
        cmocka_unit_test(payloads_are_checked),
        cmocka_unit_test(rates_are_kept),
        cmocka_unit_test(hostile_frames_end_the_connection),
        cmocka_unit_test(the_reason_names_the_record),
        cmocka_unit_test(floods_are_dropped_and_counted),
        cmocka_unit_test(too_fast_records_are_dropped),
        cmocka_unit_test(records_arrive_whole_and_in_order),
        cmocka_unit_test(a_full_queue_takes_nothing),
        cmocka_unit_test(a_flood_leaves_others_alone),
        cmocka_unit_test(records_are_lost_with_rank_0),
        cmocka_unit_test(lists_keep_the_shortest_of_each_interval),
        cmocka_unit_test(clocks_are_compared),
    };

    if (vb_auth_init() != VB_OK)
        return 1;
    return T_RUN(tests);
}
