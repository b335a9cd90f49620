/* SPDX-License-Identifier: MIT
 *
 * Measures where the time of a rank goes, and combines the figures of all ranks.
 */
#include "engine/train/train_room_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LATE_MAX 128    /* maximum number of ranks in a job that reports stragglers */
#define EVALS_MAX 10000 /* maximum number of evaluations kept; beyond, every second is dropped */

/* The figures that each rank sends to the others at the end. */
struct record {
    struct vb_rank_result result;
    char params_sha256[65];
    struct vb_noise noise;
};

_Static_assert(LATE_MAX * sizeof(struct vb_wait_stats) <= VB_RECORD_MAX, "fits into one message");
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
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void vb_laps_begin(struct vb_laps *laps)
{
    memset(laps, 0, sizeof(*laps));
    laps->cpu_begin_s = cpu_seconds();
    laps->begin_ns = laps->mark_ns = vb_clock_ns();
}

double vb_laps_steps_s(const struct vb_laps *laps)
{
    uint64_t other_ns = laps->ns[VB_PHASE_EVAL] + laps->ns[VB_PHASE_CHECKPOINT];

    return (double)(laps->mark_ns - laps->begin_ns - other_ns) / 1e9;
}

void vb_lap(struct vb_laps *laps, enum vb_phase phase)
{
    uint64_t now = vb_clock_ns();

    laps->ns[phase] += now - laps->mark_ns;
    laps->mark_ns = now;
}

void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns)
{
    ns = ns < laps->ns[from] ? ns : laps->ns[from];
    laps->ns[from] -= ns;
    laps->ns[to] += ns;
}

void vb_lap_comm(struct vb_laps *laps, struct vb_group *group)
{
    uint64_t before = laps->mark_ns, late_ns, wait;

    if (group == NULL)
        return;
    vb_lap(laps, VB_PHASE_COMM);
    late_ns = vb_group_wait_total_ns(group);
    wait = late_ns - laps->late_ns;
    laps->late_ns = late_ns;
    if (wait > laps->mark_ns - before)
        wait = laps->mark_ns - before;
    vb_lap_move(laps, VB_PHASE_COMM, VB_PHASE_WAIT, wait);
}

/* ---- this rank ------------------------------------------------------------------------------- */

/* The sampler looks a moment after the last step, in which others may have used the CPU. What was
 * moved was moved during training, so averages are over train_s, as those of other figures. */
void vb_train_fill_host(const struct vb_trainer *t, enum vb_sampler_part part,
                        struct vb_rank_result *r)
{
    struct vb_usage usage = vb_sampler_usage(t->record.sampler, part);
    double longer = r->train_s > 0 ? usage.seconds / r->train_s : 0;
    struct rusage ru;

    r->cpu_pct_peak = usage.cpu_pct_peak;
    r->send_mb_s = usage.send_mb_s * longer;
    r->send_mb_s_peak = usage.send_mb_s_peak;
    r->recv_mb_s = usage.recv_mb_s * longer;
    r->recv_mb_s_peak = usage.recv_mb_s_peak;
    r->disk_read_mb_s = usage.disk_read_mb_s * longer;
    r->disk_read_mb_s_peak = usage.disk_read_mb_s_peak;
    r->disk_write_mb_s = usage.disk_write_mb_s * longer;
    r->disk_write_mb_s_peak = usage.disk_write_mb_s_peak;
    r->queue_s = usage.queue_s;
    r->thread_s = usage.thread_s;
    r->host_busy_s = usage.host_busy_s;
    r->machine = usage.machine;
    getrusage(RUSAGE_SELF, &ru);
    r->rss_peak_mb = (double)ru.ru_maxrss * 1024 / 1e6;
    gethostname(r->host, sizeof(r->host) - 1);
}

static void raise_to(double *peak, double average)
{
    *peak = *peak > average ? *peak : average;
}

