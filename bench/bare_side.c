/* SPDX-License-Identifier: MIT */
#include "bench/bare_side.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool bare_pin(int which, int n)
{
    cpu_set_t allowed, one;
    int cpu, seen = 0;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < n)
        return false;
    for (cpu = 0; cpu < CPU_SETSIZE - 1; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == which)
            break;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
    return true;
}

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

/* Opens a socket in a network namespace, where it stays even if the process leaves. */
static vb_status socket_in(const char *space, int *fd_p)
{
    char path[256];
    int ns;

    if (space != NULL) {
        snprintf(path, sizeof(path), "/run/netns/%s", space);
        ns = open(path, O_RDONLY | O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
            return vb_err_sys("%s", path);
        close(ns);
    }
    *fd_p = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return *fd_p >= 0 ? VB_OK : vb_err_sys("socket");
}

vb_status bare_tcp_pair(char *const *via, int fds[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int i, one = 1, listener = -1;
    vb_status st;

    fds[0] = fds[1] = -1;
    if (via != NULL && inet_pton(AF_INET, via[2], &addr.sin_addr) != 1)
        return vb_err(VB_ERR_USAGE, "%s is not an address", via[2]);
    st = socket_in(via != NULL ? via[1] : NULL, &listener);
    if (st == VB_OK)
        st = socket_in(via != NULL ? via[0] : NULL, &fds[0]);
    if (st != VB_OK)
        return st;
    if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &len) != 0 ||
        connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) != 0)
        st = vb_err_sys("connect");
    fds[1] = st == VB_OK ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    for (i = 0; i < 2 && st == VB_OK; i++)
        if (setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
            st = vb_err_sys("TCP_NODELAY");
    close(listener);
    return st;
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
