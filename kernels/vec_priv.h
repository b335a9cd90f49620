/* SPDX-License-Identifier: MIT
 *
 * Four floats at a time, by the vector extensions of GCC and clang, and the two functions that
 * losses need. 128 bits are what every 64-bit CPU has.
 */
#ifndef VB_VEC_PRIV_H
#define VB_VEC_PRIV_H

#include <stdint.h>
#include <string.h>

typedef float v4 __attribute__((vector_size(16)));
typedef float v2 __attribute__((vector_size(8)));
typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4 v4_load(const float *p)
{
    v4 v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void v4_store(float *p, v4 v)
{
    memcpy(p, &v, sizeof(v));
}

static inline v2 v2_load(const float *p)
{
    v2 v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void v2_store(float *p, v2 v)
{
    memcpy(p, &v, sizeof(v));
}

static inline v4 v4_all(float f)
{
    return (v4){f, f, f, f};
}

/* a where the mask is set, else b. */
static inline v4 v4_pick(v4i mask, v4 a, v4 b)
{
    return (v4)((mask & (v4i)a) | (~mask & (v4i)b));
}

/* exp(x) for x <= 0, within 2 units in the last place; below -87 it is exp(-87), 1.6e-38. NaN stays
 * NaN. Cephes' polynomial, on what is left of x after whole powers of two; adding 1.5 * 2^23 rounds
 * to a whole number and leaves it in the low bits. */
static inline v4 v4_exp_below_0(v4 x)
{
    const v4 shift = v4_all(12582912.0f);
    v4 n, r, p;
    v4i power;

    x = v4_pick(x < v4_all(-87.0f), v4_all(-87.0f), x);
    n = x * 1.44269504f + shift;
    power = ((v4i)n - (v4i)shift + 127) << 23;
    n -= shift;
    r = x - n * 0.693359375f - n * -2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (v4)power;
}

/* log(1 + e) for e from 0 to 1, within 4 units in the last place: 2 atanh(e / (2 + e)), by its
 * series; the first term left out is below 3e-9 of the sum. */
static inline v4 v4_log1p_to_1(v4 e)
{
    v4 u = e / (e + 2.0f), q = u * u, s;

    s = q * (2.0f / 15) + (2.0f / 13);
    s = s * q + (2.0f / 11);
    s = s * q + (2.0f / 9);
    s = s * q + (2.0f / 7);
    s = s * q + (2.0f / 5);
    s = s * q + (2.0f / 3);
    return (s * q + 2.0f) * u;
}

#endif
