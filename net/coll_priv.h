/* SPDX-License-Identifier: MIT
 *
 * The collectives from inside: coll_open.c makes the window, coll_start.c has what callers call,
 * schedule.c the one loop that runs every algorithm, coll_steps.c what its steps do, coll_here.c
 * how ranks find each other, coll_mapped.c, coll_rank.c, coll_any.c and coll_hosts.c the
 * algorithms, reduce.c the sums, cost.c the choice between algorithms, cost_measure.c its figures.
 *
 * Words:
 *   share     the part of a vector that one rank sums for all: rank c has share c.
 *   segment   the unit in flight: a share goes as so many of them, the last one shorter.
 *   slot      room for one message of one peer: small ones with their head, one a peer and area.
 *   ring      room for the segments under way from one peer, taken and freed in turn.
 *   area      the counters and slots of an operation: sequence number modulo their number.
 *   step      what one rank does at once: put, reduce, copy. Computed when its turn comes, never
 *             stored, so a schedule of any length needs no memory.
 *   lane      steps that one rank does one after another. The lanes of an operation get on
 *             independently, but for what a step waits for.
 *
 * Every operation begins with a message HERE to every peer, with what the sender is about to do. It
 * tells who is late, shows a rank that brings another size, and makes areas safe to use again:
 *
 *   There are twice as many areas as operations may be under way (N). Who starts operation s has
 *   finished s - N, so everybody had started that one (nobody finishes before all are here), so
 *   everybody had finished s - 2N: nothing of it is read or still on its way.
 *
 * All state is guarded by the group's lock.
 */
#ifndef VB_COLL_PRIV_H
#define VB_COLL_PRIV_H

#include "net/group_priv.h"

#define RING_SLOTS 8u /* segments on their way from one rank to another, at most */
#define RINGS 2       /* 0: parts of sums; 1: results, which need one only in bfloat16 */
#define NO_RANK (-1)
#define STRAIGHT_BYTES ((size_t)4 * 1024) /* a gather's vector from this on is not copied */
#define SEQ_MASK 0x1fffffu

enum stream {
    STREAM_HERE,
    STREAM_PART,
    STREAM_RESULT,
    STREAM_FREE,
    STREAM_WAKE,
    STREAM_PROBE,
    STREAMS
};

enum op_kind { OP_ALLREDUCE, OP_REDUCE_SCATTER, OP_ALLGATHER, OP_BROADCAST, OP_BARRIER };

/* What a slot begins with; small payloads follow in the same cache line. In one's own window it is
 * what mapped peers look at, and what is put to the others. */
struct slot_head {
    _Atomic uint32_t seq; /* mapped: the sender has begun this operation */
    uint32_t what;        /* operation, reduction and algorithm */
    uint32_t root;
    uint32_t deep; /* older operations that the sender has under way */
    uint64_t n_bytes;
    uint64_t place; /* the offset; allgather: a digest of all offsets and lengths */
};

/* In one's own window, for mapped peers to look at. */
struct own_state {
    /* The last operation whose share this rank has done. It does them in order, so one number tells
     * of all, and a peer that waits for many looks at one line. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t done;
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t waiting; /* a note must follow what is written */
};

/* ---- reduce.c -------------------------------------------------------------------------------- */

enum source_type { SOURCE_F32, SOURCE_F32_ROUNDED, SOURCE_BF16 };

struct source {
    const void *ptr;
    enum source_type type;
};

struct finish {
    float scale; /* 1: a plain sum */
    bool round;  /* to bfloat16 */
};

/* dst[i] = ((s0[i] + s1[i]) + s2[i]) + ..., then the finish. dst may be one of the sources; also:
 * more places for the result, n_also of them. */
void coll_sum(float *dst, float *const *also, int n_also, const struct source *sources,
              int n_sources, size_t n_elems, const struct finish *finish);

void coll_narrow(uint16_t *dst, const float *src, size_t n_elems);
void coll_widen(float *dst, const uint16_t *src, size_t n_elems);

