/* SPDX-License-Identifier: MIT
 *
 * Times of a rank on the clock of rank 0, or of the rank that led the run at its end, from the
 * knots in run.json.
 */
#include "cli/report/cmd_report.h"

#include <math.h>

#define LOOK_UP_EVERY 64 /* clocks drift by far less in so few rows than a plot shows */

/* Returns the place of the rank in run.clocks, or -1. */
static int place_of(const struct vb_json *json, int rank)
{
    int i, n = vb_json_get_count(json, "run.clocks");
    char keys[64];

    for (i = 0; i < n; i++) {
        snprintf(keys, sizeof(keys), "run.clocks.%d.rank", i);
        if (vb_json_get_real(json, keys) == rank)
            return i;
    }
    return -1;
}

static double knot(const struct vb_json *json, int place, int k, const char *key)
{
    char keys[80];

    snprintf(keys, sizeof(keys), "run.clocks.%d.knots.%d.%s", place, k, key);
    return vb_json_get_real(json, keys);
}

static void read_knots(const struct vb_json *json, int place, struct vb_clock_fit *fit)
{
    char keys[64];
    int k, n;

    snprintf(keys, sizeof(keys), "run.clocks.%d.knots", place);
    n = vb_json_get_count(json, keys);
    for (k = 0; k < n && fit->n < VB_CLOCK_KNOTS; k++) {
        double local = knot(json, place, k, "local_ns"), offset = knot(json, place, k, "offset_ns");
        double error = knot(json, place, k, "error_ns");

        if (!(local >= 0 && local < 9e18 && fabs(offset) < 9e18 && error >= 0 && error < 9e18))
            continue;
        if (fit->n > 0 && (uint64_t)local <= fit->knots[fit->n - 1].local_ns)
            continue; /* knots are in the order of their times */
        fit->knots[fit->n++] =
            (struct vb_clock_knot){(uint64_t)local, (int64_t)offset, (uint64_t)error};
    }
}

static const char *host_of(const struct report_run *run, int rank)
{
    const struct top_rank *r = cli_top_rank(&run->top, rank);

    return r != NULL ? r->host : "";
}

void report_clock_init(struct report_clock *clock, const struct report_run *run, int rank)
{
    int place = place_of(run->json, rank);

    *clock = (struct report_clock){.start_ns = run->start_ns, .shift_ns = (double)NAN};
    if (place >= 0)
        read_knots(run->json, place, &clock->fit);
    clock->known = rank == run->top.lead || clock->fit.n > 0 ||
                   strcmp(host_of(run, rank), host_of(run, run->top.lead)) == 0;
    if (clock->fit.n == 0)
        vb_clock_fit_own(&clock->fit);
}

double report_clock_s(struct report_clock *clock, double local_ns)
{
    uint64_t local;

    if (!(local_ns >= 0 && local_ns < 9e18))
        return (double)NAN;
    local = (uint64_t)local_ns;
    if (clock->known && clock->used++ % LOOK_UP_EVERY == 0)
        clock->offset_ns = (double)vb_clock_correct(&clock->fit, local, NULL) - local_ns;
    if (!clock->known && isnan(clock->shift_ns)) /* its first row is the beginning */
        clock->shift_ns = clock->start_ns - local_ns;
    return (local_ns + (clock->known ? clock->offset_ns : clock->shift_ns) - clock->start_ns) / 1e9;
}
