/* SPDX-License-Identifier: MIT
 *
 * Workers and servers transfer data and wait with these functions.
 */
#include "engine/ps/ps.h"

#include <sched.h>

#define YIELD_NS 200000 /* how long a wait yields the cpu before it sleeps */

vb_status vb_ps_wait(struct vb_group *group, vb_ready_fn ready, void *arg, const char *what,
                     int from)
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

bool vb_ps_sleep_at_once(struct vb_group *group, const struct ps_job *job, bool mapped)
{
    bool before = vb_group_never_spins(group);
    bool large =
        !job->sparse && !mapped && job->n * sizeof(float) / (size_t)job->servers > PS_REPLY_MAX;

    vb_group_set_never_spin(group, before || large);
    return before;
}

bool vb_ps_op_is_done(void *op)
{
    return ((const struct vb_op *)op)->done;
}

vb_status vb_ps_put(struct vb_window *win, int to, size_t from, size_t at, size_t len,
                    uint32_t note, struct vb_op *op)
{
    return vb_put_wait(win, to, NULL, from, at, len, note, op, PS_PUT_MS);
}

vb_status vb_ps_ring_take(struct vb_group *group, struct ps_ring *ring, const char *what,
                          struct vb_op **op_p)
{
    struct vb_op *op = &ring->ops[ring->n % PS_OPS];

    *op_p = op;
    if (ring->n++ < PS_OPS || op->done)
        return VB_OK;
    return vb_group_wait(group, vb_ps_op_is_done, op, what, -1);
}
