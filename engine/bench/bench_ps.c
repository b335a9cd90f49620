/* SPDX-License-Identifier: MIT
 *
 * Benchmark of the parameter server: pushes, pulls, and both, by all workers at the same time.
 * Every gradient is all ones, and the rate is 1. So with plain SGD the final parameters show
 * whether each gradient was applied once. Other rules round, which may hide one of very many
 * gradients.
 */
#include "engine/ps/ps.h"
#include "engine/bench/engine_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES_MAX 65536
#define OPS_MAX (1 << 22) /* limit per worker, so that sums of ones stay exact in floats */
#define WARM 20           /* number of operations before the measurement */
#define WORKERS_MAX 128
#define LANES 16

/* The measurement of one line of the result: its settings, and this rank's times. */
struct bench {
    struct vb_group *group;
    const struct vb_ps_bench *o;
    struct ps_job job;
    enum vb_ps_op op;
    struct ps_worker *worker;
    uint32_t *keys;
    float *ones, *params;
    double *us; /* (SAMPLES_MAX) times of the last operations */
    int64_t n_ops, pushed;
    double seconds;
    struct ps_server_stats served; /* filled in if this rank is a server */
    int64_t wrong;
};

/* The figures of one rank for one line. */
struct report {
    int64_t n_ops, pushed, wrong;
    double seconds, p50_us, p99_us;
    double cpu_ns, apply_ns, idle_ns, serve_ns;
};

/* A gradient is copied into each slot only once, because it is still there for the next push. */
static vb_status dense_op(struct bench *b)
{
    const float *params;
    float *grads;
    vb_status st = VB_OK;

    if (b->op != VB_PS_PULL) {
        st = vb_ps_worker_grads(b->worker, &grads);
        if (st != VB_OK)
            return st;
        if (grads != NULL && b->pushed < PS_SLOTS_MAX)
            memcpy(grads, b->ones, b->job.n * sizeof(float));
        b->pushed++;
        st = vb_ps_worker_push(b->worker, b->ones, 1, 1);
        if (st == VB_OK)
            st = vb_ps_worker_settle(b->worker);
    }
    if (st == VB_OK && b->op != VB_PS_PUSH)
        st = vb_ps_worker_pull(b->worker, &params);
    return st;
}

/* Over shared memory vb_ps_worker_ask() does nothing, because the worker reads values from the
 * server's memory. */
static vb_status sparse_op(struct bench *b)
{
    size_t n = b->job.max_keys;
    const float *values;
    vb_status st = VB_OK;

    if (b->op == VB_PS_PULL)
        st = vb_ps_worker_ask(b->worker, b->keys, n);
    else
        st = vb_ps_worker_push_sparse(b->worker, b->keys, b->ones, n, 1, 1,
                                      b->op == VB_PS_BOTH ? b->keys : NULL,
                                      b->op == VB_PS_BOTH ? n : 0);
    b->pushed += b->op != VB_PS_PULL;
    if (st == VB_OK)
        st = vb_ps_worker_settle(b->worker);
    if (st == VB_OK && b->op != VB_PS_PUSH)
        st = vb_ps_worker_values(b->worker, b->keys, n, &values);
    return st;
}

static vb_status loop(struct bench *b)
{
    vb_status (*one_op)(struct bench * b) = b->job.sparse ? sparse_op : dense_op;
    uint64_t begin, mark, now;
    vb_status st = VB_OK;
    int64_t i;

    for (i = 0; i < WARM && st == VB_OK; i++)
        st = one_op(b);
    begin = mark = now = vb_clock_ns();
    for (i = 0; st == VB_OK && i < OPS_MAX; i++) {
        st = one_op(b);
        now = vb_clock_ns();
        b->us[i % SAMPLES_MAX] = (double)(now - mark) / 1e3;
        mark = now;
        if ((double)(now - begin) / 1e9 >= b->o->seconds && i >= 2)
            break;
    }
    b->n_ops = i < OPS_MAX ? i + 1 : i;
    b->seconds = (double)(now - begin) / 1e9;
    return st;
}

static vb_status work(struct bench *b)
{
    uint64_t version = 0;
    vb_status st = vb_ps_worker_create(b->group, &b->job, &b->worker);
    bool go;

    if (st == VB_OK && b->job.sparse) /* asks for the values of the first keys */
        st = vb_ps_worker_ask(b->worker, b->keys, b->job.max_keys);
    if (st == VB_OK)
        st = vb_ps_worker_ticket(b->worker, &go); /* granted when the server is ready */
    if (st == VB_OK)
        st = vb_ps_worker_settle(b->worker);
    if (st == VB_OK)
        st = loop(b);
    if (st == VB_OK)
        st = vb_ps_worker_end(b->worker, b->params, NULL, &version);
    vb_ps_worker_close(b->worker);
    b->worker = NULL;
    return st;
}

