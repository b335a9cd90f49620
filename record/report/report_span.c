/* SPDX-License-Identifier: MIT */
#include "record/report/report_priv.h"

#include <math.h>

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
        if (plot->y_log && !(p->low > 0)) /* such a value has no place on the axis */
            widen(&span->y_low, &span->y_high, p->y > 0 ? p->y : (double)NAN);
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
    if (plot->kind == VB_PLOT_BARS) {
        span.x_low = -0.5;
        span.x_high = plot->n_bars > 0 ? plot->n_bars - 0.5 : 0.5;
    }
    *span_p = span;
}
