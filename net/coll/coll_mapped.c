/* SPDX-License-Identifier: MIT
 *
 * Collectives on one host, where every rank has mapped the windows of all others. The ranks read
 * and write each other's memory, and set flags in it (docs/collectives.md). In an eager sum no rank
 * waits until others have read its slot, because the slot is not reused before they have read it.
 */
#include "net/coll/coll_priv.h"

/* Returns the number of the share that this rank sums. Cores prefetch memory beyond the end of
 * their share. If small vectors lie side by side, the memory behind the last share is the first
 * share of the next vector. Both should belong to the same rank, so every second vector assigns its
 * shares in reverse order. */
static int share_of(const struct vb_coll *coll, const struct request *rq)
{
    bool back = rq->n_bytes > 0 && rq->offset / rq->n_bytes % 2 == 1;

    return rq->kind == REQUEST_ALLREDUCE && back ? coll->world - 1 - coll->rank : coll->rank;
}

/* Sets up the only lane, which has the work of this rank. A sum has one step. A broadcast or an
 * allgather has steps that read from peers, then a step that says that this rank is done. A barrier
 * has no steps. In an eager sum no rank needs to say that it is done. coll_run.c checks whether all
 * other ranks are done, for many requests at once. */
static void plan(struct vb_coll *coll, struct request *rq)
{
    rq->mapped = true;
    rq->lanes[0].n = 1;
    if (rq->kind == REQUEST_ALLREDUCE && rq->n_bytes <= coll->lay.eager_bytes) {
        rq->eager = true;
    } else if (rq->kind == REQUEST_ALLGATHER) {
        rq->lanes[0].n = (uint32_t)coll->world;
    } else if (rq->kind == REQUEST_BARRIER) {
        rq->lanes[0].n = 0;
    } else if (rq->kind == REQUEST_BROADCAST) {
        rq->lanes[0].n = 2;
    } else {
        vb_request_share(rq, coll->world, share_of(coll, rq), &rq->share_at, &rq->share_len);
    }
}

static void sum_step(const struct vb_coll *coll, const struct request *rq, struct step *s)
{
    s->kind = STEP_REDUCE;
    s->started_hi = coll->world;
    s->last = true;
    if (rq->eager) {
        s->at = rq->offset;
        s->len_bytes = rq->n_bytes;
        s->parts = coll->everyone;
        s->n_parts = coll->world;
        s->place = FROM_THEIR_SLOT;
    } else {
        s->at = rq->share_at;
        s->len_bytes = rq->share_len;
        s->local_hi = coll->world;
        s->spread = rq->kind == REQUEST_ALLREDUCE;
        s->completes = true;
    }
}

static void read_step(const struct vb_coll *coll, const struct request *rq, int from,
                      struct step *s)
{
    s->kind = STEP_READ;
    s->peer = from;
    s->started_lo = from;
    s->started_hi = from + 1;
    s->at = rq->kind == REQUEST_ALLGATHER ? rq->offsets[from] : rq->offset;
    s->len_bytes = rq->kind == REQUEST_ALLGATHER ? rq->lens[from] : rq->n_bytes;
    if (from == coll->rank)
        s->len_bytes = 0;
}

static void step(const struct vb_coll *coll, const struct request *rq, int lane, uint32_t i,
                 struct step *s)
{
    bool reads = rq->kind == REQUEST_BROADCAST || rq->kind == REQUEST_ALLGATHER;

    if (reads ? i + 1 == rq->lanes[lane].n : !rq->eager && rq->share_len == 0)
        s->kind = STEP_DONE;
    else if (rq->kind == REQUEST_BROADCAST)
        read_step(coll, rq, rq->root, s);
    else if (rq->kind == REQUEST_ALLGATHER)
        read_step(coll, rq, peer_after(coll, 1 + (int)i), s);
    else
        sum_step(coll, rq, s);
}

const struct schedule vb_schedule_mapped = {plan, step};
