/* SPDX-License-Identifier: MIT
 *
 * What several runs show together: the speed-up by ranks, and steps by batch.
 */
#include "cli/report/cmd_report.h"

#include <math.h>
#include <stdlib.h>

struct point {
    double x, rate, compute_ms, comm_ms;
};

static double per_step(const struct report_run *run, const char *phase)
{
    double steps = report_real(run, "steps") - report_real(run, "resumed");
    char keys[48];

    snprintf(keys, sizeof(keys), "breakdown.%s", phase);
    return 1e3 * report_real(run, keys) / steps;
}

static int by_x(const void *a, const void *b)
{
    double x = ((const struct point *)a)->x, y = ((const struct point *)b)->x;

    return x < y ? -1 : x > y;
}

/* Collects the runs that have the same model and mode as the first one, and a figure of this key.
 * Returns their number, or 0 if the key does not differ. */
static int collect(const struct report *report, const char *key, struct point points[REPORT_RUNS])
{
    const struct report_run *first = report->runs[0];
    int i, n = 0;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];
        struct point p = {report_real(run, key), report_real(run, "samples_per_s"),
                          per_step(run, "forward") + per_step(run, "backward") +
                              per_step(run, "update"),
                          per_step(run, "comm_exposed") + per_step(run, "wait")};

        if (strcmp(run->top.model, first->top.model) != 0 || !(p.x > 0) || !(p.rate > 0))
            continue;
        points[n++] = p;
    }
    qsort(points, (size_t)n, sizeof(points[0]), by_x);
    return n > 1 && points[0].x < points[n - 1].x ? n : 0;
}

static void speed_up(struct report *report)
{
    struct point points[REPORT_RUNS] = {{0}};
    struct vb_plot_series *s, *ideal;
    struct report_figure *f;
    struct vb_plot *plot;
    int i, n = collect(report, "ranks", points);

    if (n == 0)
        return;
    f = report_add_figure(report, REPORT_LEARNING, "speed-up", "Speed-up by ranks");
    plot = vb_plot_create(VB_PLOT_LINES, "speed-up");
    s = vb_plot_add(plot, "measured");
    ideal = vb_plot_add(plot, "ideal");
    for (i = 0; i < n; i++) {
        vb_plot_point(s, points[i].x, points[i].rate / points[0].rate);
        vb_plot_point(ideal, points[i].x, points[i].x / points[0].x);
    }
    if (plot == NULL || s == NULL || ideal == NULL) {
        vb_plot_destroy(plot);
        return;
    }
    s->markers = true;
    ideal->thin = true;
    plot->y_zero = plot->x_whole = true;
    snprintf(plot->title, sizeof(plot->title), "Speed-up by ranks");
    snprintf(plot->x_label, sizeof(plot->x_label), "ranks");
    snprintf(plot->y_label, sizeof(plot->y_label), "times the samples/s of %.0f rank%s",
             points[0].x, points[0].x == 1 ? "" : "s");
    report_add_plot(f, plot, "speed-up");
    report_note(f, "Samples/s of training, relative to the run with the fewest ranks.");
}

/* Returns the batch at which two lines meet between two runs, or NAN. */
static double crossing(const struct point *points, int n)
{
    int i;

    for (i = 0; i + 1 < n; i++) {
        double before = points[i].comm_ms - points[i].compute_ms;
        double after = points[i + 1].comm_ms - points[i + 1].compute_ms;

        if (before > 0 && after <= 0)
            return points[i].x + (points[i + 1].x - points[i].x) * before / (before - after);
    }
    return (double)NAN;
}

static void batches(struct report *report)
{
    struct vb_plot_series *compute, *comm;
    struct point points[REPORT_RUNS] = {{0}};
    struct report_figure *f;
    struct vb_plot *plot;
    int i, n = collect(report, "batch", points);

    if (n == 0 || !(report_real(report->runs[0], "ranks") > 1))
        return;
    f = report_add_figure(report, REPORT_TIME, "batches", "Transfer against compute, by batch");
    plot = vb_plot_create(VB_PLOT_LINES, "batches");
    compute = vb_plot_add(plot, "compute");
    comm = vb_plot_add(plot, "exposed transfer and waiting");
    for (i = 0; i < n; i++) {
        vb_plot_point(compute, points[i].x, points[i].compute_ms);
        vb_plot_point(comm, points[i].x, points[i].comm_ms);
    }
    if (plot == NULL || compute == NULL || comm == NULL) {
        vb_plot_destroy(plot);
        return;
    }
    compute->markers = comm->markers = plot->y_zero = true;
    plot->x_log = points[n - 1].x > 8 * points[0].x;
    vb_plot_mark(plot, crossing(points, n), "equal at batch %.0f", crossing(points, n));
    snprintf(plot->title, sizeof(plot->title), "Transfer against compute, by batch");
    snprintf(plot->x_label, sizeof(plot->x_label), "batch of a rank");
    snprintf(plot->y_label, sizeof(plot->y_label), "ms per step");
    report_add_plot(f, plot, "by batch");
    report_note(f, "Means over ranks. %s",
                plot->n_marks > 0 ? "The vertical line is where exposed transfer and waiting "
                                    "take as long as computing."
                                  : "The lines do not meet between these batches.");
}

void report_scaling(struct report *report)
{
    if (report->n_runs < 2)
        return;
    speed_up(report);
    batches(report);
}
