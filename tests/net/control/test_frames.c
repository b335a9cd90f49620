/* SPDX-License-Identifier: MIT
 *
 * Tests that control frames are authentic: two ranks without threads are connected through the
 * test, which injects, repeats, returns, swaps, cuts and damages their frames.
 *
 * Covers: net/control/auth.c net/control/conn.c net/control/join.c net/control/agree.c
 */
#include "net/control/control_priv.h"

#include "tests/support/alloc.h"
#include "tests/support/ranks.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define ROOM 8192

/* One rank, its only peer, and the test's end of its connection. */
struct side {
    struct control c;
    struct conn conns[2];
    int peer, wire;
};

static const unsigned char key[AUTH_KEY_BYTES] = {1, 2, 3};

static void side_open(struct side *s, int rank, bool elastic)
{
    struct auth_session session;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    memset(s, 0, sizeof(*s));
    s->c = (struct control){.opts = {.world = 2, .slots = 2, .rank = rank, .epoch = 1},
                            .conns = s->conns,
                            .joining = -1,
                            .epoll_fd = -1};
    s->c.opts.elastic = elastic;
    s->peer = 1 - rank;
    s->wire = fds[1];
    pthread_mutex_init(&s->c.lock, NULL);
    pthread_cond_init(&s->c.changed, NULL);
    vb_conn_init(&s->conns[0]);
    vb_conn_init(&s->conns[1]);
    vb_auth_session(&session, key, rank == 0 ? AUTH_LISTENER : AUTH_CALLER);
    vb_conn_up(&s->c, s->peer, fds[0], &session);
    snprintf(s->conns[s->peer].info.host, WIRE_HOST, "%s", rank == 0 ? "oak" : "elm");
}

static void side_close(struct side *s)
{
    vb_conn_fini(&s->conns[0]);
    vb_conn_fini(&s->conns[1]);
    free(s->c.table);
    pthread_cond_destroy(&s->c.changed);
    pthread_mutex_destroy(&s->c.lock);
    if (s->wire >= 0)
        close(s->wire);
}

static void begin(struct side sides[2], bool elastic)
{
    side_open(&sides[0], 0, elastic);
    side_open(&sides[1], 1, elastic);
}

static void end(struct side sides[2])
{
    side_close(&sides[0]);
    side_close(&sides[1]);
}

/* Sends a frame and returns its bytes, which have not arrived yet. */
static size_t send_frame(struct side *from, uint16_t type, const void *payload, size_t len,
                         unsigned char bytes[ROOM])
{
    ssize_t n;

    assert_int_equal(vb_conn_send(&from->c, from->peer, type, payload, len), VB_OK);
    n = read(from->wire, bytes, ROOM);
    assert_true(n > 0);
    return (size_t)n;
}

static void arrive(struct side *to, const unsigned char *bytes, size_t len)
{
    assert_int_equal(write(to->wire, bytes, len), len);
    vb_conn_read(&to->c, to->peer);
}

static void hang_up(struct side *s)
{
    close(s->wire);
    s->wire = -1;
    vb_conn_read(&s->c, s->peer);
}

static void is_up(const struct side *s)
{
    assert_true(s->conns[s->peer].fd >= 0);
    assert_int_equal(s->c.failed, VB_OK);
}

/* The connection has ended with a sentence that names the peer, its host and the fault. */
static void is_lost(struct side *s, const char *fault)
{
    char text[256], who[64];

    assert_int_equal(vb_control_status(&s->c, text, sizeof(text)), VB_ERR_PEER);
    snprintf(who, sizeof(who), "rank %d (%s) is lost: ", s->peer, s->peer == 1 ? "oak" : "elm");
    if (strstr(text, who) != text || strstr(text, fault) == NULL)
        fail_msg("expected %s... %s, found: %s", who, fault, text);
    assert_int_equal(s->conns[s->peer].fd, -1);
}

static size_t send_beat(struct side *from, uint64_t step, unsigned char bytes[ROOM])
{
    const struct wire_beat beat = {step, VB_DOES_COMPUTE, WIRE_NO_RANK, 0, 0};
    unsigned char payload[WIRE_BEAT_BYTES];

    vb_wire_beat_encode(&beat, payload);
    return send_frame(from, WIRE_BEAT, payload, sizeof(payload), bytes);
}

/* ---- undisturbed ----------------------------------------------------------------------------- */

