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
    unsigned n_fenced;    /* number of members that were fenced, guarded by the lock */
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

/* ---- views ----------------------------------------------------------------------------------- */

#define VB_NO_PLACE (-1)

/* The ranks that barrier, broadcast, gather and collectives work among. */
struct group_view {
    uint32_t number; /* 0: all ranks of the start */
    int n, mine;     /* number of members; the place of this rank among them */
    int *members;    /* their ranks in the group, ascending */
    int *places;     /* for each rank of the group its place; VB_NO_PLACE: none */
};

const struct group_view *vb_group_view(const struct vb_group *g);

/* Whatever has to begin anew when the members change, and its channel. Notes of other views on that
 * channel are dropped. The first three functions are called under the lock, and must not wait. */
struct group_follower {
    int channel;
    void (*stop)(void *arg);        /* ends what is under way; may be called several times */
    bool (*is_quiet)(void *arg);    /* whether all its ops have ended */
    void (*reset)(void *arg);       /* begins anew with the members of the view */
    vb_status (*resume)(void *arg); /* all members have reset, so it may wait for them; or NULL */
    void *arg;                      /* NULL: this is no follower yet */
    struct group_follower *next;    /* used by the group */
};

/* All ranks add their followers in the same order, and remove them together. Both do nothing if the
 * group is not elastic. works: the follower has not failed. Then its last notes have come when
 * vb_group_unfollow() returns; elsewhere the windows make sure of that (vb_window_destroy()). */
void vb_group_follow(struct vb_group *g, struct group_follower *follower);
void vb_group_unfollow(struct vb_group *g, struct group_follower *follower, bool works);

/* Grows when a member is gone, so that one comparison tells whether vb_group_missing() has news.
 * The caller holds the lock. */
static inline unsigned group_n_fenced(const struct vb_group *g)
{
    return ((const struct group_front *)(const void *)g)->n_fenced;
}

/* Returns a member of the view that is gone, or VB_NO_PLACE; always that if not elastic. */
int vb_group_missing(struct vb_group *g);

/* Logs that something failed because a rank is gone. Returns VB_ERR_PEER. */
vb_status vb_group_say_gone(struct vb_group *g, int rank, const char *what);

/* Returns whether a put failed because the connection to the peer is dead. */
static inline bool vb_group_is_dead_end(vb_status st)
{
    return st < 0 && st != VB_ERR_USAGE && st != VB_ERR_UNSUPPORTED && st != VB_ERR_TIMEOUT;
}

/* Called after a put to a rank has failed with st. In an elastic group a rank whose connection is
 * dead is soon gone: waits for that, so that a caller who is told of the failure finds it gone. */
vb_status vb_group_put_failed(struct vb_group *g, int rank, vb_status st, const char *what);

/* ---- waits ----------------------------------------------------------------------------------- */

/* n of the wait statistics counts only waits of WAIT_COUNTED_NS or longer. */
#define WAIT_COUNTED_NS 20000u
void vb_group_wait_add(struct vb_group *g, int rank, uint64_t ns);

#endif
