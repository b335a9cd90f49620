/* SPDX-License-Identifier: MIT
 *
 * Groups: the ranks of a job, the memory that they share (windows), put and get, and the barrier,
 * broadcast and gather of small records.
 */
#ifndef VB_NET_GROUP_GROUP_H
#define VB_NET_GROUP_GROUP_H

#include "base/base.h"
#include "net/control/secret.h"
#include "net/control/times.h"

struct vb_topo;
struct vb_placement;

/* ---- groups ---------------------------------------------------------------------------------- */

/* All ranks of a job, as seen by one of them. Only one thread at a time may call functions of a
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
    /* "HOST:PORT" or "[V6]:PORT" at which rank 0 listens; a single rank without slots needs none */
    const char *root;
    int root_fd; /* rank 0: a listening socket to take over; -1: none */
    /* The secret of the job, VB_SECRET_BYTES, the same on all ranks. Borrowed until the group is
     * closed, so that there is one copy, from vb_secret_alloc(). NULL: this is the only rank. */
    const unsigned char *secret;
    enum vb_transport_choice transport;
    const char *device; /* RDMA: the only device to use; NULL: any device that reaches the peer */
    const char *bind;   /* RDMA: the only address of this host to use; NULL: any */
    bool no_immediate;  /* RDMA: send notes as messages; some devices need this */
    bool any_interface; /* also use loopback, bridges and the control network */
    bool progress;      /* a thread serves peers over TCP and RDMA while the caller computes */
    bool crowded;       /* this host has more threads than cpus, so waits do not spin for long */
    bool never_spin;    /* waits sleep at once if there is nothing to do */
    const struct vb_topo *topo; /* windows are placed according to placement; NULL: anywhere */
    const struct vb_placement *placement;
    int placement_rank;
    int timeout_ms;  /* maximum time to wait for peers, at the start and in every wait */
    int open_ms;     /* the same for the others to come, at the start; 0: timeout_ms */
    double patience; /* factor for timeout_ms and for the timeouts of the control plane; 0: 1 */
    /* A peer that answers nobody for this long is lost, unless it is on this host and the kernel
     * shows that it runs. All other times of the control plane and of queue pairs follow from it
     * (net/control/times.h). 0: VB_DETECT_S */
    double detect_s;

    /* if a rank dies or is retired, the others continue (see below); else their waits fail */
    bool elastic;
    int slots; /* elastic: maximum number of ranks, which includes joiners; 0: world */
    /* elastic, without slots for joiners: the ranks agree which of them go on (see below) */
    bool agrees;

    /* Called on rank 0 if ranks are on several hosts or use RDMA, with a line that says which
     * transport was chosen and why. May be NULL. */
    void (*announce)(const char *why);

    /* The caller sets *hopeless when a rank, for example another one of this process, will not
     * come. The opening, which waits for that rank, then fails soon. May be NULL. */
    const _Atomic bool *hopeless;

    /* Called by a thread of the group when a peer is lost or gives up, for the one who started this
     * rank. Must not wait and must not call functions of the group. May be NULL. */
    void (*lost)(void *arg, int rank, const char *why);
    void *lost_arg;
    /* The port where callers have found this rank so far; the group inherits it
     * (vb_group_inherit_door()). 0: none. */
    int door;
    bool keeps_losses; /* lost is called from vb_group_tell_losses() on (group_form.h) */
};

#define VB_GROUP_TIMEOUT_MS 60000

/* Options of a single rank, from which all options should begin: zeros alone are refused. For more
 * ranks, set rank, world, root and secret; vb_launch_group() does so for the ranks of a launcher.
 * How a secret is read from a file or a text: net/control/secret.h. */
#define VB_GROUP_OPTS_DEFAULT                                                                      \
    ((struct vb_group_opts){                                                                       \
        .world = 1, .root_fd = -1, .timeout_ms = VB_GROUP_TIMEOUT_MS, .patience = 1})