static void undisturbed_frames_pass(void **state)
{
    unsigned char bytes[ROOM], blob[3000] = {0, 0, 0, 0, 5};
    struct side sides[2];
    size_t n, i;
    int k, way;

    (void)state;
    begin(sides, false);
    for (k = 0; k < 6; k++) {
        for (way = 0; way < 2; way++) {
            n = send_beat(&sides[way], (uint64_t)k + 7, bytes);
            arrive(&sides[1 - way], bytes, n);
            assert_int_equal(sides[1 - way].conns[way].beat.last.step, k + 7);
            n = send_frame(&sides[way], WIRE_BLOB, blob, sizeof(blob), bytes);
            for (i = 0; i < n; i++) /* byte by byte */
                arrive(&sides[1 - way], bytes + i, 1);
            assert_int_equal(sides[1 - way].conns[way].blobs.n, k + 1);
        }
    }
    n = send_frame(&sides[0], WIRE_ABORT, NULL, 0, bytes); /* length 0 of a type that varies */
    arrive(&sides[1], bytes, n - 1);
    assert_int_equal(sides[1].c.failed, VB_OK);
    arrive(&sides[1], bytes + n - 1, 1);
    assert_non_null(strstr(sides[1].c.failure, "gave up"));
    end(sides);
}

static void beats_allocate_nothing(void **state)
{
    unsigned char bytes[ROOM];
    struct side sides[2];
    long before = 0;
    int k;

    (void)state;
    begin(sides, false);
    for (k = 0; k < 1000; k++) {
        arrive(&sides[1], bytes, send_beat(&sides[0], (uint64_t)k, bytes));
        if (k == 0)
            before = t_allocations;
    }
    assert_int_equal(t_allocations, before);
    assert_int_equal(sides[1].conns[0].beat.last.step, 999);
    end(sides);
}

/* ---- disturbed ------------------------------------------------------------------------------- */

static void injected_frames_are_found(void **state)
{
    static const unsigned char other[AUTH_KEY_BYTES] = {9};
    unsigned char bytes[ROOM] = {0};
    struct auth_session stranger;
    struct side sides[2];
    size_t n;
    int what;

    (void)state;
    for (what = 0; what < 3; what++) {
        begin(sides, false);
        vb_auth_session(&stranger, other, AUTH_CALLER);
        n = vb_auth_frame(&stranger.out, what == 0 ? WIRE_BYE : WIRE_ABORT, "x", (size_t)what / 2,
                          bytes);
        arrive(&sides[0], bytes, n);
        assert_false(sides[0].conns[1].end.left);
        is_lost(&sides[0], "a control frame is not authentic: it was injected, or damaged");
        end(sides);
    }
}

static void repeated_frames_are_found(void **state)
{
    unsigned char bytes[ROOM], payload[WIRE_BEAT_BYTES] = {0};
    struct side sides[2];
    size_t n;
    int type;

    (void)state;
    for (type = WIRE_BEAT; type <= WIRE_BLOB; type += WIRE_BLOB - WIRE_BEAT) {
        begin(sides, false);
        n = send_frame(&sides[1], (uint16_t)type, payload, sizeof(payload), bytes);
        arrive(&sides[0], bytes, n);
        is_up(&sides[0]);
        arrive(&sides[0], bytes, n);
        is_lost(&sides[0], "it was sent before and came again");
        end(sides);
    }
}

static void returned_frames_are_found(void **state)
{
    unsigned char bytes[ROOM];
    struct side sides[2];
    size_t n;
    int way;

    (void)state;
    for (way = 0; way < 2; way++) {
        begin(sides, false);
        n = send_beat(&sides[way], 1, bytes);
        arrive(&sides[way], bytes, n);
        is_lost(&sides[way], "this rank sent it, and it came back");
        end(sides);
    }
}

static void swapped_and_missing_frames_are_found(void **state)
{
    unsigned char first[ROOM], second[ROOM];
    struct side sides[2];
    size_t n;

    (void)state;
    begin(sides, false);
    (void)send_beat(&sides[0], 1, first);
    n = send_beat(&sides[0], 2, second);
    arrive(&sides[1], second, n); /* the first one comes later, or never */
    is_lost(&sides[1], "frames that were sent before it did not come");
    end(sides);
}

static void cut_frames_are_found(void **state)
{
    unsigned char bytes[ROOM];
    struct side sides[2];
    size_t n = 1, cut;

    (void)state;
    for (cut = 0; cut < n; cut++) {
        begin(sides, false);
        n = send_frame(&sides[0], WIRE_ABORT, "the disk is full", 16, bytes);
        if (cut > 0)
            arrive(&sides[1], bytes, cut);
        is_up(&sides[1]);
        hang_up(&sides[1]);
        is_lost(&sides[1], cut == 0 ? "the connection closed"
                                    : "the connection closed in the middle of a control frame");
        end(sides);
    }
}

