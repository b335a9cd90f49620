/* SPDX-License-Identifier: MIT
 *
 * Tests the TCP transport with peers that are broken, slow or dying. One end of the connection is
 * an endpoint. The other end is a plain socket, to which the test writes any bytes.
 *
 * Covers: net/tcp/tcp_rx.c net/tcp/tcp_tx.c net/wire/wire_data.c
 */
#include "net/wire/wire_data.h"
#include "tests/support/pair.h"

#define PAGE ((size_t)4096)
#define WINDOW_LEN (2 * PAGE)
#define DEPTH 4

/* An endpoint whose window lies between two guard areas, and the socket that plays the peer of the
 * endpoint. */
struct bed {
    struct t_side side;
    struct vb_mem room; /* guard area, window, guard area */
    int fd;
};

static struct bed bed; /* static, because it is large */

static void bed_open(void)
{
    struct vb_blob none = {0};
    struct vb_mem window;
    int fds[2];

    memset(&bed, 0, sizeof(bed));
    t_side_open(&bed.side, T_TCP_UNIX, 0, 8, DEPTH);
    t_sockets(T_TCP_UNIX, T_BUF_NONE, fds);
    bed.fd = fds[1];
    assert_int_equal(t_connect(&bed.side, 3, fds[0], false, NULL, &bed.side.ep), VB_OK);
    assert_int_equal(vb_mem_map_private(2 * PAGE + WINDOW_LEN, &bed.room), VB_OK);
    memset(bed.room.ptr, 0xa5, bed.room.len_bytes);
    window = (struct vb_mem){.ptr = (char *)bed.room.ptr + PAGE, .len_bytes = WINDOW_LEN, .fd = -1};
    bed.side.mem = window;
    assert_int_equal(bed.side.ops->export_window(bed.side.dev, T_WINDOW, &window,
                                                 VB_WINDOW_PUT | VB_WINDOW_GET, &bed.side.key),
                     VB_OK);
    assert_int_equal(
        bed.side.ops->import_window(bed.side.ep, T_WINDOW, &none, WINDOW_LEN, 0, &bed.side.rem),
        VB_OK);
}

static bool untouched(const unsigned char *p, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (p[i] != 0xa5)
            return false;
    return true;
}

static bool guards_hold(void)
{
    const unsigned char *room = bed.room.ptr;

    return untouched(room, PAGE) &&
           untouched(room + PAGE + WINDOW_LEN, bed.room.len_bytes - PAGE - WINDOW_LEN);
}

static void bed_close(void)
{
    assert_true(guards_hold());
    if (bed.fd >= 0)
        close(bed.fd);
    bed.side.ops->release_window(bed.side.rem);
    bed.side.ops->disconnect(bed.side.ep);
    bed.side.ops->unexport_window(bed.side.dev, T_WINDOW);
    bed.side.ops->close(bed.side.dev);
    vb_mem_unmap(&bed.room);
}

static void play(const void *data, size_t len)
{
    assert_int_equal(send(bed.fd, data, len, MSG_NOSIGNAL), len);
}

static void play_head(const struct data_head *head)
{
    unsigned char bytes[DATA_HEAD_BYTES];

    vb_data_head_encode(head, bytes);
    play(bytes, sizeof(bytes));
}

static void poll_a_while(void)
{
    int i;

    for (i = 0; i < 8; i++)
        t_poll(&bed.side, 64);
}

/* ---- the codec ------------------------------------------------------------------------------- */

static void headers_are_decoded_as_encoded(void **state)
{
    struct data_head heads[] = {
        {.type = DATA_PUT, .window = 1, .note = 0xfedcba98, .offset = 1, .len_bytes = 2},
        {.type = DATA_GET, .window = ~0u, .get = ~0u, .offset = ~0ull, .len_bytes = ~0ull},
        {.type = DATA_REPLY, .get = 9, .len_bytes = 1ull << 40},
    };
    unsigned char bytes[DATA_HEAD_BYTES];
    struct data_head back;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(heads); i++) {
        memset(&back, 0, sizeof(back));
        vb_data_head_encode(&heads[i], bytes);
        assert_null(vb_data_head_decode(bytes, &back));
        assert_memory_equal(&back, &heads[i], sizeof(back));
    }
}

/* The bytes of a header must be as described in docs/protocol.md. */
static void headers_are_little_endian(void **state)
{
    static const unsigned char want[DATA_HEAD_BYTES] = {1, 0, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5, 0, 0,
                                                        0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 1, 2, 3, 4};
    struct data_head head = {.type = DATA_PUT,
                             .window = 0x01020304,
                             .note = 0x05060708,
                             .offset = 0x0102030405060708,
                             .len_bytes = 0x04030201};
    unsigned char bytes[DATA_HEAD_BYTES];

    (void)state;
    vb_data_head_encode(&head, bytes);
    assert_memory_equal(bytes, want, sizeof(want));
}

