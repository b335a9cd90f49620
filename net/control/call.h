/* SPDX-License-Identifier: MIT
 *
 * The caller's side of joining a running job: calls the members, also when the one where it waits
 * dies (call.c). Blocks until a deadline; no other thread takes part.
 */
#ifndef VB_NET_CONTROL_CALL_H
#define VB_NET_CONTROL_CALL_H

#include "net/control/auth.h"
#include "net/control/sock.h"
#include "net/wire/wire_door.h"
#include "net/wire/wire_member.h"

#define CALL_ADDRESSES 64

/* The addresses that are called in turn. */
struct call_list {
    struct sock_addr at[CALL_ADDRESSES];
    int n;
};

struct vb_caller {
    struct vb_group_opts opts;
    double patience;
    struct call_list given, told; /* by the user; by a member, the lead first */
    char doors[VB_DOORS_TEXT];    /* the text of `told` */
    int fd;                       /* to the lead; -1: none */
    struct auth_session session;
    bool met; /* a member has answered */
    bool has_slot;
    bool invited; /* since it has called last */
    struct wire_slot slot;
    unsigned char *job; /* NULL: not received yet */
    size_t job_len;
    unsigned char *frame; /* the payload of the last frame */
    char why[160];        /* why the last call came to nothing */
};

/* Reads the addresses in opts->root. */
vb_status vb_call_init(struct vb_caller *w, const struct vb_group_opts *opts);

/* Calls until a member has given this process a slot, or the text of the job. */
vb_status vb_call_members(struct vb_caller *w, uint64_t deadline);

/* Says that this process is ready, and waits for the invitation. */
vb_status vb_call_wait(struct vb_caller *w, uint64_t deadline, struct vb_invitation *inv_p);

void vb_call_fini(struct vb_caller *w);

#endif
