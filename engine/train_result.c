/* SPDX-License-Identifier: MIT
 *
 * Where the time of a rank went, and the figures of all ranks brought together.
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What ranks tell each other at the end. */
struct record {
    int64_t correct;
    double loss;
    struct vb_rank_result result;
    char params_sha256[65];
};

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

static void fill_record(const struct vb_train_end *end, struct record *record)
{
    struct vb_rank_result *r = &record->result;

    memset(record, 0, sizeof(*record));
    fill_rank(end->laps, end->opts->group.rank, r);
    fill_registered(end->group, r);
    record->correct = end->correct;
    record->loss = end->loss;
    gethostname(r->host, sizeof(r->host) - 1);
    vb_sha256(end->model->params, end->model->n_params * sizeof(float), record->params_sha256);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static vb_status gather(const struct vb_train_end *end, struct record *all)
{
    struct record own;

    fill_record(end, &own);
    if (end->group != NULL)
        return vb_group_gather(end->group, &own, sizeof(own), all);
    *all = own;
    return VB_OK;
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

static void summarise(const struct vb_train_end *end, const struct record *all,
                      struct vb_train_result *result)
{
    int64_t correct = 0;
    double loss = 0;
    int i;

    result->steps = end->opts->steps;
    result->epochs = (double)result->steps / vb_train_steps_per_epoch(end->opts);
    result->test_samples = end->opts->data.n_test;
    result->params = (int64_t)end->model->n_params;
    memcpy(result->params_sha256, all[0].params_sha256, sizeof(result->params_sha256));
    if (end->group != NULL)
        snprintf(result->transport, sizeof(result->transport), "%s",
                 vb_group_transports(end->group));
    for (i = 0; i < result->ranks; i++) {
        result->per_rank[i] = all[i].result;
        add_rank(result, &all[i]);
        correct += all[i].correct;
        loss += all[i].loss;
    }
    result->accuracy = (double)correct / result->test_samples;
    result->loss = loss / result->test_samples;
}

vb_status vb_train_collect(const struct vb_train_end *end, struct vb_train_result *result_p)
{
    struct vb_train_result result = {.ranks = end->opts->group.world};
    struct record *all;
    vb_status st;

    all = calloc((size_t)result.ranks, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    result.per_rank = calloc((size_t)result.ranks, sizeof(*result.per_rank));
    if (result.per_rank == NULL) {
        st = vb_err_sys("calloc");
        goto out_all;
    }
    st = gather(end, all);
    if (st == VB_OK)
        st = compare(all, result.ranks);
    if (st == VB_OK) {
        summarise(end, all, &result);
        *result_p = result;
    } else {
        free(result.per_rank);
    }
out_all:
    free(all);
    return st;
}

void vb_train_result_fini(struct vb_train_result *result)
{
    free(result->per_rank);
    result->per_rank = NULL;
}
