/* SPDX-License-Identifier: MIT
 *
 * What the files of the collectives share. coll_open.c lays out the window, coll_start.c has the
 * calls start, wait and test, coll_run.c is the loop that runs every algorithm, coll_steps.c
 * executes single steps, coll_peers.c tracks which ranks have started and finished a request. The
 * algorithms are in coll_mapped.c, coll_ordered.c, coll_unordered.c and coll_hosts.c. reduce.c
 * sums, cost.c chooses an algorithm, cost_measure.c measures the figures for that choice.
 *
 * Words:
 *   request   one collective operation that the caller has started.
 *   op        one put or get, as everywhere in net/.
 *   share     the part of a vector that one rank sums for all: rank c has share c.
 *   segment   the unit in flight. A share is sent as several segments; the last one is shorter.
 *   slot      room for one small message of one peer, with its head; one for each peer and area.
 *   ring      room for the segments in flight from one peer. Its slots are used in turn.
 *   area      the counters and slots of one request: its sequence number modulo their number.
 *   step      one action of one rank: a put, a sum or a copy. Steps are computed when they are due
 *             and are never stored, so a schedule of any length needs no memory.
 *   lane      steps that one rank does one after another. The lanes of a request advance
 *             independently of each other, except for what a step waits for.
 *
 * Every request begins with a message START to every peer, which says what the sender is about to
 * do. It shows which rank is a straggler, detects a rank that brings another size, and makes areas
 * safe to reuse:
 *
 *   There are twice as many areas as requests may be under way (N). A rank that starts request s
 *   has finished s - N. No rank finishes a request before all have started it, so all ranks had
 *   started s - N, and therefore had finished s - 2N. Nobody reads or sends any of it any more.
 *
 * The group's lock guards all of this state.
 */
#ifndef VB_NET_COLL_COLL_PRIV_H
#define VB_NET_COLL_COLL_PRIV_H

#include "net/group/group_inside.h"
#include "net/coll/reduce.h"

#include <stdatomic.h>

#define RING_SLOTS 8u /* segments in flight from one rank to another, at most */
#define RINGS 2       /* 0: parts of sums; 1: results, which use a ring only in bfloat16 */
#define NO_RANK (-1)
#define STRAIGHT_BYTES ((size_t)4 * 1024) /* gather sends longer vectors without copying them */
#define SEQ_MASK 0x1fffffu

/* The kinds of notes. */
enum stream {
    STREAM_START,
    STREAM_PART,
    STREAM_RESULT,
    STREAM_FREE,
    STREAM_WAKE,
    STREAM_PROBE,
    STREAMS
};

enum request_kind {
    REQUEST_ALLREDUCE,
    REQUEST_REDUCE_SCATTER,
    REQUEST_ALLGATHER,
    REQUEST_BROADCAST,
    REQUEST_BARRIER
};

/* The head of a slot; a small payload follows in the same cache line. A rank writes the head into
 * its own window, where mapped peers read it, and puts it to the other peers. */
struct slot_head {
    _Atomic uint32_t seq; /* mapped: the sender has started this request */
    uint32_t what;        /* kind of request, reduction and algorithm */
    uint32_t root;
    uint32_t n_older; /* number of older requests that the sender has under way */
    uint64_t n_bytes;
    uint64_t place; /* the offset; for an allgather a digest of all offsets and lengths */
};

/* State of a rank in its own window, which mapped peers read. */
struct own_state {
    /* The last request whose share this rank has done. A rank does its shares in order, so one
     * number covers all of them, and a peer that waits for many reads a single cache line. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t done;
    /* Not 0: this rank may sleep, so peers send a note after they have set a flag. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t waiting;
};

/* ---- steps ----------------------------------------------------------------------------------- */

enum step_kind {
    STEP_WAIT,   /* does nothing; it only waits for its conditions */
    STEP_START,  /* puts this rank's own slot into a peer's */
    STEP_SEND,   /* puts a segment into a peer's ring */
    STEP_PLACE,  /* puts bytes to their final place in a peer's data */
    STEP_REDUCE, /* sums sources into this rank's data */
    STEP_EXPAND, /* copies a segment of bfloat16 from a ring to its final place */
    STEP_READ,   /* mapped: copies bytes of a peer's data */
    STEP_DONE,   /* mapped: says that this rank's share is done */
};

/* Where the contributions of peers lie: in this rank's ring, in its slots, or in the peers' own
 * slots. */
enum source_place { FROM_RING, FROM_SLOT, FROM_THEIR_SLOT };

struct step {
    enum step_kind kind;

