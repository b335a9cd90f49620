/* SPDX-License-Identifier: MIT
 *
 * Barrier, broadcast and gather are one *meeting*: every rank puts its record, or nothing, to every
 * other rank, and waits until a note has come from each of them. In the receiver's window each
 * sender has a slot. Two sets of slots are enough, used in turn: a rank can begin the meeting after
 * the next only when all ranks have come to the next, and so have read their slots of this one.
 *
 * The ranks are the members of the view (regroup.c), and are counted by their places in it.
 */
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>

/* The window: two places for records to send, then two sets with a slot for each rank. */
static size_t own_at(uint32_t seq)
{
    return (seq % 2) * VB_RECORD_MAX;
}

static size_t slot_at(const struct vb_group *g, uint32_t seq, int place)
{
    return (2 + (seq % 2) * (size_t)g->world + (size_t)place) * VB_RECORD_MAX;
}

static void note_came(void *arg, int rank, uint32_t value)
{
    struct vb_group *g = arg;

    if (value == ((g->sync.arrived[rank] + 1) & 0xffffffu))
        g->sync.arrived[rank]++;
    else
        vb_control_lose(g->control, rank, "the peer sent a note for a collective that is not due");
}

/* ---- when the members change ----------------------------------------------------------------- */

static void sync_stop(void *arg)
{
    ((struct vb_group *)arg)->sync.stopped = true;
}

static bool sync_is_quiet(void *arg)
{
    struct vb_group *g = arg;
    int i;

    for (i = 0; i < g->world; i++)
        if (!g->sync.ops[i].done)
            return false;
    return true;
}

static void sync_reset(void *arg)
{
    struct vb_group *g = arg;

    g->sync.stopped = false;
    g->sync.seq = 0;
    memset(g->sync.arrived, 0, (size_t)g->slots * sizeof(*g->sync.arrived));
}

vb_status vb_group_sync_open(struct vb_group *g)
{
    struct group_sync *sync = &g->sync;
    vb_status st;
    int i;

    sync->arrived = calloc((size_t)g->slots, sizeof(*sync->arrived)); /* joiners send notes, too */
    sync->ops = calloc((size_t)g->world, sizeof(*sync->ops));
    if (sync->arrived == NULL || sync->ops == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < g->world; i++)
        sync->ops[i].done = true;
    st = vb_channel_open(g, VB_CHANNEL_GROUP, note_came, g);
    if (st != VB_OK)
        return st;
    sync->follower = (struct group_follower){.channel = VB_CHANNEL_GROUP,
                                             .stop = sync_stop,
                                             .is_quiet = sync_is_quiet,
                                             .reset = sync_reset,
                                             .arg = g};
    vb_group_follow(g, &sync->follower);
    return vb_window_create_for(g, (2 + 2 * (size_t)g->world) * VB_RECORD_MAX, VB_WINDOW_PUT,
                                &sync->win);
}

void vb_group_sync_close(struct vb_group *g)
{
    free(g->sync.arrived);
    free(g->sync.ops);
    g->sync.arrived = NULL;
    g->sync.ops = NULL;
}

/* ---- meetings -------------------------------------------------------------------------------- */

struct meeting {
    struct vb_group *group;
    uint32_t seq;
    int place; /* of the first member that has not done its part */
    int rank;  /* its rank in the group */
    int lost;  /* a member that is gone, for which the others wait, too; VB_NO_PLACE: none */
};

static bool has_come(const struct vb_group *g, uint32_t seq, int rank)
{
    return (int32_t)(g->sync.arrived[rank] - seq) >= 0;
}

/* A member that has left after it came has met all others, so they will all come. */
static int find_lost(const struct meeting *m)
{
    const struct group_view *view = &m->group->view;
    int i, rank;

    for (i = 0; i < view->n && m->group->front.n_fenced > 0; i++) {
        rank = view->members[i];
        if (vb_regroup_is_missing(m->group, rank) &&
            (m->group->peers[rank].end != VB_END_LEFT || !has_come(m->group, m->seq, rank)))
            return rank;
    }
    return VB_NO_PLACE;
}

