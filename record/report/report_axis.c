/* SPDX-License-Identifier: MIT
 *
 * Axes: ticks at 1, 2 or 5 times a power of ten.
 */
#include "record/report/report.h"

#include <math.h>

/* Formats a tick so that all ticks of an axis have as many decimals as their distance needs. */
static void label(double value, double step, char *text, size_t size)
{
    static const struct {
        double from;
        const char *unit;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}, {0, ""}};
    double a = fabs(value), by = 1;
    int digits;
    size_t i;

    if (a < step * 1e-9) {
        snprintf(text, size, "0");
        return;
    }
    for (i = 0; a < units[i].from; i++)
        ;
    if (units[i].from > 0)
        by = units[i].from == 1e4 ? 1e3 : units[i].from;
    digits = (int)ceil(-log10(step / by) - 1e-9);
    digits = digits < 0 ? 0 : digits;
    if (digits > 5)
        snprintf(text, size, "%.2g", value);
    else
        snprintf(text, size, "%.*f%s", digits, value / by, units[i].unit);
}

static void add_tick(struct vb_axis *axis, double value, double step)
{
    if (axis->n == VB_TICKS_MAX || (axis->log && !(value >= axis->low * 0.999)))
        return;
    axis->ticks[axis->n] = value;
    label(value, step, axis->labels[axis->n], sizeof(axis->labels[0]));
    axis->n++;
}

/* Returns the smallest round distance with which n ticks cover the range. */
static double round_step(double range, int n)
{
    double raw = range / n, power = pow(10, floor(log10(raw))), part = raw / power;

    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void linear_ticks(struct vb_axis *axis, bool widen, int max_ticks)
{
    double step = round_step(axis->high - axis->low, max_ticks > 2 ? max_ticks - 1 : 1), at;
    int i;

    if (widen) {
        axis->low = step * floor(axis->low / step + 1e-9);
        axis->high = step * ceil(axis->high / step - 1e-9);
    }
    at = step * ceil(axis->low / step - 1e-9);
    for (i = 0; i < VB_TICKS_MAX && at + i * step <= axis->high + step * 1e-6; i++)
        add_tick(axis, at + i * step, step);
}

/* An axis that keeps its ends may have no round number between them: then there are more ticks. */
static void linear(struct vb_axis *axis, bool widen, int max_ticks)
{
    int n;

    linear_ticks(axis, widen, max_ticks);
    for (n = max_ticks + 1; axis->n < 2 && n <= VB_TICKS_MAX; n++) {
        axis->n = 0;
        linear_ticks(axis, widen, n);
    }
}

static void logarithmic(struct vb_axis *axis, int max_ticks)
{
    static const double full[] = {1, 2, 5};
    double decades = log10(axis->high / axis->low), at;
    int from = (int)floor(log10(axis->low)), to = (int)ceil(log10(axis->high)), power, k;
    int each = 1 + (int)(decades / max_ticks), dense = decades * 3 <= max_ticks ? 3 : 1;

    for (power = from; power <= to; power += each)
        for (k = 0; k < dense; k++) {
            at = full[k] * pow(10, power);
            if (at >= axis->low * 0.999 && at <= axis->high * 1.001)
                add_tick(axis, at, pow(10, power));
        }
    if (axis->n < 2) { /* less than a decade */
        axis->n = 0;
        linear(axis, false, max_ticks);
    }
}

void vb_axis_init(struct vb_axis *axis, double low, double high, bool log, bool widen,
                  int max_ticks)
{
    *axis = (struct vb_axis){.low = low, .high = high, .log = log && low > 1e-200 && high > low};
    max_ticks = max_ticks < VB_TICKS_MAX ? max_ticks : VB_TICKS_MAX;
    if (!isfinite(low) || !isfinite(high) || fabs(low) > 1e300 || fabs(high) > 1e300) {
        axis->low = 0;
        axis->high = 1;
        axis->log = false;
    }
    if (!(axis->high - axis->low > fabs(axis->high) * 1e-9)) { /* one value: from 0 to it */
        if (axis->high < 0)
            axis->high = 0;
        else if (axis->high > 0)
            axis->low = 0;
        else
            axis->high = 1;
    }
    if (axis->log)
        logarithmic(axis, max_ticks);
    else
        linear(axis, widen, max_ticks);
}

double vb_axis_part(const struct vb_axis *axis, double value)
{
    if (axis->log)
        return value > 0 ? log(value / axis->low) / log(axis->high / axis->low) : -1;
    return (value - axis->low) / (axis->high - axis->low);
}
