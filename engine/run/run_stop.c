/* SPDX-License-Identifier: MIT */
#include "engine/run/run_stop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A note has a kind, a signal, and the lowest bits of the view and of a step. */
enum { STOP_ASK, STOP_AT, STOP_CONFIRM, STOP_LEAVE };

/* What STOP_LEAVE has instead of a signal. */
enum { LEAVE_YOU, LEAVE_I, LEAVE_HEARD };

_Static_assert(VB_RUN_FORM < 1 << 6, "a note has room for it");

#define SIGNAL_BITS 6
#define VIEW_BITS 4
#define STEP_BITS 12
#define VIEW_MASK ((1u << VIEW_BITS) - 1)
#define STEP_MASK ((1u << STEP_BITS) - 1)
#define SIGNAL_SHIFT (VIEW_BITS + STEP_BITS)
#define KIND_SHIFT (SIGNAL_BITS + SIGNAL_SHIFT)
#define AGAIN_NS UINT64_C(100000000) /* the lead repeats itself after this time */
#define PAUSE_NS 200000
/* The members form a new group after so many steps, and allocate memory for it meanwhile. */
#define FORM_STEPS 6
#define FORM_WAIT_NS UINT64_C(10000000000) /* then it does not matter that a checkpoint is due */
#define LEAVE_NS UINT64_C(5000000000)      /* others that do not answer count as gone, or do soon */

/* What hangs on a group. */
struct stop_line {
    struct vb_group *group;
    struct vb_window *win; /* only notes are put; NULL: there is one rank */
    int channel;
    int ranks;             /* of the group */
    int number;            /* of this rank */
    _Atomic bool *removed; /* of the trainer */
    _Atomic int lead;      /* its number; the handler of notes reads it */
    _Atomic uint32_t view; /* the lowest bits of that of the members */
    /* Written by the handler of notes, which may run on the group's progress thread. */
    _Atomic uint32_t asked;      /* the lead: the signal that a rank has asked for; 0: none */
    _Atomic uint32_t last;       /* other ranks: value of the note STOP_AT; 0: none has come */
    _Atomic uint32_t *confirmed; /* the lead: for each rank the value that it has confirmed */
    _Atomic bool *heard;         /* a rank that leaves: who knows of it */
    _Atomic bool is_to_leave;
    struct vb_op *ops; /* one for each rank */
    bool asked_lead;
};

struct run_stop {
    struct vb_trainer *t;
    struct stop_line *line;  /* NULL: there is one rank */
    struct stop_line *aside; /* of the group before, while another one is formed */
    struct stop_line *dead;  /* of a group that is being closed: its notes may be under way */
};

static uint32_t pack(uint32_t kind, uint32_t number)
{
    return kind << KIND_SHIFT | number << SIGNAL_SHIFT;
}

static uint32_t signal_of(uint32_t note)
{
    return note >> SIGNAL_SHIFT & ((1u << SIGNAL_BITS) - 1);
}

static uint32_t view_of(uint32_t note)
{
    return note >> STEP_BITS & VIEW_MASK;
}

/* What the lead says: a member that was told it in the view before may have forgotten it. */
static uint32_t stop_at(const struct vb_trainer *t, uint32_t number, int64_t step)
{
    return pack(STOP_AT, number) | (t->view & VIEW_MASK) << STEP_BITS |
           ((uint32_t)step & STEP_MASK);
}

/* What is confirmed: the note itself, but for its kind. */
static uint32_t content_of(uint32_t note)
{
    return note & ((1u << KIND_SHIFT) - 1);
}

/* Puts a note, unless the last note to this rank is still under way. VB_AGAIN: it was not put. */
static vb_status put_note(struct stop_line *l, int rank, uint32_t value)
{
    vb_status st = VB_AGAIN;

    if (l->ops[rank].done) {
        st = vb_put(l->win, rank, 0, 0, 0, VB_NOTE(l->channel, value), &l->ops[rank]);
        if (st != VB_OK)
            l->ops[rank].done = true;
    }
    return st;
}

