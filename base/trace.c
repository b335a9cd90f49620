/* SPDX-License-Identifier: MIT
 *
 * Each thread has a ring of events, which one other thread empties, and counts of its own, which
 * others only read. So a thread that measures never waits.
 */
#include "base/trace.h"

#include <pthread.h>
#include <stdlib.h>

/* What one thread has measured. `self` must be the first member. */
struct part {
    struct vb_trace_thread self;
    char name[VB_TRACE_TEXT];
    bool in_use; /* a thread has it; guarded by the lock */
    struct vb_trace_event *ring;
    uint64_t mask;
    _Atomic uint64_t put, taken; /* events since the start */
    _Atomic uint64_t lost;
    struct {
        _Atomic uint64_t calls, ns, bytes;
    } sums[VB_TRACE_OPS];
};

struct vb_trace {
    _Atomic bool on;
    pthread_mutex_t lock; /* guards new threads and new operations */
    _Atomic int n_parts, n_ops;
    bool warned;
    struct part *parts[VB_TRACE_THREADS];
    struct vb_trace_op ops[VB_TRACE_OPS];
    _Atomic uint64_t since_ns, until_ns; /* when counting began and ended; 0: it has not */
};

_Thread_local struct vb_trace_thread *vb_trace_self;
_Atomic int vb_traces_on;

static const struct {
    const char *pass, *op;
} fixed[VB_OPS_FIXED] = {
    [VB_OP_ALL] = {"all", "all"},
    [VB_OP_STEP] = {"step", "step"},
    [VB_OP_DATA] = {"data", "next batch"},
    [VB_OP_FORWARD] = {"forward", "forward"},
    [VB_OP_BACKWARD] = {"backward", "backward"},
    [VB_OP_UPDATE] = {"update", "update"},
    [VB_OP_SUMS] = {"comm", "receive sums"},
    [VB_OP_EVALUATE] = {"eval", "evaluate"},
    [VB_OP_CHECKPOINT] = {"checkpoint", "checkpoint"},
    [VB_OP_DELAY] = {"delay", "injected delay"},
    [VB_OP_LOAD] = {"data", "make batch"},
    [VB_OP_ALLREDUCE] = {"collective", "allreduce"},
    [VB_OP_REDUCE_SCATTER] = {"collective", "reduce-scatter"},
    [VB_OP_ALLGATHER] = {"collective", "allgather"},
    [VB_OP_BROADCAST] = {"collective", "broadcast"},
    [VB_OP_BARRIER] = {"collective", "barrier"},
    [VB_OP_SPARSE_ALLREDUCE] = {"collective", "sparse allreduce"},
    [VB_OP_WAIT] = {"wait", "wait for rank"},
    [VB_OP_WIRE] = {"comm", "wait for transfer"},
    [VB_OP_IDLE] = {"wait", "wait"},
    [VB_OP_ARRIVED] = {"part", "arrival of rank"},
    [VB_OP_REDUCE] = {"part", "reduce"},
    [VB_OP_COPY] = {"part", "copy"},
    [VB_OP_PUT] = {"part", "put to rank"},
    [VB_OP_GET] = {"part", "get from rank"},
    [VB_OP_NOTE] = {"part", "note of rank"},
    [VB_OP_PULL] = {"comm", "pull"},
    [VB_OP_PUSH] = {"comm", "push"},
    [VB_OP_TICKET] = {"wait", "wait for ticket"},
    [VB_OP_APPLY] = {"server", "apply"},
    [VB_OP_REPLY] = {"server", "reply"},
    [VB_OP_RECOVERY] = {"recovery", "recovery"},
    [VB_OP_DETECT] = {"recovery", "detect loss of rank"},
    [VB_OP_AGREE] = {"recovery", "agree"},
    [VB_OP_FENCE] = {"recovery", "fence"},
    [VB_OP_REBUILD] = {"recovery", "rebuild"},
    [VB_OP_RECOMPUTE] = {"recovery", "compute step again"},
};

