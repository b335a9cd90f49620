/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the collectives share. docs/collectives.md explains the words
 * request, share, segment, slot, ring, area, step and lane, the message START with which every
 * request begins, and why areas can be reused. The group's lock guards all of this state.
 *
 * In the collectives a rank is the place of a member in the view of the group (vb_group_regroup()).
 * The group itself knows the member by another number, group_rank().
 */
#ifndef VB_NET_COLL_COLL_PRIV_H
#define VB_NET_COLL_COLL_PRIV_H

#include "base/trace.h"
#include "net/group/group_inside.h"
#include "net/coll/reduce.h"

#include <stdatomic.h>

#define RING_SLOTS 8u /* maximum number of segments in flight from one rank to another */
#define RINGS 2       /* ring 0 is for parts of sums, ring 1 for results in bfloat16 */
#define NO_RANK (-1)
#define STRAIGHT_BYTES ((size_t)4 * 1024) /* gather does not copy vectors from this length on */
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

/* The head of a slot. A small payload follows in the same cache line. A rank writes the head into
 * its own window, where mapped peers read it, and puts the head to the other peers. */
struct slot_head {
    _Atomic uint32_t seq; /* mapped: the request that the sender has started */
    uint32_t what;        /* kind of request, reduction and algorithm */
    uint32_t root;
    uint32_t n_older; /* number of older requests that the sender has under way */
    uint64_t n_bytes;
    uint64_t place; /* offset of the range; allgather: a digest of all offsets and lengths */
};

/* The state of a rank that mapped peers read. It lies in the rank's own window. */
struct own_state {
    /* The last request whose share this rank has done. All earlier shares are done, too, so a peer
     * that waits for many requests reads only one cache line. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t done;
    /* Not 0: this rank may be asleep, so a peer sends a note after the peer has set a flag. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t waiting;
};

/* ---- steps ----------------------------------------------------------------------------------- */

enum step_kind {
    STEP_WAIT,   /* does nothing except wait for its conditions */
    STEP_START,  /* puts this rank's own slot into its slot at a peer */
    STEP_SEND,   /* puts a segment into a peer's ring */
    STEP_PLACE,  /* puts bytes to their final place in a peer's data */
    STEP_REDUCE, /* sums sources into this rank's data */
    STEP_EXPAND, /* copies a segment of bfloat16 from a ring to its final place */
    STEP_READ,   /* mapped: copies bytes of a peer's data */
    STEP_DONE,   /* mapped: says that this rank's share is done */
};

/* The place of the peers' contributions. THEIR_SLOT: the own slots of the peers. */
enum source_place { FROM_RING, FROM_SLOT, FROM_THEIR_SLOT };

struct step {
    enum step_kind kind;

    /* The conditions of the step. */
    int started_lo, started_hi; /* ranks lo to hi - 1 must have started the request */
    int result_of;              /* a result from this rank must have come; NO_RANK: no condition */
    int after_lane;             /* this lane must have done at least `after` steps */
    uint32_t after;
    bool all_left; /* the sources of all earlier puts of the request may be overwritten */

    /* The range of the data, and the peer. */
    size_t at, len_bytes;
    int peer; /* the rank that this step puts to or copies from */
    int ring;

