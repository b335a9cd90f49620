/* SPDX-License-Identifier: MIT
 *
 * Put and get on windows, with and without waiting until the op is taken, and channels of notes.
 */
#include "net/group/group_priv.h"

#include <string.h>

static bool in_bounds(size_t offset, size_t len, size_t size)
{
    return offset <= size && len <= size - offset;
}

struct transfer {
    struct vb_window *win;
    const struct vb_window *from; /* the window of this rank's end; for a get it is win */
    int rank;
    bool get;
    size_t mine, theirs, len; /* the offsets at both ends, and the number of bytes */
    uint32_t note;
    struct vb_op *op;
};

static vb_status out_of_bounds(const struct transfer *t)
{
    return vb_err(VB_ERR_USAGE,
                  "a transfer of %zu bytes is out of bounds: it begins at byte %zu of %zu on this "
                  "rank, and at byte %zu on rank %d, which has %zu bytes",
                  t->len, t->mine, t->from->lens[t->win->group->rank], t->theirs, t->rank,
                  t->win->lens[t->rank]);
}

/* The endpoint is dead. A poll has reported this, or will after the last notes that came over it.
 * If the failure ends the group, the reason is logged now. Returns st. */
static vb_status endpoint_failed(struct vb_group *g, int rank, vb_status st)
{
    char why[256];

    if (g->opts.elastic)
        return st; /* the failure is logged once, when the rank is gone */
    vb_control_lose(g->control, rank, "the data connection failed");
    if (vb_control_status(g->control, why, sizeof(why)) != VB_OK)
        return vb_err(st, "%s", why);
    return vb_err(st, "rank %d (%s) has left", rank, vb_group_host(g, rank));
}

static vb_status self_transfer(const struct transfer *t)
{
    struct self_queue *self = &t->win->group->self;
    char *part = t->win->mem.ptr;

    if (!t->get && self->n == SELF_NOTES)
        return VB_AGAIN;
    memmove(part + (t->get ? t->mine : t->theirs), part + (t->get ? t->theirs : t->mine), t->len);
    if (!t->get)
        self->notes[(self->first + self->n++) % SELF_NOTES] = t->note;
    t->op->next = self->done;
    self->done = t->op;
    return VB_OK;
}

/* The caller holds the lock, because the progress thread may fence a rank that is gone. */
static vb_status start_locked(const struct transfer *t)
{
    struct vb_window *win = t->win;
    struct vb_group *g = win->group;
    struct peer *peer = &g->peers[t->rank];
    struct vb_span mine = {(char *)t->from->mem.ptr + t->mine, t->len};
    struct vb_target theirs = {win->remotes[t->rank], t->theirs};
    vb_status st;

    if (t->rank != g->rank && win->remotes[t->rank] == NULL)
        return VB_ERR_PEER; /* the rank is gone or has not joined yet */
    if (!in_bounds(t->mine, t->len, t->from->lens[g->rank]) ||
        !in_bounds(t->theirs, t->len, win->lens[t->rank]))
        return out_of_bounds(t);
    if (t->get ? (~win->rights & (VB_WINDOW_GET | VB_WINDOW_LAND)) != 0
               : t->len > 0 && (win->rights & VB_WINDOW_PUT) == 0)
        return vb_err(VB_ERR_USAGE, "window %u does not allow %s", win->id, t->get ? "get" : "put");
    if (t->from != win && (t->rank == g->rank || (peer->transport->caps & VB_CAP_ANY_SOURCE) == 0))
        return vb_err(VB_ERR_UNSUPPORTED,
                      "cannot put to rank %d: the transport can put only from the same window",
                      t->rank);
    if (t->rank == g->rank)
        return self_transfer(t);
    st = t->get ? peer->transport->get(peer->ep, &mine, theirs, t->op)
                : peer->transport->put(peer->ep, &mine, theirs, t->note, t->op);
    return st < 0 ? endpoint_failed(g, t->rank, st) : st;
}

