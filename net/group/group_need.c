/* SPDX-License-Identifier: MIT
 *
 * What a group takes of a rank: descriptors, threads and memory, in all and for each peer. The
 * numbers are those of the functions that open them, and docs/network.md lists them. The test
 * tests/cli/dry_run.sh compares them with running jobs.
 */
#include "net/group/group_priv.h"

/* The control plane has a socket that listens, a unix socket that listens, an epoll and an eventfd;
 * progress has an epoll and an eventfd. */
#define FDS_OF_GROUP 6
#define FDS_OF_SHM 3      /* an epoll, the eventfd with which peers wake this rank, its pidfd */
#define FDS_OF_TCP 1      /* an epoll */
#define FDS_OF_SHM_PEER 3 /* control connection, socket that passes descriptors, peer's eventfd */
#define FDS_OF_ELASTIC 1  /* pidfd of a peer on this host, which may have to be killed */
#define FDS_OF_AGREES 1   /* pidfd of a peer on this host, which proves its death */
#define FDS_OF_TCP_PEER 2 /* control connection, data connection */
#define FDS_OF_WINDOW 1
#define AGREEMENT_BYTES ((size_t)24 << 10) /* the machine, and what it puts out */
#define INBOX_BYTES ((size_t)12 << 10)     /* the inbox that a peer on this host writes */

void vb_group_need(const struct vb_group_plan *plan, struct vb_group_need *need_p)
{
    int near = plan->transport == VB_TRANSPORT_AUTO || plan->transport == VB_TRANSPORT_SHM
                   ? plan->near_peers
                   : 0;
    int far = plan->world - 1 - near;

    *need_p = (struct vb_group_need){
        .fds = FDS_OF_GROUP + (near > 0 ? FDS_OF_SHM : 0) + (far > 0 ? FDS_OF_TCP : 0) +
               near * (FDS_OF_SHM_PEER + (plan->elastic ? FDS_OF_ELASTIC : 0)) +
               far * FDS_OF_TCP_PEER + plan->windows * FDS_OF_WINDOW +
               (plan->agrees ? plan->near_peers * FDS_OF_AGREES : 0),
        .threads = 1 + (plan->progress && (far > 0 || plan->elastic) ? 1 : 0),
        .bytes = (size_t)near * INBOX_BYTES + (2 + 2 * (size_t)plan->world) * VB_RECORD_MAX +
                 (plan->agrees ? AGREEMENT_BYTES : 0),
    };
}
