/* SPDX-License-Identifier: MIT
 *
 * Tests the promises of put and get on every transport:
 *   1, 2  A note arrives after the bytes of its put, and notes arrive in the order of posting.
 *   3     When an op is done, its source may be reused.
 *   4     A get copies the peer's bytes and sends no note.
 *   5, 6  A note may have no bytes, and may have any 32 bits.
 *   7     VB_AGAIN does not stop receiving.
 * test_group.c tests promise 8: a progress thread serves gets while the rank computes.
 *
 * Linked with --wrap=malloc and similar options to count allocations, because puts and gets must
 * not allocate.
 *
 * Covers: net/tcp/tcp_rx.c net/tcp/tcp_tx.c
 */
#include "tests/support/alloc.h"
#include "tests/support/pair.h"

#include <sched.h>

/* Large sizes are multiples of this size. It is smaller for RDMA. */
static size_t mib = (size_t)1 << 20;

static size_t sizes[] = {0, 1, 7, 64, 4095, 65536 + 3, 0};
#define N_SIZES VB_COUNT(sizes)

/* Sets the sizes. They are smaller for RDMA, because an emulated machine is slow, but large enough
 * to be sent in pieces. */
static void set_sizes(void)
{
    if (getenv("VB_TEST_VERBS") != NULL)
        mib = (size_t)192 << 10;
    sizes[N_SIZES - 1] = 8 * mib;
}

static struct t_pair pair; /* static, because it is large */

/* ---- tests ----------------------------------------------------------------------------------- */

static void every_transport_implements_all_functions(void **state)
{
    static const struct vb_transport *const all[] = {&vb_transport_shm, &vb_transport_tcp,
                                                     &vb_transport_verbs};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(all); i++) {
        assert_non_null(all[i]->name);
        assert_non_null(all[i]->open);
        assert_non_null(all[i]->close);
        assert_non_null(all[i]->address);
        assert_non_null(all[i]->connect);
        assert_non_null(all[i]->disconnect);
        assert_non_null(all[i]->link_text);
        assert_non_null(all[i]->registered);
        assert_non_null(all[i]->export_window);
        assert_non_null(all[i]->offer_window);
        assert_non_null(all[i]->unexport_window);
        assert_non_null(all[i]->sever);
        assert_non_null(all[i]->import_window);
        assert_non_null(all[i]->release_window);
        assert_non_null(all[i]->remote_ptr);
        assert_non_null(all[i]->put);
        assert_non_null(all[i]->get);
        assert_non_null(all[i]->poll);
        assert_non_null(all[i]->arm);
        assert_non_null(all[i]->disarm);
        assert_non_null(all[i]->wait_fd);
    }
}

/* Runs a test function on every kind of pair. */
static void on_all_kinds(int queue_depth, size_t len, void (*run)(void))
{
    int kind;

    for (kind = t_kinds_begin(); kind < t_kinds_end(); kind++) {
        print_message("  %s\n", t_kind_names[kind]);
        t_pair_open(&pair, (enum t_kind)kind, queue_depth, len, T_BUF_NONE);
        run();
        assert_int_equal(pair.side[0].n_lost, 0);
        assert_int_equal(pair.side[1].n_lost, 0);
        t_pair_close(&pair);
    }
}

/* ---- promises 1 and 2: a note after its bytes, notes in order -------------------------------- */

#define STREAM_PUTS 28
#define STREAM_SLOT (8 * mib)

/* One side of a stream. It counts errors, because assertions work only in the main thread. */
struct stream {
    struct t_side *side;
    int wrong;
    bool asleep; /* uses await instead of poll */
};

static void stream_wait(struct stream *st)
{
    if (st->asleep)
        t_await(st->side, 64, 1000);
    else if (t_poll(st->side, 64) == 0)
        sched_yield();
}

static size_t stream_size(int i)
{
    return sizes[(size_t)i * 3 % N_SIZES];
}

/* Returns the offset of put i. Two places are used in turn, and the source lies before them. A rank
 * sends put i + 2 when it has note i + 1, which the peer sends after it has checked put i. */
