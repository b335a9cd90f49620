/* SPDX-License-Identifier: MIT
 *
 * Ends a run when it is done (--until): each evaluation is judged, and the first for which a
 * condition holds ends the run.
 *
 * Synchronous ranks have the same figures, so all of them stop after the same step without a
 * message. In asynchronous training the worker that evaluates tells the servers; other workers go
 * on until these answer, so that worker keeps the parameters that it has judged.
 *
 * A plateau ends a run later than its best evaluation. So each evaluation with a lower loss than
 * all before it is kept: the arrays that a checkpoint would have, in memory that is mapped before
 * training. A checkpoint has them, too, with the count of a plateau: a run that was stopped goes on
 * as if it had not been.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAVED_NAME "until"
#define BEST "best." /* before the names of the arrays of the best parameters */
#define BETTER 0.999 /* a loss below this part of the mark ends a wait for a better one */
#define EVALS 50     /* evaluations of a run, if the user gave no --eval-every */
#define EVALS_MIN 10 /* not fewer, however expensive */
#define EVAL_SAMPLES                                                                               \
    3 /* training samples for a test sample: evaluations take a tenth of the time */

void vb_until_text(const struct vb_until *u, char text[VB_UNTIL_TEXT])
{
    if (u->kind == VB_UNTIL_PLATEAU)
        snprintf(text, VB_UNTIL_TEXT, "plateau:%lld", (long long)u->patience);
    else
        snprintf(text, VB_UNTIL_TEXT, "%s=%g", u->kind == VB_UNTIL_LOSS ? "loss" : "accuracy",
                 u->value);
}

void vb_until_list(const struct vb_train_until_opts *o, char text[VB_UNTIL_LIST])
{
    char one[VB_UNTIL_TEXT];
    size_t at = 0;
    int i;

    text[0] = '\0';
    for (i = 0; i < o->n && at < VB_UNTIL_LIST; i++) {
        vb_until_text(&o->list[i], one);
        at += (size_t)snprintf(text + at, VB_UNTIL_LIST - at, "%s%s", i > 0 ? "," : "", one);
    }
}

int64_t vb_until_eval_every(const struct vb_train_opts *o, const struct vb_recipe *r, int n_test)
{
    int64_t cheap = (int64_t)n_test * EVAL_SAMPLES / r->global_batch, every = r->steps / EVALS;

    if (o->eval_every > 0 || o->until.n == 0)
        return o->eval_every;
    if (vb_train_apart(o)) /* one worker evaluates while the others make steps, too */
        cheap *= vb_train_workers(o);
    every = every > cheap ? every : cheap;
    every = every < r->steps / EVALS_MIN ? every : r->steps / EVALS_MIN;
    return every > 0 ? every : 1;
}

/* ---- the best parameters --------------------------------------------------------------------- */

static size_t bytes_of(const struct vb_checkpoint_array *a)
{
    return (size_t)a->rows * (size_t)a->cols * sizeof(uint32_t); /* both types have 32 bits */
}

/* The last parameters are not always the result if a plateau is asked for, or if other workers go
 * on. */
bool vb_until_keeps(const struct vb_train_opts *o)
{
    int i;

    for (i = 0; i < o->until.n; i++)
        if (o->until.list[i].kind == VB_UNTIL_PLATEAU || o->mode == VB_MODE_ASYNC)
            return true;
    return false;
}

/* Maps the memory. Its pages are allocated when they are first written: only one of several
 * asynchronous workers writes them. */
