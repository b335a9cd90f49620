/* SPDX-License-Identifier: MIT
 *
 * Which interface the kernel's route to a peer takes, and whether a job may use it.
 */
#ifndef VB_ROUTE_H
#define VB_ROUTE_H

#include "net/sock.h"

/* local is this rank's address on a connection between two hosts. Loopback, bridges and the control
 * network of CloudLab are refused, with a line that says so, unless any is set. */
vb_status route_check(const struct sock_addr *local, int peer_rank, bool any);

#endif