/* A rank that leaves repeats itself if the answer could not be put. */
static void leave_came(struct stop_line *l, int rank, uint32_t what)
{
    if (what == LEAVE_YOU && rank == atomic_load(&l->lead)) {
        atomic_store(&l->is_to_leave, true);
    } else if (what == LEAVE_I) {
        atomic_store(&l->removed[rank], true);
        (void)put_note(l, rank, pack(STOP_LEAVE, LEAVE_HEARD));
    } else if (what == LEAVE_HEARD) {
        atomic_store(&l->heard[rank], true);
    }
}

static void note_came(void *arg, int rank, uint32_t value)
{
    struct stop_line *l = arg;
    uint32_t kind = value >> KIND_SHIFT;
    int lead = atomic_load(&l->lead);
    bool leads = lead == l->number;

    if (leads && kind == STOP_ASK) {
        atomic_store(&l->asked, signal_of(value));
    } else if (leads && kind == STOP_CONFIRM) {
        atomic_store(&l->confirmed[rank], content_of(value));
    } else if (!leads && rank == lead && kind == STOP_AT &&
               view_of(value) == atomic_load(&l->view)) {
        atomic_store(&l->last, value);
        /* if this fails, the lead tells this rank again */
        (void)put_note(l, lead, STOP_CONFIRM << KIND_SHIFT | content_of(value));
    } else if (kind == STOP_LEAVE) {
        leave_came(l, rank, signal_of(value));
    }
}

/* *line_p is set also after a failure. */
static vb_status open_line(struct vb_trainer *t, struct stop_line **line_p)
{
    struct stop_line *l = calloc(1, sizeof(*l));
    int i;

    *line_p = l;
    if (l == NULL)
        return vb_err_sys("calloc");
    l->channel = -1;
    l->group = t->place.group;
    l->number = t->number;
    l->removed = t->removed;
    l->ranks = t->world;
    atomic_store(&l->view, t->view & VIEW_MASK);
    l->ops = calloc((size_t)l->ranks, sizeof(*l->ops));
    l->confirmed = calloc((size_t)l->ranks, sizeof(*l->confirmed));
    l->heard = calloc((size_t)l->ranks, sizeof(*l->heard));
    if (l->ops == NULL || l->confirmed == NULL || l->heard == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < l->ranks; i++)
        l->ops[i].done = true;
    if (vb_channel_alloc(l->group, note_came, l, &l->channel) != VB_OK)
        return VB_ERR_USAGE;
    return vb_window_create(l->group, 64, &l->win);
}

static void close_line(struct stop_line *l)
{
    vb_window_destroy(l->win);
    if (l->channel >= 0)
        vb_channel_close(l->group, l->channel);
    l->win = NULL;
    l->channel = -1;
}

static void free_line(struct stop_line *l)
{
    if (l == NULL)
        return;
    free(l->confirmed);
    free(l->heard);
    free(l->ops);
    free(l);
}

vb_status vb_run_stop_open(struct vb_trainer *t, struct run_stop **stop_p)
{
    struct run_stop *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return vb_err_sys("calloc");
    *stop_p = s;
    s->t = t;
    if (t->place.group == NULL || t->world == 1)
        return VB_OK;
    return open_line(t, &s->line);
}

/* Ops to a rank that is gone have ended, or end when progress is made. */
static void wait_for_notes(struct stop_line *l)
{
    int i;

    for (i = 0; i < l->ranks; i++)
        if (!l->ops[i].done && !vb_group_gone(l->group, i) &&
            vb_op_wait(l->group, &l->ops[i], "a note", i) != VB_OK && !vb_group_gone(l->group, i))
            return;
}

void vb_run_stop_close(struct run_stop *s)
{
    if (s == NULL || s->line == NULL || s->line->ops == NULL)
        return;
    wait_for_notes(s->line);
    close_line(s->line);
}

void vb_run_stop_free(struct run_stop *s)
{
    if (s == NULL)
        return;
    free_line(s->line);
    free_line(s->dead);
    free(s);
}

