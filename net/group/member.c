/* SPDX-License-Identifier: MIT
 *
 * Membership of an elastic group. The control plane finds out which ranks are lost, have left or
 * join. The thread that makes progress then updates devices and windows, which the control thread
 * must not touch. A rank that is gone is fenced before the caller is told: its endpoint is severed
 * and closed, so that none of its notes comes any more, and the ops to it end. Then the control
 * plane gets the slot back, and the hook is called.
 */
#include "net/group/group_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KILL_MS 10000 /* time for a process that was killed to end */

/* ---- gone ------------------------------------------------------------------------------------ */

const struct vb_transport vb_transport_nobody = {.name = "none"};

static void close_peer(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];
    struct vb_op *ops, *next;

    vb_fd_close(&peer->join_fd);
    peer->join_step = JOIN_NONE;
    if (peer->ep == NULL)
        return;
    ops = peer->transport->sever(peer->ep);
    vb_window_exchange_forget(g, rank);
    peer->transport->disconnect(peer->ep);
    for (; ops != NULL; ops = next) { /* only now, because the device no longer uses their memory */
        next = ops->next;
        vb_group_finish(ops, ops->status);
    }
    peer->transport = &vb_transport_nobody;
    peer->dev = NULL;
    peer->ep = NULL;
    peer->device[0] = '\0';
    peer->strayed = false;
}

static void call_hook(const struct member_hook *hook, int rank)
{
    if (hook->fn != NULL)
        hook->fn(hook->arg, rank);
}

/* Returns a copy of a descriptor, or -1. */
static int copy_fd(int fd)
{
    return fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

static void fence(struct vb_group *g, const struct control_end *end)
{
    struct peer *peer = &g->peers[end->rank];
    bool was_member = peer->member;

    close_peer(g, end->rank);
    peer->member = false;
    vb_control_slot_clean(g->control, end->rank, g->rank == 0 ? copy_fd(peer->process_fd) : -1);
    vb_fd_close(&peer->gone_process_fd);
    peer->gone_process_fd = peer->process_fd;
    peer->process_fd = -1;
    if (!was_member)
        return; /* the caller was never told that this rank exists */
    peer->gone = true;
    g->front.n_fenced++;
    vb_regroup_forget(g, end->rank);
    peer->end = end->how;
    peer->sign_ns = end->sign_ns;
    memcpy(peer->why, end->why, sizeof(peer->why));
    if (end->how == VB_END_LEFT)
        VB_LOG_INFO("rank %d (%s) has left", end->rank, peer->info.host);
    else
        VB_LOG_INFO("rank %d (%s) is gone: %s", end->rank, peer->info.host, peer->why);
    call_hook(&g->on_gone, end->rank);
}

/* ---- handling the news of the control plane -------------------------------------------------- */

void vb_member_admit(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];

    peer->join_step = JOIN_NONE;
    peer->member = true;
    peer->gone = false;
    peer->end = VB_END_NONE;
    peer->sign_ns = 0;
    peer->why[0] = '\0';
    VB_LOG_INFO("rank %d (%s) has joined, over %s", rank, peer->info.host, peer->transport->name);
    call_hook(&g->on_join, rank);
}

int vb_member_work(struct vb_group *g)
{
    struct control_end end;
    int i, n = 0;

    if (g->working)
        return 0; /* called from a hook that makes progress, which hooks must not do */
    g->working = true;
    /* Pairs with the release in the control plane: its reports are visible after this. */
    (void)atomic_exchange_explicit(&g->news, false, memory_order_acquire);
    while (vb_control_take_ended(g->control, &end)) {
        fence(g, &end);
        n++;
    }
    for (i = 0; i < g->slots; i++) {
        if (i == g->rank)
            continue;
        n += g->peers[i].member ? vb_window_exchange_take(g, i) : vb_joiner_step(g, i);
    }
    g->working = false;
    return n;
}

static vb_status check_rank(struct vb_group *g, int rank, const char *what)
{
    const struct peer *peer = &g->peers[rank];

    if (peer->gone)
        return vb_err(VB_ERR_PEER, "%s is not possible, because rank %d (%s) is gone: %s", what,
                      rank, peer->info.host, peer->why);
    if (peer->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_PEER,
                      "%s is not possible: rank %d (%s) is a joiner, but all ranks must be members "
                      "from the start",
                      what, rank, peer->info.host);
    return VB_OK;
}

