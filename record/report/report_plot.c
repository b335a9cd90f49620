/* SPDX-License-Identifier: MIT
 *
 * Plots: series of points, and the same as CSV and as data for the script of a page.
 */
#include "record/report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#define LOG_FROM 8 /* a curve that falls by more would be flat on a linear axis */

/* Okabe and Ito's colours, which colour-blind people can tell apart; yellow is too light here. */
const char *const vb_plot_colours[VB_PLOT_LOOKS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                    "#e69f00", "#56b4e9", "#6b6b6b", "#332288"};

struct vb_plot *vb_plot_create(enum vb_plot_kind kind, const char *name)
{
    struct vb_plot *plot = calloc(1, sizeof(*plot));

    if (plot == NULL) {
        (void)vb_err_sys("calloc");
        return NULL;
    }
    plot->kind = kind;
    snprintf(plot->name, sizeof(plot->name), "%s", name);
    return plot;
}

void vb_plot_destroy(struct vb_plot *plot)
{
    int i;

    if (plot == NULL)
        return;
    for (i = 0; i < plot->n; i++)
        free(plot->series[i].points);
    free(plot->bars);
    free(plot);
}

void vb_plot_mark(struct vb_plot *plot, double x, const char *fmt, ...)
{
    struct vb_plot_mark *mark;
    va_list args;

    if (plot->n_marks == VB_PLOT_MARKS || !isfinite(x))
        return;
    mark = &plot->marks[plot->n_marks++];
    mark->x = x;
    va_start(args, fmt);
    vsnprintf(mark->text, sizeof(mark->text), fmt, args);
    va_end(args);
}

struct vb_plot_series *vb_plot_add(struct vb_plot *plot, const char *name)
{
    struct vb_plot_series *s;

    if (plot == NULL || plot->n == VB_PLOT_SERIES)
        return NULL;
    s = &plot->series[plot->n];
    s->look = plot->n % VB_PLOT_LOOKS;
    snprintf(s->name, sizeof(s->name), "%s", name);
    plot->n++;
    return s;
}

static void add_point(struct vb_plot_series *s, const struct vb_plot_point *p)
{
    int room = s != NULL && s->room > 0 ? 2 * s->room : 64;
    struct vb_plot_point *points;

    if (s == NULL || !isfinite(p->x))
        return;
    if (s->n == s->room) {
        points = realloc(s->points, (size_t)room * sizeof(*points));
        if (points == NULL)
            return;
        s->points = points;
        s->room = room;
    }
    s->points[s->n++] = *p;
}

void vb_plot_point(struct vb_plot_series *s, double x, double y)
{
    struct vb_plot_point p = {.x = x, .y = y, .low = y, .high = y};

    add_point(s, &p);
}

void vb_plot_range(struct vb_plot_series *s, double x, const struct vb_thin_cell *cell,
                   double scale)
{
    struct vb_plot_point p = {.x = x, .bad = cell->bad > 0};

    p.y = cell->n > 0 ? scale * (cell->sum / (double)cell->n) : (double)NAN;
    p.low = cell->n > 0 ? scale * cell->low : p.y;
    p.high = cell->n > 0 ? scale * cell->high : p.y;
    add_point(s, &p);
}

vb_status vb_plot_name_bars(struct vb_plot *plot, const char *const *names, int n)
{
    int i;

    n = n < VB_PLOT_BARS_MAX ? n : VB_PLOT_BARS_MAX;
    free(plot->bars);
    plot->n_bars = 0;
    plot->bars = calloc(VB_PLOT_BARS_MAX, sizeof(*plot->bars));
    if (plot->bars == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < n; i++)
        snprintf(plot->bars[i], sizeof(plot->bars[i]), "%s", names[i]);
    plot->n_bars = n;
    return VB_OK;
}

int vb_plot_points(const struct vb_plot *plot)
{
    int i, k, n = 0;

    for (i = 0; i < plot->n; i++)
        for (k = 0; k < plot->series[i].n; k++)
            n += isfinite(plot->series[i].points[k].y) ? 1 : 0;
    return n;
}