vb_status vb_until_open(struct vb_trainer *t)
{
    struct vb_trainer_until *u = &t->until;
    struct vb_checkpoint cp = {.n_arrays = 0};
    vb_status st;
    int i;

    u->judged = u->judged_now = u->kept_step = u->result.params_step = u->saved_place = -1;
    u->result.eval_every = t->evals.every;
    if (!vb_until_asked(t) || t->serves)
        return VB_OK;
    st = t->ops->save(t, &cp);
    u->all = calloc(2 * (size_t)cp.n_arrays + 1, sizeof(*cp.arrays));
    if (u->all == NULL)
        return vb_err_sys("calloc");
    if (!vb_until_keeps(t->o))
        return st;
    for (i = 0; i < cp.n_arrays && st == VB_OK; i++)
        u->result.kept_bytes += (int64_t)bytes_of(&cp.arrays[i]);
    if (st != VB_OK || t->o->dry_run)
        return st;
    u->kept.arrays = calloc((size_t)cp.n_arrays, sizeof(*cp.arrays));
    if (u->kept.arrays == NULL)
        return vb_err_sys("calloc");
    u->place_bytes = (size_t)u->result.kept_bytes;
    u->places = vb_train_saves_beside(t) ? 2 : 1;
    u->result.kept_bytes *= u->places;
    return vb_mem_map_private((size_t)u->result.kept_bytes, &u->mem);
}

void vb_until_close(struct vb_trainer *t)
{
    vb_mem_unmap(&t->until.mem);
    free(t->until.kept.arrays);
    free(t->until.all);
    t->until.kept.arrays = t->until.all = NULL;
}

/* A checkpoint that is being written may have the parameters that were kept before. They stay where
 * they are; then the new ones go to the other place. */
static vb_status keep(struct vb_trainer *t, int64_t step)
{
    struct vb_trainer_until *u = &t->until;
    struct vb_checkpoint cp = {.n_arrays = 0};
    char *to = u->mem.ptr;
    vb_status st;
    int i;

    u->kept_accuracy = t->evals.accuracy;
    u->kept_loss = t->evals.loss;
    if (to == NULL || t->stopped != 0) /* a run that was stopped has its last parameters */
        return VB_OK;
    if (t->saved.untold > 0 && u->place == u->saved_place)
        u->place = (u->place + 1) % u->places;
    to += (size_t)u->place * u->place_bytes;
    st = t->ops->save(t, &cp);
    for (i = 0; i < cp.n_arrays && st == VB_OK; i++) {
        if (!vb_checkpoint_copy(&cp.arrays[i], to))
            st = VB_ERR_TIMEOUT;
        u->kept.arrays[i] = cp.arrays[i];
        u->kept.arrays[i].data = to;
        u->kept.arrays[i].fetch = NULL;
        to += bytes_of(&cp.arrays[i]);
    }
    u->kept.n_arrays = cp.n_arrays;
    u->kept.step = step;
    u->kept_step = st == VB_OK ? step : -1;
    return st;
}

