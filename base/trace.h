/* SPDX-License-Identifier: MIT
 *
 * What threads do and for how long: counts of each operation, and while a trace is on, one event
 * for each. All state belongs to a struct vb_trace, which a thread is given with
 * vb_trace_attach(); a thread without one pays for a load and a branch.
 *
 *     uint64_t begin = vb_trace_begin();
 *     ... work ...
 *     vb_trace_end(begin, VB_OP_UPDATE, n_bytes);
 */
#ifndef VB_BASE_TRACE_H
#define VB_BASE_TRACE_H

#include "base/base.h"

#include <stdatomic.h>

/* ---- operations ------------------------------------------------------------------------------ */

#define VB_TRACE_OPS 256 /* maximum number of operations of a rank */
#define VB_TRACE_THREADS 16
#define VB_TRACE_TEXT 24

/* Operations that every rank has. vb_trace_op() adds those of layers, from VB_OPS_FIXED on. */
enum vb_op_id {
    VB_OP_ALL, /* the time since counting began */
    VB_OP_STEP,
    VB_OP_DATA,
    VB_OP_FORWARD,
    VB_OP_BACKWARD,
    VB_OP_UPDATE,
    VB_OP_SUMS, /* the part of a step that receives sums */
    VB_OP_EVALUATE,
    VB_OP_CHECKPOINT,
    VB_OP_DELAY, /* a delay that an option asked for */
    VB_OP_LOAD,  /* the loader's thread makes a batch */
    VB_OP_ALLREDUCE,
    VB_OP_REDUCE_SCATTER,
    VB_OP_ALLGATHER,
    VB_OP_BROADCAST,
    VB_OP_BARRIER,
    VB_OP_SPARSE_ALLREDUCE,
    VB_OP_WAIT, /* for a rank that is late */
    VB_OP_WIRE, /* for bytes that are on their way */
    VB_OP_IDLE, /* for whatever comes */
    VB_OP_ARRIVED,
    VB_OP_REDUCE,
    VB_OP_COPY,
    VB_OP_PUT,
    VB_OP_GET,
    VB_OP_NOTE,
    VB_OP_PULL,
    VB_OP_PUSH,
    VB_OP_TICKET,
    VB_OP_APPLY,
    VB_OP_REPLY,
    VB_OP_RECOVERY, /* ranks were lost: from the loss to the next step; and the phases of that: */
    VB_OP_DETECT,
    VB_OP_AGREE,
    VB_OP_FENCE,
    VB_OP_REBUILD,
    VB_OP_RECOMPUTE,
    VB_OPS_FIXED,
};

/* Describes an operation. flops and moved are for one byte of output: a call with n bytes of output
 * makes n * flops floating-point operations, and moves n * moved bytes between memory and cores if
 * each of its arrays is moved once. 0: not known. */
struct vb_trace_op {
    char layer[VB_TRACE_TEXT]; /* "conv1"; "": no layer */
    char pass[VB_TRACE_TEXT];  /* "forward" ...; what belongs together */
    char op[VB_TRACE_TEXT];    /* "conv (gemm)", "allreduce"; ends in "rank": a peer follows */
    char shape[VB_TRACE_TEXT]; /* of the output: "64x6x14x14"; "": it changes */
    double flops, moved;
};

/* How often an operation ran, and how long in total. */
struct vb_trace_sum {
    uint64_t calls, ns, bytes; /* bytes: of the output */
};

/* ---- events ---------------------------------------------------------------------------------- */

enum vb_trace_kind {
    VB_TRACE_SPAN,      /* a call of a thread; calls of a thread nest */
    VB_TRACE_LANE,      /* something that runs beside its thread, and beside others of its kind */
    VB_TRACE_INSTANT,   /* a moment */
    VB_TRACE_FROM = 16, /* added: arrows with this key begin here; otherwise they end here */
};

/* An event, as it is stored in a file. */
struct vb_trace_event {
    uint64_t begin_ns, ns;
    uint64_t bytes;
    uint64_t key; /* the same in both events that an arrow joins; 0: no arrow. Below 2^53 */
    uint32_t op;
    int32_t peer; /* -1: none */
    uint32_t thread;
    uint32_t kind;
};

/* The key of message number n from one rank to another; and of a request of a collective as one
 * rank starts it. Both ends compute them from what they know. */
static inline uint64_t vb_trace_message(int from, int to, uint64_t n)
{
    return UINT64_C(1) << 52 | (uint64_t)(from & 1023) << 42 | (uint64_t)(to & 1023) << 32 |
           (n & UINT32_MAX);
}

