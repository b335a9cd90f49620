/* SPDX-License-Identifier: MIT
 *
 * Addresses and routes, for code in net/. root.h has the functions for all other folders.
 */
#ifndef VB_NET_CONTROL_ROOT_RESOLVE_H
#define VB_NET_CONTROL_ROOT_RESOLVE_H

#include "net/control/root.h"
#include "net/control/sock.h"

/* Finds the address of rank 0. On its own host the name may resolve to loopback, which no other
 * host can reach; then *addr_p is another address of this host. */
vb_status vb_root_resolve(const char *root, struct sock_addr *addr_p);

/* Called after an error of connecting to rank 0: if on this host the name means the host itself,
 * says what to do about it. */
void vb_root_fix(const char *root);

/* local is this rank's address on a connection to another host. Unless `any` is set, loopback,
 * bridges and the control network of CloudLab are refused with a logged error: over them a job may
 * run, but slowly, and nothing would show why. */
vb_status vb_route_check(const struct sock_addr *local, int peer_rank, bool any);

#endif
