/* SPDX-License-Identifier: MIT
 *
 * The address of rank 0. root_resolve.h has what other folders may use.
 */
#ifndef VB_NET_CONTROL_ROOT_RESOLVE_H
#define VB_NET_CONTROL_ROOT_RESOLVE_H

#include "net/control/root.h"
#include "net/control/sock.h"

/* The address that "HOST:PORT" of rank 0 stands for on this host. If this is rank 0's own host, the
 * name may stand for loopback, which no other host can reach: then the result is another address of
 * this host. */
vb_status vb_root_resolve(const char *root, struct sock_addr *addr_p);

#endif
