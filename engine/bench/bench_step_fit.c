/* SPDX-License-Identifier: MIT
 *
 * Finds the smallest batch whose computing hides the transfer. The computing time is modelled as a
 * straight line over the batch size: a cost per step plus a cost per sample. The transfer time of
 * sparse lists is also a straight line, because lists grow with the batch. The transfer of dense
 * gradients does not depend on the batch.
 */
#include "engine/bench/engine_bench.h"

#include <math.h>

struct line {
    double at_0, slope;
};

static bool all_same(const struct vb_step_point *points, int n, bool bytes)
{
    int i;

    for (i = 1; i < n; i++)
        if (bytes ? points[i].bytes != points[0].bytes : points[i].batch != points[0].batch)
            return false;
    return true;
}

/* Fits a line by least squares of relative errors; with absolute errors only the large batches
 * would count. The cost per step and the cost per sample are at least 0, whatever the noise. With a
 * single batch size the line goes through 0. */
static struct line fit_line(const struct vb_step_point *points, int n, bool transfer)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;
    struct line line = {0, 0};
    int i;

    for (i = 0; i < n; i++) {
        double value = transfer ? points[i].transfer_ms : points[i].compute_ms;
        double at = points[i].batch, weight;

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

static struct line fit_level(const struct vb_step_point *points, int n)
{
    struct line line = {0, 0};
    int i;

    for (i = 0; i < n; i++)
        line.at_0 += points[i].transfer_ms / n;
    return line;
}

int64_t vb_step_hidden_from(const struct vb_step_point *points, int n)
{
    struct line compute = fit_line(points, n, false);
    struct line transfer =
        all_same(points, n, true) ? fit_level(points, n) : fit_line(points, n, true);
    double lead = compute.at_0 - transfer.at_0, gain = compute.slope - transfer.slope, from;

    if (n == 0)
        return 0;
    if (gain <= 0) /* a larger batch hides less of the transfer */
        return lead + gain * VB_STEP_REACH >= 0 ? 1 : 0;
    from = ceil(-lead / gain - 1e-9); /* 1e-9: rounding errors must not raise a whole number */
    if (from > VB_STEP_REACH)
        return 0;
    return from > 1 ? (int64_t)from : 1;
}
