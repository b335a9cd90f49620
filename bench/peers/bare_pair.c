/* SPDX-License-Identifier: MIT */
#include "bench/peers/bare.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
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
