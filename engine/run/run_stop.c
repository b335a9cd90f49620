/* SPDX-License-Identifier: MIT */
#include "engine/run/run_stop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* A note has a kind, a signal, and the lowest bits of a step. */
enum { STOP_ASK, STOP_AT, STOP_CONFIRM, STOP_LEAVE };

/* What STOP_LEAVE has instead of a signal. */
enum { LEAVE_YOU, LEAVE_I, LEAVE_HEARD };

#define SIGNAL_BITS 6
#define STEP_BITS 16
#define STEP_MASK ((1u << STEP_BITS) - 1)
#define AGAIN_NS UINT64_C(100000000) /* the lead repeats itself after this time */
#define PAUSE_NS 200000
#define LEAVE_NS UINT64_C(5000000000) /* others that do not answer count as gone, or do soon */

struct run_stop {
    struct vb_trainer *t;
    struct vb_window *win; /* only notes are put; NULL: there is one rank */
    int channel;
    int ranks; /* of the start */
    bool asked_lead;
    _Atomic int lead; /* its number; the handler of notes reads it */
    /* Written by the handler of notes, which may run on the group's progress thread. */
    _Atomic uint32_t asked;  /* the lead: the signal that a rank has asked for; 0: none */
    _Atomic uint32_t last;   /* other ranks: value of the note STOP_AT; 0: none has come */
    _Atomic bool *confirmed; /* the lead: for each rank of the start */
    _Atomic bool *heard;     /* a rank that leaves: who knows of it */
    _Atomic bool is_to_leave;
    struct vb_op *ops; /* one for each rank of the start */
};

static uint32_t pack(uint32_t kind, uint32_t number, int64_t step)
{
    return kind << (SIGNAL_BITS + STEP_BITS) | number << STEP_BITS | ((uint32_t)step & STEP_MASK);
}

static uint32_t signal_of(uint32_t note)
{
    return note >> STEP_BITS & ((1u << SIGNAL_BITS) - 1);
}

/* Puts a note, unless the last note to this rank is still under way. VB_AGAIN: it was not put. */
static vb_status put_note(struct run_stop *s, int rank, uint32_t value)
{
    vb_status st = VB_AGAIN;

    if (s->ops[rank].done) {
        st = vb_put(s->win, rank, 0, 0, 0, VB_NOTE(s->channel, value), &s->ops[rank]);
        if (st != VB_OK)
            s->ops[rank].done = true;
    }
    return st;
}

/* A rank that leaves repeats itself if the answer could not be put. */
static void leave_came(struct run_stop *s, int rank, uint32_t what)
{
    if (what == LEAVE_YOU && rank == atomic_load(&s->lead)) {
        atomic_store(&s->is_to_leave, true);
    } else if (what == LEAVE_I) {
        atomic_store(&s->t->removed[rank], true);
        (void)put_note(s, rank, pack(STOP_LEAVE, LEAVE_HEARD, 0));
    } else if (what == LEAVE_HEARD) {
        atomic_store(&s->heard[rank], true);
    }
}

static void note_came(void *arg, int rank, uint32_t value)
{
    struct run_stop *s = arg;
    uint32_t kind = value >> (SIGNAL_BITS + STEP_BITS);
    int lead = atomic_load(&s->lead);
    bool leads = lead == s->t->number;

    if (leads && kind == STOP_ASK) {
        atomic_store(&s->asked, signal_of(value));
    } else if (leads && kind == STOP_CONFIRM) {
        atomic_store(&s->confirmed[rank], true);
    } else if (!leads && rank == lead && kind == STOP_AT) {
        atomic_store(&s->last, value);
        /* if this fails, the lead tells this rank again */
        (void)put_note(s, lead, pack(STOP_CONFIRM, 0, 0));
    } else if (kind == STOP_LEAVE) {
        leave_came(s, rank, signal_of(value));
    }
}

