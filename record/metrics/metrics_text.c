/* SPDX-License-Identifier: MIT
 *
 * The text format of Prometheus: two lines about each metric, then its samples.
 */
#include "record/metrics/metrics_priv.h"

#include <math.h>

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP verbena_%s %s\n# TYPE verbena_%s %s\n", name, help, name, type);
}

static void put_number(FILE *out, double value)
{
    if (isnan(value))
        fprintf(out, "NaN\n");
    else if (isinf(value))
        fprintf(out, value > 0 ? "+Inf\n" : "-Inf\n");
    else
        fprintf(out, "%.17g\n", value);
}

/* A backslash, a quote and the end of a line are escaped; bytes that are no text become '?'. */
static void label(FILE *out, const char *name, const char *value, const char *before)
{
    const char *c;

    fprintf(out, "%s%s=\"", before, name);
    for (c = value != NULL ? value : ""; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"')
            fprintf(out, "\\%c", *c);
        else if (*c == '\n')
            fprintf(out, "\\n");
        else
            fputc((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c, out);
    }
    fputc('"', out);
}

static void gauge(FILE *out, const char *name, const char *help, double value)
{
    head(out, name, "gauge", help);
    fprintf(out, "verbena_%s ", name);
    put_number(out, value);
}

static void info(FILE *out, const struct vb_metrics *m)
{
    head(out, "run_info", "gauge", "The run that this file is about.");
    fprintf(out, "verbena_run_info{");
    label(out, "model", m->o.model, "");
    label(out, "mode", m->o.mode, ",");
    label(out, "run", m->dir, ",");
    label(out, "replayed", m->o.replayed, ",");
    fprintf(out, "} 1\n");
}

/* ---- of the job ------------------------------------------------------------------------------ */

/* The latest step, or version of the parameters, that a rank knows of. */
static double steps_of(const struct vb_metrics *m)
{
    uint64_t steps = (uint64_t)m->o.resumed;
    int r;

    for (r = 0; r < m->o.ranks; r++)
        if (m->ranks[r].has_steps && m->ranks[r].last.step > steps)
            steps = m->ranks[r].last.step;
    return (double)steps;
}

static void job(FILE *out, const struct vb_metrics *m)
{
    const struct metrics_rank *first = &m->ranks[m->lead];

    info(out, m);
    gauge(out, "running", "1 while the run goes on, 0 when it has ended.", m->running);
    gauge(out, "start_time_seconds", "When the run began, in seconds since 1970.", m->started_s);
    gauge(out, "updated_time_seconds", "When this file was written, in seconds since 1970.",
          m->now_s);
    head(out, "steps_total", "counter", "Steps of the run that are complete.");
    fprintf(out, "verbena_steps_total ");
    put_number(out, steps_of(m));
    gauge(out, "steps_planned", "Steps of the whole run.", (double)m->o.steps);
    head(out, "ranks_lost_total", "counter", "Ranks that were lost while the others went on.");
    fprintf(out, "verbena_ranks_lost_total %d\n", m->n_lost);
    if (first->has_steps) {
        gauge(out, "loss", "Training loss per sample, of the last batch of the lowest rank.",
              (double)first->last.loss);
        gauge(out, "learning_rate", "Learning rate of the last step.", (double)first->last.lr);
    }
    if (m->has_eval) {
        gauge(out, "test_loss", "Loss per test sample at the last evaluation.", m->eval.loss);
        gauge(out, "accuracy_ratio", "Accuracy at the last evaluation, 0 to 1.", m->eval.accuracy);
    }
}

/* ---- of each rank ---------------------------------------------------------------------------- */

static void phases(FILE *out, const struct vb_metrics *m)
{
    int r, p;

    head(out, "step_phase_seconds_total", "counter", "Time of a rank in each phase of its steps.");
    for (r = 0; r < m->o.ranks; r++)
        for (p = 0; m->ranks[r].has_steps && p < VB_RECORD_PHASES; p++) {
            fprintf(out, "verbena_step_phase_seconds_total{rank=\"%d\"", r);
            label(out, "phase", m->o.phases[p], ",");
            fprintf(out, "} ");
            /* time may be moved from one phase to another later, so a sum may be just below 0 */
            put_number(out, m->ranks[r].phase_s[p] > 0 ? m->ranks[r].phase_s[p] : 0);
        }
}

typedef double (*value_fn)(const struct metrics_rank *r);

static double rows_of(const struct metrics_rank *r)
{
    return (double)r->rows;
}

static double samples_of(const struct metrics_rank *r)
{
    return (double)r->samples;
}

static double late_of(const struct metrics_rank *r)
{
    return r->late_s;
}

static double cpu_of(const struct metrics_rank *r)
{
    return (double)r->use.cpu_ns / 1e9;
}

static double memory_of(const struct metrics_rank *r)
{
    return (double)r->use.rss_bytes;
}

static double sent_of(const struct metrics_rank *r)
{
    return (double)r->use.sent_bytes;
}

static double received_of(const struct metrics_rank *r)
{
    return (double)r->use.received_bytes;
}

static double read_of(const struct metrics_rank *r)
{
    return (double)r->use.disk_read_bytes;
}

static double written_of(const struct metrics_rank *r)
{
    return (double)r->use.disk_written_bytes;
}

static const struct per_rank {
    const char *name, *type, *help;
    value_fn value;
    bool usage; /* of the process; otherwise of its steps */
} per_rank[] = {
    {"rank_steps_total", "counter", "Steps of a rank; asynchronous training: gradients.", rows_of,
     false},
    {"samples_total", "counter", "Samples that a rank has trained on.", samples_of, false},
    {"late_seconds_total", "counter",
     "Time that other ranks waited for this rank, of the rank that they waited for longest in a "
     "step.",
     late_of, false},
    {"cpu_seconds_total", "counter", "CPU time of the process of a rank.", cpu_of, true},
    {"resident_memory_bytes", "gauge", "Memory of the process of a rank.", memory_of, true},
    {"sent_bytes_total", "counter", "Bytes that the transport of a rank has sent.", sent_of, true},
    {"received_bytes_total", "counter", "Bytes that the transport of a rank has received.",
     received_of, true},
    {"disk_read_bytes_total", "counter", "Bytes that the process of a rank has read from disk.",
     read_of, true},
    {"disk_written_bytes_total", "counter", "Bytes that the process of a rank has written to disk.",
     written_of, true},
};

bool vb_metrics_text(const struct vb_metrics *m, FILE *out)
{
    size_t i;
    int r;

    job(out, m);
    phases(out, m);
    for (i = 0; i < VB_COUNT(per_rank); i++) {
        head(out, per_rank[i].name, per_rank[i].type, per_rank[i].help);
        for (r = 0; r < m->o.ranks; r++) {
            if (!(per_rank[i].usage ? m->ranks[r].has_usage : m->ranks[r].has_steps))
                continue;
            fprintf(out, "verbena_%s{rank=\"%d\"} ", per_rank[i].name, r);
            put_number(out, per_rank[i].value(&m->ranks[r]));
        }
    }
    return ferror(out) == 0;
}
