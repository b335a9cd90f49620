/* SPDX-License-Identifier: MIT
 *
 * Sockets with deadlines. A deadline is a time of vb_clock_ns(); every function returns by then.
 * All descriptors are close-on-exec and non-blocking.
 */
#ifndef VB_NET_CONTROL_SOCK_H
#define VB_NET_CONTROL_SOCK_H

#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define SOCK_TEXT 64 /* bytes of an address and its port as text, with its end */

struct sock_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* Splits "HOST:PORT" or "[V6]:PORT"; host is without brackets. Logs a text that is neither. */
vb_status vb_sock_split(const char *text, char *host, size_t size, int *port_p);

/* Looks the host of "HOST:PORT" or "[V6]:PORT" up. */
vb_status vb_sock_resolve(const char *text, struct sock_addr *addr_p);
bool vb_sock_from_text(const char *addr, int port, struct sock_addr *addr_p); /* no names */
void vb_sock_text(const struct sock_addr *addr, char out[SOCK_TEXT]);         /* with the port */
void vb_sock_host_text(const struct sock_addr *addr, char *out, size_t size); /* no port */
int vb_sock_port(const struct sock_addr *addr);
bool vb_sock_is_loopback(const struct sock_addr *addr);

/* Port 0: any free port. If the port is taken, the error ends with if_taken, if not NULL. */
vb_status vb_sock_listen(const struct sock_addr *at, const char *if_taken, int *fd_p);

/* Listens at an abstract unix socket, which has no file and vanishes with its last descriptor. */
vb_status vb_sock_listen_unix(const char *name, const char *if_taken, int *fd_p);

/* Tries again while nobody listens at the address yet. */
vb_status vb_sock_connect(const struct sock_addr *to, uint64_t deadline, int *fd_p);

/* The first tries once, the second until somebody listens. Both return VB_AGAIN if nobody does, and
 * log no failure. */
vb_status vb_sock_connect_unix(const char *name, uint64_t deadline, int *fd_p);
vb_status vb_sock_await_unix(const char *name, uint64_t deadline, int *fd_p);

vb_status vb_sock_local(int fd, struct sock_addr *addr_p);
void vb_sock_peer_text(int fd, char out[SOCK_TEXT]);

/* Transfer all bytes or fail. VB_ERR_PEER: the other side has closed. Failures are not logged
 * because the caller knows more. */
vb_status vb_sock_read(int fd, void *data, size_t len_bytes, uint64_t deadline);
vb_status vb_sock_write(int fd, const void *data, size_t len_bytes, uint64_t deadline);

/* Milliseconds until a deadline, rounded up, at most limit_ms; 0 if it has passed. */
int vb_sock_ms_left(uint64_t deadline, int limit_ms);

#endif
