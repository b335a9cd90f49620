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

#define LARGE (16u << 20) /* bytes of a gradient */
#define LOOK_EVERY 64     /* steps: who never waits hears of a death only then */

/* ---- options --------------------------------------------------------------------------------- */

static int servers_of(const struct vb_train_opts *o)
{
    return o->async.servers > 0 ? o->async.servers : 1;
}

static int replicas_of(const struct vb_train_opts *o)
{
    return o->async.replicas > 1 ? o->async.replicas : 1;
}

int vb_train_workers(const struct vb_train_opts *o)
{
    if (o->mode != VB_MODE_ASYNC || !o->async.dedicated)
        return o->group.world;
    return o->group.world - servers_of(o) * replicas_of(o);
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
    if (o->async.replicas > 2 || servers * replicas_of(o) > PS_SERVERS_MAX)
        return vb_err(VB_ERR_USAGE, "%d servers, %d times: at most %d, 2 times", servers,
                      replicas_of(o), PS_SERVERS_MAX / 2);
    if (replicas_of(o) > 1 && o->async.hogwild)
        return vb_err(VB_ERR_USAGE, "--hogwild has no --replicas: no server sees the updates");
    if (replicas_of(o) > 1 && !o->async.dedicated && workers < 2)
        return vb_err(VB_ERR_USAGE, "--replicas 2 needs a second rank, or --dedicated-servers");
    if (workers + servers * replicas_of(o) > VB_WORLD_MAX)
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
    if (o->async.hogwild &&
        (o->group.transport == VB_TRANSPORT_TCP || o->group.transport == VB_TRANSPORT_VERBS))
        return vb_err(VB_ERR_USAGE, "updates in place need all ranks on one host, over shm");
    if (o->async.max_workers > 0 && o->async.max_workers < workers)
        return vb_err(VB_ERR_USAGE, "--max-workers %d: there are %d at the start",
                      o->async.max_workers, workers);
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

/* Each costs a server as much memory as a worker. With a bound of 0 several servers would not let a
 * worker in at the same round. */
static int late_seats(const struct vb_train_opts *o, const struct ps_job *job)
{
    int late = job->n * sizeof(float) > LARGE && !job->sparse ? 1 : 4;
    int room = VB_WORLD_MAX - job->workers - ps_server_ranks(job);

    if (o->async.max_workers > 0)
        late = o->async.max_workers - job->workers;
    if (job->bound == 0 && job->servers > 1)
        late = 0;
    return late < room ? late : room;
}

static void fill_job(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    const struct vb_train_opts *o = t->o;
    struct ps_job *job = &a->job;

    *job = (struct ps_job){.workers = t->world,
                           .servers = servers_of(o),
                           .replicas = replicas_of(o),
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
    job->late = late_seats(o, job);
    t->algo = job->hogwild ? "hogwild" : "ps";
}

/* ---- a server -------------------------------------------------------------------------------- */

static struct async_row server_row(const struct ps_server *s, int rank)
{
    const struct ps_server_stats *stats = &s->stats;
    struct async_row row = {.samples = stats->samples};
    struct vb_rank_result *r = &row.result;

    vb_train_fill_host(r);
    r->rank = rank;
    r->server = true;
    r->accuracy = -1;
    r->train_s = (double)stats->total_ns / 1e9;
    r->phase_s[VB_PHASE_UPDATE] = (double)stats->apply_ns / 1e9;
    r->phase_s[VB_PHASE_WAIT] = (double)stats->idle_ns / 1e9;
    r->phase_s[VB_PHASE_COMM] = (double)(stats->total_ns - stats->apply_ns - stats->idle_ns) / 1e9;
    r->cpu_pct = stats->total_ns > 0 ? 100 * (double)stats->cpu_ns / (double)stats->total_ns : 0;
    return row;
}

/* What a server knows of the workers, on its own board. */
static void note_workers(const struct ps_server *s, struct async_board *board)
{
    struct async_news *news = async_board_news(board);
    int w;

    for (w = 0; w < ps_seats(s->job); w++) {
        const struct ps_seat *seat = &s->seats[w];
        struct async_known *known = async_board_known(board, ps_worker_rank(s->job, w));

        *known = (struct async_known){.alive = seat->alive,
                                      .was_here = seat->was_here,
                                      .stale = seat->stale,
                                      .late_n = (int64_t)seat->late_n,
                                      .late_s = (double)seat->late_ns / 1e9,
                                      .late_max_s = (double)seat->late_max_ns / 1e9};
    }
    news->samples = s->job->hogwild ? -1 : s->stats.samples;
    news->n_faults = s->n_faults;
    memcpy(news->faults, s->faults, sizeof(news->faults));
}

static bool anybody_left(const struct ps_server *s)
{
    int w;

    for (w = 0; w < ps_seats(s->job); w++)
        if (s->seats[w].alive)
            return true;
    return false;
}

/* What the workers need for the end: from whichever of two servers serves then. */
static vb_status show_board(struct ps_server *s, void *arg)
{
    struct async_board *board = arg;
    struct async_row row = server_row(s, vb_group_rank(s->group));

    note_workers(s, board);
    return async_board_serve(board, &row, s->k == 0);
}

/* To the end, and until nobody needs it any more. */
static vb_status serve_workers(struct async_server *srv, struct ps_server *s,
                               struct async_board *board)
{
    vb_status st = ps_server_begin(s);

    s->on_final = show_board;
    s->final_arg = board;
    while (st == VB_OK && !s->over)
        st = ps_server_round(s);
    if (st == VB_OK && !anybody_left(s))
        return vb_err(VB_ERR_PEER, "no worker is left, after %lld of %lld steps",
                      (long long)ps_version_of(s), (long long)s->job->steps);
    if (st != VB_OK)
        return st;
    ps_server_conclude(s);
    atomic_store(&srv->cpu_ns, s->stats.cpu_ns);
    st = ps_server_finish(s);
    return st == VB_OK ? ps_server_linger(s) : st;
}

/* number: servers first, then standbys. */
static vb_status serve(struct async_server *srv, int number)
{
    struct vb_async *a = srv->async;
    struct vb_group_opts opts = async_group(a, ps_server_rank(&a->job, 0) + number);
    bool first = number % a->job.servers == 0;
    struct async_board *board = NULL;
    struct ps_server *s = NULL;
    struct vb_group *group;
    vb_status st = vb_group_open(&opts, &group);

    if (st != VB_OK)
        return st;
    st = async_board_open(group, first ? a->papers_bytes : 0, &board);
    if (st == VB_OK && first)
        async_papers_put(a, board);
    if (st == VB_OK)
        st = ps_server_create(group, &a->job, a->params, a->state, &s);
    atomic_store_explicit(&srv->ready, true, memory_order_release); /* for work() */
    if (st == VB_OK && a->trainer->serves)
        vb_place_leave(&a->trainer->place);
    if (st == VB_OK)
        st = serve_workers(srv, s, board);
    if (st != VB_OK && st != VB_ERR_PEER)
        vb_group_abort(group, "a server failed");
    ps_server_leave(s);
    async_board_leave(board);
    vb_group_close(group);
    ps_server_close(s);
    async_board_free(board);
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
    srv->status = serve(srv, srv->number);
    atomic_store_explicit(&srv->ready, true, memory_order_release);
    return NULL;
}

static vb_status start_server(struct async_server *srv, int number)
{
    int err;

    srv->number = number;
    err = pthread_create(&srv->thread, NULL, serve_main, srv);
    if (err != 0)
        return vb_err(VB_ERR_NO_MEMORY, "start a server: %s", strerror(err));
    srv->started = true;
    return VB_OK;
}

/* Server k is a thread of rank k, its standby one of the next rank. */
static vb_status start_servers(struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    int before = (t->rank + t->world - 1) % t->world;
    vb_status st = VB_OK;

    if (t->o->async.dedicated || t->o->joined != NULL)
        return VB_OK;
    if (t->rank < a->job.servers)
        st = start_server(&a->server, t->rank);
    if (st == VB_OK && a->job.replicas > 1 && before < a->job.servers)
        st = start_server(&a->standby, a->job.servers + before);
    return st;
}

static vb_status join_server(struct async_server *srv)
{
    if (!srv->started)
        return VB_OK;
    pthread_join(srv->thread, NULL);
    srv->started = false;
    return srv->status;
}

static vb_status join_servers(struct vb_async *a)
{
    vb_status st = join_server(&a->server), other = join_server(&a->standby);

    return st == VB_OK ? other : st;
}

/* Pairs with the releases in serve(): only then may another thread write what that one read. */
static void wait_until_ready(const struct async_server *srv)
{
    while (srv->started && !atomic_load_explicit(&srv->ready, memory_order_acquire))
        sched_yield();
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

    vb_trainer_slow_down(t, vb_trainer_computed_ns(t) - computed_ns);
    t->step++;
    t->samples += t->batch_n;
    t->shows = a->worker->below == 0;
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

/* This worker's figures. The time of a server's thread is not its own. */
static struct async_row worker_row(struct vb_async *a)
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
    row = worker_row(a);
    st = async_board_tell(a->board, &row);
    if (st == VB_OK)
        st = ps_worker_bye(a->worker);
    return st == VB_OK ? async_board_settle(a->board, &a->reports) : st;
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
        snprintf(a->trainer->transport, sizeof(a->trainer->transport), "%s",
                 vb_group_transport(a->ps, ps_server_rank(&a->job, 0)));
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
        snprintf(a->trainer->transport, sizeof(a->trainer->transport), "%s",
                 vb_group_transport(a->ps, ps_server_rank(&a->job, 0)));
    return st;
}

static void close_worker(struct vb_async *a)
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
    const char *by_us = "it dropped this rank";

    if (w == NULL || a->server.started || a->standby.started || vb_group_rank(a->ps) == 0)
        return false;
    return w->lost < 0 || strncmp(vb_group_gone_why(a->ps, w->lost), by_us, strlen(by_us)) == 0;
}

/* The same process, with all that it has, in another seat. */
static vb_status rejoin(struct vb_async *a)
{
    vb_status st;

    VB_LOG_WARN("this worker was given up by the others, and joins again");
    close_worker(a);
    a->shares = 0;
    st = join_others(a, true);
    if (st == VB_OK) {
        vb_log_set_rank(vb_group_rank(a->ps));
        VB_LOG_WARN("it goes on as rank %d", vb_group_rank(a->ps));
    }
    return st;
}

static vb_status work(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = t->o->joined != NULL ? join_others(a, false) : open_worker(a);

    give_up(a, st);
    wait_until_ready(&a->server);
    wait_until_ready(&a->standby);
    if (st == VB_OK)
        vb_place_leave(&t->place); /* from here on the job is the other group */
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
        close_worker(a);
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

    if (t->serves)
        return serve(&a->server, t->rank - t->world);
    st = start_servers(a);
    if (st == VB_OK)
        st = work(a);
    served = join_servers(a);
    return st == VB_OK ? served : st;
}

/* What one worker does for all, when everything is over. */
static vb_status report(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = VB_OK;

    if (t->o->checkpoint != NULL)
        st = vb_train_save(t);
    return st == VB_OK ? judge_alone(t) : st;
}

/* Before the group of servers and workers opens. */
static vb_status meet(struct vb_async *a)
{
    const struct vb_train_opts *o = a->trainer->o;
    int rank = a->trainer->rank;
    vb_status st = async_find_root(a);

    if (st != VB_OK || a->job.late == 0 || !o->joinable)
        return st;
    if (rank == (o->async.dedicated ? a->job.workers : 0) ||
        (a->job.replicas > 1 && rank == (o->async.dedicated ? ps_standby_rank(&a->job, 0) : 1)))
        st = async_papers_make(a);
    if (st == VB_OK && rank == 0 && o->say != NULL)
        o->say(a->root);
    return st;
}

vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p)
{
    struct vb_async *a = calloc(1, sizeof(*a));
    vb_status st;

    if (a == NULL)
        return vb_err_sys("calloc");
    *async_p = a;
    a->trainer = t;
    a->server.async = a->standby.async = a;
    a->accuracy = -1;
    a->root_fd = -1;
    fill_job(a);
    st = check_recipe(a);
    if (st == VB_OK)
        st = t->o->joined != NULL ? async_take_joined(a) : meet(a);
    if (st == VB_OK)
        st = run_ranks(a);
    if (st == VB_ERR_PEER || st == VB_ERR_TIMEOUT)
        say_last_checkpoint(t);
    return st == VB_OK && a->reports ? report(a) : st;
}

