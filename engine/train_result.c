/* SPDX-License-Identifier: MIT
 *
 * Where the time of a rank went, and the figures of all ranks brought together.
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LATE_MAX 128 /* ranks; of more, who was late is not told */

/* What ranks tell each other at the end. */
struct record {
    struct vb_rank_result result, server;
    bool serves;
    int64_t samples;
    char params_sha256[65];
    uint64_t n_params;
};

/* And how they waited for each other. */
struct late_table {
    struct vb_late of[LATE_MAX];
};

_Static_assert(sizeof(struct late_table) <= VB_RECORD_MAX, "a table fits into one message");

_Static_assert(sizeof(struct record) <= VB_RECORD_MAX, "a record fits into one message");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "parameters are digested as they lie");

const char *vb_phase_str(enum vb_phase phase)
{
    static const char *const names[VB_PHASES] = {
        [VB_PHASE_DATA] = "data",         [VB_PHASE_FORWARD] = "forward",
        [VB_PHASE_BACKWARD] = "backward", [VB_PHASE_COMM] = "comm_exposed",
        [VB_PHASE_WAIT] = "wait",         [VB_PHASE_UPDATE] = "update",
        [VB_PHASE_EVAL] = "eval",         [VB_PHASE_CHECKPOINT] = "checkpoint",
    };

    return names[phase];
}

/* ---- time ------------------------------------------------------------------------------------ */

