/* SPDX-License-Identifier: MIT
 *
 * The transformations of Winograd's short convolutions. The numbers of taps and outputs are
 * constants at every call, so the compiler removes the code for taps and outputs that do not exist.
 */
#include "kernels/layer/quads.h"
#include "kernels/gemm/winograd.h"

#define ALPHA VB_WINO_ALPHA
#define INLINE static inline __attribute__((always_inline))

/* Transforms a line of inputs in place. */
INLINE void input_line(int alpha, vb_vec *d, int step)
{
    vb_vec d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4, d5, a, b;

    if (alpha == 4) {
        d[0] = d0 - d2;
        d[step] = d1 + d2;
        d[2 * step] = d2 - d1;
        d[3 * step] = d3 - d1;
        return;
    }
    d4 = d[4 * step];
    d5 = d[5 * step];
    d[0] = d0 * 4 - d2 * 5 + d4;
    a = d4 - d2 * 4;
    b = d3 - d1 * 4;
    d[step] = a + b;
    d[2 * step] = a - b;
    a = d4 - d2;
    b = (d3 - d1) * 2;
    d[3 * step] = a + b;
    d[4 * step] = a - b;
    d[5 * step] = d1 * 4 - d3 * 5 + d5;
}

/* Transforms a line of r taps into alpha results: the values of a polynomial, times constants. */
INLINE void taps_line(int alpha, int r, const vb_vec *g, int step, vb_vec *to, int to_step)
{
    vb_vec zero = {0}, even, odd, g1 = r > 1 ? g[step] : zero, g2 = r > 2 ? g[2 * step] : zero;
    vb_vec g3 = r > 3 ? g[3 * step] : zero, g4 = r > 4 ? g[4 * step] : zero;
    float c1 = alpha == 4 ? 0.5f : -1 / 6.0f;

    even = g[0] + g2 + g4;
    odd = g1 + g3;
    to[0] = alpha == 4 ? g[0] : g[0] * 0.25f;
    to[to_step] = (even + odd) * c1;
    to[2 * to_step] = (even - odd) * c1;
    if (alpha == 6) {
        even = (g[0] + g2 * 4 + g4 * 16) * (1 / 24.0f);
        odd = (g1 * 2 + g3 * 8) * (1 / 24.0f);
        to[3 * to_step] = even + odd;
        to[4 * to_step] = even - odd;
    }
    to[(alpha - 1) * to_step] = g[(r - 1) * step];
}

/* Transforms a line of alpha products into m outputs. */
INLINE void output_line(int alpha, int m, const vb_vec *t, int step, vb_vec *to, int to_step)
{
    vb_vec s1 = t[step] + t[2 * step], d1 = t[step] - t[2 * step], s2 = {0}, d2 = {0};
    vb_vec y[5];

    if (alpha == 6) {
        s2 = t[3 * step] + t[4 * step];
        d2 = t[3 * step] - t[4 * step];
    }
    y[0] = t[0] + s1 + s2;
    y[1] = d1 + d2 * 2;
    y[2] = s1 + s2 * 4;
    y[3] = d1 + d2 * 8;
    y[4] = s1 + s2 * 16;
    y[m - 1] += t[(alpha - 1) * step];
#pragma GCC unroll 5
    for (int i = 0; i < m; i++)
        to[i * to_step] = y[i];
}

INLINE void input_square(int alpha, vb_vec *d, float *to, size_t step)
{
#pragma GCC unroll 6
    for (int i = 0; i < alpha; i++)
        input_line(alpha, d + i * alpha, 1);
#pragma GCC unroll 6
    for (int i = 0; i < alpha; i++)
        input_line(alpha, d + i, alpha);
#pragma GCC unroll 36
    for (int i = 0; i < alpha * alpha; i++)
        vb_vec_store(to + (size_t)i * step, d[i]);
}

INLINE void taps_square(int alpha, int r, const vb_vec *g, float *to, size_t step)
{
    vb_vec half[ALPHA * ALPHA], all[ALPHA * ALPHA];

#pragma GCC unroll 6
    for (int i = 0; i < r; i++)
        taps_line(alpha, r, g + i * r, 1, half + i * alpha, 1);
#pragma GCC unroll 6
    for (int i = 0; i < alpha; i++)
        taps_line(alpha, r, half + i, alpha, all + i, alpha);
#pragma GCC unroll 36
    for (int i = 0; i < alpha * alpha; i++)
        vb_vec_store(to + (size_t)i * step, all[i]);
}

INLINE void output_square(int alpha, int m, const float *from, size_t step, vb_vec *out)
{
    vb_vec line[ALPHA], half[ALPHA * ALPHA];

#pragma GCC unroll 6
    for (int i = 0; i < alpha; i++) {
#pragma GCC unroll 6
        for (int j = 0; j < alpha; j++)
            line[j] = vb_vec_load(from + (size_t)(i * alpha + j) * step);
        output_line(alpha, m, line, 1, half + i * m, 1);
    }
#pragma GCC unroll 6
    for (int j = 0; j < m; j++)
        output_line(alpha, m, half + j, m, out + j, m);
}