/* The tables of the collectives have an entry for each rank of the start, and none for joiners. */
vb_status vb_group_check_fixed(struct vb_group *g, const char *what)
{
    vb_status st = VB_OK;
    int i;

    if (g->slots > g->world)
        return vb_err(VB_ERR_USAGE, "%s is not possible in a group with slots for joiners", what);
    if (!g->opts.elastic)
        return VB_OK;
    if (g->epoch != GROUP_EPOCH)
        return vb_err(VB_ERR_USAGE,
                      "%s is not possible: this rank is a joiner, but all ranks must be members "
                      "from the start",
                      what);
    group_lock(g);
    for (i = 0; i < g->world && st == VB_OK; i++)
        st = check_rank(g, i, what);
    group_unlock(g);
    return st;
}

/* ---- questions and requests of the caller ---------------------------------------------------- */

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

void vb_group_ask_all(struct vb_group *g)
{
    vb_control_ask_all(g->control);
}

bool vb_group_heard_since(struct vb_group *g, int rank, uint64_t ns)
{
    return vb_control_heard_since(g->control, rank, ns);
}

uint64_t vb_group_last_sign(struct vb_group *g, int rank)
{
    uint64_t ns;

    group_lock(g);
    ns = g->peers[rank].sign_ns;
    group_unlock(g);
    return ns;
}

unsigned vb_group_moved(struct vb_group *g, int rank)
{
    return atomic_load_explicit(&g->heard[rank], memory_order_relaxed);
}

const char *vb_group_gone_why(struct vb_group *g, int rank)
{
    return g->peers[rank].why;
}

const char *vb_group_gave_up(struct vb_group *g, int rank)
{
    return vb_group_end(g, rank) == VB_END_GAVE_UP ? g->peers[rank].why + strlen(CONTROL_GAVE_UP)
                                                   : NULL;
}

bool vb_group_member(struct vb_group *g, int rank)
{
    bool member;

    group_lock(g);
    member = g->peers[rank].member;
    group_unlock(g);
    return member;
}

bool vb_group_same_host(struct vb_group *g, int rank)
{
    bool same;

    group_lock(g);
    same = vb_pair_same_host(g, rank);
    group_unlock(g);
    return same;
}

uint32_t vb_group_epoch(struct vb_group *g)
{
    return vb_control_epoch(g->control);
}

/* Says why a process cannot be killed; err is the errno of the attempt. */
static const char *why_it_lives(int err)
{
    if (err == EINVAL)
        return "it is in another PID namespace: start the ranks of a host in one PID namespace";
    return err == EPERM ? "it belongs to another user" : "the kernel reports an error";
}

static vb_status kill_process(int rank, const char *host, int fd)
{
    int err = vb_process_kill(fd) ? 0 : errno;

    if (err != 0 && !vb_process_ended(fd, 0))
        return vb_err(
            VB_ERR_ACCESS,
            "rank %d (%s) is silent and cannot be killed, so it may still write to shared "
            "memory: %s, or use --transport tcp (%s)",
            rank, host, why_it_lives(err), strerror(err));
    if (!vb_process_ended(fd, KILL_MS))
        return vb_err(VB_ERR_TIMEOUT, "rank %d (%s) was killed, but has not ended after %d s", rank,
                      host, KILL_MS / 1000);
    return VB_OK;
}

vb_status vb_group_kill(struct vb_group *g, int rank)
{
    const struct peer *peer = &g->peers[rank];
    bool same_process;
    vb_status st;
    int fd;

    group_lock(g);
    fd = copy_fd(peer->gone_process_fd);
    same_process = vb_wire_info_same_process(&peer->info, &g->peers[g->rank].info);
    group_unlock(g);
    if (fd < 0 && same_process)
        return VB_OK;
    if (fd < 0)
        return vb_err(
            VB_ERR_UNSUPPORTED,
            "rank %d (%s) is silent and cannot be killed, so it may still write to shared "
            "memory: killing it needs Linux 5.3 or later; or use --transport tcp",
            rank, peer->info.host);
    st = kill_process(rank, peer->info.host, fd);
    close(fd);
    return st;
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
        vb_control_open_slots(g->control);
}

vb_status vb_group_retire(struct vb_group *g, int rank, const char *why)
{
    if (!g->opts.elastic || rank < 0 || rank >= g->slots || rank == g->rank)
        return vb_err(
            VB_ERR_USAGE,
            "rank %d cannot be removed: only other ranks of an elastic group can be removed", rank);
    group_lock(g);
    vb_control_lose(g->control, rank, why);
    (void)vb_member_work(g);
    group_unlock(g);
    return VB_OK;
}
