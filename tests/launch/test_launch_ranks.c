/* SPDX-License-Identifier: MIT
 *
 * Tests how the ranks of one host find each other without any other information, also beside
 * strangers, and a PMIx server that does not answer.
 *
 * Covers: launch/launch_meet.c launch/pmix.c net/control/sock.c
 */
#include "net/control/sock.h"
#include "tests/support/fixtures/launch_fixture.h"
#include "tests/support/ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LISTENS 0x10000 /* the flag of a listening socket in /proc/net/unix */

/* ---- ranks that find each other -------------------------------------------------------------- */

struct told {
    vb_status st;
    struct vb_launch launch;
    bool listens;
};

/* Starts a process as task `rank` of `world` in a Slurm step. Pins the process to `cpu`, unless cpu
 * is -1. */
static pid_t start(int step, int rank, int world, int cpu, int timeout_ms, int fd)
{
    struct told told = {.st = VB_ERR_IO};
    cpu_set_t cpus;
    char text[300];
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    CPU_ZERO(&cpus);
    if (cpu >= 0)
        CPU_SET(cpu, &cpus);
    if (cpu >= 0 && sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        _exit(1);
    snprintf(text, sizeof(text),
             "SLURM_JOB_ID=%d SLURM_STEP_ID=%d SLURM_PROCID=%d SLURM_LOCALID=%d SLURM_NTASKS=%d "
             "SLURM_STEP_NODELIST=n1",
             (int)getppid(), step, rank, rank, world);
    t_set_environment(text);
    told.st = t_find(timeout_ms, &told.launch);
    told.listens = told.launch.root_fd >= 0;
    _exit(write(fd, &told, sizeof(told)) == sizeof(told) ? 0 : 1);
}

static void ended_well(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Reads the results of n ranks from the pipe and sorts them by rank. */
static void listen_to(int fd, int n, struct told *told)
{
    struct told one;
    int i;

    for (i = 0; i < n; i++) {
        assert_int_equal(read(fd, &one, sizeof(one)), sizeof(one));
        assert_int_equal(one.st, VB_OK);
        assert_true(one.launch.rank >= 0 && one.launch.rank < n);
        told[one.launch.rank] = one;
    }
}

static void check_same_secret(const struct told *told, int n)
{
    static const unsigned char none[VB_SECRET_BYTES];
    int i;

    assert_memory_not_equal(told[0].launch.secret, none, sizeof(none));
    for (i = 0; i < n; i++) {
        assert_true(told[i].launch.supervised && told[i].launch.has_secret);
        assert_int_equal(told[i].launch.world, n);
        assert_memory_equal(told[i].launch.secret, told[0].launch.secret, VB_SECRET_BYTES);
        assert_string_equal(told[i].launch.root, told[0].launch.root);
        assert_int_equal(strncmp(told[i].launch.root, "127.0.0.1:", 10), 0);
        assert_int_equal(told[i].listens, i == 0);
    }
}

static void ranks_of_a_host_find_each_other(void **state)
{
    struct told told[5], again[5];
    pid_t pids[5];
    int fds[2], i;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (i = 4; i >= 0; i--)
        pids[i] = start(900, i, 5, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 5, told);
    for (i = 0; i < 5; i++)
        ended_well(pids[i]);
    check_same_secret(told, 5);
    for (i = 0; i < 5; i++) {
        assert_int_equal(told[i].launch.local_rank, i);
        assert_int_equal(told[i].launch.local_ranks, 5);
    }

    for (i = 0; i < 5; i++) /* the same step starts again later */
        pids[i] = start(900, i, 5, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 5, again);
    for (i = 0; i < 5; i++)
        ended_well(pids[i]);
    check_same_secret(again, 5);
    assert_memory_not_equal(again[0].launch.secret, told[0].launch.secret, VB_SECRET_BYTES);
    close(fds[0]);
    close(fds[1]);
}

/* Finds the first two CPUs that this process may use. Returns false if it may use only one. */
static bool two_cpus(int cpu[2])
{
    cpu_set_t cpus;
    int i, n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    for (i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &cpus))
            cpu[n++] = i;
    return n == 2;
}

static void ranks_with_their_own_cpus_do_not_share(void **state)
{
    int cpu[2], fds[2], i, shared;
    struct told told[2];
    pid_t pids[2];

    (void)state;
    if (!two_cpus(cpu))
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (shared = 0; shared < 2; shared++) {
        for (i = 0; i < 2; i++)
            pids[i] = start(901, i, 2, cpu[shared ? 0 : i], TIMEOUT_MS, fds[1]);
        listen_to(fds[0], 2, told);
        for (i = 0; i < 2; i++) {
            ended_well(pids[i]);
            assert_int_equal(told[i].launch.local_ranks, shared ? 2 : 1);
            assert_int_equal(told[i].launch.local_rank, shared ? i : 0);
        }
    }
    close(fds[0]);
    close(fds[1]);
}

/* Ranks 0 and 2 are pinned to one CPU, rank 1 is pinned to another CPU, and rank 3 may use all
 * CPUs. Ranks with the same CPUs are counted together. */
static void ranks_with_the_same_cpus_share_them(void **state)
{
    static const int numbers[] = {0, 0, 1, 0}, ranks[] = {2, 1, 2, 1};
    int cpu[2], fds[2], i;
    struct told told[4];
    pid_t pids[4];

    (void)state;
    if (!two_cpus(cpu))
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (i = 0; i < 4; i++)
        pids[i] = start(907, i, 4, i == 3 ? -1 : cpu[i % 2], TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 4, told);
    for (i = 0; i < 4; i++) {
        ended_well(pids[i]);
        assert_int_equal(told[i].launch.local_rank, numbers[i]);
        assert_int_equal(told[i].launch.local_ranks, ranks[i]);
    }
    check_same_secret(told, 4);
    close(fds[0]);
    close(fds[1]);
}

static void a_missing_rank_is_named(void **state)
{
    struct told told;
    int fds[2], rank;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (rank = 0; rank < 2; rank++) {
        ended_well(start(902, rank, 2, -1, 100, fds[1]));
        assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
        assert_int_equal(told.st, VB_ERR_TIMEOUT);
        assert_false(told.launch.supervised);
    }
    close(fds[0]);
    close(fds[1]);
}

/* ---- strangers ------------------------------------------------------------------------------- */

/* Returns whether the process has the socket with this inode open. */
static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[64], want[64], link[64];
    const struct dirent *entry;
    bool found = false;
    ssize_t n;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    dir = opendir(path);
    assert_non_null(dir);
    while (!found && (entry = readdir(dir)) != NULL) {
        n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, want) == 0;
    }
    closedir(dir);
    return found;
}

