/* SPDX-License-Identifier: MIT
 *
 * Sockets with deadlines of vb_clock_ns(). All descriptors are close-on-exec and non-blocking.
 */
#ifndef VB_NET_CONTROL_SOCK_H
#define VB_NET_CONTROL_SOCK_H

#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCK_TEXT 64 /* size of an address with its port as text, with the terminating zero */

struct sock_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* Splits "HOST:PORT" or "[V6]:PORT"; host gets no brackets. Logs an error. */
vb_status vb_sock_split(const char *text, char *host, size_t size, int *port_p);

/* Looks up the host of "HOST:PORT" or "[V6]:PORT". */
vb_status vb_sock_resolve(const char *text, struct sock_addr *addr_p);
/* Accepts numeric addresses only. */
bool vb_sock_from_text(const char *addr, int port, struct sock_addr *addr_p);
void vb_sock_text(const struct sock_addr *addr, char out[SOCK_TEXT]); /* writes the port too */
void vb_sock_host_text(const struct sock_addr *addr, char *out, size_t size); /* writes no port */
int vb_sock_port(const struct sock_addr *addr);
bool vb_sock_is_loopback(const struct sock_addr *addr);

/* Port 0: any free port. If the port is taken, the logged error ends with if_taken unless NULL. */
vb_status vb_sock_listen(const struct sock_addr *at, const char *if_taken, int *fd_p);

/* Listens at an abstract unix socket, which has no file and vanishes with its last descriptor. */
vb_status vb_sock_listen_unix(const char *name, const char *if_taken, int *fd_p);

/* Tries again while nobody listens there yet. */
vb_status vb_sock_connect(const struct sock_addr *to, uint64_t deadline, int *fd_p);
/* Tries once, and logs nothing: errno says why it failed. */
vb_status vb_sock_connect_once(const struct sock_addr *to, uint64_t deadline, int *fd_p);

/* Connect to an abstract unix socket, once or until the deadline. Both return VB_AGAIN if nobody
 * listens, and log no failure. */
vb_status vb_sock_connect_unix(const char *name, uint64_t deadline, int *fd_p);
vb_status vb_sock_await_unix(const char *name, uint64_t deadline, int *fd_p);

/* Lets the kernel end a connection to another host that does not answer for about silent_ms, and
 * probe it while it is idle. Reads then fail with ETIMEDOUT. Returns false, and does nothing, if
 * both ends are on this host. The second function changes that time later. */
bool vb_sock_keepalive(int fd, int silent_ms, int probe_ms);
void vb_sock_silent_ms(int fd, int silent_ms);

/* Returns how long an answer takes at present, queues included: 0 on this host. */
uint64_t vb_sock_round_trip_ns(int fd);

vb_status vb_sock_local(int fd, struct sock_addr *addr_p);
vb_status vb_sock_peer(int fd, struct sock_addr *addr_p);
void vb_sock_peer_text(int fd, char out[SOCK_TEXT]);

/* Closes a descriptor unless it is -1, and sets it to -1. */
static inline void vb_fd_close(int *fd_p)
{
    if (*fd_p >= 0)
        close(*fd_p);
    *fd_p = -1;
}

/* Read or write all bytes. VB_ERR_PEER: the other side has closed. Failures are not logged. */
vb_status vb_sock_read(int fd, void *data, size_t len_bytes, uint64_t deadline);
vb_status vb_sock_write(int fd, const void *data, size_t len_bytes, uint64_t deadline);

/* Returns the milliseconds until a deadline, rounded up, at most limit_ms; 0: it has passed. */
int vb_sock_ms_left(uint64_t deadline, int limit_ms);

#endif
