/* SPDX-License-Identifier: MIT
 *
 * The members of a group that agrees form a new group, maybe with others, while the old one stays
 * open: what the old one has agreed on decides whether they go over to the new one.
 */
#ifndef VB_NET_GROUP_GROUP_FORM_H
#define VB_NET_GROUP_GROUP_FORM_H

#include "net/control/root.h"
#include "net/group/group.h"

/* Memory for windows of a group that is opened later, at most VB_WINDOWS_AHEAD of them. A thread
 * allocates it. Windows take it while they are created, if its length fits; the rest is freed at
 * the end. */
#define VB_WINDOWS_AHEAD 2
struct vb_window_ahead;

/* like: a group whose memory is placed in the same way; NULL: anywhere. Does not wait. */
vb_status vb_window_ahead_begin(const struct vb_group *like, const size_t *lens_bytes, int n,
                                struct vb_window_ahead **ahead_p);
void vb_window_ahead_wait(struct vb_window_ahead *ahead); /* until all is allocated */
void vb_window_ahead_end(struct vb_window_ahead *ahead);

/* From now on windows of this group take this memory; NULL: none. */
void vb_group_take_ahead(struct vb_group *group, struct vb_window_ahead *ahead);

/* Where a new group meets, and this rank's place in it. */
struct vb_meeting {
    char root[VB_ROOT_TEXT]; /* "HOST:PORT" of rank 0 of the new group */
    int root_fd;             /* rank 0: what vb_group_meet() has opened; otherwise -1 */
    int rank, world;
    int open_ms; /* maximum time to wait for the others, times patience; 0: timeout_ms */
};

/* Rank 0 of the new group: listens at a free port of the address by which the members of this group
 * reach this rank. The caller closes *fd_p, or passes it on with a meeting. */
vb_status vb_group_meet(struct vb_group *group, char root[VB_ROOT_TEXT], int *fd_p);

/* Opens the new group with the options of this one. Fails soon if a member of this one is gone.
 * Takes over root_fd, also on failure. This group is not used meanwhile, and stays as it is. */
vb_status vb_group_form(struct vb_group *group, const struct vb_meeting *meeting,
                        struct vb_group **new_p);

/* After vb_group_agree(): commits the agreed step without a step of the collectives and without
 * vb_group_regroup(). Returns false if the members must agree once more. */
bool vb_group_take_agreed(struct vb_group *group, const struct vb_agreed *agreed);

/* What vb_group_proved() tells this group, it tells the group before, too. NULL: no more. */
void vb_group_is_before(struct vb_group *group, struct vb_group *before);

/* Until this call a new group does not call vb_group_opts.lost: who hears of losses knows the ranks
 * by vb_group_set_ids() only, and a rank that a group loses which is then given up is not lost to
 * the job. Losses until now are told by this call. */
void vb_group_tell_losses(struct vb_group *group);

/* The numbers by which people know the ranks of a group: each rank keeps its number when the
 * members form another group. At first they are the ranks. ids has world elements, is copied, and
 * is set once. The last returns the rank that has a number; -1: none. */
vb_status vb_group_set_ids(struct vb_group *group, const int *ids);
int vb_group_id(const struct vb_group *group, int rank);
int vb_group_rank_of_id(const struct vb_group *group, int id);

#endif
