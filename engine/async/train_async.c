/* SPDX-License-Identifier: MIT
 *
 * Asynchronous training: every rank is a worker that makes steps without waiting for the others, on
 * parameters that servers own. Servers are threads of the first ranks, or ranks of their own.
 * docs/async.md explains asynchronous training; engine/ps/ is the parameter server.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEASURED_BYTES ((size_t)1 << 20) /* window in which the links are measured */
#define LARGE (16u << 20)                /* bytes; fewer workers may join if gradients are larger */

/* ---- options --------------------------------------------------------------------------------- */

static vb_status check_servers(const struct vb_async_opts *o, int workers)
{
    int servers = vb_train_shards(o), all = vb_train_servers(o);

    if (workers < 1)
        return vb_err(VB_ERR_USAGE,
                      "--dedicated-servers: %d of the ranks are servers, so no rank is left for a "
                      "worker; start at least one more rank",
                      all);
    if (vb_train_replicas(o) > 1 &&
        (o->replicas > 2 || o->hogwild || all > PS_SERVERS_MAX || (!o->dedicated && workers < 2)))
        return vb_err(VB_ERR_USAGE,
                      "--replicas 2 needs a second rank or --dedicated-servers, at most %d "
                      "servers, and no --hogwild",
                      PS_SERVERS_MAX / 2);
    if (servers > PS_SERVERS_MAX || (!o->dedicated && servers > workers))
        return vb_err(
            VB_ERR_USAGE,
            "--servers must be at most the number of ranks, or at most %d with --dedicated-servers",
            PS_SERVERS_MAX);
    if (workers + all > VB_WORLD_MAX)
        return vb_err(
            VB_ERR_USAGE,
            "%d workers and %d servers are too many: a job can have at most %d of both together",
            workers, all, VB_WORLD_MAX);
    return VB_OK;
}

static vb_status check_backup(const struct vb_async_opts *o, int workers)
{
    if (o->backup == 0)
        return VB_OK;
    if (!o->bounded || o->staleness != 0)
        return vb_err(VB_ERR_USAGE, "--backup needs --staleness 0");
    if (o->backup >= workers)
        return vb_err(VB_ERR_USAGE, "--backup %d: must be less than the number of workers, %d",
                      o->backup, workers);
    if (vb_train_shards(o) > 1)
        return vb_err(VB_ERR_USAGE,
                      "--backup needs one server: several servers would drop different gradients");
    return VB_OK;
}

vb_status vb_async_check(const struct vb_train_opts *o)
{
    const struct vb_async_opts *a = &o->async;
    int workers = vb_train_workers(o);
    vb_status st = check_servers(a, workers);

    if (st == VB_OK)
        st = check_backup(a, workers);
    if (st != VB_OK)
        return st;
    if (a->hogwild && (a->bounded || vb_train_shards(a) > 1))
        return vb_err(VB_ERR_USAGE, "--hogwild needs one server and no --staleness");
    if (a->hogwild &&
        (o->group.transport == VB_TRANSPORT_TCP || o->group.transport == VB_TRANSPORT_VERBS))
        return vb_err(VB_ERR_USAGE, "--hogwild needs all ranks on one host, connected by shared "
                                    "memory (--transport shm)");
    if (a->max_workers > 0 && a->max_workers < workers)
        return vb_err(VB_ERR_USAGE, "--max-workers %d is too small: the job starts with %d workers",
                      a->max_workers, workers);
    if (o->sums.check_replicas > 0)
        return vb_err(VB_ERR_USAGE, "--check-replicas needs --mode sync");
    return VB_OK;
}

/* Checks the options whose validity depends on the recipe. */
static vb_status check_recipe(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    bool sparse = a->job.sparse;

    if (t->o->async.hogwild && sparse && vb_k_sparse_is_lazy(&t->recipe.rule))
        return vb_err(VB_ERR_USAGE,
                      "--hogwild cannot update sparse-lr in place with momentum or weight decay");
    if (!sparse && !vb_train_apart(t->o) && t->recipe.clip > 0 && a->job.servers > 1)
        return vb_err(VB_ERR_USAGE,
                      "--staleness 0 with clipping needs one server, because clipping needs the "
                      "whole gradient; use one server or --clip 0");
    return VB_OK;
}

/* Returns the number of workers that may join. Each slot for a joiner costs a server as much memory
 * as a worker. With a bound of 0 several servers would not admit a worker in the same round, so
 * nobody may join. */
