/* SPDX-License-Identifier: MIT
 *
 * Libraries may have started threads, so between fork() and exec a child calls only functions that
 * are safe in a signal handler.
 */
#include "launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXEC_FAILED 127
#define NAP_NS 5000000

extern char **environ;

static _Noreturn void become(const struct vb_spawn_opts *o, int in_fd, pid_t parent,
                             const sigset_t *mask)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent died before prctl() took effect */
        _exit(EXEC_FAILED);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (dup2(in_fd, STDIN_FILENO) < 0 || dup2(o->out_fd, STDOUT_FILENO) < 0 ||
        dup2(o->out_fd, STDERR_FILENO) < 0 ||
        (o->net_fd >= 0 && setns(o->net_fd, CLONE_NEWNET) != 0))
        _exit(EXEC_FAILED);
    if (o->program == NULL)
        execve("/proc/self/exe", o->argv, environ);
    else
        execvpe(o->program, o->argv, environ); /* glibc's has no lock and no heap */
    _exit(EXEC_FAILED);
}

vb_status vb_spawn_start(const struct vb_spawn_opts *o, pid_t *pid_p)
{
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), in_fd;
    pid_t parent = getpid(), pid;
    sigset_t all, mask;
    vb_status st = VB_OK;

    if (null_fd < 0)
        return vb_err_sys("open /dev/null");
    in_fd = o->in_fd >= 0 ? o->in_fd : null_fd;
    sigfillset(&all); /* a handler of the parent must not run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid = fork();
    if (pid == 0)
        become(o, in_fd, parent, &mask);
    if (pid < 0)
        st = vb_err_sys("fork");
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    close(null_fd);
    if (st != VB_OK)
        return st;
    setpgid(pid, pid); /* the child calls it too; the second call does nothing */
    *pid_p = pid;
    return VB_OK;
}

bool vb_spawn_wait(pid_t pid, int wait_ms, int *code_p)
{
    uint64_t deadline_ns = vb_clock_ns() + (uint64_t)wait_ms * UINT64_C(1000000);
    const struct timespec nap = {.tv_nsec = NAP_NS};
    int status;
    pid_t got;

    for (;;) {
        got = waitpid(pid, &status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            break;
        if (vb_clock_ns() >= deadline_ns)
            return false;
        nanosleep(&nap, NULL);
    }
    *code_p = EXEC_FAILED; /* nobody else reaps our children */
    if (got == pid)
        *code_p = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}

void vb_spawn_stop(pid_t pid, int grace_ms)
{
    int code;

    kill(-pid, SIGTERM);
    if (vb_spawn_wait(pid, grace_ms, &code))
        return;
    kill(-pid, SIGKILL);
    (void)vb_spawn_wait(pid, 10000, &code);
}