vb_status vb_until_settle(struct vb_trainer *t)
{
    struct vb_trainer_until *u = &t->until;
    vb_status st;

    if (!vb_until_asked(t))
        return VB_OK;
    u->result.params_step = t->step;
    if (u->kept_step < 0)
        return VB_OK;
    u->result.params_step = u->kept_step;
    t->evals.accuracy = u->kept_accuracy;
    t->evals.loss = u->kept_loss;
    if (u->kept_step == t->step && !t->async)
        return VB_OK;
    st = t->ops->restore(t, &u->kept);
    if (st == VB_OK && t->ops->settle != NULL)
        t->ops->settle(t);
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static bool holds(const struct vb_trainer *t, const struct vb_until *u)
{
    if (u->kind == VB_UNTIL_ACCURACY)
        return t->evals.accuracy >= u->value;
    if (u->kind == VB_UNTIL_LOSS)
        return t->evals.loss <= u->value;
    return t->until.worse >= u->patience;
}

/* Counts the evaluations since the loss was last clearly better. A loss that falls by less and less
 * would otherwise never be a plateau. */
static void count_worse(struct vb_trainer *t)
{
    struct vb_trainer_until *u = &t->until;

    if (u->judged < 0 || t->evals.loss < BETTER * u->mark) {
        u->mark = t->evals.loss;
        u->worse = 0;
    } else {
        u->worse++;
    }
}

/* Notes the highest accuracy and the lowest loss. Returns whether the loss is the lowest. */
static bool note_best(struct vb_trainer *t)
{
    struct vb_until_result *r = &t->until.result;
    bool first = t->until.judged < 0, lowest = first || t->evals.loss < r->loss;

    if (first || t->evals.accuracy > r->accuracy)
        r->accuracy = t->evals.accuracy;
    if (lowest)
        r->loss = t->evals.loss;
    return lowest;
}

static void reach(struct vb_trainer *t, int which, int64_t step)
{
    struct vb_trainer_until *u = &t->until;
    char text[VB_UNTIL_TEXT];

    u->met = u->result.reached = true;
    u->result.which = which;
    u->result.step = step;
    u->result.time_to_s = vb_laps_steps_s(&t->laps);
    u->result.wall_to_s = (double)(vb_clock_ns() - t->opened_ns) / 1e9;
    vb_until_text(&t->o->until.list[which], text);
    if (t->leads || t->async)
        vb_train_event_say(t, "reached", step, text);
}

/* An accuracy or a loss that is reached is that of these parameters. A plateau is reached by the
 * best ones before. */
vb_status vb_until_judge(struct vb_trainer *t, int64_t step)
{
    const struct vb_train_until_opts *o = &t->o->until;
    struct vb_trainer_until *u = &t->until;
    bool lowest, target = false;
    vb_status st = VB_OK;
    int i;

    if (o->n == 0 || u->met || (!t->async && step == u->judged_now)) /* or: in the last view */
        return VB_OK;
    lowest = note_best(t);
    count_worse(t);
    u->judged = u->judged_now = step;
    for (i = 0; i < o->n && !u->met; i++)
        if (holds(t, &o->list[i])) {
            reach(t, i, step);
            target = o->list[i].kind != VB_UNTIL_PLATEAU;
        }
    if (target && !t->async)
        u->kept_step = -1;
    else if (target || lowest)
        st = keep(t, step);
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}

void vb_until_told(struct vb_trainer *t, int64_t step)
{
    const struct vb_train_until_opts *o = &t->o->until;
    int i;

    for (i = 0; i < o->n && !t->until.met; i++)
        if (holds(t, &o->list[i]) || i == o->n - 1)
            reach(t, i, step);
}

/* ---- in a checkpoint ------------------------------------------------------------------------- */

void vb_until_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct vb_trainer_until *u = &t->until;
    struct vb_checkpoint_array *a = u->all;
    struct vb_until_saved *saved;
    int i;

    u->saved_place = -1;
    if (a == NULL || u->judged < 0 || u->result.params_step >= 0)
        return;
    u->last_saved = 1 - u->last_saved; /* the one before may be being written */
    saved = &u->saved[u->last_saved];
    memcpy(a, cp->arrays, (size_t)cp->n_arrays * sizeof(*a));
    a += cp->n_arrays;
    *saved = (struct vb_until_saved){.n_test = t->data.n_test,
                                     .judged = u->judged,
                                     .worse = u->worse,
                                     .kept_step = u->kept_step,
                                     .mark = u->mark,
                                     .accuracy = u->result.accuracy,
                                     .loss = u->result.loss,
                                     .kept_accuracy = u->kept_accuracy,
                                     .kept_loss = u->kept_loss};
    *a++ = (struct vb_checkpoint_array){.name = SAVED_NAME,
                                        .type = VB_ARRAY_U32,
                                        .state = true,
                                        .rows = sizeof(*saved) / sizeof(uint32_t),
                                        .cols = 1,
                                        .data = saved};
    if (u->kept_step >= 0)
        u->saved_place = u->place;
    for (i = 0; u->kept_step >= 0 && i < u->kept.n_arrays; i++, a++) {
        *a = u->kept.arrays[i];
        a->state = true;
        snprintf(a->name, sizeof(a->name), BEST "%.*s", (int)(sizeof(a->name) - sizeof(BEST)),
                 u->kept.arrays[i].name);
    }
    cp->n_arrays = (int)(a - u->all);
    cp->arrays = u->all;
}

