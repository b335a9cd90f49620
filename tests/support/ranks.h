/* SPDX-License-Identifier: MIT
 *
 * Runs the ranks of a test as threads or as processes. t_as_threads() and t_as_processes() open a
 * group and call a function once per rank.
 */
#ifndef VB_TESTS_SUPPORT_RANKS_H
#define VB_TESTS_SUPPORT_RANKS_H

#include "net/net.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define T_RANKS_MAX 8
#define T_TIMEOUT_MS 60000

/* The function that each rank calls. Returns the number of errors, because cmocka's assertions work
 * only in the main thread. */
typedef int (*t_rank_fn)(struct vb_group *group, void *arg);

struct t_job {
    enum vb_transport_choice transport;
    int world;
    bool progress;
    bool never_spin;
    bool elastic, agrees;
    int timeout_ms;
    void (*lost)(void *arg, int rank, const char *why); /* as in struct vb_group_opts */
    t_rank_fn fn;
    void *arg;
};

struct t_rank {
    const struct t_job *job;
    int rank;
    char root[32];
    int root_fd;
    int wrong;
};

#define T_WRONG(cond)                                                                              \
    ((cond) ? 0 : (fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #cond), 1))

/* Opens a listening socket on loopback for rank 0. */
static inline int t_listen(char root[32])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(fd, SOMAXCONN), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(root, 32, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

/* Returns the number in an environment variable, or -1 if it is not set. */
static inline int t_number(const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : -1;
}

static inline void t_group_opts(const struct t_job *job, int rank, const char *root, int root_fd,
                                struct vb_group_opts *o)
{
    static const unsigned char secret[VB_SECRET_BYTES] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                                          7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                                          7, 7, 7, 7, 7, 7, 7, 7, 7, 7};

    *o = VB_GROUP_OPTS_DEFAULT;
    o->rank = rank;
    o->world = job->world;
    o->root = root;
    o->root_fd = rank == 0 ? root_fd : -1;
    o->secret = secret;
    o->transport = job->transport;
    o->progress = job->progress;
    o->never_spin = job->never_spin;
    o->elastic = job->elastic || job->agrees;
    o->agrees = job->agrees;
    o->lost = job->lost;
    o->crowded = true;
    if (t_number("VB_PATIENCE") > 0)
        o->patience = t_number("VB_PATIENCE");
    o->timeout_ms = job->timeout_ms > 0 ? job->timeout_ms : T_TIMEOUT_MS;
}

static inline void *t_rank_main(void *arg)
{
    struct t_rank *r = arg;
    struct vb_group_opts opts;
    struct vb_group *group;

    vb_log_set_rank(r->rank);
    t_group_opts(r->job, r->rank, r->root, r->root_fd, &opts);
    if (vb_group_open(&opts, &group) != VB_OK) {
        r->wrong = 1000;
        return NULL;
    }
    r->wrong = r->job->fn(group, r->job->arg);
    vb_group_close(group);
    return NULL;
}

static inline void t_prepare(struct t_rank *ranks, const struct t_job *job)
{
    char root[32];
    int i, fd = t_listen(root);

    assert_true(job->world >= 1 && job->world <= T_RANKS_MAX);
    for (i = 0; i < job->world; i++) {
        ranks[i] = (struct t_rank){.job = job, .rank = i, .root_fd = fd, .wrong = -1};
        memcpy(ranks[i].root, root, sizeof(root));
    }
}

/* Runs this process as one rank of a job across several machines. VB_RANK, VB_WORLD and VB_ROOT,
 * which lab/run sets, say which rank it is. Each group uses its own port, so that no rank connects
 * to the previous group. Jobs whose number of ranks is not VB_WORLD are skipped. */
static inline void t_across(const struct t_job *job)
{
    static int groups;
    struct t_rank r = {.job = job, .rank = t_number("VB_RANK"), .root_fd = -1};
    const char *root = getenv("VB_ROOT"), *port = root != NULL ? strrchr(root, ':') : NULL;

    assert_non_null(port);
    if (port == NULL || job->world != t_number("VB_WORLD"))
        return;
    snprintf(r.root, sizeof(r.root), "%.*s:%d", (int)(port - root), root,
             atoi(port + 1) + ++groups);
    t_rank_main(&r);
    assert_int_equal(r.wrong, 0);
}

/* Runs the ranks as processes. All ranks must succeed, except that the ranks in the set `mortals`
 * (bit r: rank r) may die. */
static inline void t_as_mortals(const struct t_job *job, unsigned mortals)
{
    struct t_rank ranks[T_RANKS_MAX] = {{0}};
    pid_t pids[T_RANKS_MAX] = {0};
    int i, status;

    if (getenv("VB_RANK") != NULL) {
        t_across(job);
        return;
    }
    t_prepare(ranks, job);
    for (i = 0; i < job->world; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            t_rank_main(&ranks[i]);
            _exit(ranks[i].wrong == 0 ? 0 : 1);
        }
    }
    close(ranks[0].root_fd);
    for (i = 0; i < job->world; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true((mortals >> i & 1) != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
}

static inline void t_as_processes_but(const struct t_job *job, int mortal)
{
    t_as_mortals(job, 1u << mortal);
}

static inline void t_as_processes(const struct t_job *job)
{
    t_as_mortals(job, 0);
}

static inline void t_as_threads(const struct t_job *job)
{
    struct t_rank ranks[T_RANKS_MAX] = {{0}};
    pthread_t ids[T_RANKS_MAX] = {0};
    int i;

    /* a process that has used verbs cannot fork any more, so the ranks are processes */
    if (job->transport == VB_TRANSPORT_VERBS) {
        t_as_processes(job);
        return;
    }
    t_prepare(ranks, job);
    for (i = 0; i < job->world; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, t_rank_main, &ranks[i]), 0);
    for (i = 0; i < job->world; i++)
        pthread_join(ids[i], NULL);
    for (i = 0; i < job->world; i++)
        assert_int_equal(ranks[i].wrong, 0);
}

/* ---- processes that tests start and end themselves ------------------------------------------- */

/* Forks a rank that the test may kill. The child does not use cmocka's signal handlers, and is
 * killed when the test dies. */
static inline pid_t t_fork(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

/* Waits for all processes whose pid is not 0. Each must exit with 0. */
static inline void t_end_all(pid_t *pids, int n)
{
    int i, status;

    for (i = 0; i < n; i++) {
        if (pids[i] == 0)
            continue;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        pids[i] = 0;
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Kills the processes that a failed test has left. */
static inline void t_kill_all(pid_t *pids, int n)
{
    int i;

    for (i = 0; i < n; i++) {
        if (pids[i] <= 0)
            continue;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        pids[i] = 0;
    }
}

/* Returns the number of open descriptors of this process. */
static inline int t_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

#endif