vb_status vb_run_stop_open(struct vb_trainer *t, struct run_stop **stop_p)
{
    struct run_stop *s = calloc(1, sizeof(*s));
    int i;

    if (s == NULL)
        return vb_err_sys("calloc");
    *stop_p = s;
    s->t = t;
    if (t->place.group == NULL || t->world == 1)
        return VB_OK;
    s->ranks = t->world;
    s->ops = calloc((size_t)s->ranks, sizeof(*s->ops));
    s->confirmed = calloc((size_t)s->ranks, sizeof(*s->confirmed));
    s->heard = calloc((size_t)s->ranks, sizeof(*s->heard));
    if (s->ops == NULL || s->confirmed == NULL || s->heard == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < s->ranks; i++)
        s->ops[i].done = true;
    s->channel = -1;
    if (vb_channel_alloc(t->place.group, note_came, s, &s->channel) != VB_OK)
        return VB_ERR_USAGE;
    return vb_window_create(t->place.group, 64, &s->win);
}

/* Ops to a rank that is gone have ended, or end when progress is made. */
static void wait_for_notes(struct run_stop *s)
{
    struct vb_group *group = s->t->place.group;
    int i;

    for (i = 0; i < s->ranks; i++)
        if (!s->ops[i].done && !vb_group_gone(group, i) &&
            vb_op_wait(group, &s->ops[i], "a note", i) != VB_OK && !vb_group_gone(group, i))
            return;
}

void vb_run_stop_close(struct run_stop *s)
{
    if (s == NULL || s->ops == NULL)
        return;
    wait_for_notes(s);
    vb_window_destroy(s->win);
    if (s->channel >= 0)
        vb_channel_close(s->t->place.group, s->channel);
}

void vb_run_stop_free(struct run_stop *s)
{
    if (s == NULL)
        return;
    free(s->confirmed);
    free(s->heard);
    free(s->ops);
    free(s);
}

static int member(const struct run_stop *s, int place)
{
    return vb_group_view_member(s->t->place.group, place);
}

/* Tells the members that have not confirmed yet. Returns how many there are. */
static int tell_others(struct run_stop *s, uint32_t note, vb_status *st)
{
    int i, n = 0;

    for (i = 1; i < s->t->world && *st >= 0; i++)
        if (!atomic_load(&s->confirmed[member(s, i)])) {
            *st = put_note(s, member(s, i), note);
            n++;
        }
    return n;
}

/* Returns the place of the first member that has not confirmed; world: all have. */
static int first_silent(const struct run_stop *s, int from)
{
    while (from < s->t->world && atomic_load(&s->confirmed[member(s, from)]))
        from++;
    return from;
}

static vb_status not_confirmed(const struct run_stop *s, int rank, int timeout_ms)
{
    struct vb_group *group = s->t->place.group;

    if (vb_group_gone(group, rank))
        return vb_err(VB_ERR_PEER,
                      "rank %d (%s) is gone, and cannot confirm that the run stops: %s", rank,
                      vb_group_host(group, rank), vb_group_gone_why(group, rank));
    return vb_err(VB_ERR_TIMEOUT,
                  "rank %d (%s) has not confirmed within %d s that the run is to stop", rank,
                  vb_group_host(group, rank), timeout_ms / 1000);
}

/* The lead makes the next step the last one. */
static vb_status decide(struct run_stop *s, int number)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint32_t note = pack(STOP_AT, (uint32_t)number, s->t->step + 1);
    int timeout_ms = s->t->o->group.timeout_ms > 0 ? s->t->o->group.timeout_ms : 60000;
    uint64_t now = vb_clock_ns(), deadline = now + (uint64_t)timeout_ms * 1000000, again = now;
    vb_status st = VB_OK;
    int i = first_silent(s, 1);

    while (i < s->t->world && st == VB_OK) {
        now = vb_clock_ns();
        if (now >= again && tell_others(s, note, &st) > 0)
            again = now + AGAIN_NS;
        if (st >= 0)
            st = vb_progress(s->t->place.group);
        i = first_silent(s, i);
        if (st == VB_OK && i < s->t->world &&
            (now >= deadline || vb_group_gone(s->t->place.group, member(s, i))))
            return not_confirmed(s, member(s, i), timeout_ms);
        if (i < s->t->world)
            nanosleep(&pause, NULL);
    }
    if (st == VB_OK)
        atomic_store(&s->last, note);
    return st;
}

