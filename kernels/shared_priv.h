/* SPDX-License-Identifier: MIT
 *
 * Weights that several threads or processes change at once: how each of them is read and written.
 */
#ifndef VB_KERNELS_SHARED_PRIV_H
#define VB_KERNELS_SHARED_PRIV_H

#include "kernels/kernels.h"

static inline float shared_load(const float *at)
{
    float v;

    __atomic_load(at, &v, __ATOMIC_RELAXED);
    return v;
}

static inline void shared_store(float *at, float v)
{
    __atomic_store(at, &v, __ATOMIC_RELAXED);
}

static inline void csr_bounds(const struct vb_k_csr *m, size_t i, uint64_t *first_p,
                              uint64_t *end_p)
{
    size_t r = m->rows != NULL ? m->rows[i] : i;

    *first_p = m->offset[r];
    *end_p = m->offset[r + 1];
}

#endif