/* What a group takes of a rank, as far as it is known before the group is opened. Over RDMA, whose
 * descriptors depend on the device, the numbers are those of TCP. */
struct vb_group_plan {
    int world;
    int near_peers; /* number of peers on this host */
    enum vb_transport_choice transport;
    bool progress, elastic, agrees; /* as in struct vb_group_opts */
    int windows; /* number of windows, with that of barrier, broadcast and gather */
};

struct vb_group_need {
    int fds;
    int threads;
    size_t bytes; /* memory for peers, and the window of barrier, broadcast and gather */
};

void vb_group_need(const struct vb_group_plan *plan, struct vb_group_need *need_p);

/* Finds the other ranks through rank 0, proves to each of them that this rank has the secret, and
 * connects. Blocks for at most timeout_ms, times patience. */
vb_status vb_group_open(const struct vb_group_opts *opts, struct vb_group **group_p);

/* Says goodbye, so that peers do not think that this rank has died, and frees the group. The caller
 * must have destroyed all windows. */
void vb_group_close(struct vb_group *group);

int vb_group_rank(const struct vb_group *group);
int vb_group_world(const struct vb_group *group);
const char *vb_group_host(const struct vb_group *group, int rank); /* name of the rank's host */
const char *vb_group_transport(const struct vb_group *group, int rank); /* "shm" ..., "self" */
const char *vb_group_transports(const struct vb_group *group); /* "shm", "tcp", "shm+verbs" ... */
const char *vb_group_device(const struct vb_group *group, int rank); /* "rxe0/1"; "": no RDMA */

const char *vb_group_why(const struct vb_group *group); /* why these transports were chosen */

/* How many bytes are registered with RDMA devices now, and how long registering has taken. */
void vb_group_registered(struct vb_group *group, uint64_t *bytes_p, double *seconds_p);

/* Whether a rank runs on the same machine as this one; and in the same network namespace, where it
 * has the same interfaces. */
bool vb_group_same_machine(const struct vb_group *group, int rank);
bool vb_group_same_net(const struct vb_group *group, int rank);

/* How many bytes the transports of this rank have sent and received since the group was opened.
 * TCP: as handed to the socket, with the headers of frames. Shared memory: bytes that a rank has
 * written to a peer's memory, and bytes that it has read from it count as received by the reader
 * and as sent by the owner. RDMA: payload, notes and messages; the owner of memory does not see the
 * gets of peers. Any thread may call this until the group is closed. */
void vb_group_bytes(struct vb_group *group, uint64_t *sent_p, uint64_t *received_p);

/* Counts bytes that the caller has read from or written to a peer's memory (vb_window_peer()). */
void vb_group_touched(struct vb_group *group, int rank, uint64_t read_bytes,
                      uint64_t written_bytes);

/* How long this rank has waited for another to start a collective. n: waits of 20 us and more. */
struct vb_wait_stats {
    uint64_t n, ns, max_ns;
};

struct vb_wait_stats vb_group_wait_stats(struct vb_group *group, int rank);
uint64_t vb_group_wait_total_ns(struct vb_group *group); /* sum over all ranks */
/* Returns the rank that was waited for longest since the last call, -1: none, and how long. before:
 * the state of the caller, one number a rank, zeros at first and after a reset. */
int vb_group_wait_longest(struct vb_group *group, uint64_t *before, uint64_t *ns_p);
void vb_group_wait_stats_reset(struct vb_group *group);

/* Aborts the job: the next wait of each peer fails with this reason. */
void vb_group_abort(struct vb_group *group, const char *why);

void vb_group_set_never_spin(struct vb_group *group, bool never_spin);
bool vb_group_never_spins(struct vb_group *group);

/* The progress thread, if there is one, is measured as a part of a trace. NULL: it is not. The
 * trace must stay until the group is closed. */