void vb_async_leave(struct vb_async *a, vb_status st)
{
    if (a == NULL || a->ps == NULL)
        return;
    if (st != VB_OK)
        vb_group_abort(a->ps, "it could not report");
    else if (a->reports)
        (void)async_board_done(a->board);
    close_worker(a);
}

void vb_async_destroy(struct vb_async *a)
{
    if (a == NULL)
        return;
    if (a->root_fd >= 0)
        close(a->root_fd);
    explicit_bzero(a->secret, sizeof(a->secret));
    free(a->papers);
    free(a);
}

/* ---- figures --------------------------------------------------------------------------------- */

bool vb_async_reports(const struct vb_async *a)
{
    return a->reports;
}

static void add_worker(struct vb_async *a, int rank, const struct async_row *row,
                       struct vb_train_result *result)
{
    const struct async_known *known = async_board_known(a->board, rank);
    struct vb_rank_result *r = &result->per_rank[result->rows++];

    *r = row->result;
    r->late_n = known->late_n;
    r->late_s = known->late_s;
    r->late_max_s = known->late_max_s;
    if (r->accuracy < 0)
        r->accuracy = a->trainer->accuracy; /* nobody has tested before the end */
    if (async_board_news(a->board)->samples < 0)
        result->samples += row->samples;
    result->workers++;
}