/* net/reduce.c: these three at a level of instructions. The bits are the same at all of them. */
struct reduce_level {
    void (*sum)(float *dst, float *const *also, int n_also, const struct source *sources,
                int n_sources, size_t n_elems, const struct finish *finish);
    void (*narrow)(uint16_t *dst, const float *src, size_t n_elems);
    void (*widen)(float *dst, const uint16_t *src, size_t n_elems);
};

extern const struct reduce_level reduce_level, reduce_level_v3, reduce_level_v4;

/* ---- steps ----------------------------------------------------------------------------------- */

enum step_kind {
    STEP_WAIT,   /* for its conditions alone */
    STEP_HERE,   /* puts one's own slot to a peer's */
    STEP_SEND,   /* puts a segment into a peer's ring */
    STEP_PLACE,  /* puts bytes to where they belong at a peer */
    STEP_REDUCE, /* sums sources into one's own data */
    STEP_EXPAND, /* copies a segment of bfloat16 from a ring to its place */
    STEP_READ,   /* mapped: copies bytes of a peer's data */
    STEP_DONE,   /* mapped: tells that one's share is done */
};

/* Where the contributions of peers lie. */
enum source_place { FROM_RING, FROM_SLOT, FROM_THEIR_SLOT };

struct step {
    enum step_kind kind;

    /* Conditions. */
    int here_lo, here_hi; /* these ranks are here */
    int result_of;        /* a result of this rank has come, which this step takes; NO_RANK: none */
    int after_lane;       /* this lane has done so many steps */
    uint32_t after;
    bool all_left; /* what was put needs its source no more */

    /* Where: a range of the data. */
    size_t at, len_bytes;
    int peer; /* whom to send to or take from */
    int ring;

    /* Reduce: sources in the order of summing. First those of parts (this rank among them stands
     * for its own data), then the data of ranks local_lo to local_hi - 1, mapped. */
    const int *parts;
    int n_parts;
    enum source_place place;
    int local_lo, local_hi;
    bool last;   /* the sum is complete: mean and rounding */
    bool spread; /* mapped: the sum goes to the data of all ranks */
    bool tell;   /* ... and with it this rank has done its share */
};

struct lane {
    uint32_t at, n;
};

struct vb_coll;
struct op;

/* An algorithm: plan sets the lanes, step computes the i-th step of a lane (all fields zero or
 * NO_RANK when called, the conditions empty). */
struct schedule {
    void (*plan)(struct vb_coll *coll, struct op *op);
    void (*step)(const struct vb_coll *coll, const struct op *op, int lane, uint32_t i,
                 struct step *s);
};

extern const struct schedule schedule_mapped, schedule_gather, schedule_exchange, schedule_owner,
    schedule_chain, schedule_ring, schedule_halving, schedule_two_level, schedule_allgather,
    schedule_broadcast, schedule_barrier;

/* ---- state ----------------------------------------------------------------------------------- */

/* An operation and a peer. */
struct op_peer {
    bool here;               /* it is, and does the same as we */
    bool headed;             /* the head of a vector that goes straight from the data */
    bool told;               /* HERE was put to it */
    uint32_t to_send[RINGS]; /* segments still to go into its ring */
    uint32_t to_take[RINGS]; /* and still to come out of ours */
    uint32_t took[RINGS];    /* taken out */
    uint32_t results;        /* taken */
    uint64_t last_put;       /* the number of the last put to it */
};

struct op {
    uint32_t seq;
    bool active;
    bool mapped; /* HERE and DONE are flags in memory, not notes */
    bool eager;  /* mapped or gathered in one's slot */
    bool direct; /* gathered, but sent straight from the data: the slot has the head alone */
    enum op_kind kind;
    enum vb_algo algo;
    enum vb_reduce how;
    int root;
    int owner;                  /* whom the vector goes to with HERE; NO_RANK: to all, if it does */
    size_t offset, n_bytes;     /* of the data */
    size_t share_at, share_len; /* mapped: what this rank sums */
    size_t *offsets, *lens;     /* allgather: of each rank */
    const struct schedule *schedule;
    struct lane *lanes;
    int n_lanes;
    int n_here;    /* ranks from 0 that are here */
    uint32_t deep; /* when it is over: the least of the heads */
    struct op_peer *peers;
    struct vb_req *req;
};

