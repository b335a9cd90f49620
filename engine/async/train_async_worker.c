/* SPDX-License-Identifier: MIT
 *
 * Runs a worker during training. train_async_dense.c and train_async_sparse.c make its steps.
 */
#include "engine/async/train_async_priv.h"

#include <string.h>

#define LOOK_EVERY 64 /* number of steps after which a worker polls the network */

vb_status vb_async_evaluate(struct vb_trainer *t, int64_t step)
{
    struct vb_eval_sum sum = {0};
    uint64_t begin_ns = vb_trace_begin();
    vb_status st;

    vb_train_does(t, VB_DOES_EVALUATE);
    vb_trace_pause(true);
    st = t->ops->evaluate(t, 0, t->data.n_test, &sum);
    vb_trace_pause(false);
    vb_trace_end(begin_ns, VB_OP_EVALUATE, 0);
    if (st == VB_OK)
        vb_train_take_sum(t, step, &sum);
    vb_lap(&t->laps, VB_PHASE_EVAL);
    vb_train_does(t, VB_DOES_COMPUTE);
    return st;
}

/* Shows the progress of training, if it is time to. Only a server knows how many steps all workers
 * have made together. */
static vb_status show(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint64_t step = (uint64_t)t->step;
    vb_status st = VB_OK;

    if (!vb_trainer_is_to_show(t, false))
        return VB_OK;
    if (vb_train_apart(t->o))
        st = vb_ps_worker_fetch_version(a->worker, &step);
    if (st == VB_OK)
        vb_trainer_show(t, (int64_t)step, false);
    return st;
}

/* Evaluates a snapshot, and ends the job if that is what the user waits for. */
static vb_status evaluate_due(struct vb_async *a, int64_t version)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = vb_async_evaluate(t, version);

    if (st != VB_OK)
        return st;
    vb_train_keep_eval(t, version);
    st = vb_until_judge(t, version);
    vb_trainer_show(t, version, true);
    return st == VB_OK && t->until.met ? vb_ps_worker_interrupt(a->worker, PS_STOPPED_DONE) : st;
}

/* The job ends if a checkpoint could not be written and that is an error. */
static vb_status saved(struct vb_async *a, vb_status st)
{
    if (st != VB_OK && !a->trainer->health.not_finite)
        vb_ps_worker_stop(a->worker, PS_UNSAVED);
    return st;
}

/* Begins to write a snapshot. The next one goes into other memory. */
static vb_status save_due(struct vb_async *a, int64_t version)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = vb_train_save(t, version, false);
    size_t n;
    int words;

    a->params = t->ops->memory(t, &n, &a->state, &words);
    return saved(a, st);
}

/* Where the next snapshot with state goes. */
static void *snapshot_with_state(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct vb_trainer_late *late = t->ops->late != NULL ? t->ops->late(t) : NULL;

    a->worker->late = late != NULL ? late->params : NULL;
    return a->state;
}

/* After a snapshot with state. */
static void note_late(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct vb_trainer_late *late = t->ops->late != NULL ? t->ops->late(t) : NULL;

    if (late != NULL)
        late->steps = a->worker->late_steps;
}

vb_status vb_async_do_due(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint32_t due = atomic_exchange(&a->worker->due, 0);
    /* parameters that may become the result are saved at the end with their state */
    bool state = (due & PS_SAVE) || (vb_until_asked(t) && t->o->save.dir != NULL);
    uint64_t version;
    vb_status st;

    if (due == 0)
        return VB_OK;
    st = vb_ps_worker_snapshot(a->worker, a->params, state ? snapshot_with_state(a) : NULL,
                               &version);
    if (st == VB_OK && state)
        note_late(a);
    vb_lap(&t->laps, due & PS_SAVE ? VB_PHASE_CHECKPOINT : VB_PHASE_EVAL);
    if (st == VB_OK && (due & PS_EVAL) && !t->until.met) /* otherwise the job ends soon */
        st = evaluate_due(a, (int64_t)version);
    if (st == VB_OK && (due & PS_SAVE))
        st = save_due(a, (int64_t)version);
    return st;
}

