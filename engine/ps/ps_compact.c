/* SPDX-License-Identifier: MIT
 *
 * Finds the distinct keys of a batch, and replaces each entry by the place of its key among them.
 * Each entry becomes a 64-bit word, which has the key in the upper half and the number of the entry
 * in the lower half. After a radix sort by key, adjacent words with the same key get the same
 * place. The lower half of a word tells which entry has this place.
 */
#include "engine/ps/ps.h"

#include <stdlib.h>

struct ps_compact {
    int bits;                /* number of bits of a key */
    uint64_t *words, *spare; /* (max_nnz) each */
    uint32_t *keys;          /* (max_nnz + 1) */
    uint32_t *places;        /* (max_nnz) */
};

vb_status vb_ps_compact_create(uint64_t features, size_t max_nnz, struct ps_compact **compact_p)
{
    struct ps_compact *c = calloc(1, sizeof(*c));

    if (c == NULL)
        return vb_err_sys("calloc");
    c->bits = vb_bits_below(features);
    c->words = vb_alloc_aligned(max_nnz * sizeof(*c->words));
    c->spare = vb_alloc_aligned(max_nnz * sizeof(*c->spare));
    c->keys = vb_alloc_aligned((max_nnz + 1) * sizeof(*c->keys)); /* the caller may add a key */
    c->places = vb_alloc_aligned(max_nnz * sizeof(*c->places));
    if (c->words == NULL || c->spare == NULL || c->keys == NULL || c->places == NULL) {
        vb_ps_compact_destroy(c);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for batches of %zu entries", max_nnz);
    }
    *compact_p = c;
    return VB_OK;
}

void vb_ps_compact_destroy(struct ps_compact *c)
{
    if (c == NULL)
        return;
    free(c->words);
    free(c->spare);
    free(c->keys);
    free(c->places);
    free(c);
}

void vb_ps_compact_make(struct ps_compact *c, const uint32_t *index, size_t n, uint32_t **keys_p,
                        size_t *n_keys_p, const uint32_t **places_p)
{
    const uint64_t *sorted;
    size_t i, at = 0;
    uint32_t key;

    for (i = 0; i < n; i++)
        c->words[i] = (uint64_t)index[i] << 32 | i;
    sorted = vb_sort_words(c->words, c->spare, n, c->bits);
    for (i = 0; i < n; i++) { /* this loop has no branch, because a branch could not be predicted */
        key = (uint32_t)(sorted[i] >> 32);
        at += i > 0 && key != (uint32_t)(sorted[i - 1] >> 32);
        c->keys[at] = key;
        c->places[(uint32_t)sorted[i]] = (uint32_t)at;
    }
    *keys_p = c->keys;
    *n_keys_p = n > 0 ? at + 1 : 0;
    *places_p = c->places;
}
