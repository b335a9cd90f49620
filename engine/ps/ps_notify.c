/* SPDX-License-Identifier: MIT
 *
 * A server sends notices (acknowledgements, tickets) and replies to workers. Tickets enforce all
 * bounds: see may_go().
 */
#include "engine/ps/ps.h"

#include <string.h>

uint64_t vb_ps_version_of(const struct ps_server *s)
{
    return atomic_load_explicit(&s->head->version, memory_order_relaxed);
}

vb_status vb_ps_send_note(struct ps_server *s, int worker, enum ps_kind kind, uint32_t arg)
{
    struct vb_op *op;
    vb_status st;

    if (s->standby)
        return VB_OK;
    st = vb_ps_ring_take(s->group, &s->clients[worker].ops, "a note to a worker", &op);
    if (st == VB_OK)
        st =
            vb_ps_put(s->slots, vb_ps_worker_rank(s->job, worker), 0, 0, 0, PS_NOTE(kind, arg), op);
    return st == VB_OK ? VB_OK : vb_ps_member_sent(s, worker, st);
}

static bool streams_to(const struct ps_server *s, int worker)
{
    return vb_ps_streams(s->group, s->job, vb_ps_worker_rank(s->job, worker));
}

/* Copies the head, and the parameters or the values at the keys that a worker has sent, into a
 * reply buffer. */
static void fill_reply(struct ps_server *s, int worker, size_t at)
{
    const struct ps_client_keys *keys = &s->clients[worker].keys;
    struct ps_head *head = (void *)((char *)vb_window_ptr(s->slots) + at);
    float *to = (void *)(head + 1);

    atomic_store_explicit(&head->version, vb_ps_version_of(s), memory_order_relaxed);
    if (s->job->sparse)
        vb_ps_gather(s, keys->keys, keys->n, to);
    else
        memcpy(to, s->params, s->lay.n[s->k] * sizeof(float));
}

/* Sends a reply, whose head is at offset `at` from the address `from`; NULL: of the slots. Only
 * server 0 sends its head, which tells the worker the version. */
static vb_status put_reply(struct ps_server *s, int worker, const void *from, size_t at,
                           uint32_t notice, struct vb_op *op)
{
    const struct ps_client *client = &s->clients[worker];
    size_t first = s->job->sparse ? client->keys.reply_at : s->lay.first[s->k];
    size_t n = s->job->sparse ? client->keys.n : s->lay.n[s->k];
    size_t head = s->k == 0 ? sizeof(struct ps_head) : 0;
    size_t to = vb_ps_reply_to(s->job, &s->lay, (int)((client->replies - 1) % 2));

    return vb_put_wait(s->slots, vb_ps_worker_rank(s->job, worker), from,
                       at + sizeof(struct ps_head) - head, to + first * sizeof(float) - head,
                       head + n * sizeof(float), PS_NOTE(PS_NOTICE, notice | PS_REPLY), op,
                       PS_PUT_MS);
}

/* Counts a reply with its version, and sends it. Streamed parameters are sent directly from the
 * shard, so they may change during the transfer. Otherwise the server sends a copy. */
static vb_status reply(struct ps_server *s, int worker, uint32_t notice)
{
    struct ps_client *client = &s->clients[worker];
    int parity = (int)(client->replies % 2);
    size_t at = s->lay.params - sizeof(struct ps_head);
    bool streams = streams_to(s, worker);
    struct vb_op *op;
    vb_status st;

    client->keys.to_answer = false;
    client->reply_version[++client->replies % 4] = vb_ps_version_of(s);
    if (s->standby)
        return VB_OK;
    st = vb_ps_ring_take(s->group, &s->clients[worker].ops, "a note to a worker", &op);
    if (st == VB_OK && !streams) {
        at = s->lay.replies_from[s->k] + (size_t)(2 * worker + parity) * s->lay.reply;
        fill_reply(s, worker, at);
    }
    if (st == VB_OK)
        st = put_reply(s, worker, streams ? vb_window_ptr(s->shards) : NULL, at, notice, op);
    return st == VB_OK ? VB_OK : vb_ps_member_sent(s, worker, st);
}

/* ---- tickets and notices --------------------------------------------------------------------- */

/* A joiner counts from its first push on, which tells its clock to the servers above 0. */
static bool knows_clock(const struct ps_server *s, int worker)
{
    return s->k == 0 || !ps_has_clocks(s->job) || s->clients[worker].next_clock >= 0;
}

int64_t vb_ps_slowest(const struct ps_server *s)
{
    int64_t least = INT64_MAX;
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        if (ps_is_working(&s->clients[w]) && s->clients[w].clock < least && knows_clock(s, w))
            least = s->clients[w].clock;
    return least;
}

/* Server 0 tells a joiner the base of its clock. The others tell the lowest clock: a worker with a
 * ticket begins its step when it is within the bound at these servers, too. */
