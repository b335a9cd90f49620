/* SPDX-License-Identifier: MIT
 *
 * Reads a run folder for a report.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define EVALS_MAX 2000 /* of more, every second, third ... is drawn */

void report_gap(struct report_run *run, const char *fmt, ...)
{
    va_list args;

    if (run->n_gaps == (int)VB_COUNT(run->gaps))
        return;
    va_start(args, fmt);
    vsnprintf(run->gaps[run->n_gaps++], sizeof(run->gaps[0]), fmt, args);
    va_end(args);
}

double report_real(const struct report_run *run, const char *keys)
{
    return vb_json_get_real(run->json, keys);
}

const char *report_text(const struct report_run *run, const char *keys)
{
    return vb_json_get_text(run->json, keys);
}

const char *report_option(const struct report_run *run, const char *name)
{
    int i, n = vb_json_get_count(run->json, "run.options");
    const char *found;
    char keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "run.options.%d.name", i);
        found = report_text(run, keys);
        if (found == NULL || strcmp(found, name) != 0)
            continue;
        snprintf(keys, sizeof(keys), "run.options.%d.value", i);
        return report_text(run, keys);
    }
    return NULL;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Returns the rank that the others waited for longest, or -1. */
static int find_latest(const struct report_run *run)
{
    int i, n = vb_json_get_count(run->json, "per_rank"), latest = -1;
    double late, rank, most = 0;
    char keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "per_rank.%d.late_s", i);
        late = report_real(run, keys);
        snprintf(keys, sizeof(keys), "per_rank.%d.rank", i);
        rank = report_real(run, keys);
        if (late > most && rank >= 0 && rank < VB_WORLD_MAX) {
            most = late;
            latest = (int)rank;
        }
    }
    return latest;
}

static void find_last_step(struct report_run *run)
{
    int i;

    for (i = 0; i < run->n_ranks; i++) {
        const struct report_rank *r = &run->ranks[i];
        const struct vb_thin_cell *cell =
            r->fine.n > 0 ? vb_thin_at(&r->fine, r->fine.n - 1, STEP_STEP) : NULL;

        if (cell != NULL && cell->n > 0 && cell->high < 9e15 && cell->high > (double)run->top.step)
            run->top.step = (int64_t)cell->high;
    }
}