static vb_status serve(struct bench *b)
{
    struct ps_server *s = NULL;
    vb_status st;

    memset(b->params, 0, b->job.n * sizeof(float));
    st = vb_ps_server_create(b->group, &b->job, b->params, NULL, &s);
    if (st == VB_OK)
        st = vb_ps_server_run(s);
    if (st == VB_OK)
        b->served = s->stats;
    vb_ps_server_close(s);
    return st;
}

/* ---- a line ---------------------------------------------------------------------------------- */

static struct report summary(const struct bench *b)
{
    struct report own = {.n_ops = b->n_ops,
                         .pushed = b->pushed,
                         .seconds = b->seconds,
                         .cpu_ns = (double)b->served.cpu_ns,
                         .apply_ns = (double)b->served.apply_ns,
                         .idle_ns = (double)b->served.idle_ns,
                         .serve_ns = (double)b->served.total_ns};
    size_t n = (size_t)(b->n_ops < SAMPLES_MAX ? b->n_ops : SAMPLES_MAX);

    if (n == 0)
        return own;
    vb_sort(b->us, n);
    own.p50_us = b->us[n / 2];
    own.p99_us = b->us[n * 99 / 100];
    return own;
}

/* Returns the value of a parameter after this number of gradients. */
static float expected(const struct bench *b, int64_t pushed)
{
    float params[LANES] = {0}, state[LANES] = {0}, ones[LANES];
    struct vb_k_update u = {.n = LANES,
                            .params = params,
                            .state = state,
                            .grads = ones,
                            .scale = 1,
                            .rate = 1,
                            .params_out = params,
                            .state_out = state};
    int64_t i;

    for (i = 0; i < LANES; i++)
        ones[i] = 1;
    for (i = 0; i < pushed; i++)
        vb_k_update(&b->job.rule, &u);
    return params[0];
}

/* Returns the number of wrong parameters. With plain SGD the sums must be exact. Other rules may
 * differ a little, because lazy updates round in another order. */
static int64_t count_wrong(const struct bench *b, int64_t pushed)
{
    float want = expected(b, pushed);
    float off = b->job.rule.kind == VB_K_SGD ? 0 : fabsf(want) * 1e-4f;
    size_t i, n = b->job.sparse ? b->job.max_keys : b->job.n;
    int64_t wrong = 0;

    for (i = 0; i < n; i++)
        wrong += !(fabsf(b->params[b->job.sparse ? b->keys[i] : i] - want) <= off);
    return wrong;
}

static void fill_line(const struct bench *b, const struct report *all, struct vb_ps_line *line)
{
    int r, world = vb_group_world(b->group);
    double seconds = 0, cpu_ns = 0, apply_ns = 0, idle_ns = 0, serve_ns = 0;
    int64_t ops = 0, all_ops;

    for (r = 0; r < world; r++) {
        ops += all[r].n_ops;
        line->wrong += all[r].wrong;
        cpu_ns += all[r].cpu_ns;
        apply_ns += all[r].apply_ns;
        idle_ns += all[r].idle_ns;
        serve_ns += all[r].serve_ns;
        seconds = all[r].seconds > seconds ? all[r].seconds : seconds;
        line->time_us = all[r].p50_us > line->time_us ? all[r].p50_us : line->time_us;
        line->p99_us = all[r].p99_us > line->p99_us ? all[r].p99_us : line->p99_us;
    }
    line->gb_s = (double)ops * (double)line->bytes * (b->op == VB_PS_BOTH ? 2 : 1) / seconds / 1e9;
    all_ops = ops + (int64_t)WARM * b->job.workers;
    line->server_cpu_us = cpu_ns / 1e3 / (double)all_ops;
    line->server_apply_us = apply_ns / 1e3 / (double)all_ops;
    line->server_idle = serve_ns > 0 ? idle_ns / serve_ns : 0;
}