/* Returns whether a line of /proc/net/unix describes the socket at which process `pid` waits for
 * the other ranks. Stores the name of the socket. */
static bool is_socket_of_ranks(const char *line, pid_t pid, char name[120])
{
    const char *at = strstr(line, "@verbena-launch-");
    unsigned long flags, inode;

    if (at == NULL || sscanf(line, "%*s %*s %*s %lx %*s %*s %lu", &flags, &inode) != 2 ||
        (flags & LISTENS) == 0 || !has_socket(pid, inode))
        return false;
    snprintf(name, 120, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    return true;
}

/* Finds the name of the socket at which process `pid`, which is rank 0, waits for the other ranks.
 * Sockets of other jobs on this machine are ignored. */
static void socket_of_ranks(pid_t pid, char name[120])
{
    bool found = false;
    char line[400];
    FILE *in;
    int i;

    for (i = 0; i < TIMEOUT_MS && !found; i++) {
        in = fopen("/proc/net/unix", "re");
        assert_non_null(in);
        while (!found && fgets(line, sizeof(line), in) != NULL)
            found = is_socket_of_ranks(line, pid, name);
        fclose(in);
        usleep(1000);
    }
    assert_true(found);
}

static uid_t another_user(void)
{
    const struct passwd *nobody = getpwnam("nobody");

    return nobody != NULL ? nobody->pw_uid : 65534;
}

/* A process of another user connects to rank 0. Rank 0 must close the connection without an answer,
 * and the job must continue. */
static void a_call_of_another_user_is_not_answered(void **state)
{
    char name[120], byte;
    struct told told[2];
    pid_t pids[2], stranger;
    int fds[2], fd;

    (void)state;
    if (getuid() != 0)
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pids[0] = start(903, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pids[0], name);
    stranger = fork();
    assert_true(stranger >= 0);
    if (stranger == 0) {
        if (setuid(another_user()) != 0 ||
            vb_sock_connect_unix(name, vb_clock_ns() + 1000000000, &fd) != VB_OK)
            _exit(1);
        _exit(vb_sock_read(fd, &byte, 1, vb_clock_ns() + UINT64_C(10000000000)) == VB_ERR_PEER ? 0
                                                                                               : 2);
    }
    ended_well(stranger);
    pids[1] = start(903, 1, 2, -1, TIMEOUT_MS, fds[1]);
    listen_to(fds[0], 2, told);
    ended_well(pids[0]);
    ended_well(pids[1]);
    check_same_secret(told, 2);
    close(fds[0]);
    close(fds[1]);
}

/* Strangers connect to rank 0 all the time, even as the same user. Rank 0 must still give up at its
 * deadline. */
static void strangers_do_not_delay_rank_0(void **state)
{
    char name[120], said[1000];
    struct t_stderr caught;
    struct told told;
    pid_t pid, strangers[2];
    int fds[2], fd, i;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    t_stderr_catch(&caught);
    pid = start(905, 0, 2, -1, 2000, fds[1]);
    socket_of_ranks(pid, name);
    for (i = 0; i < 2; i++) {
        strangers[i] = fork();
        assert_true(strangers[i] >= 0);
        if (strangers[i] == 0)
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (strangers[i] == 0)
            if (vb_sock_connect_unix(name, vb_clock_ns() + 1000000000, &fd) == VB_OK)
                close(fd);
    }
    ended_well(pid);
    t_stderr_release(&caught, said, sizeof(said));
    t_kill_all(strangers, 2);
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_int_equal(told.st, VB_ERR_TIMEOUT);
    assert_non_null(strstr(said, "only 1 of the 2 ranks on this host have started"));
    assert_non_null(strstr(said, "refused a process that is not a rank"));
    assert_null(strstr(strstr(said, "refused") + 1, "refused")); /* the message is printed once */
    close(fds[0]);
    close(fds[1]);
}

static void an_address_in_use_is_reported(void **state)
{
    char name[120], said[1000];
    struct t_stderr caught;
    struct told told;
    int fds[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = start(906, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pid, name);
    t_stderr_catch(&caught);
    ended_well(start(906, 0, 2, -1, TIMEOUT_MS, fds[1]));
    t_stderr_release(&caught, said, sizeof(said));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_true(told.st < 0 && told.st != VB_ERR_TIMEOUT);
    assert_non_null(strstr(said, "another job or user has taken the name"));
    close(fds[0]);
    close(fds[1]);
}

/* A process of another user listens at the address of rank 0. A rank must report this and must send
 * nothing to that process. */
static void a_listener_of_another_user_is_refused(void **state)
{
    char name[120], byte;
    int fds[2], ready[2], fd, caller;
    struct told told;
    pid_t pid, squatter;

    (void)state;
    if (getuid() != 0)
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = start(904, 0, 2, -1, TIMEOUT_MS, fds[1]);
    socket_of_ranks(pid, name);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    squatter = fork();
    assert_true(squatter >= 0);
    if (squatter == 0) {
        if (setuid(another_user()) != 0 || vb_sock_listen_unix(name, NULL, &fd) != VB_OK ||
            write(ready[1], "r", 1) != 1)
            _exit(1);
        do
            caller = accept(fd, NULL, NULL);
        while (caller < 0 && usleep(1000) == 0);
        _exit(recv(caller, &byte, 1, 0) == 0 ? 0 : 2);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    ended_well(start(904, 1, 2, -1, TIMEOUT_MS, fds[1]));
    assert_int_equal(read(fds[0], &told, sizeof(told)), sizeof(told));
    assert_int_equal(told.st, VB_ERR_ACCESS);
    ended_well(squatter);
    close(fds[0]);
    close(fds[1]);
    close(ready[0]);
    close(ready[1]);
}

/* ---- PMIx ------------------------------------------------------------------------------------ */

/* The server accepts the connection but never answers, so the rank must give up. Some versions of
 * the PMIx library give up first, with their own message. */
static void a_silent_pmix_server_is_given_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(at);
    struct pollfd called = {.fd = fd, .events = POLLIN};
    struct vb_launch launch;
    char uri[80], text[560];
    pid_t pid;

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(uri, sizeof(uri), "mute.0;tcp4://127.0.0.1:%d", ntohs(at.sin_port));
    snprintf(text, sizeof(text),
             "PMIX_RANK=0 PMIX_NAMESPACE=job PMIX_SECURITY_MODE=native PMIX_SERVER_URI51=%s "
             "PMIX_SERVER_URI41=%s PMIX_SERVER_URI4=%s PMIX_SERVER_URI3=%s",
             uri, uri, uri, uri);
    pid = fork();
    assert_true(pid >= 0);
    /* The call runs in a child process, so that all threads of the library end with the child. */
    if (pid == 0) {
        t_set_environment(text);
        _exit(t_find(300, &launch) != VB_OK ? 0 : 1);
    }
    ended_well(pid);
    assert_int_equal(poll(&called, 1, 0), 1); /* the child has connected to the server */
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_host_find_each_other),
        cmocka_unit_test(ranks_with_their_own_cpus_do_not_share),
        cmocka_unit_test(ranks_with_the_same_cpus_share_them),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(a_call_of_another_user_is_not_answered),
        cmocka_unit_test(strangers_do_not_delay_rank_0),
        cmocka_unit_test(an_address_in_use_is_reported),
        cmocka_unit_test(a_listener_of_another_user_is_refused),
        cmocka_unit_test(a_silent_pmix_server_is_given_up),
    };

    return T_RUN(tests);
}
