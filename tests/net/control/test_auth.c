/* SPDX-License-Identifier: MIT
 *
 * Tests secrets, the handshake, and strangers that connect to a running job.
 *
 * Covers: net/control/accept.c net/control/handshake.c net/control/rendezvous.c
 */
#include "net/control/handshake.h"
#include "net/control/sock.h"
#include "tests/support/ranks.h"

#include <sys/stat.h>

/* ---- secrets --------------------------------------------------------------------------------- */

#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static void secrets_are_read(void **state)
{
    unsigned char secret[VB_SECRET_BYTES], other[VB_SECRET_BYTES];
    char path[] = "/tmp/verbena-secret-XXXXXX", text[2048];
    int fd = mkstemp(path), i;
    struct t_stderr t;

    (void)state;
    assert_int_equal(vb_secret_parse(HEX "\n", secret), VB_OK);
    for (i = 0; i < VB_SECRET_BYTES; i++)
        assert_int_equal(secret[i], i);
    assert_int_equal(pwrite(fd, HEX "\n", 65, 0), 65);
    assert_int_equal(vb_secret_read(path, other), VB_OK);
    assert_memory_equal(secret, other, sizeof(secret));
    assert_int_equal(ftruncate(fd, 0), 0);
    /* the file now has 32 raw bytes instead of hexadecimal text */
    assert_int_equal(pwrite(fd, secret, 32, 0), 32);
    memset(other, 0, sizeof(other));
    assert_int_equal(vb_secret_read(path, other), VB_OK);
    assert_memory_equal(secret, other, sizeof(secret));
    t_stderr_catch(&t);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(vb_secret_read(path, other), VB_ERR_ACCESS);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(ftruncate(fd, 31), 0);
    assert_int_equal(vb_secret_read(path, other), VB_ERR_INPUT);
    assert_int_equal(vb_secret_read("/tmp", other), VB_ERR_INPUT);
    assert_int_equal(vb_secret_read("/nowhere", other), VB_ERR_NO_FILE);
    assert_int_equal(vb_secret_parse(HEX "0", other), VB_ERR_USAGE);
    assert_int_equal(vb_secret_parse("", other), VB_ERR_USAGE);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "other users may read"));
    assert_non_null(strstr(text, "chmod 600"));
    close(fd);
    unlink(path);
    assert_int_equal(vb_secret_make(secret), VB_OK);
    assert_int_equal(vb_secret_make(other), VB_OK);
    assert_memory_not_equal(secret, other, sizeof(secret));
}