/* Messages of a peer that have come for an operation. */
struct arrivals {
    uint32_t n[STREAM_RESULT + 1];
};

/* A way to a peer. */
struct way {
    char *base;            /* its window, where mapped */
    uint32_t sent[RINGS];  /* segments put into its ring */
    uint32_t freed[RINGS]; /* and taken out again, as far as it told */
    uint32_t taken[RINGS]; /* segments taken out of our ring for it */
    uint32_t owed[RINGS];  /* of these, not yet told */
    struct vb_op *puts;    /* n_puts of them, used in turn */
    uint64_t posted, left; /* puts, and those of them that need their source no more */
};

struct model;

struct vb_coll {
    struct vb_group *group;
    struct vb_window *win;
    struct vb_coll_opts opts;
    int rank, world;
    int channel;
    char *base; /* this rank's window */
    bool all_mapped;
    int host_lo, host_hi; /* ranks around this one whose windows are mapped, without a gap */
    bool contiguous;      /* every host's ranks are such a range */
    int *leaders;         /* the first rank of each host, in order */
    int n_leaders, my_host;
    int *everyone; /* 0 .. world - 1 */

    /* The window. */
    size_t len_bytes; /* of the data */
    size_t own_at, heads_at, own_slots_at, slots_at, rings_at, stages_at;
    size_t slot_bytes;  /* with the head */
    size_t seg_bytes;   /* of float32; in bfloat16 half as much travels */
    size_t rest_bytes;  /* up to this, what is left of a range goes with its last segment */
    size_t eager_bytes; /* mapped: up to this the slots are used */

    uint32_t n_ops, n_areas; /* powers of two */
    struct op *ops;
    uint32_t seq;              /* operations started */
    uint32_t since_many;       /* operations that were not one of many, after each other */
    uint32_t first_seq;        /* so many of them to measure: callers count from there */
    uint32_t oldest;           /* the oldest that may be active */
    struct arrivals *arrivals; /* an area and rank */
    uint32_t *area_seq;        /* whose turn it is */
    struct way *ways;
    uint64_t n_puts;        /* a power of two */
    struct source *sources; /* of the sum at hand: room for world + 1 */
    float **also;           /* its other places */
    vb_status failed;
    bool blocked;        /* something found no room, or has to wait for its turn: try again */
    int n_mapped;        /* mapped operations under way */
    bool told;           /* flags were set: mapped_wake() is due */
    uint32_t done;       /* mapped: the last share that is done */
    uint32_t all_done;   /* ... by all ranks, as far as was seen */
    uint32_t next_share; /* mapped: operations before it have their shares done */
    size_t done_bytes;   /* ... and how much of that is to be told, 0: nothing */
    uint64_t wire_bytes;
    uint64_t summed_ns; /* that long sums have taken */
    struct model *model;
    uint32_t probes, probes_wanted; /* notes that came, to measure */
};

/* ---- layout ---------------------------------------------------------------------------------- */

static inline size_t own_slot_at(const struct vb_coll *coll, uint32_t seq)
{
    return coll->own_slots_at + (seq & (coll->n_areas - 1)) * coll->slot_bytes;
}

/* Where a mapped operation's head lies in the window of the rank that brings it. Where the vector
 * does not go along they are packed, two a cache line: a peer fetches half as many. */
static inline size_t mapped_head_at(const struct vb_coll *coll, uint32_t seq, bool eager)
{
    size_t area = seq & (coll->n_areas - 1);

    return eager ? own_slot_at(coll, seq) : coll->heads_at + area * sizeof(struct slot_head);
}

