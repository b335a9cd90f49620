/* SPDX-License-Identifier: MIT
 *
 * The points of bench step: from which batch on computing hides the transfer.
 */
#include "cli/report/cmd_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#define LINE_BYTES 4096
#define POINTS_MAX 64

struct bench {
    struct vb_step_point points[POINTS_MAX];
    int n, ranks;
    char model[64], transport[32];
    bool ended;                /* the bench has said where the crossing is */
    double crossing, expected; /* NAN: there is none */
};

static void take_point(struct bench *b, const struct vb_json *json)
{
    if (b->n == POINTS_MAX)
        return;
    b->points[b->n++] =
        (struct vb_step_point){.batch = (int)vb_json_get_real(json, "batch"),
                               .compute_ms = vb_json_get_real(json, "compute_ms"),
                               .transfer_ms = fmax(vb_json_get_real(json, "transfer_ms"), 0),
                               .exposed_ms = fmax(vb_json_get_real(json, "exposed_ms"), 0),
                               .step_ms = fmax(vb_json_get_real(json, "step_ms"), 0)};
}

static void take_names(struct bench *b, const struct vb_json *json)
{
    const char *model = vb_json_get_text(json, "model");
    const char *transport = vb_json_get_text(json, "transport");

    snprintf(b->model, sizeof(b->model), "%s", model != NULL ? model : "");
    snprintf(b->transport, sizeof(b->transport), "%s", transport != NULL ? transport : "");
}

static vb_status take_line(struct bench *b, const char *path, int number, const char *line)
{
    struct vb_json *json = vb_json_parse(line, strlen(line));
    const char *what = vb_json_get_text(json, "bench");
    double batch = vb_json_get_real(json, "batch"), ranks = vb_json_get_real(json, "ranks");
    bool step = what != NULL && strcmp(what, "step") == 0 && ranks >= 1 && ranks < 1e6;
    vb_status st = VB_OK;

    if (step && batch >= 1 && batch < 1e9 && vb_json_get_real(json, "compute_ms") > 0) {
        take_point(b, json);
        take_names(b, json);
        b->ranks = (int)ranks;
    } else if (step && isnan(batch) && b->n > 0) { /* the last line */
        b->ended = true;
        b->crossing = vb_json_get_real(json, "hidden_from_batch");
        b->expected = vb_json_get_real(json, "expected_from_batch");
    } else {
        st = vb_err(VB_ERR_INPUT,
                    "%s: line %d was not printed by verbena bench step --json: run verbena bench "
                    "step --model MODEL --ranks N --json >%s",
                    path, number, path);
    }
    vb_json_destroy(json);
    return st;
}

static vb_status read_bench(const char *path, struct bench *b)
{
    char line[LINE_BYTES];
    struct stat info;
    vb_status st = VB_OK;
    int number = 0;
    FILE *file;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return vb_err(VB_ERR_INPUT, "--bench %s is not a file", path);
    file = fopen(path, "re");
    if (file == NULL)
        return vb_err_sys("cannot read %s", path);
    while (st == VB_OK && fgets(line, sizeof(line), file) != NULL)
        if (line[0] != '\n')
            st = take_line(b, path, ++number, line);
    fclose(file);
    if (st == VB_OK && b->n == 0)
        st = vb_err(VB_ERR_INPUT,
                    "%s is empty: it should have the output of verbena bench step "
                    "--json",
                    path);
    return st;
}

static void add_lines(struct vb_plot *plot, const struct bench *b)
{
    static const char *const names[] = {"compute", "transfer alone", "exposed transfer", "step"};
    int i, k;

    for (k = 0; k < (int)VB_COUNT(names); k++) {
        struct vb_plot_series *s = vb_plot_add(plot, names[k]);

        for (i = 0; s != NULL && i < b->n; i++) {
            const struct vb_step_point *p = &b->points[i];
            double ms = k == 0   ? p->compute_ms
                        : k == 1 ? p->transfer_ms
                        : k == 2 ? p->exposed_ms
                                 : p->step_ms;

            vb_plot_point(s, p->batch, ms > 0 ? ms : (double)NAN);
        }
        if (s != NULL)
            s->markers = true;
    }
}