static void flipped_bits_are_found(void **state)
{
    static const struct {
        uint16_t type;
        size_t len;
    } frames[] = {{WIRE_BEAT, WIRE_BEAT_BYTES},
                  {WIRE_BLOB, 40},
                  {WIRE_BLOB, 140},
                  {WIRE_ABORT, 20},
                  {WIRE_ABORT, 0},
                  {WIRE_BYE, 0},
                  {WIRE_KEY, 72},
                  {WIRE_INFO, 256},
                  {WIRE_TABLE, 512}};
    unsigned char bytes[ROOM], payload[512] = {0};
    struct side sides[2];
    size_t f, n, bit;

    (void)state;
    for (f = 0; f < sizeof(frames) / sizeof(frames[0]); f++) {
        for (bit = 0, n = 1; bit < 8 * n; bit++) {
            begin(sides, false);
            n = send_frame(&sides[0], frames[f].type, payload, frames[f].len, bytes);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            arrive(&sides[1], bytes, n); /* nothing more comes, and the fault is found */
            is_lost(&sides[1], "a control frame is");
            end(sides);
        }
    }
}

static void an_unproved_length_gets_no_memory(void **state)
{
    unsigned char bytes[WIRE_FRAME_HEAD + WIRE_TAG] = {0};
    struct side sides[2];

    (void)state;
    begin(sides, false);
    vb_wire_frame_encode(65536, WIRE_BLOB, bytes);
    arrive(&sides[1], bytes, sizeof(bytes));
    assert_null(sides[1].conns[0].in.payload);
    is_lost(&sides[1], "it was injected, or damaged");
    end(sides);
}

static void unproved_bytes_are_not_heard(void **state)
{
    unsigned char bytes[ROOM];
    struct side sides[2];
    size_t n;

    (void)state;
    begin(sides, false);
    n = send_beat(&sides[0], 1, bytes);
    sides[1].conns[0].beat.heard_ns = 0;
    arrive(&sides[1], bytes, n - 1);
    assert_int_equal(sides[1].conns[0].beat.heard_ns, 0);
    arrive(&sides[1], bytes + n - 1, 1);
    assert_true(sides[1].conns[0].beat.heard_ns > 0);
    end(sides);
}

/* In an elastic group only the member with the bad frame is gone. */
static void elastic_groups_lose_one_member(void **state)
{
    unsigned char bytes[ROOM];
    struct side sides[2];
    size_t n;

    (void)state;
    begin(sides, true);
    n = send_beat(&sides[1], 1, bytes);
    bytes[n - 1] ^= 1;
    arrive(&sides[0], bytes, n);
    assert_int_equal(sides[0].c.failed, VB_OK);
    assert_true(sides[0].conns[1].end.lost);
    assert_int_equal(sides[0].conns[1].fd, -1);
    assert_non_null(strstr(sides[0].conns[1].end.why, "it was injected, or damaged on the way"));
    end(sides);
}

/* ---- a joiner, before it has a slot ---------------------------------------------------------- */

static enum wire_verdict welcome(void *arg, const struct wire_call *call,
                                 unsigned char secret[AUTH_KEY_BYTES], uint32_t *epoch_p)
{
    (void)arg;
    memcpy(secret, key, AUTH_KEY_BYTES);
    *epoch_p = 0;
    return call->kind == WIRE_JOIN ? WIRE_WELCOME : WIRE_BAD_RANK;
}

struct gate {
    int listen_fd;
    size_t bit; /* of the slot frame, which is flipped; SIZE_MAX: none */
};

/* Gives one joiner a slot, as rank 0 does. */
static void *gate_main(void *arg)
{
    const struct wire_slot slot = {.slot = 1, .epoch = 2, .world = 1, .slots = 2};
    unsigned char in[WIRE_CALL_BYTES], out[WIRE_ANSWER_BYTES], payload[WIRE_SLOT_BYTES];
    unsigned char bytes[AUTH_FRAME_ROOM(WIRE_SLOT_BYTES)];
    const struct gate *gate = arg;
    struct auth_session session;
    struct handshake hs;
    int fd = accept(gate->listen_fd, NULL, NULL);
    ssize_t n;
    size_t len;

    vb_handshake_init(&hs, 0, 0);
    while (fd >= 0 && vb_handshake_wants(&hs) > 0) {
        n = read(fd, in, vb_handshake_wants(&hs));
        if (n <= 0)
            break;
        len = vb_handshake_feed(&hs, in, (size_t)n, welcome, NULL, out);
        if (len > 0 && write(fd, out, len) != (ssize_t)len)
            break;
    }
    vb_auth_session(&session, hs.session, AUTH_LISTENER);
    vb_wire_slot_encode(&slot, payload);
    len = vb_auth_frame(&session.out, WIRE_SLOT, payload, sizeof(payload), bytes);
    if (gate->bit < 8 * len)
        bytes[gate->bit / 8] ^= (unsigned char)(1u << gate->bit % 8);
    (void)!write(fd, bytes, len);
    (void)!read(fd, in, 1); /* until the joiner has hung up */
    close(fd);
    return NULL;
}

