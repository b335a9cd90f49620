/* SPDX-License-Identifier: MIT
 *
 * Asynchronous training: every rank is a worker that makes steps at its own pace, on parameters
 * that servers own. Servers are threads of the first ranks, or ranks of their own. docs/async.md
 * has the whole of it; ps_*.c is what workers and servers say to each other.
 *
 * Without a bound of 0 every worker goes through all of the data, in an order of its own: so what a
 * slow worker, or one that is gone, does not come to, others do. With it shares are those of
 * synchronous training, and so are the bits.
 */
#include "engine/train_async_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_EVERY 64 /* steps: who never waits hears of a death only then */

/* ---- options --------------------------------------------------------------------------------- */

static int servers_of(const struct vb_train_opts *o)
{
    return o->async.servers > 0 ? o->async.servers : 1;
}

int vb_train_workers(const struct vb_train_opts *o)
{
    if (o->mode != VB_MODE_ASYNC || !o->async.dedicated)
        return o->group.world;
    return o->group.world - servers_of(o);
}

bool vb_train_apart(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !(o->async.bounded && o->async.staleness == 0);
}

vb_status vb_async_check(const struct vb_train_opts *o)
{
    int workers = vb_train_workers(o), servers = servers_of(o);
    bool in_rounds = !vb_train_apart(o);

    if (workers < 1)
        return vb_err(VB_ERR_USAGE, "%d servers of %d ranks leave no worker", servers,
                      o->group.world);
    if (servers > PS_SERVERS_MAX || (!o->async.dedicated && servers > workers))
        return vb_err(VB_ERR_USAGE, "%d servers: at most %d, one a rank", servers,
                      workers < PS_SERVERS_MAX ? workers : PS_SERVERS_MAX);
    if (workers + servers > VB_WORLD_MAX)
        return vb_err(VB_ERR_USAGE, "%d workers and %d servers: at most %d in all", workers,
                      servers, VB_WORLD_MAX);
    if (o->async.backup > 0 && !in_rounds)
        return vb_err(VB_ERR_USAGE, "--backup needs --staleness 0");
    if (o->async.backup >= workers)
        return vb_err(VB_ERR_USAGE, "--backup %d leaves no gradient of %d workers", o->async.backup,
                      workers);
    if (o->async.backup > 0 && servers > 1)
        return vb_err(VB_ERR_USAGE, "--backup needs one server: several would not leave out the "
                                    "same gradients");
    if (o->async.hogwild && (o->async.bounded || servers > 1))
        return vb_err(VB_ERR_USAGE, "--hogwild has no --staleness and one server");
    if (o->check_replicas > 0)
        return vb_err(VB_ERR_USAGE, "there are no replicas to check in mode async");
    return VB_OK;
}

/* What only the recipe tells. */
static vb_status check_recipe(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    bool sparse = a->job.sparse;

    if (t->o->async.hogwild && sparse && vb_k_sparse_is_lazy(&t->recipe.rule))
        return vb_err(VB_ERR_USAGE, "--hogwild: sparse-lr with momentum or weight decay cannot be "
                                    "updated in place");
    if (!sparse && !vb_train_apart(t->o) && t->recipe.clip > 0 && a->job.servers > 1)
        return vb_err(VB_ERR_USAGE, "--staleness 0 with clipping needs one server, which sees the "
                                    "whole gradient; or --clip 0");
    return VB_OK;
}

static size_t max_keys(const struct vb_trainer *t)
{
    size_t row = (size_t)(t->train.row_max > 0 ? t->train.row_max : 1);

    return (size_t)vb_trainer_share(t) * row + 1;
}

static void fill_job(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    const struct vb_train_opts *o = t->o;
    struct ps_job *job = &a->job;

    *job = (struct ps_job){.workers = t->world,
                           .servers = servers_of(o),
                           .sparse = strcmp(o->model, "sparse-lr") == 0,
                           .hogwild = o->async.hogwild,
                           .bound = o->async.bounded ? o->async.staleness : PS_UNBOUNDED,
                           .backup = o->async.backup,
                           .begin = t->resumed,
                           .steps = t->recipe.steps,
                           .clip = t->recipe.clip,
                           .eval_every = o->eval_every,
                           .save_every = o->checkpoint != NULL ? o->checkpoint_every : 0,
                           .rule = t->recipe.rule,
                           .schedule = t->recipe.schedule};
    a->params = t->ops->memory(t, &job->n, &a->state, &job->words);
    job->max_keys = job->sparse ? max_keys(t) : 0;
    t->algo = job->hogwild ? "hogwild" : "ps";
}

/* ---- a server -------------------------------------------------------------------------------- */