static int member(const struct run_stop *s, int place)
{
    return vb_group_view_member(s->t->place.group, place);
}

static bool has_confirmed(const struct run_stop *s, int place, uint32_t note)
{
    return atomic_load(&s->line->confirmed[member(s, place)]) == content_of(note);
}

/* Tells the members that have not confirmed yet. Returns how many there are. */
static int tell_others(struct run_stop *s, uint32_t note, vb_status *st)
{
    int i, n = 0;

    for (i = 1; i < s->t->world && *st >= 0; i++)
        if (!has_confirmed(s, i, note)) {
            *st = put_note(s->line, member(s, i), note);
            n++;
        }
    return n;
}

/* Returns the place of the first member that has not confirmed; world: all have. */
static int first_silent(const struct run_stop *s, int from, uint32_t note)
{
    while (from < s->t->world && has_confirmed(s, from, note))
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

/* The lead tells all after which step they stop: the next one, or FORM_STEPS later to form a new
 * group. */
static vb_status decide(struct run_stop *s, int number)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    int64_t last = s->t->step + (number == VB_RUN_FORM ? FORM_STEPS : 1);
    uint32_t note = stop_at(s->t, (uint32_t)number, last);
    int timeout_ms = s->t->o->group.timeout_ms > 0 ? s->t->o->group.timeout_ms : 60000;
    uint64_t now = vb_clock_ns(), deadline = now + (uint64_t)timeout_ms * 1000000, again = now;
    vb_status st = VB_OK;
    int i = first_silent(s, 1, note);

    while (i < s->t->world && st == VB_OK) {
        now = vb_clock_ns();
        if (now >= again && tell_others(s, note, &st) > 0)
            again = now + AGAIN_NS;
        if (st >= 0)
            st = vb_progress(s->t->place.group);
        i = first_silent(s, i, note);
        if (st == VB_OK && i < s->t->world &&
            (now >= deadline || vb_group_gone(s->t->place.group, member(s, i))))
            return not_confirmed(s, member(s, i), timeout_ms);
        if (i < s->t->world)
            nanosleep(&pause, NULL);
    }
    if (st == VB_OK)
        atomic_store(&s->line->last, note);
    return st;
}

/* Returns whether a checkpoint would be under way when a group is formed. If they are so frequent
 * that this is always so, or if somebody has waited for long, the members wait for it. */
static bool saves_then(const struct vb_trainer *t)
{
    int64_t i, every = t->o->save.every;

    if ((every > 0 && every <= FORM_STEPS + 1) || vb_clock_ns() - t->form.wanted_ns > FORM_WAIT_NS)
        return false;
    for (i = 1; i <= FORM_STEPS; i++)
        if (vb_trainer_is_due(every, t->step + i))
            return true;
    return t->saved.held;
}

/* Returns whether the lead wants the members to form a new group after FORM_STEPS steps. */
static bool is_to_form(struct run_stop *s)
{
    struct vb_trainer *t = s->t;
    const struct vb_train_hooks *hooks = &t->o->hooks;
    bool wanted = vb_group_callers(t->place.group) > 0;

    if (!vb_train_is_elastic(t->o))
        return false;
    if (hooks->form != NULL && hooks->form(hooks->form_arg, t->step))
        wanted = true;
    if (!wanted || t->form.wanted_ns == 0)
        t->form.wanted_ns = wanted ? vb_clock_ns() : 0;
    return wanted && t->step + FORM_STEPS < t->recipe.steps && !saves_then(t) &&
           vb_clock_ns() >= t->form.before_ns;
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
    struct stop_line *l = s->line;
    uint32_t last = l != NULL ? atomic_load_explicit(&l->last, memory_order_acquire) : 0;
    vb_status st = VB_OK;

    *signal_p = 0;
    if (l == NULL)
        *signal_p = number;
    else if (is_here(s, last))
        *signal_p = (int)signal_of(last);
    else if (signal_of(last) == VB_RUN_FORM)
        vb_train_form_ahead(s->t);
    else if (s->t->leads && number == 0)
        number = (int)atomic_load_explicit(&l->asked, memory_order_acquire);
    if (l != NULL && last == 0 && number == 0 && s->t->leads && is_to_form(s))
        number = VB_RUN_FORM;
    if (number == 0 || last != 0 || l == NULL)
        return VB_OK;
    if (s->t->leads)
        return decide(s, number);
    if (!l->asked_lead) {
        st = put_note(l, atomic_load(&l->lead), pack(STOP_ASK, (uint32_t)number));
        l->asked_lead = st == VB_OK;
    }
    return st == VB_AGAIN ? VB_OK : st;
}

