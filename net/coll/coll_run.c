/* SPDX-License-Identifier: MIT
 *
 * The loop that runs every algorithm. For each lane of each request under way, the loop does the
 * next step if the conditions of the step hold. The loop runs when a note has come and whenever the
 * caller calls vb_wait() or vb_test(). It never waits itself.
 */
#include "net/coll/coll_priv.h"

#include <string.h>

/* ---- lanes ----------------------------------------------------------------------------------- */

static bool all_left(struct vb_coll *coll, const struct request *rq)
{
    int r;

    for (r = 0; r < coll->world; r++) {
        if (coll->ways[r].left >= rq->peers[r].last_put)
            continue;
        vb_coll_reap(coll, &coll->ways[r]);
        if (coll->ways[r].left < rq->peers[r].last_put)
            return false;
    }
    return true;
}

static bool conditions_hold(struct vb_coll *coll, struct request *rq, const struct step *s)
{
    if (s->started_lo < s->started_hi &&
        !vb_request_started_by(coll, rq, s->started_lo, s->started_hi))
        return false;
    if (s->result_of != NO_RANK && arrivals_of(coll, rq->seq, s->result_of)->n[STREAM_RESULT] <=
                                       rq->peers[s->result_of].results)
        return false;
    if (s->after > 0 && rq->lanes[s->after_lane].at < s->after)
        return false;
    if (s->all_left && !all_left(coll, rq)) {
        coll->blocked = true; /* no note tells when the puts are done */
        return false;
    }
    return true;
}

/* Both the sender and the receiver skip a step with an empty segment. */
static bool is_empty(const struct step *s)
{
    return s->len_bytes == 0 &&
           (s->kind == STEP_SEND || s->kind == STEP_PLACE || s->kind == STEP_REDUCE ||
            s->kind == STEP_EXPAND || s->kind == STEP_READ || s->result_of != NO_RANK);
}

static bool lane_run(struct vb_coll *coll, struct request *rq, int lane)
{
    struct lane *l = &rq->lanes[lane];
    bool advanced = false;
    struct step s;

    for (; l->at < l->n; l->at++) {
        memset(&s, 0, sizeof(s));
        s.result_of = NO_RANK;
        if (lane == 0 && !rq->mapped) {
            s.kind = STEP_START;
            s.peer = peer_after(coll, 1 + (int)l->at); /* not all ranks begin with the same one */
        } else {
            rq->schedule->step(coll, rq, lane, l->at, &s);
        }
        if (!is_empty(&s)) {
            if (!conditions_hold(coll, rq, &s) || !vb_step_do(coll, rq, &s))
                return advanced;
            if (s.result_of != NO_RANK)
                rq->peers[s.result_of].results++;
        }
        advanced = true;
    }
    return advanced;
}

static bool request_finished(struct vb_coll *coll, struct request *rq)
{
    int i;

    for (i = 0; i < rq->n_lanes; i++)
        if (rq->lanes[i].at < rq->lanes[i].n)
            return false;
    return vb_request_started_by(coll, rq, 0, coll->world) && all_left(coll, rq);
}

/* Returns the smallest n_older in the heads of all ranks. */
static uint32_t least_n_older(const struct vb_coll *coll, const struct request *rq)
{
    uint32_t n_older = head_at(coll->base, own_head_at(coll, rq))->n_older, theirs;
    int r;

    for (r = 0; r < coll->world; r++) {
        theirs = head_at(coll->base, slot_at(coll, rq->seq, r))->n_older;
        if (r != coll->rank && theirs < n_older)
            n_older = theirs;
    }
    return n_older;
}

static void request_end(struct vb_coll *coll, struct request *rq)
{
    uint32_t area = rq->seq & (coll->reqs.n_areas - 1);

    rq->n_older = rq->mapped ? 0 : least_n_older(coll, rq);
    if (!rq->mapped)
        memset(arrivals_of(coll, rq->seq, 0), 0, (size_t)coll->world * sizeof(struct arrivals));
    coll->reqs.area_seq[area] += coll->reqs.n_areas;
    vb_trace_end_with(rq->begin_ns, VB_OP_ALLREDUCE + (int)rq->kind, rq->n_bytes, -1,
                      vb_trace_request(coll->channel, group_rank(coll, coll->rank), rq->seq),
                      VB_TRACE_LANE + VB_TRACE_FROM);
    rq->active = false;
    coll->mapped.n_running -= rq->mapped;
    rq->handle->status = VB_OK;
    rq->handle->done = true;
    while (coll->reqs.oldest != coll->reqs.seq + 1 && !request_at(coll, coll->reqs.oldest)->active)
        coll->reqs.oldest++;
}

/* Runs the lanes of a request until none of them advances, because lanes may wait for each other.
 * Then ends the request if it is finished. */
static void request_run(struct vb_coll *coll, struct request *rq)
{
    bool advanced;
    int i;

    do {
        advanced = false;
        for (i = 0; i < rq->n_lanes && coll->failed == VB_OK; i++)
            if (rq->lanes[i].at < rq->lanes[i].n && lane_run(coll, rq, i))
                advanced = true;
    } while (advanced && rq->n_lanes > 1);
    if (coll->failed == VB_OK && request_finished(coll, rq))
        request_end(coll, rq);
}

/* ---- all operations -------------------------------------------------------------------------- */