/* Rows of workers, then of servers, each by rank. */
static void add_rows(struct vb_async *a, struct vb_train_result *result)
{
    const struct async_row *row;
    bool server;
    int pass, r;

    for (pass = 0; pass < 2; pass++)
        for (r = 0; r < async_board_seats(a->board); r++) {
            row = async_board_row(a->board, r, &server);
            if (row == NULL || server != (pass == 1))
                continue;
            if (server)
                result->per_rank[result->rows++] = row->result;
            else
                add_worker(a, r, row, result);
        }
}

static void add_staleness(struct vb_async *a, struct vb_train_result *result)
{
    int r;

    for (r = 0; r < async_board_seats(a->board); r++) {
        const struct async_known *known = async_board_known(a->board, r);

        if (known->was_here)
            result->staleness[result->n_staleness++] =
                (struct vb_worker_stale){.rank = r, .stale = known->stale};
    }
}

vb_status vb_async_collect(struct vb_async *a, struct vb_train_result *result)
{
    const struct async_news *news = async_board_news(a->board);
    struct async_row own = worker_row(a);
    size_t seats = (size_t)async_board_seats(a->board);

    result->per_rank = calloc(seats, sizeof(*result->per_rank));
    result->staleness = calloc(seats, sizeof(*result->staleness));
    result->faults = calloc(PS_FAULTS_MAX, sizeof(*result->faults));
    if (result->per_rank == NULL || result->staleness == NULL || result->faults == NULL)
        return vb_err_sys("calloc");
    async_board_own(a->board, &own); /* with the last test in it */
    result->samples = news->samples > 0 ? news->samples : 0;
    add_rows(a, result);
    add_staleness(a, result);
    result->n_faults = news->n_faults;
    memcpy(result->faults, news->faults, sizeof(news->faults));
    return VB_OK;
}