/* Of many ranks, the first ones are drawn, and the one that is waited for. */
static vb_status read_ranks(struct report_run *run)
{
    int i, latest = find_latest(run);
    const struct top_rank *t;
    struct report_rank *r;
    vb_status st = VB_OK;

    for (i = 0; i < run->top.n_ranks && run->n_ranks < REPORT_RANKS && st == VB_OK; i++) {
        t = &run->top.ranks[i];
        if (run->n_ranks == REPORT_RANKS - 1 && latest > t->rank &&
            cli_top_rank(&run->top, latest) != NULL)
            t = cli_top_rank(&run->top, latest);
        r = &run->ranks[run->n_ranks++];
        r->rank = t->rank;
        r->server = t->server;
        snprintf(r->host, sizeof(r->host), "%s", t->host);
        st = report_read_rank(run, r);
    }
    return st;
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static void take_evals(struct report_run *run, int rank, struct vb_series *s)
{
    int64_t row, rows = vb_series_rows(s), stride = rows / EVALS_MAX + 1;
    int step = vb_series_col(s, "step"), end = vb_series_col(s, "end_ns");
    int loss = vb_series_col(s, "loss"), accuracy = vb_series_col(s, "accuracy");
    struct report_clock clock;

    report_clock_init(&clock, run, rank < 0 ? run->top.lead : rank);
    for (row = (rows - 1) % stride; row < rows && run->n_evals < EVALS_MAX; row += stride)
        run->evals[run->n_evals++] = (struct report_eval){
            vb_series_value(s, row, step), report_clock_s(&clock, vb_series_value(s, row, end)),
            vb_series_value(s, row, loss), vb_series_value(s, row, accuracy)};
}

static void read_evals_of(struct report_run *run, int rank)
{
    vb_status st;
    struct vb_series *s = cli_run_series(run->top.dir, rank, "evals.bin", NULL, &st);

    if (st != VB_OK)
        report_gap(run, "an evals.bin cannot be read");
    if (s != NULL)
        take_evals(run, rank, s);
    vb_series_close(s);
}

/* If rank 0 of an asynchronous job is gone, another worker evaluates. */
static vb_status read_evals(struct report_run *run)
{
    int i;

    run->evals = calloc(EVALS_MAX, sizeof(*run->evals));
    if (run->evals == NULL)
        return vb_err_sys("calloc");
    read_evals_of(run, -1);
    for (i = 0; i < run->n_ranks && run->top.async; i++)
        read_evals_of(run, run->ranks[i].rank);
    return VB_OK;
}

/* ---- the rate of an asynchronous job --------------------------------------------------------- */

/* Workers make steps side by side: counts those of all in slices of time. */
static void count_steps(const struct report_run *run, double end_s, double *counts, int n)
{
    int i, b;

    for (i = 0; i < run->n_ranks; i++)
        for (b = 0; b < run->ranks[i].fine.n; b++) {
            const struct vb_thin_cell *time = vb_thin_at(&run->ranks[i].fine, b, STEP_TIME);
            int slice = time->n > 0 ? (int)(time->sum / (double)time->n / end_s * n) : -1;

            if (slice >= 0 && slice < n)
                counts[slice] += (double)time->n;
        }
}

static vb_status read_job_rate(struct report_run *run)
{
    enum { SLICES = 60 };
    double counts[SLICES] = {0}, values[USE_COLS] = {0}, end_s = 0;
    vb_status st;
    int i;

    for (i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].fine.n > 0)
            end_s = fmax(
                end_s, vb_thin_at(&run->ranks[i].fine, run->ranks[i].fine.n - 1, STEP_TIME)->high);
    st = vb_thin_init(&run->rate, SLICES, SLICES, USE_COLS);
    if (st != VB_OK || !(end_s > 0))
        return st;
    count_steps(run, end_s, counts, SLICES);
    for (i = 0; i < SLICES; i++) {
        values[USE_TIME] = (i + 0.5) * end_s / SLICES;
        values[USE_CPU] = counts[i] * SLICES / end_s;
        vb_thin_add(&run->rate, i, values);
    }
    return VB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

vb_status report_open(struct report_run *run, const char *dir)
{
    vb_status st = cli_run_json(dir, &run->json);

    snprintf(run->top.dir, sizeof(run->top.dir), "%s", dir);
    if (st == VB_OK)
        st = cli_top_head(&run->top, run->json);
    if (st != VB_OK)
        return st;
    run->steps_per_epoch = report_real(run, "run.steps_per_epoch");
    if (!(run->steps_per_epoch > 0))
        run->steps_per_epoch = (double)NAN;
    run->start_ns = report_real(run, "run.started_clock_ns");
    if (!(run->start_ns >= 0))
        run->start_ns = 0;
    st = read_ranks(run);
    report_read_lost(run);
    find_last_step(run);
    if (st == VB_OK)
        st = read_evals(run);
    if (st == VB_OK && run->top.async)
        st = read_job_rate(run);
    if (report_real(run, "run.records_lost") > 0)
        report_gap(run,
                   "%.0f records were lost while the run went on: the disk or the network "
                   "could not take them",
                   report_real(run, "run.records_lost"));
    return st;
}

void report_close(struct report_run *run)
{
    int i, k;

    if (run == NULL)
        return;
    for (i = 0; i < run->n_ranks; i++) {
        vb_thin_free(&run->ranks[i].fine);
        vb_thin_free(&run->ranks[i].coarse);
        vb_thin_free(&run->ranks[i].usage);
        vb_thin_free(&run->ranks[i].machine);
        for (k = 0; k < run->ranks[i].n_ports; k++)
            vb_thin_free(&run->ranks[i].ports[k].rows);
    }
    vb_thin_free(&run->rate);
    free(run->evals);
    free(run->lost);
    vb_json_destroy(run->json);
    cli_top_close(&run->top);
    free(run);
}