static size_t stream_place(int i)
{
    return STREAM_SLOT * (1 + (size_t)i % 2);
}

static void stream_check(struct stream *st, int *seen)
{
    const char *base = st->side->mem.ptr;

    for (; *seen < st->side->n_notes; (*seen)++) {
        st->wrong += st->side->notes[*seen] != (uint32_t)*seen;
        st->wrong += !t_filled(base + stream_place(*seen), stream_size(*seen), (uint32_t)*seen);
    }
}

static void *stream_run(void *arg)
{
    struct stream *st = arg;
    uint64_t deadline = vb_clock_ns() + T_PATIENCE_NS;
    int i, seen = 0;
    struct vb_op op;

    for (i = 0; i < STREAM_PUTS && vb_clock_ns() < deadline; i++) {
        t_fill(st->side->mem.ptr, stream_size(i), (uint32_t)i);
        while (t_put(st->side, 0, stream_place(i), stream_size(i), (uint32_t)i, &op) == VB_AGAIN)
            stream_wait(st);
        while ((!op.done || st->side->n_notes <= i) && vb_clock_ns() < deadline)
            stream_wait(st);
        stream_check(st, &seen);
    }
    st->wrong += i != STREAM_PUTS;
    return NULL;
}

static void stream_as(bool asleep)
{
    struct stream st[2] = {{&pair.side[0], 0, asleep}, {&pair.side[1], 0, asleep}};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, stream_run, &st[1]), 0);
    stream_run(&st[0]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(st[0].wrong, 0);
    assert_int_equal(st[1].wrong, 0);
    assert_int_equal(pair.side[0].n_notes, STREAM_PUTS);
    assert_int_equal(pair.side[1].n_notes, STREAM_PUTS);
}

static void stream_both_ways(void)
{
    stream_as(false);
}

static void notes_come_after_their_bytes_and_in_order(void **state)
{
    (void)state;
    on_all_kinds(8, 3 * STREAM_SLOT, stream_both_ways);
}

/* Many puts of mixed sizes are posted without waiting. They must arrive in the order of posting. */
#define BURST 300

static void burst_of_mixed_sizes(void)
{
    static const size_t lens[] = {0, 1, 1000, 3, 20000, 0, 64};
    static struct vb_op ops[BURST];
    struct t_side *s = pair.side;
    vb_status st;
    int i;

    for (i = 0; i < BURST; i++)
        do {
            st = t_put(&s[0], 0, 32768, lens[(size_t)i % VB_COUNT(lens)], VB_NOTE(3, i), &ops[i]);
            assert_true(st >= 0);
            if (st == VB_AGAIN)
                t_poll(&s[0], 3);
            t_poll(&s[1], 1 + i % 3);
        } while (st == VB_AGAIN);
    T_UNTIL(&pair, s[0].n_done == BURST && s[1].n_notes == BURST);
    for (i = 0; i < BURST; i++)
        assert_int_equal(s[1].notes[i], VB_NOTE(3, i));
    assert_int_equal(s[0].n_failed, 0);
}

static void notes_of_mixed_sizes_keep_their_order(void **state)
{
    (void)state;
    on_all_kinds(16, mib, burst_of_mixed_sizes);
}

static void set_hold(struct t_side *side, bool on)
{
    ((struct vb_device_head *)side->dev)->holds = on;
}

