/* SPDX-License-Identifier: MIT
 *
 * The one loop that runs every algorithm: looks at the step that is due in each lane of each
 * operation under way, and does it if what it waits for is there. It runs when a note has come,
 * and whenever the caller waits or asks; it never waits itself.
 */
#include "net/coll_priv.h"

#include <string.h>

/* ---- lanes ----------------------------------------------------------------------------------- */

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

static bool conditions(struct vb_coll *coll, struct op *op, const struct step *s)
{
    if (s->here_lo < s->here_hi && !op_are_here(coll, op, s->here_lo, s->here_hi))
        return false;
    if (s->result_of != NO_RANK && arrivals_of(coll, op->seq, s->result_of)->n[STREAM_RESULT] <=
                                       op->peers[s->result_of].results)
        return false;
    if (s->after > 0 && op->lanes[s->after_lane].at < s->after)
        return false;
    if (s->all_left && !all_left(coll, op)) {
        coll->blocked = true; /* no note tells of that */
        return false;
    }
    return true;
}

/* Segments that a share does not have are passed over, by sender and receiver alike. */
static bool is_empty(const struct step *s)
{
    return s->len_bytes == 0 &&
           (s->kind == STEP_SEND || s->kind == STEP_PLACE || s->kind == STEP_REDUCE ||
            s->kind == STEP_EXPAND || s->kind == STEP_READ || s->result_of != NO_RANK);
}

static bool lane_run(struct vb_coll *coll, struct op *op, int lane)
{
    struct lane *l = &op->lanes[lane];
    bool got_on = false;
    struct step s;

    for (; l->at < l->n; l->at++) {
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

static bool op_finished(struct vb_coll *coll, struct op *op)
{
    int i;

    for (i = 0; i < op->n_lanes; i++)
        if (op->lanes[i].at < op->lanes[i].n)
            return false;
    return op_are_here(coll, op, 0, coll->world) && all_left(coll, op);
}

/* How many operations all ranks had under way when they began this one. */
static uint32_t least_deep(const struct vb_coll *coll, const struct op *op)
{
    uint32_t deep = head_at(coll->base, own_head_at(coll, op))->deep, theirs;
    int r;

    for (r = 0; r < coll->world; r++) {
        theirs = head_at(coll->base, slot_at(coll, op->seq, r))->deep;
        if (r != coll->rank && theirs < deep)
            deep = theirs;
    }
    return deep;
}

static void op_end(struct vb_coll *coll, struct op *op)
{
    uint32_t area = op->seq & (coll->n_areas - 1);

    op->deep = op->mapped ? 0 : least_deep(coll, op);
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
            if (op->lanes[i].at < op->lanes[i].n && lane_run(coll, op, i))
                got_on = true;
    } while (got_on && op->n_lanes > 1);
    if (coll->failed == VB_OK && op_finished(coll, op))
        op_end(coll, op);
}

/* ---- all operations -------------------------------------------------------------------------- */

/* The head of a mapped operation that follows is in a cache line of another core's: asked for
 * before it is needed. */
static void fetch_heads(const struct vb_coll *coll, uint32_t seq)
{
    const struct op *op = op_at(coll, seq);
    size_t at;
    int r;

    if (!op->active || op->seq != seq || !op->mapped)
        return;
    at = own_head_at(coll, op);
    for (r = 0; r < coll->world; r++)
        if (r != coll->rank)
            __builtin_prefetch(coll->ways[r].base + at);
}

/* Does this rank's shares of mapped operations, in the order of the operations, for done tells of
 * all before it: who has to wait holds up all after it. */
static void mapped_shares(struct vb_coll *coll)
{
    uint32_t seq = coll->next_share, end = coll->seq + 1;
    struct op *op;

    for (; seq != end && coll->failed == VB_OK; seq++) {
        op = op_at(coll, seq);
        if (!op->active || op->seq != seq || !op->mapped)
            continue;
        fetch_heads(coll, seq + 4);
        lane_run(coll, op, 0);
        if (op->lanes[0].at < op->lanes[0].n)
            break;
    }
    coll->next_share = seq;
    if (coll->done_bytes > 0)
        mapped_publish_done(coll);
    if (coll->told)
        mapped_wake(coll);
}

/* Whether the others are done too. Of a broadcast only the root is read. */
static bool mapped_over(struct vb_coll *coll, struct op *op)
{
    bool is_read = !op->eager && op->kind != OP_BARRIER &&
                   (op->kind != OP_BROADCAST || op->root == coll->rank);

    return op_are_here(coll, op, 0, coll->world) && (!is_read || op_are_done(coll, op));
}

/* First all shares, then a look at whether the others have done theirs: looking at a flag that is
 * about to change is what costs. */
static void mapped_run(struct vb_coll *coll)
{
    uint32_t seq, end = coll->seq + 1;
    struct op *op;

    mapped_shares(coll);
    for (seq = coll->oldest; seq != end && coll->failed == VB_OK; seq++) {
        op = op_at(coll, seq);
        if (!op->active || op->seq != seq || !op->mapped)
            continue;
        if (op->lanes[0].at < op->lanes[0].n || !mapped_over(coll, op))
            break;
        op_end(coll, op);
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
        coll_give_back(coll);
    }
    for (seq = coll->oldest; seq != end; seq++) {
        op = op_at(coll, seq);
        if (op->active && op->seq == seq && !op->mapped)
            op_run(coll, op);
    }
}

/* Others get on only if something stood still for its turn. */
void coll_run_op(struct vb_coll *coll, struct op *op)
{
    op_run(coll, op);
    if (coll->blocked)
        coll_run(coll);
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
    bool under_way = op->active && op->seq == seq;

    if (low != (seq & SEQ_MASK) || (under_way && op->mapped)) /* which has flags, no notes */
        return false;
    arrivals_of(coll, seq, rank)->n[stream]++;
    if (under_way)
        coll_run_op(coll, op);
    else if (coll->blocked)
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
