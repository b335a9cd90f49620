/* SPDX-License-Identifier: MIT
 *
 * A worker waits, and *fails over* to the standby when a server is gone (ps_replica.c). If a get or
 * a snapshot was under way with the server, the caller starts it again.
 */
#include "engine/ps/ps.h"

#include <string.h>

#define SLICE_NS 100000000u

/* May run on the group's progress thread. */
void vb_ps_worker_gone(struct ps_worker *w, int rank)
{
    int k = vb_ps_server_at(w->job, rank);

    if (rank == vb_ps_standby_rank(w->job, k) && !w->links[k].failed_over) {
        w->links[k].standby = -1; /* the server goes on alone */
        return;
    }
    if (rank == vb_ps_server_rank(w->job, k) && w->links[k].failed_over)
        return; /* a joiner is gone that had taken the slot of a server that was already gone */
    w->links[k].lost = true;
    w->lost_rank = rank;
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct awaited {
    struct ps_worker *worker;
    vb_ready_fn ready;
    void *arg;
    uint64_t until_ns; /* time at which a slice of the wait ends */
};

static bool ready_or_lost(void *arg)
{
    const struct awaited *a = arg;

    return a->worker->lost_rank >= 0 || a->ready(a->arg);
}

static bool ready_or_slice_over(void *arg)
{
    return ready_or_lost(arg) || vb_clock_ns() >= ((const struct awaited *)arg)->until_ns;
}

/* Waits until a->ready() or a server is gone. no_timeout: the wait has no timeout; it consists of
 * slices, each of which is shorter than the timeout of the group. */
static vb_status wait_for(struct awaited *a, const char *what, int from, bool no_timeout)
{
    vb_status st = VB_OK;

    if (!no_timeout)
        return vb_ps_wait(a->worker->group, ready_or_lost, a, what, from);
    while (st == VB_OK && !ready_or_lost(a)) {
        a->until_ns = vb_clock_ns() + SLICE_NS;
        st = vb_ps_wait(a->worker->group, ready_or_slice_over, a, what, from);
    }
    return st;
}

/* ---- failover -------------------------------------------------------------------------------- */

static vb_status send_state(struct ps_worker *w, int k)
{
    struct ps_link *link = &w->links[k];
    struct ps_client_state state = {.acked = link->acked,
                                    .replies = link->replies,
                                    .tickets = k == 0 ? w->tickets : 0,
                                    .evals = k == 0 ? w->evals : 0,
                                    .saves = k == 0 ? w->saves : 0};
    size_t from = w->lay.client_state + (size_t)k * sizeof(state);
    size_t at = w->lay.client_states[k] + (size_t)w->number * sizeof(state);

    link->acked_at_failover = state.acked;
    memcpy((char *)vb_window_ptr(w->slots) + from, &state, sizeof(state));
    return vb_ps_put(w->slots, link->rank, from, at, sizeof(state), PS_NOTE(PS_FAILOVER, 0),
                     &link->note_op);
}

static vb_status call_standby(struct ps_worker *w, int k)
{
    struct ps_link *link = &w->links[k];
    vb_status st;
    int standby;

    if (vb_group_end(w->group, link->rank) == VB_END_DROPPED_US) {
        w->lost_rank = link->rank; /* so that later waits fail as well */
        return vb_err(VB_ERR_PEER, "server %d (rank %d, %s) goes on without this worker: %s", k,
                      link->rank, vb_group_host(w->group, link->rank),
                      vb_group_gone_why(w->group, link->rank));
    }
    link->lost = false;
    link->failed_over = true; /* set first, in case the standby is gone from now on */
    standby = atomic_exchange(&link->standby, -1);
    if (standby < 0) {
        link->failed_over = false;
        link->lost = true; /* so that later waits fail as well */
        w->lost_rank = link->rank;
        if (vb_group_end(w->group, link->rank) == VB_END_LEFT)
            return vb_err(VB_ERR_PEER, "the job has ended: server %d (rank %d, %s) has left", k,
                          link->rank, vb_group_host(w->group, link->rank));
        return vb_err(VB_ERR_PEER, "server %d (rank %d, %s) is gone (%s) and has no standby", k,
                      link->rank, vb_group_host(w->group, link->rank),
                      vb_group_gone_why(w->group, link->rank));
    }
    link->rank = standby;
    link->mapped_shards = link->standby_shards;
    link->mapped_slots = NULL; /* with replicas, workers do not write into mapped slots */
    link->failing_over = true;
    link->snapped = true; /* ends a wait for a snapshot; the caller checks w->failovers */
    link->final = false;
    w->failovers++;
    st = send_state(w, k);
    return st == VB_ERR_PEER ? VB_OK : st; /* failover_all() sees that the standby is gone */
}

static bool all_serving(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (w->links[k].failing_over && w->links[k].serving < 0)
            return false;
    return true;
}

static vb_status send_note(struct ps_worker *w, struct ps_link *link, uint32_t note)
{
    vb_status st = vb_ps_put(w->slots, link->rank, 0, 0, 0, note, &link->note_op);

    return st == VB_OK ? vb_op_wait(w->group, &link->note_op, "a note to the standby", -1) : st;
}

/* Sends the pushes and notes that the standby lacks. The standby already serves. */
static vb_status send_rest(struct ps_worker *w, int k)
{
    struct ps_link *link = &w->links[k];
    vb_status st = vb_op_wait(w->group, &link->note_op, "a note to the standby", -1);
    uint32_t seq = link->acked_at_failover + (uint32_t)link->serving;

    link->failing_over = false;
    for (; st == VB_OK && seq != link->sent; seq++)
        st = vb_ps_put_push(w, k, seq);
    if (st == VB_OK && w->hello != 0 && !link->welcome)
        st = send_note(w, link, PS_NOTE(PS_HELLO, w->hello));
    if (st == VB_OK && w->interrupt != 0 && k == 0)
        st = send_note(w, link, PS_NOTE(PS_INTERRUPT, w->interrupt - 1));
    return st == VB_OK && w->ended ? send_note(w, link, PS_NOTE(PS_END, 0)) : st;
}

/* Fails over from all servers that are gone. The worker sends PS_FAILOVER to all standbys before it
 * waits for any standby: each standby waits for PS_FAILOVER from all workers, and other workers may
 * have lost the servers in another order. */
static vb_status failover_all(struct ps_worker *w)
{
    struct awaited serving = {.worker = w, .ready = all_serving, .arg = w};
    vb_status st = VB_OK;
    int k;

    while (st == VB_OK && w->lost_rank >= 0) {
        w->lost_rank = -1; /* reset first, because another server may be lost meanwhile */
        for (k = 0; k < w->job->servers && st == VB_OK; k++)
            if (w->links[k].lost)
                st = call_standby(w, k);
        if (st == VB_OK)
            st = wait_for(&serving, "a standby to take over", -1, true);
    }
    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        if (w->links[k].failing_over)
            st = send_rest(w, k);
    return st;
}

vb_status vb_ps_await(struct ps_worker *w, vb_ready_fn ready, void *arg, const char *what, int k,
                      bool no_timeout)
{
    struct awaited a = {.worker = w, .ready = ready, .arg = arg};
    vb_status st;

    for (;;) {
        st = wait_for(&a, what, k >= 0 ? w->links[k].rank : -1, no_timeout);
        if (st != VB_OK || w->lost_rank < 0)
            return st;
        st = failover_all(w);
        if (st != VB_OK)
            return st;
    }
}

static bool is_lost(void *arg)
{
    return ((const struct ps_link *)arg)->lost;
}

vb_status vb_ps_failover(struct ps_worker *w, int k)
{
    vb_status st =
        vb_ps_wait(w->group, is_lost, &w->links[k], "news of a server that accepts no puts", -1);

    return st == VB_OK ? failover_all(w) : st;
}

vb_status vb_ps_op_await(struct ps_worker *w, struct vb_op *op, const char *what, int k)
{
    vb_status st = vb_ps_await(w, vb_ps_op_is_done, op, what, k, false);

    if (st != VB_OK || op->status == VB_OK)
        return st;
    if (op->status != VB_ERR_PEER)
        return vb_err(op->status, "%s failed with server %d: %s", what, k,
                      vb_status_str(op->status));
    st = w->links[k].failed_over ? VB_OK : vb_ps_failover(w, k);
    return st == VB_OK ? VB_AGAIN : st;
}
