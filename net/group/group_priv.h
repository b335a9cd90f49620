/* SPDX-License-Identifier: MIT */
#ifndef VB_NET_GROUP_GROUP_PRIV_H
#define VB_NET_GROUP_GROUP_PRIV_H

#include "base/trace.h"
#include "net/control/control.h"
#include "net/control/root.h"
#include "net/group/group_inside.h"
#include "net/transport.h"

#include <stdatomic.h>

#define DEVICES_MAX 3
#define SELF_NOTES 1024

/* The state of a member's connection to a joiner. */
enum join_step {
    JOIN_NONE,    /* nobody joins */
    JOIN_STREAM,  /* the joiner was sent a key for its data connection */
    JOIN_WINDOWS, /* the joiner is connected, but has not opened all windows */
};

/* A rank, and the connection to it. */
struct peer {
    struct wire_info info;
    const struct vb_transport *transport; /* NULL: this rank itself */
    struct vb_device *dev;
    struct vb_ep *ep;
    uint64_t n_sent, n_came; /* notes to and from this rank, by which a trace joins both ends */
    char device[80];         /* "rxe0/1"; "": no RDMA */
    bool strayed;   /* a note from this rank was dropped because its channel was not open */
    uint32_t epoch; /* the epoch in which the later rank of the pair joined */

    /* Elastic groups. */
    bool member; /* this rank can put to that rank */
    bool gone;   /* the rank was a member, and is now fenced */
    enum vb_end end;
    uint64_t sign_ns;    /* when the rank that is gone was last known to live */
    int process_fd;      /* pidfd of the rank's process if it shares memory; -1: none */
    int gone_process_fd; /* the same of the rank that had the slot before and was fenced */
    char why[CONTROL_WHY];
    enum join_step join_step;
    int join_fd; /* data socket of a joiner until a transport takes it over; -1: none */
    uint64_t join_deadline;
};

struct channel {
    vb_note_fn fn; /* NULL: the channel is free */
    void *arg;
    bool of_view; /* notes of ranks that are at another view are dropped */
};

/* Puts and gets of a rank to itself, which the next round of polling ends. */
struct self_queue {
    uint32_t notes[SELF_NOTES];
    unsigned first, n;
    struct vb_op *done;
};

/* The state of barrier, broadcast and gather. */
struct group_sync {
    struct vb_window *win;
    uint32_t seq;      /* number of meetings begun (group_sync.c) */
    uint32_t *arrived; /* number of notes that have come from each rank */
    struct vb_op *ops; /* one for each rank */
    bool stopped;      /* the members change */
    struct group_follower follower;
};

/* What a rank has announced about views (regroup.c). */
struct view_news {
    uint32_t stopped, ready; /* the last view for which it has stopped, and was ready */
    struct vb_op ops[2];     /* of our announcements to that rank */
};

struct vb_window {
    struct vb_group *group;
    uint32_t id;
    struct vb_mem mem;
    unsigned rights; /* what peers may do with the window: bits of enum vb_window_rights */
    int n_exported;
    size_t *lens;               /* the length of each rank's part */
    struct vb_remote **remotes; /* the part of each rank; NULL: this rank, or not a member */

    /* Elastic groups. */
    struct vb_window *next;
    bool *offered; /* for each rank, whether our part of the window was offered to that rank */
    struct vb_remote **kept; /* mapped parts of ranks that are gone */
};

/* A list of memory that is freed when the group is closed. */
struct kept {
    struct kept *next;
    void *memory;
};

/* The function that is called when a rank is gone or has joined. */
struct member_hook {
    vb_member_fn fn;
    void *arg;
};

struct vb_group {
    struct group_front front; /* must be the first member, see group_inside.h */
    struct vb_group_opts opts;
    struct vb_times times;
    int rank, world, slots;
    uint32_t epoch;    /* the epoch in which this rank joined; GROUP_EPOCH: at the start */
    _Atomic bool news; /* elastic: the control plane has work for vb_member_work() */
    bool working;      /* vb_member_work() is running */
    bool opening;      /* a window is being created, so no notes are delivered */
    struct member_hook on_gone, on_join;
    struct vb_window *windows; /* elastic groups: list of all windows in the order of creation */
    struct control *control;
    struct peer *peers;
    struct vb_device *devices[DEVICES_MAX];
    int n_devices;
    char transports[16];
    char why[256]; /* a text that says which transport was chosen and why */

