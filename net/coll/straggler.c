/* SPDX-License-Identifier: MIT
 *
 * Measures how long this rank waited for other ranks to start a collective. The time after all
 * ranks have started counts as transfer. On mapped windows, all time in which this rank has nothing
 * to do counts as waiting. A trace shows both as slices, the waits with an arrow to the request of
 * the rank that was waited for.
 */
#include "net/coll/coll_priv.h"

/* Adds the time since the last call, less the time of long sums, to the wait statistics of the rank
 * that was waited for. */
static void settle(struct straggler *straggler, struct vb_coll *coll)
{
    uint64_t now_ns = vb_clock_ns(), ns = now_ns - straggler->begin_ns;
    uint64_t summed = coll->stats.summed_ns - straggler->summed_ns;
    int rank = straggler->rank != NO_RANK ? group_rank(coll, straggler->rank) : NO_RANK;

    if (rank != NO_RANK)
        vb_group_wait_add(coll->group, rank, ns > summed ? ns - summed : 0);
    if (straggler->begin_ns == 0)
        ; /* the wait has only begun */
    else if (rank != NO_RANK)
        vb_trace_past(VB_OP_WAIT, ns, rank, vb_trace_request(coll->channel, rank, straggler->seq));
    else
        vb_trace_past(VB_OP_WIRE, ns, -1, 0);
    straggler->begin_ns = now_ns;
    straggler->summed_ns = coll->stats.summed_ns;
}

/* Returns the straggler of a request that waits for rank from, or NO_RANK. If windows are mapped,
 * this is from. Otherwise it is the first rank that has not begun to send. A rank has begun to send
 * if START has come, or the note that comes before a long START. */
static int straggler_of(struct vb_coll *coll, struct request *rq, int from)
{
    int r;

    if (rq->mapped)
        return from;
    for (r = 0; r < coll->world; r++)
        if (r != coll->rank && !vb_request_started_by(coll, rq, r, r + 1) &&
            arrivals_of(coll, rq->seq, r)->n[STREAM_PART] == 0)
            return r;
    return NO_RANK;
}

void vb_straggler_begin(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                        uint64_t now_ns)
{
    group_lock(coll->group);
    straggler->begin_ns = now_ns;
    straggler->seq = rq->seq;
    straggler->summed_ns = coll->stats.summed_ns;
    straggler->rank = coll_works(coll) && rq->active
                          ? straggler_of(coll, rq, vb_request_waits_for(coll, rq))
                          : NO_RANK;
    group_unlock(coll->group);
}

void vb_straggler_look(struct straggler *straggler, struct vb_coll *coll, struct request *rq,
                       int from)
{
    int rank = straggler_of(coll, rq, from);

    if (rank == straggler->rank)
        return;
    settle(straggler, coll);
    straggler->rank = rank;
    straggler->seq = rq->seq;
}

void vb_straggler_end(struct straggler *straggler, struct vb_coll *coll)
{
    if (straggler->begin_ns == 0 || (straggler->rank == NO_RANK && vb_trace_self == NULL))
        return;
    group_lock(coll->group);
    settle(straggler, coll);
    group_unlock(coll->group);
}
