/* SPDX-License-Identifier: MIT */
#include "cli/report/cmd_report.h"

#include <stdarg.h>

struct report_figure *report_add_figure(struct report *report, enum report_section section,
                                        const char *id, const char *title)
{
    struct report_figure *f;

    if (report->n_figures == REPORT_FIGURES)
        return NULL;
    f = &report->figures[report->n_figures++];
    *f = (struct report_figure){.section = section};
    snprintf(f->id, sizeof(f->id), "%s", id);
    snprintf(f->title, sizeof(f->title), "%s", title);
    return f;
}

void report_add_plot(struct report_figure *f, struct vb_plot *plot, const char *tab)
{
    if (plot == NULL)
        return;
    if (f == NULL || f->n == REPORT_TABS || vb_plot_points(plot) == 0) {
        vb_plot_destroy(plot);
        return;
    }
    snprintf(f->tabs[f->n], sizeof(f->tabs[0]), "%s", tab);
    f->plots[f->n++] = plot;
}

void report_note(struct report_figure *f, const char *fmt, ...)
{
    size_t len;
    va_list args;

    if (f == NULL)
        return;
    len = strlen(f->note);
    if (len > 0 && len + 1 < sizeof(f->note))
        f->note[len++] = ' ';
    va_start(args, fmt);
    vsnprintf(f->note + len, sizeof(f->note) - len, fmt, args);
    va_end(args);
}

void report_add_table(struct report *report, enum report_section section, struct vb_table *table,
                      bool folded)
{
    if (table == NULL)
        return;
    if (report->n_tables == REPORT_TABLES || vb_table_rows(table) == 0) {
        vb_table_destroy(table);
        return;
    }
    report->tables[report->n_tables].section = section;
    report->tables[report->n_tables].table = table;
    report->tables[report->n_tables++].folded = folded;
}
