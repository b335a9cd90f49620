/* SPDX-License-Identifier: MIT
 *
 * Groups: the ranks of a job, the memory they share (windows), put and get, barrier, broadcast and
 * gather.
 */
#ifndef VB_NET_GROUP_GROUP_H
#define VB_NET_GROUP_GROUP_H

#include "base/base.h"
#include "net/control/secret.h"

struct vb_topo;
struct vb_placement;

/* ---- groups ---------------------------------------------------------------------------------- */

/* The ranks of a job, as one of them sees it. Only one thread at a time may call functions of a
 * group. A group has threads of its own (control, progress) that the caller never sees. */
struct vb_group;

#define VB_WORLD_MAX 1024

enum vb_transport_choice {
    VB_TRANSPORT_AUTO,
    VB_TRANSPORT_SHM,
    VB_TRANSPORT_TCP,
    VB_TRANSPORT_VERBS,
};

struct vb_group_opts {
    int rank;
    int world;
    const char *root;                      /* "HOST:PORT" or "[V6]:PORT" where rank 0 listens */
    int root_fd;                           /* rank 0: a listening socket to take over; -1: none */
    unsigned char secret[VB_SECRET_BYTES]; /* the secret of the job; all ranks have the same */
    enum vb_transport_choice transport;
    const char *device;         /* RDMA: the only device to use; NULL: any that reaches the peer */
    const char *bind;           /* RDMA: the only address of this host to use; NULL: any */
    bool no_immediate;          /* RDMA: send notes as messages, as some devices need it */
    bool any_interface;         /* also use loopback, bridges and the control network */
    bool progress;              /* a thread serves peers over TCP and RDMA during computing */
    bool crowded;               /* this host has more threads than cpus: do not spin for long */
    bool never_spin;            /* waits sleep at once if there is nothing to do */
    const struct vb_topo *topo; /* windows are placed as the plan says; NULL: anywhere */
    const struct vb_placement *placement;
    int placement_rank;
    int timeout_ms;  /* how long to wait for peers, at the start and in every collective */
    double patience; /* factor for all timeouts, this one and those of the control plane; 0: 1 */

    /* The others continue if a rank dies or is retired; see "elastic groups" below. Without it, the
     * death of a rank fails every wait of all others. */
    bool elastic;
    int slots; /* elastic: maximum number of ranks; those from world on may join. 0: world */

    /* Called on rank 0 if there was a transport to choose, because ranks are on several hosts or
     * use RDMA. why is a line for people: which transport was chosen and why. NULL: not called. */
    void (*announce)(const char *why);
};

/* Finds the other ranks through rank 0, proves the secret to each of them and connects. Blocks for
 * at most timeout_ms. After 10 s rank 0 logs which ranks are missing and how far they have come. */
vb_status vb_group_open(const struct vb_group_opts *opts, struct vb_group **group_p);

/* Says goodbye to the peers, so that they do not take it for a death, and frees the group. The
 * caller has destroyed all windows before. */
void vb_group_close(struct vb_group *group);

int vb_group_rank(const struct vb_group *group);
int vb_group_world(const struct vb_group *group);
const char *vb_group_host(const struct vb_group *group, int rank);      /* name of its host */
const char *vb_group_transport(const struct vb_group *group, int rank); /* "shm" ..., "self" */
const char *vb_group_transports(const struct vb_group *group); /* "shm", "tcp", "shm+verbs" ... */
const char *vb_group_device(const struct vb_group *group, int rank); /* "rxe0/1"; "": no RDMA */

/* Returns how much memory is registered with RDMA devices now, and how long registering took. */
void vb_group_registered(struct vb_group *group, uint64_t *bytes_p, double *seconds_p);

/* How long this rank has waited for another one to start a collective (vb_wait(), sparse
 * allreduce). n counts only waits of 20 us and more. */
struct vb_wait_stats {
    uint64_t n, ns, max_ns;
};

struct vb_wait_stats vb_group_wait_stats(struct vb_group *group, int rank);
uint64_t vb_group_wait_total_ns(struct vb_group *group); /* for all ranks together */
void vb_group_wait_stats_reset(struct vb_group *group);

/* Tells all peers to give up. Their next wait fails with this reason. */
void vb_group_abort(struct vb_group *group, const char *why);

void vb_group_set_never_spin(struct vb_group *group, bool never_spin);
bool vb_group_never_spins(struct vb_group *group);

/* Counts a step. Heartbeats carry the count: peers can tell a stuck rank from a busy one. */
void vb_group_step(struct vb_group *group);

/* ---- elastic groups -------------------------------------------------------------------------- */

