/* SPDX-License-Identifier: MIT
 *
 * Functions of a group that are not public, for the collectives and the sparse allreduce, which are
 * built on groups. The group's own files use group_priv.h.
 */
#ifndef VB_NET_GROUP_GROUP_INSIDE_H
#define VB_NET_GROUP_GROUP_INSIDE_H

#include "net/net.h"

#include <pthread.h>

/* The first member of struct vb_group. The inline functions below need only these fields. */
struct group_front {
    bool threaded;        /* a progress thread shares the devices, so the lock is needed */
    pthread_mutex_t lock; /* recursive, because the handler of a note may put */
};

static inline bool group_is_threaded(const struct vb_group *g)
{
    return ((const struct group_front *)(const void *)g)->threaded;
}

static inline void group_lock(struct vb_group *g)
{
    if (group_is_threaded(g))
        pthread_mutex_lock(&((struct group_front *)(void *)g)->lock);
}

static inline void group_unlock(struct vb_group *g)
{
    if (group_is_threaded(g))
        pthread_mutex_unlock(&((struct group_front *)(void *)g)->lock);
}

/* Returns the options of the group. timeout_ms is already multiplied by patience. */
const struct vb_group_opts *vb_group_options(const struct vb_group *g);

/* Returns VB_OK, or the status with which the group has failed. Logs nothing. */
vb_status vb_group_status(struct vb_group *g);

/* Declares a peer lost, for example because the peer violated the protocol. */
void vb_group_lose(struct vb_group *g, int rank, const char *why);

/* Fails, and logs why, if a rank of the start is gone or if ranks can join. */
vb_status vb_group_check_fixed(struct vb_group *g, const char *what);

/* Frees memory from malloc() when the group is closed: after a failure, ops that lie in it may be
 * under way until then. Only the thread that uses the group may call this. */
void vb_group_keep(struct vb_group *g, void *memory);

/* While holding is on, puts may wait for the next round of polling and be sent together. Calls
 * nest. The caller holds the lock. */
void vb_group_hold(struct vb_group *g, bool on);

/* Sends the puts that were held back. The caller holds the lock. */
void vb_group_flush(struct vb_group *g);

/* Polls the devices as long as events come. Returns whether ready(arg) is true. */
bool vb_group_try(struct vb_group *g, vb_ready_fn ready, void *arg);

/* Like vb_group_wait(), but ready() may change *from_p, the rank that the wait is for. */
vb_status vb_group_wait_for(struct vb_group *g, vb_ready_fn ready, void *arg, const char *what,
                            const int *from_p);

/* n of the wait statistics counts only waits of WAIT_COUNTED_NS or longer. */
#define WAIT_COUNTED_NS 20000u
void vb_group_wait_add(struct vb_group *g, int rank, uint64_t ns);

#endif