static struct part *part_of(struct vb_trace_thread *self)
{
    return (struct part *)(void *)self;
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Only the part's own thread writes, so this needs no atomic addition. */
static void grow(_Atomic uint64_t *count, uint64_t by)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

static void store(struct part *p, const struct vb_trace_event *e, uint64_t ns)
{
    uint64_t put = atomic_load_explicit(&p->put, memory_order_relaxed);
    struct vb_trace_event *at;

    /* Pairs with the release in vb_trace_take(): the event was read before it is overwritten. */
    if (put - atomic_load_explicit(&p->taken, memory_order_acquire) > p->mask) {
        grow(&p->lost, 1);
        return;
    }
    at = &p->ring[put & p->mask];
    *at = *e;
    at->ns = ns;
    at->thread = p->self.index;
    /* Pairs with the acquire in vb_trace_peek(). */
    atomic_store_explicit(&p->put, put + 1, memory_order_release);
}

static bool is_counting(struct vb_trace *t)
{
    return atomic_load_explicit(&t->since_ns, memory_order_relaxed) != 0 &&
           atomic_load_explicit(&t->until_ns, memory_order_relaxed) == 0;
}

static void add_until(struct part *p, const struct vb_trace_event *e, uint64_t end_ns)
{
    bool instant = (e->kind & 15) == VB_TRACE_INSTANT;
    uint64_t ns = end_ns > e->begin_ns ? end_ns - e->begin_ns : 0;

    if (!p->self.paused && !instant && is_counting(p->self.trace)) {
        grow(&p->sums[e->op].calls, 1);
        grow(&p->sums[e->op].ns, ns);
        grow(&p->sums[e->op].bytes, e->bytes);
    }
    if (atomic_load_explicit(p->self.on, memory_order_relaxed) && p->ring != NULL)
        store(p, e, ns);
}

static uint64_t add(const struct vb_trace_event *e)
{
    bool instant = (e->kind & 15) == VB_TRACE_INSTANT;
    uint64_t now = instant ? e->begin_ns : vb_record_clock_ns();
    struct part *p = part_of(vb_trace_self);

    if (p == NULL)
        return now;
    p->self.last_ns = now;
    add_until(p, e, now);
    return now;
}

uint64_t vb_trace_add(uint64_t begin, int op, uint64_t bytes, int peer, uint64_t key, int kind)
{
    const struct vb_trace_event e = {.begin_ns = begin,
                                     .bytes = bytes,
                                     .key = key,
                                     .op = (uint32_t)op,
                                     .peer = peer,
                                     .kind = (uint32_t)kind};

    return add(&e);
}

void vb_trace_past(int op, uint64_t ns, int peer, uint64_t key)
{
    if (vb_trace_self != NULL)
        (void)vb_trace_add(vb_record_clock_ns() - ns, op, 0, peer, key, VB_TRACE_SPAN);
}

void vb_trace_beside(int op, uint64_t begin_ns, uint64_t end_ns, int peer)
{
    const struct vb_trace_event e = {
        .begin_ns = begin_ns, .op = (uint32_t)op, .peer = peer, .kind = VB_TRACE_LANE};

    if (vb_trace_self != NULL)
        add_until(part_of(vb_trace_self), &e, end_ns);
}

void vb_trace_count(struct vb_trace *t)
{
    uint64_t never = 0;

    if (t != NULL)
        atomic_compare_exchange_strong(&t->since_ns, &never, vb_record_clock_ns());
}

void vb_trace_stop(struct vb_trace *t)
{
    uint64_t never = 0;

    if (t != NULL)
        atomic_compare_exchange_strong(&t->until_ns, &never, vb_record_clock_ns());
}

void vb_trace_pause(bool pause)
{
    if (vb_trace_self != NULL)
        vb_trace_self->paused = pause;
}

/* ---- traces ---------------------------------------------------------------------------------- */

static void describe_fixed(struct vb_trace *t)
{
    int i;

    for (i = 0; i < VB_OPS_FIXED; i++) {
        snprintf(t->ops[i].pass, VB_TRACE_TEXT, "%s", fixed[i].pass);
        snprintf(t->ops[i].op, VB_TRACE_TEXT, "%s", fixed[i].op);
    }
    /* A collective moves its vector once, as far as its caller sees. */
    for (i = VB_OP_ALLREDUCE; i <= VB_OP_SPARSE_ALLREDUCE; i++)
        t->ops[i].moved = 1;
    atomic_store(&t->n_ops, VB_OPS_FIXED);
}

static struct part *part_create(struct vb_trace *t, uint32_t index, uint64_t n_events)
{
    struct part *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return NULL;
    p->self = (struct vb_trace_thread){.trace = t, .on = &t->on, .index = index};
    p->mask = n_events - 1;
    if (n_events > 0 && (p->ring = calloc(n_events, sizeof(*p->ring))) == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

vb_status vb_trace_create(int n_events, struct vb_trace **trace_p)
{
    struct vb_trace *t = calloc(1, sizeof(*t));
    uint64_t room = n_events > 0 ? 64 : 0;
    uint32_t i;

    if (t == NULL)
        return vb_err_sys("calloc");
    pthread_mutex_init(&t->lock, NULL);
    describe_fixed(t);
    while (n_events > 0 && room < (uint64_t)n_events)
        room *= 2;
    for (i = 0; i < VB_TRACE_THREADS; i++) {
        t->parts[i] = part_create(t, i, room);
        if (t->parts[i] == NULL) {
            vb_trace_destroy(t);
            return vb_err(VB_ERR_NO_MEMORY, "no memory for a trace of %d events a thread",
                          n_events);
        }
    }
    *trace_p = t;
    return VB_OK;
}

void vb_trace_destroy(struct vb_trace *t)
{
    int i;

    if (t == NULL)
        return;
    vb_trace_set(t, false);
    for (i = 0; i < VB_TRACE_THREADS && t->parts[i] != NULL; i++) {
        free(t->parts[i]->ring);
        free(t->parts[i]);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Returns a part for a thread of this name, or NULL if there is none. The caller holds the lock. */
static struct part *claim(struct vb_trace *t, const char *thread)
{
    int i, n = atomic_load(&t->n_parts);
    struct part *p;

    for (i = 0; i < n; i++)
        if (!t->parts[i]->in_use && strncmp(t->parts[i]->name, thread, VB_TRACE_TEXT - 1) == 0)
            return t->parts[i];
    if (n == VB_TRACE_THREADS)
        return NULL;
    p = t->parts[n];
    snprintf(p->name, sizeof(p->name), "%s", thread);
    if (p->ring != NULL) /* its pages are made now, and not while the thread measures */
        memset(p->ring, 0, (p->mask + 1) * sizeof(*p->ring));
    atomic_store(&t->n_parts, n + 1);
    return p;
}

void vb_trace_attach(struct vb_trace *t, const char *thread)
{
    struct part *p;
    bool warn;

    if (t == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    p = claim(t, thread);
    warn = p == NULL && !t->warned;
    t->warned |= warn;
    if (p != NULL)
        p->in_use = true;
    pthread_mutex_unlock(&t->lock);
    if (warn)
        VB_LOG_WARN("thread %s is not measured: a rank can measure %d threads", thread,
                    VB_TRACE_THREADS);
    vb_trace_self = p != NULL ? &p->self : NULL;
}

void vb_trace_detach(void)
{
    struct part *p = part_of(vb_trace_self);

    if (p == NULL)
        return;
    pthread_mutex_lock(&p->self.trace->lock);
    p->in_use = false;
    pthread_mutex_unlock(&p->self.trace->lock);
    vb_trace_self = NULL;
}

struct vb_trace *vb_trace_current(void)
{
    return vb_trace_self != NULL ? vb_trace_self->trace : NULL;
}

int vb_trace_op(struct vb_trace *t, const struct vb_trace_op *op)
{
    int i, n;

    if (t == NULL)
        return VB_OP_ALL;
    pthread_mutex_lock(&t->lock);
    n = atomic_load(&t->n_ops);
    for (i = VB_OPS_FIXED; i < n; i++)
        if (strcmp(t->ops[i].layer, op->layer) == 0 && strcmp(t->ops[i].pass, op->pass) == 0 &&
            strcmp(t->ops[i].op, op->op) == 0 && strcmp(t->ops[i].shape, op->shape) == 0)
            break;
    if (i == n && n < VB_TRACE_OPS) {
        t->ops[i] = *op;
        atomic_store(&t->n_ops, n + 1);
    }
    pthread_mutex_unlock(&t->lock);
    return i < VB_TRACE_OPS ? i : VB_OP_ALL;
}

void vb_trace_describe(struct vb_trace *t, int op, double flops, double moved)
{
    t->ops[op].flops = flops;
    t->ops[op].moved = moved;
}

void vb_trace_set(struct vb_trace *t, bool on)
{
    if (t != NULL && atomic_exchange(&t->on, on) != on)
        atomic_fetch_add(&vb_traces_on, on ? 1 : -1);
}

/* ---- reading --------------------------------------------------------------------------------- */

int vb_trace_n_ops(struct vb_trace *t)
{
    return atomic_load(&t->n_ops);
}

const struct vb_trace_op *vb_trace_op_at(const struct vb_trace *t, int op)
{
    return &t->ops[op];
}

struct vb_trace_sum vb_trace_sum(struct vb_trace *t, int op)
{
    struct vb_trace_sum sum = {0};
    uint64_t since = atomic_load(&t->since_ns), until = atomic_load(&t->until_ns);
    int i, n = vb_trace_n_threads(t);

    if (op == VB_OP_ALL && since > 0)
        sum = (struct vb_trace_sum){.calls = 1,
                                    .ns = (until > 0 ? until : vb_record_clock_ns()) - since};
    for (i = 0; i < n && op != VB_OP_ALL; i++) {
        sum.calls += atomic_load_explicit(&t->parts[i]->sums[op].calls, memory_order_relaxed);
        sum.ns += atomic_load_explicit(&t->parts[i]->sums[op].ns, memory_order_relaxed);
        sum.bytes += atomic_load_explicit(&t->parts[i]->sums[op].bytes, memory_order_relaxed);
    }
    return sum;
}

int vb_trace_n_threads(struct vb_trace *t)
{
    return atomic_load(&t->n_parts);
}

const char *vb_trace_thread_name(const struct vb_trace *t, int thread)
{
    return t->parts[thread]->name;
}

const struct vb_trace_event *vb_trace_peek(struct vb_trace *t, int thread, size_t *n_p)
{
    struct part *p = t->parts[thread];
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
    /* Pairs with the release in store(). */
    uint64_t n = atomic_load_explicit(&p->put, memory_order_acquire) - taken;
    uint64_t to_end = p->mask + 1 - (taken & p->mask);

    if (p->ring == NULL)
        n = 0;
    *n_p = (size_t)(n < to_end ? n : to_end);
    return *n_p > 0 ? &p->ring[taken & p->mask] : NULL;
}

void vb_trace_take(struct vb_trace *t, int thread, size_t n)
{
    struct part *p = t->parts[thread];
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);

    /* Pairs with the acquire in store(). */
    atomic_store_explicit(&p->taken, taken + n, memory_order_release);
}

uint64_t vb_trace_lost(struct vb_trace *t)
{
    uint64_t lost = 0;
    int i;

    for (i = 0; i < VB_TRACE_THREADS; i++)
        lost += atomic_load_explicit(&t->parts[i]->lost, memory_order_relaxed);
    return lost;
}