static void bounds_do_not_overflow(void **state)
{
    (void)state;
    assert_true(vb_data_in_bounds(0, 0, 0));
    assert_true(vb_data_in_bounds(10, 0, 10));
    assert_true(vb_data_in_bounds(4, 6, 10));
    assert_false(vb_data_in_bounds(4, 7, 10));
    assert_false(vb_data_in_bounds(11, 0, 10));
    assert_false(vb_data_in_bounds(UINT64_MAX, 2, 10));
    assert_false(vb_data_in_bounds(2, UINT64_MAX, 10));
    assert_false(vb_data_in_bounds(UINT64_MAX, UINT64_MAX, UINT64_MAX));
}

/* ---- hostile frames -------------------------------------------------------------------------- */

/* Sends these bytes and some more. After that the endpoint must be dead, and a line must contain
 * the reason. */
static void expect_refused(const unsigned char bytes[DATA_HEAD_BYTES], const char *why)
{
    unsigned char more[512];
    struct t_stderr t;
    char text[2048];

    bed_open();
    memset(more, 0xff, sizeof(more));
    play(bytes, DATA_HEAD_BYTES);
    play(more, sizeof(more));
    t_stderr_catch(&t);
    poll_a_while();
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(bed.side.n_lost, 1);
    assert_int_equal(bed.side.lost, VB_ERR_INPUT);
    assert_int_equal(bed.side.n_notes, 0);
    assert_non_null(strstr(text, "net/tcp"));
    assert_non_null(strstr(text, "rank 3"));
    assert_non_null(strstr(text, why));
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text)); /* there is only one line */
    assert_true(untouched(bed.side.mem.ptr, WINDOW_LEN));
    bed_close();
}

static void headers_with_impossible_values_are_refused(void **state)
{
    static const struct {
        struct data_head head;
        const char *why;
    } cases[] = {
        {{DATA_PUT, T_WINDOW + 1, 1, 0, 0, 8}, "window that does not exist"},
        {{DATA_PUT, T_WINDOW, 1, 0, WINDOW_LEN - 7, 8}, "exceeds the window"},
        {{DATA_PUT, T_WINDOW, 1, 0, WINDOW_LEN + 1, 0}, "exceeds the window"},
        {{DATA_PUT, T_WINDOW, 1, 0, 0, WINDOW_LEN + 1}, "exceeds the window"},
        {{DATA_PUT, T_WINDOW, 1, 0, UINT64_MAX - 3, 8}, "exceeds the window"},
        {{DATA_PUT, T_WINDOW, 1, 0, 8, UINT64_MAX - 3}, "exceeds the window"},
        {{DATA_PUT, T_WINDOW, 1, 1, 0, 8}, "number of a get"},
        {{DATA_GET, T_WINDOW + 1, 0, 0, 0, 8}, "window that does not exist"},
        {{DATA_GET, T_WINDOW, 0, 0, 1, WINDOW_LEN}, "exceeds the window"},
        {{DATA_GET, T_WINDOW, 0, 0, UINT64_MAX, 2}, "exceeds the window"},
        {{DATA_GET, T_WINDOW, 5, 0, 0, 2}, "with a note"},
        {{DATA_REPLY, 0, 0, 0, 0, 8}, "no get waits for"},
        {{DATA_REPLY, T_WINDOW, 0, 0, 0, 8}, "reply with"},
        {{DATA_REPLY, 0, 1, 0, 0, 8}, "reply with"},
        {{DATA_REPLY, 0, 0, 0, 64, 8}, "reply with"},
        {{(enum data_type)4, T_WINDOW, 0, 0, 0, 8}, "unknown type"},
        {{(enum data_type)0, T_WINDOW, 0, 0, 0, 8}, "unknown type"},
        {{(enum data_type)255, T_WINDOW, 0, 0, 0, 8}, "unknown type"},
        {{(enum data_type)0x101, T_WINDOW, 0, 0, 0, 8}, "must be zero"},
    };
    unsigned char bytes[DATA_HEAD_BYTES];
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(cases); i++) {
        vb_data_head_encode(&cases[i].head, bytes);
        expect_refused(bytes, cases[i].why);
    }
}

