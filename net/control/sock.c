/* SPDX-License-Identifier: MIT */
#include "net/control/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 20

int vb_sock_ms_left(uint64_t deadline, int limit_ms)
{
    uint64_t now = vb_clock_ns(), ms;

    if (now >= deadline)
        return 0;
    ms = (deadline - now + 999999) / 1000000;
    return ms < (uint64_t)limit_ms ? (int)ms : limit_ms;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool split(const char *text, char *host, size_t size, char *port, size_t port_size)
{
    const char *colon = strrchr(text, ':'), *from = text;
    size_t len;

    if (colon == NULL || colon == text)
        return false;
    len = (size_t)(colon - text);
    if (text[0] == '[') {
        if (colon[-1] != ']' || len < 3)
            return false;
        from++;
        len -= 2;
    }
    if (len >= size || strlen(colon + 1) >= port_size)
        return false;
    memcpy(host, from, len);
    host[len] = '\0';
    snprintf(port, port_size, "%s", colon + 1);
    return true;
}

vb_status vb_sock_split(const char *text, char *host, size_t size, int *port_p)
{
    char port[8];
    int64_t number;

    if (!split(text, host, size, port, sizeof(port)) || !vb_parse_int(port, &number) ||
        number < 0 || number > 65535)
        return vb_err(VB_ERR_USAGE, "\"%.128s\" is not HOST:PORT or [IPV6]:PORT", text);
    *port_p = (int)number;
    return VB_OK;
}

/* Looks up an address. Returns the result of getaddrinfo(). */
static int look_up(const char *host, int port, int flags, struct sock_addr *addr_p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags},
                    *found;
    char service[8];
    int rc;

    snprintf(service, sizeof(service), "%d", port);
    rc = getaddrinfo(host, service, &hints, &found);
    if (rc != 0)
        return rc;
    memset(addr_p, 0, sizeof(*addr_p));
    memcpy(&addr_p->sa, found->ai_addr, found->ai_addrlen);
    addr_p->len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

vb_status vb_sock_resolve(const char *text, struct sock_addr *addr_p)
{
    char host[256];
    int rc, port;
    vb_status st = vb_sock_split(text, host, sizeof(host), &port);

    if (st != VB_OK)
        return st;
    rc = look_up(host, port, 0, addr_p);
    if (rc != 0)
        return vb_err(VB_ERR_NO_FILE, "cannot find an address for %s: %s", host, gai_strerror(rc));
    return VB_OK;
}

bool vb_sock_from_text(const char *addr, int port, struct sock_addr *addr_p)
{
    return look_up(addr, port, AI_NUMERICHOST, addr_p) == 0;
}

void vb_sock_host_text(const struct sock_addr *addr, char *out, size_t size)
{
    if (addr->sa.ss_family == AF_UNIX)
        snprintf(out, size, "this host");
    else if (getnameinfo((const struct sockaddr *)&addr->sa, addr->len, out, (socklen_t)size, NULL,
                         0, NI_NUMERICHOST) != 0)
        snprintf(out, size, "?");
}

void vb_sock_text(const struct sock_addr *addr, char out[SOCK_TEXT])
{
    char host[SOCK_TEXT - 10];

    vb_sock_host_text(addr, host, sizeof(host));
    if (addr->sa.ss_family == AF_INET6)
        snprintf(out, SOCK_TEXT, "[%s]:%d", host, vb_sock_port(addr));
    else if (addr->sa.ss_family == AF_INET)
        snprintf(out, SOCK_TEXT, "%s:%d", host, vb_sock_port(addr));
    else
        snprintf(out, SOCK_TEXT, "%s", host);
}

int vb_sock_port(const struct sock_addr *addr)
{
    if (addr->sa.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&addr->sa)->sin6_port);
    if (addr->sa.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&addr->sa)->sin_port);
    return 0;
}

bool vb_sock_is_loopback(const struct sock_addr *addr)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&addr->sa;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&addr->sa;

    if (addr->sa.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    return addr->sa.ss_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == 127;
}

vb_status vb_sock_local(int fd, struct sock_addr *addr_p)
{
    memset(addr_p, 0, sizeof(*addr_p));
    addr_p->len = sizeof(addr_p->sa);
    if (getsockname(fd, (struct sockaddr *)&addr_p->sa, &addr_p->len) != 0)
        return vb_err_sys("getsockname");
    return VB_OK;
}

vb_status vb_sock_peer(int fd, struct sock_addr *addr_p)
{
    memset(addr_p, 0, sizeof(*addr_p));
    addr_p->len = sizeof(addr_p->sa);
    if (getpeername(fd, (struct sockaddr *)&addr_p->sa, &addr_p->len) != 0)
        return vb_err_sys("getpeername");
    return VB_OK;
}

