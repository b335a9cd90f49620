/* SPDX-License-Identifier: MIT
 *
 * What a server tells the workers: that a push was taken in, tickets, replies.
 *
 * Tickets are what all bounds are made of. Server 0 gives worker w its next one if fewer than
 * `slots` of its gradients are under way, if it would not be more than `bound` steps ahead of the
 * slowest worker, and if there are steps left. With a bound of 0 there is one ticket a worker and
 * round.
 */
#include "engine/ps_priv.h"

#include <string.h>

/* ---- words to workers ------------------------------------------------------------------------ */

uint64_t ps_version_of(const struct ps_server *s)
{
    return atomic_load_explicit(&s->head->version, memory_order_relaxed);
}

static vb_status take_op(struct ps_server *s, int worker, struct vb_op **op_p)
{
    return ps_ring_take(s->group, &s->clients[worker].ops, "a notice to a worker", op_p);
}

vb_status ps_send_note(struct ps_server *s, int worker, enum ps_kind kind, uint32_t value)
{
    struct vb_op *op;
    vb_status st;

    if (s->standby)
        return VB_OK;
    st = take_op(s, worker, &op);
    if (st == VB_OK)
        st = ps_put(s->group, s->slots, ps_worker_rank(s->job, worker), 0, 0, 0,
                    PS_NOTE(kind, value), op);
    return st == VB_OK ? VB_OK : ps_member_sent(s, worker, st);
}

const struct ps_push *ps_push_in(const struct ps_server *s, int worker, int slot)
{
    const char *at = vb_window_ptr(s->slots);

    return (const void *)(at + ps_slot_at(&s->lay, s->k, worker, slot));
}

/* The values of the keys that a worker has asked for. */
static vb_status answer(struct ps_server *s, int worker, float *to, size_t *bytes_p, size_t *at_p)
{
    struct ps_client *client = &s->clients[worker];
    const struct ps_push *push = ps_push_in(s, worker, client->keys.slot);
    const uint32_t *keys = (const uint32_t *)(const void *)(push + 1) + client->keys.n_values;

    client->keys.to_answer = false;
    *bytes_p = client->keys.n * sizeof(float);
    *at_p = client->keys.reply_at * sizeof(float);
    return ps_gather(s, keys, client->keys.n, to);
}

/* With the parameters as they are, and as they become while they are sent. */
static vb_status reply_stream(struct ps_server *s, int worker, uint32_t note, struct vb_op *op)
{
    struct ps_client *client = &s->clients[worker];
    int parity = (int)(client->replies % 2);

    client->reply_version[++client->replies % 4] = ps_version_of(s);
    return ps_put_from(s->group, s->slots, ps_worker_rank(s->job, worker), s->shards, s->lay.params,
                       ps_reply_to(s->job, &s->lay, parity), s->job->n * sizeof(float), note, op);
}

/* With what does not change on its way. */
static vb_status reply_copy(struct ps_server *s, int worker, uint32_t note, struct vb_op *op)
{
    struct ps_client *client = &s->clients[worker];
    int parity = (int)(client->replies % 2);
    size_t from = ps_reply_from(&s->lay, s->k, worker, parity), bytes, at;
    float *to = (float *)(void *)((char *)vb_window_ptr(s->slots) + from);
    vb_status st = VB_OK;

    if (s->job->sparse) {
        st = answer(s, worker, to, &bytes, &at);
    } else {
        bytes = s->lay.n[s->k] * sizeof(float);
        at = s->lay.first[s->k] * sizeof(float);
        memcpy(to, s->params, bytes);
    }
    if (st != VB_OK)
        return st;
    client->reply_version[++client->replies % 4] = ps_version_of(s);
    return ps_put(s->group, s->slots, ps_worker_rank(s->job, worker), from,
                  ps_reply_to(s->job, &s->lay, parity) + at, bytes, note, op);
}

static bool streams_to(const struct ps_server *s, int worker)
{
    return ps_streams(s->group, s->job, ps_worker_rank(s->job, worker));
}

