/* SPDX-License-Identifier: MIT
 *
 * A run: each rank opens a trainer, trains synchronously or asynchronously, and one rank reports
 * the result. The steps of synchronous training are made here, with evaluations and checkpoints
 * between them. engine/async/ makes the steps of asynchronous training.
 */
#include "engine/async/train_async.h"
#include "engine/run/run_ask.h"
#include "engine/run/run_end.h"
#include "engine/run/run_form.h"
#include "engine/run/run_job.h"
#include "engine/run/run_wait.h"

#include <string.h>

#define CALLS_MAX 5 /* of a joiner, if ranks are lost while it joins */

vb_status vb_train_check(const struct vb_train_opts *o)
{
    vb_status st = vb_trainer_check(o);

    return st == VB_OK && o->mode == VB_MODE_ASYNC ? vb_async_check(o) : st;
}

static void look(struct vb_trainer *t, bool failed)
{
    const float *params;
    size_t n;

    if (t->o->hooks.look == NULL)
        return;
    params = t->ops->params(t, &n);
    if (params != NULL)
        t->o->hooks.look(t->o->hooks.look_arg, t->step, params, n, failed);
}

/* With conditions to stop, the last parameters are judged, too, before they are saved. */
static bool is_to_evaluate(const struct vb_trainer *t, bool last)
{
    if (t->replay.on)
        return false;
    if (vb_until_asked(t) && last)
        return true;
    return vb_trainer_is_due(t->evals.every, t->step) && !last;
}

static vb_status evaluate(struct vb_trainer *t)
{
    vb_status st = vb_train_evaluate(t);

    if (st != VB_OK)
        return st;
    vb_train_keep_eval(t, t->step);
    st = vb_until_judge(t, t->step);
    vb_trainer_show(t, t->step, true);
    return st;
}

/* Does what is due after a step. last: no step follows. After a recovery all members do it again,
 * as some may have failed in the middle of it; what is counted is counted once. */
static vb_status after_step(struct vb_trainer *t, bool last)
{
    const struct vb_train_opts *o = t->o;
    bool again = t->recoveries.done == t->step;
    vb_status st = vb_train_saves_look(t);

    if (st == VB_OK && vb_trainer_is_due(o->sums.check_replicas, t->step) && t->world > 1)
        st = vb_train_compare(t);
    if (st == VB_OK && !again && t->recoveries.looked != t->step) {
        look(t, false);
        vb_health_step(t);
        t->recoveries.looked = t->step; /* what follows may fail */
    }
    if (st == VB_OK && is_to_evaluate(t, last))
        st = evaluate(t);
    last = last || t->until.met;
    if (st == VB_OK && last)
        st = vb_until_settle(t);
    if (st == VB_OK && o->save.dir != NULL && (last || vb_trainer_is_due(o->save.every, t->step)))
        st = vb_train_save(t, t->step, last);
    vb_trainer_show(t, t->step, false);
    if (again || st == VB_ERR_PEER)
        return st;
    t->recoveries.done = t->step;
    vb_train_record_step(t);
    vb_train_note_loss(t, t->step);
    return st;
}

/* A checkpoint of this step may have been written already. */
static vb_status save_stopped(struct vb_trainer *t)
{
    bool saved = t->step == t->resumed || t->step == t->saved.step;

    return t->o->save.dir == NULL || saved ? VB_OK : vb_train_save(t, t->step, true);
}

static vb_status form(struct vb_trainer *t, struct run_stop *stop)
{
    vb_status st;

    t->stopped = 0;
    st = vb_run_form(t, stop);
    return st == VB_OK ? vb_run_let_in(t) : st;
}

