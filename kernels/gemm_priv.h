/* SPDX-License-Identifier: MIT
 *
 * The pieces of a packed matrix product c = a * b, for one thread; the callers cut the work into
 * tiles and share them out.
 *
 * A panel is VB_GEMM_MR rows of a, or VB_GEMM_NR columns of b, stored so that the numbers that meet
 * at one k lie together: a (k, MR), b (k, NR). What a matrix lacks of a full panel is zeros.
 * NN, NT and TN are a matter of how panels are packed. The sum over k runs upwards, so the bits
 * depend on nothing but where the callers cut k.
 */
#ifndef VB_GEMM_PRIV_H
#define VB_GEMM_PRIV_H

#include "kernels/level_priv.h"

#include <stdbool.h>
#include <stddef.h>

#define vb_gemm_tile VB_AT_LEVEL(vb_gemm_tile)
#define vb_gemm_block VB_AT_LEVEL(vb_gemm_block)
#define vb_gemm_pack_lines VB_AT_LEVEL(vb_gemm_pack_lines)
#define vb_gemm_pack_k VB_AT_LEVEL(vb_gemm_pack_k)
#define vb_gemm_pack_k_wide VB_AT_LEVEL(vb_gemm_pack_k_wide)

/* The block of c that is kept in registers: as large as they allow, less what a and b need. */
#if defined(__AVX512F__)
#define VB_GEMM_MR 8
#define VB_GEMM_NR 32 /* 16 of 32 registers: more are no faster here, and fill up more */
#else
#define VB_GEMM_MR 4
#if defined(__AVX2__)
#define VB_GEMM_NR 24 /* 12 of 16 registers */
#elif defined(__SSE2__)
#define VB_GEMM_NR 12 /* 12 of 16 */
#else
#define VB_GEMM_NR 20 /* 20 of 32 */
#endif
#endif

/* About how long a block along k is best: a panel of b stays in the first level of cache. */
#define VB_GEMM_KC 384

/* Rows or columns in full panels. */
static inline int vb_gemm_panels(int n, int width)
{
    return (n + width - 1) / width;
}

static inline int vb_gemm_rows(int m) /* m rounded up */
{
    return vb_gemm_panels(m, VB_GEMM_MR) * VB_GEMM_MR;
}

static inline int vb_gemm_cols(int n)
{
    return vb_gemm_panels(n, VB_GEMM_NR) * VB_GEMM_NR;
}

/* c (MR, NR), rows ldc apart, becomes or gains (add) the product of one panel of a and one of b.
 * b and c: aligned or not. */
void vb_gemm_tile(int k, const float *a, const float *b, float *c, size_t ldc, bool add);

/* The same for m_panels of a and n_panels of b, k * MR and k * NR apart. c: tiles (MR, NR), those
 * of one panel of b one after the other. */
void vb_gemm_block(int m_panels, int n_panels, int k, const float *a, const float *b, float *c,
                   bool add);

/* Packs one panel (k, width) of n <= width lines. By lines: the numbers of a line lie together,
 * lines line_step apart. By k: the numbers that meet at one k lie together, k_step apart. width is
 * a multiple of 4. */
void vb_gemm_pack_lines(const float *from, size_t line_step, int n, int k, int width, float *to);
void vb_gemm_pack_k(const float *from, size_t k_step, int n, int k, int width, float *to);

/* Packs n columns by k into as many panels of b as they need. */
void vb_gemm_pack_k_wide(const float *from, size_t k_step, int n, int k, float *to);

#endif