/* Tells the user which step the job makes. If the user wants to stop, tells server 0, which ends
 * the job. Only a joiner leaves a job that goes on: its user may not be the user of the job, unless
 * the job's supervisor has started it. */
static vb_status look_for_stop(struct vb_async *a)
{
    const struct vb_train_hooks *hooks = &a->trainer->o->hooks;
    const struct vb_train_join_opts *join = &a->trainer->o->join;
    int own = hooks->stop != NULL ? hooks->stop(hooks->stop_arg) : 0;
    int number = own != 0 ? own : atomic_load_explicit(&a->board->stop, memory_order_relaxed);

    if (hooks->ask != NULL)
        (void)hooks->ask(hooks->ask_arg, (int64_t)a->worker->version);
    a->leaves = own != 0 && join->joined != NULL && !join->own;
    if (a->leaves)
        a->trainer->stopped = own;
    return number != 0 && !a->leaves ? vb_ps_worker_interrupt(a->worker, number) : VB_OK;
}

vb_status vb_async_claim(struct vb_async *a, bool *go_p)
{
    vb_status st = vb_inject_before_step(a->trainer);

    if (st == VB_OK)
        st = look_for_stop(a);
    *go_p = st == VB_OK && !a->leaves && vb_ps_worker_claim(a->worker);
    return st;
}

vb_status vb_async_ticket(struct vb_async *a, bool *go_p)
{
    enum vb_phase phase = a->job.bound >= 0 ? VB_PHASE_WAIT : VB_PHASE_COMM;
    vb_status st = vb_inject_before_step(a->trainer);
    uint64_t begin_ns;

    *go_p = false;
    if (st == VB_OK)
        st = look_for_stop(a);
    if (st != VB_OK || a->leaves)
        return st;
    do {
        begin_ns = vb_trace_begin();
        st = vb_ps_worker_await_work(a->worker);
        vb_trace_end(begin_ns, VB_OP_TICKET, 0);
        vb_lap(&a->trainer->laps, phase);
        if (st == VB_OK && a->worker->due != 0)
            st = vb_async_do_due(a);
    } while (st == VB_OK && !vb_ps_worker_has_ticket(a->worker));
    if (st == VB_OK)
        st = vb_ps_worker_ticket(a->worker, go_p);
    vb_lap(&a->trainer->laps, phase);
    return st;
}

vb_status vb_async_repartition(struct vb_async *a)
{
    uint64_t version = 0;
    vb_status st = VB_OK;

    if (atomic_load_explicit(&a->worker->shares, memory_order_relaxed) == a->shares)
        return VB_OK;
    a->shares = atomic_load(&a->worker->shares);
    if (a->shares != 0) /* otherwise the worker has rejoined, and its share is not known yet */
        st = vb_ps_worker_fetch_version(a->worker, &version);
    if (st == VB_OK && a->shares != 0)
        st = vb_trainer_rebatch(a->trainer, PS_SHARE_OF(a->shares), PS_SHARES_OF(a->shares),
                                (int64_t)version);
    return st;
}

vb_status vb_async_step_done(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st;

    vb_inject_idle(t, VB_PHASE_UPDATE);
    vb_inject_after_step(t);
    t->step++;
    t->samples += t->batch_n;
    t->shows = a->worker->below == 0;
    vb_health_step(t);
    vb_train_record_gradient(t, a->worker->version);
    vb_train_note_loss(t, (int64_t)a->worker->version);
    vb_group_step(a->ps);
    /* the version does not count the gradient that was just made */
    vb_train_trace_step(t, (int64_t)a->worker->version + 2);
    st = saved(a, vb_train_saves_look(t));
    if (st == VB_OK)
        st = show(a);
    return st == VB_OK && t->step % LOOK_EVERY == 0 ? vb_progress(a->ps) : st;
}

/* Evaluates a snapshot when this worker ends, unless all workers end together (bound 0). */
static vb_status evaluate_at_end(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint64_t version;
    vb_status st;

    a->accuracy = -1;
    if (!vb_train_apart(t->o) || t->world == 1)
        return VB_OK;
    st = vb_ps_worker_snapshot(a->worker, a->params, NULL, &version);
    if (st == VB_OK)
        st = vb_async_evaluate(t, (int64_t)version);
    a->accuracy = t->evals.accuracy;
    return st;
}