static vb_status ask_slot(size_t bit, char text[1024])
{
    struct gate gate = {.bit = bit};
    struct wire_slot slot = {0};
    struct auth_session session;
    struct sock_addr root;
    struct t_stderr err;
    pthread_t thread;
    char name[32];
    vb_status st;
    int fd;

    gate.listen_fd = t_listen(name);
    assert_int_equal(fcntl(gate.listen_fd, F_SETFL, 0), 0); /* accept() waits */
    assert_int_equal(vb_sock_resolve(name, &root), VB_OK);
    assert_int_equal(pthread_create(&thread, NULL, gate_main, &gate), 0);
    t_stderr_catch(&err);
    st = vb_control_ask_slot(&root, key, vb_clock_ns() + 20000000000u, &slot, &fd, &session);
    t_stderr_release(&err, text, 1024);
    if (st == VB_OK)
        close(fd);
    pthread_join(thread, NULL);
    close(gate.listen_fd);
    assert_true(st != VB_OK || (slot.slot == 1 && session.in.count == 1));
    return st;
}

static void a_joiner_checks_its_slot(void **state)
{
    char text[1024];
    size_t bit;

    (void)state;
    assert_int_equal(ask_slot(SIZE_MAX, text), VB_OK);
    for (bit = 0; bit < 8 * (WIRE_FRAME_HEAD + WIRE_SLOT_BYTES + WIRE_TAG); bit += 5) {
        assert_int_equal(ask_slot(bit, text), VB_ERR_ACCESS);
        assert_non_null(strstr(text, "rank 0 sent no slot: a control frame is not authentic"));
    }
}

/* ---- groups that agree ----------------------------------------------------------------------- */

static void side_agrees(struct side *s)
{
    s->c.opts.agrees = true;
    vb_times_of(0, 0, &s->c.opts.times);
    s->c.complete = true;
    s->c.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(s->c.wake_fd >= 0);
    assert_true(vb_agree_open(&s->c));
}

static void side_disagrees(struct side *s)
{
    vb_agree_free(&s->c);
    close(s->c.wake_fd);
}

/* Rank 1 sends this message to rank 0. Returns whether it was taken. */
static bool is_taken(const struct view_message *message, bool agrees)
{
    unsigned char bytes[ROOM], payload[WIRE_VIEW_BYTES];
    struct side sides[2];
    bool taken;
    size_t n;

    begin(sides, true);
    if (agrees)
        side_agrees(&sides[0]);
    vb_view_encode(message, payload);
    n = send_frame(&sides[1], WIRE_VIEW, payload, sizeof(payload), bytes);
    assert_true(!agrees || vb_control_commit(&sides[0].c, 1, 1));
    arrive(&sides[0], bytes, n);
    taken = sides[0].conns[1].fd >= 0;
    assert_true(!taken || !vb_control_commit(&sides[0].c, 2, 1)); /* a report stops the rank */
    if (agrees)
        side_disagrees(&sides[0]);
    end(sides);
    return taken;
}

static void views_are_agreed_by_frames(void **state)
{
    struct view_message m = {.kind = VIEW_REPORT};
    struct view_message wrong;

    (void)state;
    m.view = (struct view){.epoch = 1, .members = view_first(2)};
    assert_true(is_taken(&m, true));
    assert_false(is_taken(&m, false)); /* that group does not agree */
    wrong = m;
    wrong.kind = VIEW_KIND_LAST + 1;
    assert_false(is_taken(&wrong, true));
    wrong = m;
    wrong.step = 3; /* it cannot have done step 2 without this rank */
    assert_false(is_taken(&wrong, true));
    wrong = m;
    wrong.suspects = wrong.proved = view_one(0); /* this rank is not dead */
    assert_false(is_taken(&wrong, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_frames_pass),
        cmocka_unit_test(beats_allocate_nothing),
        cmocka_unit_test(injected_frames_are_found),
        cmocka_unit_test(repeated_frames_are_found),
        cmocka_unit_test(returned_frames_are_found),
        cmocka_unit_test(swapped_and_missing_frames_are_found),
        cmocka_unit_test(cut_frames_are_found),
        cmocka_unit_test(flipped_bits_are_found),
        cmocka_unit_test(an_unproved_length_gets_no_memory),
        cmocka_unit_test(unproved_bytes_are_not_heard),
        cmocka_unit_test(elastic_groups_lose_one_member),
        cmocka_unit_test(views_are_agreed_by_frames),
        cmocka_unit_test(a_joiner_checks_its_slot),
    };

    if (vb_auth_init() != VB_OK)
        return 1;
    return T_RUN(tests);
}
