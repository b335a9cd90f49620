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
static int share_of(const struct vb_coll *coll, const struct op *op)
{
    bool back = op->n_bytes > 0 && op->offset / op->n_bytes % 2 == 1;

    return op->kind == OP_ALLREDUCE && back ? coll->world - 1 - coll->rank : coll->rank;
}

/* A lane is what this rank does itself: its share, and with it the word that it is done; or what it
 * reads of each of the others, then the word. That all others are too is looked at in schedule.c,
 * of many operations at once. A barrier has nothing to do, and what is eager need not be told. */
static void plan(struct vb_coll *coll, struct op *op)
{
    op->mapped = true;
    op->n_lanes = 1;
    op->lanes[0].n = 1;
    if (op->kind == OP_ALLREDUCE && op->n_bytes <= coll->eager_bytes) {
        op->eager = true;
    } else if (op->kind == OP_ALLGATHER) {
        op->lanes[0].n = (uint32_t)coll->world;
    } else if (op->kind == OP_BARRIER) {
        op->lanes[0].n = 0;
    } else if (op->kind == OP_BROADCAST) {
        op->lanes[0].n = 2;
    } else {
        op_share(op, coll->world, share_of(coll, op), &op->share_at, &op->share_len);
    }
}

static void sum_step(const struct vb_coll *coll, const struct op *op, struct step *s)
{
    s->kind = STEP_REDUCE;
    s->here_hi = coll->world;
    s->last = true;
    if (op->eager) {
        s->at = op->offset;
        s->len_bytes = op->n_bytes;
        s->parts = coll->everyone;
        s->n_parts = coll->world;
        s->place = FROM_THEIR_SLOT;
    } else {
        s->at = op->share_at;
        s->len_bytes = op->share_len;
        s->local_hi = coll->world;
        s->spread = op->kind == OP_ALLREDUCE;
        s->tell = true;
    }
}

static void read_step(const struct vb_coll *coll, const struct op *op, int from, struct step *s)
{
    s->kind = STEP_READ;
    s->peer = from;
    s->here_lo = from;
    s->here_hi = from + 1;
    s->at = op->kind == OP_ALLGATHER ? op->offsets[from] : op->offset;
    s->len_bytes = op->kind == OP_ALLGATHER ? op->lens[from] : op->n_bytes;
    if (from == coll->rank)
        s->len_bytes = 0;
}

static void step(const struct vb_coll *coll, const struct op *op, int lane, uint32_t i,
                 struct step *s)
{
    bool reads = op->kind == OP_BROADCAST || op->kind == OP_ALLGATHER;

    if (reads ? i + 1 == op->lanes[lane].n : !op->eager && op->share_len == 0)
        s->kind = STEP_DONE;
    else if (op->kind == OP_BROADCAST)
        read_step(coll, op, op->root, s);
    else if (op->kind == OP_ALLGATHER)
        read_step(coll, op, (coll->rank + 1 + (int)i) % coll->world, s);
    else
        sum_step(coll, op, s);
}

const struct schedule schedule_mapped = {plan, step};
