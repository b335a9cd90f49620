/* SPDX-License-Identifier: MIT
 *
 * Sockets with deadlines. A deadline is a time of vb_clock_ns(); no call here outlasts it. All
 * descriptors are close-on-exec and non-blocking.
 */
#ifndef VB_SOCK_H
#define VB_SOCK_H

#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define SOCK_TEXT 64 /* "[ff02::1]:65535" and longer */

struct sock_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};

/* "HOST:PORT", "[V6]:PORT"; a name is looked up. */
vb_status sock_resolve(const char *text, struct sock_addr *addr_p);
bool sock_from_text(const char *addr, int port, struct sock_addr *addr_p); /* numbers only */
void sock_text(const struct sock_addr *addr, char out[SOCK_TEXT]);         /* with the port */
void sock_host_text(const struct sock_addr *addr, char *out, size_t size); /* without */
int sock_port(const struct sock_addr *addr);
bool sock_is_loopback(const struct sock_addr *addr);

/* Port 0: any that is free. if_taken, unless NULL, is said too where somebody else listens. */
vb_status sock_listen(const struct sock_addr *at, const char *if_taken, int *fd_p);

/* An abstract unix socket: it has no file and goes away with its last descriptor. */
vb_status sock_listen_unix(const char *name, const char *if_taken, int *fd_p);

/* Tries again while nobody listens there yet. */
vb_status sock_connect(const struct sock_addr *to, uint64_t deadline, int *fd_p);

/* Once, or as long as nobody listens there; VB_AGAIN: nobody does. What fails is not logged. */
vb_status sock_connect_unix(const char *name, uint64_t deadline, int *fd_p);
vb_status sock_await_unix(const char *name, uint64_t deadline, int *fd_p);

vb_status sock_local(int fd, struct sock_addr *addr_p);
void sock_peer_text(int fd, char out[SOCK_TEXT]);

/* Whole or not at all. VB_ERR_PEER: the other side closed. Not logged: the caller knows more. */
vb_status sock_read(int fd, void *data, size_t len_bytes, uint64_t deadline);
vb_status sock_write(int fd, const void *data, size_t len_bytes, uint64_t deadline);

/* Milliseconds until a deadline, rounded up; 0 when it has passed. At most limit_ms. */
int sock_ms_left(uint64_t deadline, int limit_ms);

#endif