vb_status vb_ps_send_clock(struct ps_server *s, int worker)
{
    int64_t most = (INT64_C(1) << 2 * PS_ARG_BITS) - 1, clock;
    uint32_t mask = (1u << PS_ARG_BITS) - 1;
    vb_status st = VB_OK;

    if (!ps_has_clocks(s->job))
        return VB_OK;
    clock = s->k == 0 ? s->clients[worker].base : vb_ps_slowest(s);
    clock = clock < most ? clock : most; /* if no clock is known, there is no limit */
    if (clock >> PS_ARG_BITS != 0)
        st = vb_ps_send_note(s, worker, PS_CLOCK_HIGH, (uint32_t)(clock >> PS_ARG_BITS));
    return st == VB_OK ? vb_ps_send_note(s, worker, PS_CLOCK, (uint32_t)clock & mask) : st;
}

static vb_status tell_slowest(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    if (s->k == 0 || !ps_has_clocks(s->job) || vb_ps_slowest(s) == s->told)
        return VB_OK;
    s->told = vb_ps_slowest(s);
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (ps_is_working(&s->clients[w]))
            st = vb_ps_send_clock(s, w);
    return st;
}

bool vb_ps_no_steps_left(const struct ps_server *s)
{
    if (s->job->hogwild)
        return (int64_t)vb_ps_version_of(s) >= s->steps;
    return s->job->begin + (s->job->bound == 0 ? s->round.number : s->granted) >= s->steps;
}

/* Returns the last step for which a ticket may be given now. Steps that are to be evaluated or
 * saved are waited for: when one of them is complete, no gradient is under way, and a snapshot has
 * exactly this version. */
static int64_t last_ticket(const struct ps_server *s)
{
    int64_t version = (int64_t)vb_ps_version_of(s), eval = s->job->eval_every,
            save = s->job->save_every, last = s->steps;

    if (s->gate >= 0)
        return s->gate;
    if (eval > 0 && (version / eval + 1) * eval < last)
        last = (version / eval + 1) * eval;
    if (save > 0 && (version / save + 1) * save < last)
        last = (version / save + 1) * save;
    return last;
}

static bool has_replies(const struct ps_server *s, const struct ps_client *client)
{
    if (client->mapped)
        return false;
    return s->lay.replies || streams_to(s, (int)(client - s->clients));
}

/* Returns whether a worker may get a ticket now: steps are left, fewer than `slots` of its
 * gradients are under way, and it would be at most `bound` steps ahead of the slowest worker. With
 * a bound of 0 a worker gets one ticket per round. A sparse worker that gets replies has only one
 * gradient under way, because it needs the reply to the previous push. If no ticket was left when
 * the server replied to the worker's keys, the ticket comes later. */
static bool may_go(const struct ps_server *s, const struct ps_client *client)
{
    const struct ps_job *job = s->job;
    bool needs_answer;

    if (s->k != 0 || job->hogwild || !client->member || client->sent_last || vb_ps_no_steps_left(s))
        return false;
    needs_answer = job->sparse && has_replies(s, client);
    if (needs_answer && !client->keys.for_ticket)
        return false;
    if (job->bound == 0)
        return client->round.ticket < s->round.number && client->granted == client->clock;
    if (client->granted - client->clock >= (needs_answer ? 1 : s->lay.slots))
        return false;
    if (job->begin + s->granted >= last_ticket(s))
        return false;
    return job->bound < 0 || client->granted - vb_ps_slowest(s) <= job->bound;
}

/* Servers above 0 reply when the worker is within the bound here. */
static bool is_within_bound(const struct ps_server *s, const struct ps_client *client)
{
    return s->k == 0 || !ps_has_clocks(s->job) || client->next_clock < 0 ||
           client->clock - vb_ps_slowest(s) <= s->job->bound;
}

/* Returns whether a reply goes with a notice. With a bound, server 0 sends the reply with the
 * ticket, because until then more gradients may be applied. Without a bound, the first dense reply
 * goes with the first notice, and then one reply goes with each acknowledgement. The worker expects
 * no other replies: another reply could overwrite the buffer that the worker is reading. */
static bool is_reply_due(const struct ps_server *s, const struct ps_client *client, uint32_t notice)
{
    if (!has_replies(s, client))
        return false;
    if (s->k == 0 && s->job->bound >= 0 && notice < PS_TICKETS)
        return false;
    if (s->job->sparse)
        return client->keys.to_answer && is_within_bound(s, client);
    return s->job->bound >= 0 || (notice & PS_ACK) != 0 || client->replies == 0;
}

/* Records when a worker begins to stall: it has used all its tickets, and gets no more before the
 * slowest worker has advanced. When the worker goes on, updates s->stalled_ns, which is the longest
 * stall of all workers that go on at once. */
