/* SPDX-License-Identifier: MIT
 *
 * The clock of a rank against that of rank 0: a piecewise linear fit of exchanges of times, with an
 * error bar. All functions are pure: they do no I/O and know no other rank than the one given.
 */
#ifndef VB_RECORD_CLOCK_H
#define VB_RECORD_CLOCK_H

#include "base/base.h"

/* How far the clock was ahead of that of rank 0 at one moment. The true offset differs from
 * offset_ns by at most error_ns. */
struct vb_clock_knot {
    uint64_t local_ns; /* by the clock of the rank */
    int64_t offset_ns;
    uint64_t error_ns;
};

#define VB_CLOCK_KNOTS 256

/* Between knots the offset is interpolated. n 0: nothing is known about this clock. */
struct vb_clock_fit {
    struct vb_clock_knot knots[VB_CLOCK_KNOTS]; /* in the order of their times */
    int n;
    bool exact; /* the clock is that of rank 0 */
};

/* The clock of rank 0 itself. */
void vb_clock_fit_own(struct vb_clock_fit *fit_p);

/* Fits n exchanges, in the order of their times, in which rank 0 asked. Exchanges that no two
 * clocks can produce are left out. */
void vb_clock_fit(const struct vb_clock_exchange *exchanges, int n, struct vb_clock_fit *fit_p);

/* Returns the time of rank 0's clock when the rank's clock showed local_ns. *error_p: by how much
 * that may be wrong; UINT64_MAX: nothing is known, and local_ns is returned. error_p may be NULL.
 */
uint64_t vb_clock_correct(const struct vb_clock_fit *fit, uint64_t local_ns, uint64_t *error_p);

/* Returns by how much a time that vb_clock_correct() has returned may be wrong. */
uint64_t vb_clock_error_at(const struct vb_clock_fit *fit, uint64_t corrected_ns);

/* Returns the largest error of the fit between its first and its last knot. UINT64_MAX: there is
 * none. */
uint64_t vb_clock_error(const struct vb_clock_fit *fit);

/* Returns by how many millionths the clock gains on that of rank 0, over the whole fit. */
double vb_clock_drift_ppm(const struct vb_clock_fit *fit);

/* One end of a message: when a rank sent or received it, corrected. */
struct vb_clock_event {
    int rank;
    uint64_t at_ns, error_ns; /* as vb_clock_correct() returns them */
};

/* A message that came before it was sent, by more than both error bars, shows that a fit is wrong.
 * Returns false, with a sentence that names ranks and times. */
bool vb_clock_message_ok(const struct vb_clock_event *sent, const struct vb_clock_event *received,
                         char *why, size_t size);

#endif
