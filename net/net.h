/* SPDX-License-Identifier: MIT
 *
 * net/: how bytes move between ranks, and what there is to move them over.
 *
 * First the ranks of a job (a group), memory they share (windows), put and get, and the basic
 * collectives; then the machine's interfaces and RDMA devices.
 */
#ifndef VB_NET_H
#define VB_NET_H

#include "base/base.h"
#include "net/pub_launch.h"
#include "net/pub_root.h"
#include "net/pub_secret.h"

struct vb_topo;
struct vb_plan;

/* ---- groups ---------------------------------------------------------------------------------- */

/* The ranks of a job, as one of them sees it. All calls on a group are made by one thread at a
 * time; a group has threads of its own (control, progress) that the caller never sees. */
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
    int root_fd;                           /* rank 0: a listening socket to take over, -1: none */
    unsigned char secret[VB_SECRET_BYTES]; /* the job's; all ranks have the same */
    enum vb_transport_choice transport;
    const char *device;         /* RDMA: the only device to use; NULL: what leads to the peer */
    const char *bind;           /* RDMA: the only address of this host to use; NULL: any */
    bool no_immediate;          /* RDMA: notes as messages, as some devices need it */
    bool any_interface;         /* also loopback, bridges and the control network between hosts */
    bool progress;              /* serve peers over TCP and RDMA while the caller computes */
    bool crowded;               /* more threads than cpus on this host: do not spin for long */
    bool never_spin;            /* sleep as soon as there is nothing to do */
    const struct vb_topo *topo; /* windows go where the plan says; NULL: anywhere */
    const struct vb_plan *plan;
    int plan_rank;
    int timeout_ms;  /* how long to wait for peers, at the start and in every collective */
    double patience; /* all deadlines, this one and the control plane's, are so many times longer */

    /* A rank that dies, or is retired, is gone, alone: see below. Without it, its death fails every
     * wait of all others. */
    bool elastic;
    int seats; /* elastic: ranks that there may be; those from world on come late. 0: world */

    /* Called on rank 0 with vb_group_why() where there was something to choose: other hosts or RDMA
     * take part. NULL: not. */
    void (*announce)(const char *why);
};

/* Finds the other ranks through rank 0, proves the secret to each and connects. Blocks for at most
 * timeout_ms; after 10 s rank 0 says who is missing, and at what stage. */
vb_status vb_group_open(const struct vb_group_opts *opts, struct vb_group **group_p);

/* Says goodbye, so that peers do not take it for a death. Windows must be gone. */
void vb_group_close(struct vb_group *group);

int vb_group_rank(const struct vb_group *group);
int vb_group_world(const struct vb_group *group);
const char *vb_group_host(const struct vb_group *group, int rank);      /* its host's name */
const char *vb_group_transport(const struct vb_group *group, int rank); /* "shm" ..., "self" */
const char *vb_group_transports(const struct vb_group *group); /* "shm", "tcp", "shm+verbs" ... */
const char *vb_group_device(const struct vb_group *group, int rank); /* "rxe0/1"; "": no RDMA */

/* What was chosen for the pairs of this rank, and why: a line for people. */
const char *vb_group_why(const struct vb_group *group);

/* Memory that is registered with RDMA devices now, and how long registering has taken. */
void vb_group_registered(struct vb_group *group, uint64_t *bytes_p, double *seconds_p);

/* How long this rank has waited for another to come to a collective (vb_wait(), sparse allreduce):
 * n counts waits of 20 us and more. */
struct vb_late {
    uint64_t n, ns, max_ns;
};

struct vb_late vb_group_late(struct vb_group *group, int rank);
uint64_t vb_group_late_ns(struct vb_group *group); /* for all of them together */
void vb_group_late_forget(struct vb_group *group); /* counts anew from now on */

/* Tells all peers to give up, with the reason; their next wait fails with it. */
void vb_group_abort(struct vb_group *group, const char *why);

/* Whether waits sleep as soon as there is nothing to do, as never_spin says at first. */
void vb_group_set_never_spin(struct vb_group *group, bool never_spin);
bool vb_group_never_spins(struct vb_group *group);