void vb_train_raise_peaks(struct vb_rank_result *r)
{
    raise_to(&r->cpu_pct_peak, r->cpu_pct);
    raise_to(&r->send_mb_s_peak, r->send_mb_s);
    raise_to(&r->recv_mb_s_peak, r->recv_mb_s);
    raise_to(&r->disk_read_mb_s_peak, r->disk_read_mb_s);
    raise_to(&r->disk_write_mb_s_peak, r->disk_write_mb_s);
}

void vb_train_fill_rank(struct vb_trainer *t, struct vb_group *group, struct vb_rank_result *r)
{
    const struct vb_laps *laps = &t->laps;
    uint64_t bytes = 0;
    int p;

    memset(r, 0, sizeof(*r));
    r->rank = t->id;
    r->accuracy = t->evals.accuracy;
    r->train_s = (double)(laps->mark_ns - laps->begin_ns) / 1e9;
    vb_train_fill_host(t, VB_PART_RANK, r);
    if (r->disk_write_mb_s > 0) /* otherwise checkpoints are kept in memory */
        raise_to(&r->disk_write_mb_s_peak, t->saved.mb_s);
    for (p = 0; p < VB_PHASES; p++)
        r->phase_s[p] = (double)laps->ns[p] / 1e9;
    r->cpu_pct = r->train_s > 0 ? 100 * (cpu_seconds() - laps->cpu_begin_s) / r->train_s : 0;
    if (group != NULL)
        vb_group_registered(group, &bytes, &r->register_s);
    r->registered_mb = (double)bytes / 1e6;
    t->record.told_lost = vb_train_record_lost(t);
    r->records_lost = (int64_t)t->record.told_lost;
}