static void known_digest(void **state)
{
    struct vb_sha256_state pieces;
    char hex[65];

    (void)state;
    vb_sha256_begin(&pieces);
    vb_sha256_add(&pieces, "a", 1);
    vb_sha256_add(&pieces, "bc", 2);
    vb_sha256_end(&pieces, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    vb_sha256("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void sealed_keys_open_only_in_their_session(void **state)
{
    unsigned char session[32] = {1}, key[32] = {2}, sealed[AUTH_SEALED_BYTES], back[32];

    (void)state;
    assert_int_equal(vb_auth_init(), VB_OK);
    vb_auth_seal(session, key, sealed);
    assert_true(vb_auth_unseal(session, sealed, back));
    assert_memory_equal(key, back, sizeof(key));
    sealed[30] ^= 1;
    assert_false(vb_auth_unseal(session, sealed, back));
    sealed[30] ^= 1;
    session[0] ^= 1;
    assert_false(vb_auth_unseal(session, sealed, back));
}

static void sealed_secrets_open_only_in_their_box(void **state)
{
    unsigned char secret[VB_SECRET_BYTES] = {1, 2, 3}, back[VB_SECRET_BYTES] = {0};
    char lid[VB_LID_TEXT], other_lid[VB_LID_TEXT], sealed[VB_SEALED_TEXT];
    struct vb_box box, other;
    struct t_stderr t;
    char text[1024];

    (void)state;
    assert_int_equal(vb_box_make(&box, lid), VB_OK);
    assert_int_equal(vb_box_make(&other, other_lid), VB_OK);
    assert_string_not_equal(lid, other_lid);
    assert_int_equal(vb_secret_seal(secret, lid, sealed), VB_OK);
    assert_null(strstr(sealed, "010203"));
    assert_int_equal(vb_secret_unseal(&box, sealed, back), VB_OK);
    assert_memory_equal(secret, back, sizeof(secret));
    t_stderr_catch(&t);
    assert_int_equal(vb_secret_unseal(&other, sealed, back), VB_ERR_ACCESS);
    sealed[0] = sealed[0] == '0' ? '1' : '0';
    assert_int_equal(vb_secret_unseal(&box, sealed, back), VB_ERR_ACCESS);
    assert_int_equal(vb_secret_unseal(&box, "00", back), VB_ERR_ACCESS);
    assert_int_equal(vb_secret_seal(secret, "-", sealed), VB_ERR_INPUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "was not sealed for this rank"));
    assert_non_null(strstr(text, "is not a public key"));
}

/* ---- the handshake by itself ----------------------------------------------------------------- */

static enum wire_verdict check_call(void *arg, const struct wire_call *call,
                                    unsigned char key[AUTH_KEY_BYTES], uint32_t *epoch_p)
{
    (void)epoch_p;
    memcpy(key, arg, AUTH_KEY_BYTES);
    return call->rank == 1 ? WIRE_WELCOME : WIRE_BAD_RANK;
}

/* Passes the bytes to the listener one at a time. Returns the length of the last reply. */
static size_t feed(struct handshake *hs, const unsigned char *bytes, size_t len, void *key,
                   unsigned char out[WIRE_ANSWER_BYTES])
{
    size_t i, n = 0;

    for (i = 0; i < len; i++)
        n = vb_handshake_feed(hs, bytes + i, 1, check_call, key, out);
    return n;
}

static void make_call(struct wire_call *call, unsigned char bytes[WIRE_CALL_BYTES])
{
    memset(call, 0, sizeof(*call));
    call->version = WIRE_VERSION;
    call->kind = WIRE_CONTROL;
    call->rank = 1;
    call->world = 2;
    vb_auth_random(call->nonce, sizeof(call->nonce));
    vb_wire_call_encode(call, bytes);
}

static void callers_with_the_secret_are_accepted(void **state)
{
    unsigned char key[32] = {3}, call_bytes[WIRE_CALL_BYTES], out[WIRE_ANSWER_BYTES],
                  answer[WIRE_ANSWER_BYTES], proof[WIRE_PROOF], session[32];
    struct handshake hs;
    struct wire_call call;

    (void)state;
    make_call(&call, call_bytes);
    vb_handshake_init(&hs, 0, 0);
    assert_int_equal(feed(&hs, call_bytes, sizeof(call_bytes), key, answer), WIRE_ANSWER_BYTES);
    assert_int_equal(hs.state, HANDSHAKE_PROOF);
    vb_auth_handshake(AUTH_CLIENT, key, call_bytes, answer, proof);
    assert_int_equal(feed(&hs, proof, sizeof(proof), key, out), WIRE_VERDICT_BYTES);
    assert_int_equal(hs.state, HANDSHAKE_DONE);
    vb_auth_handshake(AUTH_SESSION, key, call_bytes, answer, session);
    assert_memory_equal(session, hs.session, sizeof(session));

    /* A proof that is replayed to another listener is refused, because the new listener has another
     * nonce. */
    vb_handshake_init(&hs, 0, 0);
    feed(&hs, call_bytes, sizeof(call_bytes), key, out);
    feed(&hs, proof, sizeof(proof), key, out);
    assert_int_equal(hs.state, HANDSHAKE_REFUSED);
    assert_int_equal(hs.verdict, WIRE_BAD_SECRET);

    /* The listener's own proof, sent back to the listener, is not a valid proof of the caller. */
    vb_handshake_init(&hs, 0, 0);
    feed(&hs, call_bytes, sizeof(call_bytes), key, answer);
    feed(&hs, answer + WIRE_ANSWER_BYTES - WIRE_PROOF, WIRE_PROOF, key, out);
    assert_int_equal(hs.state, HANDSHAKE_REFUSED);
}

static void callers_without_the_secret_are_told_why(void **state)
{
    unsigned char key[32] = {3}, bytes[WIRE_CALL_BYTES], out[WIRE_ANSWER_BYTES];
    struct handshake hs;
    struct wire_call call;
    int what;

    (void)state;
    for (what = 0; what < 4; what++) {
        static const enum wire_verdict want[] = {WIRE_BAD_VERSION, WIRE_BAD_RANK, WIRE_BAD_EPOCH,
                                                 WIRE_BAD_RANK};

        make_call(&call, bytes);
        call.version = what == 0 ? 99 : WIRE_VERSION;
        call.to = what == 1 ? 5 : 0;
        call.epoch = what == 2 ? 8 : 0;
        call.rank = what == 3 ? 7 : 1;
        vb_wire_call_encode(&call, bytes);
        vb_handshake_init(&hs, 0, 0);
        assert_int_equal(feed(&hs, bytes, sizeof(bytes), key, out), WIRE_ANSWER_BYTES);
        assert_int_equal(hs.state, HANDSHAKE_REFUSED);
        assert_int_equal(hs.verdict, want[what]);
        assert_int_equal(vb_handshake_wants(&hs), 0);
    }
    memset(bytes, 'x', sizeof(bytes));
    vb_handshake_init(&hs, 0, 0);
    assert_int_equal(feed(&hs, bytes, sizeof(bytes), key, out), 0);
    assert_true(hs.garbage);
}

/* ---- strangers at a running job -------------------------------------------------------------- */

static char job_root[32];

static int dial_root(void)
{
    struct sock_addr addr;
    int fd;

    if (vb_sock_resolve(job_root, &addr) != VB_OK ||
        vb_sock_connect(&addr, vb_clock_ns() + 5000000000u, &fd) != VB_OK)
        return -1;
    return fd;
}

/* Connects to the job in every way that a stranger could try. The job must not be disturbed. */
static void try_strangers(void)
{
    unsigned char noise[512], key[32] = {9}, session[32], byte;
    struct wire_call call;
    uint64_t soon;
    int fd, i;

    memset(noise, 0xa5, sizeof(noise));
    for (i = 0; i < 40; i++) { /* more silent callers than the listener can hold */
        fd = dial_root();
        if (i % 4 == 0)
            (void)!write(fd, noise, sizeof(noise));
        if (i % 4 != 1)
            close(fd);
    }
    fd = dial_root();
    make_call(&call, noise);
    call.world = 3;
    call.rank = 2;
    soon = vb_clock_ns() + 5000000000u;
    /* the epoch of the call is too old */
    assert_true(vb_handshake_call(fd, &call, key, soon, session) < 0);
    close(fd);
    fd = dial_root();
    memset(key, 7, sizeof(key));
    call.version = 77;
    assert_true(vb_handshake_call(fd, &call, key, soon, session) <
                0); /* the call has another protocol version */
    close(fd);
    fd = dial_root();
    call.version = WIRE_VERSION;
    call.epoch = 1;
    assert_true(vb_handshake_call(fd, &call, key, soon, session) <
                0); /* rank 2 is already connected */
    assert_int_equal(vb_sock_read(fd, &byte, 1, soon), VB_ERR_PEER);
    close(fd);
}

/* Sends the first n bytes of a call and closes the connection, for every n. */
static void try_callers_that_hang_up(void)
{
    unsigned char bytes[WIRE_CALL_BYTES + WIRE_PROOF] = {0};
    struct wire_call call;
    size_t n;
    int fd;

    make_call(&call, bytes);
    for (n = 0; n <= sizeof(bytes); n++) {
        fd = dial_root();
        if (n > 0 && write(fd, bytes, n) != (ssize_t)n)
            assert_true(n > WIRE_CALL_BYTES); /* the listener may already have refused the caller */
        close(fd);
    }
}

static int job_with_strangers(struct vb_group *g, void *arg)
{
    int wrong = 0, i;

    (void)arg;
    wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    if (vb_group_rank(g) == 0) {
        try_strangers();
        try_callers_that_hang_up();
    }
    for (i = 0; i < 100; i++)
        wrong += T_WRONG(vb_group_barrier(g) == VB_OK);
    return wrong;
}

static void strangers_do_not_disturb_a_job(void **state)
{
    struct t_job job = {.fn = job_with_strangers, .world = 3, .transport = VB_TRANSPORT_TCP};
    struct t_rank ranks[T_RANKS_MAX];
    pthread_t ids[T_RANKS_MAX];
    struct t_stderr t;
    char text[16384], *line;
    int i, refusals = 0;

    (void)state;
    t_prepare(ranks, &job);
    memcpy(job_root, ranks[0].root, sizeof(job_root));
    t_stderr_catch(&t);
    for (i = 0; i < job.world; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, t_rank_main, &ranks[i]), 0);
    for (i = 0; i < job.world; i++)
        pthread_join(ids[i], NULL);
    t_stderr_release(&t, text, sizeof(text));
    for (i = 0; i < job.world; i++)
        assert_int_equal(ranks[i].wrong, 0);
    for (line = text; (line = strstr(line, "refused a connection from 127.0.0.1")) != NULL; line++)
        refusals++;
    /* the listener logs one line for each address, not one for each call */
    assert_int_equal(refusals, 1);
    assert_non_null(strstr(text, "refused this rank: the epoch of the caller is out of date"));
    assert_non_null(strstr(text, "refused this rank: the two programs are different versions"));
    assert_non_null(strstr(text, "refused this rank: the rank of the caller is already connected"));
}

static void *open_with_secret(void *arg)
{
    struct vb_group_opts *opts = arg;
    struct vb_group *group = NULL;
    vb_status st;

    vb_log_set_rank(opts->rank);
    st = vb_group_open(opts, &group);
    vb_group_close(group);
    return st == VB_OK ? NULL : arg; /* the caller expects that opening fails */
}

static void a_wrong_secret_is_refused(void **state)
{
    struct t_job job = {.world = 2, .timeout_ms = 1000};
    static const unsigned char secrets[2][VB_SECRET_BYTES] = {{1}, {2}};
    struct vb_group_opts opts[2];
    pthread_t ids[2];
    char root[32], text[4096];
    struct t_stderr t;
    void *failed;
    int i, fd = t_listen(root);

    (void)state;
    t_stderr_catch(&t);
    for (i = 0; i < 2; i++) {
        t_group_opts(&job, i, root, fd, &opts[i]);
        opts[i].secret = secrets[i];
        assert_int_equal(pthread_create(&ids[i], NULL, open_with_secret, &opts[i]), 0);
    }
    for (i = 0; i < 2; i++) {
        pthread_join(ids[i], &failed);
        assert_ptr_equal(failed, &opts[i]);
    }
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "refused this rank: the secrets differ"));
    assert_non_null(strstr(text, "refused a connection from 127.0.0.1"));
    assert_null(strstr(text, "before it proved")); /* the listener learns the reason, too */
    assert_non_null(
        strstr(text, "gave up waiting for missing ranks: 1 (refused: the secrets differ:"));
}

