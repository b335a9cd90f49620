/* SPDX-License-Identifier: MIT
 *
 * Groups whose ranks agree which of them go on (docs/views.md). The control plane does the work;
 * this is what a caller sees of it.
 */
#include "net/group/group_priv.h"

#define FIRST_VIEW 1u     /* of all ranks of the start */
#define TURN_NS 10000000u /* peers may need something of this rank while it waits */

bool vb_group_commit(struct vb_group *g, int64_t step)
{
    uint32_t number = g->view.number > 0 ? g->view.number : FIRST_VIEW;

    if (!g->opts.agrees)
        return true;
    return step > 0 && vb_group_status(g) == VB_OK &&
           vb_control_commit(g->control, (uint64_t)step, number);
}

/* Says why the group has failed. */
static vb_status say_failure(struct vb_group *g, vb_status st)
{
    char text[256];

    (void)vb_control_status(g->control, text, sizeof(text));
    st = vb_err(st, "%s", text);
    vb_log_fix("verbena train ... --resume   # all ranks go on together, from the last checkpoint");
    return st;
}

static vb_status say_late(struct vb_group *g)
{
    char left[CONTROL_RANKS_TEXT], gone[CONTROL_RANKS_TEXT];

    vb_control_view_text(g->control, left, gone);
    return vb_err(VB_ERR_TIMEOUT,
                  "timeout: waited %.1f s for a view of the ranks that are left (ranks %s; gone: "
                  "%s)",
                  g->opts.timeout_ms / 1000.0, left, gone);
}

/* Errors of collectives that have ended are not logged: the caller knows of them. */
static void serve_peers(struct vb_group *g)
{
    char text[128];
    struct vb_log_caught before = vb_log_catch_status(VB_ERR_PEER, text, sizeof(text));

    group_lock(g);
    (void)vb_group_round(g);
    group_unlock(g);
    vb_log_catch_again(&before);
}

vb_status vb_group_agree(struct vb_group *g, struct vb_agreed *agreed_p)
{
    struct control_agreed agreed = {.members = g->agreed};
    uint64_t deadline = group_deadline(g), now;
    uint32_t above = g->view_tried > FIRST_VIEW ? g->view_tried : FIRST_VIEW;
    vb_status st;

    if (!g->opts.agrees)
        return vb_err(VB_ERR_USAGE, "the ranks of this group do not agree on a view");
    do {
        serve_peers(g);
        st = vb_group_status(g);
        now = vb_clock_ns();
        if (st != VB_OK)
            return say_failure(g, st);
        if (now >= deadline)
            return say_late(g);
    } while (!vb_control_agreed(g->control, above, now + TURN_NS, &agreed));
    *agreed_p = (struct vb_agreed){.number = agreed.number,
                                   .n = agreed.n,
                                   .members = agreed.members,
                                   .step = (int64_t)agreed.step,
                                   .holder = agreed.holder,
                                   .term = agreed.term};
    return VB_OK;
}

void vb_group_forsake(struct vb_group *g)
{
    vb_control_forsake(g->control);
}

bool vb_agreed_has(const struct vb_agreed *agreed, int rank)
{
    int i;

    for (i = 0; i < agreed->n; i++)
        if (agreed->members[i] == rank)
            return true;
    return false;
}

void vb_group_proved(struct vb_group *g, int rank)
{
    if (!g->opts.agrees || rank < 0 || rank >= g->world)
        return;
    if (rank != g->rank)
        vb_control_proved(g->control, rank);
    group_lock(g);
    if (g->before != NULL)
        vb_group_proved(g->before, vb_group_rank_of_id(g->before, vb_group_id(g, rank)));
    group_unlock(g);
}
