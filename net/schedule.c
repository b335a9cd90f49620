/* SPDX-License-Identifier: MIT
 *
 * The one loop that runs every algorithm: looks at the step that is due in each lane of each
 * operation under way, and does it if what it waits for is there. It runs when a note has come,
 * and whenever the caller waits or asks; it never waits itself.
 *
 * Rings are used in the order of the operations: none sends or takes a segment of a peer before all
 * older ones have done theirs. So the oldest operation always finds room in the end, and slots are
 * freed in the order in which they were filled.
 */
#include "net/coll_priv.h"

#include <stdarg.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__) /* gcc */
#define THREAD_SANITIZER
#elif defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER
#endif
#endif

#define DONE_BYTES ((size_t)64 * 1024) /* of shares that are told of together */

/* ---- failing --------------------------------------------------------------------------------- */

void coll_fail(struct vb_coll *coll, vb_status st, const char *fmt, ...)
{
    char why[256];
    va_list args;

    if (coll->failed != VB_OK)
        return;
    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    coll->failed = vb_err(st, "%s", why);
    vb_group_abort(coll->group, why);
}

static const char *kind_str(uint32_t kind)
{
    static const char *const names[] = {"allreduce", "reduce-scatter", "allgather", "broadcast",
                                        "barrier"};

    return kind < VB_COUNT(names) ? names[kind] : "something";
}

void op_describe(const struct vb_coll *coll, const struct op *op, char *text, size_t size)
{
    snprintf(text, size, "%s %u (%zu bytes, %s)", kind_str(op->kind), op->seq - coll->first_seq,
             op->n_bytes, vb_algo_str(op->algo));
}

/* ---- who is here ----------------------------------------------------------------------------- */

/* An acquire that pairs with the release in mapped_publish(). Arm's acquiring load would also wait
 * until the flag that this rank has set last can be seen, and all sums before it; a fence does not.
 * ThreadSanitizer knows no fences. */
static uint32_t flag_read(const _Atomic uint32_t *flag)
{
#ifdef THREAD_SANITIZER
    return atomic_load_explicit(flag, memory_order_acquire);
#else
    uint32_t value = atomic_load_explicit(flag, memory_order_relaxed);

    atomic_thread_fence(memory_order_acquire);
    return value;
#endif
}

/* The head that a peer sent, once it has come. */
static const struct slot_head *head_of(struct vb_coll *coll, const struct op *op, int rank)
{
    struct slot_head *head;

    if (!op->mapped)
        return arrivals_of(coll, op->seq, rank)->n[STREAM_HERE] > 0
                   ? head_at(coll->base, slot_at(coll, op->seq, rank))
                   : NULL;
    head = head_at(coll->ways[rank].base, own_slot_at(coll, op->seq));
    return flag_read(&head->seq) == op->seq ? head : NULL;
}

static void refuse(struct vb_coll *coll, const struct op *op, int rank,
                   const struct slot_head *head)
{
    coll_fail(coll, VB_ERR_PEER,
              "%s %u: rank %d (%s) brings %s of %llu bytes at %llx, rank %d %zu bytes at %zx",
              kind_str(op->kind), op->seq - coll->first_seq, rank, vb_group_host(coll->group, rank),
              kind_str(head->what & 0xff), (unsigned long long)head->n_bytes,
              (unsigned long long)head->place, coll->rank, op->n_bytes, op->offset);
}

/* A peer that does another operation than this rank is the end of the group. */
static bool look_here(struct vb_coll *coll, struct op *op, int rank)
{
    const struct slot_head *head, *own;

    if (op->peers[rank].here)
        return true;
    head = head_of(coll, op, rank);
    if (head == NULL)
        return false;
    own = head_at(coll->base, own_slot_at(coll, op->seq));
    if (head->what != own->what || head->n_bytes != own->n_bytes || head->place != own->place ||
        head->root != own->root) {
        refuse(coll, op, rank, head);
        return false;
    }
    op->peers[rank].here = true;
    return true;
}

