/* SPDX-License-Identifier: MIT
 *
 * Curves of learning and of speed: loss, accuracy, steps/s and staleness, by step, epoch or time.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

enum axis { BY_STEP = REPORT_BY_STEP, BY_EPOCH = REPORT_BY_EPOCH, BY_TIME = REPORT_BY_TIME, AXES };

static const struct {
    const char *tab, *label, *end;
} axes[AXES] = {{"by step", "step", "step"},
                {"by epoch", "epoch", "epoch"},
                {"by time", "time since the start (s)", "time"}};

static double at(const struct report_run *run, enum axis axis, double step, double time_s)
{
    return axis == BY_TIME ? time_s : axis == BY_EPOCH ? step / run->steps_per_epoch : step;
}

static double at_bucket(const struct report_run *run, enum axis axis, const struct vb_thin *thin,
                        int b)
{
    return at(run, axis, vb_thin_mean(thin, b, STEP_STEP), vb_thin_mean(thin, b, STEP_TIME));
}

static struct vb_plot *begin(const char *name, enum axis axis, const char *title, const char *unit)
{
    char full[64];
    struct vb_plot *plot;

    snprintf(full, sizeof(full), "%s-%s", name, axes[axis].end);
    plot = vb_plot_create(VB_PLOT_LINES, full);
    if (plot == NULL)
        return NULL;
    snprintf(plot->title, sizeof(plot->title), "%s %s", title, axes[axis].tab);
    snprintf(plot->x_label, sizeof(plot->x_label), "%s", axes[axis].label);
    snprintf(plot->y_label, sizeof(plot->y_label), "%s", unit);
    return plot;
}

/* Names a series: with the run, if there are several. */
static void name_of(const struct report *report, const struct report_run *run, const char *what,
                    char *name, size_t size)
{
    if (report->n_runs > 1 && what[0] != '\0')
        snprintf(name, size, "%.40s: %.24s", run->label, what);
    else
        snprintf(name, size, "%s", report->n_runs > 1 ? run->label : what);
}

/* ---- loss and accuracy ----------------------------------------------------------------------- */

static void add_training_loss(const struct report *report, const struct report_run *run,
                              enum axis axis, struct vb_plot *plot, int look)
{
    struct vb_plot_series *s;
    const struct vb_thin *thin;
    char name[72];
    int b;

    if (run->n_ranks == 0)
        return;
    thin = report->n_runs > 1 ? &run->ranks[run->lead].coarse : &run->ranks[run->lead].fine;
    name_of(report, run, report->n_runs > 1 ? "" : "training", name, sizeof(name));
    s = vb_plot_add(plot, name);
    for (b = 0; s != NULL && b < thin->n; b++)
        if (report->n_runs > 1) /* the ranges of several runs would hide each other */
            vb_plot_point(s, at_bucket(run, axis, thin, b), vb_thin_mean(thin, b, STEP_LOSS));
        else
            vb_plot_range(s, at_bucket(run, axis, thin, b), vb_thin_at(thin, b, STEP_LOSS), 1);
    if (s != NULL)
        s->look = look;
}

static void add_evals(const struct report *report, const struct report_run *run, enum axis axis,
                      struct vb_plot *plot, bool accuracy, int look)
{
    struct vb_plot_series *s;
    char name[72];
    int i;

    if (run->n_evals == 0)
        return;
    name_of(report, run, report->n_runs > 1 ? "" : "test", name, sizeof(name));
    s = vb_plot_add(plot, name);
    for (i = 0; s != NULL && i < run->n_evals; i++) {
        const struct report_eval *e = &run->evals[i];

        vb_plot_point(s, at(run, axis, e->step, e->time_s), accuracy ? 100 * e->accuracy : e->loss);
    }
    if (s == NULL)
        return;
    s->look = look;
    s->markers = run->n_evals <= 60;
}

