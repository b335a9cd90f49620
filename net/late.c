/* SPDX-License-Identifier: MIT
 *
 * Who was late: how long this rank waited for others to begin a collective. What comes after that
 * is transfer.
 *
 * On mapped windows a rank does its own share and then has nothing to do: the time until the others
 * have done theirs counts as waiting, too.
 */
#include "net/coll_priv.h"

#include <string.h>

void late_add(struct vb_group *g, int rank, uint64_t ns)
{
    struct vb_late *late = &g->late[rank];

    group_lock(g);
    late->ns += ns;
    late->n += ns >= LATE_OFTEN_NS;
    late->max_ns = ns > late->max_ns ? ns : late->max_ns;
    g->late_ns += ns;
    group_unlock(g);
}

uint64_t vb_group_late_ns(struct vb_group *g)
{
    uint64_t ns;

    group_lock(g);
    ns = g->late_ns;
    group_unlock(g);
    return ns;
}

struct vb_late vb_group_late(struct vb_group *g, int rank)
{
    struct vb_late late;

    group_lock(g);
    late = g->late[rank];
    group_unlock(g);
    return late;
}

void vb_group_late_forget(struct vb_group *g)
{
    group_lock(g);
    memset(g->late, 0, (size_t)g->world * sizeof(*g->late));
    g->late_ns = 0;
    group_unlock(g);
}

/* ---- a wait for an operation ------------------------------------------------------------------
 */

/* What has gone by since the last call was the rank's that was waited for. */
static void settle(struct late *late, struct vb_coll *coll)
{
    uint64_t now_ns = vb_clock_ns(), ns = now_ns - late->begin_ns;
    uint64_t summed = coll->summed_ns - late->summed_ns;

    if (late->rank != NO_RANK)
        late_add(coll->group, late->rank, ns > summed ? ns - summed : 0);
    late->begin_ns = now_ns;
    late->summed_ns = coll->summed_ns;
}

/* Who is late of an operation that waits for from. Once all have begun to send, the rest is
 * transfer, unless windows are mapped. The head of a vector that is sent whole comes before it,
 * with a note of its own. */
static int late_rank(struct vb_coll *coll, struct op *op, int from)
{
    int r;

    if (op->mapped)
        return from;
    for (r = 0; r < coll->world; r++)
        if (r != coll->rank && !op_are_here(coll, op, r, r + 1) &&
            arrivals_of(coll, op->seq, r)->n[STREAM_PART] == 0)
            return r;
    return NO_RANK;
}

void late_begin(struct late *late, struct vb_coll *coll, struct op *op, uint64_t now_ns)
{
    group_lock(coll->group);
    late->begin_ns = now_ns;
    late->summed_ns = coll->summed_ns;
    late->rank = op->active ? late_rank(coll, op, op_waits_for(coll, op)) : NO_RANK;
    group_unlock(coll->group);
}

void late_look(struct late *late, struct vb_coll *coll, struct op *op, int from)
{
    int rank = late_rank(coll, op, from);

    if (rank == late->rank)
        return;
    settle(late, coll);
    late->rank = rank;
}

void late_end(struct late *late, struct vb_coll *coll)
{
    if (late->begin_ns == 0 || late->rank == NO_RANK)
        return;
    group_lock(coll->group);
    settle(late, coll);
    group_unlock(coll->group);
}
