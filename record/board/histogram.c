/* SPDX-License-Identifier: MIT */
#include "record/board/histogram.h"

#include <math.h>

/* The upper bits of a float are its exponent, with a bias of 127, and then its fraction: as a
 * number, they count eighths of powers of two. */
#define SHIFT 20
#define FIRST ((uint32_t)(127 + VB_HISTOGRAM_LEAST) << 3)

void vb_histogram_clear(struct vb_histogram *h)
{
    memset(h, 0, sizeof(*h));
    h->min = (double)INFINITY;
    h->max = -(double)INFINITY;
}

static int bucket_of(float value)
{
    uint32_t bits = vb_float_bits(value), eighths = (bits & 0x7fffffffu) >> SHIFT;
    int distance;

    if (eighths < FIRST)
        return VB_HISTOGRAM_SIDE;
    distance = (int)(eighths - FIRST) + 1;
    if (distance > VB_HISTOGRAM_SIDE)
        distance = VB_HISTOGRAM_SIDE;
    return (bits >> 31) != 0 ? VB_HISTOGRAM_SIDE - distance : VB_HISTOGRAM_SIDE + distance;
}

void vb_histogram_add(struct vb_histogram *h, const float *values, size_t n, float scale)
{
    double sum = 0, squares = 0;
    float min = INFINITY, max = -INFINITY, v;
    uint64_t others = 0;
    size_t i;

    for (i = 0; i < n; i++) {
        v = values[i] * scale;
        if (!isfinite(v)) {
            others++;
            continue;
        }
        h->bucket[bucket_of(v)]++;
        sum += (double)v;
        squares += (double)v * (double)v;
        min = v < min ? v : min;
        max = v > max ? v : max;
    }
    h->n += n - others;
    h->others += others;
    h->sum += sum;
    h->squares += squares;
    h->min = (double)min < h->min ? (double)min : h->min;
    h->max = (double)max > h->max ? (double)max : h->max;
}

/* Returns the lower end of the bucket that lies this far from the middle one, on the upper side. */
static double edge(int distance)
{
    uint32_t eighths = FIRST + (uint32_t)distance - 1;

    return (double)vb_bits_float(eighths << SHIFT);
}

double vb_histogram_limit(int bucket)
{
    if (bucket < VB_HISTOGRAM_SIDE)
        return -edge(VB_HISTOGRAM_SIDE - bucket);
    return edge(bucket - VB_HISTOGRAM_SIDE + 1);
}