/* Prefetches the heads of a later mapped request, because they are in the caches of other cores. */
static void fetch_heads(const struct vb_coll *coll, uint32_t seq)
{
    const struct request *rq = request_at(coll, seq);
    size_t at;
    int r;

    if (!rq->active || rq->seq != seq || !rq->mapped)
        return;
    at = own_head_at(coll, rq);
    for (r = 0; r < coll->world; r++)
        if (r != coll->rank)
            __builtin_prefetch(coll->ways[r].base + at);
}

/* Does this rank's shares of mapped requests, in the order of requests, because `done` says that
 * all earlier shares are done, too. So a share that has to wait delays all later ones. */
static void mapped_shares(struct vb_coll *coll)
{
    uint32_t seq = coll->mapped.next_share, end = coll->reqs.seq + 1;
    struct request *rq;

    for (; seq != end && coll->failed == VB_OK; seq++) {
        rq = request_at(coll, seq);
        if (!rq->active || rq->seq != seq || !rq->mapped)
            continue;
        fetch_heads(coll, seq + 4);
        lane_run(coll, rq, 0);
        if (rq->lanes[0].at < rq->lanes[0].n)
            break;
    }
    coll->mapped.next_share = seq;
    if (coll->mapped.done_bytes > 0)
        vb_mapped_publish_done(coll);
    if (coll->mapped.wake_due)
        vb_mapped_wake(coll);
}

/* Returns whether the other ranks are done, too, as far as they use the data of this rank. In a
 * broadcast only the data of the root is read. */
static bool mapped_over(struct vb_coll *coll, struct request *rq)
{
    bool is_read = !rq->eager && rq->kind != REQUEST_BARRIER &&
                   (rq->kind != REQUEST_BROADCAST || rq->root == coll->rank);

    return vb_request_started_by(coll, rq, 0, coll->world) &&
           (!is_read || vb_request_done_by_all(coll, rq));
}

/* First does all shares of this rank, then checks whether the other ranks have done theirs, because
 * reading a flag that is about to change is expensive. */
static void mapped_run(struct vb_coll *coll)
{
    uint32_t seq, end = coll->reqs.seq + 1;
    struct request *rq;

    mapped_shares(coll);
    for (seq = coll->reqs.oldest; seq != end && coll->failed == VB_OK; seq++) {
        rq = request_at(coll, seq);
        if (!rq->active || rq->seq != seq || !rq->mapped)
            continue;
        if (rq->lanes[0].at < rq->lanes[0].n || !mapped_over(coll, rq))
            break;
        request_end(coll, rq);
    }
}

void vb_coll_run(struct vb_coll *coll)
{
    uint32_t seq, end = coll->reqs.seq + 1;
    struct request *rq;

    if (!coll_works(coll))
        return;
    if (coll->mapped.n_running > 0)
        mapped_run(coll);
    if (coll->blocked) {
        coll->blocked = false;
        vb_coll_give_back(coll);
    }
    for (seq = coll->reqs.oldest; seq != end; seq++) {
        rq = request_at(coll, seq);
        if (rq->active && rq->seq == seq && !rq->mapped)
            request_run(coll, rq);
    }
}

void vb_coll_run_request(struct vb_coll *coll, struct request *rq)
{
    if (!coll_works(coll))
        return;
    request_run(coll, rq);
    if (coll->blocked)
        vb_coll_run(coll);
}

void vb_coll_poll(struct vb_coll *coll, struct request *rq)
{
    if (coll->blocked || coll->mapped.n_running > 0)
        vb_coll_run(coll);
    else if (coll_works(coll) && rq->active && request_finished(coll, rq))
        request_end(coll, rq);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static bool ring_freed(struct vb_coll *coll, int rank, uint32_t low)
{
    struct way *way = &coll->ways[rank];
    uint32_t ring = low >> 16 & 1, n = low & 0xffff;

    if (n > way->sent[ring] - way->freed[ring])
        return false;
    way->freed[ring] += n;
    vb_coll_run(coll);
    return true;
}

static bool message_came(struct vb_coll *coll, int rank, enum stream stream, uint32_t low)
{
    uint32_t area = low & (coll->reqs.n_areas - 1), seq = coll->reqs.area_seq[area];
    struct request *rq = request_at(coll, seq);
    bool under_way = rq->active && rq->seq == seq;

    if (low != (seq & SEQ_MASK) ||
        (under_way && rq->mapped)) /* peers set flags for a mapped request and send no notes */
        return false;
    arrivals_of(coll, seq, rank)->n[stream]++;
    if (under_way)
        vb_coll_run_request(coll, rq);
    else if (coll->blocked)
        vb_coll_run(coll);
    return true;
}

void vb_coll_note(void *arg, int rank, uint32_t value)
{
    struct vb_coll *coll = arg;
    uint32_t stream = value >> 21, low = value & SEQ_MASK;
    int place = vb_group_view(coll->group)->places[rank];
    bool fine = stream < STREAMS;

    if (!coll_works(coll) || place == VB_NO_PLACE)
        return;
    if (stream == STREAM_PROBE)
        coll->probes.came++;
    else if (stream == STREAM_FREE)
        fine = ring_freed(coll, place, low);
    else if (fine && stream != STREAM_WAKE)
        fine = message_came(coll, place, (enum stream)stream, low);
    if (!fine)
        vb_group_lose(coll->group, rank, "the peer sent a note for a request that is not due");
}