static int join_slots_of(const struct vb_train_opts *o, const struct ps_job *job)
{
    int slots = job->n * sizeof(float) > LARGE && !job->sparse ? 1 : 4;
    int room = VB_WORLD_MAX - job->workers - vb_ps_server_ranks(job);

    if (o->async.max_workers > 0)
        slots = o->async.max_workers - job->workers;
    if (job->bound == 0 && job->servers > 1)
        slots = 0;
    return slots < room ? slots : room;
}

static void record_fault(void *arg, const struct vb_fault *fault)
{
    struct vb_train_event event = {.at_ns = vb_clock_ns(),
                                   .step = fault->step,
                                   .rank = fault->rank,
                                   .loss = -1,
                                   .accuracy = -1};

    snprintf(event.what, sizeof(event.what), "%s", fault->what);
    snprintf(event.why, sizeof(event.why), "%s", fault->why);
    vb_train_event(arg, &event);
}

static void fill_job(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    const struct vb_train_opts *o = t->o;
    size_t row = (size_t)(t->data.train.row_max > 0 ? t->data.train.row_max : 1);
    struct ps_job *job = &a->job;
    double patience = o->group.patience > 0 ? o->group.patience : 1;
    double timeout_ms = o->group.timeout_ms > 0 ? o->group.timeout_ms : VB_GROUP_TIMEOUT_MS;
    struct vb_trainer_late *late;
    struct vb_times times;

    vb_times_of(o->group.detect_s, o->group.patience, &times);
    *job = (struct ps_job){.workers = t->world,
                           .servers = vb_train_shards(&o->async),
                           .replicas = vb_train_replicas(&o->async),
                           .sparse = t->model.row->sparse,
                           .hogwild = o->async.hogwild,
                           .bound = o->async.bounded ? o->async.staleness : PS_UNBOUNDED,
                           .backup = o->async.backup,
                           .begin = t->resumed,
                           .steps = t->recipe.steps,
                           .clip = t->recipe.clip,
                           .stuck_ms = (int64_t)(timeout_ms * patience),
                           .settle_ms = times.settle_ms,
                           .eval_every = t->evals.every,
                           .save_every = o->save.dir != NULL ? o->save.every : 0,
                           .rule = t->recipe.rule,
                           .schedule = t->recipe.schedule,
                           .on_fault = record_fault,
                           .on_fault_arg = t};
    a->params = t->ops->memory(t, &job->n, &a->state, &job->words);
    late = t->ops->late != NULL ? t->ops->late(t) : NULL;
    job->late = late != NULL ? late->steps : 0;
    job->max_keys = job->sparse ? (size_t)vb_trainer_share(t) * row + 1 : 0;
    job->join_slots = join_slots_of(o, job);
    t->sums.algo = job->hogwild ? "hogwild" : "ps";
}

/* ---- the group of workers and servers -------------------------------------------------------- */

/* A process with a worker and a server is in this group twice, so that neither thread ever waits
 * for a lock of the other. The members find each other as the ranks of a job do: worker 0 listens
 * at a second port, and announces this port to the group of the job. */

/* Listens at another port of the address at which the job's ranks have found rank 0. */
static vb_status listen_for_members(struct vb_async *a)
{
    const char *root = a->trainer->o->group.root, *colon = root != NULL ? strrchr(root, ':') : NULL;

    if (colon != NULL && colon - root < VB_ROOT_TEXT - 7)
        snprintf(a->root, sizeof(a->root), "%.*s:0", (int)(colon - root), root);
    else
        snprintf(a->root, sizeof(a->root), "127.0.0.1:0");
    return vb_root_listen(a->root, &a->root_fd);
}

/* Worker 0 starts to listen, and all ranks learn the address. Collective. */
static vb_status find_root(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = VB_OK;

    a->secret = t->o->group.secret;
    if (a->secret == NULL) {
        a->secret = a->own_secret = vb_secret_alloc();
        st = a->own_secret != NULL ? vb_secret_make(a->own_secret) : VB_ERR_NO_MEMORY;
    }
    if (st == VB_OK && t->rank == 0)
        st = listen_for_members(a);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, a->root, sizeof(a->root));
    return st;
}

struct vb_group_opts vb_async_group(const struct vb_async *a, int rank)
{
    const struct vb_trainer *t = a->trainer;
    struct vb_group_opts o = t->o->group;

    o.rank = rank;
    o.world = a->job.workers + vb_ps_server_ranks(&a->job);
    o.elastic = true;
    o.slots = o.world + a->job.join_slots;
    o.secret = a->secret;
    o.root = a->root;
    o.root_fd = rank == 0 ? a->root_fd : -1;
    o.announce = NULL;
    o.hopeless = &a->hopeless;
    o.progress =
        t->model.row->progress && rank < a->job.workers; /* a server polls the network itself */
    o.crowded = vb_place_is_crowded(t->o, &t->cpus);
    if (o.timeout_ms == 0)
        o.timeout_ms = VB_GROUP_TIMEOUT_MS;
    if (t->place.placement != NULL) {
        o.topo = t->place.topo;
        o.placement = t->place.placement;
        o.placement_rank = t->place.local_rank;
    }
    return o;
}