/* Counts steps for the heartbeat, so that others can tell a rank that is stuck from one at work. */
void vb_group_step(struct vb_group *group);

/* ---- elastic groups --------------------------------------------------------------------------
 */

/* In an elastic group a rank that dies, falls silent, breaks the protocol, gives up or leaves is
 * *gone*, and the others go on, also without rank 0. Gone is fenced: when anybody is told, its
 * connections are shut, its queue pair is drained, and no note of it comes up any more. Ops under
 * way to it are done, with VB_ERR_PEER; puts and gets to it fail with that, at once and in silence,
 * and so does a wait for it. On one host a process that has mapped a window can still write to it
 * until it is killed, which is for whoever started it (vb_group_pid()).
 *
 * Each rank finds out by itself, when it makes progress. One that was dropped by rank 0, or by all
 * (it was stopped for too long, say), has its own waits fail and says why: it can close the group
 * and join as new.
 *
 * Barrier, broadcast and gather are for a group that is as it began; collectives on windows are not
 * for one with seats for late-comers. */
bool vb_group_gone(struct vb_group *group, int rank);
const char *vb_group_gone_why(struct vb_group *group, int rank); /* until the seat is taken again */

/* How a rank ended, for what is done about it; the text above is for people. */
enum vb_end {
    VB_END_NONE,       /* it has not */
    VB_END_LEFT,       /* it said goodbye */
    VB_END_DIED,       /* it hung up, gave up or broke the protocol */
    VB_END_SILENT,     /* it may live, and stand still */
    VB_END_DROPPED_US, /* it has given up this rank */
};
enum vb_end vb_group_end(struct vb_group *group, int rank);

/* A rank that is there and can be put to; true of oneself. */
bool vb_group_member(struct vb_group *group, int rank);
int vb_group_seats(const struct vb_group *group); /* ranks are below; world where not elastic */
uint32_t vb_group_epoch(struct vb_group *group);  /* of the membership; grows with who joins */

/* Process id of a rank on this host, for its supervisor; 0: it is on another host. */
int vb_group_pid(struct vb_group *group, int rank);

/* Called once for each rank that is gone, or that has joined and can be put to. By the same rules
 * as the handlers of notes. One each; before progress is made. */
typedef void (*vb_member_fn)(void *arg, int rank);
void vb_group_on_gone(struct vb_group *group, vb_member_fn fn, void *arg);
void vb_group_on_join(struct vb_group *group, vb_member_fn fn, void *arg);

/* Drops a peer, which is told why. It is gone on return. */
vb_status vb_group_retire(struct vb_group *group, int rank, const char *why);

/* Rank 0 of an elastic group: from now on others may join; until then they wait. Not before all
 * ranks have all windows: who joins in between would have to be waited for by those who make the
 * next one. */
void vb_group_welcome(struct vb_group *group);

/* Takes an empty seat of a group that is under way; rank and world of opts do not count, all else
 * as for vb_group_open(). On return this rank is connected with all members. It opens its channels,
 * then all windows that there are, in the same order and with the same rights; its own lengths may
 * differ, also be 0. When a member has all of them, and makes progress, it is told that this rank
 * has joined. The root is rank 0's: without it nobody can join. Waits for at most timeout_ms. */
vb_status vb_group_join(const struct vb_group_opts *opts, struct vb_group **group_p);

/* ---- windows --------------------------------------------------------------------------------- */

/* Memory of every rank that its peers may put into and get from. Created and destroyed by all ranks
 * together, in the same order. The sizes of the ranks may differ. In an elastic group nobody is
 * waited for at the end, and the memory stays until the group is closed: peers may be writing. */
struct vb_window;

/* What peers may do with it. Peers that map it can do anything. */
enum vb_window_rights { VB_WINDOW_PUT = 1, VB_WINDOW_GET = 2 };

vb_status vb_window_create(struct vb_group *group, size_t len_bytes, struct vb_window **win_p);
vb_status vb_window_create_for(struct vb_group *group, size_t len_bytes, unsigned rights,
                               struct vb_window **win_p);
