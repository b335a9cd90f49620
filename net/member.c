/* SPDX-License-Identifier: MIT
 *
 * Who is in an elastic group. The control plane finds out who is lost, has left or comes; what that
 * means for devices and windows is done here, by whichever thread makes progress, for nobody else
 * may touch them.
 *
 * A rank that is gone is fenced before anybody is told: its endpoint is severed, so that nothing of
 * it comes up any more, then closed; the ops under way to it end; then its seat is given back to
 * the control plane, and the hook is called.
 */
#include "net/group_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- gone ------------------------------------------------------------------------------------ */

static void finish_all(struct vb_op *op)
{
    struct vb_op *next;

    for (; op != NULL; op = next) {
        next = op->next;
        group_finish(op, op->status);
    }
}

static void close_peer(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];
    struct vb_op *ops;

    if (peer->late_fd >= 0)
        close(peer->late_fd);
    peer->late_fd = -1;
    peer->step = LATE_NONE;
    if (peer->ep == NULL)
        return;
    ops = peer->transport->sever(peer->ep);
    offer_forget(g, rank);
    peer->transport->disconnect(peer->ep);
    finish_all(ops); /* only now is their memory free */
    peer->transport = &vb_transport_nobody;
    peer->dev = NULL;
    peer->ep = NULL;
    peer->device[0] = '\0';
    peer->strayed = false;
}

static void tell(const struct member_hook *hook, int rank)
{
    if (hook->fn != NULL)
        hook->fn(hook->arg, rank);
}

static void fence(struct vb_group *g, const struct control_end *end)
{
    struct peer *peer = &g->peers[end->rank];
    bool was_member = peer->member;

    close_peer(g, end->rank);
    peer->member = false;
    control_slot_clean(g->control, end->rank);
    if (!was_member)
        return; /* nobody has heard of it */
    peer->gone = true;
    peer->gone_pid = pair_same_host(g, end->rank) ? (int)peer->info.pid : 0;
    peer->end = end->how;
    memcpy(peer->why, end->why, sizeof(peer->why));
    if (end->how == VB_END_LEFT)
        VB_LOG_INFO("rank %d (%s) has left", end->rank, peer->info.host);
    else
        VB_LOG_INFO("rank %d (%s) is gone: %s", end->rank, peer->info.host, peer->why);
    tell(&g->on_gone, end->rank);
}

/* ---- what there is to do --------------------------------------------------------------------- */

void member_hail(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];

    peer->step = LATE_NONE;
    peer->member = true;
    peer->gone = false;
    peer->end = VB_END_NONE;
    peer->why[0] = '\0';
    VB_LOG_INFO("rank %d (%s) has joined, over %s", rank, peer->info.host, peer->transport->name);
    tell(&g->on_join, rank);
}

int member_work(struct vb_group *g)
{
    struct control_end end;
    int i, n = 0;

    if (g->working)
        return 0; /* a hook makes progress: not allowed, but no reason to run in circles */
    g->working = true;
    /* Pairs with the release in membership_news(): what it tells of is looked for afterwards. */
    (void)atomic_exchange_explicit(&g->news, false, memory_order_acquire);
    while (control_take_ended(g->control, &end)) {
        fence(g, &end);
        n++;
    }
    for (i = 0; i < g->seats; i++) {
        if (i == g->rank)
            continue;
        n += g->peers[i].member ? offer_take(g, i) : newcomer_step(g, i);
    }
    g->working = false;
    return n;
}

static vb_status check_rank(struct vb_group *g, int rank, const char *what)
{
    const struct peer *peer = &g->peers[rank];

    if (peer->gone)
        return vb_err(VB_ERR_PEER, "%s: rank %d (%s) is gone: %s", what, rank, peer->info.host,
                      peer->why);
    if (peer->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_PEER, "%s: rank %d (%s) has joined late", what, rank, peer->info.host);
    return VB_OK;
}

/* A collective is for the ranks that the job began with, and all of them. */
vb_status member_check_all(struct vb_group *g, const char *what)
{
    vb_status st = VB_OK;
    int i;

    if (!g->opts.elastic)
        return VB_OK;
    if (g->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_USAGE, "%s: this rank has joined late", what);
    group_lock(g);
    for (i = 0; i < g->world && st == VB_OK; i++)
        st = check_rank(g, i, what);
    group_unlock(g);
    return st;
}

/* Tables of collectives on windows have a place for each rank of the beginning. */
vb_status member_check_fixed(struct vb_group *g, const char *what)
{
    if (g->seats > g->world)
        return vb_err(VB_ERR_USAGE, "%s is not for a group that others may join", what);
    return member_check_all(g, what);
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool vb_group_gone(struct vb_group *g, int rank)
{
    bool gone;

    group_lock(g);
    gone = g->peers[rank].gone;
    group_unlock(g);
    return gone;
}

enum vb_end vb_group_end(struct vb_group *g, int rank)
{
    enum vb_end end;

    group_lock(g);
    end = g->peers[rank].end;
    group_unlock(g);
    return end;
}

const char *vb_group_gone_why(struct vb_group *g, int rank)
{
    return g->peers[rank].why;
}

bool vb_group_member(struct vb_group *g, int rank)
{
    bool member;

    group_lock(g);
    member = g->peers[rank].member;
    group_unlock(g);
    return member;
}

int vb_group_seats(const struct vb_group *g)
{
    return g->seats;
}

uint32_t vb_group_epoch(struct vb_group *g)
{
    return control_epoch(g->control);
}

/* The seat of who is gone may have its next owner's name on it already. */
int vb_group_pid(struct vb_group *g, int rank)
{
    const struct peer *peer = &g->peers[rank];
    int pid;

    group_lock(g);
    if (peer->gone)
        pid = peer->gone_pid;
    else
        pid = pair_same_host(g, rank) ? (int)peer->info.pid : 0;
    group_unlock(g);
    return pid;
}

void vb_group_on_gone(struct vb_group *g, vb_member_fn fn, void *arg)
{
    group_lock(g);
    g->on_gone = (struct member_hook){.fn = fn, .arg = arg};
    group_unlock(g);
}

void vb_group_on_join(struct vb_group *g, vb_member_fn fn, void *arg)
{
    group_lock(g);
    g->on_join = (struct member_hook){.fn = fn, .arg = arg};
    group_unlock(g);
}

void vb_group_welcome(struct vb_group *g)
{
    if (g->opts.elastic && g->rank == 0)
        control_open_slots(g->control);
}

vb_status vb_group_retire(struct vb_group *g, int rank, const char *why)
{
    if (!g->opts.elastic || rank < 0 || rank >= g->seats || rank == g->rank)
        return vb_err(VB_ERR_USAGE, "rank %d cannot be retired here", rank);
    group_lock(g);
    control_lose(g->control, rank, why);
    (void)member_work(g);
    group_unlock(g);
    return VB_OK;
}
