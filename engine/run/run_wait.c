/* SPDX-License-Identifier: MIT */
#include "engine/run/run_wait.h"
#include "engine/run/run_ask.h"

#include <poll.h>

#define LOOK_MS 100 /* time between two looks whether somebody has come */

/* What each member says in each look; that of the lead counts. */
enum { WAIT_MORE, WAIT_JOINED, WAIT_OVER };

/* The wait for the writer is collective. Members may know of different checkpoints: a joiner of
 * none, and the lead may have left one out. */
static vb_status save(struct vb_trainer *t)
{
    vb_status st = VB_OK;

    if (t->o->save.dir == NULL)
        return VB_OK;
    if (t->step != t->saved.step)
        st = vb_train_save(t, t->step, true);
    return st == VB_OK ? vb_train_saves_end(t) : st;
}

static uint64_t limit_ns(const struct vb_trainer *t)
{
    return t->few_ns + (uint64_t)(t->o->wait_ranks_s * 1e9);
}

static vb_status fail(const struct vb_trainer *t)
{
    return vb_err(
        VB_ERR_TIMEOUT,
        "only %d of at least %d ranks (--min-ranks) are left at step %lld, and nobody has "
        "joined within %g s (--wait-ranks); %s%s",
        t->world, t->o->min_ranks, (long long)t->step, t->o->wait_ranks_s,
        t->saved.path[0] != '\0' ? "--resume goes on from the checkpoint "
                                 : "there is no checkpoint (--checkpoint)",
        t->saved.path);
}

static int look(const struct vb_trainer *t)
{
    if (vb_group_callers(t->place.group) > 0 && vb_clock_ns() >= t->form.before_ns)
        return WAIT_JOINED;
    return vb_clock_ns() >= limit_ns(t) ? WAIT_OVER : WAIT_MORE;
}

/* Returns what the lead says. When the wait is over, all members end, so the lead tells the user
 * before. Then they meet once more, in vain if one of them is gone: a member that hears of the end
 * of another one before it hears the reason would take that for a failure. */
static vb_status ask(struct vb_trainer *t, struct run_stop *stop, int *verdict_p)
{
    uint8_t verdict = WAIT_MORE;
    vb_status st = vb_run_stop_regroup(stop), over = VB_OK;

    if (st == VB_OK)
        st = vb_run_stop_check(stop, &t->stopped);
    if (t->stopped == VB_RUN_FORM)
        t->stopped = 0;
    if (st == VB_OK && t->stopped == 0 && t->leads)
        verdict = (uint8_t)look(t);
    if (verdict == WAIT_OVER)
        over = fail(t);
    if (st == VB_OK && t->world > 1)
        st = vb_group_broadcast(t->place.group, 0, &verdict, sizeof(verdict));
    if (st == VB_OK && t->world > 1 && verdict == WAIT_OVER)
        (void)vb_group_barrier(t->place.group);
    *verdict_p = verdict;
    if (st == VB_OK && verdict == WAIT_JOINED)
        t->stopped = VB_RUN_FORM; /* on all members, at this step */
    if (over == VB_OK && st == VB_OK && verdict == WAIT_OVER)
        over = VB_ERR_TIMEOUT; /* the lead has said why */
    return over != VB_OK ? over : st;
}

/* The lead answers the user of verbena ctl, who would otherwise wait for as long. No rank leaves
 * here, because there are too few already; one that was told to before leaves when they go on. */
static vb_status answer_user(struct vb_trainer *t, struct run_stop *stop)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;
    struct vb_train_ask ask;
    vb_status st;

    if (!t->leads || hooks->ask == NULL)
        return VB_OK;
    ask = hooks->ask(hooks->ask_arg, t->step);
    if (ask.kind != VB_ASK_NOTHING)
        t->ask = (struct vb_trainer_ask){.what = ask};
    if (t->ask.what.kind == VB_ASK_REMOVE) {
        t->ask = (struct vb_trainer_ask){.what = {.kind = VB_ASK_NOTHING}};
        hooks->answer(hooks->ask_arg, false,
                      "too few ranks are left (--min-ranks), and the job waits for others; stop "
                      "ends it");
    }
    st = vb_train_saves_look(t);
    return st == VB_OK && !vb_run_stop_is_to_leave(stop) ? vb_run_ask(t, stop) : st;
}

vb_status vb_run_wait(struct vb_trainer *t, struct run_stop *stop)
{
    int verdict = WAIT_MORE;
    vb_status st;

    if (t->place.group == NULL || t->world >= t->o->min_ranks) {
        t->few_ns = 0;
        return VB_OK;
    }
    st = save(t);
    if (t->few_ns == 0) {
        t->few_ns = vb_clock_ns();
        if (t->leads)
            VB_LOG_WARN("only %d of at least %d ranks (--min-ranks) are left: training waits for "
                        "others to join, for at most %g s (--wait-ranks)",
                        t->world, t->o->min_ranks, t->o->wait_ranks_s);
    }
    while (st == VB_OK && verdict == WAIT_MORE && t->stopped == 0) {
        vb_train_does(t, VB_DOES_END);
        st = answer_user(t, stop);
        if (st == VB_OK)
            st = ask(t, stop, &verdict);
        if (st == VB_OK)
            vb_train_form_done(t); /* all have met in the group; callers of the old one come here */
        if (st == VB_OK && verdict == WAIT_MORE && t->stopped == 0)
            poll(NULL, 0, LOOK_MS);
    }
    vb_lap(&t->laps, VB_PHASE_WAIT);
    return st;
}