/* Held puts are sent by a flush, a poll, a put that is not held, or a large put. */
static void hold_and_let_go(void)
{
    struct t_side *s = pair.side;
    struct vb_op ops[12];
    int i, round;

    if (s[0].ops->flush == NULL)
        return;
    t_fill(s[0].mem.ptr, 300000, 8);
    for (i = 0, round = 0; round < 4; round++) {
        set_hold(&s[0], true);
        assert_int_equal(t_put(&s[0], 0, mib / 2, 100, (uint32_t)i, &ops[i]), VB_OK);
        i++;
        assert_int_equal(t_put(&s[0], 0, mib / 2, 16384, (uint32_t)i, &ops[i]), VB_OK);
        i++;
        t_poll(&s[1], 64);
        assert_int_equal(s[1].n_notes, 3 * round);
        set_hold(&s[0], round == 2);
        assert_int_equal(t_put(&s[0], 0, mib / 2, round == 2 ? 300000 : 0, (uint32_t)i, &ops[i]),
                         VB_OK);
        i++;
        set_hold(&s[0], false);
        T_UNTIL(&pair, s[1].n_notes == 3 * (round + 1) && s[0].n_done == i);
        assert_true(t_filled((char *)s[1].mem.ptr + mib / 2, round == 2 ? 300000 : 16384, 8));
    }
    set_hold(&s[0], true);
    assert_int_equal(t_put(&s[0], 0, mib / 2, 7, 99, &ops[0]), VB_OK);
    set_hold(&s[0], false);
    s[0].ops->flush(s[0].dev);
    while (s[1].n_notes == i)
        t_poll(&s[1], 64);
    for (i = 0; i < 12; i++)
        assert_int_equal(s[1].notes[i], (uint32_t)i);
    assert_int_equal(s[1].notes[12], 99);
}

static void held_puts_are_sent_in_order(void **state)
{
    (void)state;
    assert_non_null(vb_transport_tcp.flush);
    on_all_kinds(16, mib, hold_and_let_go);
}

/* ---- promise 3: done means that the source may be reused ------------------------------------- */

static void scribble_when_done(void)
{
    struct t_side *s = pair.side;
    size_t len = 4 * mib;
    struct vb_op op;

    t_fill(s[0].mem.ptr, len, 1);
    assert_int_equal(t_put(&s[0], 0, len, len, 5, &op), VB_OK);
    assert_false(op.done); /* only poll may set op.done, even if the bytes have been sent */
    T_UNTIL(&pair, op.done);
    assert_int_equal(op.status, VB_OK);
    memset(s[0].mem.ptr, 0xee, len);
    T_UNTIL(&pair, s[1].n_notes == 1);
    assert_true(t_filled((char *)s[1].mem.ptr + len, len, 1));
}

static void done_means_that_the_source_may_be_reused(void **state)
{
    (void)state;
    on_all_kinds(4, 8 * mib, scribble_when_done);
}

/* ---- promise 4: get -------------------------------------------------------------------------- */

static void get_all_sizes_both_ways(void)
{
    struct t_side *s = pair.side;
    struct vb_op op[2];
    size_t i;

    for (i = 0; i < N_SIZES; i++) {
        t_fill(s[0].mem.ptr, sizes[i], 10);
        t_fill(s[1].mem.ptr, sizes[i], 20);
        assert_int_equal(t_get(&s[0], 8 * mib, 0, sizes[i], &op[0]), VB_OK);
        assert_int_equal(t_get(&s[1], 8 * mib, 0, sizes[i], &op[1]), VB_OK);
        assert_false(op[0].done || op[1].done);
        T_UNTIL(&pair, op[0].done && op[1].done);
        assert_int_equal(op[0].status, VB_OK);
        assert_int_equal(op[1].status, VB_OK);
        assert_true(t_filled((char *)s[0].mem.ptr + 8 * mib, sizes[i], 20));
        assert_true(t_filled((char *)s[1].mem.ptr + 8 * mib, sizes[i], 10));
    }
    assert_int_equal(s[0].n_notes + s[1].n_notes, 0); /* a get sends no note to its peer */
}

static void get_copies_the_peers_bytes(void **state)
{
    (void)state;
    on_all_kinds(4, 16 * mib, get_all_sizes_both_ways);
}

/* ---- promises 5 and 6: bare notes, all 32 bits ----------------------------------------------- */

static void bare_notes(void)
{
    static const uint32_t notes[] = {0, 1, 0xffffffff, 0x80000000, VB_NOTE(255, 0xabcdef)};
    struct t_side *s = pair.side;
    struct vb_op op[VB_COUNT(notes)];
    size_t i;

    memset(s[1].mem.ptr, 0x55, 4096);
    for (i = 0; i < VB_COUNT(notes); i++)
        assert_int_equal(t_put(&s[0], 0, 0, 0, notes[i], &op[i]), VB_OK);
    T_UNTIL(&pair, s[1].n_notes == (int)VB_COUNT(notes) && s[0].n_done == (int)VB_COUNT(notes));
    assert_memory_equal(s[1].notes, notes, sizeof(notes));
    for (i = 0; i < 4096; i++)
        assert_int_equal(((unsigned char *)s[1].mem.ptr)[i], 0x55);
}

