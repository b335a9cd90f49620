/* SPDX-License-Identifier: MIT
 *
 * The parts of a packed matrix product c = a * b, for one thread. A panel is VB_GEMM_MR rows of a,
 * or VB_GEMM_NR columns of b, stored so that the numbers of one k are contiguous: a (k, MR), b (k,
 * NR). An incomplete panel is filled up with zeros. NN, NT and TN products differ only in how
 * panels are packed. The sum over k runs upwards, so the bits depend only on where callers cut k.
 */
#ifndef VB_KERNELS_GEMM_GEMM_PRIV_H
#define VB_KERNELS_GEMM_GEMM_PRIV_H

#include "kernels/layer/level.h"
#include "kernels/layer/vec.h"

#define vb_gemm_tile VB_AT_LEVEL(vb_gemm_tile)
#define vb_gemm_block VB_AT_LEVEL(vb_gemm_block)
#define vb_gemm_pack_lines VB_AT_LEVEL(vb_gemm_pack_lines)
#define vb_gemm_pack_k VB_AT_LEVEL(vb_gemm_pack_k)
#define vb_gemm_pack_k_wide VB_AT_LEVEL(vb_gemm_pack_k_wide)

/* The block of c in registers: as large as possible, with some registers left for a and b. */
#if defined(__AVX512F__)
#define VB_GEMM_MR 8
#define VB_GEMM_NR 32 /* 16 of 32 registers: more are not faster, and waste more at the edges */
#else
#define VB_GEMM_MR 4
#if defined(__AVX2__)
#define VB_GEMM_NR 24 /* 12 of 16 registers */
#elif defined(__SSE2__)
#define VB_GEMM_NR 12 /* 12 of 16 registers */
#else
#define VB_GEMM_NR 20 /* 20 of 32 registers */
#endif
#endif

/* A good number of k for a block: a panel of b then stays in the first-level cache. */
#define VB_GEMM_KC 384

static inline int vb_gemm_rows(int m) /* m rounded up to whole panels */
{
    return vb_divide_up(m, VB_GEMM_MR) * VB_GEMM_MR;
}

static inline int vb_gemm_cols(int n)
{
    return vb_divide_up(n, VB_GEMM_NR) * VB_GEMM_NR;
}

/* Packs k numbers of each of four lines side by side into (k, width). */
static inline __attribute__((always_inline)) void vb_gemm_pack_four(const float *const from[4],
                                                                    int k, int width, float *to)
{
    vb_v4 r[4];
    int p = 0;

    for (; p + 4 <= k; p += 4) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            r[i] = vb_v4_load(from[i] + p);
        vb_v4_transpose(r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            vb_v4_store(to + (size_t)(p + i) * width, r[i]);
    }
    for (; p < k; p++)
        for (int i = 0; i < 4; i++)
            to[(size_t)p * width + i] = from[i][p];
}

/* Sets c (MR, NR), whose rows are ldc apart, to the product of a panel of a and a panel of b; or
 * adds the product if add is set. b and c need not be aligned. */
void vb_gemm_tile(int k, const float *a, const float *b, float *c, size_t ldc, bool add);

/* Does the same for m_panels panels of a and n_panels panels of b, which are k * MR and k * NR
 * floats apart. c consists of tiles (MR, NR); the tiles of one panel of b are contiguous. */
void vb_gemm_block(int m_panels, int n_panels, int k, const float *a, const float *b, float *c,
                   bool add);

/* These two pack n <= width lines into one panel (k, width). For pack_lines, the numbers of a line
 * are contiguous, and lines are line_step apart. For pack_k, the numbers of one k are contiguous,
 * and the numbers of the next k are k_step further. width is a multiple of 4. */
void vb_gemm_pack_lines(const float *from, size_t line_step, int n, int k, int width, float *to);
void vb_gemm_pack_k(const float *from, size_t k_step, int n, int k, int width, float *to);

/* Does the same as vb_gemm_pack_k() for n columns, and fills as many panels of b as they need. */
void vb_gemm_pack_k_wide(const float *from, size_t k_step, int n, int k, float *to);

#endif