/* Where this rank's head lies in its own window. */
static inline size_t own_head_at(const struct vb_coll *coll, const struct op *op)
{
    return mapped_head_at(coll, op->seq, op->eager || !op->mapped);
}

static inline size_t slot_at(const struct vb_coll *coll, uint32_t seq, int rank)
{
    size_t area = seq & (coll->n_areas - 1);

    return coll->slots_at + (area * (size_t)coll->world + (size_t)rank) * coll->slot_bytes;
}

/* Room for a segment with a rest. */
static inline size_t ring_slot_bytes(const struct vb_coll *coll)
{
    return coll->seg_bytes + coll->rest_bytes;
}

/* The place of segment number k in the ring that belongs to a sender; all are of one size. */
static inline size_t ring_at(const struct vb_coll *coll, int ring, int sender, uint32_t k)
{
    size_t row = (size_t)ring * (size_t)coll->world + (size_t)sender;

    return coll->rings_at + (row * RING_SLOTS + k % RING_SLOTS) * ring_slot_bytes(coll);
}

static inline size_t stage_at(const struct vb_coll *coll, int ring, int to, uint32_t k)
{
    size_t row = (size_t)ring * (size_t)coll->world + (size_t)to;

    return coll->stages_at + (row * RING_SLOTS + k % RING_SLOTS) * (ring_slot_bytes(coll) / 2);
}

static inline struct op *op_at(const struct vb_coll *coll, uint32_t seq)
{
    return &coll->ops[seq & (coll->n_ops - 1)];
}

static inline struct arrivals *arrivals_of(const struct vb_coll *coll, uint32_t seq, int rank)
{
    size_t area = seq & (coll->n_areas - 1);

    return &coll->arrivals[area * (size_t)coll->world + (size_t)rank];
}

/* What a rank tells in its window. */
static inline struct own_state *own_of(const struct vb_coll *coll, char *base)
{
    return (struct own_state *)(void *)(base + coll->own_at);
}

static inline struct slot_head *head_at(char *base, size_t at)
{
    return (struct slot_head *)(void *)(base + at);
}

/* Whether sums travel as bfloat16. */
static inline bool is_narrow(const struct vb_coll *coll)
{
    return coll->opts.wire == VB_WIRE_BF16;
}

/* Segments of len bytes. */
static inline uint32_t segments(const struct vb_coll *coll, size_t len_bytes)
{
    size_t whole = len_bytes / coll->seg_bytes, rest = len_bytes % coll->seg_bytes;

    return (uint32_t)(whole + (rest > (whole > 0 ? coll->rest_bytes : 0)));
}

/* Segment j of a range: sets at and len_bytes of a step; empty where the range has fewer. */
static inline void set_segment(const struct vb_coll *coll, struct step *s, size_t at,
                               size_t len_bytes, uint32_t j)
{
    uint32_t n = segments(coll, len_bytes);
    size_t first = j < n ? (size_t)j * coll->seg_bytes : len_bytes;

    s->at = at + first;
    s->len_bytes = j + 1 < n ? coll->seg_bytes : len_bytes - first;
}

/* The range of share c of n in an operation's bytes. */
void op_share(const struct op *op, int n, int c, size_t *at_p, size_t *len_p);

/* ---- coll_open.c ----------------------------------------------------------------------------- */

/* Like vb_coll_open(), but so many ranks after each other count as a host, and windows of other
 * hosts as not mapped: to try algorithms of several hosts on one. 0: as it is. */
vb_status coll_open_split(struct vb_group *group, size_t len_bytes, const struct vb_coll_opts *opts,
                          int ranks_per_host, struct vb_coll **coll_p);

/* ---- schedule.c ------------------------------------------------------------------------------ */

/* Gets on with all operations as far as possible. */
void coll_run(struct vb_coll *coll);
void coll_run_op(struct vb_coll *coll, struct op *op); /* likewise, but it is about this one */