/* Of one run, training and test are in one plot; of several, each has its own. */
static struct vb_plot *loss_plot(const struct report *report, enum axis axis, bool training,
                                 bool test)
{
    bool both = training && test;
    struct vb_plot *plot = begin(both       ? "loss"
                                 : training ? "training-loss"
                                            : "test-loss",
                                 axis,
                                 both       ? "Loss"
                                 : training ? "Training loss"
                                            : "Loss on test data",
                                 "loss");
    int i;

    for (i = 0; plot != NULL && i < report->n_runs; i++) {
        int look = i % VB_PLOT_LOOKS;

        if (training)
            add_training_loss(report, report->runs[i], axis, plot, look);
        if (test)
            add_evals(report, report->runs[i], axis, plot, false, both ? 1 : look);
    }
    if (plot != NULL)
        plot->y_log = vb_plot_wants_log(plot);
    report_mark_lost(report, plot, (enum report_axis)axis);
    return plot;
}

static struct vb_plot *accuracy_plot(const struct report *report, enum axis axis)
{
    struct vb_plot *plot = begin("accuracy", axis, "Accuracy on test data", "accuracy (%)");
    int i;

    for (i = 0; plot != NULL && i < report->n_runs; i++)
        add_evals(report, report->runs[i], axis, plot, true, i % VB_PLOT_LOOKS);
    report_mark_lost(report, plot, (enum report_axis)axis);
    return plot;
}

static void note_losses(const struct report *report, struct report_figure *f)
{
    bool thinned = false;
    int i;

    for (i = 0; i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        if (run->n_ranks == 0)
            continue;
        thinned = thinned || run->ranks[run->lead].fine.stride > 1 || report->n_runs > 1;
        if (run->ranks[run->lead].bad_losses > 0)
            report_note(f,
                        "%s: %lld training losses are not finite, the first at step %lld "
                        "(red ticks at the axis).",
                        run->label, (long long)run->ranks[run->lead].bad_losses,
                        (long long)run->ranks[run->lead].first_bad);
    }
    report_note(f, "The training loss is that of rank %d's batch.",
                report->n_runs == 1 ? report->runs[0]->top.lead : 0);
    if (thinned)
        report_note(f, "The line is the mean of neighbouring steps%s.",
                    report->n_runs > 1
                        ? ""
                        : ", the light area reaches from their lowest to their highest value");
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* Synchronous ranks make steps together, so each has the rate of the job. */
static void add_sync_rate(const struct report_run *run, enum axis axis, struct vb_plot_series *s)
{
    const struct vb_thin *thin = &run->ranks[run->lead].coarse;
    int b;

    for (b = 0; b < thin->n; b++) {
        const struct vb_thin_cell *cell = vb_thin_at(thin, b, STEP_SECONDS);

        vb_plot_point(s, at_bucket(run, axis, thin, b),
                      cell->sum > 0 ? (double)cell->n / cell->sum : (double)NAN);
    }
}

static void add_async_rate(const struct report_run *run, enum axis axis, struct vb_plot_series *s)
{
    double steps = 0, before = 0;
    int b;

    for (b = 0; b < run->rate.n; b++) {
        double time_s = vb_thin_mean(&run->rate, b, USE_TIME);
        double rate = vb_thin_mean(&run->rate, b, USE_CPU);

        if (isfinite(time_s) && isfinite(rate))
            steps += rate * (b == 0 ? 2 * time_s : time_s - before);
        before = time_s;
        vb_plot_point(s, at(run, axis, steps, time_s), rate);
    }
}

static struct vb_plot *rate_plot(const struct report *report, enum axis axis)
{
    struct vb_plot *plot = begin("steps-per-s", axis, "Steps per second", "steps/s");
    int i;

    for (i = 0; plot != NULL && i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];
        struct vb_plot_series *s =
            run->n_ranks > 0 ? vb_plot_add(plot, report->n_runs > 1 ? run->label : "job") : NULL;

        if (s != NULL && run->top.async)
            add_async_rate(run, axis, s);
        else if (s != NULL)
            add_sync_rate(run, axis, s);
    }
    if (plot != NULL)
        plot->y_zero = true;
    report_mark_lost(report, plot, (enum report_axis)axis);
    return plot;
}

/* ---- staleness ------------------------------------------------------------------------------- */

