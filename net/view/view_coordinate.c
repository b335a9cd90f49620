/* SPDX-License-Identifier: MIT
 *
 * The coordinator of a change of view: the lowest member that is not suspected. It begins a term,
 * waits until all members that are not suspected obey it, proposes, and decides when they have
 * accepted. If one of them may have accepted a proposal before, the coordinator makes that proposal
 * again, because it may have been decided. docs/views.md has the argument.
 */
#include "net/view/view_priv.h"

/* Terms of different ranks differ. */
static uint64_t next_term(const struct view_machine *m)
{
    return (m->promised / VIEW_RANKS + 1) * VIEW_RANKS + (uint64_t)m->opts.rank;
}

void vb_view_begin(struct view_machine *m, struct view_out *out)
{
    struct view_set alive = vb_view_alive(m);

    m->promised = next_term(m);
    m->phase = VIEW_PHASE_PREPARE;
    m->value = m->accepted;
    m->promisers = view_one(m->opts.rank);
    m->steps[m->opts.rank] = m->step;
    vb_view_send(m, VIEW_PREPARE, &alive, out);
}

void vb_view_promised(struct view_machine *m, int from, const struct view_message *message)
{
    view_add(&m->promisers, from);
    m->steps[from] = message->step;
    if (message->value.epoch != 0 && (m->value.epoch == 0 || message->value.term > m->value.term))
        m->value = message->value;
}

/* The view of the members that have promised. Their steps are final, because they have stopped. */
static struct view fresh(const struct view_machine *m, const struct view_set *members)
{
    struct view value = {.epoch = m->view.epoch + 1, .members = *members};
    int i;

    for (i = m->opts.world - 1; i >= 0; i--) {
        if (!view_has(members, i) || m->steps[i] < value.step)
            continue;
        value.step = m->steps[i];
        value.holder = (uint32_t)i;
    }
    return value;
}

/* Only those that have promised get the proposal: a rank that has not may be about to decide for
 * another one, together with ranks that are dead by now. */
static void propose(struct view_machine *m, const struct view_set *alive, struct view_out *out)
{
    if (m->value.epoch == 0 || BUG(5))
        m->value = fresh(m, alive);
    m->value.term = m->promised;
    m->phase = VIEW_PHASE_PROPOSE;
    m->accepted = m->value;
    m->accepters = view_one(m->opts.rank);
    vb_view_send(m, VIEW_PROPOSE, alive, out);
}

static void decide(struct view_machine *m, struct view_out *out)
{
    struct view_set before = m->view.members;
    struct view next = m->value;

    vb_view_install(m, &next, out);
    vb_view_send(m, VIEW_TELL, &before, out);
}

bool vb_view_progress(struct view_machine *m, struct view_out *out)
{
    struct view_set alive = vb_view_alive(m), due;

    if (m->phase == VIEW_PHASE_PREPARE) {
        if (!view_within(&alive, &m->promisers) ||
            !vb_view_may_decide(&m->view, &alive, &m->proved))
            return false;
        propose(m, &alive, out);
        return true;
    }
    if (m->phase != VIEW_PHASE_PROPOSE)
        return false;
    due = view_minus(&m->value.members, &m->suspects);
    if (!BUG(3) && (!view_within(&due, &m->accepters) ||
                    !vb_view_may_decide(&m->view, &m->accepters, &m->proved)))
        return false;
    decide(m, out);
    return true;
}

void vb_view_repeat(struct view_machine *m, struct view_out *out)
{
    struct view_set alive = vb_view_alive(m), due;

    if (m->phase == VIEW_PHASE_PREPARE) {
        due = view_minus(&alive, &m->promisers);
        vb_view_send(m, VIEW_PREPARE, &due, out);
    } else if (m->phase == VIEW_PHASE_PROPOSE) {
        due = view_minus(&alive, &m->accepters);
        due = view_and(&due, &m->promisers);
        vb_view_send(m, VIEW_PROPOSE, &due, out);
    }
}
