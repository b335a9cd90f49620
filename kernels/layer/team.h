/* SPDX-License-Identifier: MIT
 *
 * Scratch memory of an OpenMP team: each thread has a slot. A team that is larger than when the
 * pass was prepared has idle threads.
 */
#ifndef VB_KERNELS_LAYER_TEAM_H
#define VB_KERNELS_LAYER_TEAM_H

#include <omp.h>
#include <stddef.h>

static inline int vb_team_slots(void)
{
    return omp_get_max_threads();
}

/* Returns the number of threads to use: the argument of OpenMP's num_threads(). */
static inline int vb_team_size(int slots)
{
    return omp_get_max_threads() < slots ? omp_get_max_threads() : slots;
}

/* Rounds a number of floats up to whole cache lines. */
static inline size_t vb_team_align(size_t n_floats)
{
    return (n_floats + 15) / 16 * 16;
}

#endif