static vb_status reply(struct ps_server *s, int worker, uint32_t notice)
{
    struct ps_client *client = &s->clients[worker];
    uint32_t note = PS_NOTE(PS_NOTICE, notice | PS_REPLY);
    struct vb_op *op;
    vb_status st;

    if (s->standby) {
        client->keys.to_answer = false;
        client->reply_version[++client->replies % 4] = ps_version_of(s);
        return VB_OK;
    }
    st = take_op(s, worker, &op);
    if (st == VB_OK)
        st = streams_to(s, worker) ? reply_stream(s, worker, note, op)
                                   : reply_copy(s, worker, note, op);
    return st == VB_OK ? VB_OK : ps_member_sent(s, worker, st);
}

/* ---- tickets --------------------------------------------------------------------------------- */

int64_t ps_slowest(const struct ps_server *s)
{
    int64_t least = INT64_MAX;
    int w;

    for (w = 0; w < ps_clients(s->job); w++)
        if (s->clients[w].member && !s->clients[w].ended && s->clients[w].clock < least)
            least = s->clients[w].clock;
    return least;
}

static bool none_left(const struct ps_server *s)
{
    if (s->job->bound == 0)
        return s->job->begin + s->round.number >= s->job->steps;
    return s->job->begin + s->granted >= s->job->steps;
}

static bool has_replies(const struct ps_server *s, const struct ps_client *client)
{
    if (client->mapped)
        return false;
    return s->lay.replies || streams_to(s, (int)(client - s->clients));
}

/* Sparse workers without shared memory need the answer to the push before. */
static int depth(const struct ps_server *s, const struct ps_client *client)
{
    return s->job->sparse && has_replies(s, client) ? 1 : s->lay.slots;
}

static bool may_go(const struct ps_server *s, const struct ps_client *client)
{
    const struct ps_job *job = s->job;

    if (s->k != 0 || job->hogwild || !client->member || client->sent_last || none_left(s))
        return false;
    if (job->sparse && has_replies(s, client) && !client->keys.for_ticket)
        return false; /* not yet; if it was answered already, there was no ticket left until now */
    if (job->bound == 0)
        return client->round.ticket < s->round.number && client->granted == client->clock;
    if (client->granted - client->clock >= depth(s, client))
        return false;
    return job->bound < 0 || client->granted - ps_slowest(s) <= job->bound;
}

/* Only then does nobody wait for a ticket in vain: that of a worker which dies is another's. */
static bool all_applied(const struct ps_server *s)
{
    return (int64_t)ps_version_of(s) >= s->job->steps;
}

/* How many tickets a worker gets now. */
static uint32_t take_tickets(struct ps_server *s, struct ps_client *client)
{
    uint32_t n = 0;

    while (may_go(s, client)) {
        client->keys.for_ticket = false;
        client->granted++;
        client->round.ticket = s->round.number;
        s->granted++;
        n++;
    }
    return n;
}

/* Whether a reply goes with a notice. With a bound it comes with the ticket: until then there may
 * be more to read. Without one the first comes with the first notice, and then one with each
 * acknowledgement: of any other the worker knows nothing, and may be reading where it would go. */
static bool is_reply_due(const struct ps_server *s, const struct ps_client *client, uint32_t notice)
{
    if (!has_replies(s, client))
        return false;
    if (s->k == 0 && s->job->bound >= 0 && notice < PS_TICKETS)
        return false;
    if (s->job->sparse)
        return client->keys.to_answer;
    return s->job->bound >= 0 || (notice & PS_ACK) != 0 || client->replies == 0;
}

/* Whether a worker has used all its tickets and gets no more before the slowest has come up. */
static bool is_stalled(const struct ps_server *s, const struct ps_client *client)
{
    return s->k == 0 && s->job->bound > 0 && client->granted == client->clock && !none_left(s) &&
           client->granted - ps_slowest(s) > s->job->bound;
}

/* How long it was stalled is known when it goes on; of several the one that was longest counts. */
static void note_stall(struct ps_server *s, struct ps_client *client, bool goes)
{
    bool was = client->stalled_ns != 0, is = !goes && is_stalled(s, client);
    uint64_t now, by;

    if (was == is)
        return;
    now = vb_clock_ns();
    by = was ? now - client->stalled_ns : 0;
    s->stalled_ns = by > s->stalled_ns ? by : s->stalled_ns;
    client->stalled_ns = is ? now : 0;
}

