/* SPDX-License-Identifier: MIT
 *
 * How somebody comes to a running group that agrees. No rank joins such a group. A *caller* calls
 * one of its members, gets the text of the job, prepares itself, and waits at the *lead*, the
 * lowest member of the view. The members then form a new group together with those who wait, and
 * the lead *invites* them to it. What the members do for that is in engine/run/.
 */
#ifndef VB_NET_GROUP_GROUP_DOOR_H
#define VB_NET_GROUP_GROUP_DOOR_H

#include "net/control/root.h"
#include "net/group/group.h"

#define VB_CALLERS_MAX 16             /* as many may wait at once; others call again */
#define VB_JOB_BYTES_MAX (128 * 1024) /* the text of a job */

/* Where a new group meets, and the place in it of the one who is invited. */
struct vb_invitation {
    char root[VB_ROOT_TEXT]; /* "HOST:PORT" of rank 0 of the new group */
    int rank, world;         /* in the new group */
    int id;                  /* a number that no process of this job has had */
    int64_t step;            /* number of steps that are done when the group is formed */
};

/* ---- the members ----------------------------------------------------------------------------- */

/* From now on callers get the text of the job, which is copied, and may wait here while this rank
 * leads. All members call this, since any of them may become the lead; until then callers are told
 * to call again. most: the number of ranks that the job can have; while the view has as many,
 * callers are refused. The call can be repeated, also with job NULL: callers are refused from then
 * on. */
vb_status vb_group_let_in(struct vb_group *group, const void *job, size_t len_bytes, int most);

/* Number of callers that wait here; 0 unless this rank leads. Costs the reading of an atomic. */
int vb_group_callers(const struct vb_group *group);

/* Invites the caller that has waited for longest, and closes the connection to it. VB_AGAIN: nobody
 * waits any more. Does not wait. Whether the caller comes is not known. */
vb_status vb_group_invite(struct vb_group *group, const struct vb_invitation *inv);

/* Tells the caller that has waited for longest why it cannot join; its call then fails for good. */
vb_status vb_group_turn_away(struct vb_group *group, const char *why);

/* Writes the addresses of all members, separated by commas, the lead's first: for --join. */
#define VB_DOORS_TEXT 1024
void vb_group_doors(struct vb_group *group, char out[VB_DOORS_TEXT]);

/* The port where callers find this rank, in this group and in those that inherit it. */
int vb_group_door(const struct vb_group *group);

/* The new group `group` also listens where `from` did, which stays open until its close: others
 * know this address. Every old member calls this once the new group is formed, whose option door
 * was vb_group_door(from). */
vb_status vb_group_inherit_door(struct vb_group *group, struct vb_group *from);

/* ---- the caller ------------------------------------------------------------------------------ */

/* A connection to a job that this process wants to join. */
struct vb_caller;

/* Calls the addresses in opts->root, "HOST:PORT" separated by commas, in turn, until a member
 * answers, and gets the text of the job. Also calls addresses that members name. Uses root, secret,
 * timeout_ms and patience of opts, which must stay until the caller is closed. */
vb_status vb_group_call(const struct vb_group_opts *opts, struct vb_caller **caller_p);

/* The address of the member that has answered, as "HOST:PORT". */
vb_status vb_caller_root(const struct vb_caller *caller, char root[VB_ROOT_TEXT]);

/* The job has slots for joiners, so it is asynchronous: this caller has one of them, which it keeps
 * for some seconds. vb_group_join_called() then does the rest, as vb_group_join() does. Its root is
 * that of vb_caller_root(), and stays until the group is closed. */
bool vb_caller_has_slot(const struct vb_caller *caller);

/* The last vb_caller_wait() has ended with an invitation. */
bool vb_caller_is_invited(const struct vb_caller *caller);
vb_status vb_group_join_called(const struct vb_group_opts *opts, struct vb_caller *caller,
                               struct vb_group **group_p);

/* The text of the job that agrees. */
const void *vb_caller_job(const struct vb_caller *caller, size_t *len_p);

/* Says that this process is ready, and waits for the invitation. If the lead is gone, calls the
 * other members. Can be called again if the new group could not be opened: a member that died may
 * have prevented it. Waits for timeout_ms, times patience; wait_ms > 0: for this time instead. */
vb_status vb_caller_wait(struct vb_caller *caller, int wait_ms, struct vb_invitation *inv_p);

void vb_caller_close(struct vb_caller *caller);

/* All three in one: calls, says at once that this process is ready, and waits. */
vb_status vb_group_ask(const struct vb_group_opts *opts, struct vb_invitation *inv_p);

#endif