    /* Conditions. */
    int started_lo, started_hi; /* ranks lo to hi - 1 must have started the request */
    int result_of;              /* a result of this rank must have come; NO_RANK: none */
    int after_lane;             /* this lane must have done at least `after` steps */
    uint32_t after;
    bool all_left; /* the sources of all earlier puts may be overwritten */

    /* The range of the data, and the peer. */
    size_t at, len_bytes;
    int peer; /* the receiver or the sender */
    int ring;

    /* STEP_REDUCE: the sources in the order of summing. First come the ranks in parts; this rank
     * among them stands for its own data. Then comes the mapped data of ranks local_lo to
     * local_hi - 1. */
    const int *parts;
    int n_parts;
    enum source_place place;
    int local_lo, local_hi;
    bool last;      /* the sum is complete: apply mean and rounding */
    bool spread;    /* mapped: write the sum to the data of all ranks */
    bool completes; /* mapped: this step completes the share of this rank */
};

struct lane {
    uint32_t at, n; /* the next step; the number of steps */
};

struct vb_coll;
struct request;

/* An algorithm. plan() sets up the lanes. step() computes step i of a lane; it is called with all
 * fields zero, ranks NO_RANK and no conditions. */
struct schedule {
    void (*plan)(struct vb_coll *coll, struct request *rq);
    void (*step)(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                 struct step *s);
};

extern const struct schedule vb_schedule_mapped, vb_schedule_gather, vb_schedule_exchange,
    vb_schedule_owner, vb_schedule_chain, vb_schedule_ring, vb_schedule_halving,
    vb_schedule_two_level, vb_schedule_allgather, vb_schedule_broadcast, vb_schedule_barrier;

/* ---- state ----------------------------------------------------------------------------------- */

/* What a request knows about one peer. */
struct request_peer {
    bool started;            /* the peer has started the same request */
    bool head_sent;          /* the head was put to it, ahead of a vector sent from the data */
    bool start_sent;         /* START was put to it */
    uint32_t to_send[RINGS]; /* segments still to be put into its ring */
    uint32_t to_take[RINGS]; /* segments still to be taken out of our ring */
    uint32_t took[RINGS];    /* segments taken out of our ring */
    uint32_t results;        /* number of results taken */
    uint64_t last_put;       /* the number of the last put to it */
};

struct request {
    uint32_t seq;
    bool active;
    bool mapped; /* START and DONE are flags in memory, not notes */
    bool eager;  /* the vector travels in the slot: mapped or gathered */
    bool direct; /* gathered, but sent straight from the data: the slot has only the head */
    enum request_kind kind;
    enum vb_algo algo;
    enum vb_reduce how;
    int root;
    int owner;                  /* the one rank that gets the vector with START; NO_RANK: all */
    size_t offset, n_bytes;     /* the range of the data */
    size_t share_at, share_len; /* mapped: what this rank sums */
    size_t *offsets, *lens;     /* allgather: of each rank */
    const struct schedule *schedule;
    struct lane *lanes;
    int n_lanes;
    int n_started;    /* ranks 0 to n_started - 1 have started it */
    uint32_t n_older; /* once it has ended: the smallest n_older in the heads of all ranks */
    struct request_peer *peers;
    struct vb_req *handle; /* the caller's */
};

/* Messages of one peer that have come for one request. */
struct arrivals {
    uint32_t n[STREAM_RESULT + 1];
};

struct way {
    char *base;            /* its window, if it is mapped; else NULL */
    uint32_t sent[RINGS];  /* segments put into its ring */
    uint32_t freed[RINGS]; /* segments that it has reported as taken out again */
    uint32_t taken[RINGS]; /* segments taken out of our ring for it */
    uint32_t owed[RINGS];  /* taken out, but not yet reported to it */
    struct vb_op *puts;    /* n_puts ops, used in turn */
    uint64_t posted, left; /* number of puts; number of those whose source is free again */
};

/* Which ranks share memory with this one, and which ranks form a host. */
struct coll_hosts {
    bool all_mapped;
    int lo, hi;      /* ranks around this one whose windows are mapped, without a gap */
    bool contiguous; /* the ranks of every host follow each other */
    int *leaders;    /* the first rank of each host, in order */
    int n, mine;     /* number of hosts; the index of this rank's host */
};

/* The layout of the window: offsets and sizes in bytes. */
struct coll_layout {
    size_t len_bytes; /* length of the data */
    size_t own_at, heads_at, own_slots_at, slots_at, rings_at, stages_at;
    size_t slot_bytes;  /* length of a slot, with its head */
    size_t seg_bytes;   /* length of a segment in float32; bfloat16 sends half as much */
    size_t rest_bytes;  /* a rest of a range up to this length goes with its last segment */
    size_t eager_bytes; /* mapped: vectors up to this length travel in slots */
};

struct coll_requests {
    uint32_t n, n_areas; /* powers of two */
    struct request *table;
    uint32_t seq;              /* number of requests started */
    uint32_t since_many;       /* number of consecutive requests that were not one of many */
    uint32_t first_seq;        /* requests used for measuring: the caller's numbers start here */
    uint32_t oldest;           /* the oldest that may be active */
    struct arrivals *arrivals; /* one for each area and rank */
    uint32_t *area_seq;        /* the request that each area serves */
};

struct coll_mapped {
    int n_running;       /* number of such requests under way */
    bool wake_due;       /* flags were set, so vb_mapped_wake() must be called */
    uint32_t done;       /* the last request whose share this rank has done */
    uint32_t all_done;   /* the last request whose shares all ranks have done, as far as seen */
    uint32_t next_share; /* the shares of all requests before this one are done */
    size_t done_bytes;   /* bytes of shares that are done and not yet published; 0: none */
};

struct coll_stats {
    uint64_t wire_bytes;
    uint64_t summed_ns; /* time spent in long sums */
};

/* Notes that are sent to measure links. */
struct coll_probes {
    uint32_t came, wanted;
};

struct cost_model;

struct vb_coll {
    struct vb_group *group;
    struct vb_window *win;
    struct vb_coll_opts opts;
    int rank, world;
    int channel; /* 0: none */
    vb_status failed;
    bool blocked;  /* a step found no room or must wait for its turn: run again */
    char *base;    /* this rank's window */
    int *everyone; /* 0 .. world - 1 */
    struct way *ways;
    uint64_t n_puts;        /* ops of each way; a power of two */
    struct source *sources; /* the sources of the current sum: room for world + 1 */
    float **also;           /* the other places of the result of that sum */
    struct coll_layout lay;
    struct coll_requests reqs;
    struct coll_mapped mapped;
    struct coll_hosts hosts;
    struct cost_model *cost;
    struct coll_stats stats;
    struct coll_probes probes;
};

/* ---- layout ---------------------------------------------------------------------------------- */

static inline size_t own_slot_at(const struct vb_coll *coll, uint32_t seq)
{
    return coll->lay.own_slots_at + (seq & (coll->reqs.n_areas - 1)) * coll->lay.slot_bytes;
}

/* Where the head of a mapped request lies in its sender's window. Heads without a vector are
 * packed, two in a cache line, so that a peer fetches half as many lines. */
static inline size_t mapped_head_at(const struct vb_coll *coll, uint32_t seq, bool eager)
{
    size_t area = seq & (coll->reqs.n_areas - 1);

    return eager ? own_slot_at(coll, seq) : coll->lay.heads_at + area * sizeof(struct slot_head);
}

/* Where this rank's head lies in its own window. */
static inline size_t own_head_at(const struct vb_coll *coll, const struct request *rq)
{
    return mapped_head_at(coll, rq->seq, rq->eager || !rq->mapped);
}

static inline size_t slot_at(const struct vb_coll *coll, uint32_t seq, int rank)
{
    size_t area = seq & (coll->reqs.n_areas - 1);

    return coll->lay.slots_at + (area * (size_t)coll->world + (size_t)rank) * coll->lay.slot_bytes;
}

/* Room for a segment and the rest of a range behind it. */
static inline size_t ring_slot_bytes(const struct vb_coll *coll)
{
    return coll->lay.seg_bytes + coll->lay.rest_bytes;
}

/* Where segment number k lies in the ring that belongs to a sender. */
static inline size_t ring_at(const struct vb_coll *coll, int ring, int sender, uint32_t k)
{
    size_t row = (size_t)ring * (size_t)coll->world + (size_t)sender;

    return coll->lay.rings_at + (row * RING_SLOTS + k % RING_SLOTS) * ring_slot_bytes(coll);
}

static inline size_t stage_at(const struct vb_coll *coll, int ring, int to, uint32_t k)
{
    size_t row = (size_t)ring * (size_t)coll->world + (size_t)to;

    return coll->lay.stages_at + (row * RING_SLOTS + k % RING_SLOTS) * (ring_slot_bytes(coll) / 2);
}

static inline struct request *request_at(const struct vb_coll *coll, uint32_t seq)
{
    return &coll->reqs.table[seq & (coll->reqs.n - 1)];
}

static inline struct arrivals *arrivals_of(const struct vb_coll *coll, uint32_t seq, int rank)
{
    size_t area = seq & (coll->reqs.n_areas - 1);

    return &coll->reqs.arrivals[area * (size_t)coll->world + (size_t)rank];
}

/* The state that a rank publishes in its window. */
static inline struct own_state *own_of(const struct vb_coll *coll, char *base)
{
    return (struct own_state *)(void *)(base + coll->lay.own_at);
}

static inline struct slot_head *head_at(char *base, size_t at)
{
    return (struct slot_head *)(void *)(base + at);
}

/* Whether bfloat16 travels on the wire. */
static inline bool is_narrow(const struct vb_coll *coll)
{
    return coll->opts.wire == VB_WIRE_BF16;
}

static inline uint32_t segments(const struct vb_coll *coll, size_t len_bytes)
{
    size_t whole = len_bytes / coll->lay.seg_bytes, rest = len_bytes % coll->lay.seg_bytes;

    return (uint32_t)(whole + (rest > (whole > 0 ? coll->lay.rest_bytes : 0)));
}

/* Sets at and len_bytes of a step to segment j of a range. The segment is empty if the range has
 * fewer. */
static inline void set_segment(const struct vb_coll *coll, struct step *s, size_t at,
                               size_t len_bytes, uint32_t j)
{
    uint32_t n = segments(coll, len_bytes);
    size_t first = j < n ? (size_t)j * coll->lay.seg_bytes : len_bytes;

    s->at = at + first;
    s->len_bytes = j + 1 < n ? coll->lay.seg_bytes : len_bytes - first;
}

/* The byte range of share c of n in a request. */
void vb_request_share(const struct request *rq, int n, int c, size_t *at_p, size_t *len_p);

static inline uint32_t share_segments(const struct vb_coll *coll, const struct request *rq, int n,
                                      int c)
{
    size_t at, len;

    vb_request_share(rq, n, c, &at, &len);
    return segments(coll, len);
}

/* The rank i places after this one. */
static inline int peer_after(const struct vb_coll *coll, int i)
{
    return (coll->rank + i) % coll->world;
}

/* Step i of lane 0 in all algorithms that use puts. Each rank begins with the rank after it, so
 * that not all send to the same rank at once. */
static inline void start_step(const struct vb_coll *coll, uint32_t i, struct step *s)
{
    s->kind = STEP_START;
    s->peer = peer_after(coll, 1 + (int)i);
}

/* ---- coll_open.c ----------------------------------------------------------------------------- */

/* Like vb_coll_open(), but treats every ranks_per_host consecutive ranks as one host and the
 * windows of other hosts as not mapped. Tests run multi-host algorithms on one host this way. 0:
 * the real hosts. */
vb_status vb_coll_open_split(struct vb_group *group, size_t len_bytes,
                             const struct vb_coll_opts *opts, int ranks_per_host,
                             struct vb_coll **coll_p);

/* ---- coll_run.c ------------------------------------------------------------------------------ */

/* Advances all requests as far as possible. */
void vb_coll_run(struct vb_coll *coll);

/* Advances one request, and the others if they were blocked. */
void vb_coll_run_request(struct vb_coll *coll, struct request *rq);

/* For a wait, while notes drive the requests: runs only what no note drives, and checks whether rq
 * is finished. */
void vb_coll_poll(struct vb_coll *coll, struct request *rq);
void vb_coll_note(void *arg, int rank, uint32_t value); /* handles the notes of the channel */

/* ---- coll_steps.c ---------------------------------------------------------------------------- */

/* Does a step whose conditions hold. Returns false if it cannot be done now. */
bool vb_step_do(struct vb_coll *coll, struct request *rq, const struct step *s);

/* Puts, with a note on the collective's channel. Returns false if there is no room or the group has
 * failed. */
bool vb_coll_put(struct vb_coll *coll, int to, size_t src, size_t dst, size_t len, uint32_t value);
uint32_t vb_coll_note_value(enum stream stream, uint32_t low);

/* Sends a note for a measurement, and len bytes into slot k of the ring. Returns false if it cannot
 * be sent now. */
bool vb_coll_probe(struct vb_coll *coll, int to, uint32_t k, size_t len_bytes);

/* Counts the puts to a peer whose source is free again. */
void vb_coll_reap(struct vb_coll *coll, struct way *way);

/* Tells peers which slots of their rings are free again. */
void vb_coll_give_back(struct vb_coll *coll);

/* ---- straggler.c ----------------------------------------------------------------------------- */

/* The rank that a wait for a request is waiting for. Starts as zero with rank NO_RANK. */
struct straggler {
    uint64_t begin_ns;  /* 0: the wait was over before the first look at the clock */
    uint64_t summed_ns; /* stats.summed_ns at begin_ns */
    int rank;           /* waited for since begin_ns; NO_RANK: none, or it has started */
};

void vb_straggler_begin(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                        uint64_t now_ns);

/* Under the lock. from: the rank that the request waits for. */
void vb_straggler_look(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                       int from);
void vb_straggler_end(struct straggler *straggler, struct vb_coll *coll);

/* ---- coll_peers.c ---------------------------------------------------------------------------- */

/* Whether ranks lo to hi - 1 have started this same request. */
bool vb_request_started_by(struct vb_coll *coll, struct request *rq, int lo, int hi);
bool vb_request_done_by_all(struct vb_coll *coll,
                            const struct request *rq); /* mapped: all shares */

/* The rank that a request under way waits for; NO_RANK: none. */
int vb_request_waits_for(const struct vb_coll *coll, const struct request *rq);
void vb_request_describe(const struct vb_coll *coll, const struct request *rq, char *text,
                         size_t size);

/* Sets a flag that mapped peers read. All writes before it become visible with it. Sleeping peers
 * must then be woken with vb_mapped_wake(), once for any number of flags. */
void vb_mapped_publish(_Atomic uint32_t *flag, uint32_t seq);
void vb_mapped_done(struct vb_coll *coll, const struct request *rq); /* may defer the flag */
void vb_mapped_publish_done(struct vb_coll *coll);                   /* sets a deferred flag */
void vb_mapped_wake(struct vb_coll *coll);

/* ---- cost.c ---------------------------------------------------------------------------------- */

#define CLASSES 96 /* size classes: two per octave */
#define NEAR_BYTES                                                                                 \
    ((size_t)1 << 20) /* the part of a vector that stays in caches while it is sent */

/* The figures that algorithms are chosen by, in us and us per byte; see cost_measure.c. */
struct cost_model {
    double latency, post, byte, sum, flag, byte_mapped;
    double far; /* the extra cost of a byte beyond NEAR_BYTES */
    uint64_t eager_bytes;
    unsigned char choice[CLASSES];
    unsigned char many[CLASSES]; /* the choice while other requests are under way */
};

/* Collective: measures the links, chooses the algorithms and sends the choice to all ranks. */
vb_status vb_cost_open(struct vb_coll *coll);
void vb_cost_close(struct vb_coll *coll);

/* Returns why an algorithm is not possible, or NULL if it is possible. */
const char *vb_coll_cannot(const struct vb_coll *coll, enum vb_algo algo);

/* ---- cost_measure.c -------------------------------------------------------------------------- */

/* Collective: measures the figures of the model. m must already be coll->cost, because the fit uses
 * its predictions. */
vb_status vb_cost_measure(struct vb_coll *coll, struct cost_model *m);

#endif