/* A reply must belong to a get that is waiting for it, and must have the requested length. */
static void unexpected_replies_are_refused(void **state)
{
    static const struct data_head replies[] = {
        {DATA_REPLY, 0, 0, 0, 0, 101},
        {DATA_REPLY, 0, 0, 0, 0, 99},
        {DATA_REPLY, 0, 0, 1, 0, 100},
    };
    struct t_stderr t;
    char text[2048];
    struct vb_op op;
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(replies); i++) {
        bed_open();
        assert_int_equal(t_get(&bed.side, 0, 0, 100, &op), VB_OK);
        play_head(&replies[i]);
        play(&replies[i], 8);
        t_stderr_catch(&t);
        poll_a_while();
        t_stderr_release(&t, text, sizeof(text));
        assert_int_equal(bed.side.lost, VB_ERR_INPUT);
        assert_true(op.done);
        assert_int_equal(op.status, VB_ERR_INPUT);
        assert_true(untouched(bed.side.mem.ptr, WINDOW_LEN));
        bed_close();
    }
}

/* A peer that sends gets and never reads may cause only the agreed number of queued replies. */
static void too_many_gets_are_refused(void **state)
{
    struct data_head ask = {DATA_GET, T_WINDOW, 0, 0, 0, WINDOW_LEN};
    struct t_stderr t;
    char text[2048];
    int i;

    (void)state;
    bed_open();
    t_stderr_catch(&t);
    for (i = 0; i < 1000 && bed.side.n_lost == 0; i++) {
        ask.get = (uint32_t)i;
        play_head(&ask);
        poll_a_while();
    }
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(bed.side.lost, VB_ERR_INPUT);
    assert_non_null(strstr(text, "more gets"));
    bed_close();
}

/* ---- dying and slow peers -------------------------------------------------------------------- */

static void a_peer_may_die_at_every_byte(void **state)
{
    static const size_t cuts[] = {33, 34, 63, 64, 131, 132, 1000, 4095, 4096, 5031};
    unsigned char frame[DATA_HEAD_BYTES + 5000];
    struct data_head head = {DATA_PUT, T_WINDOW, 6, 0, 100, 5000};
    size_t i, len;

    (void)state;
    vb_data_head_encode(&head, frame);
    t_fill(frame + DATA_HEAD_BYTES, 5000, 2);
    for (i = 0; i <= DATA_HEAD_BYTES + VB_COUNT(cuts); i++) {
        len = i <= DATA_HEAD_BYTES ? i : cuts[i - DATA_HEAD_BYTES - 1];
        bed_open();
        play(frame, len);
        if (i % 2 == 0) /* in every second case the endpoint reads before the peer closes */
            poll_a_while();
        close(bed.fd);
        bed.fd = -1;
        poll_a_while();
        assert_int_equal(bed.side.n_lost, 1);
        assert_int_equal(bed.side.lost, VB_ERR_PEER);
        assert_int_equal(bed.side.n_notes, 0);
        bed_close();
    }
}

/* Sends frames in pieces of any size, which may begin and end anywhere in a frame. */
static void frames_arrive_in_pieces(void **state)
{
    static unsigned char stream[400000];
    struct data_head head = {.type = DATA_PUT, .window = T_WINDOW};
    uint32_t seed = 4711, n_frames = 0;
    size_t at = 0, end = 0, piece;

    (void)state;
    bed_open();
    while (end + DATA_HEAD_BYTES + WINDOW_LEN < sizeof(stream)) {
        head.note = n_frames++;
        head.offset = t_random(&seed) % 64;
        head.len_bytes = t_random(&seed) % (t_random(&seed) % 3 == 0 ? WINDOW_LEN - 64 : 40);
        vb_data_head_encode(&head, stream + end);
        t_fill(stream + end + DATA_HEAD_BYTES, head.len_bytes, head.note);
        end += DATA_HEAD_BYTES + head.len_bytes;
    }
    while (at < end) {
        piece = 1 + t_random(&seed) % (t_random(&seed) % 4 == 0 ? 9000 : 50);
        if (piece > end - at)
            piece = end - at;
        play(stream + at, piece);
        at += piece;
        t_poll(&bed.side, 1 + (int)(piece % 2));
        if (bed.side.n_notes > 0 && at == end)
            poll_a_while();
    }
    while (t_poll(&bed.side, 64) > 0)
        ;
    assert_int_equal(bed.side.n_notes, n_frames);
    for (at = 0; at < n_frames; at++)
        assert_int_equal(bed.side.notes[at], at);
    assert_true(t_filled((char *)bed.side.mem.ptr + head.offset, head.len_bytes, head.note));
    bed_close();
}

/* The buffers of the sockets are very small, and the reader reads only now and then, so every write
 * is short. */