static inline uint64_t vb_trace_request(int channel, int rank, uint32_t seq)
{
    return UINT64_C(1) << 51 | (uint64_t)(channel & 255) << 42 | (uint64_t)(rank & 1023) << 32 |
           seq;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct vb_trace;

/* A thread's view of its trace. Only trace.c changes it. */
struct vb_trace_thread {
    struct vb_trace *trace;
    const _Atomic bool *on; /* events are stored */
    bool paused;            /* operations are not counted */
    uint32_t index;
    uint64_t last_ns; /* when this thread has read the clock last, for vb_trace_next() */
};

/* NULL: nothing is measured. This model of access needs no call, also in a library. */
extern _Thread_local struct vb_trace_thread *vb_trace_self
    __attribute__((tls_model("initial-exec")));

extern _Atomic int vb_traces_on; /* number of traces of this process that store events */

/* Returns the time, or 0 if nothing is measured. */
static inline uint64_t vb_trace_begin(void)
{
    return vb_trace_self == NULL ? 0 : (vb_trace_self->last_ns = vb_record_clock_ns());
}

/* The same where the last operation has just begun or ended: does not read the clock again, which
 * takes long on some machines. */
static inline uint64_t vb_trace_next(void)
{
    return vb_trace_self == NULL ? 0 : vb_trace_self->last_ns;
}

/* False if no thread of this process stores events. */
static inline bool vb_trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&vb_traces_on, memory_order_relaxed) != 0, false);
}

/* The same for small parts of operations, which are not counted but are events of a trace. */
static inline uint64_t vb_trace_begin_part(void)
{
    const struct vb_trace_thread *self;

    if (!vb_trace_is_on())
        return 0;
    self = vb_trace_self;
    return self == NULL || !atomic_load_explicit(self->on, memory_order_relaxed)
               ? 0
               : vb_record_clock_ns();
}

/* The slow part of the next two functions. The event is passed in registers, so that a caller whose
 * thread is not measured does not build it in memory. */
uint64_t vb_trace_add(uint64_t begin, int op, uint64_t bytes, int peer, uint64_t key, int kind);

/* Ends what began at `begin`; 0: does nothing. Returns the time, with which the next operation can
 * begin. */
static inline uint64_t vb_trace_end(uint64_t begin, int op, uint64_t bytes)
{
    return begin == 0 ? 0 : vb_trace_add(begin, op, bytes, -1, 0, VB_TRACE_SPAN);
}

static inline void vb_trace_end_with(uint64_t begin, int op, uint64_t bytes, int peer, uint64_t key,
                                     int kind)
{
    if (begin != 0)
        (void)vb_trace_add(begin, op, bytes, peer, key, kind);
}

/* Ends what began ns ago. */
void vb_trace_past(int op, uint64_t ns, int peer, uint64_t key);

/* Adds something that began and ended before, by the record clock, beside what its thread did. */
void vb_trace_beside(int op, uint64_t begin_ns, uint64_t end_ns, int peer);

/* Stores a moment, which is not counted. */
static inline void vb_trace_moment(int op, int peer, uint64_t key)
{
    uint64_t now = vb_trace_begin_part();

    vb_trace_end_with(now, op, 0, peer, key, VB_TRACE_INSTANT);
}

/* ---- traces ---------------------------------------------------------------------------------- */

/* n_events: room for events of each thread that wait to be taken; 0: there are only counts. */
vb_status vb_trace_create(int n_events, struct vb_trace **trace_p);
void vb_trace_destroy(struct vb_trace *trace); /* no thread may be attached; accepts NULL */

/* Gives the calling thread a part of the trace; a thread that ends calls vb_trace_detach() before,
 * and a later thread of the same name continues its part. Does nothing if trace is NULL or
 * VB_TRACE_THREADS threads were attached, which is logged. */
void vb_trace_attach(struct vb_trace *trace, const char *thread);
void vb_trace_detach(void);
struct vb_trace *vb_trace_current(void); /* of the calling thread; NULL: none */

/* Returns the number of an operation, the same for the same description; VB_OP_ALL if there is no
 * trace or no room. Allocates nothing, but takes a lock. */
int vb_trace_op(struct vb_trace *trace, const struct vb_trace_op *op);

/* Sets what one byte of output of a fixed operation costs, before it is read. */
void vb_trace_describe(struct vb_trace *trace, int op, double flops, double moved);

void vb_trace_set(struct vb_trace *trace, bool on); /* events are stored from now on, or no more */

/* Operations are counted from vb_trace_count() to vb_trace_stop(). */
void vb_trace_count(struct vb_trace *trace);
void vb_trace_stop(struct vb_trace *trace);

/* While a thread is paused, its operations are not counted, but are still events. */
void vb_trace_pause(bool pause);

/* ---- reading, by one thread ------------------------------------------------------------------ */

int vb_trace_n_ops(struct vb_trace *trace);
const struct vb_trace_op *vb_trace_op_at(const struct vb_trace *trace, int op);
struct vb_trace_sum vb_trace_sum(struct vb_trace *trace, int op); /* of all threads */

int vb_trace_n_threads(struct vb_trace *trace);
const char *vb_trace_thread_name(const struct vb_trace *trace, int thread);

/* Returns events of a thread that lie one after the other, and their number. vb_trace_take() frees
 * the first n of them. */
const struct vb_trace_event *vb_trace_peek(struct vb_trace *trace, int thread, size_t *n_p);
void vb_trace_take(struct vb_trace *trace, int thread, size_t n);

uint64_t vb_trace_lost(struct vb_trace *trace); /* events that found no room */

#endif