static void add_staleness(const struct report *report, struct vb_plot *plot,
                          const struct report_run *run)
{
    char what[32], name[72];
    int i, b;

    for (i = 0; i < run->n_ranks && run->top.async; i++) {
        const struct vb_thin *thin = &run->ranks[i].fine;
        struct vb_plot_series *s;

        if (thin->n == 0)
            continue;
        snprintf(what, sizeof(what), "rank %d", run->ranks[i].rank);
        name_of(report, run, what, name, sizeof(name));
        s = vb_plot_add(plot, name);
        for (b = 0; s != NULL && b < thin->n; b++) {
            const struct vb_thin_cell *cell = vb_thin_at(thin, b, STEP_STALE);

            if (cell->n > 0) /* not every row has one */
                vb_plot_point(s, vb_thin_mean(thin, b, STEP_TIME), cell->sum / (double)cell->n);
        }
    }
}

/* The histogram of run.json: 0, 1, 2 to 3, 4 to 7 ... */
static struct vb_plot *stale_bars(const struct report *report)
{
    struct vb_plot *plot = vb_plot_create(VB_PLOT_BARS, "staleness-histogram");
    char text[24][16], keys[64];
    const char *names[24];
    int i, k, n = 0, bars = 0;

    for (i = 0; plot != NULL && i < report->n_runs && plot->n == 0; i++) {
        const struct report_run *run = report->runs[i];
        struct vb_plot_series *s;

        n = vb_json_get_count(run->json, "staleness.histogram");
        s = n > 0 ? vb_plot_add(plot, run->label) : NULL;
        for (k = 0; s != NULL && k < n && k < 24; k++) {
            snprintf(keys, sizeof(keys), "staleness.histogram.%d", k);
            vb_plot_point(s, k, report_real(run, keys));
            if (k < 2)
                snprintf(text[k], sizeof(text[k]), "%d", k);
            else
                snprintf(text[k], sizeof(text[k]), "%lld-%lld", 1LL << (k - 1), (1LL << k) - 1);
            names[k] = text[k];
            bars = k + 1;
        }
    }
    if (plot == NULL || vb_plot_name_bars(plot, names, bars) != VB_OK)
        return plot;
    snprintf(plot->title, sizeof(plot->title), "Staleness of gradients");
    snprintf(plot->x_label, sizeof(plot->x_label), "staleness");
    snprintf(plot->y_label, sizeof(plot->y_label), "gradients");
    return plot;
}

static void staleness(struct report *report)
{
    struct report_figure *f;
    struct vb_plot *plot;
    bool any = false;
    int i;

    for (i = 0; i < report->n_runs; i++)
        any = any || report->runs[i]->top.async;
    f = any ? report_add_figure(report, REPORT_LEARNING, "staleness", "Staleness") : NULL;
    plot = f != NULL ? begin("staleness", BY_TIME, "Staleness", "gradients of others") : NULL;
    if (plot == NULL)
        return;
    for (i = 0; i < report->n_runs; i++)
        add_staleness(report, plot, report->runs[i]);
    plot->y_zero = true;
    report_add_plot(f, stale_bars(report), "histogram");
    report_add_plot(f, plot, "over time");
    report_note(f, "How many gradients of other workers were applied between the parameters that a "
                   "gradient was computed on and its own application.");
}

void report_curves(struct report *report)
{
    bool several = report->n_runs > 1;
    struct report_figure *loss, *test = NULL, *accuracy, *rate;
    int i;

    loss = report_add_figure(report, REPORT_LEARNING, "loss", several ? "Training loss" : "Loss");
    if (several)
        test = report_add_figure(report, REPORT_LEARNING, "test-loss", "Loss on test data");
    accuracy = report_add_figure(report, REPORT_LEARNING, "accuracy", "Accuracy on test data");
    rate = report_add_figure(report, REPORT_LEARNING, "rate", "Steps per second");
    for (i = 0; i < AXES; i++) {
        enum axis axis = (enum axis)i;

        report_add_plot(loss, loss_plot(report, axis, true, !several), axes[i].tab);
        if (several)
            report_add_plot(test, loss_plot(report, axis, false, true), axes[i].tab);
        report_add_plot(accuracy, accuracy_plot(report, axis), axes[i].tab);
        report_add_plot(rate, rate_plot(report, axis), axes[i].tab);
    }
    note_losses(report, loss);
    report_note(rate, "Of training alone, without evaluations and checkpoints.");
    staleness(report);
}