static void a_put_of_nothing_is_a_bare_note(void **state)
{
    (void)state;
    on_all_kinds(8, 4096, bare_notes);
}

/* ---- promise 7: VB_AGAIN does not stop receiving --------------------------------------------- */

#define FILL_MAX 4000
#define FILL_LEN ((size_t)50000)

static int fill_queue(struct t_side *side, struct vb_op *ops)
{
    vb_status st = VB_OK;
    int n = 0;

    while (st == VB_OK && n < FILL_MAX) {
        st = t_put(side, 0, FILL_LEN, FILL_LEN, (uint32_t)n, &ops[n]);
        if (st == VB_OK)
            n++;
    }
    assert_int_equal(st, VB_AGAIN);
    return n;
}

static void fill_both_ways(void)
{
    static struct vb_op ops[2][FILL_MAX];
    struct vb_op get[2];
    struct t_side *s = pair.side;
    int i, k, n[2];

    for (i = 0; i < 2; i++)
        n[i] = fill_queue(&s[i], ops[i]);
    /* Rank 0 cannot send, because rank 1 does not read. Rank 0 must still receive. */
    for (i = 0; i < 100 && s[0].n_notes == 0; i++)
        t_poll(&s[0], 64);
    assert_true(s[0].n_notes > 0);
    T_UNTIL(&pair, s[0].n_notes == n[1] && s[1].n_notes == n[0]);
    T_UNTIL(&pair, s[0].n_done == n[0] && s[1].n_done == n[1]);
    for (k = 0; k < 2; k++)
        for (i = 0; i < n[1 - k]; i++)
            assert_int_equal(s[k].notes[i], i);
    for (k = 0; k < 2; k++) /* gets still work */
        assert_int_equal(t_get(&s[k], 0, 0, FILL_LEN, &get[k]), VB_OK);
    T_UNTIL(&pair, get[0].done && get[1].done);
}

static void a_full_queue_does_not_stop_incoming_notes(void **state)
{
    (void)state;
    on_all_kinds(12, 2 * FILL_LEN, fill_both_ways);
}

/* Both sides post gets until their queues are full. Each side can finish only if the other side
 * serves its gets. */
static void get_until_full_both_ways(void)
{
    static struct vb_op ops[2][64];
    struct t_side *s = pair.side;
    int i, k, n[2] = {0, 0};
    vb_status st;

    for (k = 0; k < 2; k++)
        t_fill((char *)s[k].mem.ptr + mib, mib, (uint32_t)k);
    for (k = 0; k < 2; k++)
        for (i = 0; i < 64; i++) {
            st = t_get(&s[k], 0, mib, mib, &ops[k][i]);
            assert_true(st >= 0);
            n[k] += st == VB_OK;
        }
    assert_true(n[0] >= 12 && n[1] >= 12);
    T_UNTIL(&pair, s[0].n_done == n[0] && s[1].n_done == n[1]);
    for (k = 0; k < 2; k++)
        assert_true(t_filled(s[k].mem.ptr, mib, (uint32_t)(1 - k)));
    assert_int_equal(s[0].n_failed + s[1].n_failed, 0);
}