struct vb_trace;
void vb_group_trace(struct vb_group *group, struct vb_trace *trace);

/* What a rank does. Heartbeats carry it, with the number of steps, for the messages of peers. */
enum vb_activity {
    VB_DOES_UNKNOWN,
    VB_DOES_SETUP,
    VB_DOES_LOAD,
    VB_DOES_COMPUTE,
    VB_DOES_EVALUATE,
    VB_DOES_SAVE,
    VB_DOES_SERVE,
    VB_DOES_END,
    VB_ACTIVITIES,
};

/* Any thread may call these; they cost a store each. The group itself notes when it waits. */
void vb_group_does(struct vb_group *group, enum vb_activity activity);
void vb_group_step(struct vb_group *group);                   /* counts a step */
void vb_group_begin_at(struct vb_group *group, int64_t step); /* number of steps done before */

/* The times that follow from detect_s and patience. */
struct vb_times vb_group_times(const struct vb_group *group);

/* ---- elastic groups -------------------------------------------------------------------------- */

/* In an elastic group a rank is *gone* if it has died, stopped answering, violated the protocol,
 * aborted or left. The others continue, also without rank 0. A rank is fenced before anybody is
 * told that it is gone: its connections are shut, its queue pair is drained, and none of its notes
 * is delivered any more. Ops under way to it end with VB_ERR_PEER; later ones fail with VB_ERR_PEER
 * at once and log nothing. Waits for it fail with VB_ERR_PEER and log why. One exception: a process
 * on the same host that has mapped a window can write to it until it has ended (vb_group_kill()).
 * Each rank notices that another is gone when it makes progress. If rank 0 or all others have
 * dropped a rank, for example because it was stopped for too long, its waits fail and say why. It
 * can then close the group and join as a new rank.
 *
 * Barrier, broadcast, gather and collectives work among the ranks of the start. When one of them is
 * gone, those under way and all later ones fail with VB_ERR_PEER, until the others have regrouped
 * (vb_group_regroup()). Joiners cannot call them, and collectives on windows are not available in a
 * group with slots for joiners. */
bool vb_group_gone(struct vb_group *group, int rank);

/* Says why a rank is gone. The text is valid until another rank takes the slot. */
const char *vb_group_gone_why(struct vb_group *group, int rank);

/* Returns why a rank has given up, in its own words; NULL: it has not. */
const char *vb_group_gave_up(struct vb_group *group, int rank);

/* Returns when a rank that is gone was last alive, as far as this rank knows (vb_clock_ns()): when
 * its connection ended or, if it did not answer, when it was heard last. 0: it is not gone. */
uint64_t vb_group_last_sign(struct vb_group *group, int rank);

/* How the membership of a rank ended. */
enum vb_end {
    VB_END_NONE,       /* the rank is not gone */
    VB_END_LEFT,       /* the rank said goodbye */
    VB_END_DIED,       /* no goodbye: it closed or violated the protocol */
    VB_END_GAVE_UP,    /* the rank has failed, and has told why (vb_group_abort()) */
    VB_END_SILENT,     /* it does not answer, or its data connection failed, but it may be alive */
    VB_END_DROPPED_US, /* the rank has dropped this rank */
};
enum vb_end vb_group_end(struct vb_group *group, int rank);

/* The first asks all ranks for an answer. The second returns whether a rank has sent something
 * over its control connection since a point in time (vb_clock_ns()). */
void vb_group_ask_all(struct vb_group *group);
bool vb_group_heard_since(struct vb_group *group, int rank, uint64_t ns);

/* A count that grows while data comes from a rank, or a transfer to it moves. */
unsigned vb_group_moved(struct vb_group *group, int rank);

/* Returns whether this rank can put to a rank. True for this rank itself. */
bool vb_group_member(struct vb_group *group, int rank);

/* Returns whether no network lies between this rank and the last rank of that slot. */
bool vb_group_same_host(struct vb_group *group, int rank);

