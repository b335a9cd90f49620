/* SPDX-License-Identifier: MIT
 *
 * Transfers and waits of workers and servers.
 */
#include "engine/ps_priv.h"

#include <sched.h>

#define YIELD_NS 200000 /* for how long a wait yields before it sleeps */

/* ---- waiting --------------------------------------------------------------------------------- */

vb_status ps_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what, int from)
{
    uint64_t begin = 0, now = 0;
    bool asleep = vb_group_never_spins(group);
    vb_status st;

    while (!asleep && now - begin <= YIELD_NS) {
        if (ready(arg))
            return VB_OK;
        st = vb_progress(group);
        if (st != VB_OK || ready(arg))
            return st;
        sched_yield();
        now = vb_clock_ns();
        begin = begin == 0 ? now : begin;
    }
    return vb_group_wait(group, ready, arg, what, from);
}

bool ps_sleep_at_once(struct vb_group *group, const struct ps_job *job, bool mapped)
{
    bool before = vb_group_never_spins(group);
    bool large =
        !job->sparse && !mapped && job->n * sizeof(float) / (size_t)job->servers > PS_REPLY_MAX;

    vb_group_set_never_spin(group, before || large);
    return before;
}

bool ps_op_is_done(void *op)
{
    return ((const struct vb_op *)op)->done;
}

/* ---- put and get ----------------------------------------------------------------------------- */

/* Called when a transfer finds no room. *since_ns is when that happened first; 0: just now. */
static vb_status make_room(struct vb_group *group, int peer, uint64_t *since_ns)
{
    vb_status st = vb_progress(group);
    uint64_t now = vb_clock_ns();

    *since_ns = *since_ns == 0 ? now : *since_ns;
    if (st == VB_OK && now - *since_ns > PS_PUT_NS)
        st = vb_err(VB_ERR_TIMEOUT, "rank %d has accepted no put or get for %llu s", peer,
                    (unsigned long long)(PS_PUT_NS / 1000000000u));
    return st;
}

/* Puts as soon as there is room, or fails after PS_PUT_NS. */
static vb_status put_wait(struct vb_group *group, struct vb_window *win, int to,
                          const struct vb_window *from_win, size_t from, size_t at, size_t len,
                          uint32_t note, struct vb_op *op)
{
    uint64_t since_ns = 0;
    vb_status st;

    do {
        st = vb_put_from(win, to, from_win, from, at, len, note, op);
        if (st != VB_AGAIN)
            return st;
        st = make_room(group, to, &since_ns);
    } while (st == VB_OK);
    return st;
}

vb_status ps_get(struct vb_group *group, struct vb_window *win, int rank, size_t to, size_t from,
                 size_t len, struct vb_op *op)
{
    uint64_t since_ns = 0;
    vb_status st;

    do {
        st = vb_get(win, rank, to, from, len, op);
        if (st != VB_AGAIN)
            return st;
        st = make_room(group, rank, &since_ns);
    } while (st == VB_OK);
    return st;
}

vb_status ps_put_from(struct vb_group *group, struct vb_window *win, int to,
                      const struct vb_window *from_win, size_t from, size_t at, size_t len,
                      uint32_t note, struct vb_op *op)
{
    vb_status st = put_wait(group, win, to, from_win, from, at, len, note, op);

    if (st == VB_OK)
        return VB_OK;
    op->status = st;
    op->done = true; /* the op was never started, and its next user would wait for it */
    return st;
}

vb_status ps_put(struct vb_group *group, struct vb_window *win, int to, size_t from, size_t at,
                 size_t len, uint32_t note, struct vb_op *op)
{
    return ps_put_from(group, win, to, win, from, at, len, note, op);
}

vb_status ps_put_note(struct vb_group *group, struct vb_window *win, int to, uint32_t note,
                      struct vb_op *op)
{
    return ps_put(group, win, to, 0, 0, 0, note, op);
}

vb_status ps_ring_take(struct vb_group *group, struct ps_ring *ring, const char *what,
                       struct vb_op **op_p)
{
    struct vb_op *op = &ring->ops[ring->n % PS_OPS];

    *op_p = op;
    if (ring->n++ < PS_OPS || op->done)
        return VB_OK;
    return vb_group_wait(group, ps_op_is_done, op, what, -1);
}