void vb_sock_peer_text(int fd, char out[SOCK_TEXT])
{
    struct sock_addr addr = {.len = sizeof(addr.sa)};

    if (getpeername(fd, (struct sockaddr *)&addr.sa, &addr.len) != 0)
        snprintf(out, SOCK_TEXT, "?");
    else
        vb_sock_text(&addr, out);
}

/* Two ends with the same address are on one host, and a host does not lose itself. */
static bool is_remote(int fd)
{
    struct sock_addr own, peer = {.len = sizeof(peer.sa)};
    char own_text[SOCK_TEXT], peer_text[SOCK_TEXT];

    if (vb_sock_local(fd, &own) != VB_OK || own.sa.ss_family == AF_UNIX ||
        getpeername(fd, (struct sockaddr *)&peer.sa, &peer.len) != 0)
        return false;
    vb_sock_host_text(&own, own_text, sizeof(own_text));
    vb_sock_host_text(&peer, peer_text, sizeof(peer_text));
    return strcmp(own_text, peer_text) != 0;
}

bool vb_sock_keepalive(int fd, int silent_ms, int probe_ms)
{
    int on = 1, pause_s = probe_ms >= 1000 ? probe_ms / 1000 : 1;

    if (!is_remote(fd))
        return false;
    /* The user timeout limits the time for probes too, and that for data without an answer. */
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pause_s, sizeof(pause_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof(pause_s)) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0)
        VB_LOG_WARN("this host will not notice when the host of a peer dies: %s", strerror(errno));
    return true;
}

void vb_sock_silent_ms(int fd, int silent_ms)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
}

/* The deviation is what a queue that fills adds. */
uint64_t vb_sock_round_trip_ns(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return 0; /* a unix socket */
    return ((uint64_t)info.tcpi_rtt + 4 * (uint64_t)info.tcpi_rttvar) * 1000;
}

/* ---- listening ------------------------------------------------------------------------------- */

static void fix_listen(int err, const struct sockaddr *sa)
{
    struct sock_addr at = {.len = sizeof(struct sockaddr_in6)};

    if (sa->sa_family != AF_INET && sa->sa_family != AF_INET6)
        return;
    memcpy(&at.sa, sa, sa->sa_family == AF_INET ? sizeof(struct sockaddr_in) : at.len);
    if (err == EADDRINUSE)
        vb_log_fix("ss -ltnp 'sport = :%d'   # shows the program; end it, or choose another port "
                   "with --root",
                   vb_sock_port(&at));
    else if (err == EACCES)
        vb_log_fix("--root HOST:PORT with a port from 1024 on   # lower ones are root's");
}

static vb_status listen_at(const struct sockaddr *sa, socklen_t len, const char *text,
                           const char *if_taken, int *fd_p)
{
    int family = sa->sa_family;
    bool taken;
    vb_status st;
    int fd, on = 1;

    fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return vb_err_sys("socket");
    if (family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, sa, len) != 0 || listen(fd, SOMAXCONN) != 0) {
        taken = errno == EADDRINUSE && if_taken != NULL;
        st = vb_err_sys("cannot listen on %s%s%s%s", text, taken ? " (" : "", taken ? if_taken : "",
                        taken ? ")" : "");
        if (if_taken != NULL)
            fix_listen(errno, sa);
        close(fd);
        return st;
    }
    *fd_p = fd;
    return VB_OK;
}

vb_status vb_sock_listen(const struct sock_addr *at, const char *if_taken, int *fd_p)
{
    char text[SOCK_TEXT];

    vb_sock_text(at, text);
    return listen_at((const struct sockaddr *)&at->sa, at->len, text, if_taken, fd_p);
}

