/* SPDX-License-Identifier: MIT
 *
 * Reads a run folder for verbena top. Files are opened anew each time, because a job may have more
 * ranks than a process may have files, and because a folder may be deleted or begun again.
 */
#include "cli/cli.h"
#include "cli/top.h"
#include "record/record.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WINDOW_NS 5000000000u /* figures are of so many last nanoseconds */
#define WINDOW_ROWS 20000     /* and of so many last steps */
#define USAGE_NS 1500000000u

/* ---- run.json -------------------------------------------------------------------------------- */

static void get_text(const struct vb_json *json, const char *keys, char *to, size_t size)
{
    const char *text = vb_json_get_text(json, keys);

    snprintf(to, size, "%s", text != NULL ? text : "");
}

static double get_of_rank(const struct vb_json *json, int i, const char *key)
{
    char keys[96];

    snprintf(keys, sizeof(keys), "per_rank.%d.%s", i, key);
    return vb_json_get_real(json, keys);
}

static void read_mode(struct top *top, const struct vb_json *json)
{
    int i, n = vb_json_get_count(json, "run.options");
    const char *name;
    char keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "run.options.%d.name", i);
        name = vb_json_get_text(json, keys);
        if (name == NULL || strcmp(name, "mode") != 0)
            continue;
        snprintf(keys, sizeof(keys), "run.options.%d.value", i);
        get_text(json, keys, top->mode, sizeof(top->mode));
    }
    top->async = strcmp(top->mode, "async") == 0;
}

static void read_injected(struct top *top, const struct vb_json *json)
{
    int i, n = vb_json_get_count(json, "run.injected");
    size_t len = 0;
    char keys[48];

    top->injected[0] = '\0';
    for (i = 0; i < n && len < sizeof(top->injected); i++) {
        snprintf(keys, sizeof(keys), "run.injected.%d", i);
        get_text(json, keys, top->injected + len, sizeof(top->injected) - len);
        len += strlen(top->injected + len);
        if (i + 1 < n && len + 1 < sizeof(top->injected))
            top->injected[len++] = ',';
    }
}

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int64_t whole(double value)
{
    return value > 0 && value < 1e18 ? (int64_t)value : 0;
}