void vb_window_destroy(struct vb_window *win);
void *vb_window_ptr(const struct vb_window *win); /* this rank's own part */
size_t vb_window_len(const struct vb_window *win, int rank);

/* A peer's part, readable and writable as plain memory; NULL where the transport cannot. That of a
 * rank that is gone stays readable until its seat is taken again. */
void *vb_window_peer(const struct vb_window *win, int rank);

/* ---- put, get, notes ------------------------------------------------------------------------- */

/* One put or get that was started. The caller's memory, borrowed until done; after a failure of the
 * group, until the group is closed, for then it may never be done. */
struct vb_op {
    _Atomic bool done;  /* set by whichever thread finds out */
    vb_status status;   /* valid once done */
    struct vb_op *next; /* net/'s while not done */
    uint64_t tag;       /* likewise */
};

/* A note: 8 bits of channel, 24 of sequence or whatever the channel likes. */
#define VB_NOTE(channel, value) ((uint32_t)(channel) << 24 | ((uint32_t)(value)&0xffffffu))
#define VB_NOTE_CHANNEL(note) ((note) >> 24)
#define VB_NOTE_VALUE(note) ((note)&0xffffffu)

#define VB_CHANNEL_GROUP 0 /* the group's own */
#define VB_CHANNELS 256

/* Called for each note on a channel, in the order of posting per peer, after all bytes of its put
 * can be seen. May run on the group's progress thread, but never twice at once; it must not wait,
 * and calls nothing of the group but vb_put() and vb_get(). */
typedef void (*vb_note_fn)(void *arg, int rank, uint32_t value);

/* Before any peer can send on the channel. A note on a channel that nobody opened is
 * refused, logged once a peer, and changes nothing. */
vb_status vb_channel_open(struct vb_group *group, int channel, vb_note_fn fn, void *arg);
void vb_channel_close(struct vb_group *group, int channel);

/* Copies len bytes of this rank's window to the peer's, then gives the peer the note. VB_OK: taken;
 * op->done says when the source may be reused, which is all it says. VB_AGAIN: too many are under
 * way, nothing was taken: make progress, try again. len 0 is a bare note. rank may be one's own. */
vb_status vb_put(struct vb_window *win, int rank, size_t src_offset, size_t dst_offset,
                 size_t len_bytes, uint32_t note, struct vb_op *op);

/* The same from another window of this rank, which need not be open for puts. VB_ERR_UNSUPPORTED
 * where the way to the peer is not TCP. */
vb_status vb_put_from(struct vb_window *win, int rank, const struct vb_window *from,
                      size_t src_offset, size_t dst_offset, size_t len_bytes, uint32_t note,
                      struct vb_op *op);

/* Copies len bytes of the peer's window to this rank's. Not ordered against puts. */
vb_status vb_get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                 size_t len_bytes, struct vb_op *op);

/* Takes in what has arrived, without waiting. Negative: a peer is lost, or gave up. */
vb_status vb_progress(struct vb_group *group);

/* Waits until ready(arg) or the group's timeout: what and from name the operation and the rank
 * (-1: any) in the message then. ready runs under the group's lock and must not wait. Spins
 * briefly, then sleeps. */
typedef bool (*vb_ready_fn)(void *arg);
vb_status vb_group_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                        int from);

/* Waits for one op. */
vb_status vb_op_wait(struct vb_group *group, struct vb_op *op, const char *what, int from);

/* ---- collective basics ----------------------------------------------------------------------- */

#define VB_RECORD_MAX 4096 /* bytes of a small record */

vb_status vb_group_barrier(struct vb_group *group);
vb_status vb_group_broadcast(struct vb_group *group, int from, void *record, size_t len_bytes);

/* all: world records of len_bytes, in rank order, on every rank. */
vb_status vb_group_gather(struct vb_group *group, const void *record, size_t len_bytes, void *all);

/* ---- collectives on a window ----------------------------------------------------------------- */

