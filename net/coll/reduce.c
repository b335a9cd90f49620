/* SPDX-License-Identifier: MIT
 *
 * Sums vectors, element by element in the order of the sources, so that the bits do not depend on
 * how a vector was split. This file is compiled without contraction, because the product of a mean
 * must not be fused with the sum.
 *
 * Large sums are computed block by block, so that partial sums stay in the first-level cache. One
 * pass adds up to four sources. The loops use vector types of the compiler, which exist on every
 * machine. Loops that the compiler vectorizes itself would check for overlap at run time, because
 * dst may be a source. These loops need no such check.
 */
#include "net/coll/reduce.h"

#include <string.h>

#define BLOCK 2048u /* number of elements */
#define LINE 16u    /* number of elements in a cache line */
#if defined(__x86_64__)
#define AHEAD 512u /* elements: how far ahead lines are prefetched */
#define PLACES 4u  /* number of places at which a large share is summed in turn */
#else
#define AHEAD 128u
#define PLACES 1u
#endif
#define APART 4096u     /* number of elements between two places */
#define AHEAD_EACH 128u /* elements: how far ahead lines are prefetched at each place */
/* elements: prefetching makes longer sums slower, because memory is the limit */
#define PREFETCH_MAX ((size_t)4 << 20)

#if defined(__AVX512F__)
#define LANES 16u
#elif defined(__AVX2__)
#define LANES 8u
#else
#define LANES 4u
#endif

/* The type of a vector in memory and the type of a vector as a value. There are two types because
 * gcc 14 fails on an argument that is less aligned than its type. */
typedef float vec_mem __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float vec __attribute__((vector_size(4 * LANES)));

static inline vec load(const float *p)
{
    return *(const vec_mem *)(const void *)p;
}

static inline void store(float *p, vec v)
{
    *(vec_mem *)(void *)p = v;
}

/* ---- bfloat16 -------------------------------------------------------------------------------- */

/* Rounds to the nearest bfloat16, ties to even. A NaN stays a NaN. */
static inline uint32_t round_bits(uint32_t bits)
{
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;

    return (nan ? bits | 0x400000u : rounded) & 0xffff0000u;
}

static void round_block(float *dst, const float *src, size_t n)
{
    uint32_t bits;
    size_t i;

    for (i = 0; i < n; i++) {
        memcpy(&bits, &src[i], sizeof(bits));
        bits = round_bits(bits);
        memcpy(&dst[i], &bits, sizeof(bits));
    }
}

static void narrow(uint16_t *dst, const float *src, size_t n_elems)
{
    uint32_t bits;
    size_t i;

    for (i = 0; i < n_elems; i++) {
        memcpy(&bits, &src[i], sizeof(bits));
        dst[i] = (uint16_t)(round_bits(bits) >> 16);
    }
}

static void widen(float *dst, const uint16_t *src, size_t n_elems)
{
    uint32_t bits;
    size_t i;

    for (i = 0; i < n_elems; i++) {
        bits = (uint32_t)src[i] << 16;
        memcpy(&dst[i], &bits, sizeof(bits));
    }
}

/* ---- passes over a block --------------------------------------------------------------------- */

static void add2(float *dst, const float *a, const float *b, size_t n)
{
    size_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec s0 = load(a + i) + load(b + i);
        vec s1 = load(a + i + LANES) + load(b + i + LANES);
        vec s2 = load(a + i + 2 * LANES) + load(b + i + 2 * LANES);
        vec s3 = load(a + i + 3 * LANES) + load(b + i + 3 * LANES);

        store(dst + i, s0);
        store(dst + i + LANES, s1);
        store(dst + i + 2 * LANES, s2);
        store(dst + i + 3 * LANES, s3);
    }
    for (; i + LANES <= n; i += LANES)
        store(dst + i, load(a + i) + load(b + i));
    for (; i < n; i++)
        dst[i] = a[i] + b[i];
}

static void add3(float *dst, const float *a, const float *b, const float *c, size_t n)
{
    size_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vec s0 = load(a + i) + load(b + i) + load(c + i);
        vec s1 = load(a + i + LANES) + load(b + i + LANES) + load(c + i + LANES);

        store(dst + i, s0);
        store(dst + i + LANES, s1);
    }
    for (; i + LANES <= n; i += LANES)
        store(dst + i, load(a + i) + load(b + i) + load(c + i));
    for (; i < n; i++)
        dst[i] = a[i] + b[i] + c[i];
}