static vb_status note_figures(struct async_server *srv, const struct ps_server *s)
{
    size_t n = (size_t)ps_seats(&srv->async->job);
    size_t w;

    srv->stats = s->stats;
    srv->stale = calloc(n, sizeof(*srv->stale));
    srv->late = calloc(n, sizeof(*srv->late));
    if (srv->stale == NULL || srv->late == NULL)
        return vb_err_sys("calloc");
    for (w = 0; w < n; w++) {
        srv->stale[w] = s->seats[w].stale;
        srv->late[w].late_n = (int64_t)s->seats[w].late_n;
        srv->late[w].late_s = (double)s->seats[w].late_ns / 1e9;
        srv->late[w].late_max_s = (double)s->seats[w].late_max_ns / 1e9;
    }
    srv->served = true;
    return VB_OK;
}

static vb_status serve(struct async_server *srv, int k)
{
    struct vb_async *a = srv->async;
    struct vb_group_opts opts = async_group(a, ps_server_rank(&a->job, k));
    struct ps_server *s = NULL;
    struct vb_group *group;
    vb_status st = vb_group_open(&opts, &group);

    if (st != VB_OK)
        return st;
    st = ps_server_create(group, &a->job, a->params, a->state, &s);
    atomic_store_explicit(&srv->ready, true, memory_order_release); /* for work() */
    if (st == VB_OK)
        st = ps_server_run(s);
    if (st == VB_OK)
        st = note_figures(srv, s);
    else if (st != VB_ERR_PEER)
        vb_group_abort(group, "a server failed");
    ps_server_close(s);
    vb_group_close(group);
    return st;
}

/* It may run anywhere: beside a worker that is pinned there would be no room for it. */
static void *serve_main(void *arg)
{
    struct async_server *srv = arg;
    struct vb_trainer *t = srv->async->trainer;

    if (CPU_COUNT(&t->cpus) > 0)
        (void)sched_setaffinity(0, sizeof(t->cpus), &t->cpus);
    vb_log_set_rank(t->world > 1 ? t->rank : -1);
    vb_team_size(1);
    srv->status = serve(srv, t->rank);
    atomic_store_explicit(&srv->ready, true, memory_order_release);
    return NULL;
}

static vb_status start_server(struct vb_async *a)
{
    int err;

    if (a->trainer->o->async.dedicated || a->trainer->rank >= a->job.servers)
        return VB_OK;
    err = pthread_create(&a->server.thread, NULL, serve_main, &a->server);
    if (err != 0)
        return vb_err(VB_ERR_NO_MEMORY, "start a server: %s", strerror(err));
    a->server.started = true;
    return VB_OK;
}