/* Reductions of float32 and their kin, on memory that all ranks have of the same size. An operation
 * is started, then waited for; many may be under way. docs/collectives.md tells how they work. */

/* RANK: each element of a sum is ((g0 + g1) + g2) + ..., by rank: the same bits whatever algorithm,
 * transport, size of buckets or order of arrival. ANY: algorithms that sum in another order may be
 * taken too; all ranks still end with the same bits. */
enum vb_order { VB_ORDER_RANK, VB_ORDER_ANY };

enum vb_algo {
    VB_ALGO_AUTO,      /* by the measured model */
    VB_ALGO_MAPPED,    /* one host: straight out of the others' windows */
    VB_ALGO_GATHER,    /* all send all to all, each sums */
    VB_ALGO_EXCHANGE,  /* rank c collects share c from all, sums it, hands it out */
    VB_ALGO_OWNER,     /* one rank collects all, in turn; sums and hands out: for many at a time */
    VB_ALGO_CHAIN,     /* a leader a host; the partial sum goes from host to host */
    VB_ALGO_RING,      /* this one and those below: VB_ORDER_ANY only */
    VB_ALGO_HALVING,   /* recursive halving, then doubling */
    VB_ALGO_TWO_LEVEL, /* a leader a host; leaders exchange */
    VB_ALGOS
};

/* BF16: what a rank contributes is rounded to bfloat16 before it is sent, sums are made in float32,
 * and the result is rounded once: the same bits on all ranks, half the bytes on the wire. */
enum vb_wire { VB_WIRE_F32, VB_WIRE_BF16 };
enum vb_reduce { VB_REDUCE_SUM, VB_REDUCE_MEAN }; /* mean: the sum, times 1.0f / world */

struct vb_coll_opts { /* the same on all ranks */
    enum vb_order order;
    enum vb_algo algo; /* of every allreduce; one that is impossible here is an error */
    enum vb_wire wire;
    int in_flight; /* operations started and not yet waited for, at most; 0: 32 */
};

/* Collective: a window of len_bytes of data on every rank (the same on all), with the message slots
 * that the algorithms need behind it. Measures the links, which takes milliseconds; rank 0 chooses
 * for all. opts may be NULL: rank order, by the model, float32. */
struct vb_coll;
vb_status vb_coll_open(struct vb_group *group, size_t len_bytes, const struct vb_coll_opts *opts,
                       struct vb_coll **coll_p);

/* Collective, when all operations have been waited for, or after a failure. */
void vb_coll_close(struct vb_coll *coll);

/* This rank's data: page-aligned, zeroed at the start. */
void *vb_coll_data(struct vb_coll *coll);

/* A rank's data, readable and writable as plain memory; NULL where the transport cannot. */
void *vb_coll_data_of(const struct vb_coll *coll, int rank);

/* One operation under way; the caller's memory, borrowed until waited for. Any values before. */
struct vb_req {
    uint32_t seq;     /* counts the operations of a coll, from 1 */
    bool done;        /* net/'s, likewise below: ask vb_test() */
    vb_status status; /* valid once done */
    struct vb_coll *coll;
};

/* Started by all ranks in the same order. Offsets are multiples of 4. The range is net/'s until the
 * operation was waited for; ranges of operations under way must not overlap. What fails later is
 * told by vb_wait(); what fails here has started nothing. Without a progress thread, small ones
 * that are started while others are under way may not leave before the caller waits or tests. */
vb_status vb_allreduce_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                             enum vb_reduce how, struct vb_req *req);

/* Rank c ends with share c of the sum, at its place (vb_coll_share()); the rest of the range holds
 * nothing of use then. */
vb_status vb_reduce_scatter_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                                  enum vb_reduce how, struct vb_req *req);

/* The bytes of rank r, at offsets_bytes[r] and lens_bytes[r] long, end up there on all ranks. Both
 * are arrays of world, the same on all ranks, read before the call returns. */
vb_status vb_allgather_start(struct vb_coll *coll, const size_t *offsets_bytes,
                             const size_t *lens_bytes, struct vb_req *req);