bool vb_plot_wants_log(const struct vb_plot *plot)
{
    double low = INFINITY, high = -INFINITY;
    int i, k;

    for (i = 0; i < plot->n; i++)
        for (k = 0; k < plot->series[i].n; k++)
            if (isfinite(plot->series[i].points[k].y)) {
                low = fmin(low, plot->series[i].points[k].y);
                high = fmax(high, plot->series[i].points[k].high);
            }
    return low > 0 && high > LOG_FROM * low;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void csv_real(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, ",%.9g", value);
    else
        fputc(',', out);
}

static void csv_point(const struct vb_plot *plot, const struct vb_plot_series *s, int k, FILE *out)
{
    const struct vb_plot_point *p = &s->points[k];

    vb_csv_text(out, s->name);
    if (plot->kind == VB_PLOT_BARS && p->x >= 0 && p->x < plot->n_bars) {
        fputc(',', out);
        vb_csv_text(out, plot->bars[(int)p->x]);
    } else {
        csv_real(out, p->x);
    }
    csv_real(out, p->y);
    csv_real(out, p->low);
    csv_real(out, p->high);
    fprintf(out, ",%d\n", p->bad ? 1 : 0);
}

void vb_plot_csv(const struct vb_plot *plot, FILE *out)
{
    int i, k;

    fprintf(out, "series,");
    vb_csv_text(out, plot->x_label[0] != '\0' ? plot->x_label : "name");
    fputc(',', out);
    vb_csv_text(out, plot->y_label);
    fprintf(out, ",lowest,highest,not_finite\n");
    for (i = 0; i < plot->n; i++)
        for (k = 0; k < plot->series[i].n; k++)
            csv_point(plot, &plot->series[i], k, out);
}

/* ---- data for a script ----------------------------------------------------------------------- */

enum field { FIELD_X, FIELD_Y, FIELD_LOW, FIELD_HIGH };

static void json_field(const char *key, const struct vb_plot_series *s, enum field field, FILE *out)
{
    int k;

    fprintf(out, ",\"%s\":[", key);
    for (k = 0; k < s->n; k++) {
        const struct vb_plot_point *p = &s->points[k];
        double v = field == FIELD_X     ? p->x
                   : field == FIELD_Y   ? p->y
                   : field == FIELD_LOW ? p->low
                                        : p->high;

        fprintf(out, k > 0 ? "," : "");
        if (isfinite(v))
            fprintf(out, field == FIELD_X ? "%.7g" : "%.5g", v);
        else
            fprintf(out, "null");
    }
    fputc(']', out);
}

static bool has_range(const struct vb_plot_series *s)
{
    int k;

    for (k = 0; k < s->n; k++)
        if (s->points[k].low < s->points[k].high)
            return true;
    return false;
}

static void json_series(const struct vb_plot_series *s, FILE *out)
{
    fprintf(out, "{\"name\":");
    vb_html_json(out, s->name);
    fprintf(out, ",\"look\":%d", s->look);
    json_field("x", s, FIELD_X, out);
    json_field("y", s, FIELD_Y, out);
    if (has_range(s)) {
        json_field("low", s, FIELD_LOW, out);
        json_field("high", s, FIELD_HIGH, out);
    }
    fputc('}', out);
}

void vb_plot_json(const struct vb_plot *plot, FILE *out)
{
    static const char *const kinds[] = {"lines", "stacked", "bars"};
    int i;

    fprintf(out, "{\"kind\":\"%s\",\"x\":", kinds[plot->kind]);
    vb_html_json(out, plot->x_label);
    fprintf(out, ",\"y\":");
    vb_html_json(out, plot->y_label);
    fprintf(out, ",\"bars\":[");
    for (i = 0; i < plot->n_bars; i++) {
        fprintf(out, i > 0 ? "," : "");
        vb_html_json(out, plot->bars[i]);
    }
    fprintf(out, "],\"series\":[");
    for (i = 0; i < plot->n; i++) {
        fprintf(out, i > 0 ? "," : "");
        json_series(&plot->series[i], out);
    }
    fprintf(out, "]}");
}
