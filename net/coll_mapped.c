/* SPDX-License-Identifier: MIT
 *
 * On one host, where every rank's window is mapped by all others. No bytes are sent: ranks read and
 * write each other's memory, and tell each other by flags in it.
 *
 * Two ways to sum:
 *
 *   eager   up to some KiB: each rank copies its vector into its own slot, in the cache line of the
 *           flag and those behind it; each reads all slots and sums them, in rank order. One flag's
 *           way, and nobody waits until others have read: the slot is not used again before.
 *   shares  each rank sums its share straight out of all windows, in rank order, and writes the sum
 *           to all of them: every byte is read and written once. Then it says that it is done; when
 *           all are, all shares are there, and nobody reads this rank's contribution any more.
 */
#include "net/coll_priv.h"

/* Cores fetch memory ahead, beyond the end of their share. With small vectors side by side that is
 * the next vector's first share: it shall be the same rank's, so every second one goes the other
 * way round. (16 vectors of 16 KiB in a row, 2 ranks: 12.1 us instead of 13.9.) */
static int share_of(const struct vb_coll *coll, const struct request *rq)
{
    bool back = rq->n_bytes > 0 && rq->offset / rq->n_bytes % 2 == 1;

    return rq->kind == REQUEST_ALLREDUCE && back ? coll->world - 1 - coll->rank : coll->rank;
}

/* A lane is what this rank does itself: its share, and with it the word that it is done; or what it
 * reads of each of the others, then the word. That all others are too is looked at in schedule.c,
 * of many operations at once. A barrier has nothing to do, and what is eager need not be told. */
static void plan(struct vb_coll *coll, struct request *rq)
{
    rq->mapped = true;
    rq->n_lanes = 1;
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
        request_share(rq, coll->world, share_of(coll, rq), &rq->share_at, &rq->share_len);
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
        s->tell = true;
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
        read_step(coll, rq, (coll->rank + 1 + (int)i) % coll->world, s);
    else
        sum_step(coll, rq, s);
}

const struct schedule schedule_mapped = {plan, step};
