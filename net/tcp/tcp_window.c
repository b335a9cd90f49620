/* SPDX-License-Identifier: MIT
 *
 * Windows over TCP. A peer needs only the number of a window, so the key is empty.
 */
#include "net/tcp/tcp_priv.h"

#include <stdlib.h>

const struct tcp_window *vb_tcp_find_window(const struct tcp_device *dev, uint32_t id)
{
    int i;

    for (i = 0; i < dev->n_windows; i++) /* a linear search, because a job has few windows */
        if (dev->windows[i].id == id)
            return &dev->windows[i];
    return NULL;
}

vb_status vb_tcp_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p)
{
    struct tcp_device *dev = tcp_device_of(vdev);
    struct tcp_window *windows;

    if (vb_tcp_find_window(dev, id) != NULL)
        return vb_err(VB_ERR_USAGE, "window %u exists already", id);
    windows = realloc(dev->windows, ((size_t)dev->n_windows + 1) * sizeof(*windows));
    if (windows == NULL)
        return vb_err_sys("realloc");
    dev->windows = windows;
    windows[dev->n_windows++] = (struct tcp_window){id, mem->ptr, mem->len_bytes, rights};
    key_p->len_bytes = 0;
    return VB_OK;
}

vb_status vb_tcp_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p)
{
    (void)ep;
    (void)id;
    (void)mem;
    key_p->len_bytes = 0;
    return VB_OK;
}

static bool points_into(const struct tcp_window *win, const char *ptr)
{
    return ptr >= win->ptr && ptr < win->ptr + win->len_bytes;
}

/* Returns true if a transfer from or to the window is still under way. */
static bool ep_uses(struct tcp_ep *ep, const struct tcp_window *win)
{
    const struct tcp_tx *tx = &ep->tx;
    uint64_t i;

    for (i = tx->begin; i != tx->end; i++)
        if (points_into(win, tx->frames[i % tx->size].ptr))
            return true;
    return ep->rx.in_frame && points_into(win, ep->rx.to);
}

void vb_tcp_unexport_window(struct vb_device *vdev, uint32_t id)
{
    struct tcp_device *dev = tcp_device_of(vdev);
    struct tcp_window *win = NULL;
    int i;

    for (i = 0; i < dev->n_windows; i++)
        if (dev->windows[i].id == id)
            win = &dev->windows[i];
    if (win == NULL)
        return;
    for (i = 0; i < dev->n_eps; i++)
        /* Ranks agree before they destroy a window, so this peer broke the protocol. */
        if (ep_uses(dev->eps[i], win))
            vb_tcp_fail(dev->eps[i],
                        vb_err(VB_ERR_PEER, "rank %d: window %u was destroyed during a transfer",
                               dev->eps[i]->rank, id));
    *win = dev->windows[--dev->n_windows];
}

vb_status vb_tcp_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *key,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p)
{
    struct tcp_ep *ep = tcp_ep_of(vep);
    struct tcp_remote *rem;

    (void)len_bytes;
    (void)timeout_ms;
    if (key->len_bytes != 0)
        return vb_err(VB_ERR_INPUT, "window %u of rank %d: the key has a wrong length (%u bytes)",
                      id, ep->rank, key->len_bytes);
    rem = calloc(1, sizeof(*rem));
    if (rem == NULL)
        return vb_err_sys("calloc");
    rem->ep = ep;
    rem->id = id;
    *rem_p = (struct vb_remote *)rem;
    return VB_OK;
}

void vb_tcp_release_window(struct vb_remote *rem)
{
    free(tcp_remote_of(rem));
}

void *vb_tcp_remote_ptr(struct vb_remote *rem)
{
    (void)rem;
    return NULL;
}