    pthread_t progress_thread;
    struct vb_trace *_Atomic trace; /* that the progress thread belongs to; NULL: none */
    _Atomic bool stopping;
    _Atomic unsigned
        app_polls; /* polls of the caller; while it grows, the progress thread is idle */
    _Atomic bool app_sleeping;

    int epoll_fd; /* waits for all devices and wake_fd */
    int wake_fd;
    int armed; /* number of threads that sleep or are about to sleep */
    struct channel channels[VB_CHANNELS];
    struct self_queue self;
    uint32_t next_window;
    struct group_sync sync;
    struct group_view view;
    struct vb_group
        *before;      /* that has formed this one, and may still have to decide; NULL: none */
    int *_Atomic ids; /* numbers of the ranks (group_form.h); NULL: they are the ranks */
    char met_at[VB_ROOT_TEXT]; /* where this group has met, if it was formed by another one */
    int *agreed;               /* the members of the view that vb_group_agree() has returned last */
    uint32_t view_tried; /* the highest number of a view that this rank has tried to come to */
    struct view_news *view_news; /* one for each rank */
    struct group_follower *followers;
    bool leaves; /* vb_group_leaves() */
    struct kept *kept;
    _Atomic unsigned *heard;       /* for each rank, grows whenever data comes from it */
    struct vb_window_ahead *ahead; /* memory that windows take; NULL: none */
    struct vb_traffic traffic;     /* bytes that the devices have moved */
    struct vb_wait_stats *waits;   /* one for each rank */
    uint64_t waits_ns;             /* sum of ns of all ranks */
};

static inline uint64_t group_deadline(const struct vb_group *g)
{
    return vb_clock_ns() + (uint64_t)g->opts.timeout_ms * 1000000u;
}

/* group_opts.c: refuses options that cannot work, and says what to set */
vb_status vb_group_check_opts(const struct vb_group_opts *opts);
vb_status vb_group_check_times(const struct vb_group_opts *opts); /* a part of the same */

/* group.c: parts of vb_group_open() that vb_group_join() also uses. If vb_group_alloc() sets
 * *group_p, the caller closes that group, also after a failure. */
vb_status vb_group_alloc(const struct vb_group_opts *opts, struct vb_group **group_p);
vb_status vb_group_listen_towards(struct vb_group *g, const struct sock_addr *root);
vb_status vb_group_check_route(struct vb_group *g, int rank);
vb_status vb_group_set_going(struct vb_group *g);

/* pairs.c */
vb_status vb_pairs_connect(struct vb_group *g, uint64_t deadline);

/* Closes devices that no peer is connected through, before windows exist. */
void vb_pairs_close_unused(struct vb_group *g);
bool vb_pairs_all_local(const struct vb_group *g); /* all on this host, no RDMA */

/* pair.c: the data connection of one pair. */
enum pair_kind { WAY_STREAM, WAY_VERBS, WAY_MEASURE };

bool vb_pair_same_host(const struct vb_group *g, int rank);
vb_status vb_pair_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p);

/* Decides how a pair is connected, from the cards of both ends. Both ends get the same answer. */
enum pair_kind vb_pair_way(const struct vb_group *g, const struct wire_card *mine,
                           const struct wire_card *theirs, int rank);
vb_status vb_pair_card(struct vb_group *g, struct vb_device *verbs, struct wire_card *card_p);
vb_status vb_pair_device_open(struct vb_group *g, const struct vb_transport *transport,
                              struct vb_device **dev_p);

/* Returns the open device of a transport, or NULL if there is none. */
struct vb_device *vb_pair_device(struct vb_group *g, const struct vb_transport *transport);

/* Takes over fd, also after a failure. deadline 0: the transport has its own. */
vb_status vb_pair_attach(struct vb_group *g, int rank, int fd, uint64_t deadline);
vb_status vb_pair_dial(struct vb_group *g, int rank, uint64_t deadline);

