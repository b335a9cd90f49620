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
 * training.
 */
#include "engine/train/train_room_priv.h"

#include <stdlib.h>
#include <string.h>

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

    u->judged = u->kept_step = u->result.params_step = -1;
    u->result.eval_every = t->evals.every;
    if (!vb_until_keeps(t->o) || t->serves)
        return VB_OK;
    st = t->ops->save(t, &cp);
    for (i = 0; i < cp.n_arrays && st == VB_OK; i++)
        u->result.kept_bytes += (int64_t)bytes_of(&cp.arrays[i]);
    if (st != VB_OK || t->o->dry_run)
        return st;
    u->kept.arrays = calloc((size_t)cp.n_arrays, sizeof(*cp.arrays));
    if (u->kept.arrays == NULL)
        return vb_err_sys("calloc");
    return vb_mem_map_private((size_t)u->result.kept_bytes, &u->mem);
}

void vb_until_close(struct vb_trainer *t)
{
    vb_mem_unmap(&t->until.mem);
    free(t->until.kept.arrays);
    t->until.kept.arrays = NULL;
}

static vb_status keep(struct vb_trainer *t, int64_t step)
{
    struct vb_trainer_until *u = &t->until;
    struct vb_checkpoint cp = {.n_arrays = 0};
    char *to = u->mem.ptr;
    vb_status st;
    int i;

    u->kept_accuracy = t->evals.accuracy;
    u->kept_loss = t->evals.loss;
    if (to == NULL)
        return VB_OK;
    st = t->ops->save(t, &cp);
    for (i = 0; i < cp.n_arrays && st == VB_OK; i++) {
        memcpy(to, cp.arrays[i].data, bytes_of(&cp.arrays[i]));
        u->kept.arrays[i] = cp.arrays[i];
        u->kept.arrays[i].data = to;
        to += bytes_of(&cp.arrays[i]);
    }
    u->kept.n_arrays = cp.n_arrays;
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
    if (t->rank == 0 || t->async)
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

    if (o->n == 0 || u->met)
        return VB_OK;
    lowest = note_best(t);
    count_worse(t);
    u->judged = step;
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