/* In an elastic group a rank that dies, falls silent, breaks the protocol, gives up or leaves is
 * *gone*. The other ranks continue, also without rank 0. A rank is fenced before anybody is told
 * that it is gone: its connections are shut, its queue pair is drained, and none of its notes is
 * delivered any more. Ops under way to it end with VB_ERR_PEER. Later puts and gets to it, and
 * waits for it, fail with VB_ERR_PEER at once and log nothing. One case remains: a process on the
 * same host that has mapped a window can write to it until it is killed. Its supervisor must do
 * that (vb_group_pid()).
 *
 * Each rank notices by itself, when it makes progress. If rank 0 or all others have dropped a rank,
 * for example because it was stopped for too long, the waits of that rank fail and say why. It can
 * then close the group and join as a new rank.
 *
 * Barrier, broadcast and gather need the group as it began. Collectives on windows are not
 * available in a group with slots for joiners. */
bool vb_group_gone(struct vb_group *group, int rank);

/* Why a rank is gone, for people. Valid until another rank takes its slot. */
const char *vb_group_gone_why(struct vb_group *group, int rank);

/* How a rank ended, for programs. */
enum vb_end {
    VB_END_NONE,       /* it has not ended */
    VB_END_LEFT,       /* it said goodbye */
    VB_END_DIED,       /* it hung up, gave up or broke the protocol */
    VB_END_SILENT,     /* it may be alive but does not answer */
    VB_END_DROPPED_US, /* it has given up this rank */
};
enum vb_end vb_group_end(struct vb_group *group, int rank);

/* Whether a rank is a member and can be put to. True for this rank itself. */
bool vb_group_member(struct vb_group *group, int rank);

/* Returns the number of slots: all ranks are below. Returns world if the group is not elastic. */
int vb_group_slots(const struct vb_group *group);

/* Returns the epoch of the membership. It grows with every rank that joins. For callers that label
 * data with the membership it was made under. */
uint32_t vb_group_epoch(struct vb_group *group);

/* Returns the process id of a rank on this host, for its supervisor, or 0 if it is on another. */
int vb_group_pid(struct vb_group *group, int rank);

/* Registers a function that is called once for each rank that is gone, or that has joined and can
 * be put to. The rules for handlers of notes apply to it (vb_note_fn). There is one function for
 * each of the two events; register it before making progress. */
typedef void (*vb_member_fn)(void *arg, int rank);
void vb_group_on_gone(struct vb_group *group, vb_member_fn fn, void *arg);
void vb_group_on_join(struct vb_group *group, vb_member_fn fn, void *arg);

/* Drops a peer and tells it why. The peer is gone when the call returns. */
vb_status vb_group_retire(struct vb_group *group, int rank, const char *why);

/* Rank 0 of an elastic group: allows other ranks to join. Until then they wait. Call it when all
 * ranks have created all windows. A rank that joined earlier would have to take part in creating
 * the next window. */
void vb_group_welcome(struct vb_group *group);

/* Joins a running group and takes one of its free slots. rank and world of opts are ignored; the
 * other options are as for vb_group_open(). On return this rank is connected to all members. It
 * then opens its channels, and after that creates all windows of the group in the same order and
 * with the same rights. Its own lengths may differ and may be 0. Each member is told that this rank
 * has joined when it has all of these windows and makes progress. Rank 0 admits joiners: nobody can
 * join without it. Waits for at most timeout_ms. */
vb_status vb_group_join(const struct vb_group_opts *opts, struct vb_group **group_p);

/* ---- windows --------------------------------------------------------------------------------- */

/* Memory of every rank that its peers may put into and get from. All ranks create and destroy
 * windows together, in the same order. The lengths of the ranks may differ. In an elastic group
 * destroying does not wait for anybody, and the memory stays until the group is closed, because
 * peers may still be writing. */
struct vb_window;

/* What peers may do with a window. Peers that have mapped it can do both. */
enum vb_window_rights { VB_WINDOW_PUT = 1, VB_WINDOW_GET = 2 };

vb_status vb_window_create(struct vb_group *group, size_t len_bytes, struct vb_window **win_p);
vb_status vb_window_create_for(struct vb_group *group, size_t len_bytes, unsigned rights,
                               struct vb_window **win_p);
void vb_window_destroy(struct vb_window *win);
void *vb_window_ptr(const struct vb_window *win); /* this rank's own part */
size_t vb_window_len(const struct vb_window *win, int rank);

/* Returns a peer's part as plain memory that can be read and written, or NULL if the transport does
 * not map it. The part of a rank that is gone stays readable until another rank takes its slot. */
void *vb_window_peer(const struct vb_window *win, int rank);