/* Copies the best parameters from a checkpoint. Returns false if it does not have all of them. */
static bool resume_best(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct vb_trainer_until *u = &t->until;
    struct vb_checkpoint now = {.n_arrays = 0};
    const struct vb_checkpoint_array *a;
    char name[VB_CHECKPOINT_NAME], *to = u->mem.ptr;
    int i;

    if (to == NULL || t->ops->save(t, &now) != VB_OK)
        return false;
    for (i = 0; i < now.n_arrays; i++) {
        snprintf(name, sizeof(name), BEST "%.*s", (int)(sizeof(name) - sizeof(BEST)),
                 now.arrays[i].name);
        a = vb_checkpoint_find(cp, name);
        if (a == NULL || a->type != now.arrays[i].type || a->rows != now.arrays[i].rows ||
            a->cols != now.arrays[i].cols)
            return false;
        u->kept.arrays[i] = now.arrays[i];
        u->kept.arrays[i].data = memcpy(to, a->data, bytes_of(a));
        u->kept.arrays[i].fetch = NULL;
        to += bytes_of(a);
    }
    u->kept.n_arrays = now.n_arrays;
    return true;
}

/* Returns whether the numbers can be those of a run that has made so many steps. */
static bool is_sound(const struct vb_until_saved *s, int64_t steps)
{
    return s->judged >= 0 && s->judged <= steps && s->worse >= 0 && s->worse <= steps &&
           s->kept_step >= -1 && s->kept_step <= s->judged && isfinite(s->mark) &&
           isfinite(s->accuracy) && isfinite(s->loss) && isfinite(s->kept_accuracy) &&
           isfinite(s->kept_loss);
}

/* Returns why evaluations are counted anew; NULL: they are not. */
static const char *why_anew(struct vb_trainer *t, const struct vb_checkpoint *cp,
                            const struct vb_checkpoint_array *a, struct vb_until_saved *s)
{
    const char *own = vb_train_data_part(t->settings), *began = vb_train_data_part(cp->options);
    char why[VB_DATA_WHY];

    if (a->type != VB_ARRAY_U32 || bytes_of(a) != sizeof(*s))
        return "the checkpoint is of another version";
    memcpy(s, a->data, sizeof(*s));
    if (!is_sound(s, cp->step))
        return "the numbers in the checkpoint make no sense";
    if (s->n_test != t->data.n_test || own == NULL || began == NULL ||
        vb_train_data_differ(own, began, false, why))
        return "the test data is not that of the checkpoint";
    if (!vb_until_keeps(t->o))
        s->kept_step = -1;
    else if (s->kept_step < 0 || !resume_best(t, cp))
        return "the checkpoint does not have the best parameters";
    return NULL;
}

void vb_until_resume(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    const struct vb_checkpoint_array *a = vb_checkpoint_find(cp, SAVED_NAME);
    struct vb_trainer_until *u = &t->until;
    struct vb_until_saved s;
    const char *why;

    if (a == NULL || !vb_until_asked(t) || t->serves || t->o->dry_run)
        return;
    why = why_anew(t, cp, a, &s);
    if (why != NULL) {
        if (t->rank == 0)
            VB_LOG_WARN("--until: evaluations are counted from here on: %s", why);
        return;
    }
    u->judged = s.judged;
    u->worse = s.worse;
    u->mark = s.mark;
    u->result.accuracy = s.accuracy;
    u->result.loss = s.loss;
    u->kept.step = u->kept_step = s.kept_step;
    u->kept_accuracy = s.kept_accuracy;
    u->kept_loss = s.kept_loss;
}
