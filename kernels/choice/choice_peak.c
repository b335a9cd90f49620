/* SPDX-License-Identifier: MIT
 *
 * The bandwidth of memory on the calling thread's team, with which operations are compared.
 */
#include "kernels/choice/choice.h"

#include <omp.h>
#include <stdlib.h>

#define FLOATS ((size_t)8 << 20)        /* of an array: 32 MiB, more than caches hold */
#define GLANCE_FLOATS ((size_t)2 << 20) /* three such arrays exceed most caches */

int vb_k_threads(void)
{
    return omp_get_max_threads();
}

/* Reads two arrays and writes a third. */
static void triad(const float *a, const float *b, float *c, size_t n)
{
    size_t i;

#pragma omp parallel for schedule(static)
    for (i = 0; i < n; i++)
        c[i] = a[i] + 0.5f * b[i];
}

static double memory_peak(size_t n, double seconds)
{
    float *abc = vb_alloc_aligned(3 * n * sizeof(float));
    uint64_t begin = vb_clock_ns(), start, ns, best = UINT64_MAX;

    if (abc == NULL)
        return -1;
    triad(abc, abc + n, abc + 2 * n, n); /* the pages are made now */
    do {
        start = vb_clock_ns();
        triad(abc, abc + n, abc + 2 * n, n);
        ns = vb_clock_ns() - start;
        best = ns < best ? ns : best;
    } while ((double)(vb_clock_ns() - begin) < seconds * 1e9);
    free(abc);
    return 3.0 * (double)n * sizeof(float) / (double)best;
}

double vb_k_memory_peak(double seconds)
{
    return memory_peak(FLOATS, seconds);
}

double vb_k_memory_glance(void)
{
    return memory_peak(GLANCE_FLOATS, 0.01);
}