/* All ranks are below this number. Without slots for joiners it is world. */
int vb_group_slots(const struct vb_group *group);

/* The epoch of the membership grows with every rank that joins. */
uint32_t vb_group_epoch(struct vb_group *group);

/* Kills the process of a rank that is gone, and waits until it has ended, so that it no longer
 * writes to memory that it shares with this rank. Fails, and says why, if the process cannot be
 * killed: it may then still write. Does nothing to a rank of this process. */
vb_status vb_group_kill(struct vb_group *group, int rank);

/* Register the one function that is called for each rank that is gone, or that has joined and can
 * now be put to, before the caller makes progress. It must obey the rules of vb_note_fn. */
typedef void (*vb_member_fn)(void *arg, int rank);
void vb_group_on_gone(struct vb_group *group, vb_member_fn fn, void *arg);
void vb_group_on_join(struct vb_group *group, vb_member_fn fn, void *arg);

/* Drops a peer and tells the peer why. The peer is gone when the call returns. */
vb_status vb_group_retire(struct vb_group *group, int rank, const char *why);

/* Lets barrier, broadcast, gather and all collectives begin anew among fewer ranks: the members of
 * a *view*. All members call this with the same members (their ranks in this group, ascending) and
 * the same number, which they have agreed on, and which is higher than in any call before. The
 * members are a part of the last view, of all ranks of the start at first. They must have stopped:
 * until the call returns, no thread of this rank uses the collectives or writes to windows of
 * others on their behalf. A rank of the last view that is left out is retired if it is not gone,
 * and is killed if its process could still write to shared memory (vb_group_kill()).
 *
 * On return no put or note of the old view is under way or can arrive, and none of the requests
 * under way before. Their data, and the data of all windows of collectives, is undefined. All
 * members have come to the view, in which they have the *places* 0 to n - 1, in the order of the
 * list: from now on barrier, broadcast, gather and the collectives count ranks by their places.
 * Windows stay as they are; nothing is allocated or registered.
 *
 * Fails with VB_ERR_PEER, and logs which rank it was, if a member is gone: agree on fewer members
 * and a higher number, and call this again. A member that has returned before the death learns of
 * it when its next request fails. Fails with VB_ERR_TIMEOUT if a member does not call this within
 * the group's timeout, and as vb_group_kill() does. After any failure except VB_ERR_USAGE the
 * collectives fail until a later call succeeds. */
#define VB_VIEW_MAX 0x7fffffu /* the highest number of a view */
vb_status vb_group_regroup(struct vb_group *group, const int *members, int n, uint32_t number);

/* Returns a member of the view that is gone, so that whatever needs all members will fail, or -1.
 * Cheap enough to be asked between layers. Must not be called by handlers of notes. */
int vb_group_lost(struct vb_group *group);

/* The view: number of members, place of this rank, and the rank in the group of the i-th member. At
 * first these are world, rank and i. */
int vb_group_view_world(const struct vb_group *group);
int vb_group_view_rank(const struct vb_group *group);
int vb_group_view_member(const struct vb_group *group, int i);

/* In a group that agrees, the ranks decide by themselves which of them are the members of the next
 * view (docs/views.md), and no step is applied that another view could miss. All ranks begin with
 * the number of steps that vb_group_begin_at() was told. */
struct vb_agreed {
    uint32_t number;    /* of the view, for vb_group_regroup() */
    int n;              /* number of members */
    const int *members; /* their ranks in the group, ascending; valid until the next call */
    int64_t step;       /* the last step that one of the members has committed */
    int holder;         /* the lowest of those that have, by its rank in the group */
    uint64_t term;      /* in which they agreed; it grows from view to view */
};

/* This rank is about to commit a step: to make the result of its sums the state of the model, or to
 * take that state from the holder. Steps are committed one by one. Returns false if the members
 * must agree first; then nothing may change. A group that does not agree commits every step. Costs
 * no message and does not wait. */
