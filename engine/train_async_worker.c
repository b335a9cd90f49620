/* SPDX-License-Identifier: MIT
 *
 * A worker in training: it opens or joins the group, makes steps (train_async_dense.c,
 * train_async_sparse.c), and comes to the end. One that the others have given up joins again.
 */
#include "engine/train_async_priv.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY 64 /* steps: who never waits hears of a death only then */

/* Of all test samples, by this worker alone. */
vb_status async_judge_alone(struct vb_trainer *t)
{
    struct vb_model_loss sum = {0};
    vb_status st = t->ops->judge(t, 0, t->n_test, &sum);

    t->accuracy = (double)sum.correct / t->n_test;
    t->test_loss = sum.loss / t->n_test;
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}

/* How far all workers are a server knows: it is asked when it is time to show that. */
static vb_status show(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint64_t step = (uint64_t)t->step;
    vb_status st = VB_OK;

    if (!vb_trainer_is_to_show(t, false))
        return VB_OK;
    if (vb_train_apart(t->o))
        st = ps_worker_now(a->worker, &step);
    if (st == VB_OK)
        vb_trainer_show(t, (int64_t)step, false);
    return st;
}

vb_status async_do_due(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint32_t due = atomic_exchange(&a->worker->due, 0);
    int64_t own = t->step;
    uint64_t version;
    vb_status st;

    if (due == 0)
        return VB_OK;
    st = ps_worker_snapshot(a->worker, a->params, due & PS_SAVE ? a->state : NULL, &version);
    vb_lap(&t->laps, due & PS_SAVE ? VB_PHASE_CHECKPOINT : VB_PHASE_EVAL);
    if (st == VB_OK && (due & PS_EVAL))
        st = async_judge_alone(t);
    if (st == VB_OK && (due & PS_EVAL)) {
        vb_train_keep_eval(t, (int64_t)version);
        vb_trainer_show(t, (int64_t)version, true);
    }
    t->step = (int64_t)version; /* that of the snapshot, for its name */
    if (st == VB_OK && (due & PS_SAVE))
        st = vb_train_save(t);
    t->step = own;
    return st;
}

vb_status async_ticket(struct vb_async *a, bool *go_p)
{
    vb_status st = ps_worker_ticket(a->worker, go_p);

    vb_lap(&a->trainer->laps, a->job.bound >= 0 ? VB_PHASE_WAIT : VB_PHASE_COMM);
    if (st == VB_OK && a->worker->due != 0)
        st = async_do_due(a);
    return st;
}

vb_status async_cut_anew(struct vb_async *a)
{
    uint64_t version = 0;
    vb_status st = VB_OK;

    a->shares = atomic_load(&a->worker->shares);
    if (a->shares != 0) /* else a new seat, of which nothing was said yet */
        st = ps_worker_now(a->worker, &version);
    if (st == VB_OK && a->shares != 0)
        st = vb_trainer_cut_anew(a->trainer, (int)(a->shares >> 10), (int)(a->shares & 1023),
                                 (int64_t)version);
    return st;
}

vb_status async_step_done(struct vb_async *a, uint64_t computed_ns)
{
    struct vb_trainer *t = a->trainer;
    vb_status st;

    vb_trainer_slow_down(t, vb_trainer_computed_ns(t) - computed_ns);
    t->step++;
    t->samples += t->batch_n;
    t->shows = a->worker->below == 0;
    vb_group_step(a->ps);
    st = show(a);
    return st == VB_OK && t->step % LOOK_EVERY == 0 ? vb_progress(a->ps) : st;
}

/* At its own end, on parameters that others go on changing; with a bound of 0 nobody does. */
static vb_status judge_own_end(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint64_t version;
    vb_status st;

    a->accuracy = -1;
    if (!vb_train_apart(t->o) || t->world == 1)
        return VB_OK;
    st = ps_worker_snapshot(a->worker, a->params, NULL, &version);
    if (st == VB_OK)
        st = async_judge_alone(t);
    a->accuracy = t->accuracy;
    return st;
}

/* This worker's figures. The time of a server's thread is not its own. */
struct async_row async_worker_row(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct async_row row = {.samples = t->samples};
    struct vb_rank_result *r = &row.result;
    double cpu_s = (double)(atomic_load(&a->server.cpu_ns) + atomic_load(&a->standby.cpu_ns)) / 1e9;

    vb_train_fill_rank(t, a->ps, r);
    r->rank = vb_group_rank(a->ps);
    r->accuracy = a->accuracy;
    if (r->train_s > 0)
        r->cpu_pct -= 100 * cpu_s / r->train_s;
    return row;
}