vb_status vb_broadcast_start(struct vb_coll *coll, int root, size_t offset_bytes, size_t len_bytes,
                             struct vb_req *req);
vb_status vb_barrier_start(struct vb_coll *coll, struct vb_req *req);

/* Waits for at most the group's timeout; what fails is logged with rank, operation and sequence
 * number. After a failure the coll is of no more use. */
vb_status vb_wait(struct vb_coll *coll, struct vb_req *req);

/* Makes progress on all operations, without waiting. */
vb_status vb_test(struct vb_coll *coll, struct vb_req *req, bool *done_p);

/* Where the share of a rank lies in a vector: its first element, and how many. */
void vb_coll_share(size_t n_elems, int world, int rank, size_t *first_p, size_t *n_p);

const char *vb_algo_str(enum vb_algo algo); /* "mapped" ... */
bool vb_algo_parse(const char *text, enum vb_algo *algo_p);

/* What the model says and took. */
enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes);      /* of an allreduce */
enum vb_algo vb_coll_algo_many(const struct vb_coll *coll, size_t bytes); /* of many at a time */
bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo);          /* here, in this order */
double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes);

/* Bytes that this rank has put to peers since the coll was opened: payload, not headers. Mapped:
 * bytes read from peers' memory. */
uint64_t vb_coll_wire_bytes(const struct vb_coll *coll);

/* ---- sparse allreduce ------------------------------------------------------------------------ */

/* Sums lists of (index, value) over all ranks: each index of the result is one that some rank has,
 * its value ((g0 + g1) + g2) + ... over those ranks that have it, in rank order. The time follows
 * the lengths of the lists, never the number of features, unless the dense path is cheaper.
 *
 * Bits are the same on all ranks, transports and paths. So that they can be: -0.0 counts as +0.0,
 * and every NaN comes out as the same one. */

enum vb_sparse_path { VB_SPARSE_AUTO, VB_SPARSE_SPARSE, VB_SPARSE_DENSE };

struct vb_sparse_opts {
    uint64_t features;        /* indices are below; 1 to 2^32, the same on all ranks */
    size_t max_nnz;           /* longest list of this rank, also of those with duplicates */
    enum vb_sparse_path path; /* VB_SPARSE_AUTO: by the measured model, call by call */
};

/* A context, opened and closed by all ranks together. It has a window of about 16 bytes for each of
 * the ranks' max_nnz together, and as much memory of its own. The dense path needs another window
 * of 4 bytes a feature, made when it is first taken. */
struct vb_sparse;
vb_status vb_sparse_open(struct vb_group *group, const struct vb_sparse_opts *opts,
                         struct vb_sparse **sparse_p);
void vb_sparse_close(struct vb_sparse *sparse);

/* Sorts a list of *n_p by index and adds up duplicates, in the order in which they appeared; *n_p
 * are left. This rank's affair alone. */
vb_status vb_sparse_merge(struct vb_sparse *sparse, uint32_t *index, float *value, size_t *n_p);

/* Called by all ranks. In: a list in ascending order, each index once. Out: the sum, likewise, the
 * same on all ranks; borrowed until the next call. The mean is the sum divided by the number of
 * ranks, once. A list that is not in order, leaves the features or is too long fails on all ranks,
 * which may go on with the next call; after any other failure the context can only be closed. */
vb_status vb_sparse_allreduce(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                              size_t n, enum vb_reduce how, const uint32_t **index_p,
                              const float **value_p, size_t *n_p);

/* The same in two halves, to do something else in between: the first sends what others wait for,
 * the list is read before it returns. A start that went well is followed by a finish. */
vb_status vb_sparse_start(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                          size_t n, enum vb_reduce how);
vb_status vb_sparse_finish(struct vb_sparse *sparse, const uint32_t **index_p,
                           const float **value_p, size_t *n_p);

/* Which way the last call took, and what the model says of both ways for its lists. */
enum vb_sparse_path vb_sparse_took(const struct vb_sparse *sparse);
double vb_sparse_predict_us(const struct vb_sparse *sparse, enum vb_sparse_path path);

