/* SPDX-License-Identifier: MIT
 *
 * What a rank of a job needs, before the job is started: descriptors, threads and memory. Each
 * number repeats what the set-up does; tests/cli/dry_run.sh compares them with running jobs.
 */
#include "engine/train/train_room_priv.h"

#include <sched.h>

#define FDS_OF_RANK 5 /* standard streams, the pipe to the supervisor, the disk's counters */
#define SYNC_WINDOWS                                                                               \
    3 /* of the group itself, of gradients or sparse lists, of a stop (run_stop.c) */
#define ASYNC_WINDOWS 4                  /* of the group itself, shards, slots, and the board */
#define PROGRAM_BYTES ((size_t)3 << 20)  /* memory of the program and its libraries, a rank */
#define LIBRARY_BYTES ((size_t)10 << 20) /* code that the ranks of a host share */
#define RUN_FDS 24                       /* files of a run folder, at most */
#define RUN_BYTES ((size_t)7 << 20)      /* records that wait to be written */
#define SAMPLES_GUESS 1000000 /* the data is not open yet; no need depends on its length */

static int cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set)
                                                                               : 1;
}

static int team(const struct vb_train_opts *o, int on_host)
{
    int own = cpus() / (on_host > 0 ? on_host : 1);

    return o->place.threads > 0 ? o->place.threads : own > 0 ? own : 1;
}

/* As batches_ahead() of train.c decides. The loader of sparse rows replaces a computing thread. */
static int loaders(const struct vb_train_opts *o, const struct vb_train_model *row,
                   const struct vb_layer_table *layers, int on_host)
{
    bool lacks_cpu = on_host * team(o, on_host) > cpus() || cpus() / on_host <= 1;

    if ((layers != NULL && layers->pixels) || row->sparse)
        return 0;
    return lacks_cpu && o->mode != VB_MODE_ASYNC ? 0 : 1;
}

/* The rank of a host that keeps copies for the others (train_copies.c) has their page open, and a
 * descriptor of each copy. */
static int copies(const struct vb_train_opts *o, const struct vb_layer_table *layers, int on_host)
{
    if (on_host <= 1 && o->join.words == NULL)
        return 0;
    return 2 + (layers != NULL && layers->pixels ? 2 : 0);
}

/* Ranks that share the update have their parameters in a window. */
static bool shares_update(const struct vb_train_opts *o, size_t n_params, int on_host)
{
    int64_t least = o->sums.shared_update_min;
    bool mapped = o->group.transport == VB_TRANSPORT_AUTO || o->group.transport == VB_TRANSPORT_SHM;

    return mapped && on_host == o->group.world && n_params <= VB_K_JOINT_MAX &&
           (least > 0 ? (int64_t)(n_params * sizeof(float)) >= least
                      : n_params >= VB_K_JOINT_LEAST);
}

static size_t on_pages(size_t bytes)
{
    size_t huge = (size_t)2 << 20, unit = bytes >= huge ? huge : 4096;

    return (bytes + unit - 1) / unit * unit;
}

/* The outputs of all layers, two buffers as large as the largest output, and a batch of input. */
static vb_status work_bytes(const struct vb_layer_table *layers, int batch, size_t *bytes_p)
{
    struct vb_k_shape s[VB_LAYERS_MAX];
    size_t sum = 0, max = 0, n;
    vb_status st = vb_layer_table_shapes(layers, batch, s);
    int i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < layers->n_layers; i++) {
        n = vb_k_shape_outputs(&s[i]);
        sum += n;
        max = n > max ? n : max;
    }
    sum += 2 * max + 2 * (size_t)batch * (size_t)s[0].c * (size_t)s[0].h * (size_t)s[0].w;
    *bytes_p = sum * sizeof(float);
    return VB_OK;
}

