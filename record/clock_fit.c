/* SPDX-License-Identifier: MIT
 *
 * Fits the clock of a rank to that of rank 0.
 *
 * An exchange shows the offset of the two clocks in the middle between question and answer, if both
 * took equally long. They did not: the true offset differs by at most half the round trip, which is
 * the error bar. A *knot* is such an offset. Between two knots the offset is interpolated. What the
 * drift may change between them, and a jump of the clock, add to the error.
 *
 * A knot with a long round trip between two with short ones is left out if the line between the two
 * has a smaller error at this place.
 */
#include "record/clock.h"

#include <math.h>

/* By how many nanoseconds a second the rate of a clock changes within a few seconds: quartz and
 * temperature, and the slow corrections of NTP. */
#define WANDER_NS_PER_S 10e3

/* How fast two clocks of computers drift apart at most. If only one knot is known, this is all that
 * is known of the drift. A slope above the second limit is no drift: the clock has jumped. */
#define DRIFT_NS_PER_S 200e3
#define JUMP_NS_PER_S 2000e3

#define TIME_MAX (UINT64_C(1) << 62)

void vb_clock_fit_own(struct vb_clock_fit *fit)
{
    fit->n = 0;
    fit->exact = true;
}

/* Returns false if no two clocks can produce these times. */
static bool make_knot(const struct vb_clock_exchange *x, struct vb_clock_knot *knot_p)
{
    uint64_t there, away;

    if (x->asked_ns > TIME_MAX || x->received_ns > TIME_MAX || x->answered_ns > TIME_MAX ||
        x->returned_ns > TIME_MAX || x->returned_ns < x->asked_ns ||
        x->answered_ns < x->received_ns)
        return false;
    away = x->returned_ns - x->asked_ns;
    there = x->answered_ns - x->received_ns;
    if (there > away + (uint64_t)((double)away * DRIFT_NS_PER_S / 1e9))
        return false;
    knot_p->local_ns = x->received_ns + there / 2;
    knot_p->offset_ns = (int64_t)(knot_p->local_ns - (x->asked_ns + away / 2));
    /* The rates differ while the exchange lasts, and halves are rounded down. */
    knot_p->error_ns = (away > there ? (away - there) / 2 : 0) + 2 +
                       (uint64_t)((double)away * DRIFT_NS_PER_S / 1e9);
    return true;
}

/* ---- between two knots ----------------------------------------------------------------------- */

static double slope_of(const struct vb_clock_knot *a, const struct vb_clock_knot *b)
{
    return (double)(b->offset_ns - a->offset_ns) / (double)(b->local_ns - a->local_ns);
}

static bool has_jumped(const struct vb_clock_knot *a, const struct vb_clock_knot *b)
{
    double change = fabs((double)(b->offset_ns - a->offset_ns));
    double errors = (double)a->error_ns + (double)b->error_ns;
    double seconds = (double)(b->local_ns - a->local_ns) / 1e9;

    return change - errors > JUMP_NS_PER_S * seconds;
}

/* Returns the offset at a time between two knots, and its error. */
static double between(const struct vb_clock_knot *a, const struct vb_clock_knot *b, uint64_t at,
                      double *error_p)
{
    double whole = (double)(b->local_ns - a->local_ns), part = (double)(at - a->local_ns);
    double near = part < whole - part ? part : whole - part;

    *error_p = (double)a->error_ns + ((double)b->error_ns - (double)a->error_ns) * part / whole +
               (has_jumped(a, b) ? fabs((double)(b->offset_ns - a->offset_ns))
                                 : near * WANDER_NS_PER_S / 1e9);
    return (double)a->offset_ns + slope_of(a, b) * part;
}

/* Returns the offset before the first or after the last knot, which is `end`. `other` is the knot
 * next to it; NULL: there is none, and the drift is not known. */
static double beyond(const struct vb_clock_knot *end, const struct vb_clock_knot *other,
                     uint64_t at, double *error_p)
{
    double away = (double)(int64_t)(at - end->local_ns), far = fabs(away), slope = 0;
    double doubt = DRIFT_NS_PER_S / 1e9;

    if (other != NULL && other->local_ns < end->local_ns && !has_jumped(other, end)) {
        slope = slope_of(other, end);
        doubt =
            (double)(end->error_ns + other->error_ns) / (double)(end->local_ns - other->local_ns) +
            WANDER_NS_PER_S / 1e9;
    } else if (other != NULL && other->local_ns > end->local_ns && !has_jumped(end, other)) {
        slope = slope_of(end, other);
        doubt =
            (double)(end->error_ns + other->error_ns) / (double)(other->local_ns - end->local_ns) +
            WANDER_NS_PER_S / 1e9;
    }
    *error_p = (double)end->error_ns + far * doubt;
    return (double)end->offset_ns + slope * away;
}

/* ---- the fit --------------------------------------------------------------------------------- */

/* Returns whether the line between its neighbours, or the line that ends before it, is more certain
 * than a knot. A knot that lies outside of both error bars shows a jump, and stays. */
static bool is_superfluous(const struct vb_clock_knot *knots, int n, int i)
{
    uint64_t at = knots[i].local_ns;
    double error, offset;

    if (i == 0)
        offset = beyond(&knots[1], &knots[2], at, &error);
    else if (i == n - 1)
        offset = beyond(&knots[n - 2], &knots[n - 3], at, &error);
    else
        offset = between(&knots[i - 1], &knots[i + 1], at, &error);
    return error < (double)knots[i].error_ns &&
           fabs(offset - (double)knots[i].offset_ns) <= error + (double)knots[i].error_ns;
}

