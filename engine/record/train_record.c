/* SPDX-License-Identifier: MIT */
#include "engine/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_ROWS 65536      /* steps that may wait for a slow disk */
#define RING_ROWS_DROPPED 64 /* without a run folder nothing has to wait */
#define EVAL_ROWS 64
#define NORM_NS 500000000u /* between two norms; one can take as long as a backward pass */
#define NAME_BYTES 96

_Static_assert(VB_RECORD_PHASES == VB_PHASES, "rows have one column a phase");

static vb_status drop(void *arg, const char *file, const void *bytes, size_t len_bytes)
{
    (void)arg;
    (void)file;
    (void)bytes;
    (void)len_bytes;
    return VB_OK;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Returns the last step that an earlier run has left in the file of this rank. */
static uint64_t step_in_file(const struct vb_trainer *t, const char *name)
{
    struct vb_series *series;
    char path[4200];
    double step = 0;
    int64_t rows;

    snprintf(path, sizeof(path), "%s/%s", t->o->run.dir, name);
    if (access(path, R_OK) != 0 || vb_series_open(path, &series) != VB_OK)
        return 0;
    rows = vb_series_rows(series);
    if (rows > 0)
        step = vb_series_value(series, rows - 1, vb_series_col(series, "step"));
    vb_series_close(series);
    return step > 0 ? (uint64_t)step : 0;
}

/* ---- the sampler ----------------------------------------------------------------------------- */

static void group_bytes(void *arg, uint64_t *sent_p, uint64_t *received_p)
{
    vb_group_bytes(arg, sent_p, received_p);
}

void vb_train_record_part(struct vb_trainer *t, enum vb_sampler_part part, struct vb_group *group)
{
    vb_sampler_source(t->record.sampler, part, group != NULL ? group_bytes : NULL, group);
}

/* The lowest rank of a machine samples the machine, and the lowest rank of a network namespace its
 * interfaces. A joiner does both, because it does not know who else is there. */
static vb_status open_sampler(struct vb_trainer *t)
{
    struct vb_sampler_opts opts = {.rank = t->id,
                                   .ranks_on_host = 1,
                                   .threads = vb_k_threads(),
                                   .write = t->o->run.dir != NULL,
                                   .host = true,
                                   .ports = true};
    const struct vb_group *group = t->place.group;
    int r;

    for (r = 0; group != NULL && r < vb_group_world(group); r++) {
        if (r == t->number || !vb_group_same_machine(group, r))
            continue;
        opts.ranks_on_host++;
        opts.host = opts.host && r > t->number;
        opts.ports = opts.ports && (r > t->number || !vb_group_same_net(group, r));
    }
    return vb_sampler_open(t->record.rec, &opts, &t->record.sampler);
}

/* In asynchronous training another worker evaluates when rank 0 is gone. In synchronous training
 * all ranks evaluate together, and the one that leads writes. */
static vb_status add_streams(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;
    bool kept = t->o->run.dir != NULL, apart = t->async && t->id != 0;
    int rows = kept ? RING_ROWS : RING_ROWS_DROPPED;
    char name[NAME_BYTES];
    vb_status st;

    snprintf(name, sizeof(name), "rank%d/steps.bin", t->id);
    if (kept && t->o->run.append)
        r->known_step = step_in_file(t, name);
    st = vb_recorder_stream(r->rec, name, &vb_kind_steps, rows, &r->steps);
    snprintf(name, sizeof(name), "rank%d/evals.bin", t->id);
    if (st == VB_OK && (t->leads || t->async || vb_train_is_elastic(t->o)))
        st = vb_recorder_stream(r->rec, apart ? name : "evals.bin", &vb_kind_evals, EVAL_ROWS,
                                &r->evals);
    return st;
}

static vb_status open_ship(struct vb_trainer *t, struct vb_record_sink *sink_p)
{
    const struct vb_train_run_opts *run = &t->o->run;
    struct vb_ship_opts opts = {.dir = run->dir,
                                .append = run->append,
                                .rank = t->id,
                                .elastic = vb_train_is_elastic(t->o),
                                .bytes_per_s = (uint64_t)ceil(run->record_mb_s * 1e6)};

    return vb_ship_open(&opts, &t->record.ship, sink_p);
}

static vb_status open_sink(struct vb_trainer *t, struct vb_recorder_opts *opts)
{
    if (t->o->group.world > 1 || t->joiner != NULL)
        return open_ship(t, &opts->sink);
    if (opts->dir == NULL)
        opts->sink.append = drop;
    return VB_OK;
}

static vb_status init_memory(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;

    pthread_mutex_init(&r->lock, NULL);
    r->has_lock = true;
    r->norm = t->noise.scale = t->noise.error = NAN;
    r->group = t->place.group;
    if (t->place.group == NULL || t->async)
        return VB_OK;
    r->waits_ns = calloc(VB_WORLD_MAX, sizeof(*r->waits_ns)); /* others may join */
    return r->waits_ns != NULL ? VB_OK : vb_err_sys("calloc");
}

/* What only the rank that leads shows to others. */
static vb_status open_board(struct vb_trainer *t)
{
    vb_status st = VB_OK;

    if (t->o->run.dir != NULL && (t->leads || vb_train_is_elastic(t->o)) && t->joiner == NULL &&
        !t->o->dry_run)
        st = vb_train_board_open(t);
    if (st == VB_OK && t->record.board != NULL)
        st = vb_train_metrics_open(t);
    return st;
}

/* The order of these is that of their ticks. */
static vb_status add_all(struct vb_trainer *t)
{
    vb_status st = add_streams(t);

    if (st == VB_OK)
        st = vb_train_recovery_open(t);
    if (st == VB_OK)
        st = open_board(t);
    if (st == VB_OK)
        st = open_sampler(t);
    if (st == VB_OK)
        st = vb_train_events_open(t);
    vb_train_record_part(t, VB_PART_RANK, t->place.group);
    if (st == VB_OK)
        st = vb_train_trace_files(t);
    if (st == VB_OK && t->record.ship != NULL)
        st = vb_recorder_tick(t->record.rec, vb_ship_tick, t->record.ship);
    return st;
}

vb_status vb_train_record_open(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;
    struct vb_recorder_opts opts = {.dir = t->o->run.dir,
                                    .append = t->o->run.append,
                                    .cpus = CPU_COUNT(&t->cpus) > 0 ? &t->cpus : NULL,
                                    .rank = t->o->group.world > 1 ? t->id : -1};
    vb_status st;

    if (t->eval_only)
        return VB_OK;
    st = open_sink(t, &opts);
    if (st == VB_OK)
        st = init_memory(t);
    if (st == VB_OK)
        st = vb_recorder_open(&opts, &r->rec);
    if (st != VB_OK)
        return st;
    st = add_all(t);
    if (!t->async) /* otherwise the group of workers and servers comes later */
        vb_ship_attach(r->ship, r->group);
    return st == VB_OK ? vb_recorder_start(r->rec) : st;
}

void vb_train_record_close(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;
    uint64_t began_ns = vb_clock_ns();

    if (r->rec == NULL)
        return;
    if (!t->leaves) /* otherwise others go on, and have more records */
        vb_ship_finish(r->ship);
    r->lost = vb_recorder_close(r->rec) + (uint64_t)r->lost_events;
    r->rec = NULL;
    /* what the result does not tell */
    vb_ship_end(r->ship, r->lost > r->told_lost ? r->lost - r->told_lost : 0, began_ns);
    r->lost += vb_ship_lost(r->ship);
    r->sampler = NULL; /* the recorder has freed it */
    r->board = NULL;   /* the recorder has destroyed these */
    r->metrics = NULL;
}

void vb_train_record_done(struct vb_trainer *t)
{
    if (t->record.board != NULL)
        vb_board_done(t->record.board);
}

void vb_train_record_free(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;

    vb_train_record_close(t);
    if (r->ship != NULL && r->clocks == NULL)
        r->clocks = vb_ship_clocks(r->ship, &r->n_clocks);
    vb_ship_close(r->ship);
    r->ship = NULL;
    free(r->waits_ns);
    free(r->events);
    free(r->joined);
    free(r->gone);
    free(r->near);
    r->gone = NULL;
    r->near = NULL;
    r->waits_ns = NULL;
    r->events = NULL;
    r->joined = NULL;
    if (r->has_lock)
        pthread_mutex_destroy(&r->lock);
    r->has_lock = false;
}

void vb_train_record_group(struct vb_trainer *t, struct vb_group *group)
{
    if (!t->record.has_lock)
        return;
    pthread_mutex_lock(&t->record.lock);
    t->record.group = group;
    pthread_mutex_unlock(&t->record.lock);
    if (t->record.waits_ns != NULL)
        memset(t->record.waits_ns, 0, VB_WORLD_MAX * sizeof(*t->record.waits_ns));
    vb_ship_attach(t->record.ship, group);
    vb_train_record_part(t, VB_PART_RANK, group);
}

void vb_train_record_result(struct vb_trainer *t, struct vb_train_result *result)
{
    struct vb_trainer_record *r = &t->record;

    if (r->ship != NULL)
        r->clocks = vb_ship_clocks(r->ship, &r->n_clocks);
    if (r->clocks != NULL) {
        free(result->clocks);
        result->clocks = r->clocks;
        result->n_clocks = r->n_clocks;
    }
    r->clocks = NULL;
}

uint64_t vb_train_record_lost(const struct vb_trainer *t)
{
    const struct vb_trainer_record *r = &t->record;

    return r->rec != NULL ? vb_recorder_lost(r->rec) + vb_ship_lost(r->ship) : r->lost;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void vb_train_record_begin(struct vb_trainer *t)
{
    vb_sampler_begin(t->record.sampler, VB_PART_RANK);
    memset(t->record.phase_ns, 0, sizeof(t->record.phase_ns));
    if (t->record.has_lock) {
        pthread_mutex_lock(&t->record.lock);
        t->record.begin_ns = t->laps.begin_ns;
        pthread_mutex_unlock(&t->record.lock);
    }
    if (t->record.waits_ns != NULL)
        memset(t->record.waits_ns, 0, (size_t)t->world * sizeof(*t->record.waits_ns));
}

/* Rows are made only for a run folder. */
static bool is_kept(const struct vb_trainer *t)
{
    return t->record.rec != NULL && t->o->run.dir != NULL;
}

/* Time that was charged to one phase may be moved to another later, so a phase can shrink. */
static void fill_phases(struct vb_trainer *t, struct vb_step_row *row)
{
    int p;

    for (p = 0; p < VB_PHASES; p++) {
        row->phase_s[p] = (float)((double)(int64_t)(t->laps.ns[p] - t->record.phase_ns[p]) / 1e9);
        t->record.phase_ns[p] = t->laps.ns[p];
    }
}

static struct vb_step_row make_row(struct vb_trainer *t, uint64_t step, int samples)
{
    struct vb_trainer_record *r = &t->record;
    struct vb_step_row row = {.step = step,
                              .end_ns = vb_record_time(t->laps.mark_ns),
                              .loss = (float)t->loss,
                              .lr = vb_k_rate(&t->recipe.schedule, (int64_t)step - 1),
                              .grad_norm = r->norm,
                              .staleness = NAN,
                              .samples = (uint32_t)samples,
                              .waited_for = -1,
                              .waited_s = NAN,
                              .flags = r->flags,
                              .noise_scale = t->noise.scale,
                              .noise_scale_error = t->noise.error};

    if (r->group != NULL)
        vb_group_bytes(r->group, &row.sent_bytes, &row.received_bytes);
    if (step <= r->known_step)
        row.flags |= VB_STEP_AGAIN;
    else if (!t->async)
        r->known_step = step;
    r->flags = 0;
    r->norm = t->noise.scale = t->noise.error = NAN;
    fill_phases(t, &row);
    return row;
}

void vb_train_record_step(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;
    struct vb_step_row row;
    uint64_t waited_ns = 0;

    if (!is_kept(t))
        return;
    if (t->batch != NULL) /* after a recovery, the batch of the step before is gone */
        r->samples = t->batch->n_share;
    row = make_row(t, (uint64_t)t->step, r->samples);
    if (r->waits_ns != NULL)
        row.waited_for = vb_group_id(
            t->place.group, vb_group_wait_longest(t->place.group, r->waits_ns, &waited_ns));
    row.waited_s = (float)((double)waited_ns / 1e9);
    vb_stream_put(r->steps, &row);
}

void vb_train_record_gradient(struct vb_trainer *t, uint64_t version)
{
    struct vb_trainer_record *r = &t->record;
    struct vb_step_row row;

    if (!is_kept(t))
        return;
    row = make_row(t, version + 1, t->batch_n);
    /* the gradients of others that came between this worker's last two */
    if (r->version > 0)
        row.staleness = version > r->version ? (float)(version - r->version - 1) : 0;
    r->version = version;
    vb_stream_put(r->steps, &row);
}

void vb_train_record_eval(struct vb_trainer *t, int64_t step)
{
    struct vb_eval_row row = {.step = (uint64_t)step,
                              .end_ns = vb_record_time(t->laps.mark_ns),
                              .loss = t->evals.loss,
                              .accuracy = t->evals.accuracy};

    struct vb_train_event event = {.at_ns = row.end_ns,
                                   .step = step,
                                   .rank = t->id,
                                   .what = "evaluated",
                                   .loss = row.loss,
                                   .accuracy = row.accuracy};

    if (t->replay.on) /* nothing is learnt, so nothing is evaluated */
        return;
    if (!t->async && step == t->evals.recorded_step) /* before the members changed */
        return;
    t->evals.recorded_step = step;
    t->record.flags |= VB_STEP_EVALUATED;
    if (t->record.gone != NULL) {
        vb_train_keep_eval_row(t, &row);
    } else if (t->leads || t->async) {
        vb_train_event(t, &event);
        if (is_kept(t) && t->record.evals != NULL)
            vb_stream_put(t->record.evals, &row);
    }
    vb_train_board_eval(t, step);
}

void vb_train_record_saved(struct vb_trainer *t)
{
    t->record.flags |= VB_STEP_SAVED;
}

bool vb_train_record_wants_norm(struct vb_trainer *t)
{
    struct vb_trainer_record *r = &t->record;

    if (!is_kept(t) || t->laps.mark_ns - r->norm_ns < NORM_NS)
        return false;
    r->norm_ns = t->laps.mark_ns;
    return true;
}

void vb_train_record_norm(struct vb_trainer *t, double norm)
{
    t->record.norm = (float)norm;
}

void vb_train_record_gradient_norm(struct vb_trainer *t, const float *values, size_t n, float scale)
{
    uint64_t begin_ns = t->laps.mark_ns;
    bool noise = vb_train_noise_wants_sum(t);
    double norm;

    if (noise)
        begin_ns = vb_clock_ns();
    if (!vb_train_record_wants_norm(t) && !noise)
        return;
    norm = vb_k_norm(values, n) * (double)scale;
    vb_train_record_norm(t, norm);
    if (noise)
        vb_train_noise_sum(t, norm, vb_clock_ns() - begin_ns);
}