/* Tells a worker what there is to tell: an acknowledgement, tickets, that these are the last. */
vb_status ps_notify(struct ps_server *s, int worker, uint32_t notice)
{
    struct ps_client *client = &s->clients[worker];
    uint32_t tickets = take_tickets(s, client);
    bool replies;

    note_stall(s, client, tickets > 0);
    notice |= tickets * PS_TICKETS;
    replies = is_reply_due(s, client, notice);
    if (s->k == 0 && !s->job->hogwild && all_applied(s) && !client->sent_last) {
        client->sent_last = true;
        notice |= PS_LAST;
    }
    if (s->due != 0 && worker == ps_first_worker(s)) {
        notice |= s->due;
        client->evals += (s->due & PS_EVAL) != 0;
        client->saves += (s->due & PS_SAVE) != 0;
        s->due = 0;
    }
    if (notice == 0)
        return VB_OK;
    return replies ? reply(s, worker, notice) : ps_send_note(s, worker, PS_NOTICE, notice);
}

vb_status ps_notify_all(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    for (w = 0; w < ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member && !s->clients[w].ended)
            st = ps_notify(s, w, 0);
    return st;
}

/* A worker's first notice. Those of server 0 have tickets; replies come from all. */
vb_status ps_notify_first(struct ps_server *s, int worker)
{
    if (s->k > 0 && has_replies(s, &s->clients[worker]) && !s->job->sparse)
        return reply(s, worker, 0);
    return ps_notify(s, worker, 0);
}

/* ---- again ----------------------------------------------------------------------------------- */

/* What a worker was to be told and has not heard; false: that cannot be. */
static bool find_missing(const struct ps_server *s, int worker, const struct ps_client_state *state,
                         struct ps_client_state *missing)
{
    const struct ps_client *client = &s->clients[worker];

    *missing = (struct ps_client_state){.acked = client->pushes - client->round.held - state->acked,
                                        .replies = client->replies - state->replies,
                                        .tickets = client->granted - client->base - state->tickets,
                                        .evals = client->evals - state->evals,
                                        .saves = client->saves - state->saves};
    return missing->acked <= (uint32_t)s->lay.slots && missing->replies <= 4 &&
           missing->tickets >= 0 && missing->tickets <= s->lay.slots;
}

/* That the server serves, and what is no notice. */
static vb_status welcome_again(struct ps_server *s, int worker, const struct ps_client_state *state)
{
    const struct ps_client *client = &s->clients[worker];
    vb_status st = VB_OK;

    if (!client->failover.called)
        return VB_OK;
    if (worker >= s->job->workers)
        st = ps_send_note(s, worker, PS_WELCOME, 0);
    if (st == VB_OK)
        st = ps_send_note(s, worker, PS_FAILOVER_DONE, client->pushes - state->acked);
    if (st == VB_OK && s->k == 0 && s->job->bound == 0 &&
        (client->round.share != worker || client->round.shares != s->job->workers))
        st = ps_send_share(s, worker);
    return st;
}

/* To a worker that has heard so much from the server before. Replies are made anew: they are to be
 * as new as can be. */
vb_status ps_resend(struct ps_server *s, int worker, const struct ps_client_state *state)
{
    struct ps_client *client = &s->clients[worker];
    struct ps_client_state missing;
    uint32_t i, notice;
    vb_status st;

    if (!find_missing(s, worker, state, &missing))
        return vb_err(VB_ERR_INPUT, "worker %d has heard what nobody said", worker);
    st = welcome_again(s, worker, state);
    notice = (uint32_t)missing.tickets * PS_TICKETS | (client->sent_last ? PS_LAST : 0u) |
             (missing.evals > 0 ? PS_EVAL : 0u) | (missing.saves > 0 ? PS_SAVE : 0u);
    client->replies = state->replies;
    for (i = 0; st == VB_OK && (notice != 0 || i < missing.acked || i < missing.replies); i++) {
        notice |= i < missing.acked ? PS_ACK : 0u;
        st = i < missing.replies ? reply(s, worker, notice)
                                 : ps_send_note(s, worker, PS_NOTICE, notice);
        notice = 0;
    }
    return st == VB_OK && s->final ? ps_send_note(s, worker, PS_FINAL, 0) : st;
}
