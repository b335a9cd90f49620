/* SPDX-License-Identifier: MIT
 *
 * The machine of one rank: what it is told, what it answers, when it installs a view or ends.
 */
#include "net/view/view_priv.h"

/* Ranks that lose a race for a term wait differently long, up to so many times. */
#define SPREAD 8

void vb_view_init(struct view_machine *m, const struct view_opts *opts)
{
    memset(m, 0, sizeof(*m));
    m->opts = *opts;
    m->step = opts->step;
    m->view = (struct view){.epoch = 1, .step = opts->step, .members = view_first(opts->world)};
}

static bool ended(const struct view_machine *m)
{
    return m->status == VIEW_ENDED;
}

static void reset(struct view_out *out)
{
    out->events = 0;
    out->n = 0;
}

void vb_view_send(struct view_machine *m, enum view_kind kind, const struct view_set *to,
                  struct view_out *out)
{
    struct view_send *send = &out->sends[out->n];
    struct view_message *message = &send->message;

    VB_ASSERT(out->n < VIEW_SENDS_MAX);
    send->to = *to;
    view_remove(&send->to, m->opts.rank);
    if (view_empty(&send->to))
        return;
    out->n++;
    memset(message, 0, sizeof(*message));
    message->kind = kind;
    message->term = m->promised;
    message->step = m->step;
    message->view = m->view;
    if (kind == VIEW_PROMISE)
        message->value = m->accepted;
    else if (kind == VIEW_PROPOSE)
        message->value = m->value;
    message->suspects = m->suspects;
    message->proved = m->proved;
}

static void answer(struct view_machine *m, int to, enum view_kind kind, struct view_out *out)
{
    struct view_set one = view_one(to);

    vb_view_send(m, kind, &one, out);
}

void vb_view_stop(struct view_machine *m, struct view_out *out)
{
    if (m->status != VIEW_GOING)
        return;
    m->status = VIEW_STOPPED;
    m->retry_due = 0;
    if ((out->events & VIEW_EVENT_INSTALL) != 0)
        out->events &= ~(unsigned)VIEW_EVENT_INSTALL; /* installed and stopped by one message */
    else
        out->events |= VIEW_EVENT_STOP;
}

static void end(struct view_machine *m, enum view_end why, struct view_out *out)
{
    vb_view_stop(m, out);
    m->status = VIEW_ENDED;
    m->why = why;
    m->phase = VIEW_PHASE_NONE;
    out->events |= VIEW_EVENT_END;
}

/* A view with a member that is gone already is not shown to the caller: the next change begins at
 * once. */
void vb_view_install(struct view_machine *m, const struct view *next, struct view_out *out)
{
    vb_view_stop(m, out);
    m->view = *next;
    memset(&m->accepted, 0, sizeof(m->accepted));
    m->phase = VIEW_PHASE_NONE;
    m->retry_due = m->end_due = 0;
    m->suspects = view_and(&m->suspects, &next->members);
    m->proved = view_and(&m->proved, &next->members);
    if (!view_has(&next->members, m->opts.rank)) {
        end(m, VIEW_END_OUT, out);
    } else if (view_empty(&m->suspects)) {
        m->status = VIEW_GOING;
        out->events |= VIEW_EVENT_INSTALL;
    }
}

/* Something new is known: act on it now, not after the next pause. */
static void urge(struct view_machine *m)
{
    if (m->phase == VIEW_PHASE_NONE)
        m->retry_due = 0;
}

static uint64_t next_retry(const struct view_machine *m, uint64_t now)
{
    int i, before = 0;

    for (i = 0; i < m->opts.rank && before < SPREAD - 1; i++)
        before += view_has(&m->view.members, i);
    return now + m->opts.retry_ns * (uint64_t)(1 + before);
}