static vb_status join_server(struct vb_async *a)
{
    if (!a->server.started)
        return VB_OK;
    pthread_join(a->server.thread, NULL);
    a->server.started = false;
    return a->server.status;
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* Of all test samples, by this worker alone. */
static vb_status judge_alone(struct vb_trainer *t)
{
    struct vb_model_loss sum = {0};
    vb_status st = t->ops->judge(t, 0, t->n_test, &sum);

    t->accuracy = (double)sum.correct / t->n_test;
    t->test_loss = sum.loss / t->n_test;
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}

static int64_t step_now(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;

    return vb_train_apart(t->o) ? t->resumed + (t->step - t->resumed) * t->world : t->step;
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
        st = judge_alone(t);
    if (st == VB_OK && (due & PS_EVAL))
        vb_trainer_show(t, (int64_t)version, true);
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

vb_status async_step_done(struct vb_async *a, uint64_t computed_ns)
{
    struct vb_trainer *t = a->trainer;

    vb_trainer_slow_down(t, vb_trainer_computed_ns(t) - computed_ns);
    t->step++;
    t->samples += t->batch_n;
    vb_group_step(a->ps);
    vb_trainer_show(t, step_now(a), false);
    return t->step % LOOK_EVERY == 0 ? vb_progress(a->ps) : VB_OK;
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
        st = judge_alone(t);
    a->accuracy = t->accuracy;
    return st;
}

static vb_status end(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    uint64_t version;
    vb_status st = judge_own_end(a);

    a->job.save_every = 0;
    if (st == VB_OK)
        st = ps_worker_end(a->worker, a->params, t->o->checkpoint != NULL ? a->state : NULL,
                           &version);
    if (st == VB_OK)
        t->step = (int64_t)version;
    return st;
}

static vb_status open_worker(struct vb_async *a)
{
    struct vb_group_opts opts = async_group(a, a->trainer->rank);
    vb_status st = vb_group_open(&opts, &a->ps);

    a->root_fd = -1; /* the group's now */
    if (st == VB_OK)
        st = ps_worker_create(a->ps, &a->job, &a->worker);
    if (st == VB_OK)
        snprintf(a->trainer->transport, sizeof(a->trainer->transport), "%s",
                 vb_group_transport(a->ps, ps_server_rank(&a->job, 0)));
    return st;
}

static vb_status work(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = open_worker(a);

    /* Pairs with the releases in serve(): only then may this thread write what that one read. */
    while (a->server.started && !atomic_load_explicit(&a->server.ready, memory_order_acquire))
        sched_yield();
    vb_laps_begin(&t->laps);
    if (st == VB_OK)
        st = a->job.sparse ? async_run_sparse(a) : async_run_dense(a);
    if (st == VB_OK)
        st = end(a);
    if (st != VB_OK && st != VB_ERR_PEER && a->ps != NULL)
        vb_group_abort(a->ps, "a worker failed");
    ps_worker_close(a->worker);
    a->worker = NULL;
    vb_group_close(a->ps);
    a->ps = NULL;
    return st;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The others hear of it from the group; where to go on from is known here. */
static void say_last_checkpoint(const struct vb_trainer *t)
{
    char path[4096];

    if (t->o->checkpoint != NULL &&
        vb_checkpoint_latest(t->o->checkpoint, path, sizeof(path)) == VB_OK)
        VB_LOG_ERROR("training stopped; the last checkpoint is %s, --resume goes on from it", path);
    else
        VB_LOG_ERROR("training stopped; there is no checkpoint of it");
}

static vb_status run_ranks(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st, served;

    if (t->rank >= t->world) {
        vb_laps_begin(&t->laps);
        st = a->server.status = serve(&a->server, t->rank - t->world);
        vb_lap(&t->laps, VB_PHASE_UPDATE);
        return st;
    }
    st = start_server(a);
    if (st == VB_OK)
        st = work(a);
    served = join_server(a);
    return st == VB_OK ? served : st;
}

vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p)
{
    struct vb_async *a = calloc(1, sizeof(*a));
    vb_status st;

    if (a == NULL)
        return vb_err_sys("calloc");
    *async_p = a;
    a->trainer = t;
    a->server.async = a;
    a->accuracy = -1;
    fill_job(a);
    st = check_recipe(a);
    if (st == VB_OK)
        st = async_find_root(a);
    if (st == VB_OK)
        st = run_ranks(a);
    if (st == VB_ERR_PEER || st == VB_ERR_TIMEOUT)
        say_last_checkpoint(t);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, &t->step, sizeof(t->step));
    if (st == VB_OK && t->o->checkpoint != NULL)
        st = vb_train_save(t);
    return st == VB_OK ? vb_train_evaluate(t) : st;
}

void vb_async_destroy(struct vb_async *a)
{
    if (a == NULL)
        return;
    if (a->root_fd >= 0)
        close(a->root_fd);
    free(a->server.stale);
    free(a->server.late);
    free(a);
}

/* ---- figures --------------------------------------------------------------------------------- */

double vb_async_accuracy(const struct vb_async *a)
{
    return a->accuracy >= 0 ? a->accuracy : a->trainer->accuracy;
}

bool vb_async_server_row(const struct vb_async *a, struct vb_rank_result *row)
{
    const struct ps_server_stats *s = &a->server.stats;

    memset(row, 0, sizeof(*row));
    if (!a->server.served)
        return false;
    row->server = true;
    row->accuracy = -1;
    row->train_s = (double)s->total_ns / 1e9;
    row->phase_s[VB_PHASE_UPDATE] = (double)s->apply_ns / 1e9;
    row->phase_s[VB_PHASE_WAIT] = (double)s->idle_ns / 1e9;
    row->phase_s[VB_PHASE_COMM] = (double)(s->total_ns - s->apply_ns - s->idle_ns) / 1e9;
    row->cpu_pct = row->train_s > 0 ? 100 * (double)s->cpu_ns / (double)s->total_ns : 0;
    return true;
}

vb_status vb_async_staleness(struct vb_trainer *t, const struct vb_async *a,
                             struct vb_rank_result *rows, struct vb_stale **stale_p)
{
    int from = t->o->async.dedicated ? t->world : 0, w;
    struct vb_stale *stale = calloc((size_t)t->world, sizeof(*stale));
    struct {
        struct vb_stale stale;
        struct vb_rank_result late;
    } one;
    vb_status st = VB_OK;

    if (stale == NULL)
        return vb_err_sys("calloc");
    for (w = 0; w < t->world && st == VB_OK; w++) {
        memset(&one, 0, sizeof(one));
        if (t->rank == from && a->server.served) {
            one.stale = a->server.stale[w];
            one.late = a->server.late[w];
        }
        if (t->place.group != NULL)
            st = vb_group_broadcast(t->place.group, from, &one, sizeof(one));
        stale[w] = one.stale;
        rows[w].late_n = one.late.late_n;
        rows[w].late_s = one.late.late_s;
        rows[w].late_max_s = one.late.late_max_s;
    }
    *stale_p = stale;
    return st;
}