vb_status vb_train_fill_params(struct vb_trainer *t, struct vb_train_result *r)
{
    size_t n;
    const float *params = t->ops->params(t, &n);

    if (params == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu parameters", n);
    r->params = (int64_t)n;
    if (!t->replay.on) /* otherwise they are still those of the beginning */
        vb_sha256(params, n * sizeof(float), r->params_sha256);
    return VB_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

void vb_train_take_sum(struct vb_trainer *t, int64_t step, const struct vb_eval_sum *sum)
{
    t->evals.accuracy = (double)sum->correct / t->data.n_test;
    t->evals.loss = sum->loss / t->data.n_test;
    vb_health_evaluated(t, step, sum);
}

/* An evaluation as a member knows it. */
struct known {
    int64_t step; /* -1: none */
    struct vb_eval_sum sum;
};

/* A member may have completed an evaluation that others have not, when the members changed. The
 * members of the new view take its result: theirs would be rounded differently, and parameters that
 * this member has replaced since (vb_until_settle()) could not be evaluated again. */
static vb_status find_known(struct vb_trainer *t, struct vb_eval_sum *sum, bool *found_p)
{
    struct known own = {.step = t->evals.sum_step, .sum = t->evals.sum}, all[VB_WORLD_MAX];
    vb_status st;
    int r;

    *found_p = false;
    if (t->evals.view == t->view)
        return VB_OK;
    st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    for (r = 0; r < t->world && st == VB_OK && !*found_p; r++) {
        *found_p = all[r].step == t->step;
        *sum = all[r].sum;
    }
    return st;
}

static vb_status sum_up(struct vb_trainer *t, struct vb_eval_sum *sum)
{
    struct vb_eval_sum own = {0}, *all = calloc((size_t)t->world, sizeof(*all));
    int first, n, r;
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    vb_share(t->data.n_test, t->rank, t->world, &first, &n);
    st = t->ops->evaluate(t, first, n, &own);
    all[0] = own;
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_gather(t->place.group, &own, sizeof(own), all);
    *sum = (struct vb_eval_sum){0};
    for (r = 0; r < t->world; r++) { /* summed in rank order, so that all ranks get the same bits */
        sum->correct += all[r].correct;
        sum->loss += all[r].loss;
        vb_eval_class(&sum->labels, all[r].labels);
        vb_eval_class(&sum->predicted, all[r].predicted);
    }
    free(all);
    return st;
}

vb_status vb_train_evaluate(struct vb_trainer *t)
{
    struct vb_eval_sum sum = {0};
    uint64_t begin_ns;
    bool known;
    vb_status st;

    if (t->replay.on) /* nothing was learnt */
        return VB_OK;
    begin_ns = vb_trace_begin();
    vb_train_does(t, VB_DOES_EVALUATE);
    vb_trace_pause(true); /* its layers are not those of training */
    st = find_known(t, &sum, &known);
    if (st == VB_OK && !known)
        st = sum_up(t, &sum);
    vb_trace_pause(false);
    vb_trace_end(begin_ns, VB_OP_EVALUATE, 0);
    if (st == VB_OK) {
        t->evals.sum = sum;
        t->evals.sum_step = t->step;
        t->evals.view = t->view;
        vb_train_take_sum(t, t->step, &sum);
    }
    vb_lap(&t->laps, VB_PHASE_EVAL);
    vb_train_does(t, VB_DOES_COMPUTE);
    return st;
}

vb_status vb_train_make_room(struct vb_trainer *t)
{
    int64_t every = t->evals.every, n;

    if (every <= 0 || t->serves || t->o->dry_run)
        return VB_OK;
    /* There are at least two entries, so that dropping every second one frees an entry. */
    n = t->recipe.steps / every + 2;
    t->evals.max = n < EVALS_MAX ? (int)n : EVALS_MAX;
    t->evals.gap = 1;
    t->evals.list = calloc((size_t)t->evals.max, sizeof(*t->evals.list));
    return t->evals.list != NULL ? VB_OK : vb_err_sys("calloc");
}

void vb_train_keep_eval(struct vb_trainer *t, int64_t step)
{
    int64_t number;
    int i;

    if (!t->async && step == t->evals.kept_step) /* before the members changed */
        return;
    t->evals.kept_step = step;
    number = t->evals.seen++;
    vb_train_record_eval(t, step);
    if (t->evals.list == NULL)
        return;
    if (t->evals.n == t->evals.max) { /* drop every second evaluation */
        for (i = 1; 2 * i < t->evals.n; i++)
            t->evals.list[i] = t->evals.list[2 * i];
        t->evals.n = i;
        t->evals.gap *= 2;
    }
    if (number % t->evals.gap == 0)
        t->evals.list[t->evals.n++] =
            (struct vb_eval){.step = step, .accuracy = t->evals.accuracy, .loss = t->evals.loss};
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static vb_status gather(struct vb_trainer *t, struct record *all, struct vb_train_result *result)
{
    struct record own;
    vb_status st;

    memset(&own, 0, sizeof(own));
    vb_train_fill_rank(t, t->place.group, &own.result); /* before the digest takes cpu time */
    vb_train_raise_peaks(&own.result);
    st = vb_train_fill_params(t, result);
    memcpy(own.params_sha256, result->params_sha256, sizeof(own.params_sha256));
    own.noise = t->noise.sums;
    if (st == VB_OK && t->place.group != NULL)
        return vb_group_gather(t->place.group, &own, sizeof(own), all);
    *all = own;
    return st;
}

/* The rank that reports measures what its machine can do, now that nothing is trained. */
static void fill_machine(const struct vb_trainer *t, struct vb_train_result *r)
{
    struct vb_result_machine *m = &r->machine;
    int pieces = (vb_trainer_share(t) - 1) / vb_trainer_batch(t) + 1;

    m->cpus = CPU_COUNT(&t->cpus);
    m->threads = vb_k_threads();
    m->link = t->sums.link;
    m->requests = t->sums.requests;
    m->forecast = t->sums.forecast;
    m->gflop = t->ops->flops != NULL ? t->ops->flops(t) * pieces / 1e9 : 0;
    if (!r->reports || r->steps <= r->resumed || t->replay.on)
        return;
    m->gflop_s = vb_k_gemm_glance();
    m->gb_s = vb_k_memory_glance();
}

static void fill_saved(const struct vb_trainer *t, struct vb_train_result *r)
{
    r->pause_s = t->saved.pause_s;
    r->save_s = t->saved.write_s;
    r->saves_skipped = t->saved.skipped;
    snprintf(r->checkpoint, sizeof(r->checkpoint), "%s", t->saved.path);
}

static void fill_sums(const struct vb_trainer *t, struct vb_train_result *r)
{
    if (t->async) {
        snprintf(r->transport, sizeof(r->transport), "%s", t->sums.transport);
        r->apart = vb_train_apart(t->o);
        r->order = r->apart ? NULL : "rank";
        r->algo = t->sums.algo;
    } else if (t->place.group != NULL) {
        snprintf(r->transport, sizeof(r->transport), "%s", vb_group_transports(t->place.group));
        r->order = t->o->sums.coll.order == VB_ORDER_RANK ? "rank" : "any";
        r->algo = t->sums.algo;
        r->wire = t->o->sums.coll.wire == VB_WIRE_BF16 ? "bf16" : "f32";
    }
}

static void fill_means(struct vb_train_result *r)
{
    int i, p;

    for (i = 0; i < r->workers; i++) {
        r->train_s += r->per_rank[i].train_s / r->workers;
        for (p = 0; p < VB_PHASES; p++)
            r->phase_s[p] += r->per_rank[i].phase_s[p] / r->workers;
    }
    r->step_s = r->train_s - r->phase_s[VB_PHASE_EVAL] - r->phase_s[VB_PHASE_CHECKPOINT];
}

/* These belong to the result from now on. */
static void move_to(struct vb_trainer *t, struct vb_train_result *r)
{
    if (t->kernels.text != NULL && t->kernels.text[0] != '\0')
        vb_sha256(t->kernels.text, strlen(t->kernels.text), r->plan_sha256);
    r->plan = t->kernels.text;
    t->kernels.text = NULL;
    r->evals = t->evals.list;
    r->n_evals = t->evals.n;
    t->evals.list = NULL;
}

void vb_train_fill_run(struct vb_trainer *t, struct vb_train_result *r)
{
    r->batch = vb_trainer_share(t);
    r->global_batch = t->recipe.global_batch;
    r->steps = t->step;
    r->stopped = t->stopped;
    r->resumed = t->resumed;
    r->epochs = (double)t->step / (double)t->recipe.steps_per_epoch;
    r->lr = t->recipe.schedule.base;
    r->chosen = t->recipe.chosen;
    r->improving = vb_train_improving(&t->tenths);
    if (t->async)
        vb_train_noise_result(t, NULL, 0, r);
    r->accuracy = t->evals.accuracy;
    r->loss = t->evals.loss;
    r->test_samples = t->data.n_test;
    r->until = t->until.result;
    if (r->until.params_step < 0) /* nothing was chosen */
        r->until.params_step = t->step;
    r->classes = t->data.train.classes;
    fill_saved(t, r);
    fill_sums(t, r);
    move_to(t, r);
    fill_means(r);
    fill_machine(t, r);
    vb_train_find_bottleneck(r, t->async && t->o->async.bounded);
}

/* Fills in late_n, late_s and late_max_s. For each rank, the result has the waiting time of the
 * rank that waited for it the longest. What was waited for is counted in the group of now, and told
 * by the id, which a rank keeps. */
static vb_status collect_late(struct vb_trainer *t, struct vb_train_result *result)
{
    struct vb_wait_stats own[LATE_MAX] = {0}, (*all)[LATE_MAX], *late;
    vb_status st;
    int i, k, rank;

    if (t->place.group == NULL || result->ranks > LATE_MAX || t->async)
        return VB_OK;
    all = calloc((size_t)t->world, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < LATE_MAX; i++) {
        rank = vb_group_rank_of_id(t->place.group, i);
        if (rank >= 0)
            own[i] = vb_group_wait_stats(t->place.group, rank);
    }
    st = vb_group_gather(t->place.group, own, sizeof(own), all);
    for (i = 0; i < t->world && st == VB_OK; i++)
        for (k = 0; k < result->rows; k++) {
            struct vb_rank_result *r = &result->per_rank[k];

            if (r->rank >= LATE_MAX)
                continue;
            late = &all[i][r->rank];
            if ((double)late->ns / 1e9 <= r->late_s)
                continue;
            r->late_n = (int64_t)late->n;
            r->late_s = (double)late->ns / 1e9;
            r->late_max_s = (double)late->max_ns / 1e9;
        }
    free(all);
    return st;
}

/* Adds up what the ranks have measured of the gradient noise. */
static void collect_noise(struct vb_trainer *t, const struct record *all,
                          struct vb_train_result *result)
{
    struct vb_noise *noise = calloc((size_t)result->rows, sizeof(*noise));
    int i;

    for (i = 0; noise != NULL && i < result->rows; i++)
        noise[i] = all[i].noise;
    vb_train_noise_result(t, noise, noise != NULL ? result->rows : 0, result);
    free(noise);
}

static bool is_member(const struct vb_trainer *t, int id)
{
    int place;

    for (place = 0; place < t->world; place++)
        if (vb_group_id(t->place.group, vb_group_view_member(t->place.group, place)) == id)
            return true;
    return false;
}

/* Lists the ranks of the start that are no members of the view. */
static vb_status list_lost(const struct vb_trainer *t, struct vb_train_result *r)
{
    int id;

    if (t->async || t->place.group == NULL)
        return VB_OK;
    r->lost = calloc((size_t)r->ranks, sizeof(*r->lost));
    if (r->lost == NULL)
        return vb_err_sys("calloc");
    for (id = 0; id < r->ranks; id++)
        if (!is_member(t, id))
            r->lost[r->n_lost++] = id;
    return VB_OK;
}

static vb_status collect_all(struct vb_trainer *t, struct record *all,
                             struct vb_train_result *result)
{
    vb_status st = gather(t, all, result);
    int i;

    for (i = 1; i < t->world && st == VB_OK; i++)
        if (strcmp(all[i].params_sha256, all[0].params_sha256) != 0)
            st = vb_err(VB_ERR_INPUT, "rank %d ended with different parameters than rank %d",
                        all[i].result.rank, all[0].result.rank);
    if (st == VB_OK)
        st = list_lost(t, result);
    if (st != VB_OK)
        return st;
    for (i = 0; i < t->world; i++)
        result->per_rank[i] = all[i].result;
    result->rows = result->workers = t->world;
    result->reports = t->leads;
    result->samples = t->samples;
    collect_noise(t, all, result);
    return collect_late(t, result);
}

/* Members that were collected before have changed. */
static void take_back(struct vb_trainer *t, struct vb_train_result *result)
{
    if (result->plan != NULL)
        t->kernels.text = result->plan;
    if (result->evals != NULL)
        t->evals.list = result->evals;
    result->plan = NULL;
    result->evals = NULL;
    vb_train_result_fini(result);
}

vb_status vb_train_collect(struct vb_trainer *t, struct vb_train_result *result)
{
    size_t n = t->place.group != NULL ? (size_t)vb_group_world(t->place.group) : 1;
    struct record *all =
        calloc(n, sizeof(*all)); /* n is larger than world if a dry run has dedicated servers */
    vb_status st = VB_ERR_NO_MEMORY;

    take_back(t, result);
    result->ranks = vb_train_workers(t->o);
    result->per_rank = calloc((size_t)t->world, sizeof(*result->per_rank));
    if (all != NULL && result->per_rank != NULL)
        st = collect_all(t, all, result);
    free(all);
    if (st == VB_OK)
        vb_train_fill_run(t, result);
    if (st == VB_OK)
        st = vb_train_recovery_faults(t, result);
    return st == VB_OK ? vb_train_save_faults(t, result) : st;
}

void vb_train_result_fini(struct vb_train_result *result)
{
    free(result->per_rank);
    free(result->lost);
    free(result->staleness);
    free(result->faults);
    free(result->evals);
    free(result->plan);
    free(result->clocks);
    free(result->warnings);
    memset(result, 0, sizeof(*result));
}
