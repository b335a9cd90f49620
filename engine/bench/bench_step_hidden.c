/* SPDX-License-Identifier: MIT
 *
 * From which batch on computing hides the transfer: what is claimed from points that were measured,
 * and which batch to measure next so that the claim gets sharper.
 */
#include "engine/bench/engine_bench.h"

#include <math.h>

#define NARROW 1.1 /* times the largest exposed batch: a hidden one is near enough */
#define FURTHER 4  /* times the largest batch of the user is measured, too */
#define SURE 3     /* measurements; the exposed share falls slowly, so noise moves the claim far */

/* ---- what lines say ---------------------------------------------------------------------------
 */

/* The computing time is modelled as a straight line over the batch size: a cost per step plus a
 * cost per sample. The transfer time of sparse lists is also a line, because lists grow with the
 * batch. The transfer of dense gradients does not depend on the batch. */
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

/* Returns the smallest batch at which computing takes as long as the transfer; 0: there is none. */
static int64_t lines_cross(const struct vb_step_point *points, int n)
{
    struct line compute = fit_line(points, n, false), transfer = {0, 0};
    double lead, gain, from;
    int i;

    if (n == 0)
        return 0;
    if (all_same(points, n, true))
        for (i = 0; i < n; i++)
            transfer.at_0 += points[i].transfer_ms / n;
    else
        transfer = fit_line(points, n, true);
    lead = compute.at_0 - transfer.at_0;
    gain = compute.slope - transfer.slope;
    if (gain <= 0) /* a larger batch hides less of the transfer */
        return lead + gain * VB_STEP_REACH >= 0 ? 1 : 0;
    from = ceil(-lead / gain - 1e-9); /* 1e-9: rounding errors must not raise a whole number */
    if (from > VB_STEP_REACH)
        return 0;
    return from > 1 ? (int64_t)from : 1;
}

/* ---- what was measured beats what the lines say ---------------------------------------------- */

static double exposed_share(const struct vb_step_point *p)
{
    return p->step_ms > 0 ? p->exposed_ms / p->step_ms : 0;
}

/* Returns the point with the largest batch whose transfer is exposed, or NULL. */
static const struct vb_step_point *last_exposed(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *last = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (exposed_share(&points[i]) > VB_STEP_HIDDEN &&
            (last == NULL || points[i].batch > last->batch))
            last = &points[i];
    return last;
}

/* Returns the point with the smallest batch above this one, or NULL. */
static const struct vb_step_point *next_above(const struct vb_step_point *points, int n, int batch)
{
    const struct vb_step_point *next = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (points[i].batch > batch && points[i].step_ms > 0 &&
            (next == NULL || points[i].batch < next->batch))
            next = &points[i];
    return next;
}

/* The exposed share falls from one point to the next about as a power of the batch. */
static int64_t between(const struct vb_step_point *exposed, const struct vb_step_point *hidden)
{
    double high = log(exposed_share(exposed)), limit = log(VB_STEP_HIDDEN);
    double low = log(fmax(exposed_share(hidden), VB_STEP_HIDDEN / 10));
    double part = high > low ? (high - limit) / (high - low) : 1;
    double from = exposed->batch * pow((double)hidden->batch / exposed->batch, part);

    if (from <= exposed->batch)
        return exposed->batch + 1;
    return from < hidden->batch ? (int64_t)ceil(from) : hidden->batch;
}

/* A single rank transfers nothing. */
static bool transfers(const struct vb_step_point *points, int n)
{
    int i;

    for (i = 0; i < n; i++)
        if (points[i].transfer_ms > 0)
            return true;
    return false;
}

/* Returns the smallest batch that was measured to hide the transfer, as all larger ones did, or
 * NULL. */
static const struct vb_step_point *first_hidden(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *exposed = last_exposed(points, n);

    return next_above(points, n, exposed != NULL ? exposed->batch : 0);
}

int64_t vb_step_hidden_from(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *hidden = first_hidden(points, n);

    if (n > 0 && !transfers(points, n))
        return 1;
    return hidden != NULL ? hidden->batch : 0;
}

int64_t vb_step_expected_from(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *exposed = last_exposed(points, n);
    const struct vb_step_point *hidden = first_hidden(points, n);
    int64_t from = lines_cross(points, n);

    if (exposed != NULL && hidden != NULL)
        return between(exposed, hidden);
    if (exposed != NULL) /* at the largest batch, too */
        return from > exposed->batch ? from : 0;
    if (hidden != NULL && transfers(points, n))
        return hidden->batch; /* smaller batches were not measured */
    return from;
}

/* ---- the next batch ---------------------------------------------------------------------------
 */

static int64_t largest(const struct vb_step_point *points, int n)
{
    int i, most = 0;

    for (i = 0; i < n; i++)
        most = points[i].batch > most ? points[i].batch : most;
    return most;
}

/* Beyond the points. given: largest batch that the user named; most: that the data allows. */
static int64_t beyond(const struct vb_step_point *points, int n, int64_t given, int64_t most)
{
    int64_t last = largest(points, n), next = lines_cross(points, n);

    most = most < FURTHER * given ? most : FURTHER * given;
    if (next == 0 || last >= most)
        return 0;
    next = next > 2 * last || next <= last ? 2 * last : next;
    return next < most ? next : most;
}

int64_t vb_step_next_batch(const struct vb_step_point *points, int n, int64_t given, int64_t most)
{
    const struct vb_step_point *exposed = last_exposed(points, n);
    const struct vb_step_point *hidden = first_hidden(points, n);
    int64_t middle;

    if (hidden == NULL)
        return exposed != NULL ? beyond(points, n, given, most) : 0;
    if (exposed == NULL)
        return hidden->batch / 4; /* 0: the smallest batch hides it */
    middle = llround(sqrt((double)exposed->batch * hidden->batch));
    if (hidden->batch <= NARROW * exposed->batch || middle <= exposed->batch ||
        middle >= hidden->batch)
        return 0;
    return middle;
}

int64_t vb_step_unsure_batch(const struct vb_step_point *points, int n)
{
    const struct vb_step_point *exposed = last_exposed(points, n);
    const struct vb_step_point *hidden = first_hidden(points, n);

    if (exposed == NULL || hidden == NULL)
        return 0;
    if (exposed->times < SURE && exposed->times <= hidden->times)
        return exposed->batch;
    return hidden->times < SURE ? hidden->batch : 0;
}

static double mean(double before, int times, double again)
{
    return (before * times + again) / (times + 1);
}

void vb_step_merge(struct vb_step_point *point, const struct vb_step_point *again)
{
    point->step_ms = mean(point->step_ms, point->times, again->step_ms);
    point->compute_ms = mean(point->compute_ms, point->times, again->compute_ms);
    point->transfer_ms = mean(point->transfer_ms, point->times, again->transfer_ms);
    point->exposed_ms = fmax(point->step_ms - point->compute_ms, 0);
    point->times++;
}
