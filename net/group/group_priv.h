/* SPDX-License-Identifier: MIT
 *
 * What the files of a group share. group.c opens and closes it, group_info.c answers questions
 * about it, pairs.c and pair.c connect pairs of ranks, pick_transport.c measures TCP against
 * soft-RoCE, window.c has windows, put.c has put, get and channels, progress.c and
 * progress_thread.c poll and wait, group_sync.c has the barrier, broadcast and gather. For elastic
 * groups: member.c removes ranks that are gone, joiner.c connects ranks that join,
 * window_exchange.c shares windows with them.
 */
#ifndef VB_NET_GROUP_GROUP_PRIV_H
#define VB_NET_GROUP_GROUP_PRIV_H

#include "net/control/control.h"
#include "net/group/group_inside.h"
#include "net/transport.h"

#include <stdatomic.h>

#define DEVICES_MAX 3
#define SELF_NOTES 1024

/* How far a member has come with a joiner. */
enum join_step {
    JOIN_NONE,    /* nobody joins */
    JOIN_STREAM,  /* the joiner has a key for its data connection */
    JOIN_WINDOWS, /* it is connected and has yet to open all windows */
};

/* One other rank, and the path to it. */
struct peer {
    struct wire_info info;
    const struct vb_transport *transport; /* NULL: this rank itself */
    struct vb_device *dev;
    struct vb_ep *ep;
    char device[80]; /* "rxe0/1"; "": no RDMA */
    bool strayed;    /* one of its notes was dropped because the channel was not open */
    uint32_t epoch;  /* the epoch of the rank of the pair that joined later */

    /* Elastic groups. */
    bool member; /* it can be put to */
    bool gone;   /* it was a member and is fenced */
    enum vb_end end;
    int gone_pid; /* its process id when it was fenced; 0: it is on another host */
    char why[CONTROL_WHY];
    enum join_step join_step;
    int join_fd; /* data connection of a joiner until a transport takes it; -1: none */
    uint64_t join_deadline;
};

struct channel {
    vb_note_fn fn; /* NULL: the channel is free */
    void *arg;
};

/* Notes and ops of puts and gets of a rank to itself. The next round of polling delivers them. */
struct self_queue {
    uint32_t notes[SELF_NOTES];
    unsigned first, n;
    struct vb_op *done;
};

/* State of barrier, broadcast and gather. */
struct group_sync {
    struct vb_window *win;
    uint32_t seq;      /* number of collectives begun */
    uint32_t *arrived; /* number of notes that have come from each rank */
    struct vb_op *ops; /* one for each rank */
};

struct vb_window {
    struct vb_group *group;
    uint32_t id;
    struct vb_mem mem;
    unsigned rights; /* what peers may do: enum vb_window_rights */
    int n_exported;
    size_t *lens;               /* the length of each rank's part */
    struct vb_remote **remotes; /* each rank's part; NULL: this rank, or no member */

    /* Elastic groups. */
    struct vb_window *next;
    bool *offered;           /* for each rank: whether our part was offered to it */
    struct vb_remote **kept; /* mapped parts of ranks that are gone */
};

/* Memory that is freed with the group. */
struct kept {
    struct kept *next;
    void *memory;
};

/* Whom to call when a rank is gone or has joined. */
struct member_hook {
    vb_member_fn fn;
    void *arg;
};

struct vb_group {
    struct group_front front; /* first: see group_inside.h */
    struct vb_group_opts opts;
    int rank, world, slots;
    uint32_t epoch;    /* the epoch in which this rank joined; GROUP_EPOCH: at the start */
    _Atomic bool news; /* elastic: the control plane has work for vb_member_work() */
    bool working;      /* vb_member_work() is running */
    bool opening;      /* a window is being opened: no notes before the caller has it */
    struct member_hook on_gone, on_join;
    struct vb_window *windows; /* elastic groups: in the order of creation */
    struct control *control;
    struct peer *peers;
    struct vb_device *devices[DEVICES_MAX];
    int n_devices;
    char transports[16];
    char why[256]; /* which transport was chosen and why, for people */

    pthread_t progress_thread;
    _Atomic bool stopping;
    _Atomic unsigned app_polls; /* the progress thread stays away while this number grows */
    _Atomic bool app_sleeping;

    int epoll_fd; /* all devices, and wake_fd */
    int wake_fd;
    int armed; /* threads that sleep or are about to */
    struct channel channels[VB_CHANNELS];
    struct self_queue self;
    uint32_t next_window;
    struct group_sync sync;
    struct kept *kept;
    struct vb_wait_stats *waits; /* one for each rank */
    uint64_t waits_ns;           /* the sum of all ranks */
};

static inline uint64_t group_deadline(const struct vb_group *g)
{
    return vb_clock_ns() + (uint64_t)g->opts.timeout_ms * 1000000u;
}

/* group.c: the parts of opening that a joiner needs, too. The caller closes the group that
 * vb_group_alloc() makes, also after a failure. */
vb_status vb_group_alloc(const struct vb_group_opts *opts, struct vb_group **group_p);
vb_status vb_group_listen_towards(struct vb_group *g, const struct sock_addr *root);
vb_status vb_group_check_route(struct vb_group *g, int rank);
vb_status vb_group_set_going(struct vb_group *g);

