/* SPDX-License-Identifier: MIT
 *
 * net/: moves bytes between the ranks of a job, and reads which interfaces and RDMA devices a
 * machine has. This is the one header that other folders include.
 */
#ifndef VB_NET_NET_H
#define VB_NET_NET_H

#include "net/coll/coll.h"
#include "net/control/root.h"
#include "net/control/secret.h"
#include "net/group/group.h"
#include "net/probe/probe.h"
#include "net/sparse/sparse.h"

#endif
