/* SPDX-License-Identifier: MIT
 *
 * The root: "HOST:PORT", where rank 0 of a group listens and the others find it.
 */
#ifndef VB_NET_CONTROL_ROOT_H
#define VB_NET_CONTROL_ROOT_H

#include "base/base.h"

#define VB_ROOT_TEXT 272 /* bytes of "HOST:PORT", with its end */

/* Opens the socket of rank 0. HOST is a name or address of this host that others know. The socket
 * listens at all addresses of this host, because HOST may stand for another address on other hosts,
 * or for none. Only for loopback, given as a number or as localhost, does it listen at loopback;
 * all ranks are on this host then. root becomes what other ranks must use: port 0 is replaced by a
 * free port, and a name that stands for loopback on its own host (127.0.1.1 on Debian) by an
 * address. */
vb_status vb_root_listen(char root[VB_ROOT_TEXT], int *fd_p);
bool vb_root_wants_port(const char *root); /* true for "HOST:0" */

/* The same if HOST is merely a name of this host that others may not know. root becomes an address
 * that others can reach: the address of the name unless that is loopback, else reached, else that
 * of an interface. reached is an address of this host to which another host has connected; NULL:
 * none is known. */
vb_status vb_root_listen_reachable(char root[VB_ROOT_TEXT], const char *reached, int *fd_p);

#endif