static vb_status dense_memory(const struct vb_train_opts *o, const struct vb_layer_table *layers,
                              bool shared, struct vb_train_need *need)
{
    struct vb_coll_opts coll = o->sums.coll;
    size_t n = vb_layer_table_params(layers), copies = o->group.world > 1 ? 2 : 1;
    bool beside = o->save.dir != NULL && o->save.every > 0; /* rank 0 writes checkpoints */
    struct vb_recipe recipe;
    vb_status st = vb_recipe_make(o, SAMPLES_GUESS, NULL, NULL, &recipe);

    if (st != VB_OK)
        return st;
    coll.in_flight = VB_BUCKET_REQUESTS;
    copies += beside ? 1 : 0;
    need->params_bytes = (n + 15) / 16 * 16 * sizeof(float) * copies *
                         (1 + (size_t)vb_k_rule_states(recipe.rule.kind));
    if (shared)
        need->params_bytes += VB_K_NORM_PARTS * sizeof(double);
    need->params_bytes = on_pages(need->params_bytes);
    if (vb_until_keeps(o)) /* the best ones, with their state */
        need->params_bytes += on_pages((beside ? 2 : 1) * n * sizeof(float) *
                                       (1 + (size_t)vb_k_rule_states(recipe.rule.kind)));
    need->windows_bytes =
        on_pages(o->group.world > 1 ? vb_coll_need(o->group.world, (n + 1) * sizeof(float), &coll)
                                    : n * sizeof(float));
    st = work_bytes(layers, recipe.global_batch / o->group.world + 1, &need->work_bytes);
    need->memory_known = true;
    return st;
}

/* The parameter server's groups have a member more for each server that is a thread of a rank, and
 * such a rank is a member twice. */
static void count_async(const struct vb_train_opts *o, bool progress, struct vb_group_plan *plan,
                        struct vb_train_need *need)
{
    int servers = o->async.dedicated ? 0 : vb_train_servers(&o->async);
    struct vb_group_need group;

    plan->near_peers += plan->near_peers == plan->world - 1 ? servers : 0;
    plan->world += servers;
    plan->windows = ASYNC_WINDOWS;
    plan->elastic = true;
    plan->agrees = false;
    plan->progress = progress;
    vb_group_need(plan, &group);
    /* two members of one process keep no pidfd of each other */
    need->fds += servers > 0 ? 2 * (group.fds - 1) : group.fds;
    need->fds += servers > 0;                               /* the disk's counters of the server */
    need->threads += group.threads + (servers > 0 ? 2 : 0); /* the server and its control thread */
    need->peers_bytes = group.bytes;
}

vb_status vb_train_need(const struct vb_train_opts *o, int on_host, struct vb_train_need *need_p)
{
    const struct vb_train_model *row = vb_train_model_find(o->model);
    const struct vb_layer_table *layers =
        row->sparse ? NULL : vb_layer_table_find(vb_train_net_of(row, o->data.input)->name);
    bool async = o->mode == VB_MODE_ASYNC;
    bool elastic = o->elastic && !async && o->group.world > 1; /* also in a dry run */
    bool shared = layers != NULL && shares_update(o, vb_layer_table_params(layers), on_host);
    struct vb_group_plan plan = {.world = o->group.world,
                                 .near_peers = on_host - 1,
                                 .transport = o->group.transport,
                                 .progress = row->progress,
                                 .elastic = elastic,
                                 .agrees = elastic,
                                 .windows = SYNC_WINDOWS + (shared ? 1 : 0)};
    struct vb_train_need need = {.on_host = on_host, .fds = FDS_OF_RANK};
    struct vb_group_need group = {0};
    vb_status st = VB_OK;

    need.fds += copies(o, layers, on_host);
    if (o->save.dir != NULL)
        need.fds += 2; /* rank 0 keeps the lock of the folder open, and writes files */
    need.fds += o->ledger != NULL;
    /* through which the supervisor says which ranks have ended, and answers */
    need.fds += elastic || (async && o->group.world > 1);
    if (o->run.dir != NULL)
        need.fds += RUN_FDS + vb_sampler_fds(true);
    need.program_bytes = PROGRAM_BYTES + (o->run.dir != NULL ? RUN_BYTES : 0);
    need.host_bytes = LIBRARY_BYTES;
    need.threads = team(o, on_host) + loaders(o, row, layers, on_host) + 1; /* the recorder */
    need.threads += o->save.dir != NULL ? 1 : 0;
    need.threads += elastic; /* reads what the supervisor says */
    if (async) {
        count_async(o, row->progress, &plan, &need);
    } else if (plan.world > 1) {
        vb_group_need(&plan, &group);
        need.fds += group.fds;
        need.threads += group.threads;
        need.peers_bytes = group.bytes;
    }
    if (!async && layers != NULL)
        st = dense_memory(o, layers, shared, &need);
    if (st == VB_OK)
        *need_p = need;
    return st;
}

size_t vb_train_need_rank(const struct vb_train_need *need)
{
    return need->program_bytes + need->params_bytes + need->windows_bytes + need->work_bytes +
           need->peers_bytes;
}

size_t vb_train_need_host(const struct vb_train_need *need)
{
    return need->host_bytes + (size_t)need->on_host * vb_train_need_rank(need);
}