static bool are_here(struct vb_coll *coll, struct op *op, int lo, int hi)
{
    if (lo < op->n_here)
        lo = op->n_here;
    for (; lo < hi; lo++) {
        if (lo != coll->rank && !look_here(coll, op, lo))
            return false;
        if (lo == op->n_here)
            op->n_here++;
    }
    return true;
}

static bool is_done_at(const struct vb_coll *coll, const struct op *op, int rank)
{
    return (int32_t)(flag_read(&own_of(coll, coll->ways[rank].base)->done) - op->seq) >= 0;
}

static bool are_done(const struct vb_coll *coll, const struct op *op)
{
    int r;

    for (r = 0; r < coll->world; r++)
        if (!is_done_at(coll, op, r))
            return false;
    return true;
}

int op_waits_for(const struct vb_coll *coll, const struct op *op)
{
    int r;

    for (r = 0; r < coll->world; r++)
        if (r != coll->rank && !op->peers[r].here)
            return r;
    for (r = 0; r < coll->world; r++) {
        if (op->mapped && r != coll->rank && !is_done_at(coll, op, r))
            return r;
        if (op->peers[r].to_take[0] > 0 || op->peers[r].to_take[1] > 0 ||
            coll->ways[r].left < op->peers[r].last_put)
            return r;
    }
    return NO_RANK;
}

/* ---- puts ------------------------------------------------------------------------------------ */

void coll_reap(struct vb_coll *coll, struct way *way)
{
    while (way->left < way->posted &&
           atomic_load_explicit(&way->puts[way->left & (coll->n_puts - 1)].done,
                                memory_order_acquire)) /* pairs with finish() in progress.c */
        way->left++;
}

/* False: no room, or the group has failed. */
static bool put(struct vb_coll *coll, int to, size_t src, size_t dst, size_t len, uint32_t value)
{
    struct way *way = &coll->ways[to];
    struct vb_op *op;
    vb_status st;

    if (way->posted - way->left == coll->n_puts)
        coll_reap(coll, way);
    if (way->posted - way->left == coll->n_puts) {
        coll->blocked = true;
        return false;
    }
    op = &way->puts[way->posted & (coll->n_puts - 1)];
    st = vb_put(coll->win, to, src, dst, len, VB_NOTE(coll->channel, value), op);
    if (st < 0 && coll->failed == VB_OK)
        coll->failed = st; /* it was logged */
    if (st == VB_AGAIN)
        coll->blocked = true;
    if (st != VB_OK)
        return false;
    way->posted++;
    return true;
}

static uint32_t note_value(enum stream stream, uint32_t low)
{
    return (uint32_t)stream << 21 | (low & SEQ_MASK);
}

static bool put_for(struct vb_coll *coll, struct op *op, int to, size_t src, size_t dst, size_t len,
                    enum stream stream)
{
    bool was_fine = coll->failed == VB_OK;
    char what[96];

    if (!put(coll, to, src, dst, len, note_value(stream, op->seq))) {
        if (was_fine && coll->failed != VB_OK) {
            op_describe(coll, op, what, sizeof(what));
            vb_err(coll->failed, "%s: rank %d (%s) cannot be reached", what, to,
                   vb_group_host(coll->group, to));
        }
        return false;
    }
    op->peers[to].last_put = coll->ways[to].posted;
    return true;
}

bool coll_probe(struct vb_coll *coll, int to, uint32_t k, size_t len_bytes)
{
    return put(coll, to, ring_at(coll, 0, coll->rank, k), ring_at(coll, 0, coll->rank, k),
               len_bytes, note_value(STREAM_PROBE, 0));
}

/* Half a ring at a time: a note for each would cost as much as a small segment. */
static void give_back(struct vb_coll *coll, int rank, int ring)
{
    struct way *way = &coll->ways[rank];

    if (way->owed[ring] < RING_SLOTS / 2)
        return;
    if (put(coll, rank, 0, 0, 0, note_value(STREAM_FREE, (uint32_t)ring << 16 | way->owed[ring])))
        way->owed[ring] = 0;
}

void mapped_publish(_Atomic uint32_t *flag, uint32_t seq)
{
    /* Pairs with the acquire in flag_read(). */
    atomic_store_explicit(flag, seq, memory_order_release);
}

