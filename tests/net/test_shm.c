/* SPDX-License-Identifier: MIT
 *
 * Tests shared memory with peers that corrupt it, and the set-up that passes the memory to peers.
 *
 * Covers: net/shm/shm_pass.c net/shm/shm_setup.c
 */
#include "net/shm/shm_priv.h"
#include "tests/support/pair.h"

static struct t_pair pair; /* static, because it is large */

/* Returns the inbox of side 0 as mapped by side 1. Side 1 writes to this memory. */
static struct shm_inbox *inbox_of_0(void)
{
    return ((struct shm_ep *)pair.side[1].ep)->out.inbox;
}

static void expect_given_up(const char *why)
{
    struct t_side *s = pair.side;
    struct t_stderr t;
    struct vb_op op;
    char text[2048];

    t_stderr_catch(&t);
    t_poll(&s[0], 64);
    t_poll(&s[0], 64);
    t_stderr_release(&t, text, sizeof(text));
    assert_int_equal(s[0].n_lost, 1);
    assert_int_equal(s[0].lost, VB_ERR_INPUT);
    assert_non_null(strstr(text, "rank 1"));
    assert_non_null(strstr(text, why));
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text)); /* there is only one line */
    assert_int_equal(t_put(&s[0], 0, 0, 8, 1, &op), VB_ERR_INPUT);
}

static void a_corrupt_slot_ends_the_connection(void **state)
{
    static const uint32_t laps[] = {2, 3, 0x80000000, 0xffffffff};
    size_t i;

    (void)state;
    for (i = 0; i < VB_COUNT(laps); i++) {
        t_pair_open(&pair, i % 2 == 0 ? T_SHM_THREADS : T_SHM_FDS, 4, 4096, T_BUF_NONE);
        atomic_store(&inbox_of_0()->slots[0], (uint64_t)laps[i] << 32 | 42);
        expect_given_up("a note has an impossible sequence number");
        assert_int_equal(pair.side[0].n_notes, 0);
        t_pair_close(&pair);
    }
}

/* A note must be read only once. A slot that was written too early must not be read before the
 * earlier slots. */
static void slots_are_read_once_and_in_order(void **state)
{
    struct t_side *s = pair.side;
    struct vb_op op;

    (void)state;
    t_pair_open(&pair, T_SHM_FDS, 4, 4096, T_BUF_NONE);
    atomic_store(&inbox_of_0()->slots[1], UINT64_C(1) << 32 | 43);
    assert_int_equal(t_poll(&s[0], 64), 0);
    assert_int_equal(t_put(&s[1], 0, 0, 0, 42, &op), VB_OK);
    assert_int_equal(t_poll(&s[0], 64), 2);
    assert_int_equal(t_poll(&s[0], 64), 0);
    assert_int_equal(s[0].notes[0], 42);
    assert_int_equal(s[0].notes[1], 43);
    T_UNTIL(&pair, op.done);
    t_pair_close(&pair);
}

/* With a wrong number of taken notes, a sender could overwrite notes or wait forever. */
static void a_corrupt_count_ends_the_connection(void **state)
{
    static const uint64_t counts[] = {SHM_SLOTS + 1, UINT64_MAX, UINT64_MAX - SHM_SLOTS};
    struct t_side *s = pair.side;
    static struct vb_op ops[SHM_SLOTS];
    struct t_stderr t;
    char text[2048];
    struct vb_op op;
    size_t i;
    int k;

    (void)state;
    for (i = 0; i < VB_COUNT(counts); i++) {
        t_pair_open(&pair, T_SHM_FDS, 4, 4096, T_BUF_NONE);
        for (k = 0; k < SHM_SLOTS; k++)
            assert_int_equal(t_put(&s[0], 0, 0, 0, 1, &ops[k]), VB_OK);
        assert_int_equal(t_put(&s[0], 0, 0, 0, 1, &op), VB_AGAIN);
        atomic_store(&((struct shm_ep *)s[1].ep)->in.inbox->taken, counts[i]);
        t_stderr_catch(&t);
        assert_int_equal(t_put(&s[0], 0, 0, 0, 1, &op), VB_ERR_INPUT);
        t_stderr_release(&t, text, sizeof(text));
        assert_non_null(strstr(text, "count of received notes"));
        while (t_poll(&s[0], 64) > 0)
            ;
        assert_int_equal(s[0].n_lost, 1);
        assert_int_equal(s[0].n_done, SHM_SLOTS); /* all puts before the failure are done */
        t_pair_close(&pair);
    }
}

/* Sends notes many times around the ring. Sender and receiver are at every possible distance. */
static void the_ring_wraps_around(void **state)
{
    static struct vb_op ops[T_NOTES];
    struct t_side *s = pair.side;
    uint32_t seed = 5;
    int i, n;

    (void)state;
    t_pair_open(&pair, T_SHM_FDS, 4, 4096, T_BUF_NONE);
    for (i = 0; i < T_NOTES; i++) {
        while (t_put(&s[0], 0, 0, 0, (uint32_t)i, &ops[i]) == VB_AGAIN)
            for (n = (int)(t_random(&seed) % 40); n > 0; n--)
                t_poll(&s[1], 1 + (int)(t_random(&seed) % 64));
        if (i % 64 == 0)
            t_poll(&s[0], 64);
    }
    T_UNTIL(&pair, s[1].n_notes == T_NOTES);
    for (i = 0; i < T_NOTES; i++)
        assert_int_equal(s[1].notes[i], i);
    t_pair_close(&pair);
}