static void gets_both_ways_do_not_wait_for_each_other(void **state)
{
    (void)state;
    on_all_kinds(12, 2 * mib, get_until_full_both_ways);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* Polls until the device sleeps. An event that was already handled may wake the device once
 * more. */
static void fall_asleep(struct t_side *side, int fd)
{
    int tries;

    for (tries = 0; tries < 5; tries++) {
        T_UNTIL(&pair, t_poll(side, 64) == 0);
        assert_int_equal(side->ops->arm(side->dev), VB_OK);
        if (t_poll(side, 64) == 0 && !t_readable(fd, 0))
            return;
        assert_true(pair.kind >= T_VERBS);
        side->ops->disarm(side->dev);
    }
    fail_msg("the device did not go to sleep while it was idle");
}

static void sleep_and_be_woken(void)
{
    struct t_side *s = pair.side;
    int round, fd = s[1].ops->wait_fd(s[1].dev);
    struct vb_op op;

    for (round = 1; round <= 3; round++) {
        fall_asleep(&s[1], fd);
        assert_int_equal(t_put(&s[0], 0, 0, 100, 1, &op), VB_OK);
        assert_true(t_readable(fd, 5000));
        s[1].ops->disarm(s[1].dev);
        T_UNTIL(&pair, s[1].n_notes == round && op.done);
        assert_int_equal(s[1].ops->wait_fd(s[1].dev), fd);
    }
}

static void a_note_wakes_a_sleeper(void **state)
{
    (void)state;
    on_all_kinds(4, 4096, sleep_and_be_woken);
}

/* A rank sleeps while a put is under way. The device must wake this rank when it can send more,
 * although the rank does not poll. */
static void sleep_until_sent(void)
{
    struct t_side *s = pair.side;
    int fd = s[0].ops->wait_fd(s[0].dev);
    uint64_t deadline = vb_clock_ns() + T_PATIENCE_NS;
    struct vb_op op;

    if (pair.kind <= T_SHM_FDS)
        return; /* on this transport a put is done when it returns */
    t_fill(s[0].mem.ptr, 16 * mib, 3);
    assert_int_equal(t_put(&s[0], 0, 0, 16 * mib, 1, &op), VB_OK);
    while (!op.done) {
        assert_int_equal(s[0].ops->arm(s[0].dev), VB_OK);
        if (t_poll(&s[0], 64) == 0) {
            do {
                t_poll(&s[1], 64);
                assert_true(vb_clock_ns() < deadline);
            } while (!t_readable(fd, 1));
        }
        s[0].ops->disarm(s[0].dev);
    }
    T_UNTIL(&pair, s[1].n_notes == 1);
    assert_true(t_filled(s[1].mem.ptr, 16 * mib, 3));
    fall_asleep(&s[0], fd); /* the device must not wake the rank because the socket is writable */
    s[0].ops->disarm(s[0].dev);
}

static void a_sender_is_woken_to_send_more(void **state)
{
    (void)state;
    on_all_kinds(4, 16 * mib, sleep_until_sent);
}

static void stream_asleep(void)
{
    if (pair.side[0].ops->await != NULL)
        stream_as(true);
}

static void streams_arrive_when_both_ranks_sleep(void **state)
{
    (void)state;
    assert_non_null(vb_transport_tcp.await);
    on_all_kinds(8, 3 * STREAM_SLOT, stream_asleep);
}

/* Await must report events that are ready. Without events it must return in time and report
 * none. */
static void await_in_vain(void)
{
    static const int naps_ms[] = {0, 1, 20, 150};
    struct t_side *s = pair.side;
    struct vb_op op;
    size_t i;

    if (s[0].ops->await == NULL)
        return;
    for (i = 0; i < VB_COUNT(naps_ms); i++) {
        assert_int_equal(t_put(&s[0], 0, 0, 100, (uint32_t)i, &op), VB_OK);
        assert_int_equal(t_await(&s[0], 64, 1000), 1);
        assert_true(op.done);
        assert_int_equal(t_await(&s[0], 64, naps_ms[i]), 0);
    }
    /* all notes have arrived, but each call asks for one note only */
    for (i = 0; i < VB_COUNT(naps_ms); i++)
        assert_int_equal(t_await(&s[1], 1, 1000), 1);
    assert_int_equal(s[1].n_notes, (int)i);
    assert_int_equal(t_await(&s[1], 1, 1), 0);
}

static void an_await_ends(void **state)
{
    (void)state;
    on_all_kinds(4, 4096, await_in_vain);
}

/* ---- a peer that goes away ------------------------------------------------------------------- */

/* Notes that the peer sent before it closed still arrive. After that the loss of the peer is
 * reported once, and then all calls fail. */
static void a_peer_that_closes_is_lost_once(void **state)
{
    struct t_side *s = pair.side;
    struct vb_op op[3];
    int kind;

    (void)state;
    for (kind = t_kinds_begin(); kind < t_kinds_end(); kind++) {
        t_pair_open(&pair, (enum t_kind)kind, 4, 8192, T_BUF_NONE);
        t_fill(s[1].mem.ptr, 100, 9);
        assert_int_equal(t_put(&s[1], 0, 4096, 100, 77, &op[0]), VB_OK);
        assert_int_equal(s[0].ops->arm(s[0].dev), VB_OK);
        s[1].ops->disconnect(s[1].ep);
        s[1].ep = NULL;
        assert_true(t_readable(s[0].ops->wait_fd(s[0].dev), 5000));
        s[0].ops->disarm(s[0].dev);
        T_UNTIL(&pair, s[0].n_lost == 1);
        assert_int_equal(s[0].lost, VB_ERR_PEER);
        assert_int_equal(s[0].n_notes, 1);
        assert_int_equal(s[0].notes[0], 77);
        assert_true(t_filled((char *)s[0].mem.ptr + 4096, 100, 9));
        assert_true(t_put(&s[0], 0, 0, 100, 1, &op[1]) < 0);
        assert_true(t_get(&s[0], 0, 0, 100, &op[2]) < 0);
        assert_int_equal(t_poll(&s[0], 64), 0);
        assert_int_equal(s[0].n_lost, 1);
        t_pair_close(&pair);
    }
}

static void a_peer_that_closes_ends_an_await(void **state)
{
    struct t_side *s = pair.side;
    uint64_t deadline = vb_clock_ns() + T_PATIENCE_NS;
    struct vb_op op;
    int kind;

    (void)state;
    for (kind = T_TCP_UNIX; kind <= T_TCP_LOOPBACK; kind++) {
        t_pair_open(&pair, (enum t_kind)kind, 4, 8192, T_BUF_NONE);
        assert_int_equal(t_put(&s[1], 0, 4096, 100, 77, &op), VB_OK);
        s[1].ops->disconnect(s[1].ep);
        s[1].ep = NULL;
        while (s[0].n_lost == 0 && vb_clock_ns() < deadline)
            t_await(&s[0], 64, 1000);
        assert_int_equal(s[0].n_lost, 1);
        assert_int_equal(s[0].n_notes, 1);
        assert_int_equal(t_await(&s[0], 64, 1), 0);
        t_pair_close(&pair);
    }
}

#define UNDER_WAY ((size_t)24 << 20) /* more bytes than any transport sends at once */

/* Posts puts until the queue is full. These are more puts than the peer has receives for. With
 * fewer puts, a device could complete all of them while a slow process is still closing. */
static int put_until_full(struct t_side *side, struct vb_op *ops, int max)
{
    int n = 0;

    while (n < max && t_put(side, 0, 0, UNDER_WAY, 3, &ops[n]) == VB_OK)
        n++;
    assert_true(n < max);
    return n;
}

/* A put that waits for space and a get without a reply must end when the peer is lost. */
static void ops_under_way_end_with_the_peer(void **state)
{
    struct t_side *s = pair.side;
    struct vb_op op[16];
    int kind, i, n;

    (void)state;
    for (kind = t_kinds_begin(); kind < t_kinds_end(); kind++) {
        if (kind <= T_SHM_FDS)
            continue; /* on this transport a put is done when it returns */
        t_pair_open(&pair, (enum t_kind)kind, 4, UNDER_WAY, T_BUF_NONE);
        assert_int_equal(t_get(&s[0], 0, 0, 100, &op[0]), VB_OK);
        assert_int_equal(t_put(&s[0], 0, 0, UNDER_WAY, 1, &op[1]), VB_OK);
        assert_int_equal(t_put(&s[0], 0, 0, 10, 2, &op[2]), VB_OK);
        n = 3;
        if (kind >= T_VERBS)
            n += put_until_full(&s[0], op + n, (int)VB_COUNT(op) - n);
        s[1].ops->disconnect(s[1].ep);
        s[1].ep = NULL;
        T_UNTIL(&pair, s[0].n_lost == 1);
        for (i = 0; i < n; i++)
            assert_true(op[i].done);
        /* an RDMA device serves gets and small puts without help of the peer's process */
        if (kind < T_VERBS)
            assert_int_equal(s[0].n_failed, 3);
        else
            assert_true(s[0].n_failed >= 1);
        t_pair_close(&pair);
    }
}

/* ---- allocations ----------------------------------------------------------------------------- */

#define QUIET_PUTS 3000

static void put_without_allocating(void)
{
    static struct vb_op ops[8];
    struct t_side *s = pair.side;
    struct vb_op get;
    long before;
    int i;

    before = t_allocations;
    for (i = 0; i < QUIET_PUTS; i++) {
        if (i >= 8)
            T_UNTIL(&pair, ops[i % 8].done);
        assert_int_equal(t_put(&s[0], 0, 65536, (size_t)i % 3000, (uint32_t)i, &ops[i % 8]), VB_OK);
    }
    assert_int_equal(t_get(&s[0], 0, 0, 65536, &get), VB_OK);
    assert_int_equal(s[0].ops->arm(s[0].dev), VB_OK);
    s[0].ops->disarm(s[0].dev);
    T_UNTIL(&pair, s[1].n_notes == QUIET_PUTS && get.done);
    assert_int_equal(t_allocations, before);
}

static void nothing_is_allocated_after_set_up(void **state)
{
    void *ptr = malloc(1);

    (void)state;
    assert_non_null(ptr);
    assert_true(t_allocations > 0); /* otherwise the counter does not work */
    free(ptr);
    on_all_kinds(8, 131072, put_without_allocating);
}

/* ---- more than two ranks --------------------------------------------------------------------- */

#define RANKS 5

/* Returns the number of rounds. The number is small for RDMA, because a round takes long on an
 * emulated machine. */
static int n_rounds(void)
{
    return getenv("VB_TEST_VERBS") != NULL ? 40 : 200;
}

/* One rank of an all-to-all. A rank has one device, and an endpoint and a remote window for each
 * peer. */
struct member {
    int rank;
    struct t_side side; /* side.ep and side.rem belong to the current peer */
    struct vb_ep *eps[RANKS];
    struct vb_remote *rems[RANKS];
    int fds[RANKS];
    int from[RANKS]; /* number of notes from each rank */
    int wrong;
    bool same_process;
    bool asleep; /* uses await instead of poll */
};

static struct member members[RANKS];

static void *member_connect(void *arg)
{
    struct member *m = arg;
    int peer;

    for (peer = 0; peer < RANKS; peer++)
        if (peer != m->rank && t_connect(&m->side, peer, m->fds[peer], m->same_process,
                                         &members[peer].side.address, &m->eps[peer]) != VB_OK)
            m->wrong++;
    return NULL;
}

/* Takes only one event for each call, so that every peer must get its turn. */
static void member_poll(struct member *m)
{
    const struct vb_transport *ops = m->side.ops;
    struct vb_raw_event ev;
    int n = 0;

    if ((m->asleep ? ops->await(m->side.dev, &ev, 1, 1000, &n)
                   : ops->poll(m->side.dev, &ev, 1, &n)) != VB_OK)
        m->wrong++;
    if (n == 0) {
        sched_yield();
        return;
    }
    t_take(&m->side, &ev);
    if (ev.type == VB_RAW_NOTE)
        m->wrong += ev.note != (uint32_t)m->from[ev.rank]++;
    m->wrong += ev.type == VB_RAW_LOST;
}

static bool member_has(const struct member *m, int round, int n_done)
{
    int peer;

    for (peer = 0; peer < RANKS; peer++)
        if (peer != m->rank && m->from[peer] < round)
            return false;
    return m->side.n_done >= n_done;
}

static void *member_run(void *arg)
{
    uint64_t deadline = vb_clock_ns() + T_PATIENCE_NS;
    struct member *m = arg;
    struct vb_op ops[RANKS];
    int round, peer, rounds = n_rounds();

    for (round = 0; round < rounds; round++) {
        for (peer = 0; peer < RANKS; peer++) {
            if (peer == m->rank)
                continue;
            m->side.ep = m->eps[peer];
            m->side.rem = m->rems[peer];
            while (t_put(&m->side, 0, 0, 0, (uint32_t)round, &ops[peer]) == VB_AGAIN)
                member_poll(m);
        }
        while (!member_has(m, round + 1, (round + 1) * (RANKS - 1)) && vb_clock_ns() < deadline)
            member_poll(m);
    }
    m->wrong += !member_has(m, rounds, rounds * (RANKS - 1));
    return NULL;
}

static void members_do(void *(*fn)(void *))
{
    pthread_t threads[RANKS];
    int r;

    for (r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, fn, &members[r]), 0);
    for (r = 0; r < RANKS; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
    for (r = 0; r < RANKS; r++)
        assert_int_equal(members[r].wrong, 0);
}

static void members_open(enum t_kind kind, bool asleep)
{
    int r, peer, fds[2];

    memset(members, 0, sizeof(members));
    for (r = 0; r < RANKS; r++) {
        t_side_open(&members[r].side, kind, r, RANKS, 4);
        members[r].same_process = kind == T_SHM_THREADS;
        members[r].rank = r;
        members[r].asleep = asleep;
        for (peer = 0; peer < r; peer++) {
            t_sockets(kind, T_BUF_NONE, fds);
            members[r].fds[peer] = fds[0];
            members[peer].fds[r] = fds[1];
        }
    }
    members_do(member_connect);
    for (r = 0; r < RANKS; r++)
        t_window_open(&members[r].side, 4096);
    for (r = 0; r < RANKS; r++)
        for (peer = 0; peer < RANKS; peer++)
            if (peer != r)
                assert_int_equal(members[r].side.ops->import_window(members[r].eps[peer], T_WINDOW,
                                                                    &members[peer].side.key, 4096,
                                                                    1000, &members[r].rems[peer]),
                                 VB_OK);
}

static void members_close(void)
{
    struct t_side *side;
    int r, peer;

    for (r = 0; r < RANKS; r++) {
        side = &members[r].side;
        for (peer = 0; peer < RANKS; peer++) {
            /* the remote window and the endpoint of the rank itself are NULL */
            side->ops->release_window(members[r].rems[peer]);
            side->ops->disconnect(members[r].eps[peer]);
        }
        side->ops->unexport_window(side->dev, T_WINDOW);
        side->ops->close(side->dev);
        vb_mem_unmap(&side->mem);
    }
}

static void five_ranks_all_get_their_turn(void **state)
{
    int kind;

    (void)state;
    for (kind = t_kinds_begin(); kind < t_kinds_end(); kind++) {
        members_open((enum t_kind)kind, false);
        members_do(member_run);
        members_close();
        if (members[0].side.ops->await == NULL)
            continue;
        members_open((enum t_kind)kind, true);
        members_do(member_run);
        members_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transport_implements_all_functions),
        cmocka_unit_test(notes_come_after_their_bytes_and_in_order),
        cmocka_unit_test(notes_of_mixed_sizes_keep_their_order),
        cmocka_unit_test(held_puts_are_sent_in_order),
        cmocka_unit_test(done_means_that_the_source_may_be_reused),
        cmocka_unit_test(get_copies_the_peers_bytes),
        cmocka_unit_test(a_put_of_nothing_is_a_bare_note),
        cmocka_unit_test(a_full_queue_does_not_stop_incoming_notes),
        cmocka_unit_test(gets_both_ways_do_not_wait_for_each_other),
        cmocka_unit_test(a_note_wakes_a_sleeper),
        cmocka_unit_test(a_sender_is_woken_to_send_more),
        cmocka_unit_test(streams_arrive_when_both_ranks_sleep),
        cmocka_unit_test(an_await_ends),
        cmocka_unit_test(a_peer_that_closes_is_lost_once),
        cmocka_unit_test(a_peer_that_closes_ends_an_await),
        cmocka_unit_test(ops_under_way_end_with_the_peer),
        cmocka_unit_test(nothing_is_allocated_after_set_up),
        cmocka_unit_test(five_ranks_all_get_their_turn),
    };

    set_sizes();
    return T_RUN(tests);
}