static vb_status start(const struct transfer *t)
{
    struct vb_group *g = t->win->group;
    vb_status st;

    t->op->done = false;
    group_lock(g);
    st = start_locked(t);
    group_unlock(g);
    return st;
}

vb_status vb_put(struct vb_window *win, int rank, size_t src_offset, size_t dst_offset,
                 size_t len_bytes, uint32_t note, struct vb_op *op)
{
    struct transfer t = {win, win, rank, false, src_offset, dst_offset, len_bytes, note, op};

    return start(&t);
}

vb_status vb_get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                 size_t len_bytes, struct vb_op *op)
{
    struct transfer t = {win, win, rank, true, dst_offset, src_offset, len_bytes, 0, op};

    return start(&t);
}

/* Makes progress until the op is taken, the group fails or the timeout has passed. */
static vb_status start_wait(const struct transfer *t, int timeout_ms)
{
    struct vb_group *g = t->win->group;
    uint64_t now, deadline = 0;
    vb_status st;

    if (timeout_ms <= 0)
        timeout_ms = g->opts.timeout_ms;
    while ((st = start(t)) == VB_AGAIN) {
        st = vb_progress(g);
        now = vb_clock_ns();
        if (deadline == 0)
            deadline = now + (uint64_t)timeout_ms * 1000000u;
        if (st == VB_OK && now >= deadline)
            st = vb_err(VB_ERR_TIMEOUT, "rank %d (%s) has accepted no transfer for %.1f s", t->rank,
                        vb_group_host(g, t->rank), timeout_ms / 1000.0);
        if (st != VB_OK)
            break;
    }
    if (st != VB_OK)
        vb_group_finish(t->op, st);
    return st;
}

vb_status vb_put_wait(struct vb_window *win, int rank, const struct vb_window *from,
                      size_t src_offset, size_t dst_offset, size_t len_bytes, uint32_t note,
                      struct vb_op *op, int timeout_ms)
{
    struct transfer t = {win, win, rank, false, src_offset, dst_offset, len_bytes, note, op};

    if (from != NULL)
        t.from = from;
    return start_wait(&t, timeout_ms);
}

vb_status vb_get_wait(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                      size_t len_bytes, struct vb_op *op, int timeout_ms)
{
    struct transfer t = {win, win, rank, true, dst_offset, src_offset, len_bytes, 0, op};

    return start_wait(&t, timeout_ms);
}

vb_status vb_channel_open(struct vb_group *g, int channel, vb_note_fn fn, void *arg)
{
    vb_status st = VB_OK;

    if (channel < 0 || channel >= VB_CHANNEL_DYNAMIC)
        return vb_err(VB_ERR_USAGE, "channel %d: a fixed channel must be from 0 to %d", channel,
                      VB_CHANNEL_DYNAMIC - 1);
    group_lock(g);
    if (g->channels[channel].fn != NULL)
        st = vb_err(VB_ERR_USAGE, "channel %d is already open", channel);
    else
        g->channels[channel] = (struct channel){.fn = fn, .arg = arg};
    group_unlock(g);
    return st;
}

vb_status vb_channel_alloc(struct vb_group *g, vb_note_fn fn, void *arg, int *channel_p)
{
    int channel = VB_CHANNEL_DYNAMIC;

    group_lock(g);
    while (channel < VB_CHANNELS && g->channels[channel].fn != NULL)
        channel++;
    if (channel < VB_CHANNELS)
        g->channels[channel] = (struct channel){.fn = fn, .arg = arg};
    group_unlock(g);
    if (channel == VB_CHANNELS)
        return vb_err(VB_ERR_USAGE,
                      "no free channel: the group has %d collectives open, which is the maximum",
                      VB_CHANNELS - VB_CHANNEL_DYNAMIC);
    *channel_p = channel;
    return VB_OK;
}

void vb_channel_close(struct vb_group *g, int channel)
{
    group_lock(g);
    memset(&g->channels[channel], 0, sizeof(g->channels[channel]));
    group_unlock(g);
}