/* Returns the transport to the servers. Of several, shared memory is the one that is not waited
 * for. */
static const char *transport_of(const struct vb_async *a)
{
    const char *name = vb_group_transport(a->ps, vb_ps_server_rank(&a->job, 0));
    int k;

    for (k = 1; k < a->job.servers && strcmp(name, "shm") == 0; k++)
        name = vb_group_transport(a->ps, vb_ps_server_rank(&a->job, k));
    return name;
}

/* Returns this worker's figures, without the cpu time of the server threads in this process. */
struct async_row vb_async_worker_row(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct async_row row = {.samples = t->samples, .there = true};
    struct vb_rank_result *r = &row.result;
    double cpu_s = vb_async_servers_cpu_s(a) - a->servers_cpu_s;

    vb_train_fill_rank(t, a->ps, r);
    r->rank = vb_group_rank(a->ps);
    snprintf(r->transport, sizeof(r->transport), "%s", transport_of(a));
    r->accuracy = a->accuracy;
    if (r->train_s > 0)
        r->cpu_pct -= 100 * cpu_s / r->train_s;
    vb_train_raise_peaks(r);
    return row;
}

/* Reads the final parameters, and exchanges figures with the other members. */
static vb_status finish(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct async_row row;
    uint64_t version;
    vb_status st = saved(a, vb_train_saves_drain(t)); /* another worker may write the last one */

    if (st == VB_OK)
        st = evaluate_at_end(a);

    if (st == VB_OK)
        st = vb_ps_worker_end(a->worker, a->params,
                              t->o->save.dir != NULL ? snapshot_with_state(a) : NULL, &version);
    if (st != VB_OK)
        return st;
    note_late(a);
    vb_lap(&t->laps, VB_PHASE_WAIT);
    vb_train_does(t, VB_DOES_END);
    vb_trace_stop(t->trace.trace);
    t->step = (int64_t)version;
    t->stopped = vb_ps_worker_stopped(a->worker);
    t->until.told = t->stopped == PS_STOPPED_DONE;
    if (t->until.told)
        t->stopped = 0; /* no signal has ended the job */
    row = vb_async_worker_row(a);
    st = vb_async_board_put_row(a->board, &row);
    if (st == VB_OK)
        st = vb_ps_worker_bye(a->worker);
    if (vb_ship_sends(t->record.ship) && t->rank != 0)
        vb_train_record_close(
            t); /* rank 0 takes records until it reports, and does not wait then */
    return st == VB_OK ? vb_async_board_wait(a->board, &a->reports) : st;
}

/* The group tells the others that this worker has left. Their figures are not known, and they
 * report the result. */
static vb_status leave_early(struct vb_async *a)
{
    uint64_t version = 0;
    vb_status st =
        saved(a, vb_train_saves_drain(a->trainer)); /* another worker saves from now on */

    if (st == VB_OK)
        st = vb_ps_worker_quit(a->worker, &version);
    vb_lap(&a->trainer->laps, VB_PHASE_WAIT);
    a->trainer->step = (int64_t)version;
    return st;
}

static vb_status open_worker(struct vb_async *a)
{
    struct vb_group_opts opts = vb_async_group(a, a->trainer->rank);
    vb_status st = vb_group_open(&opts, &a->ps);

    if (st != VB_OK)
        a->hopeless = true; /* for the server of this process */
    a->root_fd = -1;        /* the group owns the socket now */
    if (st == VB_OK)
        st = vb_async_board_open(a->ps, 0, &a->board);
    if (st == VB_OK)
        st = vb_ps_worker_create(a->ps, &a->job, &a->worker);
    return st;
}

/* Joins a running job. again: this worker was a member before, and was dropped. */
static vb_status join_others(struct vb_async *a, bool again)
{
    struct vb_group_opts opts = vb_async_group(a, 0);
    vb_status st = a->ps == NULL ? vb_group_join(&opts, &a->ps) : VB_OK;

    if (st == VB_OK && a->board == NULL)
        st = vb_async_board_open(a->ps, 0, &a->board);
    if (st == VB_OK)
        st = vb_ps_worker_join(a->ps, &a->job, &a->worker);
    if (st == VB_OK)
        st = vb_ps_worker_hello(a->worker, again);
    return st;
}

