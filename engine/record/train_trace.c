/* SPDX-License-Identifier: MIT */
#include "engine/train/trainer.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EVENTS                                                                                     \
    32768 /* of a thread that may wait for the recorder, which comes ten times a second */
#define WAIT_NS 3000000000u /* how long the rank that leads waits for the files of the others */
#define NAP_NS 10000000

static bool wants_events(const struct vb_trainer *t)
{
    return t->o->run.trace_to > 0;
}

/* An update reads parameters, gradients and state, and writes parameters and state. */
static void describe(struct vb_trainer *t)
{
    int words = 3 + 2 * vb_k_rule_states(t->recipe.rule.kind);

    vb_trace_describe(t->trace.trace, VB_OP_UPDATE, 0, words);
    vb_trace_describe(t->trace.trace, VB_OP_APPLY, 0, words);
}

/* The output of a sparse operation counts as one float for each entry that it computes with. It
 * reads an index and a value for each, and reads or changes a float that the index names. */
static void describe_sparse(struct vb_trainer *t)
{
    struct vb_trace_op op = {.layer = "linear", .pass = "forward", .op = "rows", .flops = 0.5};

    op.moved = 3;
    t->trace.forward = vb_trace_op(t->trace.trace, &op);
    snprintf(op.pass, sizeof(op.pass), "backward");
    op.moved = 4;
    t->trace.backward = vb_trace_op(t->trace.trace, &op);
    snprintf(op.pass, sizeof(op.pass), "update");
    op.moved = 4 + 2 * vb_k_rule_states(t->recipe.rule.kind);
    t->trace.update = vb_trace_op(t->trace.trace, &op);
}

vb_status vb_train_trace_open(struct vb_trainer *t)
{
    vb_status st;

    if (t->o->run.dir == NULL || t->eval_only)
        return VB_OK;
    st = vb_trace_create(wants_events(t) ? EVENTS : 0, &t->trace.trace);
    if (st == VB_OK)
        vb_trace_attach(t->trace.trace, "main");
    return st;
}

vb_status vb_train_trace_files(struct vb_trainer *t)
{
    if (t->trace.trace == NULL)
        return VB_OK;
    describe(t);
    if (t->model.row->sparse)
        describe_sparse(t);
    return vb_trace_files_open(t->record.rec, t->trace.trace, wants_events(t) ? EVENTS : 0,
                               t->number, vb_k_threads(), &t->trace.files);
}

void vb_train_trace_begin(struct vb_trainer *t)
{
    vb_trace_count(t->trace.trace);
    vb_train_trace_step(t, t->step + 1);
}

void vb_train_trace_step(struct vb_trainer *t, int64_t step)
{
    if (wants_events(t))
        vb_trace_set(t->trace.trace, step >= t->o->run.trace_from && step <= t->o->run.trace_to);
}

void vb_train_trace_end(struct vb_trainer *t)
{
    vb_trace_set(t->trace.trace, false);
}

void vb_train_trace_close(struct vb_trainer *t)
{
    vb_trace_detach();
    if (vb_trace_files_free(t->trace.files))
        vb_trace_destroy(t->trace.trace);
    t->trace = (struct vb_trainer_trace){0};
}

/* ---- one trace of all ranks ------------------------------------------------------------------ */

/* Returns one more than the highest rank that has files. In asynchronous training ranks join. */
static int count_ranks(const struct vb_trainer *t)
{
    int n = t->o->group.world, rank;
    DIR *dir = t->async ? opendir(t->o->run.dir) : NULL;
    struct dirent *entry;
    char rest;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (sscanf(entry->d_name, "rank%d%c", &rank, &rest) == 1 && rank >= n &&
            rank < VB_WORLD_MAX)
            n = rank + 1;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static bool all_ended(const struct vb_trainer *t, int n, struct vb_trace_names *names)
{
    const char *dir = t->o->run.dir;
    int rank;

    for (rank = 0; rank < n; rank++)
        if (!vb_train_is_lost(t, rank) && vb_trace_names_read(dir, rank, names) == VB_OK &&
            !names->ended)
            return false;
    return true;
}

/* The other ranks write their last events at the same time as this one. A rank that was lost never
 * ends its files. */
static void wait_for_files(const struct vb_trainer *t, int n)
{
    struct vb_trace_names *names = malloc(sizeof(*names));
    uint64_t deadline = vb_clock_ns() + WAIT_NS;
    struct timespec nap = {.tv_nsec = NAP_NS};

    while (names != NULL && !all_ended(t, n, names) && vb_clock_ns() < deadline)
        nanosleep(&nap, NULL);
    free(names);
}

/* Puts the clocks in the order of ranks. NULL: all ranks have the clock of this rank. */
static struct vb_clock_fit *order_clocks(const struct vb_train_clock *clocks, int n_clocks, int n)
{
    struct vb_clock_fit *fits = n_clocks > 0 ? calloc((size_t)n, sizeof(*fits)) : NULL;
    int i;

    for (i = 0; fits != NULL && i < n_clocks; i++)
        if (clocks[i].rank >= 0 && clocks[i].rank < n)
            fits[clocks[i].rank] = clocks[i].fit;
    return fits;
}

static void report(const struct vb_trace_merged *m, const char *path)
{
    VB_LOG_INFO("%s: %llu events of %d ranks, %llu arrows, %.1f bytes an event", path,
                (unsigned long long)m->events, m->ranks, (unsigned long long)m->arrows,
                m->events > 0 ? (double)m->bytes / (double)m->events : 0);
    if (m->lost > 0)
        VB_LOG_WARN("%s lacks %llu events that found no room; trace fewer steps", path,
                    (unsigned long long)m->lost);
    if (m->recorded == 0)
        VB_LOG_WARN("%s is empty: no step of --trace was made", path);
}

void vb_train_trace_merge(const struct vb_trainer *t, const struct vb_train_clock *clocks,
                          int n_clocks)
{
    bool json = t->o->run.trace_format == VB_TRACE_JSON;
    struct vb_trace_merge_opts opts = {.dir = t->o->run.dir, .format = t->o->run.trace_format};
    struct vb_trace_merged merged;
    struct vb_clock_fit *fits;
    char path[4200];

    if (t->o->run.dir == NULL || !wants_events(t) || !t->leads || t->joiner != NULL ||
        t->o->dry_run)
        return;
    snprintf(path, sizeof(path), "%s/trace.%s", t->o->run.dir, json ? "json" : "pftrace");
    opts.path = path;
    opts.ranks = count_ranks(t);
    wait_for_files(t, opts.ranks);
    fits = order_clocks(clocks, n_clocks, opts.ranks);
    opts.clocks = fits;
    if (vb_trace_merge(&opts, &merged) == VB_OK)
        report(&merged, path);
    free(fits);
}
