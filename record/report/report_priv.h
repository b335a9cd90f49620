/* SPDX-License-Identifier: MIT */
#ifndef VB_RECORD_REPORT_REPORT_PRIV_H
#define VB_RECORD_REPORT_REPORT_PRIV_H

#include "record/report/report.h"

/* The range of all values, with those of series on top of each other added up. Both are 0 and 1 if
 * there is no value. */
struct plot_span {
    double x_low, x_high, y_low, y_high;
};

void vb_plot_span(const struct vb_plot *plot, struct plot_span *span_p);

/* Returns the sum of a stacked plot below series i at point k. Values below 0 count as 0. */
double vb_plot_below(const struct vb_plot *plot, int i, int k);

#endif
