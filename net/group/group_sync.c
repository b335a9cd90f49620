/* SPDX-License-Identifier: MIT
 *
 * Barrier, broadcast and gather are one *meeting*: every rank puts its record, or nothing, to every
 * other rank, and waits until a note has come from each of them. In the receiver's window each
 * sender has a slot. Two sets of slots are enough, used in turn: a rank can begin the meeting after
 * the next only when all ranks have come to the next, and so have read their slots of this one.
 */
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>

/* The window: two places for records to send, then two sets with a slot for each rank. */
static size_t own_at(uint32_t seq)
{
    return (seq % 2) * VB_RECORD_MAX;
}

static size_t slot_at(const struct vb_group *g, uint32_t seq, int rank)
{
    return (2 + (seq % 2) * (size_t)g->world + (size_t)rank) * VB_RECORD_MAX;
}

static void note_came(void *arg, int rank, uint32_t value)
{
    struct vb_group *g = arg;

    if (value == ((g->sync.arrived[rank] + 1) & 0xffffffu))
        g->sync.arrived[rank]++;
    else
        vb_control_lose(g->control, rank, "the peer sent a note for a collective that is not due");
}

vb_status vb_group_sync_open(struct vb_group *g)
{
    struct group_sync *sync = &g->sync;
    vb_status st;

    sync->arrived = calloc((size_t)g->slots, sizeof(*sync->arrived)); /* joiners send notes, too */
    sync->ops = calloc((size_t)g->world, sizeof(*sync->ops));
    if (sync->arrived == NULL || sync->ops == NULL)
        return vb_err_sys("calloc");
    st = vb_channel_open(g, VB_CHANNEL_GROUP, note_came, g);
    if (st != VB_OK)
        return st;
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

struct meeting {
    struct vb_group *group;
    uint32_t seq;
    int missing; /* the first rank whose note has not come */
};

static bool all_came(void *arg)
{
    struct meeting *m = arg;
    struct group_sync *sync = &m->group->sync;

    for (; m->missing < m->group->world; m->missing++)
        if (m->missing != m->group->rank && (int32_t)(sync->arrived[m->missing] - m->seq) < 0)
            return false;
    return true;
}

static bool all_sent(void *arg)
{
    struct meeting *m = arg;

    for (; m->missing < m->group->world; m->missing++)
        if (m->missing != m->group->rank && !m->group->sync.ops[m->missing].done)
            return false;
    return true;
}

/* record NULL: this rank sends none. */
static vb_status meet(struct vb_group *g, const void *record, size_t len, const char *name)
{
    struct meeting m = {.group = g, .seq = ++g->sync.seq};
    vb_status st = VB_OK;
    char what[48];
    int i;

    snprintf(what, sizeof(what), "%s %u", name, m.seq);
    if (len > VB_RECORD_MAX)
        return vb_err(VB_ERR_USAGE, "%s: a record has %zu bytes, but the maximum is %d", what, len,
                      VB_RECORD_MAX);
    st = vb_member_check_all(g, what);
    if (st != VB_OK)
        return st;
    if (record != NULL && len > 0)
        memcpy((char *)vb_window_ptr(g->sync.win) + own_at(m.seq), record, len);
    for (i = 0; i < g->world && st == VB_OK; i++)
        if (i != g->rank)
            st = vb_put_wait(g->sync.win, i, NULL, own_at(m.seq), slot_at(g, m.seq, g->rank),
                             record != NULL ? len : 0, VB_NOTE(VB_CHANNEL_GROUP, m.seq),
                             &g->sync.ops[i], 0);
    if (st == VB_OK)
        st = vb_group_wait_for(g, all_came, &m, what, &m.missing);
    m.missing = 0;
    return st == VB_OK ? vb_group_wait_for(g, all_sent, &m, what, &m.missing) : st;
}

vb_status vb_group_barrier(struct vb_group *g)
{
    return meet(g, NULL, 0, "barrier");
}

static const char *record_of(struct vb_group *g, int rank)
{
    return (const char *)vb_window_ptr(g->sync.win) + slot_at(g, g->sync.seq, rank);
}

vb_status vb_group_broadcast(struct vb_group *g, int from, void *record, size_t len_bytes)
{
    vb_status st = meet(g, from == g->rank ? record : NULL, len_bytes, "broadcast");

    if (st == VB_OK && from != g->rank)
        memcpy(record, record_of(g, from), len_bytes);
    return st;
}

vb_status vb_group_gather(struct vb_group *g, const void *record, size_t len_bytes, void *all)
{
    vb_status st = meet(g, record, len_bytes, "gather");
    char *out = all;
    int i;

    for (i = 0; i < g->world && st == VB_OK; i++)
        memcpy(out + (size_t)i * len_bytes, i == g->rank ? record : record_of(g, i), len_bytes);
    return st;
}