/* What is due in this state: the coordinator begins or repeats, the others report to it. */
static void act(struct view_machine *m, bool may_decide, struct view_out *out)
{
    struct view_set alive = vb_view_alive(m);
    int lead = view_lowest(&alive);

    if (lead != m->opts.rank)
        answer(m, lead, VIEW_REPORT, out);
    else if (m->phase != VIEW_PHASE_NONE)
        vb_view_repeat(m, out);
    else if (may_decide)
        vb_view_begin(m, out);
}

static void check_grace(struct view_machine *m, bool may_decide, uint64_t now, struct view_out *out)
{
    if (may_decide)
        m->end_due = 0;
    else if (m->end_due == 0)
        m->end_due = now + m->opts.grace_ns;
    else if (now >= m->end_due)
        end(m, VIEW_END_MINORITY, out);
}

static bool can_decide(const struct view_machine *m)
{
    struct view_set alive = vb_view_alive(m);

    return vb_view_may_decide(&m->view, &alive, &m->proved);
}

/* Called at the end of each input. A view that is installed with a member that is gone leads to a
 * second round; there is no third, because the next view has only members that are alive. */
static void settle(struct view_machine *m, uint64_t now, struct view_out *out)
{
    if (m->status == VIEW_GOING && !view_empty(&m->suspects))
        vb_view_stop(m, out);
    while (m->status == VIEW_STOPPED) {
        if (vb_view_progress(m, out))
            continue;
        if (now < m->retry_due)
            break;
        m->retry_due = next_retry(m, now);
        act(m, can_decide(m), out);
        if (m->phase == VIEW_PHASE_NONE)
            break;
    }
    if (m->status == VIEW_STOPPED)
        check_grace(m, can_decide(m), now, out);
}

static bool is_proof(enum view_how how)
{
    return how == VIEW_REAPED || how == VIEW_LEFT;
}

void vb_view_suspect(struct view_machine *m, int rank, enum view_how how, uint64_t now,
                     struct view_out *out)
{
    struct view_set *set = is_proof(how) ? &m->proved : &m->suspects;

    reset(out);
    if (ended(m) || rank < 0 || rank >= m->opts.world || rank == m->opts.rank ||
        !view_has(&m->view.members, rank) || view_has(set, rank))
        return;
    view_add(set, rank);
    view_add(&m->suspects, rank);
    urge(m);
    settle(m, now, out);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Two ranks that have stopped in the same view differ by one step at most: a step needs both. */
static bool is_possible(const struct view_machine *m, int from, const struct view_message *message)
{
    if (from < 0 || from >= m->opts.world || from == m->opts.rank ||
        view_has(&message->proved, m->opts.rank))
        return false;
    if (message->kind == VIEW_TELL || !vb_view_same(&message->view, &m->view))
        return true;
    return view_has(&m->view.members, from) && message->step <= m->step + 1 &&
           m->step <= message->step + 1;
}

/* A higher term ends the one that this rank coordinates. It waits before it begins another. */
static void obey(struct view_machine *m, uint64_t term, uint64_t now)
{
    if (term <= m->promised)
        return;
    m->promised = term;
    if (m->phase == VIEW_PHASE_NONE)
        return;
    m->phase = VIEW_PHASE_NONE;
    m->retry_due = next_retry(m, now);
}

/* The sender has a newer view. A member may install it unless it has accepted another proposal in a
 * higher term, which may be decided by now: then it ends, because no other rank can tell it. */
static void catch_up(struct view_machine *m, const struct view *theirs, struct view_out *out)
{
    bool is_next = theirs->epoch == m->view.epoch + 1;
    bool is_free = m->accepted.epoch == 0 || m->accepted.term < theirs->term;

    if (view_has(&theirs->members, m->opts.rank) && is_next &&
        (is_free || vb_view_same(theirs, &m->accepted)))
        vb_view_install(m, theirs, out);
    else
        end(m, VIEW_END_OUT, out);
}

/* Believes what another member of this view says about the rest, unless it is suspected itself. */
static void learn(struct view_machine *m, int from, const struct view_message *message)
{
    struct view_set suspects = m->suspects, proved = view_or(&m->proved, &message->proved);

    if (!view_has(&m->suspects, from))
        suspects = view_or(&suspects, &message->suspects);
    if (view_has(&message->suspects, m->opts.rank))
        view_add(&suspects, from);
    suspects = view_or(&suspects, &proved);
    view_remove(&suspects, m->opts.rank);
    if (!view_equal(&suspects, &m->suspects) || !view_equal(&proved, &m->proved))
        urge(m);
    m->suspects = suspects;
    m->proved = proved;
}

static void take_prepare(struct view_machine *m, int from, struct view_out *out)
{
    vb_view_stop(m, out);
    answer(m, from, VIEW_PROMISE, out);
}

static void take_propose(struct view_machine *m, int from, const struct view_message *message,
                         struct view_out *out)
{
    vb_view_stop(m, out);
    m->accepted = message->value;
    answer(m, from, VIEW_ACCEPT, out);
}

/* A message from a member of the same view. */
static void take_same(struct view_machine *m, int from, const struct view_message *message,
                      struct view_out *out)
{
    bool stale = message->term < m->promised;

