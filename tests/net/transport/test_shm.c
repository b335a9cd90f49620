/* SPDX-License-Identifier: MIT
 *
 * Tests shared memory with peers that corrupt it, and the set-up that passes the memory to peers.
 *
 * Covers: net/shm/shm_pass.c net/shm/shm_setup.c
 */
#include "net/shm/shm_priv.h"
#include "tests/support/pair.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

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

/* ---- the process of the peer ----------------------------------------------------------------- */

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* A peer that answers a connecting rank 0 with a hello of its own. */
struct greeter {
    int sock;
    int fds[SHM_FDS];
    uint32_t n_fds;
};

static void *greet(void *arg)
{
    struct shm_msg hello = {.kind = SHM_HELLO, .id = 1}, theirs = {.kind = SHM_HELLO, .n_fds = 2};
    struct greeter *g = arg;
    int fds[SHM_FDS], i;

    hello.n_fds = g->n_fds;
    if (vb_shm_send(g->sock, &hello, g->fds) == VB_OK &&
        vb_shm_receive(g->sock, &theirs, SHM_FDS, fds, vb_clock_ns() + T_PATIENCE_NS) == VB_OK)
        for (i = 0; i < (int)theirs.n_fds; i++)
            close(fds[i]);
    return NULL;
}

/* Connects to a peer whose hello has process_fd as its third descriptor. -1: it has two. */
static vb_status connect_with(int process_fd, int *got_p, char *text, size_t size)
{
    struct greeter g = {.n_fds = process_fd >= 0 ? 3 : 2};
    struct t_side side;
    struct vb_link link = {.rank = 1, .host = "here", .epoch = 1, .process_fd_p = got_p};
    struct vb_mem inbox;
    struct t_stderr t;
    pthread_t thread;
    int fds[2];
    vb_status st;

    t_side_open(&side, T_SHM_FDS, 0, 2, 4);
    t_sockets(T_SHM_FDS, T_BUF_NONE, fds);
    assert_int_equal(vb_mem_map_shared("test-inbox", sizeof(struct shm_inbox), &inbox), VB_OK);
    g.sock = fds[1];
    g.fds[0] = ((struct shm_device *)side.dev)->wake_fd;
    g.fds[1] = inbox.fd;
    g.fds[2] = process_fd;
    link.fd = fds[0];
    link.deadline = vb_clock_ns() + T_PATIENCE_NS;
    t_stderr_catch(&t);
    assert_int_equal(pthread_create(&thread, NULL, greet, &g), 0);
    st = side.ops->connect(side.dev, &link, &side.ep);
    assert_int_equal(pthread_join(thread, NULL), 0);
    t_stderr_release(&t, text, size);
    if (st == VB_OK)
        side.ops->disconnect(side.ep);
    side.ops->close(side.dev);
    vb_mem_unmap(&inbox);
    close(fds[1]);
    return st;
}

/* A rank kills a peer through its pidfd, so this must be a pidfd of the peer and of nobody else. */
static void a_pidfd_of_another_process_is_refused(void **state)
{
    int own = vb_process_fd(), got = -1, n_fds, other;
    char text[2048];
    pid_t pid;

    (void)state;
    if (own < 0) {
        print_message("skipped: no pidfd here: %s\n", strerror(errno));
        skip();
    }
    pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    other = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(other >= 0);
    n_fds = count_fds();
    assert_int_equal(connect_with(other, &got, text, sizeof(text)), VB_ERR_INPUT);
    assert_non_null(strstr(text, "rank 1 passed a descriptor that is not a pidfd of its own"));
    assert_int_equal(connect_with(STDERR_FILENO, &got, text, sizeof(text)), VB_ERR_INPUT);
    assert_int_equal(got, -1);
    assert_int_equal(count_fds(), n_fds);

    assert_int_equal(connect_with(own, NULL, text, sizeof(text)), VB_OK); /* not wanted: closed */
    assert_int_equal(connect_with(-1, &got, text, sizeof(text)), VB_OK);  /* an old kernel */
    assert_int_equal(got, -1);
    assert_int_equal(count_fds(), n_fds);

    assert_int_equal(connect_with(own, &got, text, sizeof(text)), VB_OK);
    assert_true(vb_process_fd_is(got, getpid()));
    close(got);
    assert_int_equal(count_fds(), n_fds);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(own);
    close(other);
}

/* A peer that had copied this process's token would make this rank follow its pointers. */
static void a_peer_of_another_process_passes_no_pointers(void **state)
{
    struct shm_msg hello = {.kind = SHM_HELLO, .id = 1, .n_fds = 1, .inbox = (void *)4096};
    struct t_side side;
    struct t_stderr t;
    char text[2048];
    int listener, sock, status;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(at);
    pid_t pid;

    (void)state;
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bind() chooses a name */
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(sa_family_t)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    pid = fork();
    if (pid == 0) {
        sock = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect(sock, (struct sockaddr *)&at, len) == 0 &&
                      vb_shm_send(sock, &hello, &sock) == VB_OK && read(sock, text, 1) <= 0
                  ? 0
                  : 1);
    }
    t_side_open(&side, T_SHM_FDS, 0, 2, 4);
    sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(poll(&(struct pollfd){.fd = sock, .events = POLLIN}, 1, 60000), 1);
    t_stderr_catch(&t);
    assert_int_equal(t_connect(&side, 1, sock, true, NULL, &side.ep), VB_ERR_INPUT);
    t_stderr_release(&t, text, sizeof(text));
    assert_non_null(strstr(text, "rank 1 claims to be a thread of this process, but is not"));
    side.ops->close(side.dev);
    close(listener);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
        cmocka_unit_test(a_pidfd_of_another_process_is_refused),
        cmocka_unit_test(a_peer_of_another_process_passes_no_pointers),
    };

    return T_RUN(tests);
}
