/* SPDX-License-Identifier: MIT
 *
 * Checks that a job may use the interface over which the kernel reaches a peer.
 */
#ifndef VB_NET_CONTROL_ROUTE_H
#define VB_NET_CONTROL_ROUTE_H

#include "net/control/sock.h"

/* local is this rank's address on a connection between two hosts. Unless `any` is set, loopback,
 * bridges and the control network of CloudLab are refused with a logged error. */
vb_status vb_route_check(const struct sock_addr *local, int peer_rank, bool any);

#endif
