/* SPDX-License-Identifier: MIT
 *
 * Computes with tiles of pixels and ten classes, at levels whose vectors hold a tile
 * (docs/compute.md). The weights become columns, with one vector for each class of a tile. The
 * backward pass goes from tile to tile, and for each tile over the samples that have it.
 *
 * 0 times infinity is NaN. If a result is not finite, the slow loops, which skip zeros, compute it.
 */
#include "kernels/pixels/pixels_priv.h"
#include "kernels/layer/vec.h"

#if VB_LANES == TILE

#include <immintrin.h>

#define TEN 10
#define SLICE 128 /* number of samples processed together in the backward pass */
#define WORD 64
#define WORDS (SLICE / WORD)

#define ALWAYS PIXELS_ALWAYS

/* Loads a tile as floats. gcc 12 makes ten instructions of the same without intrinsics. */
ALWAYS vb_vec tile_load(const uint8_t *x)
{
    return (vb_vec)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)x)));
}

/* ---- rows and columns ------------------------------------------------------------------------ */

/* Indices for shuffling two vectors, separately in each quarter. FIRSTS alternates the first two
 * lanes of both vectors, LASTS the last two. LOWER takes the first halves, UPPER the second. */
#define FIRSTS 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define LASTS 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define LOWER 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define UPPER 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31

/* Transposes four vectors, separately in each quarter. */
ALWAYS void turn(vb_vec v[4])
{
    vb_vec a = __builtin_shufflevector(v[0], v[1], FIRSTS);
    vb_vec b = __builtin_shufflevector(v[0], v[1], LASTS);
    vb_vec c = __builtin_shufflevector(v[2], v[3], FIRSTS);
    vb_vec d = __builtin_shufflevector(v[2], v[3], LASTS);

    v[0] = __builtin_shufflevector(a, c, LOWER);
    v[1] = __builtin_shufflevector(a, c, UPPER);
    v[2] = __builtin_shufflevector(b, d, LOWER);
    v[3] = __builtin_shufflevector(b, d, UPPER);
}

/* The index in the weights of the row of each pixel of a tile. */
struct rows {
    int at[TILE];
};

ALWAYS struct rows rows_of(const struct vb_k_pixels *p, int tile)
{
    struct rows rows;

    for (int k = 0; k < TILE; k++)
        rows.at[k] = p->tiles.pixel[tile * TILE + k] * TEN;
    return rows;
}

/* Loads four classes of the pixels k, k + 4, k + 8 and k + 12 of a tile. It uses intrinsics that
 * load and insert in one instruction, while gcc 12 would load first and then shuffle. */
ALWAYS vb_vec four_rows(const float *w, const struct rows *rows, int k)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(w + rows->at[k]));

    v = _mm512_insertf32x4(v, _mm_loadu_ps(w + rows->at[k + 4]), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(w + rows->at[k + 8]), 2);
    return (vb_vec)_mm512_insertf32x4(v, _mm_loadu_ps(w + rows->at[k + 12]), 3);
}

ALWAYS void four_columns(const float *w, const struct rows *rows, vb_vec v[4])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        v[k] = four_rows(w, rows, k);
    turn(v);
}

/* ---- forward --------------------------------------------------------------------------------- */

struct columns {
    float of[TILES_MAX][TEN][TILE] __attribute__((aligned(VB_CACHE_LINE)));
};

ALWAYS void make_columns(const float *w, const struct rows *rows, float (*to)[TILE])
{
    vb_vec a[4], b[4], c[4]; /* c: the last two classes, together with the two before */

    four_columns(w, rows, a);
    four_columns(w + 4, rows, b);
    four_columns(w + 6, rows, c);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        vb_vec_store(to[k], a[k]);
        vb_vec_store(to[k + 4], b[k]);
    }
    vb_vec_store(to[8], c[2]);
    vb_vec_store(to[9], c[3]);
}

