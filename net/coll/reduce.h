/* SPDX-License-Identifier: MIT
 *
 * Sums of float32 vectors, and conversion to and from bfloat16.
 */
#ifndef VB_NET_COLL_REDUCE_H
#define VB_NET_COLL_REDUCE_H

#include "base/base.h"

enum source_type { SOURCE_F32, SOURCE_F32_ROUNDED, SOURCE_BF16 };

struct source {
    const void *ptr;
    enum source_type type;
};

/* How a complete sum is changed. */
struct finish {
    float scale; /* factor for the sum; 1: unchanged */
    bool round;  /* round the sum to bfloat16 */
};

/* Computes dst[i] = ((s0[i] + s1[i]) + s2[i]) + ..., and applies finish to each sum. dst may be one
 * of the sources. The result is also written to the n_also vectors in also. */
void vb_coll_sum(float *dst, float *const *also, int n_also, const struct source *sources,
                 int n_sources, size_t n_elems, const struct finish *finish);

void vb_coll_narrow(uint16_t *dst, const float *src, size_t n_elems);
void vb_coll_widen(float *dst, const uint16_t *src, size_t n_elems);

/* The three functions above, compiled for one level of instructions. All levels give the same
 * bits. */
struct vb_reduce_level {
    void (*sum)(float *dst, float *const *also, int n_also, const struct source *sources,
                int n_sources, size_t n_elems, const struct finish *finish);
    void (*narrow)(uint16_t *dst, const float *src, size_t n_elems);
    void (*widen)(float *dst, const uint16_t *src, size_t n_elems);
};

extern const struct vb_reduce_level vb_reduce_level, vb_reduce_level_v3, vb_reduce_level_v4;

#endif
