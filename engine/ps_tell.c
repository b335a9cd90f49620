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
    return ps_ring_take(s->group, &s->seats[worker].words, "a word to a worker", op_p);
}

vb_status ps_say(struct ps_server *s, int worker, enum ps_kind kind, uint32_t value)
{
    struct vb_op *op;
    vb_status st;

    if (s->standby)
        return VB_OK;
    st = take_op(s, worker, &op);
    if (st == VB_OK)
        st = ps_put(s->group, s->slots, ps_worker_rank(s->job, worker), 0, 0, 0,
                    PS_NOTE(kind, value), op);
    return st == VB_OK ? VB_OK : ps_member_told(s, worker, st);
}

const struct ps_push *ps_push_in(const struct ps_server *s, int worker, int slot)
{
    const char *at = vb_window_ptr(s->slots);

    return (const void *)(at + ps_slot_at(&s->lay, s->k, worker, slot));
}

/* The values of the keys that a worker has asked for. */
static vb_status answer(struct ps_server *s, int worker, float *to, size_t *bytes_p, size_t *at_p)
{
    struct ps_seat *seat = &s->seats[worker];
    const struct ps_push *push = ps_push_in(s, worker, seat->ask_slot);
    const uint32_t *keys = (const uint32_t *)(const void *)(push + 1) + seat->ask_values;

    seat->asks = false;
    *bytes_p = seat->ask_keys * sizeof(float);
    *at_p = seat->ask_at * sizeof(float);
    return ps_gather(s, keys, seat->ask_keys, to);
}

/* With the parameters as they are, and as they become while they are sent. */
static vb_status reply_stream(struct ps_server *s, int worker, uint32_t note, struct vb_op *op)
{
    struct ps_seat *seat = &s->seats[worker];
    int parity = (int)(seat->replies % 2);

    seat->reply_version[++seat->replies % 4] = ps_version_of(s);
    return ps_put_from(s->group, s->slots, ps_worker_rank(s->job, worker), s->shards, s->lay.params,
                       ps_reply_to(s->job, &s->lay, parity), s->job->n * sizeof(float), note, op);
}

/* With what does not change on its way. */
static vb_status reply_copy(struct ps_server *s, int worker, uint32_t note, struct vb_op *op)
{
    struct ps_seat *seat = &s->seats[worker];
    int parity = (int)(seat->replies % 2);
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
    seat->reply_version[++seat->replies % 4] = ps_version_of(s);
    return ps_put(s->group, s->slots, ps_worker_rank(s->job, worker), from,
                  ps_reply_to(s->job, &s->lay, parity) + at, bytes, note, op);
}

static bool streams_to(const struct ps_server *s, int worker)
{
    return ps_streams(s->group, s->job, ps_worker_rank(s->job, worker));
}

static vb_status reply(struct ps_server *s, int worker, uint32_t word)
{
    struct ps_seat *seat = &s->seats[worker];
    uint32_t note = PS_NOTE(PS_NOTICE, word | PS_REPLY);
    struct vb_op *op;
    vb_status st;

    if (s->standby) {
        seat->asks = false;
        seat->reply_version[++seat->replies % 4] = ps_version_of(s);
        return VB_OK;
    }
    st = take_op(s, worker, &op);
    if (st == VB_OK)
        st = streams_to(s, worker) ? reply_stream(s, worker, note, op)
                                   : reply_copy(s, worker, note, op);
    return st == VB_OK ? VB_OK : ps_member_told(s, worker, st);
}

/* ---- tickets --------------------------------------------------------------------------------- */

int64_t ps_slowest(const struct ps_server *s)
{
    int64_t least = INT64_MAX;
    int w;

    for (w = 0; w < ps_seats(s->job); w++)
        if (s->seats[w].alive && !s->seats[w].ended && s->seats[w].clock < least)
            least = s->seats[w].clock;
    return least;
}

static bool none_left(const struct ps_server *s)
{
    if (s->job->bound == 0)
        return s->job->begin + s->round >= s->job->steps;
    return s->job->begin + s->granted >= s->job->steps;
}

static bool has_replies(const struct ps_server *s, const struct ps_seat *seat)
{
    if (seat->mapped)
        return false;
    return s->lay.replies || streams_to(s, (int)(seat - s->seats));
}

/* Sparse workers without shared memory need the answer to the push before. */
static int depth(const struct ps_server *s, const struct ps_seat *seat)
{
    return s->job->sparse && has_replies(s, seat) ? 1 : s->lay.slots;
}

static bool may_go(const struct ps_server *s, const struct ps_seat *seat)
{
    const struct ps_job *job = s->job;

    if (s->k != 0 || job->hogwild || !seat->alive || seat->told_last || none_left(s))
        return false;
    if (job->sparse && has_replies(s, seat) && !seat->asked)
        return false; /* not yet; if it was answered already, there was no ticket left until now */
    if (job->bound == 0)
        return seat->round < s->round && seat->granted == seat->clock;
    if (seat->granted - seat->clock >= depth(s, seat))
        return false;
    return job->bound < 0 || seat->granted - ps_slowest(s) <= job->bound;
}

/* Only then does nobody wait for a ticket in vain: that of a worker which dies is another's. */
static bool all_applied(const struct ps_server *s)
{
    return (int64_t)ps_version_of(s) >= s->job->steps;
}

/* How many tickets a worker gets now. */
static uint32_t take_tickets(struct ps_server *s, struct ps_seat *seat)
{
    uint32_t n = 0;

    while (may_go(s, seat)) {
        seat->asked = false;
        seat->granted++;
        seat->round = s->round;
        s->granted++;
        n++;
    }
    return n;
}