/* Makes the columns of all tiles that any of the samples has. */
static void make_all_columns(const struct vb_k_pixels *p, const struct vb_k_picked *at,
                             const float *w, struct columns *columns)
{
    uint64_t which = 0;
    struct rows rows;
    size_t i;
    int t;

    for (i = 0; i < at->n; i++)
        which |= p->tiles.places[at->order[i]].which;
    for (; which != 0; which &= which - 1) {
        t = __builtin_ctzll(which);
        rows = rows_of(p, t);
        make_columns(w, &rows, columns->of[t]);
    }
}

/* Adds pairs of lanes. In each quarter, sums of a and sums of b alternate. */
ALWAYS vb_vec halves(vb_vec a, vb_vec b)
{
    return __builtin_shufflevector(a, b, FIRSTS) + __builtin_shufflevector(a, b, LASTS);
}

ALWAYS vb_v4 sums_of_4(const vb_vec v[4])
{
    vb_vec ab = halves(v[0], v[1]), cd = halves(v[2], v[3]);
    vb_vec all = __builtin_shufflevector(ab, cd, LOWER) + __builtin_shufflevector(ab, cd, UPPER);

    return VB_VEC_FOLD(vb_v4_plus, all);
}

/* Returns the sums of the lanes of two vectors; each sum appears twice. */
ALWAYS vb_v4 sums_of_2(const vb_vec v[2])
{
    vb_vec ab = halves(v[0], v[1]);
    vb_v4 sums = VB_VEC_FOLD(vb_v4_plus, ab);

    return sums + __builtin_shufflevector(sums, sums, 2, 3, 0, 1);
}

ALWAYS bool all_zero(vb_v4 v)
{
    return v[0] == 0 && v[1] == 0 && v[2] == 0 && v[3] == 0;
}

/* Computes the logits of a sample. Returns zeros, unless a logit is not finite. */
ALWAYS vb_v4 tiles_row(const struct tiles_of *tiles, const struct columns *w, float unit,
                       const float *b, float *logits)
{
    const uint8_t *x = tiles->x;
    uint64_t which = tiles->which;
    vb_vec s[TEN] = {0};
    vb_v4 first, middle, last;

    for (; which != 0; which &= which - 1, x += TILE) {
        const float(*column)[TILE] = w->of[__builtin_ctzll(which)];
        vb_vec v = tile_load(x);

#pragma GCC unroll 10
        for (int c = 0; c < TEN; c++)
            s[c] += v * vb_vec_load(column[c]);
    }
    first = sums_of_4(s) * unit + vb_v4_load(b);
    middle = sums_of_4(s + 4) * unit + vb_v4_load(b + 4);
    last = sums_of_2(s + 8) * unit;
    vb_v4_store(logits, first);
    vb_v4_store(logits + 4, middle);
    vb_v2_store(logits + 8, __builtin_shufflevector(last, last, 0, 1) + vb_v2_load(b + 8));
    first += middle + last;
    return first * 0;
}