/* Sent by this rank since open: payload put to peers; where windows are mapped, bytes read from
 * the peers' memory. */
uint64_t vb_sparse_wire_bytes(const struct vb_sparse *sparse);

/* The functions below read the machine and change nothing. A sysroot is put before every path that
 * is read: "" stands for the running machine, a folder for the recording of another one. They may
 * be called from any thread; none blocks on the network. */

#define VB_IFACE_NAME 16 /* bytes of an interface's name, with its end: the kernel's own limit */
#define VB_IFACE_ADDRS 8 /* addresses kept of one interface */
#define VB_ADDR_TEXT 46  /* bytes of the longest IPv6 address in text, with its end */
#define VB_RDMA_NAME 64  /* bytes of an RDMA device's name, with its end: the kernel's own limit */

/* ---- network interfaces ---------------------------------------------------------------------- */

enum vb_iface_kind {
    VB_IFACE_LOOPBACK,
    VB_IFACE_VIRTUAL, /* bridge, veth, tunnel, dummy ...: no hardware of its own or below it */
    VB_IFACE_STACKED, /* VLAN, bond or bridge over a physical interface */
    VB_IFACE_PHYSICAL,
};

struct vb_iface {
    char name[VB_IFACE_NAME];
    enum vb_iface_kind kind;
    bool up;            /* carries frames now */
    bool enslaved;      /* belongs to a bond or bridge, which has the addresses */
    bool control;       /* the CloudLab or Emulab control network: never for a job's data */
    bool default_route; /* the kernel's preferred way to the rest of the world, IPv4 or IPv6 */
    int64_t speed_mbit; /* -1: the driver does not say */
    int mtu_bytes;      /* 0: not known */
    char driver[32];    /* "" where there is none */
    char addrs[VB_IFACE_ADDRS][VB_ADDR_TEXT]; /* of the running machine only */
    int n_addrs;
};

/* All interfaces, ordered by name. A machine without any gives VB_OK and 0. The caller frees the
 * list with vb_net_ifaces_free(). */
vb_status vb_net_ifaces_list(const char *sysroot, struct vb_iface **list_p, int *n_p);
void vb_net_ifaces_free(struct vb_iface *list);

/* The interface of the CloudLab or Emulab control network; false on any other machine. */
bool vb_net_control_if(const char *sysroot, char *name, size_t size);

/* The interface a job's data should take: up, with hardware, not the control network; of these one
 * with an address where addresses are known, then the fastest, then the first. NULL if there is
 * none. Borrowed from the list. */
const struct vb_iface *vb_net_iface_for_data(const struct vb_iface *list, int n);

/* ---- RDMA devices ---------------------------------------------------------------------------- */

enum vb_rdma_transport {
    VB_RDMA_OTHER,
    VB_RDMA_INFINIBAND,
    VB_RDMA_ROCE,
    VB_RDMA_IWARP,
};

enum vb_gid_type { VB_GID_IB, VB_GID_ROCE_V1, VB_GID_ROCE_V2 };

struct vb_rdma_gid {
    int index;
    enum vb_gid_type type;
    char text[VB_ADDR_TEXT];    /* as an address: a RoCE GID is one */
    char netdev[VB_IFACE_NAME]; /* "" for InfiniBand */
};

struct vb_rdma_port {
    int num; /* from 1 */
    bool active;
    bool ethernet;            /* link layer: Ethernet, else InfiniBand */
    char state[16];           /* "ACTIVE", "INIT", "DOWN" ... */
    double speed_gbit;        /* 0: not known; a software device makes it up */
    int mtu_bytes;            /* in force; 0: not known */
    int64_t max_msg_bytes;    /* 0: not known */
    struct vb_rdma_gid *gids; /* those that are set, by index */
    int n_gids;
};

struct vb_rdma_dev {
    char name[VB_RDMA_NAME];
    char driver[32];            /* "mlx5_core", "rxe" ...; "" if not known */
    char firmware[64];          /* "" if not known */
    char netdev[VB_IFACE_NAME]; /* interface of the first port; "" if not known or none */
    struct vb_rdma_port *ports;
    int n_ports;
    enum vb_rdma_transport transport;
    int verbs_err; /* 0: verbs opens it (not tried in recordings); ENODEV: verbs does not see it */
    bool soft;     /* rxe or siw: RDMA done by the kernel over any interface */
};