bool vb_group_commit(struct vb_group *group, int64_t step);

/* After a failure with VB_ERR_PEER: waits until a view without the ranks that are gone is agreed.
 * The caller then regroups with its members and its number, and calls this again if that fails with
 * VB_ERR_PEER. Fails, and says why, if this rank cannot go on: too few ranks of the last view are
 * left here, or the others go on without it. It must then neither save nor report. */
vb_status vb_group_agree(struct vb_group *group, struct vb_agreed *agreed_p);
bool vb_agreed_has(const struct vb_agreed *agreed, int rank); /* the rank is a member */

/* This rank is about to leave while the others go on: nothing that it closes from now on waits for
 * them. */
void vb_group_leaves(struct vb_group *group);

/* This rank cannot go on: when it closes the group, the others take it for lost. */
void vb_group_forsake(struct vb_group *group);

/* The process of a rank has ended for certain: whoever has started it has reaped it. Any thread may
 * call this. */
void vb_group_proved(struct vb_group *group, int rank);

/* Allows ranks to join; until then joiners wait. Rank 0 calls this when all ranks have created all
 * windows: a rank that joined earlier would have to take part in creating the next one. */
void vb_group_welcome(struct vb_group *group);

/* Joins a running group and takes a free slot. rank and world of opts are ignored. On return this
 * rank is connected to all members. The caller then opens its channels, and after that creates all
 * windows of the group in the same order and with the same rights; the lengths of its parts may
 * differ and may be 0. Each member learns that this rank has joined when it makes progress and has
 * imported all these windows. Nobody can join after rank 0 is gone. Waits as vb_group_open() does.
 */
vb_status vb_group_join(const struct vb_group_opts *opts, struct vb_group **group_p);

/* ---- windows --------------------------------------------------------------------------------- */

/* Memory of every rank that its peers may put into and get from. All ranks create and destroy
 * windows together, in the same order. The lengths may differ. In an elastic group destroying waits
 * for nobody, and the memory stays until the group is closed: peers may still be writing. */
struct vb_window;

/* What peers may do with a window: all ranks give the same rights. Peers that have mapped the
 * window can do both. VB_WINDOW_LAND is no right of peers: this rank's own gets may land in its
 * part, for which some devices need more access. Ranks that only serve gets do not give it. */
enum vb_window_rights { VB_WINDOW_PUT = 1, VB_WINDOW_GET = 2, VB_WINDOW_LAND = 4 };

vb_status vb_window_create(struct vb_group *group, size_t len_bytes, struct vb_window **win_p);
vb_status vb_window_create_for(struct vb_group *group, size_t len_bytes, unsigned rights,
                               struct vb_window **win_p);
void vb_window_destroy(struct vb_window *win);
void *vb_window_ptr(const struct vb_window *win); /* this rank's own part */
size_t vb_window_len(const struct vb_window *win, int rank);

/* Returns a peer's part as plain memory, or NULL if the transport does not map it. The part of a
 * rank that is gone stays readable until another rank takes its slot. */
void *vb_window_peer(const struct vb_window *win, int rank);

/* ---- put, get, notes ------------------------------------------------------------------------- */

/* One put or get. The caller keeps the memory until the op is done or, after a failure of the
 * group, until the group is closed. */
struct vb_op {
    _Atomic bool done;  /* set by the thread that notices that the op has ended */
    vb_status status;   /* valid once done */
    struct vb_op *next; /* used by net/ until done */
    uint64_t tag;       /* used by net/ until done */
};

/* A note has 8 bits for the channel and 24 for a value, which the users of the channel define. */
#define VB_NOTE(channel, value) ((uint32_t)(channel) << 24 | ((uint32_t)(value)&0xffffffu))
#define VB_NOTE_CHANNEL(note) ((note) >> 24)
#define VB_NOTE_VALUE(note) ((note)&0xffffffu)

