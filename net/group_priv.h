/* SPDX-License-Identifier: MIT
 *
 * A group from inside: group.c opens it, window.c has its memory, progress.c moves things along,
 * coll.c has the basic collectives.
 */
#ifndef VB_GROUP_PRIV_H
#define VB_GROUP_PRIV_H

#include "net/control.h"
#include "net/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICES_MAX 3
#define SELF_NOTES 1024

/* A way to one peer. */
struct peer {
    struct wire_info info;
    const struct vb_transport *transport; /* NULL: it is this rank itself */
    struct vb_device *dev;
    struct vb_ep *ep;
    char device[80]; /* "rxe0/1"; "": no RDMA */
    bool strayed;    /* it has sent a note that was refused */
};

struct channel {
    vb_note_fn fn;
    void *arg;
};

/* Notes and ops of puts and gets to oneself, handed out by the next progress. */
struct self_queue {
    uint32_t notes[SELF_NOTES];
    unsigned first, n;
    struct vb_op *done;
};

/* State of the collectives: how many notes of each peer have come. */
struct coll {
    struct vb_window *win;
    uint32_t seq;      /* collectives begun */
    uint32_t *arrived; /* a rank */
    struct vb_op *ops; /* a rank */
};

struct vb_group {
    struct vb_group_opts opts;
    int rank, world;
    struct control *control;
    struct peer *peers;
    struct vb_device *devices[DEVICES_MAX];
    int n_devices;
    char transports[16];
    char why[256]; /* what was chosen, for people */

    bool threaded; /* a progress thread shares the devices: everything is done under the lock */
    pthread_mutex_t lock; /* recursive: a note's handler may put */
    pthread_t progress_thread;
    _Atomic bool stopping;
    _Atomic unsigned app_polls; /* so that the progress thread stays away while the caller polls */
    _Atomic bool app_sleeping;

    int epoll_fd; /* all devices, and wake_fd */
    int wake_fd;
    int armed; /* threads that sleep, or are about to */
    struct channel channels[VB_CHANNELS];
    struct self_queue self;
    uint32_t next_window;
    struct coll coll;
    struct vb_late *late; /* a rank */
    uint64_t late_ns;
};

static inline const struct vb_transport *ops_of(struct vb_device *dev)
{
    return ((struct vb_device_head *)dev)->ops;
}

static inline void group_lock(struct vb_group *g)
{
    if (g->threaded)
        pthread_mutex_lock(&g->lock);
}

static inline void group_unlock(struct vb_group *g)
{
    if (g->threaded)
        pthread_mutex_unlock(&g->lock);
}

static inline uint64_t group_deadline(const struct vb_group *g)
{
    return vb_clock_ns() + (uint64_t)g->opts.timeout_ms * 1000000u;
}

/* pairs.c: settles the transport of every pair and connects. */
#define GROUP_EPOCH 1
vb_status pairs_connect(struct vb_group *g, uint64_t deadline);
bool pairs_all_local(const struct vb_group *g); /* one host, no RDMA */
bool pairs_same_host(const struct vb_group *g, int rank);
vb_status pairs_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p);

/* trial.c: how long the same transfers take over TCP and over verbs, between pairs that have both;
 * all ranks come to the same figures. */
struct trial_pair {
    int rank;
    struct vb_device *devs[2]; /* TCP's, verbs' */
    struct vb_ep *eps[2];
};
vb_status trial_run(struct vb_group *g, const struct trial_pair *pairs, int n_pairs,
                    uint64_t deadline, double seconds[2]);

/* progress.c */
vb_status progress_start(struct vb_group *g);
void progress_stop(struct vb_group *g);
void group_wake(void *arg); /* of a struct vb_group: ends the caller's sleep */

/* While on, puts may wait for the next round, to leave together. Under the lock. */
void group_hold(struct vb_group *g, bool on);
void group_flush(struct vb_group *g);

/* Makes rounds as long as something comes of them: whether it is ready. */
bool group_try(struct vb_group *g, vb_ready_fn ready, void *arg);

/* Like vb_group_wait(), but ready may say in *from_p whom it is waiting for. */
vb_status group_wait(struct vb_group *g, vb_ready_fn ready, void *arg, const char *what,
                     const int *from_p);

/* late.c: this rank has waited for another. */
void late_add(struct vb_group *g, int rank, uint64_t ns);

/* coll.c */
vb_status coll_open(struct vb_group *g);
void coll_close(struct vb_group *g);

#endif
