/* SPDX-License-Identifier: MIT
 *
 * What ranks and hosts use over time: CPU, memory, network, disk. Of one run, each rank and each
 * host has a line; of several runs, each run has one, the mean of its ranks.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

#define GRID 120 /* points of a mean over ranks */

struct what {
    const char *id, *title, *unit, *name, *second; /* second: name of the second column, or NULL */
    int col, second_col;
    bool hosts; /* the host has this, too */
};

static const struct what whats[] = {
    {"cpu", "CPU", "% of one CPU", "", NULL, USE_CPU, 0, true},
    {"memory", "Memory", "MB", "", NULL, USE_MB, 0, false},
    {"network", "Network, by the ranks' transports", "MB/s", "sent", "received", USE_SEND, USE_RECV,
     false},
    {"disk", "Disk", "MB/s", "read", "written", USE_READ, USE_WRITE, true},
};

static struct vb_plot_series *add_use(struct vb_plot *plot, const struct vb_thin *thin, int col,
                                      const char *name)
{
    struct vb_plot_series *s = thin->n > 0 ? vb_plot_add(plot, name) : NULL;
    int b;

    for (b = 0; s != NULL && b < thin->n; b++) {
        struct vb_thin_cell cell = *vb_thin_at(thin, b, col);

        cell.bad = 0; /* a counter that begins again is no fault */
        vb_plot_range(s, vb_thin_mean(thin, b, USE_TIME), &cell, 1);
    }
    return s;
}

static void add_rank(struct vb_plot *plot, const struct what *w, const struct report_run *run,
                     int i)
{
    const struct report_rank *r = &run->ranks[i];
    struct vb_plot_series *s;
    char name[72];

    snprintf(name, sizeof(name), "rank %d%s%s", r->rank, w->name[0] != '\0' ? " " : "", w->name);
    s = add_use(plot, &r->usage, w->col, name);
    if (s != NULL)
        s->look = i % VB_PLOT_LOOKS;
    if (w->second == NULL)
        return;
    snprintf(name, sizeof(name), "rank %d %s", r->rank, w->second);
    s = add_use(plot, &r->usage, w->second_col, name);
    if (s != NULL)
        s->look = (i + run->n_ranks) % VB_PLOT_LOOKS;
}

static void add_host(struct vb_plot *plot, const struct what *w, const struct report_rank *r)
{
    struct vb_plot_series *s;
    char name[72];

    if (!w->hosts || r->machine.n == 0)
        return;
    snprintf(name, sizeof(name), "host %.40s%s%s", r->host, w->name[0] != '\0' ? " " : "", w->name);
    s = add_use(plot, &r->machine, w->col, name);
    if (s != NULL)
        s->look = 6;
    if (w->second == NULL)
        return;
    snprintf(name, sizeof(name), "host %.40s %s", r->host, w->second);
    s = add_use(plot, &r->machine, w->second_col, name);
    if (s != NULL)
        s->look = 7;
}

/* ---- the mean of ranks ----------------------------------------------------------------------- */

static double end_of(const struct report_run *run)
{
    double end = 0;
    int i;

    for (i = 0; i < run->n_ranks; i++)
        if (run->ranks[i].usage.n > 0)
            end = fmax(end,
                       vb_thin_at(&run->ranks[i].usage, run->ranks[i].usage.n - 1, USE_TIME)->high);
    return end;
}

static void add_mean(struct vb_plot *plot, const struct report_run *run, int col, const char *name,
                     int look)
{
    struct vb_thin_cell cells[GRID] = {{0}};
    double end = end_of(run), value;
    struct vb_plot_series *s;
    int i, b, g;

    for (i = 0; i < run->n_ranks; i++)
        for (b = 0; b < run->ranks[i].usage.n; b++) {
            g = (int)(vb_thin_mean(&run->ranks[i].usage, b, USE_TIME) / end * GRID);
            value = vb_thin_mean(&run->ranks[i].usage, b, col);
            if (!isfinite(value) || g < 0 || g > GRID)
                continue;
            g = g == GRID ? GRID - 1 : g;
            cells[g].sum += value;
            cells[g].n++;
        }
    s = end > 0 ? vb_plot_add(plot, name) : NULL;
    for (g = 0; s != NULL && g < GRID; g++)
        if (cells[g].n > 0)
            vb_plot_point(s, (g + 0.5) * end / GRID, cells[g].sum / (double)cells[g].n);
    if (s != NULL)
        s->look = look;
}

