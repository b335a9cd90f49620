/* SPDX-License-Identifier: MIT */
#include "engine/run/run_ask.h"

#include <string.h>

static bool is_writing(const struct vb_trainer *t)
{
    return t->saved.writer != NULL && vb_checkpoint_writer_busy(t->saved.writer);
}

static void answer(struct vb_trainer *t, bool done, const char *text)
{
    t->ask = (struct vb_trainer_ask){.what = {.kind = VB_ASK_NOTHING}};
    t->o->hooks.answer(t->o->hooks.ask_arg, done, text);
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static void answer_saved(struct vb_trainer *t)
{
    const struct vb_trainer_saved *s = &t->saved;
    char name[48];

    snprintf(name, sizeof(name), "/checkpoint-%lld.vbc", (long long)t->ask.step);
    if (strstr(s->path, name) != NULL)
        answer(t, true, s->path);
    else
        answer(t, false, s->n_faults > 0 ? s->faults[s->n_faults - 1].why : "it was not written");
}

static vb_status save(struct vb_trainer *t)
{
    vb_status st = VB_OK;

    if (t->o->save.dir == NULL) {
        answer(t, false, "the job has no folder for checkpoints (--checkpoint)");
        return VB_OK;
    }
    if (t->ask.begun) {
        if (t->saved.untold == 0)
            answer_saved(t);
        return VB_OK;
    }
    if (is_writing(t)) /* then it is the turn of this one */
        return VB_OK;
    t->ask.begun = true;
    t->ask.step = t->step;
    if (t->step != t->saved.step)
        st = vb_train_save(t, t->step, false);
    return st;
}

/* ---- a rank leaves --------------------------------------------------------------------------- */

static bool is_member(const struct vb_trainer *t, int rank)
{
    int i;

    for (i = 0; i < t->world && rank >= 0; i++)
        if (vb_group_view_member(t->place.group, i) == rank)
            return true;
    return false;
}

static void remove_rank(struct vb_trainer *t, struct run_stop *stop)
{
    int id = t->ask.what.rank, rank = -1;
    char text[128];

    if (t->place.group != NULL)
        rank = vb_group_rank_of_id(t->place.group, id);

    if (t->place.group == NULL || !vb_train_is_elastic(t->o)) {
        answer(t, false, "a rank can leave only a job of several ranks with --elastic on");
    } else if (!is_member(t, rank)) {
        snprintf(text, sizeof(text), "rank %d %s", id,
                 t->ask.begun ? "has left" : "is not a rank of this job, or not any more");
        answer(t, t->ask.begun, text);
    } else if (t->ask.begun) {
        return; /* it makes its last step */
    } else if (t->world == 1) {
        answer(t, false, "it is the only rank that is left");
    } else if (vb_run_stop_send_off(stop, rank) == VB_OK) {
        t->ask.begun = true;
        if (rank == t->number) /* it will not know whether the others go on */
            answer(t, true, "the rank that reports has left; the next one reports");
    }
}

/* ---- ranks come ------------------------------------------------------------------------------ */

/* Somebody else starts them. Returns NULL if they may join; otherwise why not. */
static const char *why_no_room(const struct vb_trainer *t, int n, char *text, size_t size)
{
    int most = t->recipe.global_batch < VB_WORLD_MAX ? t->recipe.global_batch : VB_WORLD_MAX;

    if (t->place.group == NULL || !vb_train_is_elastic(t->o))
        return "ranks can join only a job of several ranks with --elastic on";
    if (t->replay.on)
        return "nobody can join a job with --replay-compute";
    if (t->world + n > most) {
        snprintf(text, size, "the job has %d ranks and can have %d, %s", t->world, most,
                 most < VB_WORLD_MAX ? "one for each sample of the global batch"
                                     : "which is the largest number");
        return text;
    }
    if (t->form.next_id + n > VB_WORLD_MAX) {
        snprintf(text, size, "the job has had %d ranks so far, and can have %d until it ends",
                 t->form.next_id, VB_WORLD_MAX);
        return text;
    }
    return NULL;
}

static void answer_room(struct vb_trainer *t)
{
    char text[128];
    const char *why = why_no_room(t, t->ask.what.n, text, sizeof(text));

    answer(t, why == NULL, why != NULL ? why : "");
}

vb_status vb_run_ask(struct vb_trainer *t, struct run_stop *stop)
{
    const struct vb_train_hooks *hooks = &t->o->hooks;
    struct vb_train_ask ask;
    vb_status st = VB_OK;

    if (t->leads && hooks->ask != NULL) {
        ask = hooks->ask(hooks->ask_arg, t->step);
        if (ask.kind != VB_ASK_NOTHING)
            t->ask = (struct vb_trainer_ask){.what = ask};
        if (t->ask.what.kind == VB_ASK_CHECKPOINT)
            st = save(t);
        else if (t->ask.what.kind == VB_ASK_REMOVE)
            remove_rank(t, stop);
        else if (t->ask.what.kind == VB_ASK_ROOM)
            answer_room(t);
    }
    if (st == VB_OK && vb_run_stop_is_to_leave(stop) &&
        !is_writing(t)) /* nobody waits for a disk */
        vb_run_stop_go(stop);
    return st;
}
