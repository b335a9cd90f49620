/* SPDX-License-Identifier: MIT
 *
 * A group from inside: group.c opens it, pairs.c and pair.c connect it, window.c has its memory,
 * progress.c moves things along, coll.c has the basic collectives. Of elastic groups: member.c has
 * who is gone, newcomer.c who comes late, offer.c their windows.
 */
#ifndef VB_GROUP_PRIV_H
#define VB_GROUP_PRIV_H

#include "net/control.h"
#include "net/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEVICES_MAX 3
#define SELF_NOTES 1024

/* How far a member has come with a newcomer. */
enum late_step {
    LATE_NONE,    /* nobody comes */
    LATE_STREAM,  /* has a key for its data connection */
    LATE_WINDOWS, /* is connected, has yet to open all windows */
};

/* A way to one peer. */
struct peer {
    struct wire_info info;
    const struct vb_transport *transport; /* NULL: it is this rank itself */
    struct vb_device *dev;
    struct vb_ep *ep;
    char device[80]; /* "rxe0/1"; "": no RDMA */
    bool strayed;    /* it has sent a note that was refused */
    uint32_t epoch;  /* of the pair: that of the rank that came later */

    /* Elastic groups. */
    bool member; /* it can be put to */
    bool gone;   /* it was a member, and is fenced */
    enum vb_end end;
    int gone_pid; /* ... 0: on another host */
    char why[CONTROL_WHY];
    enum late_step step; /* of a newcomer */
    int late_fd;         /* its data connection, until it is used; -1: none */
    uint64_t late_until;
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

struct vb_window {
    struct vb_group *group;
    uint32_t id;
    struct vb_mem mem;
    unsigned rights; /* of peers */
    int n_exported;
    size_t *lens;               /* of each rank */
    struct vb_remote **remotes; /* NULL for oneself, and for who is not there */

