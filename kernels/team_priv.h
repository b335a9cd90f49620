/* SPDX-License-Identifier: MIT
 *
 * Scratch memory of a team: each thread has a slot. There are as many as the team had threads when
 * the pass was prepared; a larger team later leaves some threads idle.
 */
#ifndef VB_TEAM_PRIV_H
#define VB_TEAM_PRIV_H

#include <omp.h>
#include <stddef.h>

static inline int vb_team_slots(void)
{
    return omp_get_max_threads();
}

/* For num_threads(). */
static inline int vb_team_size(int slots)
{
    return omp_get_max_threads() < slots ? omp_get_max_threads() : slots;
}

/* Counts of floats that keep what follows aligned to a cache line. */
static inline size_t vb_team_align(size_t n_floats)
{
    return (n_floats + 15) / 16 * 16;
}

#endif