/* A zero byte before the name makes the socket abstract. */
static socklen_t unix_addr(const char *name, struct sockaddr_un *un)
{
    size_t len = strnlen(name, sizeof(un->sun_path) - 1);

    memset(un, 0, sizeof(*un));
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

vb_status vb_sock_listen_unix(const char *name, const char *if_taken, int *fd_p)
{
    struct sockaddr_un un;
    socklen_t len = unix_addr(name, &un);

    return listen_at((struct sockaddr *)&un, len, name, if_taken, fd_p);
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* If nobody listens yet, the kernel may choose the port of the listener for the near end. */
static bool met_itself(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

    memset(&own, 0, sizeof(own));
    memset(&peer, 0, sizeof(peer));
    return getsockname(fd, (struct sockaddr *)&own, &own_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0 && own_len == peer_len &&
           memcmp(&own, &peer, own_len) == 0;
}

/* Returns VB_AGAIN if nobody listens yet. */
static vb_status connect_once(const struct sockaddr *sa, socklen_t len, uint64_t deadline,
                              int *fd_p)
{
    struct linger at_once = {.l_onoff = 1}; /* close() frees the port at once for a listener */
    int fd, err = 0, on = 1;
    struct pollfd wait;
    socklen_t size = sizeof(err);

    fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return vb_err_sys("socket");
    if (connect(fd, sa, len) != 0) {
        err = errno;
        if (err == EINPROGRESS) {
            wait = (struct pollfd){.fd = fd, .events = POLLOUT};
            if (poll(&wait, 1, vb_sock_ms_left(deadline, 60000)) <= 0)
                err = ETIMEDOUT;
            else
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size);
        }
    }
    if (err == 0 && sa->sa_family != AF_UNIX && met_itself(fd)) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
        errno = ECONNREFUSED;
        return VB_AGAIN;
    }
    if (err == 0) {
        if (sa->sa_family != AF_UNIX)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        *fd_p = fd;
        return VB_OK;
    }
    close(fd);
    errno = err;
    return err == ECONNREFUSED || err == EAGAIN || err == EHOSTUNREACH || err == ENETUNREACH
               ? VB_AGAIN
               : vb_status_from_errno(err);
}

/* Tries until the deadline. Returns VB_AGAIN if nobody has listened by then. */
static vb_status connect_to(const struct sockaddr *sa, socklen_t len, uint64_t deadline, int *fd_p)
{
    struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    vb_status st;

    while ((st = connect_once(sa, len, deadline, fd_p)) == VB_AGAIN) {
        if (vb_sock_ms_left(deadline, 1) == 0)
            break;
        nanosleep(&pause, NULL);
    }
    return st;
}

static void fix_connect(int err, const struct sock_addr *to)
{
    char host[SOCK_TEXT];

    vb_sock_host_text(to, host, sizeof(host));
    if (err == ETIMEDOUT)
        vb_log_fix("ping -c 3 %s   # if it answers, a firewall drops TCP on the way there or back: "
                   "sudo nft list ruleset, on both hosts",
                   host);
    else if (err == ECONNREFUSED)
        vb_log_fix("ss -ltn   # on %s: nothing listens at this port; rank 0 was not started there "
                   "with the same --root, or has ended",
                   host);
    else
        vb_log_fix("ip route get %s   # this host must have a route there", host);
}

vb_status vb_sock_connect(const struct sock_addr *to, uint64_t deadline, int *fd_p)
{
    char text[SOCK_TEXT];
    vb_status st;

    vb_sock_text(to, text);
    st = connect_to((const struct sockaddr *)&to->sa, to->len, deadline, fd_p);
    if (st == VB_OK)
        return VB_OK;
    (void)vb_err_sys("connect %s", text);
    fix_connect(errno, to);
    return st == VB_AGAIN ? VB_ERR_TIMEOUT : st;
}

vb_status vb_sock_connect_once(const struct sock_addr *to, uint64_t deadline, int *fd_p)
{
    return connect_once((const struct sockaddr *)&to->sa, to->len, deadline, fd_p);
}

vb_status vb_sock_connect_unix(const char *name, uint64_t deadline, int *fd_p)
{
    struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    struct sockaddr_un un;
    socklen_t len = unix_addr(name, &un);
    vb_status st;

    while ((st = connect_once((struct sockaddr *)&un, len, deadline, fd_p)) == VB_AGAIN &&
           errno == EAGAIN && vb_sock_ms_left(deadline, 1) > 0) /* the queue of callers is full */
        nanosleep(&pause, NULL);
    return st;
}

vb_status vb_sock_await_unix(const char *name, uint64_t deadline, int *fd_p)
{
    struct sockaddr_un un;
    socklen_t len = unix_addr(name, &un);

    return connect_to((struct sockaddr *)&un, len, deadline, fd_p);
}

/* ---- whole messages -------------------------------------------------------------------------- */

static vb_status wait_for(int fd, short events, uint64_t deadline)
{
    struct pollfd wait = {.fd = fd, .events = events};
    int ms = vb_sock_ms_left(deadline, 60000), rc;

    if (ms == 0)
        return VB_ERR_TIMEOUT;
    rc = poll(&wait, 1, ms);
    return rc >= 0 || errno == EINTR ? VB_OK : VB_ERR_IO;
}

/* Receives (POLLIN) or sends (POLLOUT) all bytes. */
static vb_status move_all(int fd, char *at, size_t len, short way, uint64_t deadline)
{
    vb_status st;
    ssize_t n;

    while (len > 0) {
        n = way == POLLIN ? recv(fd, at, len, 0) : send(fd, at, len, MSG_NOSIGNAL);
        if (n == 0 && way == POLLIN)
            return VB_ERR_PEER;
        if (n >= 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return vb_status_from_errno(errno);
        st = wait_for(fd, way, deadline);
        if (st != VB_OK)
            return st;
    }
    return VB_OK;
}

vb_status vb_sock_read(int fd, void *data, size_t len_bytes, uint64_t deadline)
{
    return move_all(fd, data, len_bytes, POLLIN, deadline);
}

vb_status vb_sock_write(int fd, const void *data, size_t len_bytes, uint64_t deadline)
{
    return move_all(fd, (char *)data, len_bytes, POLLOUT, deadline);
}