/* The final parameters, and everybody's figures for whoever reports. */
static vb_status end(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    struct async_row row;
    uint64_t version;
    vb_status st = judge_own_end(a);

    if (st == VB_OK)
        st = ps_worker_end(a->worker, a->params, t->o->checkpoint != NULL ? a->state : NULL,
                           &version);
    if (st != VB_OK)
        return st;
    vb_lap(&t->laps, VB_PHASE_WAIT);
    t->step = (int64_t)version;
    row = async_worker_row(a);
    st = async_board_tell(a->board, &row);
    if (st == VB_OK)
        st = ps_worker_bye(a->worker);
    return st == VB_OK ? async_board_settle(a->board, &a->reports) : st;
}

static void name_transport(struct vb_async *a)
{
    snprintf(a->trainer->transport, sizeof(a->trainer->transport), "%s",
             vb_group_transport(a->ps, ps_server_rank(&a->job, 0)));
}

static vb_status open_worker(struct vb_async *a)
{
    struct vb_group_opts opts = async_group(a, a->trainer->rank);
    vb_status st = vb_group_open(&opts, &a->ps);

    a->root_fd = -1; /* the group's now */
    if (st == VB_OK)
        st = async_board_open(a->ps, 0, &a->board);
    if (st == VB_OK)
        st = ps_worker_create(a->ps, &a->job, &a->worker);
    if (st == VB_OK)
        name_transport(a);
    return st;
}

/* Takes part in a job that is under way; again: after having been dropped. */
static vb_status join_others(struct vb_async *a, bool again)
{
    struct vb_group_opts opts = async_group(a, 0);
    vb_status st = a->ps == NULL ? vb_group_join(&opts, &a->ps) : VB_OK;

    if (st == VB_OK && a->board == NULL)
        st = async_board_open(a->ps, 0, &a->board);
    if (st == VB_OK)
        st = ps_worker_join(a->ps, &a->job, &a->worker);
    if (st == VB_OK)
        st = ps_worker_hello(a->worker, again);
    if (st == VB_OK)
        name_transport(a);
    return st;
}

void async_close_worker(struct vb_async *a)
{
    ps_worker_leave(a->worker);
    async_board_leave(a->board);
    vb_group_close(a->ps);
    ps_worker_close(a->worker);
    async_board_free(a->board);
    a->ps = NULL;
    a->worker = NULL;
    a->board = NULL;
}

/* Who fails by itself says so at once: others may be waiting. */
static void give_up(struct vb_async *a, vb_status st)
{
    if (st != VB_OK && st != VB_ERR_PEER && a->ps != NULL)
        vb_group_abort(a->ps, "a worker failed");
}

/* From the first step to the end. */
static vb_status take_part(struct vb_async *a)
{
    vb_status st = a->job.sparse ? async_run_sparse(a) : async_run_dense(a);

    return st == VB_OK ? end(a) : st;
}

/* The others have given this worker up, as it stood still for too long, and not it a server. Rank 0
 * is where others join, and a server that was dropped is lost. */
static bool was_dropped(const struct vb_async *a)
{
    const struct ps_worker *w = a->worker;

    if (w == NULL || a->server.started || a->standby.started || vb_group_rank(a->ps) == 0)
        return false;
    return w->lost < 0 || vb_group_end(a->ps, w->lost) == VB_END_DROPPED_US;
}

/* The same process, with all that it has, in another seat. */
static vb_status rejoin(struct vb_async *a)
{
    vb_status st;

    VB_LOG_WARN("this worker was given up by the others, and joins again");
    async_close_worker(a);
    a->shares = 0;
    st = join_others(a, true);
    if (st == VB_OK) {
        vb_log_set_rank(vb_group_rank(a->ps));
        VB_LOG_WARN("it goes on as rank %d", vb_group_rank(a->ps));
    }
    return st;
}

vb_status async_work(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = t->o->joined != NULL ? join_others(a, false) : open_worker(a);

    give_up(a, st);
    async_wait_until_ready(&a->server);
    async_wait_until_ready(&a->standby);
    if (st == VB_OK)
        vb_place_leave(&t->place); /* from here on the job is the other group */
    if (st == VB_OK && t->o->begun != NULL)
        t->o->begun(t->o->begun_arg);
    vb_laps_begin(&t->laps);
    if (st == VB_OK)
        st = take_part(a);
    while (st == VB_ERR_PEER && was_dropped(a)) {
        st = rejoin(a);
        if (st == VB_OK)
            st = take_part(a);
    }
    give_up(a, st);
    if (st != VB_OK)
        async_close_worker(a);
    return st;
}