/* All RDMA devices of the kernel, ordered by name: from sysfs and, on the running machine, asked
 * through libibverbs. A kernel without RDMA gives VB_OK and 0. The caller frees the list with
 * vb_net_rdma_free(). */
vb_status vb_net_rdma_list(const char *sysroot, struct vb_rdma_dev **list_p, int *n_p);
void vb_net_rdma_free(struct vb_rdma_dev *list, int n);

/* Whether verbs opens it and a port of it is active. */
bool vb_net_rdma_usable(const struct vb_rdma_dev *dev);
bool vb_net_rdma_any_usable(void); /* on the running system */

const char *vb_rdma_transport_str(enum vb_rdma_transport transport);
const char *vb_gid_type_str(enum vb_gid_type type);

/* What soft-RoCE needs, and whether it is there. */
struct vb_rxe {
    char release[65];        /* of the kernel: uname -r; "" if not known */
    bool loaded;             /* the kernel has rdma_rxe now */
    bool built_in;           /* ... and always has */
    bool present;            /* modprobe would find it */
    bool kernel_has_modules; /* false: nothing can be loaded at all */
    bool tool;               /* the command rdma is where sudo looks for commands */
};

void vb_net_rxe_probe(const char *sysroot, struct vb_rxe *rxe_p);

/* "libibverbs 1.14.44.0": from the name of the library's file, as it is loaded; where it cannot be
 * told, the version that was there at compile time, which is then said. */
void vb_net_verbs_version(char *buf, size_t size);
void vb_net_rdmacm_version(char *buf, size_t size);

/* ---- counters of RDMA ports ------------------------------------------------------------------ */

/* Trouble that a port counts, under one name over all drivers. Both ends count the same event, so
 * what two hosts counted is not to be added up as events. */
enum vb_port_trouble {
    VB_PORT_RETRIES,    /* sent again after a time-out or a complaint */
    VB_PORT_OUT_OF_SEQ, /* packets that came out of order, mostly for one before was lost */
    VB_PORT_RNR,        /* the receiver was not ready: no receive was posted */
    VB_PORT_DUPLICATES, /* requests that had come before: an answer was lost, or late */
    VB_PORT_LOST,       /* packets dropped or broken at this port */
    VB_PORT_GIVEN_UP,   /* all retries were in vain: a connection broke */
    VB_PORT_LINK,       /* the link failed or had to recover */
    VB_PORT_TROUBLES,
};

struct vb_port_counts {
    char dev[VB_RDMA_NAME];
    int port;
    unsigned known; /* a bit for each trouble that the driver counts */
    int64_t n[VB_PORT_TROUBLES];
};

#define VB_PORTS_MAX 32

struct vb_port_list {
    int n;
    struct vb_port_counts ports[VB_PORTS_MAX];
};

/* The counters of one port ("rxe0/1"), of a device's ports ("rxe0") or of all active ones (NULL).
 * Ports beyond VB_PORTS_MAX are left out; what cannot be read counts nothing. Some milliseconds. */
vb_status vb_net_ports_read(const char *sysroot, const char *which, struct vb_port_list *list_p);

/* The port of that name, NULL if it is not in the list. */
const struct vb_port_counts *vb_net_ports_find(const struct vb_port_list *list, const char *dev,
                                               int port);

/* What each port of after has counted since before. moved_p may be after. */
void vb_net_ports_moved(const struct vb_port_list *before, const struct vb_port_list *after,
                        struct vb_port_list *moved_p);

/* "rxe0/1: 3 retries, 1 out of sequence"; false and "" if nothing moved. */
bool vb_net_port_text(const struct vb_port_counts *moved, char *buf, size_t size);

const char *vb_port_trouble_str(enum vb_port_trouble kind); /* "retries", "out of sequence" ... */

#endif
