/* SPDX-License-Identifier: MIT
 *
 * net/: moves bytes between the ranks of a job, and reads which network hardware a machine has.
 */
#ifndef VB_NET_NET_H
#define VB_NET_NET_H

#include "net/coll/coll.h"
#include "net/control/root.h"
#include "net/control/secret.h"
#include "net/group/group.h"
#include "net/group/group_record.h"
#include "net/probe/probe.h"
#include "net/sparse/sparse.h"

#endif
