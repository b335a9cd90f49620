/* SPDX-License-Identifier: MIT
 *
 * Histograms with fixed buckets, so that counting needs no second pass: eight buckets for each
 * power of two, for both signs, and one for what is closer to 0 than 2^-40.
 */
#ifndef VB_RECORD_BOARD_HISTOGRAM_H
#define VB_RECORD_BOARD_HISTOGRAM_H

#include "base/base.h"

/* Buckets cover magnitudes from 2^LEAST to 2^MOST, eight for each power of two. */
#define VB_HISTOGRAM_LEAST (-40)
#define VB_HISTOGRAM_MOST 24
#define VB_HISTOGRAM_SIDE ((VB_HISTOGRAM_MOST - VB_HISTOGRAM_LEAST) * 8)
#define VB_HISTOGRAM_BUCKETS (2 * VB_HISTOGRAM_SIDE + 1)

struct vb_histogram {
    uint64_t n;      /* numbers that were counted; a NaN or an infinity is not */
    uint64_t others; /* NaNs and infinities */
    double min, max, sum, squares;
    uint32_t bucket[VB_HISTOGRAM_BUCKETS]; /* from the most negative to the largest numbers */
};

void vb_histogram_clear(struct vb_histogram *h);

/* Counts n numbers, each multiplied by scale. */
void vb_histogram_add(struct vb_histogram *h, const float *values, size_t n, float scale);

/* Returns the upper end of a bucket. */
double vb_histogram_limit(int bucket);

#endif