/* Loads n by n numbers for each lane. n is 2, 4 or 6. */
INLINE void gather(int n, const float *const from[VB_LANES], int pitch, vb_vec *to)
{
    vb_v4 q[VB_LANES / 4];

    if (n == 2) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
#pragma GCC unroll 4
            for (int g = 0; g < VB_LANES / 4; g++)
                q[g] = __builtin_shufflevector(vb_v2_load(from[4 * g + i]),
                                               vb_v2_load(from[4 * g + i] + pitch), 0, 1, 2, 3);
            to[i] = vb_quads_join(q);
        }
        vb_quads_turn(to);
        return;
    }
#pragma GCC unroll 6
    for (int i = 0; i < n; i++, to += n) {
        vb_quads_load(from, (size_t)i * (size_t)pitch, to);
        if (n == 6) {
            vb_vec r[4];

            vb_quads_load(from, (size_t)i * (size_t)pitch + 2, r);
            to[4] = r[2];
            to[5] = r[3];
        }
    }
}

/* Loads n contiguous numbers for each lane. n is at least 4. */
INLINE void gather_row(int n, const float *const from[VB_LANES], vb_vec *to)
{
#pragma GCC unroll 8
    for (int i = 0; i + 4 <= n; i += 4)
        vb_quads_load(from, (size_t)i, to + i);
    if (n % 4 != 0) {
        vb_vec r[4];

        vb_quads_load(from, (size_t)(n - 4), r);
        for (int i = 4 - n % 4; i < 4; i++)
            to[n - 4 + i] = r[i];
    }
}

/* The reverse of gather_row(): writes n contiguous numbers of each lane in turn. Overwrites v. */
INLINE void scatter_rows(int n, vb_vec *v, float *to)
{
    vb_vec last[4];

    for (int i = 0; i < 4; i++)
        last[i] = v[n - 4 + i];
#pragma GCC unroll 8
    for (int i = 0; i + 4 <= n; i += 4)
        vb_quads_store(v + i, to + i, (size_t)n);
    if (n % 4 != 0)
        vb_quads_store(last, to + n - 4, (size_t)n);
}

INLINE void taps_turned(int alpha, int r, const vb_vec *g, float *to, size_t step)
{
    vb_vec turned[ALPHA * ALPHA];

#pragma GCC unroll 25
    for (int i = 0; i < r * r; i++)
        turned[i] = g[r * r - 1 - i];
    taps_square(alpha, r, turned, to, step);
}

INLINE void finish(int n, vb_vec *v, float bias, bool relu)
{
#pragma GCC unroll 16
    for (int i = 0; i < n; i++)
        v[i] += bias;
    if (relu) {
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            v[i] = vb_vec_relu(v[i]);
    }
}

/* Defines one set of functions for a pair of m and r. */
#define OPS(ALPHA_, M, R)                                                                          \
    static void input_##M##_##R(const float *const from[VB_LANES], int pitch, float *to,           \
                                size_t step)                                                       \
    {                                                                                              \
        vb_vec d[ALPHA * ALPHA];                                                                   \
                                                                                                   \
        gather(ALPHA_, from, pitch, d);                                                            \
        input_square(ALPHA_, d, to, step);                                                         \
    }                                                                                              \
    static void taps_##M##_##R(const float *const from[VB_LANES], bool turned, float *to,          \
                               size_t step)                                                        \
    {                                                                                              \
        vb_vec g[ALPHA * ALPHA];                                                                   \
                                                                                                   \
        gather_row((R) * (R), from, g);                                                            \
        if (turned)                                                                                \
            taps_turned(ALPHA_, R, g, to, step);                                                   \
        else                                                                                       \
            taps_square(ALPHA_, R, g, to, step);                                                   \
    }                                                                                              \
    static void output_##M##_##R(const float *from, size_t step, float bias, bool relu, float *to) \
    {                                                                                              \
        vb_vec out[ALPHA * ALPHA];                                                                 \
                                                                                                   \
        output_square(ALPHA_, M, from, step, out);                                                 \
        finish((M) * (M), out, bias, relu);                                                        \
        scatter_rows((M) * (M), out, to);                                                          \
    }                                                                                              \
    static void tile_as_taps_##M##_##R(const float *const from[VB_LANES], int pitch, float *to,    \
                                       size_t step)                                                \
    {                                                                                              \
        vb_vec g[ALPHA * ALPHA];                                                                   \
                                                                                                   \
        gather(M, from, pitch, g);                                                                 \
        taps_square(ALPHA_, M, g, to, step);                                                       \
    }                                                                                              \
    static void output_as_taps_##M##_##R(const float *from, size_t step, float *to)                \
    {                                                                                              \
        vb_vec out[ALPHA * ALPHA];                                                                 \
                                                                                                   \
        output_square(ALPHA_, R, from, step, out);                                                 \
        scatter_rows((R) * (R), out, to);                                                          \
    }                                                                                              \
    const struct vb_wino_ops vb_wino_f##M##_##R = {                                                \
        .alpha = (ALPHA_),                                                                         \
        .m = (M),                                                                                  \
        .r = (R),                                                                                  \
        .input = input_##M##_##R,                                                                  \
        .taps = taps_##M##_##R,                                                                    \
        .output = output_##M##_##R,                                                                \
        .tile_as_taps = tile_as_taps_##M##_##R,                                                    \
        .output_as_taps = output_as_taps_##M##_##R,                                                \
    };

OPS(4, 2, 3)
OPS(6, 4, 3)
OPS(6, 2, 5)