/* pairs.c: settles the transport of every pair and connects all pairs. */
vb_status vb_pairs_connect(struct vb_group *g, uint64_t deadline);

/* Closes devices that no peer uses. To be called before there are windows. */
void vb_pairs_close_unused(struct vb_group *g);
bool vb_pairs_all_local(const struct vb_group *g); /* one host and no RDMA */

/* pair.c: the data connection of one pair. */
enum pair_kind { WAY_STREAM, WAY_VERBS, WAY_MEASURE };

bool vb_pair_same_host(const struct vb_group *g, int rank);
vb_status vb_pair_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p);

/* Both ends of a pair get the same answer. */
enum pair_kind vb_pair_way(const struct vb_group *g, const struct wire_card *mine,
                           const struct wire_card *theirs, int rank);
vb_status vb_pair_card(struct vb_group *g, struct vb_device *verbs, struct wire_card *card_p);
vb_status vb_pair_device_open(struct vb_group *g, const struct vb_transport *transport,
                              struct vb_device **dev_p);

/* The open device of a transport, or NULL. */
struct vb_device *vb_pair_device(struct vb_group *g, const struct vb_transport *transport);

/* Hands a stream to its transport and takes over fd. deadline 0: the transport's own. */
vb_status vb_pair_attach(struct vb_group *g, int rank, int fd, uint64_t deadline);
vb_status vb_pair_dial(struct vb_group *g, int rank, uint64_t deadline);

/* verbs is our device, address is where the peer can be called. */
vb_status vb_pair_connect_verbs(struct vb_group *g, int rank, struct vb_device *verbs,
                                const struct vb_blob *address, enum vb_link_role role,
                                uint64_t deadline, struct vb_ep **ep_p);
void vb_pair_take_verbs(struct vb_group *g, int rank, struct vb_device *verbs, struct vb_ep *ep);

/* window.c: what elastic groups need of it. vb_window_release() does not ask the peers.
 * vb_window_offer() fills an offer without its keys. */
void vb_window_release(struct vb_window *win);
void vb_window_offer(const struct vb_window *win, struct wire_offer *offer_p);
struct vb_blob *vb_window_key(struct wire_offer *offer, const struct vb_transport *transport);
vb_status vb_window_export(struct vb_window *win, struct vb_device *dev, struct wire_offer *offer);
vb_status vb_window_import(struct vb_window *win, int rank, struct wire_offer *offer);

/* window_exchange.c: windows of an elastic group; all but vb_window_exchange_share() under the
 * lock. */

/* Adds a window to the list. No note is delivered until vb_window_create() returns. */
void vb_window_exchange_add(struct vb_window *win);
void vb_window_exchange_remove(struct vb_window *win);

/* Offers a window to all members and waits for their offers. */
vb_status vb_window_exchange_share(struct vb_window *win);

/* Imports the windows that a peer has offered. Returns how many. */
int vb_window_exchange_take(struct vb_group *g, int rank);

/* Whether the peer's parts of all windows are imported. */
bool vb_window_exchange_has_all(struct vb_group *g, int rank);

/* Releases the windows of a rank that is gone. */
void vb_window_exchange_forget(struct vb_group *g, int rank);

/* Exports all windows to a device that was opened after them. */
vb_status vb_window_exchange_add_device(struct vb_group *g, struct vb_device *dev);

/* member.c, under the lock: does what the control plane reports about ranks that are gone, leave or
 * join. Returns how many things it did. */
int vb_member_work(struct vb_group *g);

/* Makes a joiner a member: from now on it can be put to. */
void vb_member_admit(struct vb_group *g, int rank);

/* Fails, and logs why, unless all ranks of the start are still members. */
vb_status vb_member_check_all(struct vb_group *g, const char *what);

/* joiner.c: takes the next steps with a rank that joins. Returns how many things it did. */
int vb_joiner_step(struct vb_group *g, int rank);

/* pick_transport.c: times the same transfers over TCP and over verbs, between all pairs that have
 * both. All ranks get the same figures. */
struct pick_pair {
    int rank;
    struct vb_device *devs[2]; /* 0: TCP, 1: verbs */
    struct vb_ep *eps[2];
};
vb_status vb_pick_transport(struct vb_group *g, const struct pick_pair *pairs, int n_pairs,
                            uint64_t deadline, double seconds[2]);

/* progress_thread.c */
vb_status vb_progress_start(struct vb_group *g);
void vb_progress_stop(struct vb_group *g);

/* progress.c, under the lock. vb_group_round() polls all devices once and returns the number of
 * events. vb_group_sleep() sleeps until there may be an event; the devices must be armed and have
 * been polled since. */
#define GROUP_SLEEP_MS 100
int vb_group_round(struct vb_group *g);
void vb_group_arm(struct vb_group *g);
void vb_group_disarm(struct vb_group *g);
void vb_group_sleep(struct vb_group *g, int ms);
void vb_group_finish(struct vb_op *op, vb_status st);
void vb_group_wake(void *arg); /* arg is a struct vb_group: ends the caller's sleep */

/* group_sync.c */
vb_status vb_group_sync_open(struct vb_group *g);
void vb_group_sync_close(struct vb_group *g);

#endif