    /* Elastic groups. */
    struct vb_window *next;
    bool *offered;           /* to each rank */
    struct vb_remote **kept; /* mapped parts of ranks that are gone */
};

/* Memory that is freed with the group. */
struct kept {
    struct kept *next;
    void *memory;
};

/* Whom to tell that a rank is gone, or has joined. */
struct member_hook {
    vb_member_fn fn;
    void *arg;
};

struct vb_group {
    struct vb_group_opts opts;
    int rank, world, seats;
    uint32_t epoch;    /* that this rank came with: more than the first one came late */
    _Atomic bool news; /* elastic: the control plane has something for member_work() */
    bool working;      /* ... which is at it */
    bool opening;      /* a window: no notes before the caller has it */
    struct member_hook on_gone, on_join;
    struct vb_window *windows; /* elastic groups: in the order of making */
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
    struct kept *kept;    /* ops that were under way when their owner went */
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

/* group.c: the parts of opening that a newcomer needs, too. What group_alloc() makes is closed by
 * the caller, whatever happened. */
vb_status group_alloc(const struct vb_group_opts *opts, struct vb_group **group_p);
vb_status group_listen_towards(struct vb_group *g, const struct sock_addr *root);
vb_status group_check_route(struct vb_group *g, int rank);
vb_status group_set_going(struct vb_group *g);

/* Frees memory from malloc() when the group is closed: ops in it may be under way till then, after
 * a failure. By the thread that calls the group. */
void group_keep(struct vb_group *g, void *memory);

/* pairs.c: settles the transport of every pair and connects. */
vb_status pairs_connect(struct vb_group *g, uint64_t deadline);
void pairs_close_unused(struct vb_group *g);    /* devices without a peer; before windows */
bool pairs_all_local(const struct vb_group *g); /* one host, no RDMA */

/* pair.c: one pair's data connection. */
enum pair_kind { WAY_STREAM, WAY_VERBS, WAY_TRIAL };

bool pair_same_host(const struct vb_group *g, int rank);
vb_status pair_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p);
enum pair_kind pair_way(const struct vb_group *g, const struct wire_card *mine,
                        const struct wire_card *theirs, int rank); /* the same from both ends */
vb_status pair_card(struct vb_group *g, struct vb_device *verbs, struct wire_card *card_p);
vb_status pair_device_open(struct vb_group *g, const struct vb_transport *transport,
                           struct vb_device **dev_p);
struct vb_device *pair_device(struct vb_group *g, const struct vb_transport *transport);
vb_status pair_attach(struct vb_group *g, int rank, int fd, uint64_t deadline); /* owns fd */
vb_status pair_dial(struct vb_group *g, int rank, uint64_t deadline);

/* verbs: our device; address: where the peer can be called. */
vb_status pair_connect_verbs(struct vb_group *g, int rank, struct vb_device *verbs,
                             const struct vb_blob *address, enum vb_link_role role,
                             uint64_t deadline, struct vb_ep **ep_p);
void pair_take_verbs(struct vb_group *g, int rank, struct vb_device *verbs, struct vb_ep *ep);

/* window.c: what elastic groups need of it. */
void window_release(struct vb_window *win); /* the peers are not asked */
void window_offer(const struct vb_window *win, struct wire_offer *offer_p); /* without keys */
struct vb_blob *window_key(struct wire_offer *offer, const struct vb_transport *transport);
vb_status window_export(struct vb_window *win, struct vb_device *dev, struct wire_offer *offer);
vb_status window_import(struct vb_window *win, int rank, struct wire_offer *offer);

/* offer.c: windows of an elastic group. Under the lock, but for the first. */
void offer_link(struct vb_window *win);       /* and no note comes up until it is shared */
vb_status offer_share(struct vb_window *win); /* with all members; waits for theirs */
int offer_take(struct vb_group *g, int rank); /* those of a peer; how many */
bool offer_has_all(struct vb_group *g, int rank);
void offer_forget(struct vb_group *g, int rank);                   /* the rank is gone */
vb_status offer_device(struct vb_group *g, struct vb_device *dev); /* a device that came late */
void offer_unlink(struct vb_window *win);

/* member.c: what the control plane has for the group; how much that was. Under the lock. */
int member_work(struct vb_group *g);
void member_hail(struct vb_group *g, int rank);                   /* it can be put to from now on */
vb_status member_check_all(struct vb_group *g, const char *what); /* for collectives */
vb_status member_check_fixed(struct vb_group *g, const char *what); /* ... on windows */

/* newcomer.c: takes one step with whoever comes late at a seat; how much came of it. */
int newcomer_step(struct vb_group *g, int rank);

/* trial.c: how long the same transfers take over TCP and over verbs, between pairs that have both;
 * all ranks come to the same figures. */
struct trial_pair {
    int rank;
    struct vb_device *devs[2]; /* TCP's, verbs' */
    struct vb_ep *eps[2];
};
vb_status trial_run(struct vb_group *g, const struct trial_pair *pairs, int n_pairs,
                    uint64_t deadline, double seconds[2]);

/* progress_thread.c */
vb_status progress_start(struct vb_group *g);
void progress_stop(struct vb_group *g);

/* progress.c, under the lock: one round over all devices, and how much came of it; sleeping until
 * something may have happened, with devices that are armed and were polled since. */
#define GROUP_SLEEP_MS 100
int group_round(struct vb_group *g);
void group_arm(struct vb_group *g);
void group_disarm(struct vb_group *g);
void group_sleep(struct vb_group *g, int ms);
void group_finish(struct vb_op *op, vb_status st);
void group_wake(void *arg); /* of a struct vb_group: ends the caller's sleep */

/* While on, puts may wait for the next round, to leave together; on as often as it was turned on
 * and not off. Under the lock. */
void group_hold(struct vb_group *g, bool on);
void group_flush(struct vb_group *g);

/* Makes rounds as long as something comes of them: whether it is ready. */
bool group_try(struct vb_group *g, vb_ready_fn ready, void *arg);

/* Like vb_group_wait(), but ready may say in *from_p whom it is waiting for. */
vb_status group_wait(struct vb_group *g, vb_ready_fn ready, void *arg, const char *what,
                     const int *from_p);

/* late.c: this rank has waited for another. */
#define LATE_OFTEN_NS 20000u /* a shorter wait is no lateness worth counting */
void late_add(struct vb_group *g, int rank, uint64_t ns);

/* coll.c */
vb_status coll_open(struct vb_group *g);
void coll_close(struct vb_group *g);

#endif
