/* SPDX-License-Identifier: MIT
 *
 * net/: moves bytes between the ranks of a job, and reads which network hardware a machine has.
 *
 * A program begins with struct vb_group_opts opts = VB_GROUP_OPTS_DEFAULT, sets rank, world, root
 * and secret and calls vb_group_open(), or lets vb_launch_open() of launch/ do all that;
 * examples/allreduce.c shows it. The secret is 32 bytes, the same on all ranks. vb_secret_read()
 * takes a file with 64 hexadecimal digits ("openssl rand -hex 32"; a newline may follow) or with
 * the 32 bytes themselves, which only its owner may be able to read (chmod 600);
 * vb_secret_parse() takes the digits as a text; vb_launch_read() takes them from VB_SECRET.
 */
#ifndef VB_NET_NET_H
#define VB_NET_NET_H

#include "net/coll/coll.h"
#include "net/control/root.h"
#include "net/control/secret.h"
#include "net/control/times.h"
#include "net/group/group.h"
#include "net/group/group_door.h"
#include "net/group/group_form.h"
#include "net/group/group_record.h"
#include "net/probe/probe.h"
#include "net/sparse/sparse.h"

#endif
