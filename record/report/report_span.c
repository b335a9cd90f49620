/* SPDX-License-Identifier: MIT */
#include "record/report/report_priv.h"

#include <math.h>
#include <stdlib.h>

#define CUT_FROM 3    /* an axis is cut if the highest value is so many times the usual one */
#define CUT_POINTS 20 /* of fewer points, each one counts */

double vb_plot_below(const struct vb_plot *plot, int i, int k)
{
    double sum = 0;
    int j;

    for (j = 0; j < i; j++)
        if (k < plot->series[j].n && plot->series[j].points[k].y > 0)
            sum += plot->series[j].points[k].y;
    return sum;
}

static void widen(double *low, double *high, double value)
{
    if (!isfinite(value))
        return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

static void add_series(const struct vb_plot *plot, int i, struct plot_span *span)
{
    const struct vb_plot_series *s = &plot->series[i];
    bool lines = plot->kind == VB_PLOT_LINES;
    int k;

    for (k = 0; k < s->n; k++) {
        const struct vb_plot_point *p = &s->points[k];

        widen(&span->x_low, &span->x_high, p->x);
        if (plot->y_log) /* single values near 0 would stretch the axis */
            widen(&span->y_low, &span->y_high, p->y > 0 ? fmax(p->low, p->y / 4) : (double)NAN);
        else
            widen(&span->y_low, &span->y_high, lines ? p->low : 0);
        widen(&span->y_low, &span->y_high,
              lines ? p->high : vb_plot_below(plot, i, k) + (p->y > 0 ? p->y : 0));
    }
}

void vb_plot_span(const struct vb_plot *plot, struct plot_span *span_p)
{
    struct plot_span span = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    int i;

    for (i = 0; i < plot->n; i++)
        add_series(plot, i, &span);
    if (plot->y_zero || plot->kind != VB_PLOT_LINES)
        widen(&span.y_low, &span.y_high, 0);
    if (!(span.x_low <= span.x_high)) {
        span.x_low = 0;
        span.x_high = 1;
    }
    if (!(span.y_low <= span.y_high)) {
        span.y_low = 0;
        span.y_high = 1;
    }
    if (!plot->x_log && span.x_low > 0 && span.x_low < 0.1 * span.x_high)
        span.x_low = 0; /* axes of steps and times begin with 0 */
    if (plot->y_cut > 0 && plot->y_cut < span.y_high)
        span.y_high = plot->y_cut;
    if (plot->kind == VB_PLOT_BARS) {
        span.x_low = -0.5;
        span.x_high = plot->n_bars > 0 ? plot->n_bars - 0.5 : 0.5;
    }
    *span_p = span;
}

/* Returns the highest value at each point of the longest series: of areas, the sum. */
static double *highest(const struct vb_plot *plot, int *n_p)
{
    int i, k, n = 0;
    double *values;

    for (i = 0; i < plot->n; i++)
        n = plot->series[i].n > n ? plot->series[i].n : n;
    *n_p = n;
    values = calloc((size_t)n + 1, sizeof(*values));
    for (k = 0; values != NULL && k < n; k++) {
        if (plot->kind != VB_PLOT_LINES)
            values[k] = vb_plot_below(plot, plot->n, k);
        for (i = 0; i < plot->n && plot->kind == VB_PLOT_LINES; i++)
            if (k < plot->series[i].n && plot->series[i].points[k].y > values[k])
                values[k] = plot->series[i].points[k].y;
    }
    return values;
}

double vb_plot_cut(struct vb_plot *plot)
{
    double *values, usual, share = 0;
    int n, k, higher = 0;

    values = highest(plot, &n);
    if (values == NULL || n < CUT_POINTS) {
        free(values);
        return 0;
    }
    vb_sort(values, (size_t)n);
    usual = values[(int)(0.95 * (n - 1))];
    if (usual > 0 && values[n - 1] > CUT_FROM * usual) {
        plot->y_cut = 1.25 * usual;
        for (k = 0; k < n; k++)
            higher += values[k] > plot->y_cut ? 1 : 0;
        share = (double)higher / n;
    }
    free(values);
    return share;
}