/* ---- missing ranks and bad options ----------------------------------------------------------- */

static void missing_ranks_are_named(void **state)
{
    struct t_job job = {.world = 3, .timeout_ms = 300};
    struct vb_group_opts opts;
    struct vb_group *group = NULL;
    char root[32], text[4096];
    struct t_stderr t;
    int fd = t_listen(root);

    (void)state;
    t_group_opts(&job, 0, root, fd, &opts);
    t_stderr_catch(&t);
    assert_int_equal(vb_group_open(&opts, &group), VB_ERR_TIMEOUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_null(group);
    assert_non_null(
        strstr(text, "gave up waiting for missing ranks: 1 (never seen), 2 (never seen)"));
}

static void bad_options_are_refused(void **state)
{
    struct t_job job = {.world = 2};
    struct vb_group *group = NULL;
    struct vb_group_opts opts;
    struct t_stderr t;
    char text[4096];
    int what;

    (void)state;
    t_stderr_catch(&t);
    for (what = 0; what < 6; what++) {
        t_group_opts(&job, 1, what == 3 ? "nonsense" : "127.0.0.1:1", -1, &opts);
        opts.rank = what == 0 ? 2 : 1;
        opts.world = what == 1 ? 0 : 2;
        opts.root = what == 2 ? NULL : opts.root;
        /* In case 5 all options are valid, but no process listens at the address. */
        opts.timeout_ms = what == 4 ? 0 : 200;
        assert_true(vb_group_open(&opts, &group) < 0);
    }
    t_stderr_release(&t, text, sizeof(text));
    assert_null(group);
    assert_non_null(strstr(text, "\"nonsense\" is not HOST:PORT"));
    assert_non_null(strstr(text, "connect 127.0.0.1:1: Connection refused"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_read),
        cmocka_unit_test(known_digest),
        cmocka_unit_test(sealed_keys_open_only_in_their_session),
        cmocka_unit_test(sealed_secrets_open_only_in_their_box),
        cmocka_unit_test(callers_with_the_secret_are_accepted),
        cmocka_unit_test(callers_without_the_secret_are_told_why),
        cmocka_unit_test(strangers_do_not_disturb_a_job),
        cmocka_unit_test(a_wrong_secret_is_refused),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(bad_options_are_refused),
    };

    return T_RUN(tests);
}
