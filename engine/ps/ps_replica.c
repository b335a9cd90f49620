/* SPDX-License-Identifier: MIT
 *
 * A shard has two servers: one that serves, and its standby. docs/async.md explains the protocol.
 *
 * The server forwards each note, with the push if there is one, and keeps the note in a *log*. The
 * standby processes the note and confirms it; then the server processes the note too. So the
 * standby has processed every note whose effects any worker has seen. When the server is gone and
 * all remaining workers have sent PS_FAILOVER, the standby *takes over*. It waits for all of them,
 * because two servers of a shard must never serve at once: a worker that can still reach the server
 * goes on using that server.
 */
#include "engine/ps/ps.h"

#include <string.h>

static vb_status put_to_partner(struct ps_server *s, size_t at, size_t len, uint32_t note)
{
    struct vb_op *op;
    vb_status st = vb_ps_ring_take(s->group, &s->partner.ops, "a note to the other server", &op);

    if (st == VB_OK)
        st = vb_ps_put(s->slots, s->partner.rank, at, at, len, note, op);
    return st == VB_ERR_PEER ? VB_OK : st; /* the partner is gone, and PS_GONE is queued as well */
}

/* ---- the server that serves ------------------------------------------------------------------ */

/* Forwards a note to the standby. A push, which was accepted, goes with its note. */
static vb_status forward(struct ps_server *s, struct ps_arrival a)
{
    size_t at = 0, len = 0;

    if (PS_KIND(a.value) == PS_PUSH) {
        at = vb_ps_slot_at(&s->lay, s->k, a.worker, (int)PS_ARG(a.value));
        len = vb_ps_push_bytes(s->job, &s->lay, s->k,
                               &s->clients[a.worker].taken[PS_ARG(a.value)].head);
    }
    s->partner.log[s->partner.log_end++ % s->queue.size] = a;
    return put_to_partner(s, at, len, PS_NOTE(PS_FORWARD, ps_forward_pack(a)));
}

static struct ps_arrival log_pop(struct ps_server *s)
{
    struct ps_arrival a = s->partner.log[s->partner.log_first++ % s->queue.size];

    ps_note_done(s, a);
    return a;
}

/* Goes on without the standby. Until then the server forwards, but processes nothing. Workers must
 * know that the standby is gone before they receive anything that the standby has not processed. */
static vb_status continue_alone(struct ps_server *s)
{
    char text[160];
    vb_status st = vb_ps_go_on_alone(s);
    int w;

    if (st != VB_OK)
        return st == VB_AGAIN ? VB_OK : st;
    snprintf(text, sizeof(text),
             "the standby of server %d (%.60s) is gone; the server goes on alone", s->k,
             vb_group_host(s->group, s->partner.rank));
    vb_ps_log_fault(s, s->partner.rank, vb_ps_fault_kind(s, s->partner.rank), text);
    s->partner.rank = -1;
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member)
            st = vb_ps_send_note(s, w, PS_NOTICE, PS_ALONE);
    while (st == VB_OK && s->partner.log_first != s->partner.log_end)
        st = vb_ps_process(s, log_pop(s));
    return st;
}

/* ---- the standby ----------------------------------------------------------------------------- */

/* The server has accepted this push, so the worker has changed it on its way. The worker loses the
 * standby, and the two servers may differ by its gradients. */
static vb_status retire_invalid(struct ps_server *s, int worker, const char *why)
{
    VB_LOG_WARN("the standby of server %d removes worker %d: %s", s->k, worker, why);
    return vb_ps_server_retire(s, worker);
}

/* A worker that has lost the server asks its standby to take over. But the server lives, has
 * removed the worker and goes on: the standby tells the worker, which would wait until the end of
 * the job.
 */
static vb_status end_vain_failover(struct ps_server *s, int worker)
{
    const struct ps_client_failover *f = &s->clients[worker].failover;

    if (!s->standby || s->partner.gone || !f->called || f->n_retired <= f->n_gone)
        return VB_OK;
    return vb_group_retire(s->group, vb_ps_worker_rank(s->job, worker),
                           "this worker has lost the server, but the standby has not");
}

/* Processes a forwarded note. The standby confirms the note only after it has processed the note,
 * because the worker may fill the slot again after the confirmation. */
static vb_status process_forwarded(struct ps_server *s, uint32_t value)
{
    struct ps_arrival a = ps_forward_unpack(PS_ARG(value));
    char why[160];
    vb_status st;

    if (a.worker >= vb_ps_clients(s->job))
        return vb_err(VB_ERR_INPUT,
                      "the server forwarded a note of worker %d, but there are only %d workers",
                      a.worker, vb_ps_clients(s->job));
    if (PS_KIND(a.value) == PS_GONE)
        s->clients[a.worker].failover.n_retired++;
    if (PS_KIND(a.value) == PS_PUSH && s->clients[a.worker].member &&
        !vb_ps_accept(s, a.worker, PS_ARG(a.value), why, sizeof(why)))
        st = retire_invalid(s, a.worker, why);
    else
        st = vb_ps_process(s, a);
    if (st == VB_OK)
        st = put_to_partner(s, 0, 0, PS_NOTE(PS_CONFIRM, 0));
    return st == VB_OK ? end_vain_failover(s, a.worker) : st;
}

static bool is_gone(const struct ps_client *client)
{
    return client->failover.n_gone > client->failover.n_retired;
}

