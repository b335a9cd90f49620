/* SPDX-License-Identifier: MIT
 *
 * Executes the steps of a schedule: puts, rings and sums. No step waits. For a step that cannot be
 * done now, the function returns false, and the step is tried again later.
 *
 * Requests use the ring of a peer one after another: a request puts or takes segments only when all
 * older requests have put or taken all of theirs. Therefore the oldest request always gets a free
 * slot in the end, and slots are freed in the order in which they were filled.
 */
#include "net/coll/coll_priv.h"

#include <string.h>

#define MERGE_BYTES ((size_t)32 * 1024) /* the limit for summing with the next vector */
#define TIMED_BYTES 32768u              /* shorter sums are not timed */
#define TELL_BYTES 65536u               /* the group is told of so many bytes at once */

/* A rank reports freed slots of a ring when their number is RING_GIVE, or RING_GIVE_ALONG if the
 * report can be sent in the same packet as a result. */
#define RING_GIVE (RING_SLOTS / 2 + 1)
#define RING_GIVE_ALONG (RING_SLOTS / 2)

/* ---- puts ------------------------------------------------------------------------------------ */

void vb_coll_reap(struct vb_coll *coll, struct way *way)
{
    /* the acquire pairs with vb_group_finish() in progress.c */
    while (
        way->left < way->posted &&
        atomic_load_explicit(&way->puts[way->left & (coll->n_puts - 1)].done, memory_order_acquire))
        way->left++;
}

bool vb_coll_put(struct vb_coll *coll, int to, size_t src, size_t dst, size_t len, uint32_t value)
{
    struct way *way = &coll->ways[to];
    struct vb_op *op;
    vb_status st;

    if (way->posted - way->left == coll->n_puts)
        vb_coll_reap(coll, way);
    if (way->posted - way->left == coll->n_puts) {
        coll->blocked = true;
        return false;
    }
    op = &way->puts[way->posted & (coll->n_puts - 1)];
    st = vb_put(coll->win, way->rank, src, dst, len, VB_NOTE(coll->channel, value), op);
    /* a rank whose connection is dead is soon gone, which then ends all requests */
    if (st == VB_AGAIN || (coll->is_elastic && vb_group_is_dead_end(st)))
        coll->blocked = true;
    else if (st < 0 && coll->failed == VB_OK)
        coll->failed = st; /* the group has logged the failure */
    if (st != VB_OK)
        return false;
    way->posted++;
    return true;
}

uint32_t vb_coll_note_value(enum stream stream, uint32_t low)
{
    return (uint32_t)stream << 21 | (low & SEQ_MASK);
}

static bool put_for(struct vb_coll *coll, struct request *rq, int to, size_t src, size_t dst,
                    size_t len, enum stream stream)
{
    bool was_fine = coll->failed == VB_OK;
    char what[96];

    if (!vb_coll_put(coll, to, src, dst, len, vb_coll_note_value(stream, rq->seq))) {
        if (was_fine && coll->failed != VB_OK) {
            vb_request_describe(coll, rq, what, sizeof(what));
            vb_err(coll->failed, "%s: rank %d (%s) cannot be reached", what, group_rank(coll, to),
                   vb_group_host(coll->group, group_rank(coll, to)));
        }
        return false;
    }
    rq->peers[to].last_put = coll->ways[to].posted;
    return true;
}

/* Reports the freed slots of a ring to a peer if there are at least `least`. A note for each single
 * slot would cost as much as a small segment. */
static void give_back(struct vb_coll *coll, int rank, int ring, uint32_t least)
{
    struct way *way = &coll->ways[rank];

    if (way->owed[ring] < least)
        return;
    if (vb_coll_put(coll, rank, 0, 0, 0,
                    vb_coll_note_value(STREAM_FREE, (uint32_t)ring << 16 | way->owed[ring])))
        way->owed[ring] = 0;
}

