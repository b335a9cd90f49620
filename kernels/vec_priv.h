/* SPDX-License-Identifier: MIT
 *
 * Vectors of four floats in the vector extensions of gcc and clang, for the kernels of our own.
 */
#ifndef VB_VEC_PRIV_H
#define VB_VEC_PRIV_H

typedef float vb_v4 __attribute__((vector_size(16)));

/* As it lies in memory, aligned like a float. A memcpy() would do too, but gcc 12 takes it through
 * integer registers. */
typedef float vb_v4_mem __attribute__((vector_size(16), aligned(4), may_alias));

static inline vb_v4 vb_v4_load(const float *p)
{
    return *(const vb_v4_mem *)p;
}

static inline void vb_v4_store(float *p, vb_v4 v)
{
    *(vb_v4_mem *)p = v;
}

static inline vb_v4 vb_v4_all(float f)
{
    return (vb_v4){f, f, f, f};
}

/* Rows become columns. */
static inline void vb_v4_transpose(vb_v4 r[4])
{
    vb_v4 a = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
    vb_v4 b = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
    vb_v4 c = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
    vb_v4 d = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);

    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[2] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* max(v, 0) that keeps NaN: only what is below 0 is cleared. */
static inline float vb_relu(float v)
{
    return v < 0 ? 0 : v;
}

static inline vb_v4 vb_v4_relu(vb_v4 v)
{
    typedef int lanes __attribute__((vector_size(16)));

    return (vb_v4)((lanes)v & ~(v < 0));
}

#endif
