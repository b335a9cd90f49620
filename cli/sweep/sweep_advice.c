/* SPDX-License-Identifier: MIT
 *
 * Which case to recommend.
 *
 * With --until, it is the case that reached the condition first, because that is what was asked
 * for. Otherwise cases whose accuracy is within noise of the best are *good enough*. Of those, the
 * ones whose global batch is above the gradient noise scale are left out, if any other remains:
 * above it, a larger batch mostly averages samples that say the same (McCandlish et al., 2018). The
 * highest throughput of the rest wins. If cases are as good within the spread of their runs, the
 * one with fewer ranks wins.
 */
#include "cli/sweep/sweep.h"

#include <math.h>
#include <string.h>

#define LEAST_SPREAD 0.02 /* relative: runs on the same machine differ by this much */

/* What is known while choosing. */
struct choice {
    const struct sweep_row *rows;
    int n;
    bool in[SWEEP_RUNS_MAX]; /* rows that are still in question */
    char why[SWEEP_WHY];
};

static void say(struct choice *c, const char *fmt, ...) VB_PRINTF(2, 3);
static void say(struct choice *c, const char *fmt, ...)
{
    size_t len = strlen(c->why);
    va_list args;

    va_start(args, fmt);
    vsnprintf(c->why + len, sizeof(c->why) - len, fmt, args);
    va_end(args);
}

static int count_in(const struct choice *c)
{
    int i, n = 0;

    for (i = 0; i < c->n; i++)
        n += c->in[i];
    return n;
}

static double median_of(const struct choice *c, int row, enum sweep_metric m)
{
    return c->rows[row].stat[m].median;
}

/* Returns the row with the highest median, or the lowest if sign is -1; -1: none has one. */
static int best_in(const struct choice *c, enum sweep_metric m, int sign)
{
    int i, best = -1;

    for (i = 0; i < c->n; i++)
        if (c->in[i] && isfinite(median_of(c, i, m)) &&
            (best < 0 || sign * median_of(c, i, m) > sign * median_of(c, best, m)))
            best = i;
    return best;
}

/* Returns how much two medians of a metric may differ by chance: as much as the runs of either case
 * do. */
static double spread_of(const struct choice *c, int a, int b, enum sweep_metric m)
{
    const struct sweep_stat *x = &c->rows[a].stat[m], *y = &c->rows[b].stat[m];
    double half = fmax(x->max - x->min, y->max - y->min) / 2;

    return fmax(half, LEAST_SPREAD * fabs(x->median));
}

/* Returns the row to take if several are as good as the best one: that with the fewest ranks. */
static int fewest_ranks(struct choice *c, int best, enum sweep_metric m)
{
    int i, taken = best;

    for (i = 0; i < c->n; i++)
        if (c->in[i] &&
            fabs(median_of(c, i, m) - median_of(c, best, m)) <= spread_of(c, best, i, m) &&
            c->rows[i].ranks < c->rows[taken].ranks)
            taken = i;
    if (taken != best)
        say(c, "; %g ranks are not better than %g by more than runs differ", c->rows[best].ranks,
            c->rows[taken].ranks);
    return taken;
}

/* Returns whether a row can be chosen for a link. One rank uses no link, so it can be for each. */
static bool is_of(const struct sweep_row *row, const char *link)
{
    const char *own = row->at->value[AXIS_LINK];

    return link == NULL || own == NULL || strcmp(own, link) == 0;
}

/* The largest estimate of all cases: the scale grows while a model learns, and a case that learnt
 * more has seen more of that. error_p: the standard error of this estimate. */
static double noise_scale(const struct sweep_row *rows, int n, const char *link, double *error_p)
{
    double scale = (double)NAN;
    int i;

    *error_p = 0;
    for (i = 0; i < n; i++) {
        const struct sweep_stat *s = &rows[i].stat[METRIC_NOISE_SCALE];

        if (!is_of(&rows[i], link))
            continue;
        if (s->n > 0 && (isnan(scale) || s->median > scale)) {
            scale = s->median;
            *error_p = isfinite(rows[i].noise_error) ? rows[i].noise_error : 0;
        }
    }
    return scale;
}

/* Keeps the rows whose accuracy is within noise of the best. The noise is that of the test data, or
 * of the runs if they differ more. */