/* ---- put, get, notes ------------------------------------------------------------------------- */

/* One put or get that was started. The caller provides the memory and must keep it until the op is
 * done. After a failure of the group it may never be done: keep it until the group is closed. */
struct vb_op {
    _Atomic bool done;  /* set by the thread that notices it */
    vb_status status;   /* valid once done */
    struct vb_op *next; /* used by net/ until done */
    uint64_t tag;       /* used by net/ until done */
};

/* A note: 8 bits of channel and a 24-bit value that the channel defines. */
#define VB_NOTE(channel, value) ((uint32_t)(channel) << 24 | ((uint32_t)(value)&0xffffffu))
#define VB_NOTE_CHANNEL(note) ((note) >> 24)
#define VB_NOTE_VALUE(note) ((note)&0xffffffu)

/* Channels below VB_CHANNEL_DYNAMIC have fixed numbers, which callers choose. net/ allocates the
 * others. */
#define VB_CHANNEL_GROUP 0 /* barrier, broadcast and gather */
#define VB_CHANNEL_DYNAMIC 128
#define VB_CHANNELS 256

/* Handles the notes of one channel. Notes of one peer come in the order in which they were posted,
 * each after all bytes of its put are visible. The handler may run on the group's progress thread,
 * but never twice at the same time. It must not wait, and of the group's functions it may call only
 * vb_put() and vb_get(). */
typedef void (*vb_note_fn)(void *arg, int rank, uint32_t value);

/* Opens a channel with a fixed number below VB_CHANNEL_DYNAMIC, before any peer can send on it. A
 * note on a closed channel is dropped. The first one from each peer is logged. */
vb_status vb_channel_open(struct vb_group *group, int channel, vb_note_fn fn, void *arg);

/* Opens the first free channel from VB_CHANNEL_DYNAMIC on. All ranks get the same number if all of
 * them allocate and close channels in the same order. Fails if all of these channels are open. */
vb_status vb_channel_alloc(struct vb_group *group, vb_note_fn fn, void *arg, int *channel_p);
void vb_channel_close(struct vb_group *group, int channel);

/* Copies len bytes of this rank's window to the peer's, then delivers the note to the peer. VB_OK:
 * the put was taken; op->done will say when its source may be overwritten, and says no more than
 * that. VB_AGAIN: too many ops are under way and this one was not taken; make progress and try
 * again. A put of 0 bytes is a bare note. rank may be this rank itself. */
vb_status vb_put(struct vb_window *win, int rank, size_t src_offset, size_t dst_offset,
                 size_t len_bytes, uint32_t note, struct vb_op *op);

/* Copies len bytes of the peer's window to this rank's. Gets are not ordered with respect to puts.
 * Returns as vb_put() does. */
vb_status vb_get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                 size_t len_bytes, struct vb_op *op);

/* Like vb_put() and vb_get(), but instead of returning VB_AGAIN they make progress until the op is
 * taken. They return when it is taken, not when it is done. from: the window of this rank that has
 * the source and need not allow puts (VB_ERR_UNSUPPORTED unless the transport is TCP); NULL: win.
 * VB_ERR_TIMEOUT, which is logged, if there is no room for timeout_ms; 0: the group's timeout.
 * After any failure op is done, with that status. Not for handlers of notes. */
vb_status vb_put_wait(struct vb_window *win, int rank, const struct vb_window *from,
                      size_t src_offset, size_t dst_offset, size_t len_bytes, uint32_t note,
                      struct vb_op *op, int timeout_ms);
vb_status vb_get_wait(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                      size_t len_bytes, struct vb_op *op, int timeout_ms);

/* Handles what has arrived, without waiting. Fails if a peer is lost or has given up. */
vb_status vb_progress(struct vb_group *group);

/* Waits until ready(arg) is true or the group's timeout has passed. The message about a timeout
 * names the operation (what) and the rank (from; -1: any). ready() runs under the group's lock and
 * must not wait. The wait spins briefly, then sleeps. */
typedef bool (*vb_ready_fn)(void *arg);
vb_status vb_group_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                        int from);

/* Waits for one op. */
vb_status vb_op_wait(struct vb_group *group, struct vb_op *op, const char *what, int from);

/* ---- barrier, broadcast, gather -------------------------------------------------------------- */

/* For small records. Called by all ranks, in the same order. */

#define VB_RECORD_MAX 4096 /* maximum length of a record in bytes */

vb_status vb_group_barrier(struct vb_group *group);
vb_status vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len_bytes);

/* all receives world records of len_bytes, in rank order, on every rank. */
vb_status vb_group_gather(struct vb_group *group, const void *record, size_t len_bytes, void *all);

#endif