/* verbs is our device, address that of the peer. */
vb_status vb_pair_connect_verbs(struct vb_group *g, int rank, struct vb_device *verbs,
                                const struct vb_blob *address, enum vb_link_role role,
                                uint64_t deadline, struct vb_ep **ep_p);
void vb_pair_take_verbs(struct vb_group *g, int rank, struct vb_device *verbs, struct vb_ep *ep);

/* member.c: the transport of a rank that is not a member: a name without functions. */
extern const struct vb_transport vb_transport_nobody;

/* window_ahead.c: moves allocated memory of this length, or a little more, to *mem_p. Returns false
 * if there is none. */
bool vb_window_ahead_take(struct vb_window_ahead *ahead, size_t len_bytes, struct vb_mem *mem_p);

/* window.c: vb_window_memory() allocates all pages now, on the NUMA node of this rank, before a
 * peer can touch them. vb_window_release() frees a window without waiting for the peers.
 * vb_window_offer() fills in all fields of an offer except the keys. */
vb_status vb_window_memory(const struct vb_group_opts *opts, size_t len_bytes,
                           struct vb_mem *mem_p);
void vb_window_release(struct vb_window *win);
void vb_window_offer(const struct vb_window *win, struct wire_offer *offer_p);
struct vb_blob *vb_window_key(struct wire_offer *offer, const struct vb_transport *transport);
vb_status vb_window_export(struct vb_window *win, struct vb_device *dev, struct wire_offer *offer);
vb_status vb_window_import(struct vb_window *win, int rank, struct wire_offer *offer);

/* window_exchange.c: the caller holds the lock, except in vb_window_exchange_share(). */

/* From now on no note is delivered until the caller of vb_window_create() has the window. */
void vb_window_exchange_add(struct vb_window *win);
void vb_window_exchange_remove(struct vb_window *win);

/* Offers our part of a window to all members, and waits until all members have offered theirs. */
vb_status vb_window_exchange_share(struct vb_window *win);

/* Returns the number of offers taken. */
int vb_window_exchange_take(struct vb_group *g, int rank);

bool vb_window_exchange_has_all(struct vb_group *g, int rank);

/* Releases the parts of all windows that belong to a rank that is gone. */
void vb_window_exchange_forget(struct vb_group *g, int rank);

/* Exports all windows to a device that was opened after the windows were created. */
vb_status vb_window_exchange_add_device(struct vb_group *g, struct vb_device *dev);

/* member.c: handles what the control plane reports about ranks that are gone, leave or join, under
 * the lock. Returns the number of things done. */
int vb_member_work(struct vb_group *g);

/* Makes a joiner a member. From now on other ranks can put to the joiner. */
void vb_member_admit(struct vb_group *g, int rank);

/* joiner.c: does the next steps to connect a rank that joins. Returns the number of things done. */
int vb_joiner_step(struct vb_group *g, int rank);

/* pick_transport.c: times the same transfers over TCP and over verbs, in all pairs that have both.
 * seconds is the same on all ranks. */
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

/* progress.c: the caller holds the lock, except in vb_group_finish() and vb_group_wake().
 * vb_group_round() polls all devices once and returns the number of events. Before vb_group_sleep()
 * the caller must arm the devices and then poll them once more. */
#define GROUP_SLEEP_MS 100
int vb_group_round(struct vb_group *g);
void vb_group_arm(struct vb_group *g);
void vb_group_disarm(struct vb_group *g);
void vb_group_sleep(struct vb_group *g, int ms);
void vb_group_finish(struct vb_op *op, vb_status st);
void vb_group_wake(void *arg); /* ends sleeps in this group; arg is its struct vb_group */

/* regroup.c */
vb_status vb_regroup_open(struct vb_group *g);
void vb_regroup_close(struct vb_group *g);

/* Fails, and logs why, if a member of the view is gone or this rank is a joiner. */
vb_status vb_regroup_check(struct vb_group *g, const char *what);

/* Returns whether a rank of the start is gone. */
bool vb_regroup_is_missing(const struct vb_group *g, int rank);

/* Forgets what a rank has announced, because another rank may take its slot. */
void vb_regroup_forget(struct vb_group *g, int rank);

/* group_sync.c */
vb_status vb_group_sync_open(struct vb_group *g);
void vb_group_sync_close(struct vb_group *g);

#endif
