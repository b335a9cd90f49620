/* SPDX-License-Identifier: MIT
 *
 * The parts of a packed matrix product. The inner loop multiplies one number of a by a vector of b,
 * which is one instruction on 64-bit Arm (fmla by element). The inner loop has no special cases,
 * because packing fills up incomplete panels.
 */
#include "kernels/gemm/gemm_priv.h"

#define NV (VB_GEMM_NR / VB_LANES)

/* These macros access the MR numbers of a at one k. On Arm the numbers are a vector, and products
 * use its lanes. On x86 each number is broadcast from memory. There a is also prefetched, even from
 * the next panel, in case it is in the third-level cache. */
#if defined(__x86_64__)
#define A_LOAD(av, a) const float *av = (a)
#define ASK_AHEAD(a) __builtin_prefetch((a) + 1024, 0, 3)
#else
#define A_LOAD(av, a) vb_v4 av = vb_v4_load(a)
#define ASK_AHEAD(a) ((void)(a))
#endif

/* Prefetches the sums in c while the product is computed. */
static inline void ask_for(const float *c, size_t ldc)
{
#if defined(__x86_64__)
    for (size_t i = 0; i < VB_GEMM_MR; i++)
        for (int j = 0; j < VB_GEMM_NR; j += 16)
            __builtin_prefetch(c + i * ldc + j, 1, 3);
#else
    (void)c;
    (void)ldc;
#endif
}

void vb_gemm_tile(int k, const float *a, const float *b, float *c, size_t ldc, bool add)
{
    vb_vec acc[VB_GEMM_MR][NV] = {0};
    vb_vec bv[NV];

    if (add)
        ask_for(c, ldc);
    for (; k > 0; k--, a += VB_GEMM_MR, b += VB_GEMM_NR) {
        A_LOAD(av, a);
        ASK_AHEAD(a);
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++)
            bv[j] = vb_vec_load(b + j * VB_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < VB_GEMM_MR; i++)
#pragma GCC unroll 8
            for (int j = 0; j < NV; j++)
                acc[i][j] += bv[j] * av[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < VB_GEMM_MR; i++, c += ldc)
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++)
            vb_vec_store(c + j * VB_LANES,
                         add ? vb_vec_load(c + j * VB_LANES) + acc[i][j] : acc[i][j]);
}

/* One panel of b stays in the first-level cache while all panels of a are used. */
void vb_gemm_block(int m_panels, int n_panels, int k, const float *a, const float *b, float *c,
                   bool add)
{
    for (int j = 0; j < n_panels; j++, b += (size_t)k * VB_GEMM_NR) {
        for (int i = 0; i < m_panels; i++, c += VB_GEMM_MR * VB_GEMM_NR)
            vb_gemm_tile(k, a + (size_t)i * k * VB_GEMM_MR, b, c, VB_GEMM_NR, add);
    }
}

void vb_gemm_pack_lines(const float *from, size_t line_step, int n, int k, int width, float *to)
{
    int i = 0;

    for (; i + 4 <= n; i += 4) {
        const float *line = from + i * line_step;
        const float *const lines[4] = {line, line + line_step, line + 2 * line_step,
                                       line + 3 * line_step};

        vb_gemm_pack_four(lines, k, width, to + i);
    }
    for (; i < width; i++) {
        for (int p = 0; p < k; p++)
            to[(size_t)p * width + i] = i < n ? from[i * line_step + p] : 0;
    }
}

/* Copies VB_GEMM_NR floats. This copy is frequent, so it does not call memcpy(). */
static inline void copy_full(const float *from, float *to)
{
#pragma GCC unroll 8
    for (int j = 0; j < VB_GEMM_NR; j += VB_LANES)
        vb_vec_store(to + j, vb_vec_load(from + j));
}

static void copy_part(const float *from, int n, int width, float *to)
{
    for (int j = 0; j < width; j++)
        to[j] = j < n ? from[j] : 0;
}

void vb_gemm_pack_k(const float *from, size_t k_step, int n, int k, int width, float *to)
{
    for (; k > 0; k--, from += k_step, to += width) {
        if (n == VB_GEMM_NR)
            copy_full(from, to);
        else
            copy_part(from, n, width, to);
    }
}

/* Works row by row, because a row is contiguous in memory. */
void vb_gemm_pack_k_wide(const float *from, size_t k_step, int n, int k, float *to)
{
    for (int p = 0; p < k; p++, from += k_step, to += VB_GEMM_NR) {
        int j = 0;

        for (; j + VB_GEMM_NR <= n; j += VB_GEMM_NR)
            copy_full(from + j, to + (size_t)j * (size_t)k);
        if (j < n)
            copy_part(from + j, n - j, VB_GEMM_NR, to + (size_t)j * (size_t)k);
    }
}