void vb_tiles_ten_forward(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *w,
                          const float *b, float *logits)
{
    struct columns columns;
    struct tiles_of tiles;
    vb_v4 zeros = {0};
    size_t i;

    /* Prefetches the places of tiles for the backward pass, which prefetches the tiles. */
    for (i = 0; i < TILES_LATER && i < at->n_soon; i++)
        __builtin_prefetch(p->tiles.places + at->soon[i]);
    make_all_columns(p, at, w, &columns);
    for (i = 0; i < at->n; i++) {
        if (i + TILES_SOON < at->n)
            tiles_fetch(p, at->order[i + TILES_SOON], true);
        tiles = tiles_of(p, at->order[i]);
        zeros += tiles_row(&tiles, &columns, p->tiles.unit, b, logits + i * TEN);
    }
    for (i = 0; i < at->n && !all_zero(zeros); i++)
        vb_tiles_row(p, at->order[i], w, b, TEN, logits + i * TEN);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct slice {
    const uint8_t *x[SLICE];       /* the next tile of each sample */
    uint64_t samples[WORDS][WORD]; /* bit i of [k][t] is set: sample 64 k + i has tile t */
    uint64_t any;                  /* the tiles that at least one sample has */
    size_t n;
};

/* One step of transposing bits: swaps the two quarters off the diagonal in squares of 2 * size. */
ALWAYS void swap_bits(uint64_t rows[WORD], int size, uint64_t lower)
{
    int first, i;

    for (first = 0; first < WORD; first += 2 * size)
        for (i = first; i < first + size; i++) {
            uint64_t differ = (rows[i] >> size ^ rows[i + size]) & lower;

            rows[i] ^= differ << size;
            rows[i + size] ^= differ;
        }
}

static void turn_bits(uint64_t rows[WORD])
{
    swap_bits(rows, 32, 0x00000000ffffffff);
    swap_bits(rows, 16, 0x0000ffff0000ffff);
    swap_bits(rows, 8, 0x00ff00ff00ff00ff);
    swap_bits(rows, 4, 0x0f0f0f0f0f0f0f0f);
    swap_bits(rows, 2, 0x3333333333333333);
    swap_bits(rows, 1, 0x5555555555555555);
}

static void make_slice(const struct vb_k_pixels *p, const uint32_t *order, size_t n,
                       struct slice *s)
{
    struct tiles_of tiles;
    size_t i, k;

    memset(s->samples, 0, sizeof(s->samples));
    s->any = 0;
    s->n = n;
    for (i = 0; i < n; i++) {
        tiles = tiles_of(p, order[i]);
        s->x[i] = tiles.x;
        s->samples[i / WORD][i % WORD] = tiles.which;
        s->any |= tiles.which;
    }
    for (k = 0; k * WORD < n; k++)
        turn_bits(s->samples[k]);
}

ALWAYS void add_4(vb_v4 v, float *to)
{
    vb_v4_store(to, vb_v4_load(to) + v);
}

ALWAYS void add_2(vb_v2 v, float *to)
{
    vb_v2_store(to, vb_v2_load(to) + v);
}

/* Adds v to four classes of the pixels k, k + 4, k + 8 and k + 12 of a tile. */
ALWAYS void add_four_rows(vb_vec v, const int *row, int k, float *dw)
{
    add_4(__builtin_shufflevector(v, v, 0, 1, 2, 3), dw + row[k]);
    add_4(__builtin_shufflevector(v, v, 4, 5, 6, 7), dw + row[k + 4]);
    add_4(__builtin_shufflevector(v, v, 8, 9, 10, 11), dw + row[k + 8]);
    add_4(__builtin_shufflevector(v, v, 12, 13, 14, 15), dw + row[k + 12]);
}

ALWAYS void add_four_columns(const vb_vec from[4], const int *row, float scale, float *dw)
{
    vb_vec v[4] = {from[0] * scale, from[1] * scale, from[2] * scale, from[3] * scale};

    turn(v);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        add_four_rows(v[k], row, k, dw);
}

/* Adds v to two classes of the pixels k and k + 1 of a tile. */
ALWAYS void add_two_rows(vb_v4 v, const int *row, int k, float *dw)
{
    add_2(__builtin_shufflevector(v, v, 0, 1), dw + row[k]);
    add_2(__builtin_shufflevector(v, v, 2, 3), dw + row[k + 1]);
}

ALWAYS void add_half_of_two(vb_vec v, const int *row, float *dw)
{
    add_two_rows(__builtin_shufflevector(v, v, 0, 1, 2, 3), row, 0, dw);
    add_two_rows(__builtin_shufflevector(v, v, 4, 5, 6, 7), row, 4, dw);
    add_two_rows(__builtin_shufflevector(v, v, 8, 9, 10, 11), row, 8, dw);
    add_two_rows(__builtin_shufflevector(v, v, 12, 13, 14, 15), row, 12, dw);
}

ALWAYS void add_two_columns(vb_vec a, vb_vec b, const int *row, float scale, float *dw)
{
    a *= scale;
    b *= scale;
    add_half_of_two(__builtin_shufflevector(a, b, FIRSTS), row, dw);
    add_half_of_two(__builtin_shufflevector(a, b, LASTS), row + 2, dw);
}

/* Sums a tile over the samples that have it. */
ALWAYS void tile_sums(struct slice *slice, int t, const float *d, vb_vec s[TEN])
{
#pragma GCC unroll 10
    for (int c = 0; c < TEN; c++)
        s[c] = vb_vec_all(0);
    for (size_t k = 0; k * WORD < slice->n; k++) {
        uint64_t samples = slice->samples[k][t];

        for (; samples != 0; samples &= samples - 1) {
            size_t i = k * WORD + (size_t)__builtin_ctzll(samples);
            vb_vec v = tile_load(slice->x[i]);

            slice->x[i] += TILE;
#pragma GCC unroll 10
            for (size_t c = 0; c < TEN; c++)
                s[c] += v * vb_vec_all(d[i * TEN + c]);
        }
    }
}

static void add_tile(const struct vb_k_pixels *p, struct slice *slice, int t, const float *d,
                     float scale, float *dw)
{
    struct rows rows = rows_of(p, t);
    float all = scale * p->tiles.unit;
    vb_vec s[TEN];

    tile_sums(slice, t, d, s);
    add_four_columns(s, rows.at, all, dw);
    add_four_columns(s + 4, rows.at, all, dw + 4);
    add_two_columns(s[8], s[9], rows.at, all, dw + 8);
}

/* Prefetches tiles of the next batch, as few at a time as the CPU can wait for. */
ALWAYS void fetch_soon(const struct vb_k_pixels *p, const struct vb_k_picked *at, size_t from,
                       size_t to)
{
    for (; from < to && from < at->n_soon; from++) {
        if (from + TILES_LATER < at->n_soon)
            __builtin_prefetch(p->tiles.places + at->soon[from + TILES_LATER]);
        tiles_fetch(p, at->soon[from], false);
    }
}

static void add_slice(const struct vb_k_pixels *p, const struct vb_k_picked *at, size_t first,
                      size_t n, const float *d, float scale, float *dw)
{
    struct slice slice;
    size_t share, end = first + n;
    uint64_t left;

    make_slice(p, at->order + first, n, &slice);
    share = n / ((size_t)__builtin_popcountll(slice.any) + 1) + 1;
    for (left = slice.any; left != 0; left &= left - 1, first += share) {
        fetch_soon(p, at, first, first + share < end ? first + share : end);
        add_tile(p, &slice, __builtin_ctzll(left), d, scale, dw);
    }
}

/* Adds the gradients of the biases. Returns false if a number in d, or a sum, is not finite. */
static bool add_bias(const float *d, size_t n, float scale, float *db)
{
    vb_v8 first = {0};
    vb_v4 last = {0};
    size_t i;

    for (i = 0; i < n; i++, d += TEN) {
        first += vb_v8_load(d);
        last += vb_v4_load(d + 6);
    }
    vb_v8_store(db, vb_v8_load(db) + first * scale);
    vb_v2_store(db + 8, vb_v2_load(db + 8) + __builtin_shufflevector(last, last, 2, 3) * scale);
    last += __builtin_shufflevector(first, first, 0, 1, 2, 3) +
            __builtin_shufflevector(first, first, 4, 5, 6, 7);
    return all_zero(last * 0);
}

void vb_tiles_ten_add(const struct vb_k_pixels *p, const struct vb_k_picked *at, const float *d,
                      float scale, float *dw, float *db)
{
    bool finite = add_bias(d, at->n, scale, db);
    size_t first, n;

    for (first = 0; first < at->n && !finite; first++)
        vb_tiles_add_row(p, at->order[first], d + first * TEN, scale, TEN, dw);
    for (first = 0; first < at->n && finite; first += n) {
        n = at->n - first < SLICE ? at->n - first : SLICE;
        add_slice(p, at, first, n, d + first * TEN, scale, dw);
    }
}

#endif