vb_status cli_top_head(struct top *top, const struct vb_json *json)
{
    vb_status st;

    get_text(json, "run.state", top->state, sizeof(top->state));
    get_text(json, "run.why", top->why, sizeof(top->why));
    get_text(json, "run.model", top->model, sizeof(top->model));
    get_text(json, "run.replayed", top->replayed, sizeof(top->replayed));
    top->ended = strcmp(top->state, "running") != 0;
    top->steps = whole(vb_json_get_real(json, "run.steps"));
    read_mode(top, json);
    read_injected(top, json);
    st = cli_top_read_ranks(top, json);
    cli_top_read_lost(top, json);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_row(struct top *top, struct top_rank *r, const struct vb_step_row *row)
{
    double other_s =
        (double)row->phase_s[VB_PHASE_EVAL] + (double)row->phase_s[VB_PHASE_CHECKPOINT];
    struct top_rank *late;
    double all_s = 0;
    int p;

    for (p = 0; p < VB_PHASES; p++) {
        double s = isfinite(row->phase_s[p]) ? (double)row->phase_s[p] : 0;

        r->phase_s[p] += s;
        all_s += s;
    }
    r->phases_s += all_s;
    r->steps_s += all_s - (isfinite(other_s) ? other_s : 0);
    r->rows++;
    r->samples += row->samples;
    r->step = (int64_t)row->step;
    late = row->waited_for >= 0 && row->waited_s > 0 ? cli_top_rank(top, row->waited_for) : NULL;
    if (late != NULL)
        late->late_s += (double)row->waited_s;
}

static void finish_rank(struct top_rank *r)
{
    const double *s = r->phase_s;

    if (r->rows > 0)
        r->busy_ms =
            1e3 / (double)r->rows *
            (s[VB_PHASE_DATA] + s[VB_PHASE_FORWARD] + s[VB_PHASE_BACKWARD] + s[VB_PHASE_UPDATE]);
}

/* Adds up the rows of the last seconds. */
static void read_steps(struct top *top, struct top_rank *r, struct vb_series *series)
{
    int64_t rows = vb_series_rows(series), low = rows > WINDOW_ROWS ? rows - WINDOW_ROWS : 0;
    int64_t high = rows - 1, middle;
    struct vb_step_row row;
    uint64_t from;

    if (rows == 0 || !vb_series_copy(series, rows - 1, &row))
        return;
    from = row.end_ns > WINDOW_NS ? row.end_ns - WINDOW_NS : 0;
    while (low < high) { /* finds the first row of the window */
        middle = low + (high - low) / 2;
        if (!vb_series_copy(series, middle, &row))
            return;
        if (row.end_ns < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < rows && vb_series_copy(series, low, &row); low++)
        add_row(top, r, &row);
    finish_rank(r);
}

static void read_usage(struct top_rank *r, struct vb_series *series)
{
    int64_t rows = vb_series_rows(series), i;
    struct vb_usage_row now, then;
    double s;

    if (rows == 0 || !vb_series_copy(series, rows - 1, &now))
        return;
    r->rss_mb = (double)now.rss_bytes / 1e6;
    for (i = rows - 2; i >= 0 && vb_series_copy(series, i, &then); i--)
        if (then.at_ns + USAGE_NS <= now.at_ns)
            break;
    if (rows < 2 || !vb_series_copy(series, i >= 0 ? i : 0, &then) || then.at_ns >= now.at_ns)
        return;
    s = (double)(now.at_ns - then.at_ns) / 1e9;
    r->cpu_pct = 100 * (double)(int64_t)(now.cpu_ns - then.cpu_ns) / 1e9 / s;
    r->send_mb_s = (double)(int64_t)(now.sent_bytes - then.sent_bytes) / 1e6 / s;
    r->recv_mb_s = (double)(int64_t)(now.received_bytes - then.received_bytes) / 1e6 / s;
}

static vb_status read_rank(struct top *top, struct top_rank *r)
{
    vb_status st;
    struct vb_series *series = cli_run_series(top->dir, r->rank, "steps.bin", &vb_kind_steps, &st);

    if (series != NULL)
        read_steps(top, r, series);
    vb_series_close(series);
    if (st != VB_OK)
        return st;
    series = cli_run_series(top->dir, r->rank, "usage.bin", &vb_kind_usage, &st);
    if (series != NULL)
        read_usage(r, series);
    vb_series_close(series);
    return st;
}

static vb_status read_loss(struct top *top)
{
    struct top_curve *c = &top->curve;
    struct vb_step_row row;
    vb_status st;
    struct vb_series *series =
        cli_run_series(top->dir, top->lead, "steps.bin", &vb_kind_steps, &st);

    if (series == NULL)
        return st;
    /* the folder was begun again, or another rank leads */
    if (vb_series_rows(series) < c->next || c->rank != top->lead)
        *c = (struct top_curve){.last = (double)NAN, .stride = 1, .rank = top->lead};
    for (; vb_series_copy(series, c->next, &row); c->next++)
        cli_top_curve_add(c, (double)row.loss);
    vb_series_close(series);
    return VB_OK;
}

static vb_status read_evals(struct top *top)
{
    struct vb_eval_row row;
    vb_status st;
    struct vb_series *series = cli_run_series(top->dir, -1, "evals.bin", &vb_kind_evals, &st);

    top->test_loss = top->accuracy = (double)NAN;
    if (series != NULL && vb_series_copy(series, vb_series_rows(series) - 1, &row)) {
        top->test_loss = row.loss;
        top->accuracy = row.accuracy;
        top->tested_step = (int64_t)row.step;
    }
    vb_series_close(series);
    return st;
}

/* ---- the job --------------------------------------------------------------------------------- */

static void read_bottleneck(struct top *top, const struct vb_json *json)
{
    const char *resource = vb_json_get_text(json, "bottleneck.resource");
    const char *why = vb_json_get_text(json, "bottleneck.why");

    top->bottleneck[0] = '\0';
    if (resource != NULL && why != NULL)
        snprintf(top->bottleneck, sizeof(top->bottleneck), "%s, %.0f %%: %s", resource,
                 100 * vb_json_get_real(json, "bottleneck.share"), why);
}

/* A run that has ended has its figures in run.json. */
static void read_result(struct top *top, const struct vb_json *json)
{
    int i, p, n = vb_json_get_count(json, "per_rank");
    char key[64];

    for (i = 0; i < n; i++) {
        double rank = get_of_rank(json, i, "rank");
        struct top_rank *r;

        r = rank >= 0 && rank < VB_WORLD_MAX ? cli_top_rank(top, (int)rank) : NULL;
        if (r == NULL)
            continue;
        r->phases_s = 0;
        for (p = 0; p < VB_PHASES; p++) {
            snprintf(key, sizeof(key), "breakdown.%s", vb_phase_str((enum vb_phase)p));
            r->phase_s[p] = get_of_rank(json, i, key);
            r->phase_s[p] = r->phase_s[p] > 0 ? r->phase_s[p] : 0;
            r->phases_s += r->phase_s[p];
        }
        r->cpu_pct = get_of_rank(json, i, "cpu_pct");
        r->rss_mb = get_of_rank(json, i, "rss_peak_mb");
        r->send_mb_s = get_of_rank(json, i, "send_mb_s");
        r->recv_mb_s = get_of_rank(json, i, "recv_mb_s");
    }
    if (n > 0) {
        top->step = whole(vb_json_get_real(json, "steps"));
        top->steps_per_s = vb_json_get_real(json, "steps_per_s");
        top->samples_per_s = vb_json_get_real(json, "samples_per_s");
        read_bottleneck(top, json);
    }
    top->whole = n > 0;
}

/* Asynchronous workers make steps of the job side by side. */
static void sum_up(struct top *top)
{
    const struct top_rank *lead = cli_top_rank(top, top->lead);
    int i, others = top->n_ranks - top->n_lost - 1;

    top->step = 0;
    top->steps_per_s = top->samples_per_s = 0;
    top->waited_for = -1;
    for (i = 0; i < top->n_ranks; i++) {
        const struct top_rank *r = &top->ranks[i];

        if (r->step > top->step)
            top->step = r->step;
        if (r->lost)
            continue;
        if (r->steps_s > 0 && (top->async || r == lead))
            top->steps_per_s += (double)r->rows / r->steps_s;
        if (r->steps_s > 0)
            top->samples_per_s += (double)r->samples / r->steps_s;
        if (r->late_s > 0 &&
            (top->waited_for < 0 || r->late_s > top->ranks[top->waited_for].late_s))
            top->waited_for = i;
    }
    if (top->waited_for >= 0 && others > 0 && lead != NULL && lead->rows > 0)
        top->waited_ms = 1e3 * top->ranks[top->waited_for].late_s / others / (double)lead->rows;
    top->left_s = (double)NAN;
    if (!top->ended && top->steps_per_s > 0 && top->steps >= top->step)
        top->left_s = (double)(top->steps - top->step) / top->steps_per_s;
}

/* Records come ten times a second, also while nothing is trained. */
static void read_times(struct top *top, const struct vb_json *json)
{
    double started_s = vb_json_get_real(json, "run.started_unix_ns") / 1e9, last_s;
    char path[PATH_MAX + 48];
    struct stat info;

    snprintf(path, sizeof(path), "%s/rank%d/usage.bin", top->dir, top->lead);
    top->silent_s = 0;
    top->elapsed_s = top->ended ? vb_json_get_real(json, "train_s") : now_s() - started_s;
    if (stat(path, &info) != 0)
        return;
    last_s = (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec / 1e9;
    if (!top->ended)
        top->silent_s = now_s() - last_s;
    else if (!isfinite(top->elapsed_s))
        top->elapsed_s = last_s - started_s;
}

vb_status cli_top_read(struct top *top)
{
    struct vb_json *json = NULL;
    vb_status st = cli_run_json(top->dir, &json);
    int i;

    if (st == VB_OK)
        st = cli_top_head(top, json);
    for (i = 0; st == VB_OK && i < top->n_ranks; i++)
        st = read_rank(top, &top->ranks[i]);
    if (st == VB_OK)
        st = read_loss(top);
    if (st == VB_OK)
        st = read_evals(top);
    if (st == VB_OK) {
        sum_up(top);
        read_times(top, json);
        if (top->ended)
            read_result(top, json);
    }
    vb_json_destroy(json);
    return st;
}

vb_status cli_top_open(const char *dir, struct top *top)
{
    memset(top, 0, sizeof(*top));
    snprintf(top->dir, sizeof(top->dir), "%s", dir);
    top->curve.last = (double)NAN;
    top->curve.stride = 1;
    return cli_top_read(top);
}

void cli_top_close(struct top *top)
{
    free(top->ranks);
    top->ranks = NULL;
}