/* Leaves out the worst knot that is superfluous. Returns false if there is none. */
static bool drop_worst(struct vb_clock_fit *fit)
{
    int i, worst = -1;

    for (i = 0; i < fit->n && fit->n > 2; i++)
        if ((worst < 0 || fit->knots[i].error_ns > fit->knots[worst].error_ns) &&
            is_superfluous(fit->knots, fit->n, i))
            worst = i;
    for (i = worst; i >= 0 && i + 1 < fit->n; i++)
        fit->knots[i] = fit->knots[i + 1];
    fit->n -= worst >= 0;
    return worst >= 0;
}

/* A knot that is not later than the one before it replaces that if it is better. */
static void add_knot(struct vb_clock_fit *fit, const struct vb_clock_knot *knot)
{
    struct vb_clock_knot *last = fit->n > 0 ? &fit->knots[fit->n - 1] : NULL;

    if (last != NULL && knot->local_ns <= last->local_ns) {
        if (knot->error_ns < last->error_ns && (fit->n == 1 || knot->local_ns > last[-1].local_ns))
            *last = *knot;
        return;
    }
    if (fit->n < VB_CLOCK_KNOTS)
        fit->knots[fit->n++] = *knot;
}

void vb_clock_fit(const struct vb_clock_exchange *exchanges, int n, struct vb_clock_fit *fit)
{
    int i, step = n > VB_CLOCK_KNOTS ? (n + VB_CLOCK_KNOTS - 1) / VB_CLOCK_KNOTS : 1, k;
    struct vb_clock_knot best, knot;
    bool found;

    fit->n = 0;
    fit->exact = false;
    for (i = 0; i < n; i += step) {
        found = false;
        for (k = i; k < n && k < i + step; k++)
            if (make_knot(&exchanges[k], &knot) && (!found || knot.error_ns < best.error_ns)) {
                best = knot;
                found = true;
            }
        if (found)
            add_knot(fit, &best);
    }
    while (drop_worst(fit))
        ;
}

/* ---- using it -------------------------------------------------------------------------------- */

static double offset_at(const struct vb_clock_fit *fit, uint64_t at, double *error_p)
{
    const struct vb_clock_knot *k = fit->knots;
    int n = fit->n, low = 0, high = n - 1, mid;

    if (at <= k[0].local_ns)
        return beyond(&k[0], n > 1 ? &k[1] : NULL, at, error_p);
    if (at >= k[n - 1].local_ns)
        return beyond(&k[n - 1], n > 1 ? &k[n - 2] : NULL, at, error_p);
    while (high - low > 1) {
        mid = (low + high) / 2;
        if (k[mid].local_ns <= at)
            low = mid;
        else
            high = mid;
    }
    return between(&k[low], &k[high], at, error_p);
}

uint64_t vb_clock_correct(const struct vb_clock_fit *fit, uint64_t local_ns, uint64_t *error_p)
{
    uint64_t error = fit->exact ? 0 : UINT64_MAX, ns = local_ns;
    double offset, wrong;

    if (!fit->exact && fit->n > 0 && local_ns <= TIME_MAX) {
        offset = offset_at(fit, local_ns, &wrong);
        error = wrong < (double)TIME_MAX ? (uint64_t)ceil(wrong) : TIME_MAX;
        ns = offset > (double)local_ns ? 0 : local_ns - (uint64_t)(int64_t)llrint(offset);
    }
    if (error_p != NULL)
        *error_p = error;
    return ns;
}

uint64_t vb_clock_error_at(const struct vb_clock_fit *fit, uint64_t corrected_ns)
{
    uint64_t local_ns = corrected_ns, error;

    if (!fit->exact && fit->n > 0) { /* the offset of the first knot, and what has changed since */
        local_ns += (uint64_t)fit->knots[0].offset_ns;
        local_ns += corrected_ns - vb_clock_correct(fit, local_ns, NULL);
    }
    (void)vb_clock_correct(fit, local_ns, &error);
    return error;
}

uint64_t vb_clock_error(const struct vb_clock_fit *fit)
{
    uint64_t worst = 0, error, middle;
    int i;

    if (fit->exact)
        return 0;
    if (fit->n == 0)
        return UINT64_MAX;
    for (i = 0; i < fit->n; i++) {
        worst = fit->knots[i].error_ns > worst ? fit->knots[i].error_ns : worst;
        if (i + 1 == fit->n)
            break;
        middle = fit->knots[i].local_ns + (fit->knots[i + 1].local_ns - fit->knots[i].local_ns) / 2;
        (void)vb_clock_correct(fit, middle, &error);
        worst = error > worst ? error : worst;
    }
    return worst;
}

double vb_clock_drift_ppm(const struct vb_clock_fit *fit)
{
    return fit->n > 1 ? 1e6 * slope_of(&fit->knots[0], &fit->knots[fit->n - 1]) : 0;
}

bool vb_clock_message_ok(const struct vb_clock_event *sent, const struct vb_clock_event *received,
                         char *why, size_t size)
{
    uint64_t early = sent->at_ns > received->at_ns ? sent->at_ns - received->at_ns : 0;

    if (early == 0 || early <= sent->error_ns || early - sent->error_ns <= received->error_ns)
        return true;
    snprintf(why, size,
             "the clocks do not fit: rank %d received a message at %.6f s that rank %d sent at "
             "%.6f s, %.1f us later, but the errors of the two clocks are %.1f us and %.1f us",
             received->rank, (double)received->at_ns / 1e9, sent->rank, (double)sent->at_ns / 1e9,
             (double)early / 1e3, (double)received->error_ns / 1e3, (double)sent->error_ns / 1e3);
    return false;
}