static void short_writes_are_resumed_exactly(void **state)
{
    static struct t_pair pair;
    static struct vb_op ops[100];
    struct t_side *s = pair.side;
    uint32_t seed = 99;
    int kind, i, n;
    size_t len;

    (void)state;
    for (kind = T_TCP_UNIX; kind <= T_TCP_LOOPBACK; kind++) {
        t_pair_open(&pair, (enum t_kind)kind, 8, 200000, 2048);
        t_fill(s[0].mem.ptr, 100000, 1);
        for (i = 0; i < 100; i++) {
            len = t_random(&seed) % (i % 5 == 0 ? 30000 : 500);
            while (t_put(&s[0], 0, 100000, len, (uint32_t)i, &ops[i]) == VB_AGAIN) {
                for (n = (int)(t_random(&seed) % 4); n > 0; n--)
                    t_poll(&s[1], 1);
                t_poll(&s[0], 2);
            }
        }
        T_UNTIL(&pair, s[1].n_notes == 100 && s[0].n_done == 100);
        for (i = 0; i < 100; i++)
            assert_int_equal(s[1].notes[i], i);
        assert_true(t_filled((char *)s[1].mem.ptr + 100000, len, 1));
        assert_int_equal(t_get(&s[1], 0, 0, 90000, &ops[0]), VB_OK);
        T_UNTIL(&pair, ops[0].done);
        assert_true(t_filled(s[1].mem.ptr, 90000, 1));
        t_pair_close(&pair);
    }
}

/* If a window is destroyed while bytes for it arrive, the connection ends and no memory is
 * overwritten. */
static void a_destroyed_window_ends_its_traffic(void **state)
{
    struct data_head head = {DATA_PUT, T_WINDOW, 6, 0, 0, 5000};
    unsigned char bytes[4968];
    struct t_stderr t;
    char text[2048];

    (void)state;
    bed_open();
    memset(bytes, 1, sizeof(bytes));
    play_head(&head);
    play(bytes, 100);
    poll_a_while();
    t_stderr_catch(&t);
    bed.side.ops->unexport_window(bed.side.dev, T_WINDOW);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "window 7"));
    memset(bed.side.mem.ptr, 0xa5, WINDOW_LEN);
    (void)send(bed.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    poll_a_while();
    assert_int_equal(bed.side.n_lost, 1);
    assert_int_equal(bed.side.n_notes, 0);
    assert_true(untouched(bed.side.mem.ptr, WINDOW_LEN));
    bed_close();
}

/* The same for the reply of a get: after the window is destroyed, its memory may be unmapped. */
static void a_destroyed_window_ends_its_gets(void **state)
{
    struct data_head reply = {.type = DATA_REPLY, .get = 0, .len_bytes = 5000};
    struct vb_span to = {NULL, 5000};
    unsigned char head[DATA_HEAD_BYTES], bytes[5000];
    struct t_stderr t;
    struct vb_op op = {0};
    char text[2048];

    (void)state;
    bed_open();
    memset(bytes, 1, sizeof(bytes));
    to.ptr = bed.side.mem.ptr;
    assert_int_equal(bed.side.ops->get(bed.side.ep, &to, (struct vb_target){bed.side.rem, 0}, &op),
                     VB_OK);
    poll_a_while();
    assert_true(read(bed.fd, text, sizeof(text)) > 0); /* the request was sent completely */
    t_stderr_catch(&t);
    bed.side.ops->unexport_window(bed.side.dev, T_WINDOW);
    t_stderr_release(&t, text, sizeof(text));
    memset(bed.side.mem.ptr, 0xa5, WINDOW_LEN);
    vb_data_head_encode(&reply, head);
    (void)send(bed.fd, head, sizeof(head), MSG_NOSIGNAL);
    (void)send(bed.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    poll_a_while();
    assert_true(untouched(bed.side.mem.ptr, WINDOW_LEN));
    assert_non_null(strstr(text, "window 7"));
    assert_int_equal(bed.side.n_failed, 1);
    assert_int_equal(bed.side.n_lost, 1);
    bed_close();
}

static void a_window_is_exported_once(void **state)
{
    struct t_stderr t;
    char text[2048];

    (void)state;
    bed_open();
    t_stderr_catch(&t);
    assert_int_equal(bed.side.ops->export_window(bed.side.dev, T_WINDOW, &bed.side.mem,
                                                 VB_WINDOW_PUT | VB_WINDOW_GET, &bed.side.key),
                     VB_ERR_USAGE);
    t_stderr_release(&t, text, sizeof(text));
    bed_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_decoded_as_encoded),
        cmocka_unit_test(headers_are_little_endian),
        cmocka_unit_test(bounds_do_not_overflow),
        cmocka_unit_test(headers_with_impossible_values_are_refused),
        cmocka_unit_test(unexpected_replies_are_refused),
        cmocka_unit_test(too_many_gets_are_refused),
        cmocka_unit_test(a_peer_may_die_at_every_byte),
        cmocka_unit_test(frames_arrive_in_pieces),
        cmocka_unit_test(short_writes_are_resumed_exactly),
        cmocka_unit_test(a_destroyed_window_ends_its_traffic),
        cmocka_unit_test(a_destroyed_window_ends_its_gets),
        cmocka_unit_test(a_window_is_exported_once),
    };

    return T_RUN(tests);
}
