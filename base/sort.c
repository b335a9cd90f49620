/* SPDX-License-Identifier: MIT */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void vb_sort(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_value);
}

/* ---- words by their upper half --------------------------------------------------------------- */

#define PASSES_MAX 3
/* three digits have 32 bits or more; the tables of two passes fit into the L1 cache */
#define DIGIT_BITS_MAX 11
/* used if this needs no more passes, because shorter tables are faster to clear and to sum */
#define DIGIT_BITS_FEW 9
#define DIGITS_MAX ((size_t)1 << DIGIT_BITS_MAX)
#define FEW 64 /* up to this number of words are sorted by insertion */

#define ALWAYS static inline __attribute__((always_inline))

/* The table of one pass. For each digit, it has the position of the next word with that digit.
 * The functions below are inlined, so that passes and bits are constants in them. */
typedef uint32_t radix_table[DIGITS_MAX];

ALWAYS size_t digit_of(uint64_t word, int pass, int bits)
{
    return (size_t)(word >> (32 + pass * bits)) & (((size_t)1 << bits) - 1);
}

/* Counts the words with each digit, then turns the counts into positions in the sorted array. */
ALWAYS void radix_count(radix_table *at, const uint64_t *words, size_t n, int passes, int bits)
{
    size_t digits = (size_t)1 << bits, i;
    uint32_t next, many;
    int p;

    for (p = 0; p < passes; p++)
        memset(at[p], 0, digits * sizeof(at[p][0]));
    for (i = 0; i < n; i++) {
        at[0][digit_of(words[i], 0, bits)]++;
        if (passes > 1)
            at[1][digit_of(words[i], 1, bits)]++;
        if (passes > 2)
            at[2][digit_of(words[i], 2, bits)]++;
    }
    for (p = 0; p < passes; p++) {
        for (next = 0, i = 0; i < digits; i++) {
            many = at[p][i];
            at[p][i] = next;
            next += many;
        }
    }
}

ALWAYS void radix_pass(uint32_t *at, const uint64_t *from, size_t n, int pass, int bits,
                       uint64_t *to)
{
    size_t i;

    for (i = 0; i < n; i++)
        to[at[digit_of(from[i], pass, bits)]++] = from[i];
}

ALWAYS uint64_t *radix_sort(uint64_t *words, uint64_t *spare, size_t n, int passes, int bits)
{
    radix_table at[PASSES_MAX];

    radix_count(at, words, n, passes, bits);
    radix_pass(at[0], words, n, 0, bits, spare);
    if (passes == 1)
        return spare;
    radix_pass(at[1], spare, n, 1, bits, words);
    if (passes == 2)
        return words;
    radix_pass(at[2], words, n, 2, bits, spare);
    return spare;
}

/* Sorts a few words by insertion, because a radix sort would take longer to clear its tables.
 * The features of a row of data are already sorted, or nearly sorted. */
static void insert(uint64_t *words, size_t n)
{
    uint64_t word;
    size_t i, j;

    for (i = 1; i < n; i++) {
        word = words[i];
        for (j = i; j > 0 && words[j - 1] >> 32 > word >> 32; j--)
            words[j] = words[j - 1];
        words[j] = word;
    }
}

uint64_t *vb_sort_words(uint64_t *words, uint64_t *spare, size_t n, int bits)
{
    if (n <= FEW) {
        insert(words, n);
        return words;
    }
    if (bits <= DIGIT_BITS_FEW)
        return radix_sort(words, spare, n, 1, DIGIT_BITS_FEW);
    if (bits <= 2 * DIGIT_BITS_FEW)
        return radix_sort(words, spare, n, 2, DIGIT_BITS_FEW);
    if (bits <= 2 * DIGIT_BITS_MAX)
        return radix_sort(words, spare, n, 2, DIGIT_BITS_MAX);
    if (bits <= 3 * DIGIT_BITS_FEW)
        return radix_sort(words, spare, n, 3, DIGIT_BITS_FEW);
    return radix_sort(words, spare, n, 3, DIGIT_BITS_MAX);
}

int vb_bits_below(uint64_t n)
{
    int bits = 0;

    while (bits < 64 && n > 0 && (n - 1) >> bits != 0)
        bits++;
    return bits;
}
