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

#define DIGIT_BITS 9
#define DIGITS ((size_t)1 << DIGIT_BITS)
#define PASSES_MAX 4

static size_t digit(uint64_t word, int pass)
{
    return (size_t)(word >> (32 + pass * DIGIT_BITS)) & (DIGITS - 1);
}

/* How many words have each digit, then where the first of them goes. */
static void count(const uint64_t *words, size_t n, int passes, uint32_t counts[PASSES_MAX][DIGITS])
{
    uint32_t at, many;
    size_t i;
    int p;

    memset(counts, 0, PASSES_MAX * sizeof(*counts));
    for (i = 0; i < n; i++)
        for (p = 0; p < passes; p++)
            counts[p][digit(words[i], p)]++;
    for (p = 0; p < passes; p++) {
        for (at = 0, i = 0; i < DIGITS; i++) {
            many = counts[p][i];
            counts[p][i] = at;
            at += many;
        }
    }
}

const uint64_t *vb_sort_words(uint64_t *words, uint64_t *spare, size_t n, int bits)
{
    int p, passes = bits > 0 ? (bits + DIGIT_BITS - 1) / DIGIT_BITS : 1;
    uint64_t *from = words, *to = spare, *other;
    uint32_t counts[PASSES_MAX][DIGITS];
    size_t i;

    count(words, n, passes, counts);
    for (p = 0; p < passes; p++) {
        for (i = 0; i < n; i++)
            to[counts[p][digit(from[i], p)]++] = from[i];
        other = from;
        from = to;
        to = other;
    }
    return from;
}

int vb_bits_below(uint64_t n)
{
    int bits = 0;

    while (bits < 64 && n > 0 && (n - 1) >> bits != 0)
        bits++;
    return bits;
}