static bool all_came(void *arg)
{
    struct meeting *m = arg;
    const struct group_view *view = &m->group->view;

    m->lost = find_lost(m);
    for (; m->lost == VB_NO_PLACE && m->place < view->n; m->place++) {
        m->rank = view->members[m->place];
        if (m->place != view->mine && !has_come(m->group, m->seq, m->rank))
            return false;
    }
    return true;
}

/* Ops to a member that is gone end, too. */
static bool all_sent(void *arg)
{
    struct meeting *m = arg;
    const struct group_view *view = &m->group->view;

    for (; m->place < view->n; m->place++) {
        m->rank = view->members[m->place];
        if (m->place != view->mine && !m->group->sync.ops[m->rank].done)
            return false;
    }
    return true;
}

static vb_status wait_for_all(struct meeting *m, vb_ready_fn ready, const char *what)
{
    vb_status st;

    m->place = 0;
    m->rank = m->group->rank;
    m->lost = VB_NO_PLACE;
    st = vb_group_wait_for(m->group, ready, m, what, &m->rank);
    return st == VB_OK && m->lost != VB_NO_PLACE ? vb_group_say_gone(m->group, m->lost, what) : st;
}

static vb_status send_all(struct vb_group *g, uint32_t seq, size_t len, const char *what)
{
    const struct group_view *view = &g->view;
    vb_status st = VB_OK;
    int i, rank;

    for (i = 0; i < view->n && st == VB_OK; i++) {
        rank = view->members[i];
        if (i == view->mine)
            continue;
        st = vb_put_wait(g->sync.win, rank, NULL, own_at(seq), slot_at(g, seq, view->mine), len,
                         VB_NOTE(VB_CHANNEL_GROUP, seq), &g->sync.ops[rank], 0);
        if (st != VB_OK)
            st = vb_group_put_failed(g, rank, st, what);
    }
    return st;
}

static vb_status check(struct vb_group *g, const char *what)
{
    if (g->sync.stopped)
        return vb_err(VB_ERR_PEER, "%s is not possible: the ranks must regroup first", what);
    return vb_regroup_check(g, what);
}

/* record NULL: this rank sends none. */
static vb_status meet(struct vb_group *g, const void *record, size_t len, const char *name)
{
    struct meeting m = {.group = g, .seq = ++g->sync.seq};
    vb_status st;
    char what[48];

    snprintf(what, sizeof(what), "%s %u", name, m.seq);
    if (len > VB_RECORD_MAX)
        return vb_err(VB_ERR_USAGE, "%s: a record has %zu bytes, but the maximum is %d", what, len,
                      VB_RECORD_MAX);
    st = check(g, what);
    if (st != VB_OK)
        return st;
    if (record != NULL && len > 0)
        memcpy((char *)vb_window_ptr(g->sync.win) + own_at(m.seq), record, len);
    st = send_all(g, m.seq, record != NULL ? len : 0, what);
    if (st == VB_OK)
        st = wait_for_all(&m, all_came, what);
    return st == VB_OK ? wait_for_all(&m, all_sent, what) : st;
}

vb_status vb_group_barrier(struct vb_group *g)
{
    return meet(g, NULL, 0, "barrier");
}

static const char *record_of(struct vb_group *g, int place)
{
    return (const char *)vb_window_ptr(g->sync.win) + slot_at(g, g->sync.seq, place);
}

vb_status vb_group_broadcast(struct vb_group *g, int from, void *record, size_t len_bytes)
{
    vb_status st = meet(g, from == g->view.mine ? record : NULL, len_bytes, "broadcast");

    if (st == VB_OK && from != g->view.mine)
        memcpy(record, record_of(g, from), len_bytes);
    return st;
}

vb_status vb_group_gather(struct vb_group *g, const void *record, size_t len_bytes, void *all)
{
    vb_status st = meet(g, record, len_bytes, "gather");
    char *out = all;
    int i;

    for (i = 0; i < g->view.n && st == VB_OK; i++)
        memcpy(out + (size_t)i * len_bytes, i == g->view.mine ? record : record_of(g, i),
               len_bytes);
    return st;
}
