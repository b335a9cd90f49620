/* SPDX-License-Identifier: MIT
 *
 * A worker joins, reads snapshots, and ends.
 */
#include "engine/ps/ps.h"

#include <signal.h>
#include <string.h>

static bool has_snapped(void *arg)
{
    return ((const struct ps_link *)arg)->snapped;
}

static bool all_final(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (!w->links[k].final)
            return false;
    return true;
}

/* Sends a note to server k. If the server is gone, the note is not sent again: the failover sends
 * PS_HELLO, PS_INTERRUPT and PS_END itself, and a caller that wants a snapshot sees by w->failovers
 * that it must ask again. */
static vb_status send_note(struct ps_worker *w, int k, enum ps_kind kind, uint32_t value)
{
    struct ps_link *link = &w->links[k];
    vb_status st = vb_ps_put(w->slots, link->rank, 0, 0, 0, PS_NOTE(kind, value), &link->note_op);

    if (st == VB_ERR_PEER)
        return vb_ps_failover(w, k);
    if (st == VB_OK)
        st = vb_ps_op_await(w, &link->note_op, "a note to the server", k);
    return st == VB_AGAIN ? VB_OK : st;
}

static vb_status send_note_to_all(struct ps_worker *w, enum ps_kind kind, uint32_t value)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        st = send_note(w, k, kind, value);
    return st;
}

/* Asks all servers for a snapshot, and waits for it. Only one worker at a time can read the
 * snapshot of a server. All workers ask the servers in the same order, so that two workers never
 * wait for each other. */
static vb_status ask_for_snapshot(struct ps_worker *w, bool with_state)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        link->snapped = false;
        st = send_note(w, k, PS_SNAP, with_state);
        if (st == VB_OK)
            st = vb_ps_await(w, has_snapped, link, "a snapshot", -1, true);
    }
    return st;
}

/* If a server is gone meanwhile, the worker asks all servers again, and the standby takes another
 * snapshot. */
vb_status vb_ps_worker_snapshot(struct ps_worker *w, float *params, void *state,
                                uint64_t *version_p)
{
    uint32_t failovers;
    vb_status st;

    do {
        failovers = w->failovers;
        st = ask_for_snapshot(w, state != NULL);
        if (st == VB_OK && w->failovers == failovers)
            st = vb_ps_read_snapshot(w, params, state, version_p);
        if (st == VB_OK)
            st = send_note_to_all(w, PS_READ, 0);
    } while (st == VB_OK && w->failovers != failovers);
    return st;
}

vb_status vb_ps_worker_end(struct ps_worker *w, float *params, void *state, uint64_t *version_p)
{
    uint32_t failovers;
    vb_status st;

    if (w->job->hogwild) /* the server reads the worker's staleness from the slot */
        memcpy(w->links[0].mapped_slots + vb_ps_slot_at(&w->lay, 0, w->number, 0) +
                   sizeof(struct ps_push),
               &w->stale, sizeof(w->stale));
    w->ended = true;
    st = send_note_to_all(w, PS_END, 0);
    do {
        failovers = w->failovers;
        if (st == VB_OK)
            st = vb_ps_await(w, all_final, w, "the other workers to end", -1, true);
        if (st == VB_OK)
            st = vb_ps_read_snapshot(w, params, state, version_p);
    } while (st == VB_OK && w->failovers != failovers);
    return st;
}

/* A server leaves as soon as all workers have sent PS_BYE. From now on a server that is gone is not
 * a fault. */
vb_status vb_ps_worker_bye(struct ps_worker *w)
{
    vb_status st = VB_OK;
    int k;

    w->bye = true;
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        st = vb_ps_put(w->slots, link->rank, 0, 0, 0, PS_NOTE(PS_BYE, 0), &link->note_op);
        if (st == VB_OK)
            st = vb_group_wait(w->group, vb_ps_op_is_done, &link->note_op, "a goodbye", -1);
        else if (st == VB_ERR_PEER)
            st = vb_progress(w->group);
    }
    return st;
}

static bool any_lost(void *arg)
{
    return ((const struct ps_worker *)arg)->lost_rank >= 0;
}

void vb_ps_worker_stop(struct ps_worker *w, enum ps_stop why)
{
    if (send_note_to_all(w, PS_STOP, why) == VB_OK)
        (void)vb_group_wait(w->group, any_lost, w, "the servers to stop", -1);
}

vb_status vb_ps_worker_interrupt(struct ps_worker *w, int number)
{
    uint32_t arg = number == SIGHUP            ? PS_SIGHUP
                   : number == SIGINT          ? PS_SIGINT
                   : number == PS_STOPPED_DONE ? PS_DONE
                                               : PS_SIGTERM;

    if (w->interrupt != 0)
        return VB_OK;
    w->interrupt = 1 + arg;
    return send_note(w, 0, PS_INTERRUPT, arg);
}

static bool was_answered(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    if (w->job_done)
        return true;
    for (k = 0; k < w->job->servers; k++)
        if (!w->links[k].welcome)
            return false;
    return true;
}

vb_status vb_ps_worker_hello(struct ps_worker *w, bool again)
{
    vb_status st;

    w->hello = (w->mapped ? PS_MAPS : 0u) | (again ? PS_REJOIN : 0u) | PS_JOINED;
    st = send_note_to_all(w, PS_HELLO, w->hello);
    if (st == VB_OK)
        st = vb_ps_await(w, was_answered, w, "a welcome", 0, false);
    if (st == VB_OK && w->job_done)
        st = vb_err(VB_ERR_ACCESS, "cannot join: the job is nearly over and has no steps left");
    return st;
}
