/* SPDX-License-Identifier: MIT
 *
 * Creates and destroys windows. Every rank exports its part of a window to all its devices, the
 * ranks exchange the keys over the control plane, and every rank imports the parts of its peers.
 */
#include "net/group/group_priv.h"
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

struct vb_blob *vb_window_key(struct wire_offer *offer, const struct vb_transport *transport)
{
    if (transport == &vb_transport_shm)
        return &offer->keys[WIRE_KEY_SHM];
    return &offer->keys[transport == &vb_transport_tcp ? WIRE_KEY_TCP : WIRE_KEY_VERBS];
}

vb_status vb_window_memory(const struct vb_group_opts *o, size_t len, struct vb_mem *mem)
{
    vb_status st = vb_mem_map_shared("verbena-window", len, mem);

    if (st == VB_OK && o->topo != NULL)
        st = vb_placement_bind_range(o->topo, o->placement, o->placement_rank, mem->ptr,
                                     mem->len_bytes);
    return st == VB_OK ? vb_mem_populate(mem) : st;
}

/* In an elastic group a window is not exported to a device that maps it; it is offered to each peer
 * separately (window_exchange.c). */
vb_status vb_window_export(struct vb_window *win, struct vb_device *dev, struct wire_offer *offer)
{
    const struct vb_transport *transport = vb_device_transport(dev);
    vb_status st = VB_OK;

    if (!win->group->opts.elastic || (transport->caps & VB_CAP_MAPPED) == 0)
        st = transport->export_window(dev, win->id, &win->mem, win->rights,
                                      vb_window_key(offer, transport));
    if (st == VB_OK)
        win->n_exported++;
    return st;
}

vb_status vb_window_import(struct vb_window *win, int rank, struct wire_offer *offer)
{
    struct vb_group *g = win->group;
    struct peer *peer = &g->peers[rank];
    int wait_ms = g->opts.elastic ? 0 : g->opts.timeout_ms; /* elastic: the data came first */

    if (offer->rights != (win->rights & (VB_WINDOW_PUT | VB_WINDOW_GET)))
        return vb_err(VB_ERR_USAGE,
                      "rank %d (%s) opens window %u with different rights than this rank", rank,
                      vb_group_host(g, rank), win->id);
    win->lens[rank] = (size_t)offer->len_bytes;
    if (rank == g->rank)
        return VB_OK;
    return peer->transport->import_window(peer->ep, win->id, vb_window_key(offer, peer->transport),
                                          win->lens[rank], wait_ms, &win->remotes[rank]);
}

static vb_status share(struct vb_window *win, struct wire_offer *mine)
{
    struct vb_group *g = win->group;
    struct wire_offer *offers = calloc((size_t)g->world, sizeof(*offers));
    vb_status st;
    int i;

    if (offers == NULL)
        return vb_err_sys("calloc");
    st =
        vb_control_exchange(g->control, mine, sizeof(*mine), offers, "a window", group_deadline(g));
    group_lock(g);
    for (i = 0; i < g->world && st == VB_OK; i++)
        st = vb_window_import(win, i, &offers[i]);
    group_unlock(g);
    free(offers);
    return st;
}

void vb_window_offer(const struct vb_window *win, struct wire_offer *offer_p)
{
    memset(offer_p, 0, sizeof(*offer_p)); /* the padding, too, because it is sent */
    offer_p->window = win->id;
    offer_p->len_bytes = win->mem.len_bytes;
    offer_p->rights = win->rights & (VB_WINDOW_PUT | VB_WINDOW_GET);
}

static vb_status open_window(struct vb_window *win)
{
    struct vb_group *g = win->group;
    struct wire_offer mine;
    vb_status st = VB_OK;
    int d;

    vb_window_offer(win, &mine);
    win->lens[g->rank] = win->mem.len_bytes;
    group_lock(g);
    for (d = 0; d < g->n_devices && st == VB_OK; d++)
        st = vb_window_export(win, g->devices[d], &mine);
    if (st == VB_OK && g->opts.elastic)
        vb_window_exchange_add(win); /* under the lock, so that a new device finds the window */
    group_unlock(g);
    if (st != VB_OK)
        return st;
    return g->opts.elastic ? vb_window_exchange_share(win) : share(win, &mine);
}

