/* SPDX-License-Identifier: MIT
 *
 * From which batch on computing hides the transfer. Computing is a line over the batch: what every
 * step costs, and what every sample adds. So is the transfer of lists, which grow with the batch;
 * that of whole gradients is always the same.
 */
#include "engine/engine.h"

#include <math.h>

struct line {
    double at_0, slope;
};

static double compute_ms(const struct vb_step_point *p)
{
    return p->compute_ms;
}

static double transfer_ms(const struct vb_step_point *p)
{
    return p->transfer_ms;
}

static bool all_same(const struct vb_step_point *points, int n, bool bytes)
{
    int i;

    for (i = 1; i < n; i++)
        if (bytes ? points[i].bytes != points[0].bytes : points[i].batch != points[0].batch)
            return false;
    return true;
}

/* Least squares of relative errors, for the large batches take hundreds of times as long as the
 * small ones and would drown them. Neither a step nor a sample takes less than no time, however the
 * noise falls. Through 0 if there is one batch alone. */
static struct line fit_line(const struct vb_step_point *points, int n,
                            double (*ms)(const struct vb_step_point *))
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    struct line line = {0, 0};
    int i;

    for (i = 0; i < n; i++) {
        double at = points[i].batch, value = ms(&points[i]), weight;

        if (value <= 0)
            continue;
        weight = 1 / (value * value);
        w += weight;
        x += weight * at;
        y += weight * value;
        xx += weight * at * at;
        xy += weight * at * value;
    }
    if (w <= 0)
        return line;
    if (!all_same(points, n, false) && w * xx > x * x)
        line.slope = fmax((w * xy - x * y) / (w * xx - x * x), 0);
    line.at_0 = (y - line.slope * x) / w;
    if (line.at_0 < 0 || all_same(points, n, false))
        line = (struct line){.slope = xy / xx};
    return line;
}

static struct line fit_level(const struct vb_step_point *points, int n,
                             double (*ms)(const struct vb_step_point *))
{
    struct line line = {0, 0};
    int i;

    for (i = 0; i < n; i++)
        line.at_0 += ms(&points[i]) / n;
    return line;
}

int64_t vb_step_hidden_from(const struct vb_step_point *points, int n)
{
    struct line compute = fit_line(points, n, compute_ms);
    struct line transfer = all_same(points, n, true) ? fit_level(points, n, transfer_ms)
                                                     : fit_line(points, n, transfer_ms);
    double lead = compute.at_0 - transfer.at_0, gain = compute.slope - transfer.slope, from;

    if (n == 0)
        return 0;
    if (gain <= 0) /* it gets worse with the batch */
        return lead + gain * VB_STEP_REACH >= 0 ? 1 : 0;
    from = ceil(-lead / gain - 1e-9); /* whole numbers stay what they are */
    if (from > VB_STEP_REACH)
        return 0;
    return from > 1 ? (int64_t)from : 1;
}
