/* SPDX-License-Identifier: MIT
 *
 * Where the time of a step goes: phases by step, by rank, and transfer against compute.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

#define CEILINGS 8 /* bars of ceilings; the table has all */

/* The order from bottom to top: what computes first. Patterns help where colours do not. */
static const struct {
    enum vb_phase phase;
    const char *name;
    int look, hatch;
} looks[VB_PHASES] = {
    {VB_PHASE_DATA, "data", 4, 0},
    {VB_PHASE_FORWARD, "forward", 0, 0},
    {VB_PHASE_BACKWARD, "backward", 5, 0},
    {VB_PHASE_UPDATE, "update", 2, 0},
    {VB_PHASE_COMM, "exposed transfer", 1, 1},
    {VB_PHASE_WAIT, "waiting", 3, 2},
    {VB_PHASE_EVAL, "evaluation", 6, 0},
    {VB_PHASE_CHECKPOINT, "checkpoint", 7, 1},
};

static struct vb_plot_series *add_phase(struct vb_plot *plot, int i)
{
    struct vb_plot_series *s = vb_plot_add(plot, looks[i].name);

    if (s != NULL) {
        s->look = looks[i].look;
        s->hatch = looks[i].hatch;
    }
    return s;
}

/* ---- by step --------------------------------------------------------------------------------- */

/* Evaluations and checkpoints are no part of a step: they would hide the others. */
static bool of_step(int i)
{
    return looks[i].phase != VB_PHASE_EVAL && looks[i].phase != VB_PHASE_CHECKPOINT;
}

static struct vb_plot *phases_plot(const struct report_rank *r, const char *name, const char *tab)
{
    struct vb_plot *plot = vb_plot_create(VB_PLOT_STACKED, name);
    int i, b;

    for (i = 0; plot != NULL && i < VB_PHASES; i++) {
        struct vb_plot_series *s = of_step(i) ? add_phase(plot, i) : NULL;

        for (b = 0; s != NULL && b < r->coarse.n; b++)
            vb_plot_point(s, vb_thin_mean(&r->coarse, b, STEP_STEP),
                          1e3 * vb_thin_mean(&r->coarse, b, STEP_PHASE + (int)looks[i].phase));
    }
    if (plot == NULL)
        return NULL;
    snprintf(plot->title, sizeof(plot->title), "Phases of a step, %s", tab);
    snprintf(plot->x_label, sizeof(plot->x_label), "step");
    snprintf(plot->y_label, sizeof(plot->y_label), "ms per step");
    return plot;
}

/* The first steps often take far longer than the others. */
static void cut(struct report_figure *f, struct vb_plot *plot)
{
    double share = plot != NULL ? vb_plot_cut(plot) : 0;

    if (share > 0 && strstr(f->note, "cut") == NULL)
        report_note(f, "The axis is cut: up to %.1f %% of the points are higher.", 100 * share);
}

static void add_phases(const struct report *report, struct report_figure *f,
                       const struct report_rank *r, const char *name, const char *tab)
{
    struct vb_plot *plot = phases_plot(r, name, tab);

    report_mark_lost(report, plot, REPORT_BY_STEP);

    if (f != NULL)
        cut(f, plot);
    report_add_plot(f, plot, tab);
}

static void by_step(struct report *report)
{
    struct report_figure *f =
        report_add_figure(report, REPORT_TIME, "phases", "Phases of a step, by step");
    const struct report_run *run = report->runs[0];
    char name[64], tab[72];
    int i;

    for (i = 0; report->n_runs == 1 && i < run->n_ranks; i++) {
        snprintf(name, sizeof(name), "phases-rank%d", run->ranks[i].rank);
        snprintf(tab, sizeof(tab), "rank %d", run->ranks[i].rank);
        add_phases(report, f, &run->ranks[i], name, tab);
    }
    for (i = 0; report->n_runs > 1 && i < report->n_runs; i++) {
        run = report->runs[i];
        snprintf(name, sizeof(name), "phases-run%d", i + 1);
        if (run->n_ranks > 0)
            add_phases(report, f, &run->ranks[run->lead], name, run->label);
    }
    report_note(f,
                "Exposed transfer is the part of the transfer that computing does not hide; "
                "waiting is for ranks that come later.%s",
                report->n_runs > 1 ? " Of rank 0 of each run." : "");
}

/* ---- by rank --------------------------------------------------------------------------------- */

static double phase_sum(const struct report_rank *r, enum vb_phase phase)
{
    double sum = 0;
    int b;

    for (b = 0; b < r->coarse.n; b++)
        sum += vb_thin_at(&r->coarse, b, STEP_PHASE + (int)phase)->sum;
    return sum;
}

static void add_bar(struct vb_plot *plot, int bar, const struct report_rank *r)
{
    int i, k = 0;

    for (i = 0; i < VB_PHASES; i++)
        if (of_step(i))
            vb_plot_point(&plot->series[k++], bar,
                          r->n_steps > 0 ? 1e3 * phase_sum(r, looks[i].phase) / (double)r->n_steps
                                         : 0);
}

static void bar_name(const struct report *report, const struct report_run *run, int i, char *text,
                     size_t size)
{
    const struct report_rank *r = &run->ranks[i];

    if (report->n_runs > 1)
        snprintf(text, size, "%.40s", run->label);
    else
        snprintf(text, size, "rank %d (%.24s)", r->rank, r->host);
}