/* ---- figures --------------------------------------------------------------------------------- */

static struct vb_plot *begin(const char *id, const char *title, const char *unit)
{
    struct vb_plot *plot = vb_plot_create(VB_PLOT_LINES, id);

    if (plot == NULL)
        return NULL;
    plot->y_zero = true;
    snprintf(plot->title, sizeof(plot->title), "%s", title);
    snprintf(plot->x_label, sizeof(plot->x_label), "time since the start (s)");
    snprintf(plot->y_label, sizeof(plot->y_label), "%s", unit);
    return plot;
}

static struct vb_plot *use_plot(const struct report *report, const struct what *w)
{
    struct vb_plot *plot = begin(w->id, w->title, w->unit);
    char name[72];
    int i, k;

    for (i = 0; plot != NULL && i < report->n_runs; i++) {
        const struct report_run *run = report->runs[i];

        for (k = 0; report->n_runs == 1 && k < run->n_ranks; k++)
            add_rank(plot, w, run, k);
        for (k = 0; report->n_runs == 1 && k < run->n_ranks; k++)
            add_host(plot, w, &run->ranks[k]);
        if (report->n_runs == 1)
            continue;
        snprintf(name, sizeof(name), "%.48s%s%s", run->label, w->second != NULL ? ", " : "",
                 w->second != NULL ? w->name : "");
        add_mean(plot, run, w->col, name, i % VB_PLOT_LOOKS);
        if (w->second == NULL)
            continue;
        snprintf(name, sizeof(name), "%.48s, %s", run->label, w->second);
        add_mean(plot, run, w->second_col, name, (i + report->n_runs) % VB_PLOT_LOOKS);
    }
    report_mark_lost(report, plot, REPORT_BY_TIME);
    return plot;
}

static void ports(struct report *report)
{
    struct report_figure *f;
    struct vb_plot *plot;
    char name[72];
    int i, k;

    if (report->n_runs > 1)
        return;
    f = report_add_figure(report, REPORT_USE, "interfaces", "Network interfaces of the hosts");
    plot = begin("interfaces", "Network interfaces of the hosts", "MB/s");
    for (i = 0; plot != NULL && i < report->runs[0]->n_ranks; i++)
        for (k = 0; k < report->runs[0]->ranks[i].n_ports; k++) {
            const struct report_rank *r = &report->runs[0]->ranks[i];

            snprintf(name, sizeof(name), "%.24s %.16s sent", r->host, r->ports[k].name);
            (void)add_use(plot, &r->ports[k].rows, USE_SEND, name);
            snprintf(name, sizeof(name), "%.24s %.16s received", r->host, r->ports[k].name);
            (void)add_use(plot, &r->ports[k].rows, USE_RECV, name);
        }
    report_add_plot(f, plot, "interfaces");
    report_note(f, "Of all processes of the host. Interfaces without traffic are left out.");
}

void report_usage(struct report *report)
{
    const struct report_run *run = report->runs[0];
    size_t i;

    for (i = 0; i < VB_COUNT(whats); i++) {
        struct report_figure *f =
            report_add_figure(report, REPORT_USE, whats[i].id, whats[i].title);

        report_add_plot(f, use_plot(report, &whats[i]), whats[i].title);
        if (report->n_runs > 1)
            report_note(f, "The mean of the ranks of each run.");
        else if (run->n_ranks < run->top.n_ranks)
            report_note(f, "%d of %d ranks.", run->n_ranks, run->top.n_ranks);
    }
    ports(report);
}
