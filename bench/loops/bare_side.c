/* SPDX-License-Identifier: MIT */
#include "bench/loops/bare_side.h"
#include "bench/peers/bare.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void bare_side_relax(const struct bare_side *side)
{
    if (side->crowded)
        sched_yield();
}

void bare_stamp(char *payload, size_t len, uint32_t round)
{
    payload[0] = (char)round;
    payload[len - 1] = (char)round;
}

bool bare_stamped(const char *payload, size_t len, uint32_t round)
{
    return payload[0] == (char)round && payload[len - 1] == (char)round;
}

bool bare_move(const struct bare_side *side, char *data, bool out, enum bare_how how)
{
    size_t at = 0;
    ssize_t n;

    while (at < side->len) {
        n = out ? send(side->fd, data + at, side->len - at, MSG_NOSIGNAL | (int)how)
                : recv(side->fd, data + at, side->len - at, (int)how);
        if (n > 0)
            at += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else
            bare_side_relax(side);
    }
    return true;
}

static void begin(struct bare_side *side, int which, const int *fds)
{
    side->which = which;
    side->crowded = !bare_pin(which, 2);
    side->fd = fds != NULL ? fds[which] : -1;
    if (fds != NULL)
        close(fds[1 - which]);
}

static vb_status run_pair(struct bare_side *side, bare_side_fn parent, bare_side_fn child,
                          const int *fds)
{
    cpu_set_t allowed;
    int status = 0;
    pid_t pid;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return vb_err_sys("sched_getaffinity");
    pid = fork();
    if (pid < 0)
        return vb_err_sys("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        begin(side, 1, fds);
        side->wrong = 0; /* the child starts at 0, not with the parent's count */
        child(side);
        _exit(side->wrong != 0);
    }
    begin(side, 0, fds);
    parent(side);
    if (fds != NULL)
        close(side->fd);
    (void)sched_setaffinity(0, sizeof(allowed), &allowed); /* unpinned, for the next child */
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return vb_err(VB_ERR_PEER, "the other process failed");
    return VB_OK;
}

vb_status bare_run(struct bare_side *side, bare_side_fn parent, bare_side_fn child)
{
    return run_pair(side, parent, child, NULL);
}

vb_status bare_run_tcp(struct bare_side *side, bare_side_fn parent, bare_side_fn child)
{
    int fds[2];
    vb_status st = bare_tcp_pair(side->via, fds);

    return st == VB_OK ? run_pair(side, parent, child, fds) : st;
}