static vb_status gather(struct bench *b, struct vb_ps_line *line)
{
    int r, world = vb_group_world(b->group);
    struct report own = summary(b), *all = calloc((size_t)world, sizeof(*all));
    int64_t pushed = 0;
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(b->group, &own, sizeof(own), all);
    for (r = 0; r < world; r++)
        pushed += all[r].pushed;
    if (vb_group_rank(b->group) < b->job.workers)
        own.wrong = count_wrong(b, pushed);
    if (st == VB_OK)
        st = vb_group_gather(b->group, &own, sizeof(own), all);
    if (st == VB_OK)
        fill_line(b, all, line);
    free(all);
    return st;
}

static vb_status measure(struct bench *b, struct vb_ps_line *line)
{
    vb_status st;

    b->n_ops = b->pushed = 0;
    memset(&b->served, 0, sizeof(b->served));
    b->seconds = 0;
    st = vb_group_rank(b->group) < b->job.workers ? work(b) : serve(b);
    if (st == VB_OK)
        st = gather(b, line);
    if (st == VB_OK && vb_group_rank(b->group) == 0 && b->o->each != NULL)
        b->o->each(b->o->each_arg, line);
    b->wrong += line->wrong;
    return st;
}

static vb_status allocate(struct bench *b)
{
    size_t i, n = b->job.sparse ? b->job.max_keys : b->job.n;

    b->params = vb_alloc_aligned(b->job.n * sizeof(float));
    b->ones = vb_alloc_aligned(n * sizeof(float));
    b->keys = vb_alloc_aligned((b->job.max_keys + 1) * sizeof(uint32_t));
    if (b->params == NULL || b->ones == NULL || b->keys == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu parameters", b->job.n);
    for (i = 0; i < n; i++)
        b->ones[i] = 1;
    for (i = 0; i < b->job.max_keys; i++) /* keys are spread evenly over the features */
        b->keys[i] = (uint32_t)((uint64_t)i * b->job.n / b->job.max_keys);
    return VB_OK;
}

/* Measures three lines: push, pull, and both. Pushes get a reply only in the third line. */
static vb_status three_lines(struct bench *b, int64_t bytes)
{
    vb_status st = allocate(b);
    int op;

    for (op = VB_PS_PUSH; op <= VB_PS_BOTH && st == VB_OK; op++) {
        struct vb_ps_line line = {.op = (enum vb_ps_op)op,
                                  .workers = b->job.workers,
                                  .servers = b->job.servers,
                                  .keys = (int64_t)b->job.max_keys,
                                  .bytes = bytes};

        b->op = (enum vb_ps_op)op;
        b->job.no_reply = op != VB_PS_BOTH;
        snprintf(line.transport, sizeof(line.transport), "%s", vb_group_transports(b->group));
        st = measure(b, &line);
    }
    free(b->params);
    free(b->ones);
    free(b->keys);
    return st;
}

vb_status vb_bench_ps(struct vb_group *group, const struct vb_ps_bench *o, int64_t *wrong_p)
{
    struct bench b = {.group = group, .o = o};
    struct ps_job job = {.servers = o->servers > 0 ? o->servers : 1,
                         .bound = PS_UNBOUNDED,
                         .steps = INT64_MAX,
                         .rule = {.kind = o->rule, .eps = 1e-8f},
                         .schedule = {.kind = VB_K_RATE_CONSTANT, .base = 1}};
    vb_status st = VB_OK;
    int i;

    if (o->rule == VB_K_MOMENTUM || o->rule == VB_K_NESTEROV)
        job.rule.momentum = .9f;
    job.workers = vb_group_world(group) - job.servers;
    if (job.workers < 1 || job.servers > PS_SERVERS_MAX || job.workers > WORKERS_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%d servers of %d ranks are not possible: the number of workers, the other "
                      "ranks, must be from 1 to %d",
                      job.servers, vb_group_world(group), WORKERS_MAX);
    b.us = vb_alloc_aligned(SAMPLES_MAX * sizeof(*b.us));
    if (b.us == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for measurements");
    for (i = 0; i < o->n_sizes && st == VB_OK; i++) {
        b.job = job;
        b.job.n = o->sizes[i] / sizeof(float);
        b.job.words = vb_k_rule_states(job.rule.kind);
        st = three_lines(&b, (int64_t)o->sizes[i]);
    }
    for (i = 0; i < o->n_keys && st == VB_OK; i++) {
        b.job = job;
        b.job.sparse = true;
        b.job.n = (size_t)o->features;
        b.job.words = vb_k_sparse_words(&job.rule);
        b.job.max_keys = (size_t)o->keys[i];
        st = three_lines(&b, o->keys[i] * (int64_t)sizeof(float));
    }
    free(b.us);
    *wrong_p = b.wrong;
    return st;
}
