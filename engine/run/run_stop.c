/* SPDX-License-Identifier: MIT */
#include "engine/run/run_stop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* A note has a kind, a signal, and the lowest bits of a step. */
enum { STOP_ASK, STOP_AT, STOP_CONFIRM };

#define SIGNAL_BITS 6
#define STEP_BITS 16
#define STEP_MASK ((1u << STEP_BITS) - 1)
#define AGAIN_NS UINT64_C(100000000) /* rank 0 repeats itself after this time */
#define PAUSE_NS 200000

struct run_stop {
    struct vb_trainer *t;
    struct vb_window *win; /* only notes are put; NULL: there is one rank */
    int channel;
    bool asked_rank0;
    /* Written by the handler of notes, which may run on the group's progress thread. */
    _Atomic uint32_t asked;  /* rank 0: the signal that a rank has asked for; 0: none */
    _Atomic uint32_t last;   /* other ranks: value of the note STOP_AT; 0: none has come */
    _Atomic bool *confirmed; /* rank 0: for each rank */
    struct vb_op *ops;       /* one for each rank */
};

static uint32_t pack(uint32_t kind, uint32_t number, int64_t step)
{
    return kind << (SIGNAL_BITS + STEP_BITS) | number << STEP_BITS | ((uint32_t)step & STEP_MASK);
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

static void note_came(void *arg, int rank, uint32_t value)
{
    struct run_stop *s = arg;
    uint32_t kind = value >> (SIGNAL_BITS + STEP_BITS);

    if (s->t->rank == 0 && kind == STOP_ASK) {
        atomic_store(&s->asked, value >> STEP_BITS & ((1u << SIGNAL_BITS) - 1));
    } else if (s->t->rank == 0 && kind == STOP_CONFIRM) {
        atomic_store(&s->confirmed[rank], true);
    } else if (s->t->rank != 0 && rank == 0 && kind == STOP_AT) {
        atomic_store(&s->last, value);
        /* if this fails, rank 0 tells this rank again */
        (void)put_note(s, 0, pack(STOP_CONFIRM, 0, 0));
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
    s->ops = calloc((size_t)t->world, sizeof(*s->ops));
    s->confirmed = calloc((size_t)t->world, sizeof(*s->confirmed));
    if (s->ops == NULL || s->confirmed == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < t->world; i++)
        s->ops[i].done = true;
    s->channel = -1;
    if (vb_channel_alloc(t->place.group, note_came, s, &s->channel) != VB_OK)
        return VB_ERR_USAGE;
    return vb_window_create(t->place.group, 64, &s->win);
}

void vb_run_stop_close(struct run_stop *s)
{
    int i;

    if (s == NULL || s->ops == NULL)
        return;
    for (i = 0; i < s->t->world; i++)
        if (!s->ops[i].done && vb_op_wait(s->t->place.group, &s->ops[i], "a note", i) != VB_OK)
            break;
    vb_window_destroy(s->win);
    if (s->channel >= 0)
        vb_channel_close(s->t->place.group, s->channel);
}

void vb_run_stop_free(struct run_stop *s)
{
    if (s == NULL)
        return;
    free(s->confirmed);
    free(s->ops);
    free(s);
}

/* Tells the ranks that have not confirmed yet. Returns how many there are. */
static int tell_others(struct run_stop *s, uint32_t note, vb_status *st)
{
    int r, n = 0;

    for (r = 1; r < s->t->world && *st >= 0; r++)
        if (!atomic_load(&s->confirmed[r])) {
            *st = put_note(s, r, note);
            n++;
        }
    return n;
}

/* Rank 0 makes the next step the last one. */
static vb_status decide(struct run_stop *s, int number)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint32_t note = pack(STOP_AT, (uint32_t)number, s->t->step + 1);
    int timeout_ms = s->t->o->group.timeout_ms > 0 ? s->t->o->group.timeout_ms : 60000;
    uint64_t now = vb_clock_ns(), deadline = now + (uint64_t)timeout_ms * 1000000, again = now;
    vb_status st = VB_OK;
    int r;

    for (r = 1; r < s->t->world && st == VB_OK;) {
        now = vb_clock_ns();
        if (now >= again && tell_others(s, note, &st) > 0)
            again = now + AGAIN_NS;
        if (st >= 0)
            st = vb_progress(s->t->place.group);
        while (r < s->t->world && atomic_load(&s->confirmed[r]))
            r++;
        if (st == VB_OK && r < s->t->world && now >= deadline)
            return vb_err(VB_ERR_TIMEOUT,
                          "rank %d (%s) has not confirmed within %d s that the run is to stop", r,
                          vb_group_host(s->t->place.group, r), timeout_ms / 1000);
        if (r < s->t->world)
            nanosleep(&pause, NULL);
    }
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
        *signal_p = (int)(last >> STEP_BITS & ((1u << SIGNAL_BITS) - 1));
    else if (s->t->rank == 0 && number == 0)
        number = (int)atomic_load_explicit(&s->asked, memory_order_acquire);
    if (number == 0 || last != 0 || s->win == NULL)
        return VB_OK;
    if (s->t->rank == 0)
        return decide(s, number);
    if (!s->asked_rank0) {
        st = put_note(s, 0, pack(STOP_ASK, (uint32_t)number, 0));
        s->asked_rank0 = st == VB_OK;
    }
    return st == VB_AGAIN ? VB_OK : st;
}