/* Whether a reply goes with a word. With a bound it comes with the ticket: until then there may be
 * more to read. Without one the first comes with the first word, and then one with each
 * acknowledgement: of any other the worker knows nothing, and may be reading where it would go. */
static bool is_reply_due(const struct ps_server *s, const struct ps_seat *seat, uint32_t word)
{
    if (!has_replies(s, seat))
        return false;
    if (s->k == 0 && s->job->bound >= 0 && word < PS_TICKETS)
        return false;
    if (s->job->sparse)
        return seat->asks;
    return s->job->bound >= 0 || (word & PS_ACK) != 0 || seat->replies == 0;
}

/* Whether a worker has used all its tickets and gets no more before the slowest has come up. */
static bool is_stalled(const struct ps_server *s, const struct ps_seat *seat)
{
    return s->k == 0 && s->job->bound > 0 && seat->granted == seat->clock && !none_left(s) &&
           seat->granted - ps_slowest(s) > s->job->bound;
}

/* How long it was stalled is known when it goes on; of several the one that was longest counts. */
static void note_stall(struct ps_server *s, struct ps_seat *seat, bool goes)
{
    bool was = seat->stalled_ns != 0, is = !goes && is_stalled(s, seat);
    uint64_t now, by;

    if (was == is)
        return;
    now = vb_clock_ns();
    by = was ? now - seat->stalled_ns : 0;
    s->stalled_ns = by > s->stalled_ns ? by : s->stalled_ns;
    seat->stalled_ns = is ? now : 0;
}

/* Tells a worker what there is to tell: an acknowledgement, tickets, that these are the last. */
vb_status ps_tell(struct ps_server *s, int worker, uint32_t word)
{
    struct ps_seat *seat = &s->seats[worker];
    uint32_t tickets = take_tickets(s, seat);
    bool replies;

    note_stall(s, seat, tickets > 0);
    word |= tickets * PS_TICKETS;
    replies = is_reply_due(s, seat, word);
    if (s->k == 0 && !s->job->hogwild && all_applied(s) && !seat->told_last) {
        seat->told_last = true;
        word |= PS_LAST;
    }
    if (s->due != 0 && worker == ps_first_worker(s)) {
        word |= s->due;
        seat->evals += (s->due & PS_EVAL) != 0;
        seat->saves += (s->due & PS_SAVE) != 0;
        s->due = 0;
    }
    if (word == 0)
        return VB_OK;
    return replies ? reply(s, worker, word) : ps_say(s, worker, PS_NOTICE, word);
}

vb_status ps_tell_all(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    for (w = 0; w < ps_seats(s->job) && st == VB_OK; w++)
        if (s->seats[w].alive && !s->seats[w].ended)
            st = ps_tell(s, w, 0);
    return st;
}

/* A worker's first word. Those of server 0 have tickets; replies come from all. */
vb_status ps_greet(struct ps_server *s, int worker)
{
    if (s->k > 0 && has_replies(s, &s->seats[worker]) && !s->job->sparse)
        return reply(s, worker, 0);
    return ps_tell(s, worker, 0);
}

/* ---- again ----------------------------------------------------------------------------------- */

/* What a worker was to be told and has not heard; false: that cannot be. */
static bool find_missing(const struct ps_server *s, int worker, const struct ps_stand *stand,
                         struct ps_stand *missing)
{
    const struct ps_seat *seat = &s->seats[worker];

    *missing = (struct ps_stand){.acked = seat->pushes - seat->held - stand->acked,
                                 .replies = seat->replies - stand->replies,
                                 .tickets = seat->granted - seat->base - stand->tickets,
                                 .evals = seat->evals - stand->evals,
                                 .saves = seat->saves - stand->saves};
    return missing->acked <= (uint32_t)s->lay.slots && missing->replies <= 4 &&
           missing->tickets >= 0 && missing->tickets <= s->lay.slots;
}

/* That the server serves, and what is no word. */
static vb_status welcome_again(struct ps_server *s, int worker, const struct ps_stand *stand)
{
    const struct ps_seat *seat = &s->seats[worker];
    vb_status st = VB_OK;

    if (!seat->takes)
        return VB_OK;
    if (worker >= s->job->workers)
        st = ps_say(s, worker, PS_WELCOME, 0);
    if (st == VB_OK)
        st = ps_say(s, worker, PS_FAILOVER_DONE, seat->pushes - stand->acked);
    if (st == VB_OK && s->k == 0 && s->job->bound == 0 &&
        (seat->share != worker || seat->shares != s->job->workers))
        st = ps_say_share(s, worker);
    return st;
}

/* To a worker that has heard so much from the server before. Replies are made anew: they are to be
 * as new as can be. */
vb_status ps_tell_again(struct ps_server *s, int worker, const struct ps_stand *stand)
{
    struct ps_seat *seat = &s->seats[worker];
    struct ps_stand missing;
    uint32_t i, word;
    vb_status st;

    if (!find_missing(s, worker, stand, &missing))
        return vb_err(VB_ERR_INPUT, "worker %d has heard what nobody said", worker);
    st = welcome_again(s, worker, stand);
    word = (uint32_t)missing.tickets * PS_TICKETS | (seat->told_last ? PS_LAST : 0u) |
           (missing.evals > 0 ? PS_EVAL : 0u) | (missing.saves > 0 ? PS_SAVE : 0u);
    seat->replies = stand->replies;
    for (i = 0; st == VB_OK && (word != 0 || i < missing.acked || i < missing.replies); i++) {
        word |= i < missing.acked ? PS_ACK : 0u;
        st = i < missing.replies ? reply(s, worker, word) : ps_say(s, worker, PS_NOTICE, word);
        word = 0;
    }
    return st == VB_OK && s->final ? ps_say(s, worker, PS_FINAL, 0) : st;
}
