/* SPDX-License-Identifier: MIT
 *
 * What a sparse allreduce does when a member is gone, and when the others have regrouped. The
 * layout of the window stays that of the start, in which the lists of fewer ranks have room, too.
 */
#include "net/sparse/sparse_priv.h"

#define FIRST_SHIFT 20 /* as in coll_regroup.c; even numbers, because heads have two places */

vb_status vb_sparse_check_members(struct vb_sparse *s)
{
    int missing = vb_group_missing(s->group);

    if (missing == VB_NO_PLACE)
        return VB_OK;
    return vb_sparse_fail(s, vb_group_say_gone(s->group, missing, s->what));
}

static void stop(void *arg)
{
    struct vb_sparse *s = arg;

    if (s->failed == VB_OK)
        s->failed = VB_ERR_PEER;
    s->started = s->failed; /* so that vb_sparse_finish() does not look for an older call */
}

static bool is_quiet(void *arg)
{
    const struct vb_sparse *s = arg;
    int r;

    for (r = 0; r < s->n_peers; r++)
        if (!vb_sparse_is_sent(&s->peers[r]))
            return false;
    return true;
}

/* Exchanges what is known of two peers. Their ops have ended, so they need not be moved. */
static void swap_peers(struct sparse_peer *a, struct sparse_peer *b)
{
    int rank = a->rank;
    const char *mapped = a->mapped;
    uint64_t max_nnz = a->max_nnz;

    a->rank = b->rank;
    a->mapped = b->mapped;
    a->max_nnz = b->max_nnz;
    b->rank = rank;
    b->mapped = mapped;
    b->max_nnz = max_nnz;
}

static void reset(void *arg)
{
    struct vb_sparse *s = arg;
    const struct group_view *view = vb_group_view(s->group);
    uint32_t first = view->number << FIRST_SHIFT;
    struct sparse_peer *peer;
    int i, k;

    for (i = 0; i < view->n; i++) {
        for (k = i; s->peers[k].rank != view->members[i]; k++)
            ;
        swap_peers(&s->peers[i], &s->peers[k]);
    }
    for (i = 0; i < s->n_peers; i++) {
        peer = &s->peers[i];
        peer->heads = peer->begun = first;
        peer->part = peer->sum = (struct sparse_incoming){.seq = first};
    }
    s->world = s->plan.world = view->n;
    s->rank = view->mine;
    s->seq = s->first_seq = first;
    s->failed = VB_OK;
}

/* No peer writes to the data of the dense allreduce before this rank has started one. */
static vb_status resume(void *arg)
{
    vb_sparse_mend_dense(arg);
    return VB_OK;
}

void vb_sparse_follow(struct vb_sparse *s)
{
    s->follower = (struct group_follower){.channel = s->channel,
                                          .stop = stop,
                                          .is_quiet = is_quiet,
                                          .reset = reset,
                                          .resume = resume,
                                          .arg = s};
    vb_group_follow(s->group, &s->follower);
}
