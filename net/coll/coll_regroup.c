/* SPDX-License-Identifier: MIT
 *
 * What the collectives do when a member is gone, and when the others have regrouped. The layout of
 * the window stays that of the start, in which fewer ranks have room, too.
 */
#include "net/coll/coll_priv.h"

#include <string.h>

/* A multiple of every possible number of areas. A number of a request does not come twice within
 * many views, so that a trace does not join requests of different views. */
#define FIRST_SHIFT 20

void vb_coll_fail(struct vb_coll *coll, vb_status st)
{
    struct request *rq;
    uint32_t i;

    if (coll->failed == VB_OK)
        coll->failed = st;
    for (i = 0; i < coll->reqs.n; i++) {
        rq = &coll->reqs.table[i];
        if (!rq->active)
            continue;
        rq->active = false;
        rq->handle->status = coll->failed;
        rq->handle->done = true;
    }
    coll->mapped.n_running = 0;
}

void vb_coll_check_members(struct vb_coll *coll)
{
    const struct request *rq = request_at(coll, coll->reqs.oldest);
    int missing = vb_group_missing(coll->group);
    char what[96] = "the next collective";

    coll->n_fenced = group_n_fenced(coll->group);
    if (missing == VB_NO_PLACE || coll->failed != VB_OK)
        return;
    if (rq->active)
        vb_request_describe(coll, rq, what, sizeof(what));
    vb_coll_fail(coll, vb_group_say_gone(coll->group, missing, what));
}

/* ---- what the group calls -------------------------------------------------------------------- */

static void stop(void *arg)
{
    vb_coll_fail(arg, VB_ERR_PEER);
}

static bool is_quiet(void *arg)
{
    struct vb_coll *coll = arg;
    int r;

    for (r = 0; r < coll->n_ways; r++) {
        vb_coll_reap(coll, &coll->ways[r]);
        if (coll->ways[r].left < coll->ways[r].posted)
            return false;
    }
    return true;
}

/* The ways are in the order of ranks, so the way of a member is at its place or behind it. */
static void order_ways(struct vb_coll *coll, const struct group_view *view)
{
    struct way way;
    int i, k;

    for (i = 0; i < view->n; i++) {
        for (k = i; coll->ways[k].rank != view->members[i]; k++)
            ;
        way = coll->ways[i];
        coll->ways[i] = coll->ways[k];
        coll->ways[k] = way;
    }
}

static void begin_ways(struct vb_coll *coll)
{
    struct way *way;
    int r;

    for (r = 0; r < coll->n_ways; r++) {
        way = &coll->ways[r];
        memset(way->sent, 0, sizeof(way->sent));
        memset(way->freed, 0, sizeof(way->freed));
        memset(way->taken, 0, sizeof(way->taken));
        memset(way->owed, 0, sizeof(way->owed));
        way->posted = way->left = 0;
    }
}

static void begin_flags(struct vb_coll *coll, uint32_t first)
{
    struct own_state *own = own_of(coll, coll->base);
    uint32_t i;

    for (i = 0; i < coll->reqs.n_areas; i++) {
        head_at(coll->base, mapped_head_at(coll, i, true))->seq = 0;
        head_at(coll->base, mapped_head_at(coll, i, false))->seq = 0;
    }
    own->done = first;
    own->waiting = 0;
}

void vb_coll_begin(struct vb_coll *coll, uint32_t first)
{
    struct coll_requests *reqs = &coll->reqs;
    size_t n_arrivals = (size_t)reqs->n_areas * (size_t)coll->n_ways;
    uint32_t i;

    for (i = 0; i < reqs->n_areas; i++) /* first belongs to area 0 */
        reqs->area_seq[i] = first + (i > 0 ? i : reqs->n_areas);
    for (i = 0; i < reqs->n; i++)
        reqs->table[i].n_older = 0;
    memset(reqs->arrivals, 0, n_arrivals * sizeof(*reqs->arrivals));
    reqs->seq = reqs->first_seq = first;
    reqs->oldest = first + 1;
    reqs->since_many = reqs->n;
    coll->mapped = (struct coll_mapped){.done = first, .all_done = first, .next_share = first + 1};
    coll->blocked = false;
}

static void reset(void *arg)
{
    struct vb_coll *coll = arg;
    const struct group_view *view = vb_group_view(coll->group);
    uint32_t first = view->number << FIRST_SHIFT;

    vb_coll_tell_touched(coll);
    order_ways(coll, view);
    coll->world = view->n;
    coll->rank = view->mine;
    begin_ways(coll);
    begin_flags(coll, first);
    vb_coll_begin(coll, first);
    vb_coll_find_hosts(coll);
    coll->failed = VB_OK;
    coll->n_fenced = group_n_fenced(coll->group) - 1; /* so that the members are checked */
}

static vb_status resume(void *arg)
{
    return vb_cost_again(arg);
}

void vb_coll_follow(struct vb_coll *coll)
{
    coll->follower = (struct group_follower){.channel = coll->channel,
                                             .stop = stop,
                                             .is_quiet = is_quiet,
                                             .reset = reset,
                                             .resume = resume,
                                             .arg = coll};
    vb_group_follow(coll->group, &coll->follower);
}

void vb_coll_unfollow(struct vb_coll *coll)
{
    bool works;

    group_lock(coll->group);
    works = coll->failed == VB_OK;
    group_unlock(coll->group);
    vb_group_unfollow(coll->group, &coll->follower, works);
}
