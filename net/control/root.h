/* SPDX-License-Identifier: MIT
 *
 * The root is "HOST:PORT", the address where rank 0 of a group listens and the other ranks connect.
 */
#ifndef VB_NET_CONTROL_ROOT_H
#define VB_NET_CONTROL_ROOT_H

#include "base/base.h"

#define VB_ROOT_TEXT 272 /* size of the text "HOST:PORT", with the terminating zero */

/* Opens the listening socket of rank 0. HOST is a name or address of this host that other hosts
 * know. The socket listens at all addresses, because other hosts may resolve HOST to another one or
 * to none; but only at loopback if HOST is a loopback address or localhost. root becomes the text
 * that other ranks must use: a free port replaces port 0, and an address replaces a name that
 * resolves to loopback on this host (127.0.1.1 on Debian). */
vb_status vb_root_listen(char root[VB_ROOT_TEXT], int *fd_p);
bool vb_root_wants_port(const char *root); /* true for "HOST:0" */

/* The same for a name that other hosts may not know. root becomes an address that they can reach:
 * the address of HOST unless that is loopback, else `reached`, else that of an interface. `reached`
 * is an address of this host to which another host has connected; NULL: none is known. */
vb_status vb_root_listen_reachable(char root[VB_ROOT_TEXT], const char *reached, int *fd_p);

#endif
