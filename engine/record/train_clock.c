/* SPDX-License-Identifier: MIT
 *
 * The clocks of all ranks against that of rank 0, or of the rank that leads after it, for the
 * result and for people.
 */
#include "engine/record/train_ship.h"

#include <stdlib.h>

#include "engine/train/train.h"

static void say_clock(const struct vb_train_clock *clock, int own, uint64_t now)
{
    uint64_t at = vb_clock_correct(&clock->fit, now, NULL);

    VB_LOG_INFO("clock of rank %d: %+.1f us against rank %d, drift %+.2f ppm, error %.1f us, %d "
                "knots",
                clock->rank, (double)(int64_t)(now - at) / 1e3, own,
                vb_clock_drift_ppm(&clock->fit), (double)vb_clock_error(&clock->fit) / 1e3,
                clock->fit.n);
}

struct vb_train_clock *vb_train_fit_clocks(struct vb_group *group, int *n_p)
{
    struct vb_clock_exchange *x = calloc(VB_CLOCK_EXCHANGES, sizeof(*x));
    int i, n, slots = vb_group_slots(group), own = vb_group_rank(group);
    struct vb_train_clock *clocks = x != NULL ? calloc((size_t)slots, sizeof(*clocks)) : NULL;

    *n_p = 0;
    for (i = 0; clocks != NULL && i < slots; i++) {
        struct vb_train_clock *clock = &clocks[*n_p];

        n = i == own ? 0 : vb_group_exchanges(group, i, x);
        if (i != own && n == 0)
            continue;
        clock->rank = vb_group_id(group, i);
        if (i == own)
            vb_clock_fit_own(&clock->fit);
        else
            vb_clock_fit(x, n, &clock->fit);
        *n_p += 1;
        if (i != own && clock->fit.n > 0)
            say_clock(clock, vb_group_id(group, own), clock->fit.knots[clock->fit.n - 1].local_ns);
    }
    free(x);
    return clocks;
}
