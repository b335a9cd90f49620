/* SPDX-License-Identifier: MIT
 *
 * The distinct keys of a batch, and its entries by their places among them: then all that forward
 * and backward touch is a few thousand numbers side by side, whatever the number of features.
 *
 * Entries become words, the key above the entry's number. After a radix sort by the key neighbours
 * of the same key have the same place, and the number says whose it is.
 */
#include "engine/ps_priv.h"

#include <stdlib.h>
#include <string.h>

#define DIGIT_BITS 9
#define DIGITS ((size_t)1 << DIGIT_BITS)
#define PASSES_MAX 4

struct ps_compact {
    int passes;
    uint64_t *words, *spare; /* (max_nnz) each, likewise below */
    uint32_t *keys, *places;
    uint32_t counts[PASSES_MAX][DIGITS];
};

vb_status ps_compact_create(uint64_t features, size_t max_nnz, struct ps_compact **compact_p)
{
    struct ps_compact *c = calloc(1, sizeof(*c));
    int bits = 0;

    if (c == NULL)
        return vb_err_sys("calloc");
    while (bits < 32 && (features - 1) >> bits != 0)
        bits++;
    c->passes = bits == 0 ? 1 : (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    c->words = vb_alloc_aligned(max_nnz * sizeof(*c->words));
    c->spare = vb_alloc_aligned(max_nnz * sizeof(*c->spare));
    c->keys = vb_alloc_aligned((max_nnz + 1) * sizeof(*c->keys)); /* room for one more */
    c->places = vb_alloc_aligned(max_nnz * sizeof(*c->places));
    if (c->words == NULL || c->spare == NULL || c->keys == NULL || c->places == NULL) {
        ps_compact_destroy(c);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for batches of %zu entries", max_nnz);
    }
    *compact_p = c;
    return VB_OK;
}

void ps_compact_destroy(struct ps_compact *c)
{
    if (c == NULL)
        return;
    free(c->words);
    free(c->spare);
    free(c->keys);
    free(c->places);
    free(c);
}

static size_t digit(uint64_t word, int pass)
{
    return (size_t)(word >> (32 + pass * DIGIT_BITS)) & (DIGITS - 1);
}

/* How many words have each digit, then where the first of them goes. */
static void count(struct ps_compact *c, size_t n)
{
    uint32_t at, many;
    size_t i;
    int p;

    memset(c->counts, 0, sizeof(c->counts));
    for (i = 0; i < n; i++)
        for (p = 0; p < c->passes; p++)
            c->counts[p][digit(c->words[i], p)]++;
    for (p = 0; p < c->passes; p++) {
        for (at = 0, i = 0; i < DIGITS; i++) {
            many = c->counts[p][i];
            c->counts[p][i] = at;
            at += many;
        }
    }
}

static const uint64_t *sort(struct ps_compact *c, size_t n)
{
    uint64_t *from = c->words, *to = c->spare, *other;
    size_t i;
    int p;

    count(c, n);
    for (p = 0; p < c->passes; p++) {
        for (i = 0; i < n; i++)
            to[c->counts[p][digit(from[i], p)]++] = from[i];
        other = from;
        from = to;
        to = other;
    }
    return from;
}

void ps_compact_make(struct ps_compact *c, const uint32_t *index, size_t n, uint32_t **keys_p,
                     size_t *n_keys_p, const uint32_t **places_p)
{
    const uint64_t *sorted;
    size_t i, at = 0;
    uint32_t key;

    for (i = 0; i < n; i++)
        c->words[i] = (uint64_t)index[i] << 32 | i;
    sorted = sort(c, n);
    for (i = 0; i < n; i++) { /* no branch: whether the next is the same cannot be foreseen */
        key = (uint32_t)(sorted[i] >> 32);
        at += i > 0 && key != (uint32_t)(sorted[i - 1] >> 32);
        c->keys[at] = key;
        c->places[(uint32_t)sorted[i]] = (uint32_t)at;
    }
    *keys_p = c->keys;
    *n_keys_p = n > 0 ? at + 1 : 0;
    *places_p = c->places;
}