/* Returns whether the step in a note is the one that this rank has completed. */
static bool is_here(const struct run_stop *s, uint32_t note)
{
    return note != 0 && (note & STEP_MASK) == ((uint32_t)s->t->step & STEP_MASK);
}

vb_status vb_run_stop_check(struct run_stop *s, int *signal_p)
{
    const struct vb_train_hooks *hooks = &s->t->o->hooks;
    int number = hooks->stop != NULL ? hooks->stop(hooks->stop_arg) : 0;
    uint32_t last = atomic_load_explicit(&s->last, memory_order_acquire);
    vb_status st = VB_OK;

    *signal_p = 0;
    if (s->win == NULL)
        *signal_p = number;
    else if (is_here(s, last))
        *signal_p = (int)signal_of(last);
    else if (s->t->leads && number == 0)
        number = (int)atomic_load_explicit(&s->asked, memory_order_acquire);
    if (number == 0 || last != 0 || s->win == NULL)
        return VB_OK;
    if (s->t->leads)
        return decide(s, number);
    if (!s->asked_lead) {
        st = put_note(s, atomic_load(&s->lead), pack(STOP_ASK, (uint32_t)number, 0));
        s->asked_lead = st == VB_OK;
    }
    return st == VB_AGAIN ? VB_OK : st;
}

/* ---- a rank leaves --------------------------------------------------------------------------- */

vb_status vb_run_stop_send_off(struct run_stop *s, int rank)
{
    if (rank == s->t->number) {
        atomic_store(&s->is_to_leave, true);
        return VB_OK;
    }
    return put_note(s, rank, pack(STOP_LEAVE, LEAVE_YOU, 0));
}

bool vb_run_stop_is_to_leave(struct run_stop *s)
{
    return atomic_load(&s->is_to_leave);
}

/* Returns whether a member does not know yet that this rank leaves, and tells those that do not. */
static bool tell_leave(struct run_stop *s)
{
    struct vb_group *group = s->t->place.group;
    bool silent = false;
    int i, rank;

    for (i = 0; i < s->t->world; i++) {
        rank = member(s, i);
        if (rank == s->t->number || atomic_load(&s->heard[rank]) || vb_group_gone(group, rank))
            continue;
        silent = true;
        (void)put_note(s, rank, pack(STOP_LEAVE, LEAVE_I, 0));
    }
    return silent;
}

void vb_run_stop_go(struct run_stop *s)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t end_ns = vb_clock_ns() + LEAVE_NS;

    while (tell_leave(s) && vb_clock_ns() < end_ns && vb_progress(s->t->place.group) >= 0)
        nanosleep(&pause, NULL);
    s->t->leaves = true;
    vb_group_leaves(s->t->place.group);
}

/* ---- when the members change ----------------------------------------------------------------- */

/* Returns the signal of a wish to stop that this rank knows of; 0: none. */
static uint32_t wish(const struct run_stop *s)
{
    const struct vb_train_hooks *hooks = &s->t->o->hooks;
    uint32_t last = atomic_load(&s->last), asked = atomic_load(&s->asked);

    if (s->t->stopped != 0)
        return (uint32_t)s->t->stopped;
    if (last != 0)
        return signal_of(last);
    if (asked != 0)
        return asked;
    return hooks->stop != NULL ? (uint32_t)hooks->stop(hooks->stop_arg) : 0;
}

/* The lead before may have told some members to stop after a step, and others not. So all of them
 * stop now, if one of them knows that somebody wants it. */
vb_status vb_run_stop_regroup(struct run_stop *s)
{
    struct vb_trainer *t = s->t;
    uint32_t own = wish(s), wanted = 0, *all;
    vb_status st;
    int i;

    if (s->win == NULL)
        return VB_OK;
    atomic_store(&s->lead, member(s, 0));
    s->asked_lead = false;
    all = calloc((size_t)t->world, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (i = 0; i < t->world && st == VB_OK && wanted == 0; i++)
        wanted = all[i];
    free(all);
    if (st != VB_OK)
        return st;
    t->stopped = 0;  /* until the next check */
    if (wanted != 0) /* otherwise the lead may have decided by now, and its note may have come */
        atomic_store(&s->last, pack(STOP_AT, wanted, t->step));
    return VB_OK;
}
