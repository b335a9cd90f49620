/* SPDX-License-Identifier: MIT
 *
 * Tests the token of a process, descriptors of processes (of this one, of a child, of a child in
 * another PID namespace), and what the kernel shows of a process.
 */
#include "base/base.h"
#include "tests/support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WAIT_MS 30000

/* What a child writes into shared memory. */
static struct shared {
    unsigned char token[VB_TOKEN_BYTES];
    int pid;
    bool seen, parent_seen, killed;
    int kill_errno;
    struct vb_process_id id;
    _Atomic bool ready;
} * shared;

static int set_up(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static void *token_in_thread(void *token)
{
    (void)vb_process_token(token);
    return NULL;
}

static void wait_for(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void threads_share_a_token_and_children_do_not(void **state)
{
    static const unsigned char zero[VB_TOKEN_BYTES];
    unsigned char mine[VB_TOKEN_BYTES] = {0}, threads[VB_TOKEN_BYTES] = {0};
    pthread_t thread;
    pid_t pid;
    int i;

    (void)state;
    assert_int_equal(vb_process_token(mine), VB_OK);
    assert_memory_not_equal(mine, zero, sizeof(mine));
    assert_int_equal(pthread_create(&thread, NULL, token_in_thread, threads), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_memory_equal(mine, threads, sizeof(mine));
    for (i = 0; i < 2; i++) {
        pid = fork();
        if (pid == 0)
            _exit(vb_process_token(shared->token) == VB_OK ? 0 : 1);
        wait_for(pid);
        assert_memory_not_equal(mine, shared->token, sizeof(mine));
        assert_memory_not_equal(threads, shared->token, sizeof(mine));
        memcpy(threads, shared->token, sizeof(threads)); /* the two children differ, too */
    }
    assert_int_equal(vb_process_token(threads), VB_OK);
    assert_memory_equal(mine, threads, sizeof(mine));
}

static int own_fd(void)
{
    int fd = vb_process_fd();

    if (fd < 0) {
        print_message("skipped: no pidfd here: %s\n", strerror(errno));
        skip();
    }
    return fd;
}

static int fd_of(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void the_hash_is_that_of_the_whole_file(void **state)
{
    FILE *exe = fopen("/proc/self/exe", "rb");
    uint64_t hash = 0, changed;
    char *bytes;
    size_t len;

    (void)state;
    assert_non_null(exe);
    assert_int_equal(fseek(exe, 0, SEEK_END), 0);
    len = (size_t)ftell(exe);
    rewind(exe);
    bytes = malloc(len);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, len, exe), len);
    fclose(exe);
    assert_int_equal(vb_process_program(&hash), VB_OK);
    assert_true(hash == vb_hash64(0, bytes, len));
    bytes[len - 1] ^= 1;
    changed = vb_hash64(0, bytes, len);
    assert_true(hash != changed);
    free(bytes);
}

static void a_descriptor_names_one_process(void **state)
{
    int fd = own_fd(), other, pipe_fds[2];
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        pause();
        _exit(0);
    }
    other = fd_of(pid);
    assert_true(other >= 0);
    assert_true(vb_process_fd_is(fd, getpid()));
    assert_true(vb_process_fd_is(other, pid));
    assert_false(vb_process_fd_is(other, getpid()));
    assert_false(vb_process_fd_is(fd, pid));
    assert_false(vb_process_fd_is(fd, 0)); /* this process sees both */
    assert_false(vb_process_fd_is(other, 0));
    assert_int_equal(pipe(pipe_fds), 0);
    assert_false(vb_process_fd_is(pipe_fds[0], getpid())); /* not a pidfd at all */
    assert_false(vb_process_fd_is(pipe_fds[0], 0));
    close(pipe_fds[0]);
    close(pipe_fds[1]);

    assert_false(vb_process_ended(other, 0));
    assert_true(vb_process_kill(other));
    assert_true(vb_process_ended(other, WAIT_MS)); /* although nobody has reaped it */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(vb_process_ended(other, 0));
    assert_true(vb_process_kill(other));
    assert_false(vb_process_fd_is(other, pid));
    assert_false(vb_process_ended(fd, 0));
    close(fd);
    close(other);
}

/* A number alone names no process: another one may have it by now. */
static void a_process_is_opened_by_its_identity(void **state)
{
    struct vb_process_id id, other;
    int fd, fds[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        vb_process_id(&id);
        if (write(fds[1], &id, sizeof(id)) == (ssize_t)sizeof(id))
            pause();
        _exit(0);
    }
    assert_int_equal(read(fds[0], &id, sizeof(id)), sizeof(id));
    close(fds[0]);
    close(fds[1]);
    if (id.number != (uint32_t)pid) { /* /proc is that of another PID namespace */
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        skip();
    }
    fd = vb_process_open(&id);
    assert_true(fd >= 0 && vb_process_fd_is(fd, pid));
    other = id;
    other.start++;
    assert_int_equal(vb_process_open(&other), -1);
    other = id;
    other.ns++;
    assert_int_equal(vb_process_open(&other), -1);
    assert_int_equal(vb_process_open(&(struct vb_process_id){0}), -1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(vb_process_ended(fd, WAIT_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(vb_process_open(&id), -1);
    close(fd);
}

/* Runs in a PID namespace of its own, as process 1. It sees itself but not its parent. */
static int in_namespace(int parents_fd)
{
    int fd = vb_process_fd();

    shared->pid = (int)getpid();
    shared->seen = vb_process_fd_is(fd, getpid());
    shared->parent_seen = !vb_process_fd_is(parents_fd, 0);
    shared->killed = vb_process_kill(parents_fd);
    shared->kill_errno = errno;
    pause();
    return 0;
}

/* The numbers that /proc shows are still those of the namespace above. */
static void a_process_in_a_namespace_above_cannot_be_killed(void **state)
{
    int fd = own_fd(), other;
    pid_t pid;

    (void)state;
    memset(shared, 0, sizeof(*shared));
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(in_namespace(fd));
    if (pid < 0) {
        close(fd);
        print_message("skipped: no PID namespaces here: %s\n", strerror(errno));
        skip();
    }
    other = fd_of(pid);
    while (*(volatile int *)&shared->kill_errno == 0 && !vb_process_ended(other, 10))
        ;
    assert_true(vb_process_fd_is(other, pid));
    assert_true(vb_process_kill(other)); /* from above it can be killed */
    assert_true(vb_process_ended(other, WAIT_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(shared->pid, 1);
    assert_true(shared->seen);
    assert_false(shared->parent_seen);
    assert_false(shared->killed);
    assert_int_equal(shared->kill_errno, EINVAL);
    close(fd);
    close(other);
}

static void a_pause_stops_the_process(void **state)
{
    uint64_t before = vb_clock_ns();

    (void)state;
    assert_int_equal(vb_process_pause(0.2), VB_OK);
    assert_true(vb_clock_ns() - before >= 200000000u);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* its child is gone */
}

/* A process that nobody has waited for yet has ended, too. */
static bool has_ended(int64_t pid)
{
    char line[256];

    return !vb_probe_line(line, sizeof(line), "/proc/%d/stat", (int)pid) ||
           strstr(line, ") Z ") != NULL;
}

static void a_pause_ends_with_the_process(void **state)
{
    char line[256], path[64];
    pid_t pid = fork();
    int64_t helper;
    int i, fd;

    (void)state;
    if (pid == 0)
        _exit(vb_process_pause(60) == VB_OK ? 0 : 1);
    fd = fd_of(pid);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    for (i = 0; i < WAIT_MS; i++) {
        if (vb_probe_line(line, sizeof(line), "%s", path) && strstr(line, ") T ") != NULL)
            break;
        usleep(1000);
    }
    assert_true(i < WAIT_MS); /* it was stopped */
    assert_true(vb_probe_line(line, sizeof(line), "/proc/%d/task/%d/children", (int)pid, (int)pid));
    line[strcspn(line, " ")] = '\0';
    assert_true(vb_parse_int(line, &helper));
    assert_false(has_ended(helper));
    assert_true(vb_process_kill(fd));
    assert_true(vb_process_ended(fd, WAIT_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (i = 0; i < WAIT_MS && !has_ended(helper); i++)
        usleep(1000);
    assert_true(has_ended(helper));
    close(fd);
}

/* ---- what the kernel shows ------------------------------------------------------------------- */

/* Forks a process that sleeps, or one that computes in another thread than its first one. */
static void *compute(void *arg)
{
    for (;;)
        __asm__ volatile("" ::: "memory");
    return arg;
}

static pid_t fork_shown(bool computes)
{
    pthread_t thread;
    pid_t pid;

    shared->ready = false;
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        vb_process_id(&shared->id);
        if (computes && pthread_create(&thread, NULL, compute, NULL) != 0)
            _exit(1);
        shared->ready = true;
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    while (!shared->ready)
        usleep(1000);
    return pid;
}

/* The kernel shows a change of state a moment later. */
static void is_shown(const struct vb_process_id *id, enum vb_process_state state)
{
    int i;

    for (i = 0; i < WAIT_MS && vb_process_state(id) != state; i++)
        usleep(1000);
    assert_int_equal(vb_process_state(id), state);
}

static void the_kernel_shows_what_a_process_does(void **state)
{
    bool computes;
    pid_t pid;
    int i;

    (void)state;
    for (computes = false, i = 0; i < 2; i++, computes = true) {
        pid = fork_shown(computes);
        assert_int_equal(shared->id.number, pid);
        is_shown(&shared->id, computes ? VB_PROCESS_RUNS : VB_PROCESS_SLEEPS);
        assert_int_equal(kill(pid, SIGSTOP), 0);
        is_shown(&shared->id, VB_PROCESS_STOPPED);
        assert_int_equal(kill(pid, SIGCONT), 0);
        is_shown(&shared->id, computes ? VB_PROCESS_RUNS : VB_PROCESS_SLEEPS);
        assert_int_equal(kill(pid, SIGKILL), 0);
        is_shown(&shared->id, VB_PROCESS_ENDED);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(vb_process_state(&shared->id), VB_PROCESS_UNKNOWN);
    }
}

/* Its number may belong to another process, or to one in another namespace. */
static void another_process_is_not_taken_for_it(void **state)
{
    struct vb_process_id id, other;

    (void)state;
    vb_process_id(&id);
    assert_int_equal(vb_process_state(&id), VB_PROCESS_RUNS);
    other = id;
    other.start++;
    assert_int_equal(vb_process_state(&other), VB_PROCESS_UNKNOWN);
    other = id;
    other.ns++;
    assert_int_equal(vb_process_state(&other), VB_PROCESS_UNKNOWN);
    memset(&other, 0, sizeof(other));
    assert_int_equal(vb_process_state(&other), VB_PROCESS_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_a_token_and_children_do_not),
        cmocka_unit_test(the_hash_is_that_of_the_whole_file),
        cmocka_unit_test(a_descriptor_names_one_process),
        cmocka_unit_test(a_process_is_opened_by_its_identity),
        cmocka_unit_test(a_process_in_a_namespace_above_cannot_be_killed),
        cmocka_unit_test(a_pause_stops_the_process),
        cmocka_unit_test(a_pause_ends_with_the_process),
        cmocka_unit_test(the_kernel_shows_what_a_process_does),
        cmocka_unit_test(another_process_is_not_taken_for_it),
    };

    return cmocka_run_group_tests(tests, set_up, NULL) == 0 ? 0 : 1;
}
