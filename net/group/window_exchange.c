/* SPDX-License-Identifier: MIT
 *
 * Windows of an elastic group. Ranks may join or die meanwhile, so each rank offers its part to
 * each member and imports the parts that members offer. A joiner offers its parts of the existing
 * windows, and each member answers with its own. A window has the same number on all ranks, and the
 * offers of a peer come in the order of these numbers. The mapped parts of a rank that is gone stay
 * mapped until another rank takes its slot, because the caller may be reading them.
 */
#include "net/group/group_priv.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define NAP_MS 10

static struct vb_window *find_window(struct vb_group *g, uint32_t id)
{
    struct vb_window *win = g->windows;

    while (win != NULL && win->id != id)
        win = win->next;
    return win;
}

void vb_window_exchange_add(struct vb_window *win)
{
    struct vb_window **at = &win->group->windows;

    win->group->opening = true; /* vb_window_create_for() sets this to false */
    while (*at != NULL)
        at = &(*at)->next;
    *at = win;
}

static void release_kept(struct vb_window *win, int rank)
{
    if (win->kept[rank] != NULL)
        vb_transport_shm.release_window(win->kept[rank]);
    win->kept[rank] = NULL;
}

void vb_window_exchange_remove(struct vb_window *win)
{
    struct vb_window **at = &win->group->windows;
    int i;

    while (*at != NULL && *at != win)
        at = &(*at)->next;
    if (*at != NULL)
        *at = win->next;
    for (i = 0; win->kept != NULL && i < win->group->slots; i++)
        release_kept(win, i);
}

static vb_status send_offer(struct vb_window *win, int rank)
{
    struct vb_group *g = win->group;
    struct peer *peer = &g->peers[rank];
    struct wire_offer offer;
    vb_status st;

    vb_window_offer(win, &offer);
    win->offered[rank] = true;
    st = peer->transport->offer_window(peer->ep, win->id, &win->mem,
                                       vb_window_key(&offer, peer->transport));
    return st == VB_OK ? vb_control_send_offer(g->control, rank, &offer) : st;
}

static vb_status import_offer(struct vb_window *win, int rank, struct wire_offer *offer)
{
    vb_status st;

    if (win->remotes[rank] != NULL)
        return vb_err(VB_ERR_INPUT, "rank %d offers window %u twice", rank, win->id);
    release_kept(win, rank);
    st = vb_window_import(win, rank, offer);
    if (st == VB_OK && !win->offered[rank])
        st = send_offer(win, rank);
    return st;
}

int vb_window_exchange_take(struct vb_group *g, int rank)
{
    struct wire_offer offer;
    struct vb_window *win;
    int n = 0;

    while (vb_control_peek_offer(g->control, rank, &offer)) {
        win = find_window(g, offer.window);
        if (win == NULL)
            break; /* the peer is ahead: this rank has not created this window yet */
        vb_control_drop_offer(g->control, rank);
        n++;
        if (import_offer(win, rank, &offer) != VB_OK) {
            vb_control_lose(g->control, rank, "a window could not be shared with this peer");
            break;
        }
    }
    return n;
}

bool vb_window_exchange_has_all(struct vb_group *g, int rank)
{
    struct vb_window *win;

    for (win = g->windows; win != NULL; win = win->next)
        if (win->id > 0 && win->remotes[rank] == NULL) /* window 0 is of the barrier */
            return false;
    return true;
}

void vb_window_exchange_forget(struct vb_group *g, int rank)
{
    const struct vb_transport *transport = g->peers[rank].transport;
    struct vb_window *win;

    for (win = g->windows; win != NULL; win = win->next) {
        win->offered[rank] = false;
        win->lens[rank] = 0;
        if (win->remotes[rank] == NULL)
            continue;
        if (transport->caps & VB_CAP_MAPPED)
            win->kept[rank] = win->remotes[rank];
        else
            transport->release_window(win->remotes[rank]);
        win->remotes[rank] = NULL;
    }
}

vb_status vb_window_exchange_add_device(struct vb_group *g, struct vb_device *dev)
{
    struct wire_offer unused;
    struct vb_window *win;
    vb_status st = VB_OK;

    for (win = g->windows; win != NULL && st == VB_OK; win = win->next)
        st = vb_window_export(win, dev, &unused);
    if (st == VB_OK)
        return VB_OK;
    for (win = g->windows; win != NULL; win = win->next)
        if (win->n_exported > g->n_devices) {
            vb_device_transport(dev)->unexport_window(dev, win->id);
            win->n_exported--;
        }
    return st;
}

struct sharing {
    struct vb_window *win;
    int rank; /* the first rank that has not offered its part */
};

static bool all_offered(void *arg)
{
    struct sharing *s = arg;
    struct vb_group *g = s->win->group;

    for (s->rank = 0; s->rank < g->slots; s->rank++)
        if (s->rank != g->rank && g->peers[s->rank].member && s->win->remotes[s->rank] == NULL)
            return false;
    return true;
}

static bool check_offers(struct sharing *s)
{
    struct vb_group *g = s->win->group;
    bool all;

    group_lock(g);
    (void)vb_member_work(g);
    all = all_offered(s);
    group_unlock(g);
    return all;
}

static void nap(struct vb_group *g)
{
    struct pollfd pfd = {.fd = g->wake_fd, .events = POLLIN};
    uint64_t count;

    if (poll(&pfd, 1, NAP_MS) > 0)
        (void)!read(g->wake_fd, &count, sizeof(count));
}

/* Devices are not polled: no note may be delivered before the caller has the window. */
static vb_status wait_for_all(struct sharing *s)
{
    struct vb_group *g = s->win->group;
    uint64_t deadline = group_deadline(g);
    char why[256];
    vb_status st;

    while (!check_offers(s)) {
        st = vb_control_status(g->control, why, sizeof(why));
        if (st != VB_OK)
            return vb_err(st, "window %u: %s", s->win->id, why);
        if (vb_clock_ns() >= deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d (%s) did not open window %u in time", s->rank,
                          vb_group_host(g, s->rank), s->win->id);
        nap(g);
    }
    return VB_OK;
}

vb_status vb_window_exchange_share(struct vb_window *win)
{
    struct vb_group *g = win->group;
    struct sharing s = {.win = win};
    int i;

    group_lock(g);
    for (i = 0; i < g->slots; i++)
        if (i != g->rank && g->peers[i].member && send_offer(win, i) != VB_OK)
            vb_control_lose(g->control, i, "a window could not be shared with this peer");
    group_unlock(g);
    return wait_for_all(&s);
}