/* The same, where notes drive all but what stands still for other reasons; op is waited for. */
void coll_poll(struct vb_coll *coll, struct op *op);
void coll_note(void *arg, int rank, uint32_t value); /* a vb_note_fn */

/* ---- coll_steps.c ---------------------------------------------------------------------------- */

/* Does a step whose conditions hold. False: not now. */
bool step_do(struct vb_coll *coll, struct op *op, const struct step *s);

/* Puts, with a note on the coll's channel. False: no room, or the group has failed. */
bool coll_put(struct vb_coll *coll, int to, size_t src, size_t dst, size_t len, uint32_t value);
uint32_t coll_note_value(enum stream stream, uint32_t low);

/* Sends a note to measure with, and len bytes into slot k of the ring. False: not now. */
bool coll_probe(struct vb_coll *coll, int to, uint32_t k, size_t len_bytes);

/* Counts the puts to a peer that have let go of their source. */
void coll_reap(struct vb_coll *coll, struct way *way);

/* Tells peers of slots that were freed. */
void coll_give_back(struct vb_coll *coll);

/* ---- late.c ---------------------------------------------------------------------------------- */

/* A wait for an operation; zero and NO_RANK at first. */
struct late {
    uint64_t begin_ns;  /* 0: it was over before anybody looked at the clock */
    uint64_t summed_ns; /* then */
    int rank;           /* waited for since then; NO_RANK: for none, or none that is late */
};

void late_begin(struct late *late, struct vb_coll *coll, struct op *op, uint64_t now_ns);

/* With the lock. from: whom the operation waits for. */
void late_look(struct late *late, struct vb_coll *coll, struct op *op, int from);
void late_end(struct late *late, struct vb_coll *coll);

/* ---- coll_here.c ----------------------------------------------------------------------------- */

/* Whether ranks lo to hi - 1 have begun the operation, and it is the same one. */
bool op_are_here(struct vb_coll *coll, struct op *op, int lo, int hi);
bool op_are_done(struct vb_coll *coll, const struct op *op); /* mapped: with their shares */

/* Where an operation that is not done stands: the rank that it waits for. */
int op_waits_for(const struct vb_coll *coll, const struct op *op);
void op_describe(const struct vb_coll *coll, const struct op *op, char *text, size_t size);

/* Tells mapped peers that this rank is here, or done: what was written before can be seen. Who
 * sleeps must be woken then, once for any number of flags. */
void mapped_publish(_Atomic uint32_t *flag, uint32_t seq);
void mapped_done(struct vb_coll *coll, const struct op *op);
void mapped_publish_done(struct vb_coll *coll); /* what mapped_done() has put off */
void mapped_wake(struct vb_coll *coll);

/* Remembers the failure, tells all peers; the first one counts. */
void coll_fail(struct vb_coll *coll, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);

/* ---- cost.c ---------------------------------------------------------------------------------- */

#define CLASSES 96                   /* of sizes: two an octave */
#define NEAR_BYTES ((size_t)1 << 20) /* of a vector: what caches hold of it while it is sent */

/* What algorithms are chosen by. In us, and us a byte. */
struct model {
    double latency, post, byte, sum, flag, byte_mapped;
    double far; /* what a byte costs more that lies beyond NEAR_BYTES */
    uint64_t eager_bytes;
    unsigned char choice[CLASSES];
    unsigned char many[CLASSES]; /* the choice while others are under way, too */
};

/* Collective: measures, chooses, and lets all know. */
vb_status cost_open(struct vb_coll *coll);
void cost_close(struct vb_coll *coll);

/* Why an algorithm is not possible here; NULL: it is. */
const char *coll_cannot(const struct vb_coll *coll, enum vb_algo algo);

/* ---- cost_measure.c -------------------------------------------------------------------------- */

/* Collective: the model's figures. It is in the coll already, for the fit asks it to predict. */
vb_status cost_measure(struct vb_coll *coll, struct model *m);

#endif