void vb_async_close_worker(struct vb_async *a)
{
    vb_train_record_group(a->trainer, NULL);
    a->trainer->place.members = NULL;
    vb_ps_worker_leave(a->worker);
    vb_async_board_leave(a->board);
    vb_group_close(a->ps);
    vb_ps_worker_close(a->worker);
    vb_async_board_free(a->board);
    a->ps = NULL;
    a->worker = NULL;
    a->board = NULL;
}

/* If this worker has failed, and not because of a peer, tells the other members at once, because
 * they may be waiting for this worker. */
static void abort_if_failed(struct vb_async *a, vb_status st)
{
    if (st != VB_OK && a->trainer->health.not_finite && a->worker != NULL)
        vb_ps_worker_stop(a->worker, PS_NOT_FINITE); /* the others would go on with such numbers */
    if (st != VB_OK && st != VB_ERR_PEER && a->ps != NULL)
        vb_group_abort(a->ps, "a worker failed");
}

/* Makes all steps, and finishes. */
static vb_status run_to_end(struct vb_async *a)
{
    struct vb_trainer_sums *sums = &a->trainer->sums;
    vb_status st;

    a->trainer->place.members = a->ps; /* they learn what this worker does */
    vb_group_begin_at(a->ps, a->trainer->step);

    snprintf(sums->transport, sizeof(sums->transport), "%s",
             vb_group_transport(a->ps, vb_ps_server_rank(&a->job, 0)));
    st = a->job.sparse ? vb_async_run_sparse(a) : vb_async_run_dense(a);
    if (st != VB_OK)
        return st;
    return a->leaves ? leave_early(a) : finish(a);
}

/* Returns whether the others have dropped this worker, because it was stopped for too long, and
 * this worker may join again. Rank 0 may not join again, because workers join through rank 0. Nor
 * may a process with a server, because a server that was dropped is lost. */
static bool was_dropped(const struct vb_async *a)
{
    const struct ps_worker *w = a->worker;

    if (w == NULL || a->server.started || a->standby.started || vb_group_rank(a->ps) == 0)
        return false;
    if (w->lost_rank >= 0 && strstr(vb_group_gone_why(a->ps, w->lost_rank), PS_INVALID) != NULL)
        return false; /* this worker would send invalid messages again */
    return w->lost_rank < 0 || vb_group_end(a->ps, w->lost_rank) == VB_END_DROPPED_US;
}

/* Joins again with the same process, model and data, in another slot of the group, and trains. */
static vb_status rejoin(struct vb_async *a)
{
    vb_status st;

    VB_LOG_WARN("the other ranks have dropped this worker; this worker now joins again");
    vb_async_close_worker(a);
    a->shares = 0;
    st = join_others(a, true);
    if (st != VB_OK)
        return st;
    vb_train_record_group(a->trainer, a->ps);
    vb_log_set_rank(vb_group_rank(a->ps));
    VB_LOG_WARN("this worker has joined again, as rank %d", vb_group_rank(a->ps));
    return run_to_end(a);
}

vb_status vb_async_work(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = t->o->join.joined != NULL ? join_others(a, false) : open_worker(a);

    abort_if_failed(a, st);
    vb_async_wait_until_ready(&a->server);
    vb_async_wait_until_ready(&a->standby);
    vb_train_record_group(t, a->ps);
    if (st == VB_OK)
        st = vb_train_joined_facts(t, a->ps);
    if (st == VB_OK)
        vb_place_leave(&t->place); /* from now on only the group of workers and servers is used */
    if (st == VB_OK)
        vb_async_tell_begun(a);
    a->servers_cpu_s = vb_async_servers_cpu_s(a);
    vb_laps_begin(&t->laps);
    vb_train_record_begin(t);
    vb_train_trace_begin(t);
    vb_train_event_say(t, "began", t->step, "");
    if (st == VB_OK)
        st = run_to_end(a);
    while (st == VB_ERR_PEER && was_dropped(a))
        st = rejoin(a);
    vb_train_trace_end(t);
    abort_if_failed(a, st);
    if (st != VB_OK)
        vb_async_close_worker(a);
    return st;
}