static vb_status make_steps(struct vb_trainer *t, struct run_stop *stop)
{
    vb_status st = VB_OK;

    while (st == VB_OK && t->step < t->recipe.steps && !t->until.met) {
        st = vb_run_ask(t, stop);
        if (st == VB_OK && t->leaves)
            return VB_OK;
        if (st == VB_OK)
            st = vb_run_stop_check(stop, &t->stopped);
        if (st == VB_OK && t->stopped == 0)
            st = vb_run_wait(t, stop);
        if (st == VB_OK && t->stopped == VB_RUN_FORM) {
            st = form(t, stop);
            continue;
        }
        if (st == VB_OK && t->stopped != 0)
            return save_stopped(t);
        if (st == VB_OK)
            st = vb_trainer_step(t);
        if (st == VB_OK) {
            vb_train_form_done(t);
            vb_train_recovered(t);
        }
        if (st == VB_OK)
            st = after_step(t, t->step == t->recipe.steps);
    }
    return st;
}

/* Returns whether the last parameters were evaluated after their step. All members must find the
 * same, so this does not look at what this rank has done. */
static bool is_evaluated(const struct vb_trainer *t)
{
    return t->step != t->resumed && vb_until_asked(t) &&
           is_to_evaluate(t, t->step == t->recipe.steps);
}

/* Makes all steps that are left, and what follows the last one. */
static vb_status go_on(struct vb_trainer *t, struct run_stop *stop, struct vb_train_result *result)
{
    vb_status st = make_steps(t, stop);
    bool known = is_evaluated(t);

    vb_train_trace_end(t);
    if (st == VB_OK && t->leaves) {
        result->left = true;
        return VB_OK;
    }
    if (st == VB_OK && !known)
        st = vb_train_evaluate(t);
    vb_train_does(t, VB_DOES_END);
    if (st == VB_OK)
        vb_trace_stop(t->trace.trace);
    if (st == VB_OK && !known) {
        vb_train_record_eval(t, t->step);
        st = vb_until_judge(t, t->step);
    }
    if (st == VB_OK)
        st = vb_train_saves_end(t);
    if (st == VB_OK)
        vb_train_recovered(t); /* no step was left */
    return st == VB_OK ? vb_run_end(t, result) : st;
}

/* The members of a new view meet, and begin with what is due after the step that they have. */
static vb_status begin_again(struct vb_trainer *t, struct run_stop *stop)
{
    vb_status st = vb_run_stop_regroup(stop);

    if (st == VB_OK)
        st = vb_run_let_in(t);
    if (st != VB_OK || t->step == t->resumed)
        return st;
    return after_step(t, t->step == t->recipe.steps);
}

static vb_status run_steps(struct vb_trainer *t, struct run_stop **stop_p,
                           struct vb_train_result *result)
{
    vb_status st = vb_run_stop_open(t, stop_p);

    vb_train_recover_begin(t);
    if (st == VB_OK && vb_trainer_comes(t))
        st = vb_run_form_joined(t);
    vb_train_recover_end(t);
    if (st == VB_OK) {
        vb_train_event_say(t, vb_trainer_comes(t) ? "joined" : "began", t->step, "");
        st = vb_run_let_in(t);
    }
    if (st == VB_OK && t->o->hooks.begun != NULL)
        t->o->hooks.begun(t->o->hooks.begun_arg);
    vb_train_recover_begin(t);
    if (st == VB_OK)
        st = go_on(t, *stop_p, result);
    while (st == VB_ERR_PEER && !vb_train_is_over(t)) {
        st = vb_train_recover(t, st);
        if (st != VB_OK)
            break;
        if (vb_train_is_over(t)) { /* the others have left */
            st = VB_ERR_PEER;
            break;
        }
        st = begin_again(t, *stop_p);
        if (st == VB_OK)
            st = go_on(t, *stop_p, result);
    }
    vb_train_recover_end(t);
    if (st == VB_ERR_PEER && vb_train_is_over(t))
        st = vb_run_end(t, result);
    if (st != VB_OK)
        vb_trainer_give_up(t, st); /* closing waits for ranks that wait for this one */
    vb_run_stop_close(*stop_p);
    return st;
}

static bool has_servers(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !o->dry_run;
}

static vb_status work(struct vb_trainer *t, struct run_stop **stop_p,
                      struct vb_train_result *result)
{
    struct vb_async *async = NULL;
    vb_status st = VB_OK;