/* One bar for each rank; of several runs, one for rank 0 of each. */
static void by_rank(struct report *report)
{
    struct report_figure *f =
        report_add_figure(report, REPORT_TIME, "breakdown",
                          report->n_runs > 1 ? "Mean step of each run" : "Mean step of each rank");
    struct vb_plot *plot = vb_plot_create(VB_PLOT_BARS, "breakdown");
    char text[VB_PLOT_BARS_MAX][48];
    const char *names[VB_PLOT_BARS_MAX];
    int i, k, n = 0;

    if (plot == NULL)
        return;
    for (i = 0; i < VB_PHASES; i++)
        if (of_step(i))
            (void)add_phase(plot, i);
    for (i = 0; i < report->n_runs; i++)
        for (k = 0; k < report->runs[i]->n_ranks; k++) {
            const struct report_rank *r = &report->runs[i]->ranks[k];

            if (r->n_steps == 0 || (report->n_runs > 1 && k != report->runs[i]->lead) ||
                n == VB_PLOT_BARS_MAX)
                continue;
            bar_name(report, report->runs[i], k, text[n], sizeof(text[n]));
            names[n] = text[n];
            add_bar(plot, n++, r);
        }
    snprintf(plot->title, sizeof(plot->title), "Mean step");
    snprintf(plot->y_label, sizeof(plot->y_label), "ms per step");
    if (vb_plot_name_bars(plot, names, n) == VB_OK && n > 0)
        report_add_plot(f, plot, "mean");
    else
        vb_plot_destroy(plot);
}

/* ---- transfer against compute ---------------------------------------------------------------- */

static double mean_of(const struct report_rank *r, int b, const enum vb_phase *phases, int n)
{
    double sum = 0;
    int i;

    for (i = 0; i < n; i++)
        sum += vb_thin_mean(&r->coarse, b, STEP_PHASE + (int)phases[i]);
    return 1e3 * sum;
}

static void transfer(struct report *report)
{
    static const enum vb_phase compute[] = {VB_PHASE_FORWARD, VB_PHASE_BACKWARD, VB_PHASE_UPDATE};
    static const enum vb_phase comm[] = {VB_PHASE_COMM}, wait[] = {VB_PHASE_WAIT};
    static const struct {
        const char *name;
        const enum vb_phase *phases;
        int n, look;
    } lines[] = {
        {"compute", compute, 3, 0}, {"exposed transfer", comm, 1, 1}, {"waiting", wait, 1, 3}};
    const struct report_run *run = report->runs[0];
    const struct report_rank *lead = &run->ranks[run->lead];
    struct report_figure *f;
    struct vb_plot *plot;
    size_t i;
    int b;

    if (report->n_runs > 1 || run->top.n_ranks < 2 || run->n_ranks == 0)
        return;
    f = report_add_figure(report, REPORT_TIME, "transfer", "Transfer against compute");
    plot = vb_plot_create(VB_PLOT_LINES, "transfer");
    for (i = 0; plot != NULL && i < VB_COUNT(lines); i++) {
        struct vb_plot_series *s = vb_plot_add(plot, lines[i].name);

        for (b = 0; s != NULL && b < lead->coarse.n; b++)
            vb_plot_point(s, vb_thin_mean(&lead->coarse, b, STEP_STEP),
                          mean_of(lead, b, lines[i].phases, lines[i].n));
        if (s != NULL)
            s->look = lines[i].look;
    }
    if (plot == NULL)
        return;
    plot->y_zero = true;
    report_mark_lost(report, plot, REPORT_BY_STEP);
    snprintf(plot->title, sizeof(plot->title), "Transfer against compute, rank %d", lead->rank);
    snprintf(plot->x_label, sizeof(plot->x_label), "step");
    snprintf(plot->y_label, sizeof(plot->y_label), "ms per step");
    if (f != NULL)
        cut(f, plot);
    report_add_plot(f, plot, "this run");
    if (report->bench == NULL)
        report_note(f, "A run has one batch, so it cannot show from which batch on computing hides "
                       "the transfer: add --bench FILE with the output of verbena bench step "
                       "--json, or name runs with several batches.");
}

/* ---- against the ceilings of the machine ----------------------------------------------------- */

/* What was achieved of each ceiling that the verdict has measured. */
static void ceilings(struct report *report)
{
    const struct report_run *run = report->runs[0];
    int i, n = vb_json_get_count(run->json, "bottleneck.evidence"), bars = 0;
    const char *names[VB_PLOT_BARS_MAX];
    struct vb_plot_series *s;
    struct vb_plot *plot;
    char keys[64];

    plot = report->n_runs == 1 && n > 0 ? vb_plot_create(VB_PLOT_BARS, "ceilings") : NULL;
    s = vb_plot_add(plot, "achieved");
    for (i = 0; s != NULL && i < n && bars < CEILINGS; i++) {
        double value, ceiling;

        snprintf(keys, sizeof(keys), "bottleneck.evidence.%d.value", i);
        value = report_real(run, keys);
        snprintf(keys, sizeof(keys), "bottleneck.evidence.%d.ceiling", i);
        ceiling = report_real(run, keys);
        snprintf(keys, sizeof(keys), "bottleneck.evidence.%d.name", i);
        names[bars] = report_text(run, keys);
        if (names[bars] != NULL && value >= 0 && ceiling > 0)
            vb_plot_point(s, bars++, 100 * value / ceiling);
    }
    if (plot == NULL || vb_plot_name_bars(plot, names, bars) != VB_OK) {
        vb_plot_destroy(plot);
        return;
    }
    snprintf(plot->title, sizeof(plot->title), "Measured against the ceilings of this machine");
    snprintf(plot->y_label, sizeof(plot->y_label), "%% of the ceiling");
    report_add_plot(report_add_figure(report, REPORT_VERDICT, "ceilings", plot->title), plot,
                    "ceilings");
}

void report_phases(struct report *report)
{
    ceilings(report);
    by_step(report);
    by_rank(report);
    transfer(report);
}
