/* SPDX-License-Identifier: MIT
 *
 * Put and get on windows, with and without waiting until the op is taken, and channels of notes.
 * Put and get have code of their own, with arguments in registers: one function for both, with a
 * struct of arguments, makes a put of 64 bytes 10 % slower.
 */
#include "net/group/group_priv.h"

#include <string.h>

static bool in_bounds(size_t offset, size_t len, size_t size)
{
    return offset <= size && len <= size - offset;
}

static vb_status not_allowed(const struct vb_window *win, const char *what)
{
    return vb_err(VB_ERR_USAGE, "window %u does not allow %s", win->id, what);
}

/* Returns whether this rank is gone or has not joined yet. */
static bool is_not_shared(const struct vb_window *win, int rank)
{
    return rank != win->group->rank && win->remotes[rank] == NULL;
}

static vb_status out_of_bounds(const struct vb_window *win, int rank, size_t mine, size_t theirs,
                               size_t len)
{
    return vb_err(VB_ERR_USAGE,
                  "a transfer of %zu bytes is out of bounds: it begins at byte %zu of %zu on this "
                  "rank, and at byte %zu on rank %d, which has %zu bytes",
                  len, mine, win->lens[win->group->rank], theirs, rank, win->lens[rank]);
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

static vb_status self_put(struct vb_window *win, size_t src, size_t dst, size_t len, uint32_t note,
                          struct vb_op *op)
{
    struct self_queue *self = &win->group->self;

    if (self->n == SELF_NOTES)
        return VB_AGAIN;
    memmove((char *)win->mem.ptr + dst, (char *)win->mem.ptr + src, len);
    self->notes[(self->first + self->n++) % SELF_NOTES] = note;
    op->next = self->done;
    self->done = op;
    return VB_OK;
}

/* from: where src_offset counts from; NULL: this rank's part of the window. The caller holds the
 * lock, because the progress thread may fence a rank that is gone. */
static vb_status put(struct vb_window *win, int rank, const void *from, size_t src_offset,
                     size_t dst_offset, size_t len_bytes, uint32_t note, struct vb_op *op)
{
    struct vb_group *g = win->group;
    struct peer *peer = &g->peers[rank];
    struct vb_span src = {(char *)(from != NULL ? from : win->mem.ptr) + src_offset, len_bytes};
    struct vb_target dst = {win->remotes[rank], dst_offset};
    uint64_t begin_ns;
    vb_status st;

    if (is_not_shared(win, rank))
        return VB_ERR_PEER;
    if ((from == NULL && !in_bounds(src_offset, len_bytes, win->lens[g->rank])) ||
        !in_bounds(dst_offset, len_bytes, win->lens[rank]))
        return out_of_bounds(win, rank, src_offset, dst_offset, len_bytes);
    if (len_bytes > 0 && (win->rights & VB_WINDOW_PUT) == 0)
        return not_allowed(win, "put");
    if (from != NULL && (rank == g->rank || (peer->transport->caps & VB_CAP_ANY_SOURCE) == 0))
        return vb_err(VB_ERR_UNSUPPORTED,
                      "cannot put to rank %d: the transport can put only from the window", rank);
    if (rank == g->rank)
        return self_put(win, src_offset, dst_offset, len_bytes, note, op);
    begin_ns = vb_trace_begin_part();
    st = peer->transport->put(peer->ep, &src, dst, note, op);
    peer->n_sent += st == VB_OK;
    if (begin_ns != 0 && st == VB_OK)
        vb_trace_end_with(begin_ns, VB_OP_PUT, len_bytes, rank,
                          vb_trace_message(g->rank, rank, peer->n_sent), VB_TRACE_FROM);
    return st < 0 ? endpoint_failed(g, rank, st) : st;
}

static vb_status put_from(struct vb_window *win, int rank, const void *from, size_t src_offset,
                          size_t dst_offset, size_t len_bytes, uint32_t note, struct vb_op *op)
{
    struct vb_group *g = win->group;
    vb_status st;

    op->done = false;
    group_lock(g);
    st = put(win, rank, from, src_offset, dst_offset, len_bytes, note, op);
    group_unlock(g);
    return st;
}

vb_status vb_put(struct vb_window *win, int rank, size_t src_offset, size_t dst_offset,
                 size_t len_bytes, uint32_t note, struct vb_op *op)
{
    return put_from(win, rank, NULL, src_offset, dst_offset, len_bytes, note, op);
}

static vb_status get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                     size_t len_bytes, struct vb_op *op)
{
    struct vb_group *g = win->group;
    struct peer *peer = &g->peers[rank];
    struct vb_span dst = {(char *)win->mem.ptr + dst_offset, len_bytes};
    struct vb_target src = {win->remotes[rank], src_offset};
    uint64_t begin_ns;
    vb_status st;

    if (is_not_shared(win, rank))
        return VB_ERR_PEER;
    if (!in_bounds(dst_offset, len_bytes, win->lens[g->rank]) ||
        !in_bounds(src_offset, len_bytes, win->lens[rank]))
        return out_of_bounds(win, rank, dst_offset, src_offset, len_bytes);
    if ((~win->rights & (VB_WINDOW_GET | VB_WINDOW_LAND)) != 0)
        return not_allowed(win, "get");
    if (rank == g->rank) {
        memmove(dst.ptr, (char *)win->mem.ptr + src_offset, len_bytes);
        op->next = g->self.done;
        g->self.done = op;
        return VB_OK;
    }
    begin_ns = vb_trace_begin_part();
    st = peer->transport->get(peer->ep, &dst, src, op);
    if (st == VB_OK)
        vb_trace_end_with(begin_ns, VB_OP_GET, len_bytes, rank, 0, VB_TRACE_SPAN);
    return st < 0 ? endpoint_failed(g, rank, st) : st;
}

