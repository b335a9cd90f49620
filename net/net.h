/* SPDX-License-Identifier: MIT
 *
 * net/: moves bytes between the ranks of a job, and reads which interfaces and RDMA devices a
 * machine has. This is the one header that other folders include.
 */
#ifndef VB_NET_H
#define VB_NET_H

#include "net/pub_coll.h"
#include "net/pub_group.h"
#include "net/pub_launch.h"
#include "net/pub_probe.h"
#include "net/pub_root.h"
#include "net/pub_secret.h"
#include "net/pub_sparse.h"

#endif
