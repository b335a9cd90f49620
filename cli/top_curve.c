/* SPDX-License-Identifier: MIT
 *
 * A curve in a terminal. A Braille character is a cell of 2 by 4 dots.
 */
#include "cli/top.h"

#include <math.h>

#define COLUMNS_MAX 1024
#define LOG_FROM 30 /* a loss that falls by more would be a flat line on a linear axis */
#define LOG_TO 1e4  /* single batches that are learnt by heart would stretch the axis */

void cli_top_curve_add(struct top_curve *c, double loss)
{
    int i;

    if (!isfinite(loss))
        return;
    c->last = loss;
    c->sum += loss;
    if (++c->n_sum < c->stride)
        return;
    c->mean[c->n++] = c->sum / (double)c->n_sum;
    c->sum = 0;
    c->n_sum = 0;
    if (c->n < TOP_POINTS)
        return;
    for (i = 0; i < TOP_POINTS / 2; i++)
        c->mean[i] = (c->mean[2 * i] + c->mean[2 * i + 1]) / 2;
    c->n = TOP_POINTS / 2;
    c->stride *= 2;
}

/* Returns the mean of the points that belong to a column of dots. */
static double value_at(const struct top_curve *c, int column, int columns)
{
    int first = (int)((int64_t)column * c->n / columns);
    int end = (int)((int64_t)(column + 1) * c->n / columns), i;
    double sum = 0;

    if (end <= first)
        end = first + 1;
    for (i = first; i < end; i++)
        sum += c->mean[i];
    return sum / (end - first);
}

struct top_range cli_top_curve_range(const struct top_curve *c, int columns)
{
    struct top_range range = {0};
    int i;

    columns = columns < 2 * COLUMNS_MAX ? columns : 2 * COLUMNS_MAX;
    for (i = 0; i < columns && c->n > 0; i++) {
        double value = value_at(c, i, columns);

        range.low = i == 0 ? value : fmin(range.low, value);
        range.high = i == 0 ? value : fmax(range.high, value);
    }
    range.log = range.low > 0 && range.high > LOG_FROM * range.low;
    if (range.log)
        range.low = fmax(range.low, range.high / LOG_TO);
    return range;
}

/* Returns the dot of a value, 0 being the highest of n. */
static int dot_of(double value, const struct top_range *range, int n)
{
    double low = range->log ? log(range->low) : range->low;
    double high = range->log ? log(range->high) : range->high;
    double part = high > low ? (high - (range->log ? log(value) : value)) / (high - low) : 0.5;
    int dot = (int)(part * n);

    return dot < 0 ? 0 : dot >= n ? n - 1 : dot;
}

/* Returns the bits of a column's dots in a row of cells: bit 0 is the highest. The curve is drawn
 * from the value of the column before to that of the column. */
static unsigned dots(const struct top_curve *c, const struct top_range *range, int column,
                     int columns, int row, int dots_high, int rows)
{
    int here, before, from, to, i;
    unsigned bits = 0;

    here = dot_of(value_at(c, column, columns), range, rows * dots_high);
    before = column == 0 ? here : dot_of(value_at(c, column - 1, columns), range, rows * dots_high);
    from = here < before ? here : before < here ? before + 1 : here;
    to = here < before ? before - 1 : here;
    for (i = 0; i < dots_high; i++)
        if (row * dots_high + i >= from && row * dots_high + i <= to)
            bits |= 1u << i;
    return bits;
}

static void put_braille(unsigned left, unsigned right, FILE *out)
{
    static const unsigned char l[] = {0x01, 0x02, 0x04, 0x40}, r[] = {0x08, 0x10, 0x20, 0x80};
    unsigned cell = 0;
    int i;

    for (i = 0; i < 4; i++)
        cell |= ((left >> i & 1u) != 0 ? l[i] : 0u) | ((right >> i & 1u) != 0 ? r[i] : 0u);
    if (cell == 0)
        fputc(' ', out);
    else /* U+2800 and on, in UTF-8 */
        fprintf(out, "\xe2%c%c", (int)(0xa0 | cell >> 6), (int)(0x80 | (cell & 0x3f)));
}

void cli_top_curve(const struct top_curve *c, const struct top_range *range, int width, int height,
                   int row, bool unicode, FILE *out)
{
    int i;

    width = width < COLUMNS_MAX ? width : COLUMNS_MAX;
    for (i = 0; i < width && c->n > 0; i++) {
        if (unicode)
            put_braille(dots(c, range, 2 * i, 2 * width, row, 4, height),
                        dots(c, range, 2 * i + 1, 2 * width, row, 4, height), out);
        else
            fputc(dots(c, range, i, width, row, 1, height) != 0 ? '*' : ' ', out);
    }
}
