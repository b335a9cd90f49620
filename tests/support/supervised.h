/* SPDX-License-Identifier: MIT
 *
 * For tests of the supervisor, which runs in a child process of the test. The ranks run the test's
 * program again, as "PROGRAM --as WORD". The word selects what they do.
 */
#ifndef VB_TESTS_SUPPORT_SUPERVISED_H
#define VB_TESTS_SUPPORT_SUPERVISED_H

#include "launch/launch.h"
#include "tests/support/test.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define GRACE_MS 150

static struct vb_launch me; /* the launch of this rank */

struct part {
    const char *word;
    int (*run)(void);
};

static inline int run_as(const char *word, const struct part *parts, size_t n)
{
    size_t i;

    if (vb_launch_read(60000, &me) != VB_OK || !me.supervised)
        return 99;
    for (i = 0; i < n; i++)
        if (strcmp(parts[i].word, word) == 0)
            return parts[i].run();
    return 98;
}

struct watched {
    pid_t pid;
    int out, err;
    char *out_text, *err_text;
    size_t out_len, err_len;
    int exit_code; /* exit code of the supervisor; -1: it was killed */
    double seconds;
    uint64_t begin_ns;
};

static const char *program; /* program of the ranks; NULL: this program */
static const char *logs;    /* folder of the logs; NULL: no logs */
static bool on_terminal;    /* whether standard error is a terminal */
static bool outlive;        /* the job may continue if a rank fails, except if rank 0 fails */
static bool elastic;        /* the job goes on without ranks that die */
static bool over_ssh;       /* ranks are started over ssh, and this program plays ssh */

static inline _Noreturn void supervise(int ranks, const char *word, const int out[2],
                                       const int err[2])
{
    static char name[] = "rank", flag[] = "--as";
    char copy[32], self[PATH_MAX] = "", ssh[PATH_MAX + 16];
    char *argv[] = {name, flag, copy, NULL};
    struct vb_hosts hosts;
    struct vb_supervise_opts o = {.ranks = ranks,
                                  .program = program,
                                  .argv = argv,
                                  .grace_ms = GRACE_MS,
                                  .logs = logs,
                                  .outlive = outlive,
                                  .elastic = elastic,
                                  .vital_end = 1,
                                  .workers = ranks};
    int code = 97;

    snprintf(copy, sizeof(copy), "%s", word);
    if (over_ssh) {
        if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ||
            vb_hosts_parse("localhost,127.0.0.1,127.0.0.2", &hosts) != VB_OK)
            _exit(95);
        snprintf(ssh, sizeof(ssh), "%s --ssh", self);
        o.ssh = ssh;
        o.hosts = &hosts;
    }
    signal(SIGINT, SIG_DFL);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    close(out[0]);
    close(err[0]);
    close(out[1]);
    close(err[1]);
    if (vb_supervise(&o, &code) != VB_OK)
        code = 96;
    _exit(code);
}

/* Opens a pseudoterminal. Like pipe2(), stores the reading end in fds[0] and the writing end in
 * fds[1]. */
static inline void open_terminal(int fds[2])
{
    fds[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(fds[0] >= 0);
    assert_int_equal(grantpt(fds[0]), 0);
    assert_int_equal(unlockpt(fds[0]), 0);
    fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(fds[1] >= 0);
}

static inline void start(struct watched *w, int ranks, const char *word)
{
    int out[2], err[2];

    memset(w, 0, sizeof(*w));
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    if (on_terminal)
        open_terminal(err);
    else
        assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    w->begin_ns = vb_clock_ns();
    w->pid = fork();
    assert_true(w->pid >= 0);
    if (w->pid == 0)
        supervise(ranks, word, out, err);
    close(out[1]);
    close(err[1]);
    w->out = out[0];
    w->err = err[0];
    w->out_text = calloc(1, 1);
    w->err_text = calloc(1, 1);
    assert_true(w->out_text != NULL && w->err_text != NULL);
}

/* Reads once and appends the bytes to the text, which always ends with a zero byte. Returns false
 * at the end of the input. */
static inline bool take(int fd, char **text, size_t *len)
{
    ssize_t n;

    *text = realloc(*text, *len + 65537);
    assert_non_null(*text);
    n = read(fd, *text + *len, 65536);
    if (n < 0 && errno == EIO) /* the last process has closed the terminal */
        n = 0;
    assert_true(n >= 0);
    *len += (size_t)n;
    (*text)[*len] = '\0';
    return n > 0;
}

/* Reads standard error until it contains the word at least `times` times. */
static inline void await(struct watched *w, const char *word, int times)
{
    const char *at;
    int n = 0;

    while (n < times) {
        assert_true(take(w->err, &w->err_text, &w->err_len));
        for (n = 0, at = w->err_text; (at = strstr(at, word)) != NULL; at++)
            n++;
    }
}

static inline void finish(struct watched *w)
{
    struct pollfd fds[2] = {{.fd = w->out, .events = POLLIN}, {.fd = w->err, .events = POLLIN}};
    int status;

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        assert_true(poll(fds, 2, 60000) > 0);
        if (fds[0].revents != 0 && !take(w->out, &w->out_text, &w->out_len))
            fds[0].fd = -1;
        if (fds[1].revents != 0 && !take(w->err, &w->err_text, &w->err_len))
            fds[1].fd = -1;
    }
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    w->seconds = (double)(vb_clock_ns() - w->begin_ns) / 1e9;
    w->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    close(w->out);
    close(w->err);
}

static inline void forget(struct watched *w)
{
    free(w->out_text);
    free(w->err_text);
}

static inline void run(struct watched *w, int ranks, const char *word)
{
    start(w, ranks, word);
    finish(w);
}

/* The main function of a test: argv says whether this process is a rank, plays ssh or is the test
 * itself, for which it returns -1. */
static inline int supervised_main(int argc, char **argv, const struct part *parts, size_t n)
{
    if (argc == 3 && strcmp(argv[1], "--as") == 0)
        return run_as(argv[2], parts, n);
    if (argc == 4 && strcmp(argv[1], "--ssh") == 0) /* --ssh HOST COMMAND */
        return execl("/bin/sh", "sh", "-c", argv[3], (char *)NULL);
    setenv("HOME", "/", 0); /* the ranks must inherit this variable */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return -1;
}

#endif
