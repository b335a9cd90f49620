/* SPDX-License-Identifier: MIT
 *
 * The tables of a sweep: one row a case, with medians over its runs and their spread.
 */
#include "cli/sweep/sweep.h"

#include <math.h>
#include <string.h>

const struct sweep_metric_row cli_sweep_metrics[SWEEP_METRICS] = {
    [METRIC_TRAIN_S] = {"train_s", "time (s)", 3},
    [METRIC_WALL_S] = {"wall_s", "whole command (s)", 3},
    [METRIC_STEPS] = {"steps", "steps", 0},
    [METRIC_STEPS_PER_S] = {"steps_per_s", "steps/s", 1},
    [METRIC_SAMPLES_PER_S] = {"samples_per_s", "samples/s", 0},
    [METRIC_LOSS] = {"loss", "loss", 4},
    [METRIC_ACCURACY] = {"accuracy", "accuracy", 4},
    [METRIC_CPU_PCT] = {"cpu_pct", "CPU (%)", 1},
    [METRIC_RSS_PEAK_MB] = {"rss_peak_mb", "peak memory (MB)", 1},
    [METRIC_SEND_MB_S] = {"send_mb_s", "send (MB/s)", 2},
    [METRIC_RECV_MB_S] = {"recv_mb_s", "receive (MB/s)", 2},
    [METRIC_DISK_READ_MB_S] = {"disk_read_mb_s", "disk read (MB/s)", 2},
    [METRIC_DISK_WRITE_MB_S] = {"disk_write_mb_s", "disk write (MB/s)", 2},
    [METRIC_STALENESS] = {"staleness", "staleness", 2},
    [METRIC_TIME_TO_S] = {"time_to_s", "time to --until (s)", 3},
    [METRIC_NOISE_SCALE] = {"noise_scale", "noise scale", 1},
};

static const enum sweep_metric short_metrics[] = {
    METRIC_TRAIN_S, METRIC_STEPS_PER_S, METRIC_SAMPLES_PER_S, METRIC_LOSS,      METRIC_ACCURACY,
    METRIC_CPU_PCT, METRIC_RSS_PEAK_MB, METRIC_SEND_MB_S,     METRIC_RECV_MB_S, METRIC_TIME_TO_S};

/* Returns whether the option was given as a list. */
static bool has_axis(const struct sweep_table *t, int axis)
{
    return t->plan->lists[axis].n > 0;
}

static bool has_metric(const struct sweep_table *t, int m)
{
    int i;

    for (i = 0; i < t->n; i++)
        if (t->rows[i].stat[m].n > 0)
            return true;
    return false;
}

static const char *value_of(const struct sweep_row *row, int axis)
{
    return row->at->value[axis] != NULL ? row->at->value[axis] : "-";
}

/* ---- CSV ------------------------------------------------------------------------------------- */

/* Numbers have all their digits; what was not measured is empty. */
static void csv_number(FILE *out, double value)
{
    fputc(',', out);
    if (isfinite(value))
        fprintf(out, "%.10g", value);
}

static void csv_head(FILE *out, const struct sweep_table *t)
{
    int a, m;

    for (a = 0; a < SWEEP_AXES; a++)
        if (has_axis(t, a))
            fprintf(out, "%s,", cli_sweep_axes[a]);
    fputs("runs,failed", out);
    for (m = 0; m < SWEEP_METRICS; m++)
        fprintf(out, ",%s,%s_min,%s_max", cli_sweep_metrics[m].key, cli_sweep_metrics[m].key,
                cli_sweep_metrics[m].key);
    fputs(",train_s_nodes,bottleneck\n", out);
}

