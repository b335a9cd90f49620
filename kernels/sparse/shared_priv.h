/* SPDX-License-Identifier: MIT
 *
 * Reads and writes a single weight that several threads or processes change at the same time.
 */
#ifndef VB_KERNELS_SPARSE_SHARED_PRIV_H
#define VB_KERNELS_SPARSE_SHARED_PRIV_H

#include "kernels/sparse/csr_rows_priv.h"

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

#endif