/* Callers choose channels below VB_CHANNEL_DYNAMIC. net/ allocates the others. */
#define VB_CHANNEL_GROUP 0  /* barrier, broadcast and gather */
#define VB_CHANNEL_VIEW 127 /* vb_group_regroup(); elastic groups only */
#define VB_CHANNEL_DYNAMIC 128
#define VB_CHANNELS 256

/* Handles the notes of one channel. Notes of one peer come in the order in which they were posted,
 * each after all bytes of its put are visible. The handler may run on the group's progress thread,
 * but never twice at the same time. It must not wait. It may call vb_put() and vb_get(), but no
 * other functions of the group. */
typedef void (*vb_note_fn)(void *arg, int rank, uint32_t value);

/* Opens a channel below VB_CHANNEL_DYNAMIC, before any peer can send on it. Notes on a closed
 * channel are dropped; the first one from each peer is logged. */
vb_status vb_channel_open(struct vb_group *group, int channel, vb_note_fn fn, void *arg);

/* Opens the first free channel from VB_CHANNEL_DYNAMIC on; fails if there is none. All ranks get
 * the same number if they allocate and close channels in the same order. */
vb_status vb_channel_alloc(struct vb_group *group, vb_note_fn fn, void *arg, int *channel_p);
void vb_channel_close(struct vb_group *group, int channel);

/* Copies len bytes from this rank's part of the window to the peer's, then delivers the note.
 * VB_OK: the put was taken. When op->done becomes true, the source may be overwritten; the peer may
 * not have received the bytes yet. VB_AGAIN: too many ops are under way, and this one was not
 * taken. A put of 0 bytes only delivers the note. rank may be this rank. */
vb_status vb_put(struct vb_window *win, int rank, size_t src_offset, size_t dst_offset,
                 size_t len_bytes, uint32_t note, struct vb_op *op);

/* Copies len bytes from the peer's part to this rank's. Gets are not ordered with puts. */
vb_status vb_get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                 size_t len_bytes, struct vb_op *op);

/* Like vb_put() and vb_get(), but they make progress until the op is taken (not until it is done).
 * The source of the put is at src_offset from the address from, in any memory; NULL: from this
 * rank's part of win. If from is not NULL and the transport is not TCP, the put fails with
 * VB_ERR_UNSUPPORTED. After timeout_ms (0: the group's timeout) the call logs this and fails with
 * VB_ERR_TIMEOUT. After any failure op is done and has the same status. Handlers of notes must not
 * call these. */
vb_status vb_put_wait(struct vb_window *win, int rank, const void *from, size_t src_offset,
                      size_t dst_offset, size_t len_bytes, uint32_t note, struct vb_op *op,
                      int timeout_ms);
vb_status vb_get_wait(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                      size_t len_bytes, struct vb_op *op, int timeout_ms);

/* Handles what has arrived or ended, without waiting. Fails if the group has failed. */
vb_status vb_progress(struct vb_group *group);

/* Waits until ready(arg) is true or the group's timeout has passed. Messages name the operation
 * (what) and the rank (from; -1: any). ready() runs under the group's lock and must not wait. */
typedef bool (*vb_ready_fn)(void *arg);
vb_status vb_group_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                        int from);

vb_status vb_op_wait(struct vb_group *group, struct vb_op *op, const char *what, int from);

/* ---- barrier, broadcast, gather -------------------------------------------------------------- */

/* For small records. All ranks call these functions, in the same order; after vb_group_regroup()
 * all members of the view, with from and the order of records counted by their places. */

#define VB_RECORD_MAX 4096 /* maximum length of a record in bytes */

vb_status vb_group_barrier(struct vb_group *group);
vb_status vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len_bytes);

/* On every rank, all receives the records of all ranks, in rank order, len_bytes each. */
vb_status vb_group_gather(struct vb_group *group, const void *record, size_t len_bytes, void *all);

#endif