    if (has_servers(t->o))
        st = vb_async_run(t, &async);
    else if (!t->o->dry_run)
        st = run_steps(t, stop_p, result);
    else
        st = vb_run_end(t, result);
    if (st != VB_OK)
        look(t, true);
    else if (async != NULL)
        st = vb_async_collect(async, result);
    if (st == VB_OK && async != NULL)
        st = vb_train_warn(t, result);
    if (st == VB_OK && async != NULL) {
        vb_ship_finish(t->record.ship); /* while the group of workers and servers is open */
        vb_train_record_result(t, result);
    }
    if (st == VB_OK && async != NULL)
        st = vb_run_tell(t, result); /* if this fails, another worker reports the result */
    vb_async_leave(async, st);
    vb_async_destroy(async);
    return st;
}

/* A rank was lost while the members formed a group with this one, or this one came too late. They
 * go on without it, and can be called again. */
static bool is_left_out(const struct vb_trainer *t, vb_status st)
{
    return (st == VB_ERR_PEER || st == VB_ERR_TIMEOUT) && vb_trainer_comes(t) &&
           t->form.let_in == NULL && vb_caller_is_invited(t->joiner->caller);
}

/* Returns the number of the rank that has reported the result; -1: not known. */
static int reporter(const struct vb_trainer *t)
{
    struct vb_group *group = t->place.group;

    return vb_train_is_elastic(t->o) ? vb_group_id(group, vb_group_view_member(group, 0)) : -1;
}

static vb_status train(const struct vb_train_opts *o, const struct vb_trainer_joiner *joiner,
                       struct vb_train_result *result, bool *left_out_p)
{
    struct run_stop *stop = NULL;
    struct vb_trainer t;
    vb_status st = vb_trainer_open(&t, o, joiner);

    if (st == VB_OK)
        st = work(&t, &stop, result);
    result->reporter = st == VB_OK ? reporter(&t) : -1;
    *left_out_p = is_left_out(&t, st);
    if (st == VB_OK && !t.leaves)
        vb_train_record_done(&t);
    else if (st != VB_OK)
        vb_trainer_give_up(&t, st);
    vb_train_event_say(&t,
                       st != VB_OK      ? "failed"
                       : t.leaves       ? "left"
                       : t.stopped != 0 ? "stopped"
                                        : "ended",
                       t.step, st != VB_OK ? vb_log_first_error() : "");
    vb_trainer_close(&t);
    vb_train_record_result(&t, result);
    vb_run_stop_free(stop);
    if (result->reports || !vb_train_is_elastic(o))
        vb_train_trace_merge(&t, result->clocks, result->n_clocks);
    if (st == VB_OK && !has_servers(o) && !vb_train_is_elastic(o))
        st = vb_run_tell(&t, result); /* no other rank waits for the report */
    return st;
}

static vb_status join(const struct vb_train_opts *o, const struct vb_trainer_joiner *joiner,
                      struct vb_train_result *result)
{
    bool left_out = false;
    int calls = 1;
    vb_status st = train(o, joiner, result, &left_out);

    for (; left_out && calls < CALLS_MAX; calls++) {
        VB_LOG_WARN(
            "the job went on without this rank: another one was lost meanwhile, or this one "
            "was late; it calls the job again");
        vb_train_result_fini(result);
        memset(result, 0, sizeof(*result));
        st = train(o, joiner, result, &left_out);
    }
    if (left_out)
        VB_LOG_ERROR("this rank has called the job %d times, and each time the job went on "
                     "without it",
                     calls);
    return st;
}

vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p)
{
    struct vb_trainer_joiner joiner;
    vb_status st = vb_train_check(o);

    memset(result_p, 0, sizeof(*result_p));
    if (st == VB_OK && o->join.joined != NULL)
        joiner = vb_joined_joiner(o->join.joined);
    if (st == VB_OK && o->join.caller != NULL)
        st = vb_run_job_read(o->join.caller, &joiner);
    if (st == VB_OK)
        st = join(o, o->join.joined != NULL || o->join.caller != NULL ? &joiner : NULL, result_p);
    if (st != VB_OK)
        vb_train_result_fini(result_p);
    return st;
}