vb_status vb_ps_confirm_failover(struct ps_server *s, int w)
{
    const char *at = vb_window_ptr(s->slots);
    struct ps_client *client = &s->clients[w];
    struct ps_client_state state = {0}; /* all zero for a worker that has just joined */

    if (client->member && client->bye)
        return VB_OK;
    if (!client->member) /* the worker does not take part yet, and will send PS_HELLO again */
        return client->failover.called ? vb_ps_send_note(s, w, PS_FAILOVER_DONE, 0) : VB_OK;
    if (client->failover.called)
        memcpy(&state, at + s->lay.client_states[s->k] + (size_t)w * sizeof(state), sizeof(state));
    return vb_ps_resend(s, w, &state);
}

/* Kills a server that was stopped and shares memory, because it could continue in the middle of a
 * put and overwrite slots that are in use again. A server whose connection has closed is dead
 * and need not be killed. If the server cannot be killed, the standby must not take over. */
static vb_status kill_if_stopped(const struct ps_server *s, int rank)
{
    if (!s->partner.shares_memory || vb_group_end(s->group, rank) != VB_END_SILENT)
        return VB_OK;
    return vb_group_kill(s->group, rank);
}

static vb_status take_over(struct ps_server *s)
{
    int w, rank = s->partner.rank;
    vb_status st = kill_if_stopped(s, rank);
    char text[160];

    if (st != VB_OK)
        return st;
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member && is_gone(&s->clients[w]))
            st = vb_ps_process(s, (struct ps_arrival){w, PS_VALUE(PS_GONE, 0)});
    s->standby = false;
    s->partner.rank = s->reader = -1;
    s->gate = -1; /* the worker that was to read the snapshot may have read it */
    snprintf(text, sizeof(text),
             "server %d (rank %d, %.60s) is gone; its standby on rank %d goes on at version %llu",
             s->k, rank, vb_group_host(s->group, rank), vb_group_rank(s->group),
             (unsigned long long)vb_ps_version_of(s));
    vb_ps_log_fault(s, rank, vb_ps_fault_kind(s, rank), text);
    if (st == VB_OK && s->final && s->on_final != NULL)
        st = s->on_final(s, s->final_arg);
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++) {
        uint32_t hello = s->clients[w].failover.hello;

        s->clients[w].wants_snap = 0; /* a worker that still wants a snapshot asks again */
        st = vb_ps_confirm_failover(s, w);
        if (st == VB_OK && hello != 0)
            st = vb_ps_process(s, (struct ps_arrival){w, PS_VALUE(PS_HELLO, hello)});
    }
    return st;
}

/* The server leaves when the job is finished. */
static bool has_left(const struct ps_server *s)
{
    return vb_group_end(s->group, s->partner.rank) == VB_END_LEFT;
}

/* Takes over if the server is gone and all workers that need a server have sent PS_FAILOVER. A
 * worker that has sent PS_BYE does not need a server. */
static vb_status take_over_if_ready(struct ps_server *s)
{
    int w;

    vb_status st;

    if (!s->partner.gone || (s->final && has_left(s)))
        return VB_OK;
    for (w = 0; w < vb_ps_clients(s->job); w++) {
        const struct ps_client *client = &s->clients[w];

        if (client->member && !client->bye && !client->failover.called && !is_gone(client))
            return VB_OK;
    }
    st = vb_ps_go_on_alone(s);
    if (st != VB_OK)
        return st == VB_AGAIN ? VB_OK : st;
    return take_over(s);
}

vb_status vb_ps_without_partner(struct ps_server *s)
{
    if (!s->partner.gone || s->partner.rank < 0)
        return VB_OK;
    return s->standby ? take_over_if_ready(s) : continue_alone(s);
}

/* Processes a note that a worker has sent to the standby directly, or PS_GONE of a worker. */
static vb_status process_at_standby(struct ps_server *s, struct ps_arrival a)
{
    struct ps_client *client = &s->clients[a.worker];
    vb_status st;

    switch (PS_KIND(a.value)) {
    case PS_GONE:
        client->failover.n_gone++;
        client->failover.called = false;
        client->failover.hello = 0;
        break;
    case PS_HELLO: /* the server was already gone when the worker joined */
        client->failover.hello = PS_ARG(a.value);
        break;
    default: /* PS_FAILOVER: vb_ps_receive() lets no other kinds through */
        client->failover.called = true;
        break;
    }
    st = end_vain_failover(s, a.worker);
    return st == VB_OK ? vb_ps_without_partner(s) : st;
}

static vb_status on_partner_gone(struct ps_server *s)
{
    s->partner.gone = true;
    s->partner.gone_ns = vb_clock_ns();
    vb_group_ask_all(s->group); /* vb_ps_go_on_alone() counts those that answer */
    return vb_ps_without_partner(s);
}

vb_status vb_ps_replicate(struct ps_server *s, struct ps_arrival a)
{
    enum ps_kind kind = PS_KIND(a.value);

    if (a.worker != PS_PARTNER)
        return s->standby ? process_at_standby(s, a) : forward(s, a);
    if (kind == PS_GONE)
        return on_partner_gone(s);
    if (kind == PS_FORWARD && s->standby)
        return process_forwarded(s, a.value);
    if (kind == PS_CONFIRM && !s->standby) {
        if (s->partner.log_first == s->partner.log_end)
            return vb_err(VB_ERR_INPUT, "the standby confirmed a note that was not forwarded");
        return vb_ps_process(s, log_pop(s));
    }
    return vb_err(VB_ERR_INPUT, "the other server of shard %d sent an unknown note: %x", s->k,
                  a.value);
}