/* Tells where transfer remained exposed although computing takes longer. */
static void note_exposed(struct report_figure *f, const struct bench *b, int64_t from)
{
    const struct vb_step_point *worst = NULL;
    int i;

    for (i = 0; i < b->n; i++) {
        const struct vb_step_point *p = &b->points[i];

        if (p->batch >= from && p->exposed_ms > 0.05 * p->step_ms &&
            (worst == NULL || p->exposed_ms > worst->exposed_ms))
            worst = p;
    }
    if (worst != NULL)
        report_note(f, "It was not all hidden: at batch %d, %.3g ms of a step remained exposed.",
                    worst->batch, worst->exposed_ms);
}

static void note_model(const struct report *report, struct report_figure *f, const struct bench *b)
{
    int i;

    for (i = 0; i < report->n_runs; i++)
        if (strcmp(report->runs[i]->top.model, b->model) == 0)
            return;
    report_note(f, "The bench is of %s, not of this model.", b->model);
}

static int by_batch(const void *x, const void *y)
{
    const struct vb_step_point *a = x, *b = y;

    return a->batch < b->batch ? -1 : a->batch > b->batch;
}

/* Finds the batch from which on computing hides the transfer, or is expected to; 0: there is none.
 * The bench's own word counts; a bench that was cut short has none. */
static void find_crossing(struct bench *b)
{
    if (!b->ended && b->ranks > 1) {
        b->crossing = (double)vb_step_hidden_from(b->points, b->n);
        b->expected = (double)vb_step_expected_from(b->points, b->n);
    }
    if (!(b->crossing >= 1 && b->crossing < 1e9))
        b->crossing = 0;
    if (!(b->expected >= 1 && b->expected < 1e9))
        b->expected = 0;
}

static void note_crossing(struct report_figure *f, const struct bench *b)
{
    if (b->ranks < 2) {
        report_note(f, "One rank transfers nothing: measure with --ranks 2 or more.");
    } else if (b->crossing == 0 && b->expected == 0) {
        report_note(f, "There is no crossing: computing is too short to hide the transfer at any "
                       "batch.");
    } else if (b->crossing == 0) {
        report_note(f,
                    "Computing hides the transfer at no batch that was measured. It is expected to "
                    "from about batch %.0f on.",
                    b->expected);
    } else {
        report_note(f, "From batch %.0f on, computing hides the transfer.", b->crossing);
        note_exposed(f, b, (int64_t)b->crossing);
    }
}

static void draw(struct report *report, struct bench *b)
{
    struct report_figure *f =
        report_add_figure(report, REPORT_TIME, "crossing", "Transfer against compute, by batch");
    struct vb_plot *plot = vb_plot_create(VB_PLOT_LINES, "crossing");

    if (plot == NULL)
        return;
    qsort(b->points, (size_t)b->n, sizeof(b->points[0]), by_batch);
    find_crossing(b);
    add_lines(plot, b);
    plot->x_log = plot->y_log = true;
    snprintf(plot->title, sizeof(plot->title), "A step of %.40s over %.20s, %d rank%s", b->model,
             b->transport, b->ranks, b->ranks == 1 ? "" : "s");
    snprintf(plot->x_label, sizeof(plot->x_label), "batch of a rank");
    snprintf(plot->y_label, sizeof(plot->y_label), "ms per step");
    if (b->crossing >= b->points[0].batch && b->crossing <= b->points[b->n - 1].batch)
        vb_plot_mark(plot, b->crossing, "crossing: batch %.0f", b->crossing);
    note_crossing(f, b);
    note_model(report, f, b);
    report_note(f, "Measured by verbena bench step (%s).", report->bench);
    report_add_plot(f, plot, "by batch");
}

vb_status report_bench(struct report *report)
{
    struct bench *b;
    vb_status st;

    if (report->bench == NULL)
        return VB_OK;
    b = calloc(1, sizeof(*b));
    if (b == NULL)
        return vb_err_sys("calloc");
    st = read_bench(report->bench, b);
    if (st == VB_OK)
        draw(report, b);
    free(b);
    return st;
}