/* ---- another group --------------------------------------------------------------------------- */

vb_status vb_run_stop_form(struct run_stop *s)
{
    free_line(s->dead);
    s->dead = NULL;
    s->aside = s->line;
    s->line = NULL;
    return open_line(s->t, &s->line);
}

void vb_run_stop_formed(struct run_stop *s, bool stays)
{
    struct stop_line *line = s->line;
    int i;

    if (s->aside != NULL && stays) {
        if (atomic_load(&s->aside->is_to_leave))
            atomic_store(&line->is_to_leave, true);
        s->dead = s->aside;
        memset((void *)s->t->removed, 0, sizeof(s->t->removed));
    } else if (s->aside != NULL) {
        s->dead = line;
        s->line = s->aside;
    }
    s->aside = NULL;
    if (s->dead != NULL)
        close_line(s->dead);
    if (s->line != NULL && signal_of(atomic_load(&s->line->last)) == VB_RUN_FORM)
        atomic_store(&s->line->last, 0);
    for (i = 0; s->line != NULL && i < s->line->ranks; i++)
        atomic_store(&s->line->confirmed[i], 0);
}

/* ---- a rank leaves --------------------------------------------------------------------------- */

vb_status vb_run_stop_send_off(struct run_stop *s, int rank)
{
    if (rank == s->t->number) {
        atomic_store(&s->line->is_to_leave, true);
        return VB_OK;
    }
    return put_note(s->line, rank, pack(STOP_LEAVE, LEAVE_YOU));
}

bool vb_run_stop_is_to_leave(struct run_stop *s)
{
    return s->line != NULL && atomic_load(&s->line->is_to_leave);
}

/* Returns whether a member does not know yet that this rank leaves, and tells those that do not. */
static bool tell_leave(struct run_stop *s)
{
    struct vb_group *group = s->t->place.group;
    bool silent = false;
    int i, rank;

    for (i = 0; i < s->t->world; i++) {
        rank = member(s, i);
        if (rank == s->t->number || atomic_load(&s->line->heard[rank]) ||
            vb_group_gone(group, rank))
            continue;
        silent = true;
        (void)put_note(s->line, rank, pack(STOP_LEAVE, LEAVE_I));
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
    uint32_t last = atomic_load(&s->line->last), asked = atomic_load(&s->line->asked);

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
    struct stop_line *l = s->line;
    uint32_t own, wanted = 0, all[VB_WORLD_MAX];
    vb_status st;
    int i;

    if (l == NULL)
        return VB_OK;
    if (signal_of(atomic_load(&l->last)) == VB_RUN_FORM) { /* some may not know of it */
        atomic_store(&l->last, 0);
        vb_train_form_undo(t);
    }
    own = wish(s);
    atomic_store(&l->lead, member(s, 0));
    atomic_store(&l->view, t->view & VIEW_MASK);
    l->asked_lead = false;
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (i = 0; i < t->world && st == VB_OK && wanted == 0; i++)
        wanted = all[i];
    if (st != VB_OK)
        return st;
    t->stopped = 0;  /* until the next check */
    if (wanted != 0) /* otherwise the lead may have decided by now, and its note may have come */
        atomic_store(&l->last, stop_at(t, wanted, t->step));
    return VB_OK;
}