static double cpu_seconds(void)
{
    struct rusage ru;

    getrusage(RUSAGE_SELF, &ru);
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

void vb_laps_begin(struct vb_laps *laps)
{
    memset(laps, 0, sizeof(*laps));
    laps->cpu_begin_s = cpu_seconds();
    laps->begin_ns = laps->mark_ns = vb_clock_ns();
}

void vb_lap(struct vb_laps *laps, enum vb_phase phase)
{
    uint64_t now = vb_clock_ns();

    laps->ns[phase] += now - laps->mark_ns;
    laps->mark_ns = now;
}

void vb_lap_comm(struct vb_laps *laps, struct vb_group *group)
{
    uint64_t before = laps->mark_ns, late_ns, wait;

    if (group == NULL)
        return;
    vb_lap(laps, VB_PHASE_COMM);
    late_ns = vb_group_late_ns(group);
    wait = late_ns - laps->late_ns;
    laps->late_ns = late_ns;
    if (wait > laps->mark_ns - before)
        wait = laps->mark_ns - before;
    laps->ns[VB_PHASE_COMM] -= wait;
    laps->ns[VB_PHASE_WAIT] += wait;
}

/* ---- this rank ------------------------------------------------------------------------------- */

static void fill_rank(const struct vb_laps *laps, int rank, struct vb_rank_result *r)
{
    struct rusage ru;
    int p;

    r->rank = rank;
    r->train_s = (double)(laps->mark_ns - laps->begin_ns) / 1e9;
    for (p = 0; p < VB_PHASES; p++)
        r->phase_s[p] = (double)laps->ns[p] / 1e9;
    r->cpu_pct = r->train_s > 0 ? 100 * (cpu_seconds() - laps->cpu_begin_s) / r->train_s : 0;
    getrusage(RUSAGE_SELF, &ru);
    r->rss_peak_mb = (double)ru.ru_maxrss * 1024 / 1e6;
}

static void fill_registered(struct vb_group *group, struct vb_rank_result *r)
{
    uint64_t bytes = 0;

    if (group != NULL)
        vb_group_registered(group, &bytes, &r->register_s);
    r->registered_mb = (double)bytes / 1e6;
}

/* The time of a server's thread is not the worker's. */
static void fill_async(struct vb_trainer *t, const struct vb_async *async, struct record *record)
{
    struct vb_rank_result *r = &record->result, *server = &record->server;

    r->accuracy = vb_async_accuracy(async);
    record->serves = vb_async_server_row(async, server);
    record->samples = t->samples;
    server->rank = t->rank < t->world ? t->world + t->rank : t->rank;
    server->rss_peak_mb = r->rss_peak_mb;
    memcpy(server->host, r->host, sizeof(server->host));
    if (record->serves && r->train_s > 0)
        r->cpu_pct -= server->cpu_pct * server->train_s / r->train_s;
}

static vb_status fill_record(struct vb_trainer *t, const struct vb_async *async,
                             struct record *record)
{
    struct vb_rank_result *r = &record->result;
    const float *params;
    size_t n;

    memset(record, 0, sizeof(*record));
    fill_rank(&t->laps, t->rank, r);
    fill_registered(t->place.group, r);
    gethostname(r->host, sizeof(r->host) - 1);
    r->accuracy = t->accuracy;
    if (async != NULL)
        fill_async(t, async, record);
    params = t->ops->params(t, &n);
    if (params == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu parameters", n);
    vb_sha256(params, n * sizeof(float), record->params_sha256);
    record->n_params = n;
    return VB_OK;
}

/* ---- test data ------------------------------------------------------------------------------- */

/* Those that compute, and dedicated servers. */
static int all_ranks(const struct vb_trainer *t)
{
    return t->place.group != NULL ? vb_group_world(t->place.group) : 1;
}

vb_status vb_train_evaluate(struct vb_trainer *t)
{
    struct vb_model_loss own = {0}, *all;
    int64_t correct = 0;
    double loss = 0;
    vb_status st = VB_OK;
    int first, n, r, ranks = all_ranks(t);

    all = calloc((size_t)ranks, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    if (t->rank < t->world) {
        vb_share(t->n_test, t->rank, t->world, &first, &n);
        st = t->ops->judge(t, first, n, &own);
    }
    all[0] = own;
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (r = 0; r < ranks; r++) { /* in rank order: the same bits on all */
        correct += all[r].correct;
        loss += all[r].loss;
    }
    free(all);
    t->accuracy = (double)correct / t->n_test;
    t->test_loss = loss / t->n_test;
    vb_lap(&t->laps, VB_PHASE_EVAL);
    return st;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static vb_status gather(struct vb_trainer *t, const struct vb_async *async, struct record *all)
{
    struct record own;
    vb_status st = fill_record(t, async, &own);

    if (st == VB_OK && t->place.group != NULL)
        return vb_group_gather(t->place.group, &own, sizeof(own), all);
    *all = own;
    return st;
}

static vb_status compare(const struct record *all, int n)
{
    int i;

    for (i = 1; i < n; i++)
        if (strcmp(all[i].params_sha256, all[0].params_sha256) != 0)
            return vb_err(VB_ERR_INPUT, "rank %d ended with other parameters than rank 0", i);
    return VB_OK;
}

static void add_rank(struct vb_train_result *result, const struct record *record)
{
    int p;

    result->train_s += record->result.train_s / result->ranks;
    for (p = 0; p < VB_PHASES; p++)
        result->phase_s[p] += record->result.phase_s[p] / result->ranks;
}

/* What is the same on all ranks. */
static void fill_run(struct vb_trainer *t, struct vb_train_result *r)
{
    r->batch = vb_trainer_share(t);
    r->global_batch = t->recipe.global_batch;
    r->steps = t->step;
    r->resumed = t->resumed;
    r->samples = t->samples;
    r->epochs = (double)t->step / (double)t->recipe.steps_per_epoch;
    r->lr = t->recipe.schedule.base;
    r->accuracy = t->accuracy;
    r->loss = t->test_loss;
    r->test_samples = t->n_test;
    r->classes = t->train.classes;
    r->pause_s = t->pause_s;
    snprintf(r->checkpoint, sizeof(r->checkpoint), "%s", t->checkpoint);
    if (t->plan_text != NULL)
        vb_sha256(t->plan_text, strlen(t->plan_text), r->plan_sha256);
    r->plan = t->plan_text;
    t->plan_text = NULL;
    if (t->async) {
        snprintf(r->transport, sizeof(r->transport), "%s", t->transport);
        r->order = vb_train_apart(t->o) ? NULL : "rank";
        r->algo = t->algo;
        return;
    }
    if (t->place.group == NULL)
        return;
    snprintf(r->transport, sizeof(r->transport), "%s", vb_group_transports(t->place.group));
    r->order = t->o->coll.order == VB_ORDER_RANK ? "rank" : "any";
    r->algo = t->algo;
}

/* The rank that waited the most for another tells how often and how long. */
static void add_late(struct vb_train_result *result, const struct late_table *table)
{
    struct vb_rank_result *r;
    int i;

    for (i = 0; i < result->ranks; i++) {
        r = &result->per_rank[i];
        if ((double)table->of[i].ns / 1e9 <= r->late_s)
            continue;
        r->late_n = (int64_t)table->of[i].n;
        r->late_s = (double)table->of[i].ns / 1e9;
        r->late_max_s = (double)table->of[i].max_ns / 1e9;
    }
}

static vb_status collect_late(struct vb_trainer *t, struct vb_train_result *result)
{
    struct late_table own = {0}, *all;
    vb_status st;
    int i;

    if (t->place.group == NULL || t->world > LATE_MAX || t->async)
        return VB_OK;
    all = calloc((size_t)t->world, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < t->world; i++)
        own.of[i] = vb_group_late(t->place.group, i);
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (i = 0; i < t->world && st == VB_OK; i++)
        add_late(result, &all[i]);
    free(all);
    return st;
}

static vb_status collect(struct vb_trainer *t, const struct vb_async *async, struct record *all,
                         struct vb_train_result *result)
{
    vb_status st = gather(t, async, all);
    int i;

    if (st == VB_OK)
        st = compare(all, result->ranks); /* servers have a part each */
    if (st != VB_OK)
        return st;
    fill_run(t, result);
    result->params = (int64_t)all[0].n_params;
    memcpy(result->params_sha256, all[0].params_sha256, sizeof(result->params_sha256));
    for (i = 0; i < result->ranks; i++) {
        result->per_rank[i] = all[i].result;
        add_rank(result, &all[i]);
    }
    result->rows = result->ranks;
    result->samples = async != NULL ? 0 : result->samples;
    for (i = 0; i < all_ranks(t) && async != NULL; i++)
        result->samples += all[i].samples;
    for (i = 0; i < all_ranks(t); i++)
        if (all[i].serves)
            result->per_rank[result->rows++] = all[i].server;
    st = collect_late(t, result);
    if (st == VB_OK && async != NULL)
        st = vb_async_staleness(t, async, result->per_rank, &result->staleness);
    vb_train_judge(result);
    return st;
}

vb_status vb_train_collect(struct vb_trainer *t, const struct vb_async *async,
                           struct vb_train_result *result_p)
{
    struct vb_train_result result = {.ranks = t->world};
    struct record *all = calloc((size_t)all_ranks(t), sizeof(*all));
    vb_status st = VB_ERR_NO_MEMORY;

    result.per_rank = calloc(2 * (size_t)all_ranks(t), sizeof(*result.per_rank));
    if (all != NULL && result.per_rank != NULL)
        st = collect(t, async, all, &result);
    if (st == VB_OK)
        *result_p = result;
    else
        vb_train_result_fini(&result);
    free(all);
    return st;
}

void vb_train_result_fini(struct vb_train_result *result)
{
    free(result->per_rank);
    free(result->staleness);
    free(result->plan);
    result->per_rank = NULL;
    result->plan = NULL;
}