    /* STEP_REDUCE: the sources, in the order of summing. First come the contributions of the ranks
     * in parts; if this rank is one of them, the source is its own data. Then comes the mapped data
     * of ranks local_lo to local_hi - 1, which includes this rank. */
    const int *parts;
    int n_parts;
    enum source_place place;
    int local_lo, local_hi;
    bool last;      /* the sum is complete, so mean and rounding are applied */
    bool spread;    /* mapped: the sum is written to the data of all ranks */
    bool completes; /* mapped: this step completes the share of this rank */
};

struct lane {
    uint32_t at, n; /* number of steps done; number of steps */
};

struct vb_coll;
struct request;

/* An algorithm. plan() sets up the lanes of a request. step() fills in step i of a lane. The fields
 * of *s are zero before the call, except that result_of is NO_RANK. In all algorithms except the
 * mapped one, lane 0 puts START to every peer, and coll_run.c fills in its steps. */
struct schedule {
    void (*plan)(struct vb_coll *coll, struct request *rq);
    void (*step)(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                 struct step *s);
};

extern const struct schedule vb_schedule_mapped, vb_schedule_gather, vb_schedule_exchange,
    vb_schedule_owner, vb_schedule_chain, vb_schedule_ring, vb_schedule_halving,
    vb_schedule_two_level, vb_schedule_allgather, vb_schedule_broadcast;

/* ---- state ----------------------------------------------------------------------------------- */

/* The state of a request for one peer. */
struct request_peer {
    bool started;            /* the peer has started the same request */
    bool head_sent;          /* the head, or a note that announces START, was put to the peer */
    bool start_sent;         /* START was put to the peer */
    uint32_t to_send[RINGS]; /* number of segments still to be put into the peer's ring */
    uint32_t to_take[RINGS]; /* number of segments still to be taken out of our ring */
    uint32_t took[RINGS];    /* number of segments taken out of our ring */
    uint32_t results;        /* number of results that steps have taken */
    uint64_t last_put;       /* the number of the last put to the peer */
};

struct request {
    uint32_t seq;
    bool active;
    bool mapped; /* ranks set flags in memory instead of sending notes */
    bool eager;  /* the vector is sent in the slot, behind the head */
    bool direct; /* eager, but the vector is put from the data and not copied to the own slot */
    enum request_kind kind;
    enum vb_algo algo;
    enum vb_reduce how;
    int root;
    int owner; /* the only rank that gets the vector with START; NO_RANK: all ranks get it */
    size_t offset, n_bytes;          /* the range of the data */
    size_t share_at, share_len;      /* mapped: the share that this rank sums */
    size_t *offsets, *lens;          /* allgather: the range of each rank */
    const struct schedule *schedule; /* NULL: a barrier with puts, which has only lane 0 */
    struct lane *lanes;
    int n_lanes;
    int n_started;    /* ranks 0 to n_started - 1 have started this request */
    uint32_t n_older; /* set at the end of the request: the smallest n_older in all heads */
    struct request_peer *peers;
    struct vb_req *handle; /* the caller's handle */
    uint64_t begin_ns;     /* for the trace; 0: nothing is measured */
};

/* For each stream, the number of messages that have come from one peer for one request. */
struct arrivals {
    uint32_t n[STREAM_RESULT + 1];
};

struct way {
    int rank;              /* the rank of the peer in the group */
    char *base;            /* the window of the peer if it is mapped; NULL: not mapped */
    uint32_t sent[RINGS];  /* number of segments put into the peer's ring */
    uint32_t freed[RINGS]; /* number of these that the peer has reported as taken out */
    uint32_t taken[RINGS]; /* number of segments of the peer taken out of our ring */
    uint32_t owed[RINGS];  /* number of these not yet reported to the peer */
    struct vb_op *puts;    /* n_puts ops that are used in turn */
    uint64_t posted, left; /* number of puts; number of those whose source is free again */
    uint64_t read_bytes, written_bytes; /* in mapped memory; the group has not been told yet */
};

/* Which windows a rank has mapped. All numbers are ranks of the group. */
struct neighbours {
    int32_t lo, hi;    /* the rank has mapped the windows of ranks lo to hi - 1 */
    int32_t scattered; /* 1: the rank has also mapped other windows */
};

/* Which ranks share memory with this rank, and which ranks are on the same host. */
struct coll_hosts {
    bool all_mapped;
    int lo, hi;      /* this rank is in lo to hi - 1, and the windows of these ranks are mapped */
    bool contiguous; /* on every host the ranks have consecutive numbers */
    int *leaders;    /* the lowest rank of each host, in ascending order */
    int n, mine;     /* number of hosts; the index of this rank's host */
};

/* The layout of the window: offsets and sizes in bytes. */
struct coll_layout {
    size_t len_bytes; /* length of the data */
    size_t own_at, heads_at, own_slots_at, slots_at, rings_at, stages_at;
    size_t slot_bytes;  /* length of a slot, with its head */
    size_t seg_bytes;   /* length of a segment in float32; bfloat16 sends half as much */
    size_t rest_bytes;  /* a rest of up to this length is sent as a part of the last segment */
    size_t eager_bytes; /* mapped: vectors up to this length are copied to slots */
};

struct coll_requests {
    uint32_t n, n_areas; /* powers of two */
    struct request *table;
    uint32_t seq;              /* number of requests started */
    uint32_t since_many;       /* number of requests since the last one that was one of many */
    uint32_t first_seq;        /* number of requests that measured links; the caller's come later */
    uint32_t oldest;           /* the oldest request that may be active */
    struct arrivals *arrivals; /* one for each area and rank */
    uint32_t *area_seq;        /* the current request of each area */
};

struct coll_mapped {
    int n_running;       /* number of mapped requests under way */
    bool wake_due;       /* flags were set, so vb_mapped_wake() must be called */
    uint32_t done;       /* the last request whose share this rank has done */
    uint32_t all_done;   /* the last request that this rank has seen done by all ranks */
    uint32_t next_share; /* this rank has done its shares of all requests before this one */
    size_t done_bytes;   /* number of bytes of shares that are done but not published; 0: none */
};

struct cost_model;

struct vb_coll {
    struct vb_group *group;
    struct vb_window *win;
    struct vb_coll_opts opts;
    int rank, world;
    int n_ways;  /* number of ranks at the start; the ways of the first world of them are used */
    int channel; /* 0: none */
    struct group_follower follower;
    bool is_elastic;   /* the group is */
    unsigned n_fenced; /* group_n_fenced() when the members were last checked */
    vb_status failed;
    bool blocked;  /* a step must wait for a free op or for its turn, so run again */
    char *base;    /* this rank's window */
    int *everyone; /* the ranks 0 to world - 1 */
    struct way *ways;
    uint64_t n_puts;        /* number of ops of each way; a power of two */
    struct source *sources; /* the sources of the current sum; world + 1 elements */
    float **also;           /* the other places that the result of the current sum is written to */
    struct coll_layout lay;
    struct coll_requests reqs;
    struct coll_mapped mapped;
    struct coll_hosts hosts;
    struct neighbours *neighbours; /* of each rank of the start */
    struct cost_model *cost;
    struct {
        uint64_t wire_bytes;
        uint64_t untold_bytes; /* sum of read_bytes and written_bytes of all ways */
        uint64_t summed_ns;    /* time spent in long sums */
    } stats;
    struct {
        uint32_t came, wanted;
    } probes; /* the notes that measure links */
};

static inline int group_rank(const struct vb_coll *coll, int rank)
{
    return coll->ways[rank].rank;
}

/* ---- layout ---------------------------------------------------------------------------------- */

static inline size_t own_slot_at(const struct vb_coll *coll, uint32_t seq)
{
    return coll->lay.own_slots_at + (seq & (coll->reqs.n_areas - 1)) * coll->lay.slot_bytes;
}

/* Returns the offset of the head of a mapped request in its sender's window. Two heads without
 * vectors share a cache line, so that a peer fetches half as many lines. */
static inline size_t mapped_head_at(const struct vb_coll *coll, uint32_t seq, bool eager)
{
    size_t area = seq & (coll->reqs.n_areas - 1);

    return eager ? own_slot_at(coll, seq) : coll->lay.heads_at + area * sizeof(struct slot_head);
}

/* Returns the offset of this rank's head in its own window. */
static inline size_t own_head_at(const struct vb_coll *coll, const struct request *rq)
{
    return mapped_head_at(coll, rq->seq, rq->eager || !rq->mapped);
}

static inline size_t slot_at(const struct vb_coll *coll, uint32_t seq, int rank)
{
    size_t area = seq & (coll->reqs.n_areas - 1);

    return coll->lay.slots_at + (area * (size_t)coll->world + (size_t)rank) * coll->lay.slot_bytes;
}

/* A slot of a ring holds a segment and the rest of a range behind it. */
static inline size_t ring_slot_bytes(const struct vb_coll *coll)
{
    return coll->lay.seg_bytes + coll->lay.rest_bytes;
}

/* Returns the offset of segment number k in the ring that belongs to a sender. */
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

static inline struct own_state *own_of(const struct vb_coll *coll, char *base)
{
    return (struct own_state *)(void *)(base + coll->lay.own_at);
}

static inline struct slot_head *head_at(char *base, size_t at)
{
    return (struct slot_head *)(void *)(base + at);
}

/* Vectors are sent as bfloat16. */
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
 * fewer segments. */
static inline void set_segment(const struct vb_coll *coll, struct step *s, size_t at,
                               size_t len_bytes, uint32_t j)
{
    uint32_t n = segments(coll, len_bytes);
    size_t first = j < n ? (size_t)j * coll->lay.seg_bytes : len_bytes;

    s->at = at + first;
    s->len_bytes = j + 1 < n ? coll->lay.seg_bytes : len_bytes - first;
}

/* Returns the byte range of share c in a request whose vector is divided into n shares. */
void vb_request_share(const struct request *rq, int n, int c, size_t *at_p, size_t *len_p);

static inline uint32_t share_segments(const struct vb_coll *coll, const struct request *rq, int n,
                                      int c)
{
    size_t at, len;

    vb_request_share(rq, n, c, &at, &len);
    return segments(coll, len);
}

/* Returns the rank that is i places after this one; rank 0 follows the last rank. */
static inline int peer_after(const struct vb_coll *coll, int i)
{
    return (coll->rank + i) % coll->world;
}

/* coll_open.c: like vb_coll_open(), but pretends that each ranks_per_host consecutive ranks are one
 * host, and does not map the windows of other hosts. With this, tests run multi-host algorithms on
 * one host. If ranks_per_host is 0, the real hosts are used. */
vb_status vb_coll_open_split(struct vb_group *group, size_t len_bytes,
                             const struct vb_coll_opts *opts, int ranks_per_host,
                             struct vb_coll **coll_p);

/* Finds the hosts of the members. All members get the same result. */
void vb_coll_find_hosts(struct vb_coll *coll);

/* ---- coll_regroup.c -------------------------------------------------------------------------- */

/* Sets all state of requests to that of the beginning. Requests are numbered from first + 1. */
void vb_coll_begin(struct vb_coll *coll, uint32_t first);

void vb_coll_follow(struct vb_coll *coll); /* the group tells the collective when members change */
void vb_coll_unfollow(struct vb_coll *coll);

/* Ends all requests under way with this status, and refuses new ones. */
void vb_coll_fail(struct vb_coll *coll, vb_status st);

/* Fails, and logs why, if a member is gone. The caller holds the lock. */
void vb_coll_check_members(struct vb_coll *coll);

/* Returns whether requests can advance. The caller holds the lock. */
static inline bool coll_works(struct vb_coll *coll)
{
    if (coll->n_fenced != group_n_fenced(coll->group))
        vb_coll_check_members(coll);
    return coll->failed == VB_OK;
}

/* ---- coll_run.c ------------------------------------------------------------------------------ */

void vb_coll_run(struct vb_coll *coll); /* advances all requests as far as possible */

/* Advances one request, and also the others if a step was blocked. */
void vb_coll_run_request(struct vb_coll *coll, struct request *rq);

/* Called by a wait. Advances only requests that no note advances: mapped and blocked ones. Also
 * checks whether rq is finished. */
void vb_coll_poll(struct vb_coll *coll, struct request *rq);
void vb_coll_note(void *arg, int rank, uint32_t value); /* handles the notes of the channel */

/* ---- coll_steps.c ---------------------------------------------------------------------------- */

/* Tells the group how many bytes were read from and written to mapped memory of peers. */
void vb_coll_tell_touched(struct vb_coll *coll);

/* Does a step whose conditions hold. Returns false if the step cannot be done now. */
bool vb_step_do(struct vb_coll *coll, struct request *rq, const struct step *s);

/* Puts len bytes to a rank, with a note on the channel of the collectives. Returns false if too
 * many puts are under way or the group has failed. */
bool vb_coll_put(struct vb_coll *coll, int to, size_t src, size_t dst, size_t len, uint32_t value);
uint32_t vb_coll_note_value(enum stream stream, uint32_t low);

/* Updates way->left, the number of puts to a peer whose source may be overwritten. */
void vb_coll_reap(struct vb_coll *coll, struct way *way);

/* Tells peers which slots of their rings are free again. */
void vb_coll_give_back(struct vb_coll *coll);

/* ---- straggler.c ----------------------------------------------------------------------------- */

/* The rank that a wait for a request is waiting for. At first all fields are zero, except that rank
 * is NO_RANK. */
struct straggler {
    uint64_t begin_ns;  /* start of the current wait; 0: the clock was not read yet */
    uint64_t summed_ns; /* stats.summed_ns at begin_ns */
    int rank;           /* the rank waited for since begin_ns; NO_RANK: none */
    uint32_t seq;       /* of the request that is waited for */
};

void vb_straggler_begin(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                        uint64_t now_ns);

/* Notes which rank the wait is now waiting for. from is the rank that the request waits for. The
 * caller holds the lock. */
void vb_straggler_look(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                       int from);
void vb_straggler_end(struct straggler *straggler, struct vb_coll *coll);

/* ---- coll_peers.c ---------------------------------------------------------------------------- */

/* Returns whether ranks lo to hi - 1 have started this request. A rank that has started a different
 * request ends the group. */
bool vb_request_started_by(struct vb_coll *coll, struct request *rq, int lo, int hi);
/* Returns whether all ranks have done their shares of a mapped request. */
bool vb_request_done_by_all(struct vb_coll *coll, const struct request *rq);

/* Returns the rank that a request under way waits for, or NO_RANK. */
int vb_request_waits_for(const struct vb_coll *coll, const struct request *rq);
void vb_request_describe(const struct vb_coll *coll, const struct request *rq, char *text,
                         size_t size);

/* Sets a flag that mapped peers read. A peer that sees the flag also sees all earlier writes. The
 * caller then wakes sleeping peers with vb_mapped_wake(), once for any number of flags. */
void vb_mapped_publish(_Atomic uint32_t *flag, uint32_t seq);
void vb_mapped_done(struct vb_coll *coll, const struct request *rq); /* may set the flag later */
void vb_mapped_publish_done(struct vb_coll *coll);                   /* sets the flag now */
void vb_mapped_wake(struct vb_coll *coll);

/* ---- cost.c ---------------------------------------------------------------------------------- */

#define CLASSES 96                   /* size classes: two per octave */
#define NEAR_BYTES ((size_t)1 << 20) /* a vector up to this length stays in caches */

/* The figures of the cost model, in us and us per byte. cost_measure.c explains them. */
struct cost_model {
    double latency, post, byte, sum, flag, byte_mapped;
    double message; /* until a message has come, as measured and not fitted to anything */
    double far;     /* the extra cost of each byte of a vector beyond NEAR_BYTES */
    uint64_t eager_bytes;
    unsigned char choice[CLASSES];
    unsigned char many[CLASSES]; /* the choice if many requests are under way */
};

/* All ranks call this together. Measures the links and chooses the algorithms; rank 0 sends its
 * choice to all ranks. */
vb_status vb_cost_open(struct vb_coll *coll);

/* All members call this together after their number has changed. Chooses the algorithms again, from
 * the old figures. */
vb_status vb_cost_again(struct vb_coll *coll);

/* Returns a text that says why an algorithm is not possible, or NULL if it is possible. */
const char *vb_coll_cannot(const struct vb_coll *coll, enum vb_algo algo);

/* cost_measure.c: all ranks call this together. Measures the figures of the model m. coll->cost
 * must already be m, because the measurement also uses predictions of the model. */
vb_status vb_cost_measure(struct vb_coll *coll, struct cost_model *m);

#endif
