/* SPDX-License-Identifier: MIT
 *
 * Pseudo-random numbers for tests. The numbers are the same on every machine.
 */
#ifndef VB_TESTS_SUPPORT_RANDOM_H
#define VB_TESTS_SUPPORT_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Returns 24 random bits. */
static inline uint32_t t_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Returns a number from -1 to 1. */
static inline float t_random_unit(uint32_t *seed)
{
    return (float)t_random(seed) / (1 << 23) - 1;
}

/* Fills the array with numbers from -1 to 1, computed from a seed. */
static inline void t_random_fill(float *v, size_t n, uint32_t seed)
{
    size_t i;

    for (i = 0; i < n; i++)
        v[i] = t_random_unit(&seed);
}

#endif
