/* SPDX-License-Identifier: MIT */
#include "cli/sweep/sweep.h"

#include <math.h>
#include <string.h>

struct sweep_stat cli_sweep_stat(const double *values, int n)
{
    double sorted[SWEEP_RUNS_MAX];
    struct sweep_stat s = {.median = (double)NAN, .min = (double)NAN, .max = (double)NAN};
    int i;

    for (i = 0; i < n && s.n < SWEEP_RUNS_MAX; i++)
        if (isfinite(values[i]))
            sorted[s.n++] = values[i];
    if (s.n == 0)
        return s;
    vb_sort(sorted, (size_t)s.n);
    s.min = sorted[0];
    s.max = sorted[s.n - 1];
    s.median = (sorted[(s.n - 1) / 2] + sorted[s.n / 2]) / 2;
    return s;
}

/* Returns the bottleneck that most runs have. */
static const char *common_resource(const struct sweep_result *results, int n)
{
    const char *best = "";
    int i, j, same, most = 0;

    for (i = 0; i < n; i++) {
        for (same = 0, j = 0; j < n; j++)
            same += results[j].ok && strcmp(results[j].resource, results[i].resource) == 0;
        if (results[i].ok && same > most) {
            most = same;
            best = results[i].resource;
        }
    }
    return best;
}

static void fill_nodes(struct sweep_row *row, const struct sweep_result *results, int n)
{
    double values[SWEEP_RUNS_MAX];
    int i, node;

    for (i = 0; i < n; i++)
        if (results[i].ok && results[i].n_nodes > row->n_nodes)
            row->n_nodes = results[i].n_nodes;
    for (node = 0; node < row->n_nodes; node++) {
        for (i = 0; i < n && i < SWEEP_RUNS_MAX; i++)
            values[i] =
                results[i].ok && node < results[i].n_nodes ? results[i].node_s[node] : (double)NAN;
        row->node_s[node] = cli_sweep_stat(values, i).median;
    }
}

/* Copies what all runs of a case have in common. */
static void fill_facts(struct sweep_row *row, const struct sweep_result *r)
{
    row->ranks = r->ranks;
    row->batch = r->batch;
    row->global_batch = r->global_batch;
    row->test_samples = r->test_samples;
    row->noise_error = r->noise_error;
    row->asked_until = r->asked_until;
    snprintf(row->mode, sizeof(row->mode), "%s", r->mode);
}

void cli_sweep_row(const struct sweep_case *at, const struct sweep_result *results, int n,
                   struct sweep_row *row)
{
    double values[SWEEP_RUNS_MAX];
    int i, m;

    memset(row, 0, sizeof(*row));
    row->at = at;
    for (i = 0; i < n; i++) {
        row->ok += results[i].ok;
        row->failed += results[i].done && !results[i].ok;
        if (results[i].ok && row->ok == 1)
            fill_facts(row, &results[i]);
    }
    for (m = 0; m < SWEEP_METRICS; m++) {
        for (i = 0; i < n && i < SWEEP_RUNS_MAX; i++)
            values[i] = results[i].ok ? results[i].value[m] : (double)NAN;
        row->stat[m] = cli_sweep_stat(values, i);
    }
    fill_nodes(row, results, n);
    row->resource = common_resource(results, n);
}
