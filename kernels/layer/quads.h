/* SPDX-License-Identifier: MIT
 *
 * Vectors whose lanes are different places in memory, with four contiguous numbers (a *quad*) at
 * each. Loading transposes: vector i holds number i of all places.
 */
#ifndef VB_KERNELS_LAYER_QUADS_H
#define VB_KERNELS_LAYER_QUADS_H

#include "kernels/layer/vec.h"

#if VB_LANES > 4
#define VB_QUAD(r, g)                                                                              \
    __builtin_shufflevector((r), (r), 4 * (g), 4 * (g) + 1, 4 * (g) + 2, 4 * (g) + 3)
#endif
#if VB_LANES == 16
#define VB_IN_QUADS(x, y, a, b, c, d)                                                              \
    __builtin_shufflevector((x), (y), (a), (b), (c), (d), (a) + 4, (b) + 4, (c) + 4, (d) + 4,      \
                            (a) + 8, (b) + 8, (c) + 8, (d) + 8, (a) + 12, (b) + 12, (c) + 12,      \
                            (d) + 12)
#elif VB_LANES == 8
#define VB_IN_QUADS(x, y, a, b, c, d)                                                              \
    __builtin_shufflevector((x), (y), (a), (b), (c), (d), (a) + 4, (b) + 4, (c) + 4, (d) + 4)
#endif

/* Transposes four rows by four columns, separately in each group of four lanes. */
static inline void vb_quads_turn(vb_vec r[4])
{
#if VB_LANES == 4
    vb_v4_transpose(r);
#else
    enum { L = VB_LANES };
    vb_vec a = VB_IN_QUADS(r[0], r[1], 0, L, 1, L + 1);
    vb_vec b = VB_IN_QUADS(r[0], r[1], 2, L + 2, 3, L + 3);
    vb_vec c = VB_IN_QUADS(r[2], r[3], 0, L, 1, L + 1);
    vb_vec d = VB_IN_QUADS(r[2], r[3], 2, L + 2, 3, L + 3);

    r[0] = VB_IN_QUADS(a, c, 0, 1, L, L + 1);
    r[1] = VB_IN_QUADS(a, c, 2, 3, L + 2, L + 3);
    r[2] = VB_IN_QUADS(b, d, 0, 1, L, L + 1);
    r[3] = VB_IN_QUADS(b, d, 2, 3, L + 2, L + 3);
#endif
}

/* Joins quads into one vector: q[i] goes to the lanes from 4 * i on. */
static inline vb_vec vb_quads_join(const vb_v4 q[VB_LANES / 4])
{
#if VB_LANES == 4
    return q[0];
#elif VB_LANES == 8
    return __builtin_shufflevector(q[0], q[1], 0, 1, 2, 3, 4, 5, 6, 7);
#else
    vb_v8 a = __builtin_shufflevector(q[0], q[1], 0, 1, 2, 3, 4, 5, 6, 7);
    vb_v8 b = __builtin_shufflevector(q[2], q[3], 0, 1, 2, 3, 4, 5, 6, 7);

    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#endif
}

/* Loads the quad at from[lane] + at for each lane, and transposes. */
static inline void vb_quads_load(const float *const from[VB_LANES], size_t at, vb_vec r[4])
{
    vb_v4 q[VB_LANES / 4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
        for (int g = 0; g < VB_LANES / 4; g++)
            q[g] = vb_v4_load(from[4 * g + i] + at);
        r[i] = vb_quads_join(q);
    }
    vb_quads_turn(r);
}

/* The reverse: stores the quad of each lane at to + lane * step. Overwrites r. */
static inline void vb_quads_store(vb_vec r[4], float *to, size_t step)
{
    vb_quads_turn(r);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
#if VB_LANES == 4
        vb_v4_store(to + i * step, r[i]);
#else
        vb_v4_store(to + i * step, VB_QUAD(r[i], 0));
        vb_v4_store(to + (i + 4) * step, VB_QUAD(r[i], 1));
#if VB_LANES == 16
        vb_v4_store(to + (i + 8) * step, VB_QUAD(r[i], 2));
        vb_v4_store(to + (i + 12) * step, VB_QUAD(r[i], 3));
#endif
#endif
    }
}

#endif