static void add4(float *dst, const float *a, const float *b, const float *c, const float *d,
                 size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        store(dst + i, load(a + i) + load(b + i) + load(c + i) + load(d + i));
    for (; i < n; i++)
        dst[i] = a[i] + b[i] + c[i] + d[i];
}

static void scale_block(float *dst, float scale, size_t n)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        store(dst + i, load(dst + i) * scale);
    for (; i < n; i++)
        dst[i] *= scale;
}

/* The loops below sum in place, for few ranks: the sources are also the places of the result, and
 * every byte is read and written once. They always multiply by scale; a scale of 1 changes no bit.
 *
 * Lines that will be written are prefetched, because the hardware prefetches only for reading and
 * not beyond a page. Lines behind the end of a share are never prefetched, because another rank is
 * using them. See docs/performance.md. */
static inline void prefetch(float *p, size_t ahead)
{
    __builtin_prefetch(p + ahead, 1);
}

/* The number of elements that are summed with prefetching. */
static size_t n_prefetched(size_t n)
{
    return n > AHEAD && n <= PREFETCH_MAX ? n - AHEAD : 0;
}

static inline void all2_line(float *a, float *b, float scale)
{
    vec s[LINE / LANES];

#pragma GCC unroll 4
    for (unsigned k = 0; k < LINE / LANES; k++)
        s[k] = (load(a + k * LANES) + load(b + k * LANES)) * scale;
#pragma GCC unroll 4
    for (unsigned k = 0; k < LINE / LANES; k++)
        store(a + k * LANES, s[k]);
#pragma GCC unroll 4
    for (unsigned k = 0; k < LINE / LANES; k++)
        store(b + k * LANES, s[k]);
}

/* Sums one line at each of several places in turn. The hardware prefetches only within a page and
 * starts slowly in each new page, so with several pages at a time more loads are under way. With
 * three vectors this is not faster; see docs/performance.md. Returns the number of elements
 * summed. */
static size_t all2_places(float *a, float *b, size_t n, float scale)
{
    size_t i = 0, k, at;

    for (; i + PLACES * APART + AHEAD_EACH <= n; i += PLACES * APART)
        for (k = i; k < i + APART; k += LINE)
#pragma GCC unroll 4
            for (at = k; at < k + PLACES * APART; at += APART) {
                prefetch(a + at, AHEAD_EACH);
                prefetch(b + at, AHEAD_EACH);
                all2_line(a + at, b + at, scale);
            }
    return i;
}

static void all2(float *a, float *b, size_t n, float scale)
{
    size_t i = PLACES > 1 ? all2_places(a, b, n, scale) : 0, end = i + n_prefetched(n - i);

    for (; i + LINE <= end; i += LINE) {
        prefetch(a + i, AHEAD);
        prefetch(b + i, AHEAD);
        all2_line(a + i, b + i, scale);
    }
    for (; i + LINE <= n; i += LINE)
        all2_line(a + i, b + i, scale);
    for (; i < n; i++)
        a[i] = b[i] = (a[i] + b[i]) * scale;
}

static inline void all3_vec(float *a, float *b, float *c, float scale)
{
    vec s = (load(a) + load(b) + load(c)) * scale;

    store(a, s);
    store(b, s);
    store(c, s);
}

static void all3(float *a, float *b, float *c, size_t n, float scale)
{
    size_t i = 0, k, end = n_prefetched(n);

    for (; i + LINE <= end; i += LINE) {
        prefetch(a + i, AHEAD);
        prefetch(b + i, AHEAD);
        prefetch(c + i, AHEAD);
        for (k = i; k < i + LINE; k += LANES)
            all3_vec(a + k, b + k, c + k, scale);
    }
    for (; i + LANES <= n; i += LANES)
        all3_vec(a + i, b + i, c + i, scale);
    for (; i < n; i++)
        a[i] = b[i] = c[i] = (a[i] + b[i] + c[i]) * scale;
}

static void all4(float *a, float *b, float *c, float *d, size_t n, float scale)
{
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        vec s = (load(a + i) + load(b + i) + load(c + i) + load(d + i)) * scale;

        store(a + i, s);
        store(b + i, s);
        store(c + i, s);
        store(d + i, s);
    }
    for (; i < n; i++)
        a[i] = b[i] = c[i] = d[i] = (a[i] + b[i] + c[i] + d[i]) * scale;
}

/* ---- a sum ----------------------------------------------------------------------------------- */

/* Returns n elements of a source, from first on, as float32. If the source is not float32, they are
 * converted and written to room. */
