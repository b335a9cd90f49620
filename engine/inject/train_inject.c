/* SPDX-License-Identifier: MIT */
#include "engine/train/trainer.h"

#include <signal.h>

_Static_assert(VB_INJECT_PHASES == VB_PHASES, "a rank may be slow in any phase");

/* ---- texts ----------------------------------------------------------------------------------- */

void vb_inject_spec(const struct vb_inject *i, char text[VB_INJECT_TEXT])
{
    const char *phase = i->phase >= 0 ? vb_phase_str((enum vb_phase)i->phase) : "";

    switch (i->kind) {
    case VB_INJECT_KILL:
        snprintf(text, VB_INJECT_TEXT, "kill:%d@%lld", i->rank, (long long)i->step);
        break;
    case VB_INJECT_STOP:
        snprintf(text, VB_INJECT_TEXT, "stop:%d@%lld:%g", i->rank, (long long)i->step, i->seconds);
        break;
    case VB_INJECT_SLOW:
        snprintf(text, VB_INJECT_TEXT, "slow:%dx%g%s%s", i->rank, i->factor,
                 i->phase >= 0 ? ":" : "", phase);
        break;
    default:
        snprintf(text, VB_INJECT_TEXT, "clock:%d:%.9g:%g", i->rank, i->offset_s, i->ppm);
    }
}

void vb_inject_words(const struct vb_inject *i, char text[VB_INJECT_TEXT])
{
    switch (i->kind) {
    case VB_INJECT_KILL:
        snprintf(text, VB_INJECT_TEXT, "rank %d is killed before its step %lld", i->rank,
                 (long long)i->step);
        break;
    case VB_INJECT_STOP:
        snprintf(text, VB_INJECT_TEXT, "rank %d is stopped for %g s before its step %lld", i->rank,
                 i->seconds, (long long)i->step);
        break;
    case VB_INJECT_SLOW:
        snprintf(text, VB_INJECT_TEXT, "rank %d takes %g times as long for %s", i->rank, i->factor,
                 i->phase >= 0 ? vb_phase_str((enum vb_phase)i->phase) : "computing");
        break;
    default:
        snprintf(text, VB_INJECT_TEXT, "records of rank %d: clock %.9g s ahead, gaining %g ppm",
                 i->rank, i->offset_s, i->ppm);
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Returns the next fault of this rank from *i_p on, or NULL. */
static const struct vb_inject *next_own(const struct vb_trainer *t, int *i_p)
{
    const struct vb_inject_opts *o = &t->o->inject;

    while (t->joiner == NULL && *i_p < o->n) {
        const struct vb_inject *inject = &o->list[(*i_p)++];

        if (inject->rank == t->number)
            return inject;
    }
    return NULL;
}

void vb_inject_clock(const struct vb_trainer *t)
{
    const struct vb_inject *inject;
    int i = 0;

    while ((inject = next_own(t, &i)) != NULL)
        if (inject->kind == VB_INJECT_CLOCK)
            vb_clock_inject((int64_t)(inject->offset_s * 1e9), inject->ppm);
}

static void slow_in(struct vb_trainer *t, int phase, double factor)
{
    t->slow.factor[phase] = factor;
    t->slow.on = t->slow.on || factor > 1;
}

vb_status vb_inject_open(struct vb_trainer *t)
{
    const struct vb_inject *inject;
    int i = 0;

    while ((inject = next_own(t, &i)) != NULL) {
        if (inject->kind == VB_INJECT_SLOW && inject->phase >= 0)
            slow_in(t, inject->phase, inject->factor);
        if (inject->kind == VB_INJECT_SLOW && inject->phase < 0) {
            slow_in(t, VB_PHASE_FORWARD, inject->factor);
            slow_in(t, VB_PHASE_BACKWARD, inject->factor);
            slow_in(t, VB_PHASE_UPDATE, inject->factor);
        }
        if (inject->step > t->recipe.steps)
            return vb_err(VB_ERR_USAGE, "--inject: there is no step %lld; the run has %lld steps",
                          (long long)inject->step, (long long)t->recipe.steps);
    }
    return VB_OK;
}

/* ---- a rank that dies or stops --------------------------------------------------------------- */

static vb_status do_now(struct vb_trainer *t, const struct vb_inject *inject)
{
    char words[VB_INJECT_TEXT];
    vb_status st = VB_OK;

    vb_inject_words(inject, words);
    VB_LOG_INFO("--inject: %s", words);
    if (inject->kind == VB_INJECT_KILL)
        (void)raise(SIGKILL); /* does not return */
    else
        st = vb_process_pause(inject->seconds);
    vb_train_event_say(t, "injected", t->step, words);
    return st;
}

vb_status vb_inject_before_step(struct vb_trainer *t)
{
    const struct vb_inject *inject;
    vb_status st = VB_OK;
    int i = 0;

    if (t->o->inject.n == 0)
        return VB_OK;
    while (st == VB_OK && (inject = next_own(t, &i)) != NULL)
        if (inject->step == t->step + 1 &&
            (inject->kind == VB_INJECT_KILL || inject->kind == VB_INJECT_STOP))
            st = do_now(t, inject);
    return st;
}

/* ---- a slow rank ----------------------------------------------------------------------------- */

void vb_inject_idle(struct vb_trainer *t, int phase)
{
    struct vb_trainer_slow *s = &t->slow;
    uint64_t begin_ns, from_ns;

    if (s->idle_ns[phase] == 0)
        return;
    begin_ns = vb_trace_begin();
    from_ns = vb_clock_ns();
    s->idled_ns[phase] += vb_sleep_until(from_ns + s->idle_ns[phase]) - from_ns;
    vb_trace_end(begin_ns, VB_OP_DELAY, 0);
    vb_lap(&t->laps, (enum vb_phase)phase);
}

/* Computes the idle time from the shorter one of the last two steps. If another program used the
 * core during the longer step, idling for a multiple of that step could exceed the timeout of the
 * other ranks. */
void vb_inject_after_step(struct vb_trainer *t)
{
    struct vb_trainer_slow *s = &t->slow;
    int p;

    for (p = 0; s->on && p < VB_PHASES; p++) {
        uint64_t all_ns = t->laps.ns[p] - s->laps_ns[p], least_ns;
        uint64_t own_ns = all_ns > s->idled_ns[p] ? all_ns - s->idled_ns[p] : 0;

        least_ns = s->own_ns[p] > 0 && s->own_ns[p] < own_ns ? s->own_ns[p] : own_ns;
        s->own_ns[p] = own_ns;
        s->laps_ns[p] = t->laps.ns[p];
        s->idled_ns[p] = 0;
        s->idle_ns[p] = s->factor[p] > 1 ? (uint64_t)((double)least_ns * (s->factor[p] - 1)) : 0;
    }
}
