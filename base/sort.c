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
#define DIGIT_BITS_MAX 11 /* three of them are 32 bits; two tables of 2048 fit the first cache */
#define DIGITS_MAX ((size_t)1 << DIGIT_BITS_MAX)
#define FEW 64 /* words */

struct radix {
    int passes, digit_bits;
    uint32_t at[PASSES_MAX][DIGITS_MAX]; /* of each digit: where the next word with it goes */
};

static size_t digits(const struct radix *r)
{
    return (size_t)1 << r->digit_bits;
}

static size_t digit_of(const struct radix *r, int pass, uint64_t word)
{
    return (size_t)(word >> (32 + pass * r->digit_bits)) & (digits(r) - 1);
}

/* As few passes as possible, with digits of the same length: 12 bits are 6 and 6, not 11 and 1. */
static void radix_init(struct radix *r, int bits)
{
    int p;

    if (bits < 1)
        bits = 1;
    r->passes = (bits + DIGIT_BITS_MAX - 1) / DIGIT_BITS_MAX;
    r->digit_bits = (bits + r->passes - 1) / r->passes;
    for (p = 0; p < r->passes; p++)
        memset(r->at[p], 0, digits(r) * sizeof(r->at[p][0]));
}

/* How many words have each digit, then where the first of them goes. */
static void radix_count(struct radix *r, const uint64_t *words, size_t n)
{
    uint32_t at, many;
    size_t i;
    int p;

    for (i = 0; i < n; i++)
        for (p = 0; p < r->passes; p++)
            r->at[p][digit_of(r, p, words[i])]++;
    for (p = 0; p < r->passes; p++) {
        for (at = 0, i = 0; i < digits(r); i++) {
            many = r->at[p][i];
            r->at[p][i] = at;
            at += many;
        }
    }
}

/* The tables alone would take longer. Rows of data have their features in order, or nearly. */
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
    uint64_t *from = words, *to = spare, *other;
    struct radix r;
    size_t i;
    int p;

    if (n <= FEW) {
        insert(words, n);
        return words;
    }
    radix_init(&r, bits);
    radix_count(&r, words, n);
    for (p = 0; p < r.passes; p++) {
        for (i = 0; i < n; i++)
            to[r.at[p][digit_of(&r, p, from[i])]++] = from[i];
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