void cli_sweep_csv(FILE *out, const struct sweep_table *t)
{
    const struct sweep_row *row;
    int a, i, m;

    csv_head(out, t);
    for (row = t->rows; row < t->rows + t->n; row++) {
        for (a = 0; a < SWEEP_AXES; a++)
            if (has_axis(t, a))
                fprintf(out, "%s,", row->at->value[a] != NULL ? row->at->value[a] : "");
        fprintf(out, "%d,%d", row->ok, row->failed);
        for (m = 0; m < SWEEP_METRICS; m++) {
            csv_number(out, row->stat[m].median);
            csv_number(out, row->stat[m].min);
            csv_number(out, row->stat[m].max);
        }
        fputc(',', out);
        for (i = 0; i < row->n_nodes; i++)
            fprintf(out, "%s%.6g", i > 0 ? ";" : "", row->node_s[i]);
        fprintf(out, ",%s\n", row->resource);
    }
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void markdown_head(FILE *out, const struct sweep_table *t)
{
    int a, m, n = 2;

    for (a = 0; a < SWEEP_AXES; a++)
        if (has_axis(t, a)) {
            fprintf(out, "| %s ", cli_sweep_axes[a]);
            n++;
        }
    fputs("| runs ", out);
    for (m = 0; m < SWEEP_METRICS; m++)
        if (has_metric(t, m)) {
            fprintf(out, "| %s ", cli_sweep_metrics[m].title);
            n++;
            if (m == METRIC_TRAIN_S) {
                fputs("| time on each node (s) ", out);
                n++;
            }
        }
    fputs("| bottleneck |\n", out);
    for (; n > 0; n--)
        fputs("| --- ", out);
    fputs("|\n", out);
}

static void markdown_stat(FILE *out, const struct sweep_stat *s, int digits)
{
    if (s->n == 0)
        fputs("| - ", out);
    else if (s->n == 1)
        fprintf(out, "| %.*f ", digits, s->median);
    else
        fprintf(out, "| %.*f (%.*f to %.*f) ", digits, s->median, digits, s->min, digits, s->max);
}

static void markdown_nodes(FILE *out, const struct sweep_row *row)
{
    int i;

    fputs("| ", out);
    for (i = 0; i < row->n_nodes; i++)
        fprintf(out, "%.3f ", row->node_s[i]);
}

void cli_sweep_markdown(FILE *out, const struct sweep_table *t)
{
    const struct sweep_row *row;
    int a, m;

    markdown_head(out, t);
    for (row = t->rows; row < t->rows + t->n; row++) {
        for (a = 0; a < SWEEP_AXES; a++)
            if (has_axis(t, a))
                fprintf(out, "| %s ", value_of(row, a));
        fprintf(out, row->failed > 0 ? "| %d, %d failed " : "| %d ", row->ok, row->failed);
        for (m = 0; m < SWEEP_METRICS; m++) {
            if (!has_metric(t, m))
                continue;
            markdown_stat(out, &row->stat[m], cli_sweep_metrics[m].digits);
            if (m == METRIC_TRAIN_S)
                markdown_nodes(out, row);
        }
        fprintf(out, "| %s |\n", row->resource);
    }
}

/* ---- a terminal ------------------------------------------------------------------------------ */

static int width_of(const char *title)
{
    int len = (int)strlen(title);

    return len > 10 ? len : 10;
}

static void text_head(FILE *out, const struct sweep_table *t)
{
    size_t i;
    int a;

    for (a = 0; a < SWEEP_AXES; a++)
        if (has_axis(t, a))
            fprintf(out, "%*s  ", width_of(cli_sweep_axes[a]), cli_sweep_axes[a]);
    for (i = 0; i < VB_COUNT(short_metrics); i++)
        if (has_metric(t, short_metrics[i]))
            fprintf(out, "%*s  ", width_of(cli_sweep_metrics[short_metrics[i]].title),
                    cli_sweep_metrics[short_metrics[i]].title);
    fputs("failed\n", out);
}

void cli_sweep_text(FILE *out, const struct sweep_table *t)
{
    const struct sweep_row *row;
    size_t i;
    int a;

    text_head(out, t);
    for (row = t->rows; row < t->rows + t->n; row++) {
        for (a = 0; a < SWEEP_AXES; a++)
            if (has_axis(t, a))
                fprintf(out, "%*s  ", width_of(cli_sweep_axes[a]), value_of(row, a));
        for (i = 0; i < VB_COUNT(short_metrics); i++) {
            const struct sweep_metric_row *m = &cli_sweep_metrics[short_metrics[i]];
            const struct sweep_stat *s = &row->stat[short_metrics[i]];

            if (!has_metric(t, short_metrics[i]))
                continue;
            if (s->n == 0)
                fprintf(out, "%*s  ", width_of(m->title), "-");
            else
                fprintf(out, "%*.*f  ", width_of(m->title), m->digits, s->median);
        }
        fprintf(out, "%d of %d\n", row->failed, row->ok + row->failed);
    }
}
