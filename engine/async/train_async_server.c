/* SPDX-License-Identifier: MIT
 *
 * Runs a server during training, as a thread in the process of a worker or as a separate rank.
 */
#include "engine/async/train_async_priv.h"

#include <string.h>
#include <time.h>

/* Returns 0 if the thread has ended. */
static uint64_t thread_cpu_ns(pthread_t thread)
{
    struct timespec now;
    clockid_t clock;

    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &now) != 0)
        return 0;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double server_cpu_s(const struct async_server *srv)
{
    uint64_t ns = atomic_load(&srv->cpu_ns);

    if (ns == 0 && srv->started)
        ns = thread_cpu_ns(srv->thread);
    return (double)ns / 1e9;
}

double vb_async_servers_cpu_s(const struct vb_async *a)
{
    return server_cpu_s(&a->server) + server_cpu_s(&a->standby);
}

/* A dedicated server is the whole process. */
static enum vb_sampler_part part_of(const struct async_server *srv)
{
    if (srv->async->trainer->serves)
        return VB_PART_RANK;
    return srv == &srv->async->server ? VB_PART_SERVER : VB_PART_STANDBY;
}

/* Reads what the sampler knows, which ends before the workers are told that training has ended. */
static void sample_host(struct async_server *srv, const struct ps_server *s)
{
    if (srv->sampled)
        return;
    srv->sampled = true;
    srv->host.train_s = (double)s->stats.total_ns / 1e9;
    vb_train_fill_host(srv->async->trainer, part_of(srv), &srv->host);
}

static struct async_row server_row(struct async_server *srv, const struct ps_server *s, int rank)
{
    const struct ps_server_stats *stats = &s->stats;
    struct async_row row = {.there = true};
    struct vb_rank_result *r = &row.result;

    sample_host(srv, s);
    *r = srv->host;
    r->rank = rank;
    r->server = true;
    r->accuracy = -1;
    r->train_s = (double)stats->total_ns / 1e9;
    r->phase_s[VB_PHASE_UPDATE] = (double)stats->apply_ns / 1e9;
    r->phase_s[VB_PHASE_WAIT] = (double)stats->idle_ns / 1e9;
    r->phase_s[VB_PHASE_COMM] = (double)(stats->total_ns - stats->apply_ns - stats->idle_ns) / 1e9;
    r->cpu_pct = stats->total_ns > 0 ? 100 * (double)stats->cpu_ns / (double)stats->total_ns : 0;
    vb_train_raise_peaks(r);
    return row;
}

/* Writes the statistics of the workers and of the run to the server's own board. */
static void note_workers(const struct ps_server *s, struct async_board *board)
{
    struct async_run_stats *run = board->run;
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++) {
        const struct ps_client *client = &s->clients[w];

        board->workers[vb_ps_worker_rank(s->job, w)] =
            (struct async_worker_stats){.member = client->member,
                                        .was_member = client->was_member,
                                        .stale = client->stale,
                                        .wait_n = (int64_t)client->waits.n,
                                        .wait_s = (double)client->waits.ns / 1e9,
                                        .wait_max_s = (double)client->waits.max_ns / 1e9};
    }
    run->samples = s->job->hogwild ? -1 : s->stats.samples;
    run->n_faults = s->faults.n;
    memcpy(run->faults, s->faults.list, sizeof(run->faults));
}

static bool anybody_left(const struct ps_server *s)
{
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        if (s->clients[w].member)
            return true;
    return false;
}

/* Puts the server's figures on the boards of the workers. A server, or a standby that has taken
 * over, calls this function before it sends PS_FINAL. */
static vb_status show_board(struct ps_server *s, void *arg)
{
    struct async_server *srv = arg;
    struct async_board *board = srv->board;
    struct async_row row = server_row(srv, s, vb_group_rank(s->group));
    vb_status st;

    note_workers(s, board);
    st = vb_async_board_put_row(board, &row);
    return st == VB_OK && s->k == 0 ? vb_async_board_put_run(board) : st;
}

/* A server that is a rank of its own may be asked to stop. If it is a thread, its worker is asked.
 */
static vb_status look_for_stop(struct async_server *srv, struct async_board *board)
{
    const struct vb_trainer *t = srv->async->trainer;
    const struct vb_train_hooks *hooks = &t->o->hooks;
    int number = t->serves && hooks->stop != NULL ? hooks->stop(hooks->stop_arg) : 0;

    if (number == 0 || srv->told_stop)
        return VB_OK;
    srv->told_stop = true;
    return vb_async_board_stop(board, &srv->async->job, number);
}

static vb_status serve_workers(struct async_server *srv, struct ps_server *s,
                               struct async_board *board)
{
    struct vb_trainer *t = srv->async->trainer;
    bool serves = t->serves; /* otherwise the worker of this process turns the trace on */
    vb_status st = vb_ps_server_begin(s);