static void a_remote_window_is_the_peers_memory(void **state)
{
    struct t_side *s = pair.side;
    char *far;
    int kind;

    (void)state;
    for (kind = T_SHM_THREADS; kind <= T_SHM_FDS; kind++) {
        t_pair_open(&pair, (enum t_kind)kind, 4, (size_t)4 << 20, T_BUF_NONE);
        far = s[0].ops->remote_ptr(s[0].rem);
        assert_int_equal(far == s[1].mem.ptr, kind == T_SHM_THREADS);
        assert_int_equal((uintptr_t)far % 4096, 0);
        far[12345] = 17;
        assert_int_equal(((char *)s[1].mem.ptr)[12345], 17);
        t_pair_close(&pair);
    }
    assert_int_equal(vb_transport_shm.caps & VB_CAP_MAPPED, VB_CAP_MAPPED);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Connects two sides without windows. */
static void pair_without_windows(void)
{
    int i;

    pair.kind = T_SHM_FDS;
    for (i = 0; i < 2; i++)
        t_side_open(&pair.side[i], T_SHM_FDS, i, 2, 4);
    t_pair_connect(&pair, T_BUF_NONE);
}

static void expect_no_import(uint32_t id, const struct vb_blob *key, size_t len, vb_status want,
                             const char *why)
{
    struct vb_remote *rem = NULL;
    struct t_side *s = pair.side;
    struct t_stderr t;
    char text[2048];

    t_stderr_catch(&t);
    assert_int_equal(s[0].ops->import_window(s[0].ep, id, key, len, 20, &rem), want);
    t_stderr_release(&t, text, sizeof(text));
    assert_null(rem);
    assert_non_null(strstr(text, why));
}

static void windows_that_do_not_match_are_refused(void **state)
{
    struct t_side *s = pair.side;
    struct vb_blob key;

    (void)state;
    pair_without_windows();
    t_window_open(&s[1], 8192);
    key = s[1].key;
    key.len_bytes--;
    expect_no_import(T_WINDOW, &key, 8192, VB_ERR_INPUT, "the key has a wrong length");
    expect_no_import(T_WINDOW, &s[1].key, 8193, VB_ERR_INPUT, "the key does not match");
    expect_no_import(T_WINDOW + 1, &s[1].key, 8192, VB_ERR_INPUT, "number 8, found");
    expect_no_import(T_WINDOW, &s[1].key, 8192, VB_ERR_TIMEOUT,
                     "a peer did not pass its shared memory");
    t_pair_close(&pair);
}

/* The import must check the real size of the memory, not the size in the key. */
static void memory_shorter_than_claimed_is_refused(void **state)
{
    struct t_side *s = pair.side;
    struct vb_blob key;
    uint64_t len = 1 << 20;

    (void)state;
    pair_without_windows();
    t_window_open(&s[1], 8192);
    key = s[1].key;
    memcpy(key.bytes + 8, &len, sizeof(len));
    expect_no_import(T_WINDOW, &key, 1 << 20, VB_ERR_INPUT, "8192 bytes, expected 1048576");
    t_pair_close(&pair);
}

static void the_wrong_peer_is_refused(void **state)
{
    struct shm_msg hello = {.kind = SHM_HELLO, .id = 2, .n_fds = 0};
    struct t_side side;
    struct t_stderr t;
    char text[2048];
    int fds[2];

    (void)state;
    t_side_open(&side, T_SHM_FDS, 0, 3, 4);
    t_sockets(T_SHM_FDS, T_BUF_NONE, fds);
    assert_int_equal(vb_shm_send(fds[1], &hello, NULL), VB_OK);
    t_stderr_catch(&t);
    assert_int_equal(t_connect(&side, 1, fds[0], false, NULL, &side.ep), VB_ERR_INPUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "number 1, found"));
    close(fds[1]);
    side.ops->close(side.dev);
}

static void a_peer_that_dies_before_hello_is_noticed(void **state)
{
    struct t_side side;
    struct t_stderr t;
    char text[2048];
    int fds[2], kind;

    (void)state;
    for (kind = T_SHM_THREADS; kind <= T_SHM_FDS; kind++) {
        t_side_open(&side, T_SHM_FDS, 0, 3, 4);
        t_sockets(T_SHM_FDS, T_BUF_NONE, fds);
        close(fds[1]);
        t_stderr_catch(&t);
        assert_int_equal(t_connect(&side, 1, fds[0], kind == T_SHM_THREADS, NULL, &side.ep),
                         VB_ERR_PEER);
        t_stderr_release(&t, text, sizeof(text));
        side.ops->close(side.dev);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_corrupt_slot_ends_the_connection),
        cmocka_unit_test(slots_are_read_once_and_in_order),
        cmocka_unit_test(a_corrupt_count_ends_the_connection),
        cmocka_unit_test(the_ring_wraps_around),
        cmocka_unit_test(a_remote_window_is_the_peers_memory),
        cmocka_unit_test(windows_that_do_not_match_are_refused),
        cmocka_unit_test(memory_shorter_than_claimed_is_refused),
        cmocka_unit_test(the_wrong_peer_is_refused),
        cmocka_unit_test(a_peer_that_dies_before_hello_is_noticed),
    };

    return T_RUN(tests);
}