void vb_async_tell_begun(const struct vb_async *a)
{
    const struct vb_train_hooks *hooks = &a->trainer->o->hooks;

    if (hooks->begun != NULL)
        hooks->begun(hooks->begun_arg);
}

/* Collective: measures the links for the verdict, as a synchronous job does to choose an algorithm.
 * Shared memory is as fast as memory is. */
static vb_status measure_links(struct vb_trainer *t)
{
    struct vb_coll *coll;
    vb_status st;

    if (t->place.group == NULL || strcmp(vb_group_transports(t->place.group), "shm") == 0)
        return VB_OK;
    st = vb_coll_open(t->place.group, MEASURED_BYTES, NULL, &coll);
    if (st != VB_OK)
        return st;
    t->sums.link = vb_coll_link(coll);
    t->sums.requests = 1;
    vb_coll_close(coll);
    return VB_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Logs the last checkpoint, which the job can be resumed from. The group tells the other ranks that
 * this rank has stopped. */
static void say_last_checkpoint(const struct vb_trainer *t)
{
    char path[4096];

    if (t->o->join.joined != NULL)
        VB_LOG_ERROR("this worker, a joiner, has stopped; the job may go on without this worker");
    else if (t->o->save.dir != NULL &&
             vb_checkpoint_latest(t->o->save.dir, path, sizeof(path)) == VB_OK)
        VB_LOG_ERROR("training stopped; the last checkpoint is %s, continue with --resume", path);
    else
        VB_LOG_ERROR("training stopped; no checkpoint was written");
}

static vb_status run_ranks(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st, served;

    if (t->serves)
        return vb_async_serve(&a->server, t->rank - t->world);
    st = vb_async_start_servers(a);
    if (st == VB_OK)
        st = vb_async_work(a);
    else
        a->hopeless = true;
    served = vb_async_join_servers(a);
    if (st == VB_ERR_PEER && a->hopeless && served != VB_OK)
        return served; /* the worker only knows that the server could not start */
    return st == VB_OK ? served : st;
}

/* Chooses the parameters that are the result, if conditions to stop were given. The last ones are
 * judged, too, unless a condition held before. */
static vb_status choose(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = VB_OK;

    if (!t->until.met)
        st = vb_async_evaluate(t, t->step);
    if (!t->until.met && st == VB_OK) {
        vb_train_keep_eval(t, t->step);
        st = vb_until_judge(t, t->step);
    }
    if (st == VB_OK && t->until.told)
        vb_until_told(t, t->step);
    return st == VB_OK ? vb_until_settle(t) : st;
}

/* Saves and evaluates the result. */
static vb_status conclude(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    bool chooses = vb_until_asked(t) && t->stopped == 0;
    vb_status st = chooses ? choose(a) : VB_OK;

    if (st == VB_OK && t->o->save.dir != NULL) {
        st = vb_train_save(t, t->step, true);
        a->unsaved = st != VB_OK;
    }
    if (st != VB_OK || chooses)
        return st;
    st = vb_async_evaluate(t, t->step);
    if (st == VB_OK)
        vb_train_record_eval(t, t->step);
    return st;
}

vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p)
{
    struct vb_async *a = calloc(1, sizeof(*a));
    bool joins = t->o->join.joined != NULL;
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
    if (st == VB_OK && !joins)
        st = measure_links(t);
    if (st == VB_OK)
        st = joins ? vb_async_adopt_joined(a) : find_root(a);
    if (st == VB_OK && !joins && t->rank == 0)
        vb_async_announce(a);
    if (st == VB_OK)
        st = run_ranks(a);
    if (st == VB_ERR_PEER || st == VB_ERR_TIMEOUT)
        say_last_checkpoint(t);
    return st == VB_OK && a->reports ? conclude(a) : st;
}

void vb_async_leave(struct vb_async *a, vb_status st)
{
    if (a == NULL || a->ps == NULL)
        return;
    if (a->unsaved)
        (void)vb_async_board_failed(a->board);
    else if (st != VB_OK)
        vb_group_abort(a->ps, "this rank could not report the result");
    else if (a->reports)
        (void)vb_async_board_done(a->board);
    vb_async_close_worker(a);
}

void vb_async_destroy(struct vb_async *a)
{
    if (a == NULL)
        return;
    if (a->root_fd >= 0)
        close(a->root_fd);
    vb_secret_free(a->own_secret);
    free(a);
}