/* After this no device uses the memory, so it can be unmapped. */
static void unexport_all(struct vb_window *win)
{
    struct vb_group *g = win->group;
    struct vb_device *heir = NULL;
    int d;

    for (d = 0; d < win->n_exported; d++)
        if (vb_device_transport(g->devices[d])->inherit_window != NULL)
            heir = g->devices[d];
        else
            vb_device_transport(g->devices[d])->unexport_window(g->devices[d], win->id);
    if (heir != NULL && vb_device_transport(heir)->inherit_window(heir, win->id, &win->mem))
        win->mem = (struct vb_mem){.fd = -1};
}

void vb_window_release(struct vb_window *win)
{
    struct vb_group *g = win->group;
    int i;

    group_lock(g);
    if (g->opts.elastic)
        vb_window_exchange_remove(win);
    for (i = 0; win->remotes != NULL && i < g->slots; i++)
        if (win->remotes[i] != NULL)
            g->peers[i].transport->release_window(win->remotes[i]);
    unexport_all(win);
    group_unlock(g);
    vb_mem_unmap(&win->mem);
    free(win->lens);
    free(win->remotes);
    free(win->offered);
    free(win->kept);
    free(win);
}

vb_status vb_window_create(struct vb_group *g, size_t len_bytes, struct vb_window **win_p)
{
    return vb_window_create_for(g, len_bytes, VB_WINDOW_PUT | VB_WINDOW_GET | VB_WINDOW_LAND,
                                win_p);
}

vb_status vb_window_create_for(struct vb_group *g, size_t len_bytes, unsigned rights,
                               struct vb_window **win_p)
{
    size_t len = len_bytes > 0 ? len_bytes : 1;
    vb_status st = VB_OK;
    struct vb_window *win = calloc(1, sizeof(*win));

    if (win == NULL)
        return vb_err_sys("calloc");
    win->group = g;
    win->mem.fd = -1;
    win->rights = rights;
    win->id = g->next_window++;
    win->lens = calloc((size_t)g->slots, sizeof(*win->lens));
    win->remotes = calloc((size_t)g->slots, sizeof(void *));
    win->offered = calloc((size_t)g->slots, sizeof(bool));
    win->kept = calloc((size_t)g->slots, sizeof(void *));
    if (win->lens == NULL || win->remotes == NULL || win->offered == NULL || win->kept == NULL)
        st = vb_err_sys("calloc");
    else if (!vb_window_ahead_take(g->ahead, len, &win->mem))
        st = vb_window_memory(&g->opts, len, &win->mem);
    if (st == VB_OK && win->lens != NULL)
        st = open_window(win);
    group_lock(g);
    if (st == VB_OK)
        *win_p = win;
    g->opening = false; /* notes may come now, because their handlers find the window */
    group_unlock(g);
    if (st != VB_OK)
        vb_window_release(win);
    return st;
}

void vb_window_destroy(struct vb_window *win)
{
    if (win == NULL)
        return;
    /* In an elastic group peers may still be writing until the group is closed. */
    if (win->group->opts.elastic)
        return;
    /* A peer may still be writing, so all ranks must have come here first. After a failure of the
     * group a barrier is not possible; a rank that is lost writes no more. */
    if (vb_control_status(win->group->control, NULL, 0) == VB_OK)
        (void)vb_group_barrier(win->group);
    vb_window_release(win);
}

void *vb_window_ptr(const struct vb_window *win)
{
    return win->mem.ptr;
}

size_t vb_window_len(const struct vb_window *win, int rank)
{
    return win->lens[rank];
}

void *vb_window_peer(const struct vb_window *win, int rank)
{
    struct vb_group *g = win->group;
    void *ptr;

    if (rank == g->rank)
        return win->mem.ptr;
    group_lock(g);
    ptr = win->remotes[rank] != NULL ? g->peers[rank].transport->remote_ptr(win->remotes[rank])
                                     : NULL;
    group_unlock(g);
    return ptr;
}