vb_status vb_get(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                 size_t len_bytes, struct vb_op *op)
{
    struct vb_group *g = win->group;
    vb_status st;

    op->done = false;
    group_lock(g);
    st = get(win, rank, dst_offset, src_offset, len_bytes, op);
    group_unlock(g);
    return st;
}

/* Makes progress after VB_AGAIN. Fails after the timeout; 0: that of the group. *deadline_p is 0 at
 * the first call. */
static vb_status make_room(struct vb_group *g, int rank, int timeout_ms, uint64_t *deadline_p)
{
    int most_ms = timeout_ms > 0 ? timeout_ms : g->opts.timeout_ms;
    vb_status st = vb_progress(g);
    uint64_t now = vb_clock_ns();

    if (*deadline_p == 0)
        *deadline_p = now + (uint64_t)most_ms * 1000000u;
    if (st == VB_OK && now >= *deadline_p)
        st = vb_err(VB_ERR_TIMEOUT, "rank %d (%s) has accepted no transfer for %.1f s", rank,
                    vb_group_host(g, rank), most_ms / 1000.0);
    return st;
}

vb_status vb_put_wait(struct vb_window *win, int rank, const void *from, size_t src_offset,
                      size_t dst_offset, size_t len_bytes, uint32_t note, struct vb_op *op,
                      int timeout_ms)
{
    uint64_t deadline = 0;
    vb_status st;

    do {
        st = put_from(win, rank, from, src_offset, dst_offset, len_bytes, note, op);
        if (st == VB_OK)
            return VB_OK;
        if (st == VB_AGAIN)
            st = make_room(win->group, rank, timeout_ms, &deadline);
    } while (st == VB_OK);
    vb_group_finish(op, st);
    return st;
}

vb_status vb_get_wait(struct vb_window *win, int rank, size_t dst_offset, size_t src_offset,
                      size_t len_bytes, struct vb_op *op, int timeout_ms)
{
    uint64_t deadline = 0;
    vb_status st;

    do {
        st = vb_get(win, rank, dst_offset, src_offset, len_bytes, op);
        if (st == VB_OK)
            return VB_OK;
        if (st == VB_AGAIN)
            st = make_room(win->group, rank, timeout_ms, &deadline);
    } while (st == VB_OK);
    vb_group_finish(op, st);
    return st;
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
