/* SPDX-License-Identifier: MIT
 *
 * The reaper of a rank on another host. ssh ends in the same way when its connection breaks and
 * when the rank is killed, so it cannot tell the supervisor that the rank is dead. The process that
 * ssh has started therefore stays, as the parent of the rank: it waits for it, and says how it has
 * ended. If the connection is gone, nobody hears that, and nobody takes the rank for dead.
 *
 * The reaper also ends a rank that is stopped (SIGSTOP) and cannot see that standard input has
 * ended. If the reaper is killed, the kernel kills the rank.
 */
#include "launch/launch_priv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define AGAIN_NS UINT64_C(1000000000)
#define KILL_MS 8000 /* longer than a rank takes to end when standard input has ended */
#define SAY_MS 5000  /* time for the supervisor to read what ranks have printed */

struct reaper {
    pid_t rank;
    int signals;        /* readable when a signal has come */
    uint64_t kill_ns;   /* time to kill the rank; 0: standard input has not ended */
    const char *prefix; /* of what it says */
};

/* Signals of a user are for the rank, which is not the process that the user may see first. */
static void pass_on(const struct reaper *r)
{
    struct signalfd_siginfo info;

    while (read(r->signals, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo != SIGCHLD)
            kill(r->rank, (int)info.ssi_signo);
}

/* Waits for signals or the end of standard input, which the rank reads. */
static void wait_for_news(struct reaper *r)
{
    struct pollfd fds[2] = {{.fd = r->signals, .events = POLLIN},
                            {.fd = r->kill_ns == 0 ? STDIN_FILENO : -1, .events = POLLRDHUP}};
    uint64_t now = vb_clock_ns();
    int left = -1;

    if (r->kill_ns != 0)
        left = now < r->kill_ns ? (int)((r->kill_ns - now) / 1000000) + 1 : 0;
    if (poll(fds, 2, left) < 0)
        return;
    if (fds[0].revents != 0)
        pass_on(r);
    if (fds[1].revents != 0)
        r->kill_ns = vb_clock_ns() + (uint64_t)KILL_MS * 1000000;
    if (r->kill_ns == 0 || vb_clock_ns() < r->kill_ns)
        return;
    kill(r->rank, SIGKILL);
    r->kill_ns = vb_clock_ns() + AGAIN_NS; /* it may hang in the kernel */
}

static void say_end(const struct reaper *r, const siginfo_t *info)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    char line[VB_BEGUN_TEXT + 64];
    int n = snprintf(line, sizeof(line), "%s reaped %s %d\n", r->prefix,
                     info->si_code == CLD_EXITED ? "exit" : "signal", info->si_status);

    if (poll(&err, 1, SAY_MS) != 1 || (err.revents & POLLOUT) == 0 ||
        write(STDERR_FILENO, line, (size_t)n) != n)
        return; /* the connection is gone */
}

/* Ends in the way in which the rank has ended, so that ssh returns the same code. */
static _Noreturn void end_like(const siginfo_t *info)
{
    struct rlimit none = {0, 0};
    sigset_t mask;

    if (info->si_code == CLD_EXITED)
        _exit(info->si_status);
    setrlimit(RLIMIT_CORE, &none);
    signal(info->si_status, SIG_DFL);
    sigemptyset(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    kill(getpid(), info->si_status);
    _exit(128 + info->si_status);
}

static _Noreturn void reap(struct reaper *r)
{
    siginfo_t info = {0};

    prctl(PR_SET_NAME, "verbena-reaper");
    while (info.si_pid == 0) {
        if (waitid(P_PID, (id_t)r->rank, &info, WEXITED | WNOHANG) != 0 && errno != EINTR)
            _exit(1);
        if (info.si_pid == 0)
            wait_for_news(r);
    }
    say_end(r, &info);
    end_like(&info);
}

vb_status vb_launch_reaper_start(struct vb_launch *launch)
{
    struct reaper r = {.prefix = launch->begun_line};
    pid_t self = getpid();
    sigset_t set, old;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, &old);
    r.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r.signals < 0)
        return vb_err_sys("signalfd");
    r.rank = fork();
    if (r.rank < 0)
        return vb_err_sys("fork");
    if (r.rank > 0) {
        explicit_bzero(launch->secret, sizeof(launch->secret));
        close(STDOUT_FILENO);
        if (launch->root_fd >= 0)
            close(launch->root_fd);
        reap(&r);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) /* the reaper died before prctl() took effect */
        _exit(1);
    close(r.signals);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return VB_OK;
}