void vb_coll_give_back(struct vb_coll *coll)
{
    int r, ring;

    for (r = 0; r < coll->world; r++)
        for (ring = 0; ring < RINGS; ring++)
            give_back(coll, r, ring, RING_GIVE);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Returns whether all older requests have put all their segments into the ring (send), or taken all
 * their segments out of it. */
static bool is_its_turn(const struct vb_coll *coll, const struct request *rq, int rank, int ring,
                        bool send)
{
    const struct request *older;
    uint32_t seq;

    for (seq = coll->reqs.oldest; seq != rq->seq; seq++) {
        older = request_at(coll, seq);
        if (older->active && older->seq == seq &&
            (send ? older->peers[rank].to_send[ring] : older->peers[rank].to_take[ring]) > 0)
            return false;
    }
    return true;
}

static bool ring_has(struct vb_coll *coll, const struct request *rq, int rank, int ring)
{
    const struct arrivals *came = arrivals_of(coll, rq->seq, rank);
    uint32_t n = came->n[ring == 0 ? STREAM_PART : STREAM_RESULT];

    if (n <= rq->peers[rank].took[ring])
        return false;
    if (is_its_turn(coll, rq, rank, ring, false))
        return true;
    coll->blocked = true;
    return false;
}

static const char *ring_first(const struct vb_coll *coll, int rank, int ring)
{
    return coll->base + ring_at(coll, ring, rank, coll->ways[rank].taken[ring]);
}

static void ring_take(struct vb_coll *coll, struct request *rq, int rank, int ring)
{
    rq->peers[rank].to_take[ring]--;
    rq->peers[rank].took[ring]++;
    coll->ways[rank].taken[ring]++;
    coll->ways[rank].owed[ring]++;
    give_back(coll, rank, ring, RING_GIVE);
}

static bool ring_send(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    struct way *way = &coll->ways[s->peer];
    uint32_t k = way->sent[s->ring];
    size_t src = s->at, len = s->len_bytes;

    if (k - way->freed[s->ring] == RING_SLOTS)
        return false;
    if (!is_its_turn(coll, rq, s->peer, s->ring, true)) {
        coll->blocked = true;
        return false;
    }
    if (is_narrow(coll)) { /* the peer has taken the last segment of this stage, so it is free */
        src = stage_at(coll, s->ring, s->peer, k);
        len = s->len_bytes / 2;
        vb_coll_narrow((uint16_t *)(void *)(coll->base + src),
                       (const float *)(const void *)(coll->base + s->at), s->len_bytes / 4);
    }
    if (!put_for(coll, rq, s->peer, src, ring_at(coll, s->ring, coll->rank, k), len,
                 s->ring == 0 ? STREAM_PART : STREAM_RESULT))
        return false;
    way->sent[s->ring]++;
    rq->peers[s->peer].to_send[s->ring]--;
    coll->stats.wire_bytes += len;
    return true;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Finds the contribution of a rank. Returns false if the contribution has not come. */
static bool find_part(struct vb_coll *coll, const struct request *rq, const struct step *s,
                      int rank, struct source *source)
{
    size_t head = sizeof(struct slot_head);
    bool narrow = is_narrow(coll);

    source->type = narrow ? SOURCE_BF16 : SOURCE_F32;
    if (s->place == FROM_RING) {
        source->ptr = ring_first(coll, rank, 0);
        return ring_has(coll, rq, rank, 0);
    }
    if (s->place == FROM_SLOT) {
        source->ptr = coll->base + slot_at(coll, rq->seq, rank) + head;
    } else {
        source->ptr = coll->ways[rank].base + own_slot_at(coll, rq->seq) + head;
        source->type = narrow ? SOURCE_F32_ROUNDED : SOURCE_F32;
    }
    return true;
}

/* Fills coll->sources with the sources of a sum. Returns their number, or -1 if a source has not
 * come. */
static int find_sources(struct vb_coll *coll, const struct request *rq, const struct step *s)
{
    enum source_type plain = is_narrow(coll) ? SOURCE_F32_ROUNDED : SOURCE_F32;
    int i, r, n = 0;

    for (i = 0; i < s->n_parts; i++) {
        r = s->parts[i];
        if (r == coll->rank && s->local_lo == s->local_hi)
            coll->sources[n] = (struct source){coll->base + s->at, plain};
        else if (r == coll->rank)
            continue;
        else if (!find_part(coll, rq, s, r, &coll->sources[n]))
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

void vb_coll_tell_touched(struct vb_coll *coll)
{
    int r;

    for (r = 0; r < coll->world; r++) {
        struct way *way = &coll->ways[r];

        if (way->read_bytes + way->written_bytes > 0)
            vb_group_touched(coll->group, way->rank, way->read_bytes, way->written_bytes);
        way->read_bytes = way->written_bytes = 0;
    }
    coll->stats.untold_bytes = 0;
}

/* Telling the group takes as long as summing a few hundred bytes. */
static void count_touched(struct vb_coll *coll, uint64_t bytes)
{
    coll->stats.untold_bytes += bytes;
    if (coll->stats.untold_bytes >= TELL_BYTES)
        vb_coll_tell_touched(coll);
}

/* Counts what a sum has read from mapped memory of peers, and written to it. */
static void count_mapped(struct vb_coll *coll, const struct step *s, size_t len)
{
    int i, r;

    for (i = 0; i < s->n_parts && s->place == FROM_THEIR_SLOT; i++)
        coll->ways[s->parts[i]].read_bytes += len;
    for (r = s->local_lo; r < s->local_hi; r++)
        coll->ways[r].read_bytes += len;
    for (r = 0; r < coll->world && s->spread; r++)
        coll->ways[r].written_bytes += len;
    count_touched(coll, len);
}

/* If both vectors are small and this rank's share of the next request lies directly behind its
 * share of this one, returns the next request, and both shares are summed at once. Else returns
 * NULL. */
static struct request *merge_next(struct vb_coll *coll, const struct request *rq,
                                  const struct step *s)
{
    struct request *next = request_at(coll, rq->seq + 1);

    if (!s->spread || rq->n_bytes > MERGE_BYTES || !next->active || next->seq != rq->seq + 1)
        return NULL;
    if (!next->mapped || next->eager || next->kind != REQUEST_ALLREDUCE || next->how != rq->how ||
        next->n_bytes > MERGE_BYTES)
        return NULL;
    if (next->share_at != s->at + s->len_bytes || next->share_len == 0 ||
        !vb_request_started_by(coll, next, 0, coll->world))
        return NULL;
    next->lanes[0].at = 1;
    return next;
}

static bool reduce(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    struct finish finish = {.scale = 1.0f};
    int i, n = find_sources(coll, rq, s);
    size_t len = s->len_bytes;
    struct request *next;
    uint64_t begin_ns, part_ns;

    if (n < 0)
        return false;
    next = merge_next(coll, rq, s);
    len += next != NULL ? next->share_len : 0;
    if (s->last) {
        finish.scale = rq->how == VB_REDUCE_MEAN ? 1.0f / (float)coll->world : 1.0f;
        finish.round = is_narrow(coll);
    }
    begin_ns = len >= TIMED_BYTES ? vb_clock_ns() : 0;
    part_ns = vb_trace_begin_part();
    vb_coll_sum((float *)(void *)(coll->base + s->at), coll->also, find_also(coll, s),
                coll->sources, n, len / sizeof(float), &finish);
    vb_trace_end(part_ns, VB_OP_REDUCE, len);
    coll->stats.summed_ns += begin_ns != 0 ? vb_clock_ns() - begin_ns : 0;
    if (rq->mapped)
        coll->stats.wire_bytes += len * (size_t)(n - 1);
    count_mapped(coll, s, len);
    if (s->completes)
        vb_mapped_done(coll, rq);
    if (next != NULL)
        vb_mapped_done(coll, next);
    for (i = 0; i < s->n_parts && s->place == FROM_RING; i++)
        if (s->parts[i] != coll->rank)
            ring_take(coll, rq, s->parts[i], 0);
    return true;
}

static bool expand(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    uint64_t part_ns;

    if (!ring_has(coll, rq, s->peer, 1))
        return false;
    part_ns = vb_trace_begin_part();
    vb_coll_widen((float *)(void *)(coll->base + s->at),
                  (const uint16_t *)(const void *)ring_first(coll, s->peer, 1), s->len_bytes / 4);
    vb_trace_end(part_ns, VB_OP_COPY, s->len_bytes);
    ring_take(coll, rq, s->peer, 1);
    return true;
}

/* Puts the head, then the vector straight from the data. The note of the second put is START. */
static bool send_start_direct(struct vb_coll *coll, struct request *rq, int to)
{
    struct request_peer *peer = &rq->peers[to];
    size_t slot = slot_at(coll, rq->seq, coll->rank), head = sizeof(struct slot_head);

    if (!peer->head_sent &&
        !put_for(coll, rq, to, own_slot_at(coll, rq->seq), slot, head, STREAM_PART))
        return false;
    peer->head_sent = true;
    if (!put_for(coll, rq, to, rq->offset, slot + head, rq->n_bytes, STREAM_START))
        return false;
    coll->stats.wire_bytes += rq->n_bytes;
    peer->start_sent = true;
    return true;
}

static bool send_start(struct vb_coll *coll, struct request *rq, int to)
{
    size_t len = sizeof(struct slot_head);
    bool along = rq->eager && (rq->owner == NO_RANK || rq->owner == to);
    struct request_peer *peer = &rq->peers[to];

    if (along && rq->direct)
        return send_start_direct(coll, rq, to);
    if (along && rq->n_bytes >= STRAIGHT_BYTES && !peer->head_sent) {
        /* a note before a long START, so that this rank does not count as a straggler meanwhile */
        if (!put_for(coll, rq, to, 0, 0, 0, STREAM_PART))
            return false;
        peer->head_sent = true;
    }
    if (along)
        len += is_narrow(coll) ? rq->n_bytes / 2 : rq->n_bytes;
    if (!put_for(coll, rq, to, own_slot_at(coll, rq->seq), slot_at(coll, rq->seq, coll->rank), len,
                 STREAM_START))
        return false;
    coll->stats.wire_bytes += len - sizeof(struct slot_head);
    peer->start_sent = true;
    return true;
}

static bool place(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    if (!rq->peers[s->peer].start_sent)
        return false;
    vb_group_hold(coll->group, true); /* send both in one packet, if the transport can */
    give_back(coll, s->peer, 0, RING_GIVE_ALONG);
    vb_group_hold(coll->group, false);
    if (!put_for(coll, rq, s->peer, s->at, s->at, s->len_bytes, STREAM_RESULT))
        return false;
    coll->stats.wire_bytes += s->len_bytes;
    return true;
}

static bool read_peer(struct vb_coll *coll, const struct step *s)
{
    uint64_t part_ns = vb_trace_begin_part();

    memcpy(coll->base + s->at, coll->ways[s->peer].base + s->at, s->len_bytes);
    vb_trace_end(part_ns, VB_OP_COPY, s->len_bytes);
    coll->stats.wire_bytes += s->len_bytes;
    coll->ways[s->peer].read_bytes += s->len_bytes;
    count_touched(coll, s->len_bytes);
    return true;
}

bool vb_step_do(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    switch (s->kind) {
    case STEP_WAIT:
        return true;
    case STEP_START:
        return send_start(coll, rq, s->peer);
    case STEP_SEND:
        return rq->peers[s->peer].start_sent && ring_send(coll, rq, s);
    case STEP_PLACE:
        return place(coll, rq, s);
    case STEP_REDUCE:
        return reduce(coll, rq, s);
    case STEP_EXPAND:
        return expand(coll, rq, s);
    case STEP_READ:
        return read_peer(coll, s);
    case STEP_DONE:
        vb_mapped_done(coll, rq);
        return true;
    }
    return false;
}
