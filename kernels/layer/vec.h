/* SPDX-License-Identifier: MIT
 *
 * Vectors for our own kernels, with the vector extensions of gcc and clang, and what losses and
 * biases need. vb_v4 has four floats, 128 bits, which every 64-bit CPU supports. vb_vec has
 * VB_LANES floats, the widest that the level being compiled for supports (level.h).
 */
#ifndef VB_KERNELS_LAYER_VEC_H
#define VB_KERNELS_LAYER_VEC_H

#include <stddef.h>
#include <stdint.h>

typedef float vb_v4 __attribute__((vector_size(16)));
typedef float vb_v2 __attribute__((vector_size(8)));
typedef int32_t vb_v4i __attribute__((vector_size(16)));

#if defined(__AVX512F__)
#define VB_LANES 16
#elif defined(__AVX2__)
#define VB_LANES 8
#else
#define VB_LANES 4
#endif

#if VB_LANES > 4
typedef float vb_v8 __attribute__((vector_size(32)));
typedef float vb_v8_mem __attribute__((vector_size(32), aligned(4), may_alias));

static inline vb_v8 vb_v8_load(const float *p)
{
    return *(const vb_v8_mem *)p;
}

static inline void vb_v8_store(float *p, vb_v8 v)
{
    *(vb_v8_mem *)p = v;
}
#endif

typedef float vb_vec __attribute__((vector_size(4 * VB_LANES)));
typedef int32_t vb_veci __attribute__((vector_size(4 * VB_LANES)));
typedef float vb_vec_mem __attribute__((vector_size(4 * VB_LANES), aligned(4), may_alias));

/* Vectors aligned like a float. With memcpy(), gcc 12 would use integer registers. */
typedef float vb_v4_mem __attribute__((vector_size(16), aligned(4), may_alias));
typedef float vb_v2_mem __attribute__((vector_size(8), aligned(4), may_alias));

static inline vb_v4 vb_v4_load(const float *p)
{
    return *(const vb_v4_mem *)p;
}

static inline void vb_v4_store(float *p, vb_v4 v)
{
    *(vb_v4_mem *)p = v;
}

static inline vb_v2 vb_v2_load(const float *p)
{
    return *(const vb_v2_mem *)p;
}

static inline void vb_v2_store(float *p, vb_v2 v)
{
    *(vb_v2_mem *)p = v;
}

static inline vb_v4 vb_v4_all(float f)
{
    return (vb_v4){f, f, f, f};
}

static inline vb_vec vb_vec_load(const float *p)
{
    return *(const vb_vec_mem *)p;
}

static inline void vb_vec_store(float *p, vb_vec v)
{
    *(vb_vec_mem *)p = v;
}

static inline vb_vec vb_vec_all(float f)
{
    return f - (vb_vec){0};
}

static inline vb_v4 vb_v4_plus(vb_v4 a, vb_v4 b)
{
    return a + b;
}

/* Transposes a matrix of four by four. */
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

/* Returns max(v, 0), but keeps NaN: only values below 0 become 0. */
static inline float vb_relu(float v)
{
    return v < 0 ? 0 : v;
}

static inline vb_v4 vb_v4_relu(vb_v4 v)
{
    return (vb_v4)((vb_v4i)v & ~(v < 0));
}

static inline vb_vec vb_vec_relu(vb_vec v)
{
    return (vb_vec)((vb_veci)v & ~(v < 0));
}

/* Takes a where the mask is set, otherwise b. */
static inline vb_v4 vb_v4_pick(vb_v4i mask, vb_v4 a, vb_v4 b)
{
    return (vb_v4)((mask & (vb_v4i)a) | (~mask & (vb_v4i)b));
}

static inline vb_vec vb_vec_pick(vb_veci mask, vb_vec a, vb_vec b)
{
    return (vb_vec)((mask & (vb_veci)a) | (~mask & (vb_veci)b));
}

/* Returns the vector 0, 1, 2 ... */
static inline vb_veci vb_vec_places(void)
{
#if VB_LANES == 16
    return (vb_veci){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif VB_LANES == 8
    return (vb_veci){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (vb_veci){0, 1, 2, 3};
#endif
}

/* Combines the quads of a vector: combine(combine(first, second), combine(third, fourth)), or fewer
 * if the vector has fewer quads. This is a macro because it serves both floats and integers. */
#if VB_LANES == 16
#define VB_VEC_FOLD(combine, v)                                                                    \
    combine(combine(__builtin_shufflevector(v, v, 0, 1, 2, 3),                                     \
                    __builtin_shufflevector(v, v, 4, 5, 6, 7)),                                    \
            combine(__builtin_shufflevector(v, v, 8, 9, 10, 11),                                   \
                    __builtin_shufflevector(v, v, 12, 13, 14, 15)))
#elif VB_LANES == 8
#define VB_VEC_FOLD(combine, v)                                                                    \
    combine(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7))
#else
#define VB_VEC_FOLD(combine, v) ((void)(combine), (v)) /* one quad: nothing to combine */
#endif

/* Returns exp(x) for x <= 0, within 2 units in the last place; below -87 the result is exp(-87),
 * 1.6e-38. A NaN stays NaN. Whole powers of two are split off, and Cephes' polynomial is applied to
 * the remainder of x. Adding 1.5 * 2^23 rounds to an integer, in the low bits. */
static inline vb_vec vb_vec_exp_below_0(vb_vec x)
{
    const vb_vec shift = vb_vec_all(12582912.0f);
    vb_vec n, r, p;
    vb_veci power;

    x = vb_vec_pick(x < vb_vec_all(-87.0f), vb_vec_all(-87.0f), x);
    n = x * 1.44269504f + shift;
    power = ((vb_veci)n - (vb_veci)shift + 127) << 23;
    n -= shift;
    r = x - n * 0.693359375f - n * -2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vb_vec)power;
}

/* Returns log(1 + e) for e from 0 to 1, within 4 units in the last place, computed as the series of
 * 2 atanh(e / (2 + e)). The first omitted term is below 3e-9 of the sum. */
static inline vb_vec vb_vec_log1p_to_1(vb_vec e)
{
    vb_vec u = e / (e + 2.0f), q = u * u, s;

    s = q * (2.0f / 15) + (2.0f / 13);
    s = s * q + (2.0f / 11);
    s = s * q + (2.0f / 9);
    s = s * q + (2.0f / 7);
    s = s * q + (2.0f / 5);
    s = s * q + (2.0f / 3);
    return (s * q + 2.0f) * u;
}

/* Returns the sum of n numbers, in 16 partial sums: rounding errors grow with n / 16. */
static inline float vb_sum(const float *v, size_t n)
{
    vb_v4 s[4] = {{0}, {0}, {0}, {0}};
    float tail = 0;
    size_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 4; j++)
            s[j] += vb_v4_load(v + i + 4 * j);
    for (; i < n; i++)
        tail += v[i];
    s[0] = (s[0] + s[1]) + (s[2] + s[3]);
    return ((s[0][0] + s[0][1]) + (s[0][2] + s[0][3])) + tail;
}

/* Returns the gradient of a bias: the sum of channel c of dy (n, channels, pixels), in an order
 * that depends on the shape alone. */
static inline float vb_sum_channel(const float *dy, int n, int channels, int pixels, int c)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += vb_sum(dy + ((size_t)i * (size_t)channels + (size_t)c) * (size_t)pixels,
                      (size_t)pixels);
    return sum;
}

#endif