    if (BUG(4) && stale && (message->kind == VIEW_PREPARE || message->kind == VIEW_PROPOSE)) {
        m->promised = message->term;
        m->phase = VIEW_PHASE_NONE;
        stale = false;
    }
    switch (message->kind) {
    case VIEW_REPORT:
        vb_view_stop(m, out);
        urge(m);
        break;
    case VIEW_PREPARE:
    case VIEW_PROPOSE:
        if (stale)
            answer(m, from, VIEW_TELL, out);
        else if (message->kind == VIEW_PREPARE)
            take_prepare(m, from, out);
        else
            take_propose(m, from, message, out);
        break;
    case VIEW_PROMISE:
        if (m->phase == VIEW_PHASE_PREPARE && message->term == m->promised)
            vb_view_promised(m, from, message);
        break;
    case VIEW_ACCEPT:
        if (m->phase == VIEW_PHASE_PROPOSE && message->term == m->promised)
            view_add(&m->accepters, from);
        break;
    default:
        break;
    }
}

bool vb_view_take(struct view_machine *m, int from, const struct view_message *message,
                  uint64_t now, struct view_out *out)
{
    reset(out);
    if (ended(m))
        return true;
    if (!is_possible(m, from, message))
        return false;
    obey(m, message->term, now);
    if (message->view.epoch > m->view.epoch)
        catch_up(m, &message->view, out);
    if (ended(m))
        return true;
    if (message->view.epoch < m->view.epoch) {
        answer(m, from, VIEW_TELL, out);
    } else if (vb_view_same(&message->view, &m->view) && view_has(&m->view.members, from)) {
        learn(m, from, message);
        take_same(m, from, message, out);
    }
    settle(m, now, out);
    return true;
}

void vb_view_farewell(struct view_machine *m, int rank, struct view_out *out)
{
    reset(out);
    if (!ended(m) && !view_has(&m->view.members, rank))
        answer(m, rank, VIEW_TELL, out);
}

/* ---- time and steps -------------------------------------------------------------------------- */

void vb_view_tick(struct view_machine *m, uint64_t now, struct view_out *out)
{
    reset(out);
    if (!ended(m))
        settle(m, now, out);
}

uint64_t vb_view_due(const struct view_machine *m)
{
    if (m->status != VIEW_STOPPED)
        return UINT64_MAX;
    if (m->end_due != 0 && m->end_due < m->retry_due)
        return m->end_due;
    return m->retry_due;
}

void vb_view_end_grace(struct view_machine *m, uint64_t now)
{
    if (m->end_due > now)
        m->end_due = now;
}

bool vb_view_commit(struct view_machine *m, uint64_t step)
{
    if ((m->status != VIEW_GOING && !BUG(7)) || step != m->step + 1)
        return false;
    m->step = step;
    return true;
}