static void note_stall(struct ps_server *s, struct ps_client *client, bool goes)
{
    bool was = client->stalled_ns != 0;
    bool is = !goes && s->k == 0 && s->job->bound > 0 && client->granted == client->clock &&
              !vb_ps_no_steps_left(s) && client->granted - vb_ps_slowest(s) > s->job->bound;
    uint64_t now, ns;

    if (was == is)
        return;
    now = vb_clock_ns();
    ns = was ? now - client->stalled_ns : 0;
    s->stalled_ns = ns > s->stalled_ns ? ns : s->stalled_ns;
    client->stalled_ns = is ? now : 0;
}

/* PS_LAST is sent when all steps are applied, not when all tickets are given: until all steps are
 * applied, a worker may still get the ticket of another worker that dies. */
vb_status vb_ps_notify(struct ps_server *s, int worker, uint32_t notice)
{
    struct ps_client *client = &s->clients[worker];
    uint32_t tickets;
    bool replies;

    for (tickets = 0; may_go(s, client); tickets++) {
        client->keys.for_ticket = false;
        client->granted++;
        client->round.ticket = s->round.number;
        s->granted++;
    }
    note_stall(s, client, tickets > 0);
    notice |= tickets * PS_TICKETS;
    replies = is_reply_due(s, client, notice);
    if (s->k == 0 && !s->job->hogwild && (int64_t)vb_ps_version_of(s) >= s->steps &&
        !client->sent_last) {
        client->sent_last = client->busy = true; /* a worker may evaluate at its end */
        notice |= PS_LAST;
    }
    if (s->due != 0 && worker == vb_ps_first_worker(s)) {
        notice |= s->due;
        client->evals += (s->due & PS_EVAL) != 0;
        client->saves += (s->due & PS_SAVE) != 0;
        client->busy = true;
        s->due = 0;
        s->gate_worker = worker;
    }
    if (notice == 0 && !(replies && s->k > 0 && ps_has_clocks(s->job)))
        return VB_OK;
    return replies ? reply(s, worker, notice) : vb_ps_send_note(s, worker, PS_NOTICE, notice);
}

vb_status vb_ps_notify_all(struct ps_server *s)
{
    vb_status st = tell_slowest(s);
    int w;

    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (ps_is_working(&s->clients[w]))
            st = vb_ps_notify(s, w, 0);
    return st;
}

/* The first notice of server 0 has tickets. Other servers send their part of the first reply. */
vb_status vb_ps_notify_first(struct ps_server *s, int worker)
{
    if (s->k > 0 && has_replies(s, &s->clients[worker]) && !s->job->sparse)
        return reply(s, worker, 0);
    return vb_ps_notify(s, worker, 0);
}

/* ---- after a failover ------------------------------------------------------------------------ */

/* Computes how many acknowledgements, replies and so on were sent to a worker, but have not reached
 * it. Returns false if the numbers are impossible. */
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

/* Tells a worker that this server serves now, and sends again the notes that are not notices. */
static vb_status welcome_again(struct ps_server *s, int worker, const struct ps_client_state *state)
{
    const struct ps_client *client = &s->clients[worker];
    vb_status st = VB_OK;

    if (!client->failover.called)
        return VB_OK;
    if (worker >= s->job->workers)
        st = vb_ps_send_note(s, worker, PS_WELCOME, 0);
    if (st == VB_OK)
        st = vb_ps_send_note(s, worker, PS_FAILOVER_DONE, client->pushes - state->acked);
    if (st == VB_OK)
        st = vb_ps_send_clock(s, worker);
    if (st == VB_OK && s->k == 0 && s->job->bound == 0 &&
        (client->round.share != worker || client->round.shares != s->job->workers))
        st = vb_ps_send_share(s, worker);
    return st;
}

/* Replies that are sent again have the newest parameters. */
vb_status vb_ps_resend(struct ps_server *s, int worker, const struct ps_client_state *state)
{
    struct ps_client *client = &s->clients[worker];
    struct ps_client_state missing;
    uint32_t i, notice;
    vb_status st;

    if (!find_missing(s, worker, state, &missing))
        return vb_ps_expel_invalid(s, worker, "it counts notices that no server has sent");
    st = welcome_again(s, worker, state);
    notice = (uint32_t)missing.tickets * PS_TICKETS | (client->sent_last ? PS_LAST : 0u) |
             (missing.evals > 0 ? PS_EVAL : 0u) | (missing.saves > 0 ? PS_SAVE : 0u);
    client->replies = state->replies;
    for (i = 0; st == VB_OK && (notice != 0 || i < missing.acked || i < missing.replies); i++) {
        notice |= i < missing.acked ? PS_ACK : 0u;
        st = i < missing.replies ? reply(s, worker, notice)
                                 : vb_ps_send_note(s, worker, PS_NOTICE, notice);
        notice = 0;
    }
    return st == VB_OK && s->final ? vb_ps_send_note(s, worker, PS_FINAL, 0) : st;
}