static const float *source_block(const struct source *s, size_t first, size_t n, float *room)
{
    switch (s->type) {
    case SOURCE_F32:
        break;
    case SOURCE_F32_ROUNDED:
        round_block(room, (const float *)s->ptr + first, n);
        return room;
    case SOURCE_BF16:
        widen(room, (const uint16_t *)s->ptr + first, n);
        return room;
    }
    return (const float *)s->ptr + first;
}

/* Sums sources that are not all plain float32. The sources are converted one at a time. */
static void sum_block_any(float *dst, const struct source *s, int n_s, size_t first, size_t n)
{
    float room[BLOCK], sum[BLOCK]; /* dst may be a source that is read later */
    int k;

    memcpy(sum, source_block(&s[0], first, n, room), n * sizeof(float));
    for (k = 1; k < n_s; k++)
        add2(sum, sum, source_block(&s[k], first, n, room), n);
    memcpy(dst, sum, n * sizeof(float));
}

/* Sums up to four vectors. */
static void sum_few(float *dst, const float *const *p, int n_p, size_t n)
{
    if (n_p == 1 && p[0] != dst)
        memcpy(dst, p[0], n * sizeof(float));
    else if (n_p == 2)
        add2(dst, p[0], p[1], n);
    else if (n_p == 3)
        add3(dst, p[0], p[1], p[2], n);
    else if (n_p == 4)
        add4(dst, p[0], p[1], p[2], p[3], n);
}

static void sum_block_f32(float *dst, const struct source *s, int n_s, size_t first, size_t n)
{
    float sum[BLOCK]; /* dst may be a source that is read later */
    const float *p[4];
    int k, n_p;

    for (n_p = 0; n_p < 4 && n_p < n_s; n_p++)
        p[n_p] = (const float *)s[n_p].ptr + first;
    if (n_s <= 4) {
        sum_few(dst, p, n_p, n);
        return;
    }
    sum_few(sum, p, 4, n);
    p[0] = sum;
    for (k = 4; k < n_s; k += n_p - 1) {
        for (n_p = 1; n_p < 4 && k + n_p - 1 < n_s; n_p++)
            p[n_p] = (const float *)s[k + n_p - 1].ptr + first;
        sum_few(sum, p, n_p, n);
    }
    memcpy(dst, sum, n * sizeof(float));
}

static bool all_f32(const struct source *s, int n_s)
{
    int k;

    for (k = 0; k < n_s; k++)
        if (s[k].type != SOURCE_F32)
            return false;
    return true;
}

/* Returns the vector among dst and also that is this source, or NULL. */
static float *place_of(const struct source *s, float *dst, float *const *also, int n_also)
{
    int k;

    for (k = 0; k < n_also; k++)
        if (s->ptr == also[k])
            return also[k];
    return s->ptr == dst ? dst : NULL;
}

/* Sums in place. Returns false if this is not possible, because the sources are not the places of
 * the result or there are too many. */
static bool sum_in_place(float *dst, float *const *also, int n_also, const struct source *s,
                         int n_s, size_t n, float scale)
{
    float *p[4] = {dst, dst, dst, dst};
    int k;

    if (n_s < 2 || n_s > 4 || n_also != n_s - 1)
        return false;
    for (k = 0; k < n_s; k++) {
        p[k] = place_of(&s[k], dst, also, n_also);
        if (p[k] == NULL)
            return false;
    }
    if (n_s == 2)
        all2(p[0], p[1], n, scale);
    else if (n_s == 3)
        all3(p[0], p[1], p[2], n, scale);
    else
        all4(p[0], p[1], p[2], p[3], n, scale);
    return true;
}

static void sum_sources(float *dst, float *const *also, int n_also, const struct source *s, int n_s,
                        size_t n_elems, const struct finish *finish)
{
    bool plain = all_f32(s, n_s);
    size_t first, n;
    int k;

    if (plain && !finish->round && sum_in_place(dst, also, n_also, s, n_s, n_elems, finish->scale))
        return;
    for (first = 0; first < n_elems; first += n) {
        n = n_elems - first < BLOCK ? n_elems - first : BLOCK;
        if (plain)
            sum_block_f32(dst + first, s, n_s, first, n);
        else
            sum_block_any(dst + first, s, n_s, first, n);
        if (finish->scale != 1.0f)
            scale_block(dst + first, finish->scale, n);
        if (finish->round)
            round_block(dst + first, dst + first, n);
        for (k = 0; k < n_also; k++)
            memcpy(also[k] + first, dst + first, n * sizeof(float));
    }
}

const struct vb_reduce_level VB_AT_LEVEL(vb_reduce_level) = {
    .sum = sum_sources, .narrow = narrow, .widen = widen};