static void keep_accurate(struct choice *c)
{
    int i, best = best_in(c, METRIC_ACCURACY, 1), all = count_in(c);
    double top, tests, noise;

    if (best < 0)
        return;
    top = median_of(c, best, METRIC_ACCURACY);
    tests = c->rows[best].test_samples;
    noise = tests > 0 ? 2 * sqrt(2 * top * (1 - top) / tests) : 0;
    noise = fmax(
        noise,
        (c->rows[best].stat[METRIC_ACCURACY].max - c->rows[best].stat[METRIC_ACCURACY].min) / 2);
    for (i = 0; i < c->n; i++)
        c->in[i] = c->in[i] && median_of(c, i, METRIC_ACCURACY) >= top - noise;
    say(c, " of %d of %d cases, whose accuracy is within %.2f points of the best (%.2f %%)",
        count_in(c), all, 100 * noise, 100 * top);
}

/* Leaves out the rows whose batch is above the noise scale, or all but the smallest batch. */
static void keep_small(struct choice *c, double scale, double error)
{
    double least = (double)INFINITY;
    int i, before = count_in(c);

    if (isnan(scale))
        return;
    for (i = 0; i < c->n; i++)
        if (c->in[i])
            least = fmin(least, c->rows[i].global_batch);
    for (i = 0; i < c->n; i++)
        c->in[i] = c->in[i] && c->rows[i].global_batch <= fmax(least, scale + 2 * error);
    say(c, "; the gradient noise scale is about %.3g samples", scale);
    if (count_in(c) < before)
        say(c, ": the larger batches of %d cases do not pay", before - count_in(c));
}

static int choose_until(struct choice *c)
{
    int i, reached = 0, all = count_in(c), best;

    for (i = 0; i < c->n; i++) {
        c->in[i] = c->in[i] && c->rows[i].stat[METRIC_TIME_TO_S].n == c->rows[i].ok;
        reached += c->in[i];
    }
    best = best_in(c, METRIC_TIME_TO_S, -1);
    if (best < 0)
        return -1;
    say(c, "least time to --until, %.3g s, of %d of %d cases that reached it",
        median_of(c, best, METRIC_TIME_TO_S), reached, all);
    return fewest_ranks(c, best, METRIC_TIME_TO_S);
}

static int choose_fastest(struct choice *c, double scale, double error)
{
    char rest[SWEEP_WHY];
    size_t head = strlen(c->why);
    int best;

    keep_accurate(c);
    keep_small(c, scale, error);
    best = best_in(c, METRIC_SAMPLES_PER_S, 1);
    if (best < 0)
        return -1;
    snprintf(rest, sizeof(rest), "%s", c->why + head);
    c->why[head] = '\0';
    say(c, "highest throughput, %.4g samples/s,%s", median_of(c, best, METRIC_SAMPLES_PER_S), rest);
    return fewest_ranks(c, best, METRIC_SAMPLES_PER_S);
}

/* A case of which a run has failed is not recommended. Returns whether a row has --until. */
static bool begin(struct choice *c, const struct sweep_row *rows, int n, const char *link)
{
    bool until = false;
    int i;

    memset(c, 0, sizeof(*c));
    c->rows = rows;
    c->n = n < SWEEP_RUNS_MAX ? n : SWEEP_RUNS_MAX;
    for (i = 0; i < c->n; i++) {
        c->in[i] = rows[i].ok > 0 && rows[i].failed == 0 && is_of(&rows[i], link);
        until = until || (c->in[i] && rows[i].asked_until);
    }
    return until;
}

void cli_sweep_advise(const struct sweep_row *rows, int n, const char *link,
                      struct sweep_advice *advice)
{
    struct choice c;
    double error;
    bool until = begin(&c, rows, n, link);

    advice->row = -1;
    advice->noise_scale = noise_scale(rows, n, link, &error);
    if (count_in(&c) == 0) {
        snprintf(advice->why, sizeof(advice->why), "no case has ended without a failure");
        return;
    }
    if (until)
        advice->row = choose_until(&c);
    if (advice->row < 0) {
        (void)begin(&c, rows, n, link);
        if (until)
            say(&c, "no case reached --until; ");
        advice->row = choose_fastest(&c, advice->noise_scale, error);
    }
    snprintf(advice->why, sizeof(advice->why), "%s",
             advice->row >= 0 ? c.why : "no case has a throughput");
}