/* Either a peer that is about to sleep sees the flags, or we see that it waits: it says so, then a
 * fence, then looks at the flags (coll_start.c); we have set flags, then a fence, then look. */
void mapped_wake(struct vb_coll *coll)
{
    struct own_state *theirs;
    int r;

    coll->told = false;
    atomic_thread_fence(memory_order_seq_cst); /* pairs with that in set_waiting() */
    for (r = 0; r < coll->world; r++) {
        theirs = own_of(coll, coll->ways[r].base);
        if (r != coll->rank && atomic_load_explicit(&theirs->waiting, memory_order_relaxed) != 0)
            (void)put(coll, r, 0, 0, 0, note_value(STREAM_WAKE, 0));
    }
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Whether all older operations have sent, or taken, their segments. */
static bool my_turn(const struct vb_coll *coll, const struct op *op, int rank, int ring, bool send)
{
    const struct op *older;
    uint32_t seq;

    for (seq = coll->oldest; seq != op->seq; seq++) {
        older = op_at(coll, seq);
        if (older->active && older->seq == seq &&
            (send ? older->peers[rank].to_send[ring] : older->peers[rank].to_take[ring]) > 0)
            return false;
    }
    return true;
}

static bool ring_has(struct vb_coll *coll, const struct op *op, int rank, int ring)
{
    const struct arrivals *came = arrivals_of(coll, op->seq, rank);
    uint32_t n = came->n[ring == 0 ? STREAM_PART : STREAM_RESULT];

    if (n <= op->peers[rank].took[ring])
        return false;
    if (my_turn(coll, op, rank, ring, false))
        return true;
    coll->blocked = true;
    return false;
}

static const char *ring_first(const struct vb_coll *coll, int rank, int ring)
{
    return coll->base + ring_at(coll, ring, rank, coll->ways[rank].taken[ring]);
}

static void ring_take(struct vb_coll *coll, struct op *op, int rank, int ring)
{
    op->peers[rank].to_take[ring]--;
    op->peers[rank].took[ring]++;
    coll->ways[rank].taken[ring]++;
    coll->ways[rank].owed[ring]++;
    give_back(coll, rank, ring);
}

static bool ring_send(struct vb_coll *coll, struct op *op, const struct step *s)
{
    struct way *way = &coll->ways[s->peer];
    uint32_t k = way->sent[s->ring];
    size_t src = s->at, len = s->len_bytes;

    if (k - way->freed[s->ring] == RING_SLOTS)
        return false;
    if (!my_turn(coll, op, s->peer, s->ring, true)) {
        coll->blocked = true;
        return false;
    }
    if (is_narrow(coll)) { /* the stage's last put is one that the peer has taken: it has left */
        src = stage_at(coll, s->ring, s->peer, k);
        len = s->len_bytes / 2;
        coll_narrow((uint16_t *)(void *)(coll->base + src),
                    (const float *)(const void *)(coll->base + s->at), s->len_bytes / 4);
    }
    if (!put_for(coll, op, s->peer, src, ring_at(coll, s->ring, coll->rank, k), len,
                 s->ring == 0 ? STREAM_PART : STREAM_RESULT))
        return false;
    way->sent[s->ring]++;
    op->peers[s->peer].to_send[s->ring]--;
    coll->wire_bytes += len;
    return true;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Where the contribution of a rank lies, if it has come. */
static bool find_part(struct vb_coll *coll, const struct op *op, const struct step *s, int rank,
                      struct source *source)
{
    size_t head = sizeof(struct slot_head);
    bool narrow = is_narrow(coll);

    source->type = narrow ? SOURCE_BF16 : SOURCE_F32;
    switch (s->place) {
    case FROM_RING:
        if (!ring_has(coll, op, rank, 0))
            return false;
        source->ptr = ring_first(coll, rank, 0);
        return true;
    case FROM_SLOT:
        source->ptr = coll->base + slot_at(coll, op->seq, rank) + head;
        return true;
    case FROM_THEIR_SLOT:
        source->ptr = coll->ways[rank].base + own_slot_at(coll, op->seq) + head;
        source->type = narrow ? SOURCE_F32_ROUNDED : SOURCE_F32;
        return true;
    }
    return false;
}

/* -1: something has not come. */
static int find_sources(struct vb_coll *coll, const struct op *op, const struct step *s)
{
    enum source_type plain = is_narrow(coll) ? SOURCE_F32_ROUNDED : SOURCE_F32;
    int i, r, n = 0;

    for (i = 0; i < s->n_parts; i++) {
        r = s->parts[i];
        if (r == coll->rank && s->local_lo == s->local_hi)
            coll->sources[n] = (struct source){coll->base + s->at, plain};
        else if (r == coll->rank)
            continue;
        else if (!find_part(coll, op, s, r, &coll->sources[n]))
            return -1;
        n++;
    }
    for (r = s->local_lo; r < s->local_hi; r++)
        coll->sources[n++] = (struct source){coll->ways[r].base + s->at, plain};
    return n;
}

static int find_also(struct vb_coll *coll, const struct step *s)
{
    int r, n = 0;

    for (r = 0; r < coll->world && s->spread; r++)
        if (r != coll->rank)
            coll->also[n++] = (float *)(void *)(coll->ways[r].base + s->at);
    return n;
}

static bool reduce(struct vb_coll *coll, struct op *op, const struct step *s)
{
    struct finish finish = {.scale = 1.0f};
    int i, n = find_sources(coll, op, s);

    if (n < 0)
        return false;
    if (s->last) {
        finish.scale = op->how == VB_REDUCE_MEAN ? 1.0f / (float)coll->world : 1.0f;
        finish.round = is_narrow(coll);
    }
    coll_sum((float *)(void *)(coll->base + s->at), coll->also, find_also(coll, s), coll->sources,
             n, s->len_bytes / sizeof(float), &finish);
    if (op->mapped)
        coll->wire_bytes += s->len_bytes * (size_t)(n - 1);
    for (i = 0; i < s->n_parts && s->place == FROM_RING; i++)
        if (s->parts[i] != coll->rank)
            ring_take(coll, op, s->parts[i], 0);
    return true;
}

static bool expand(struct vb_coll *coll, struct op *op, const struct step *s)
{
    if (!ring_has(coll, op, s->peer, 1))
        return false;
    coll_widen((float *)(void *)(coll->base + s->at),
               (const uint16_t *)(const void *)ring_first(coll, s->peer, 1), s->len_bytes / 4);
    ring_take(coll, op, s->peer, 1);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool conditions(struct vb_coll *coll, struct op *op, const struct step *s)
{
    if (s->here_lo < s->here_hi && !are_here(coll, op, s->here_lo, s->here_hi))
        return false;
    if (s->result_of != NO_RANK && arrivals_of(coll, op->seq, s->result_of)->n[STREAM_RESULT] <=
                                       op->peers[s->result_of].results)
        return false;
    if (s->after > 0 && op->lanes[s->after_lane].at < s->after)
        return false;
    return !s->all_done || are_done(coll, op);
}

static bool here(struct vb_coll *coll, struct op *op, int to)
{
    size_t len = sizeof(struct slot_head);

    if (op->eager)
        len += is_narrow(coll) ? op->n_bytes / 2 : op->n_bytes;
    if (!put_for(coll, op, to, own_slot_at(coll, op->seq), slot_at(coll, op->seq, coll->rank), len,
                 STREAM_HERE))
        return false;
    coll->wire_bytes += len - sizeof(struct slot_head);
    op->peers[to].told = true;
    return true;
}

static bool place(struct vb_coll *coll, struct op *op, const struct step *s)
{
    if (!op->peers[s->peer].told ||
        !put_for(coll, op, s->peer, s->at, s->at, s->len_bytes, STREAM_RESULT))
        return false;
    coll->wire_bytes += s->len_bytes;
    return true;
}

static void publish_done(struct vb_coll *coll)
{
    mapped_publish(&own_of(coll, coll->base)->done, coll->done);
    coll->done_bytes = 0;
    coll->told = true;
}

/* A release waits for all stores before it, so small shares are told of together. */
static void mapped_done(struct vb_coll *coll, const struct op *op)
{
    coll->done = op->seq;
    coll->done_bytes += 1 + op->n_bytes / (size_t)coll->world;
    if (coll->done_bytes > DONE_BYTES)
        publish_done(coll);
}

/* Does the step if it can be done now. */
static bool step_do(struct vb_coll *coll, struct op *op, const struct step *s)
{
    switch (s->kind) {
    case STEP_WAIT:
        return true;
    case STEP_HERE:
        return here(coll, op, s->peer);
    case STEP_SEND:
        return op->peers[s->peer].told && ring_send(coll, op, s);
    case STEP_PLACE:
        return place(coll, op, s);
    case STEP_REDUCE:
        return reduce(coll, op, s);
    case STEP_EXPAND:
        return expand(coll, op, s);
    case STEP_READ:
        memcpy(coll->base + s->at, coll->ways[s->peer].base + s->at, s->len_bytes);
        coll->wire_bytes += s->len_bytes;
        return true;
    case STEP_DONE:
        mapped_done(coll, op);
        return true;
    }
    return false;
}

/* Segments that a share does not have are passed over, by sender and receiver alike. */
static bool is_empty(const struct step *s)
{
    return s->len_bytes == 0 &&
           (s->kind == STEP_SEND || s->kind == STEP_PLACE || s->kind == STEP_REDUCE ||
            s->kind == STEP_EXPAND || s->kind == STEP_READ || s->result_of != NO_RANK);
}

static bool lane_run(struct vb_coll *coll, struct op *op, int lane, uint32_t end)
{
    struct lane *l = &op->lanes[lane];
    bool got_on = false;
    struct step s;

    for (; l->at < end; l->at++) {
        memset(&s, 0, sizeof(s));
        s.result_of = NO_RANK;
        op->schedule->step(coll, op, lane, l->at, &s);
        if (!is_empty(&s)) {
            if (!conditions(coll, op, &s) || !step_do(coll, op, &s))
                return got_on;
            if (s.result_of != NO_RANK)
                op->peers[s.result_of].results++;
        }
        got_on = true;
    }
    return got_on;
}

static bool all_left(struct vb_coll *coll, const struct op *op)
{
    int r;

    for (r = 0; r < coll->world; r++) {
        if (coll->ways[r].left >= op->peers[r].last_put)
            continue;
        coll_reap(coll, &coll->ways[r]);
        if (coll->ways[r].left < op->peers[r].last_put)
            return false;
    }
    return true;
}

static bool op_finished(struct vb_coll *coll, struct op *op)
{
    int i;

    for (i = 0; i < op->n_lanes; i++)
        if (op->lanes[i].at < op->lanes[i].n)
            return false;
    return are_here(coll, op, 0, coll->world) && all_left(coll, op);
}

static void op_end(struct vb_coll *coll, struct op *op)
{
    uint32_t area = op->seq & (coll->n_areas - 1);

    if (!op->mapped)
        memset(arrivals_of(coll, op->seq, 0), 0, (size_t)coll->world * sizeof(struct arrivals));
    coll->area_seq[area] += coll->n_areas;
    op->active = false;
    coll->n_mapped -= op->mapped;
    op->req->status = VB_OK;
    op->req->done = true;
    while (coll->oldest != coll->seq + 1 && !op_at(coll, coll->oldest)->active)
        coll->oldest++;
}

/* Lanes of one operation may wait for each other: round until none gets on. */
static void op_run(struct vb_coll *coll, struct op *op)
{
    bool got_on;
    int i;

    do {
        got_on = false;
        for (i = 0; i < op->n_lanes && coll->failed == VB_OK; i++)
            if (op->lanes[i].at < op->lanes[i].n && lane_run(coll, op, i, op->lanes[i].n))
                got_on = true;
    } while (got_on && op->n_lanes > 1);
    if (coll->failed == VB_OK && op_finished(coll, op))
        op_end(coll, op);
}

static void give_back_all(struct vb_coll *coll)
{
    int r, ring;

    for (r = 0; r < coll->world; r++)
        for (ring = 0; ring < RINGS; ring++)
            give_back(coll, r, ring);
}

/* The head of a mapped operation's successor is a cache line of another core's: asked for before it
 * is needed. */
static void fetch_heads(const struct vb_coll *coll, uint32_t seq)
{
    size_t at = own_slot_at(coll, seq);
    int r;

    for (r = 0; r < coll->world; r++)
        if (r != coll->rank)
            __builtin_prefetch(coll->ways[r].base + at);
}

/* The last step of a mapped operation waits for the others; an eager one's does all. */
static uint32_t own_steps(const struct op *op)
{
    return op->eager ? 1 : op->n_lanes == 0 ? 0 : op->lanes[0].n - 1;
}

/* Does this rank's shares of mapped operations, in the order of the operations, for done tells of
 * all before it: who has to wait holds up all after it. */
static void mapped_shares(struct vb_coll *coll)
{
    uint32_t seq, end = coll->seq + 1;
    struct op *op;

    for (seq = coll->oldest; seq != end && coll->failed == VB_OK; seq++) {
        op = op_at(coll, seq);
        if (!op->active || op->seq != seq || !op->mapped || op->lanes[0].at >= own_steps(op))
            continue;
        fetch_heads(coll, op->seq + 2);
        lane_run(coll, op, 0, own_steps(op));
        if (op->lanes[0].at < own_steps(op))
            break;
    }
    if (coll->done_bytes > 0)
        publish_done(coll);
    if (coll->told)
        mapped_wake(coll);
}

/* First all shares, then a look at whether the others have done theirs: looking at a flag that is
 * about to change is what costs. */
static void mapped_run(struct vb_coll *coll)
{
    uint32_t seq, end = coll->seq + 1;
    struct op *op;

    mapped_shares(coll);
    for (seq = coll->oldest; seq != end; seq++) {
        op = op_at(coll, seq);
        if (!op->active || op->seq != seq || !op->mapped)
            continue;
        if (op->lanes[0].at < own_steps(op))
            break;
        op_run(coll, op);
        if (op->active)
            break;
    }
}

void coll_run(struct vb_coll *coll)
{
    uint32_t seq, end = coll->seq + 1;
    struct op *op;

    if (coll->n_mapped > 0)
        mapped_run(coll);
    if (coll->blocked) {
        coll->blocked = false;
        give_back_all(coll);
    }
    for (seq = coll->oldest; seq != end; seq++) {
        op = op_at(coll, seq);
        if (op->active && op->seq == seq && !op->mapped)
            op_run(coll, op);
    }
}

void coll_poll(struct vb_coll *coll, struct op *op)
{
    if (coll->blocked || coll->n_mapped > 0)
        coll_run(coll);
    else if (op->active && coll->failed == VB_OK && op_finished(coll, op))
        op_end(coll, op);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static bool credit(struct vb_coll *coll, int rank, uint32_t low)
{
    struct way *way = &coll->ways[rank];
    uint32_t ring = low >> 16 & 1, n = low & 0xffff;

    if (n > way->sent[ring] - way->freed[ring])
        return false;
    way->freed[ring] += n;
    coll_run(coll);
    return true;
}

static bool arrival(struct vb_coll *coll, int rank, enum stream stream, uint32_t low)
{
    uint32_t area = low & (coll->n_areas - 1), seq = coll->area_seq[area];
    struct op *op = op_at(coll, seq);

    if (low != (seq & SEQ_MASK))
        return false;
    arrivals_of(coll, seq, rank)->n[stream]++;
    if (op->active && op->seq == seq)
        op_run(coll, op);
    if (coll->blocked)
        coll_run(coll);
    return true;
}

void coll_note(void *arg, int rank, uint32_t value)
{
    struct vb_coll *coll = arg;
    uint32_t stream = value >> 21, low = value & SEQ_MASK;
    bool fine = stream < STREAMS;

    if (coll->failed != VB_OK)
        return;
    if (stream == STREAM_PROBE)
        coll->probes++;
    else if (stream == STREAM_FREE)
        fine = credit(coll, rank, low);
    else if (fine && stream != STREAM_WAKE)
        fine = arrival(coll, rank, (enum stream)stream, low);
    if (!fine)
        control_lose(coll->group->control, rank, "it sent a message that cannot be due");
}