    vb_sampler_begin(t->record.sampler, part_of(srv));
    srv->board = board;
    s->on_final = show_board;
    s->final_arg = srv;
    if (serves)
        vb_train_trace_begin(t);
    while (st == VB_OK && !s->done) {
        if (serves)
            vb_train_trace_step(t, (int64_t)vb_ps_version_of(s) + 1);
        st = vb_ps_server_round(s);
        if (st == VB_OK)
            st = look_for_stop(srv, board);
    }
    if (serves) {
        vb_train_trace_end(t);
        vb_trace_stop(t->trace.trace);
    }
    if (st == VB_OK && !anybody_left(s))
        return vb_err(VB_ERR_PEER, "all workers are gone, after %lld of %lld steps",
                      (long long)vb_ps_version_of(s), (long long)s->job->steps);
    if (st != VB_OK)
        return st;
    vb_ps_server_conclude(s);
    sample_host(srv, s);
    if (srv->async->trainer->serves)
        vb_train_record_close(srv->async->trainer); /* rank 0 waits for its last records */
    atomic_store(&srv->cpu_ns, thread_cpu_ns(pthread_self()));
    st = vb_ps_server_finish(s);
    return st == VB_OK ? vb_ps_server_linger(s) : st;
}

vb_status vb_async_serve(struct async_server *srv, int number)
{
    struct vb_async *a = srv->async;
    struct vb_group_opts opts = vb_async_group(a, vb_ps_server_rank(&a->job, 0) + number);
    size_t info_bytes = number % a->job.servers == 0 ? vb_async_join_info_bytes(a) : 0;
    struct async_board *board = NULL;
    struct ps_server *s = NULL;
    struct vb_group *group;
    vb_status st = vb_group_open(&opts, &group);

    if (st != VB_OK) {
        a->hopeless = true; /* for the worker of this process */
        return st;
    }
    vb_group_does(group, VB_DOES_SERVE);
    vb_group_begin_at(group, a->job.begin);
    st = vb_async_board_open(group, info_bytes, &board);
    if (st == VB_OK && info_bytes > 0)
        st = vb_async_join_info_put(a, board);
    if (st == VB_OK)
        st = vb_ps_server_create(group, &a->job, a->params, a->state, &s);
    if (st == VB_OK && a->trainer->serves)
        s->slow = a->trainer->slow.factor[VB_PHASE_UPDATE];
    /* This release pairs with the acquire in vb_async_wait_until_ready(). */
    atomic_store_explicit(&srv->ready, true, memory_order_release);
    if (a->trainer->serves) {
        vb_train_record_group(a->trainer, group);
    } else {
        vb_group_sees_folder(group, true); /* the worker of this process has the records */
        vb_train_record_part(a->trainer, part_of(srv), group);
    }
    if (st == VB_OK && a->trainer->serves) {
        vb_place_leave(&a->trainer->place);
        vb_async_tell_begun(a);
    }
    if (st == VB_OK)
        st = serve_workers(srv, s, board);
    if (st != VB_OK && st != VB_ERR_PEER)
        vb_group_abort(group, "a server failed");
    vb_ps_server_leave(s);
    vb_async_board_leave(board);
    if (a->trainer->serves)
        vb_train_record_group(a->trainer, NULL);
    else
        vb_train_record_part(a->trainer, part_of(srv), NULL);
    vb_group_close(group);
    vb_ps_server_close(s);
    vb_async_board_free(board);
    return st;
}

/* The main function of a server's thread. The server may run on any cpu of the process, because the
 * worker, which is pinned, keeps its own cpus busy. */
static void *serve_main(void *arg)
{
    struct async_server *srv = arg;
    struct vb_trainer *t = srv->async->trainer;

    if (CPU_COUNT(&t->cpus) > 0)
        (void)sched_setaffinity(0, sizeof(t->cpus), &t->cpus);
    vb_log_set_rank(t->world > 1 ? t->rank : -1);
    vb_team_size(1);
    vb_trace_attach(t->trace.trace, srv->number < srv->async->job.servers ? "server" : "standby");
    srv->status = vb_async_serve(srv, srv->number);
    vb_trace_detach();
    atomic_store_explicit(&srv->ready, true, memory_order_release);
    return NULL;
}

static vb_status start_server(struct async_server *srv, int number)
{
    int err;

    srv->number = number;
    err = pthread_create(&srv->thread, NULL, serve_main, srv);
    if (err != 0)
        return vb_err(VB_ERR_NO_MEMORY,
                      "cannot start the thread of a server (ulimit -u allows more): %s",
                      strerror(err));
    srv->started = true;
    return VB_OK;
}

/* Server k is a thread of rank k, and its standby is a thread of the next rank. */
vb_status vb_async_start_servers(struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    int before = (t->rank + t->world - 1) % t->world;
    vb_status st = VB_OK;

    if (t->o->async.dedicated || t->o->join.joined != NULL)
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

vb_status vb_async_join_servers(struct vb_async *a)
{
    vb_status st = join_server(&a->server), other = join_server(&a->standby);

    return st == VB_OK ? other : st;
}

/* The acquire pairs with the releases in vb_async_serve() and serve_main(). After the acquire the
 * worker may change the parameters, because the server has copied them. */
void vb_async_wait_until_ready(const struct async_server *srv)
{
    while (srv->started && !atomic_load_explicit(&srv->ready, memory_order_acquire))
        sched_yield();
}
