/* SPDX-License-Identifier: MIT
 *
 * Builds the gradient of a batch of sparse rows as a list, for the sparse allreduce of net/. Each
 * entry becomes a 64-bit word, with the key above the bits of the value. A radix sort by key keeps
 * the order of equal keys; then neighbours with the same key are added.
 *
 * Sorting is the most expensive part, so entries are combined before, where this is cheap. The
 * first key that falls into a *slot* of a small table owns it for the batch, and all entries of
 * this key become one word. Other keys get one word for each entry. Either way the values of a key
 * are added in the order of the rows, and no branch depends on the data. A hash table that finds
 * every key was not faster than sorting everything.
 */
#include "kernels/sparse/csr_rows_priv.h"

#include <stdlib.h>

#define SLOTS_BITS 12
/* The slots fit into the first-level cache, together with the words of some hundred rows. */
#define SLOTS ((size_t)1 << SLOTS_BITS)
/* With fewer rows, slots are not used, because clearing them would take too long. */
#define FEW_ROWS 16
#define NOTHING 0x80000000u /* -0.0: adding it changes no bits */
#define NO_KEY UINT32_MAX

/* The order of the two halves of a word in memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { VALUE, KEY };
#else
enum { KEY, VALUE };
#endif

struct vb_k_grad {
    size_t max_nnz;
    int bits;        /* number of bits in a key */
    bool all_keys;   /* every 32-bit number is a valid key, so NO_KEY is one too */
    uint32_t *slots; /* (SLOTS): index of the word that owns the slot; 0: none */
    uint64_t *words; /* (max_nnz + 2): the words, from index 1 on */
    uint64_t *spare; /* (max_nnz): the other buffer of the sort */
    uint32_t *keys;  /* (max_nnz): the list */
    float *values;
};

vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p)
{
    struct vb_k_grad *g;

    if (features == 0 || features > (uint64_t)1 << 32 || max_nnz > UINT32_MAX)
        return vb_err(VB_ERR_USAGE, "a gradient of %zu entries and %llu features is not supported",
                      max_nnz, (unsigned long long)features);
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return vb_err_sys("calloc");
    g->max_nnz = max_nnz;
    g->bits = vb_bits_below(features);
    g->all_keys = features > NO_KEY;
    g->slots = vb_alloc_aligned(SLOTS * sizeof(*g->slots));
    g->words = vb_alloc_aligned((max_nnz + 2) * sizeof(*g->words));
    g->spare = vb_alloc_aligned(max_nnz * sizeof(*g->spare));
    g->keys = vb_alloc_aligned(max_nnz * sizeof(*g->keys));
    g->values = vb_alloc_aligned(max_nnz * sizeof(*g->values));
    if (g->slots == NULL || g->words == NULL || g->spare == NULL || g->keys == NULL ||
        g->values == NULL) {
        vb_k_grad_destroy(g);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for gradients of %zu entries", max_nnz);
    }
    *grad_p = g;
    return VB_OK;
}

void vb_k_grad_destroy(struct vb_k_grad *grad)
{
    if (grad == NULL)
        return;
    free(grad->slots);
    free(grad->words);
    free(grad->spare);
    free(grad->keys);
    free(grad->values);
    free(grad);
}

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS uint64_t word_of(uint32_t key, float value)
{
    return (uint64_t)key << 32 | vb_float_bits(value);
}

ALWAYS float value_of(uint64_t word)
{
    return vb_bits_float((uint32_t)word);
}

ALWAYS float entry(const struct csr_row *row, float d, size_t j)
{
    return row->value != NULL ? d * row->value[j] : d;
}

/* Writes a word for each entry of a row to words. */
ALWAYS void pack_row(const struct csr_row *row, float d, uint64_t *words)
{
    size_t j;

    for (j = 0; j < row->n; j++)
        words[j] = word_of(row->index[j], entry(row, d, j));
}

/* Loads half a word. It was stored as a half, and a wider load would wait for the store. */
ALWAYS uint32_t half_at(const uint64_t *words, size_t i, size_t which)
{
    uint32_t half;

    memcpy(&half, (const char *)&words[i] + 4 * which, sizeof(half));
    return half;
}

ALWAYS void set_half(uint64_t *words, size_t i, size_t which, uint32_t half)
{
    memcpy((char *)&words[i] + 4 * which, &half, sizeof(half));
}

/* Does the same as pack_row(), but adds an entry to the word that owns the slot, if the word has
 * the same key. Owner 0: none. Word n is the next free one; returns the new n. */
ALWAYS size_t gather_row(const struct csr_row *row, float d, uint32_t *slots, uint64_t *words,
                         size_t n)
{
    uint32_t key, slot, has;
    uint64_t mine, to;
    size_t j;

    for (j = 0; j < row->n; j++) {
        key = row->index[j];
        slot = csr_hash(key, SLOTS_BITS);
        has = slots[slot];
        mine = half_at(words, has, KEY) == key;
        to = vb_choose(mine, has, n);
        slots[slot] = (uint32_t)vb_choose(has != 0, has, n);
        set_half(words, to, KEY, key);
        set_half(words, to, VALUE,
                 vb_float_bits(vb_bits_float(half_at(words, to, VALUE)) + entry(row, d, j)));
        n += 1 - mine;
        set_half(words, n, VALUE, NOTHING);
    }
    return n;
}

/* Turns the entries of the batch into words. Returns VB_ERR_USAGE if they do not fit. */
static vb_status pack(struct vb_k_grad *g, const struct vb_k_csr *m, const float *d, size_t *n_p)
{
    size_t i, n = 1, entries = 0;
    bool few = m->n < FEW_ROWS || g->all_keys;
    struct csr_row row;

    g->words[0] = word_of(NO_KEY, 0);
    set_half(g->words, 1, VALUE, NOTHING);
    if (!few)
        memset(g->slots, 0, SLOTS * sizeof(*g->slots));
    for (i = 0; i < m->n; i++) {
        row = csr_row_at(m, i);
        if (row.n > g->max_nnz - entries)
            return vb_err(VB_ERR_USAGE, "the batch has more than %zu entries", g->max_nnz);
        entries += row.n;
        if (few)
            pack_row(&row, d[i], g->words + n);
        n = few ? n + row.n : gather_row(&row, d[i], g->slots, g->words, n);
    }
    *n_p = n - 1;
    return VB_OK;
}

/* Adds the values of words with the same key. Complete sums overwrite incomplete ones. */
static size_t add_up(const uint64_t *words, size_t n, uint32_t *keys, float *values)
{
    uint32_t key, next;
    size_t i, at = 0;
    float sum, value;
    bool same;

    if (n == 0)
        return 0;
    key = (uint32_t)(words[0] >> 32);
    sum = value_of(words[0]);
    for (i = 1; i < n; i++) {
        next = (uint32_t)(words[i] >> 32);
        value = value_of(words[i]);
        same = next == key;
        keys[at] = key;
        values[at] = sum;
        at += !same;
        sum = same ? sum + value : value;
        key = next;
    }
    keys[at] = key;
    values[at] = sum;
    return at + 1;
}

vb_status vb_k_grad_build(struct vb_k_grad *grad, const struct vb_k_csr *m, const float *d,
                          const uint32_t **keys_p, const float **values_p, size_t *n_p)
{
    size_t n = 0;
    vb_status st;

    st = pack(grad, m, d, &n);
    if (st != VB_OK)
        return st;
    *n_p = add_up(vb_sort_words(grad->words + 1, grad->spare, n, grad->bits), n, grad->keys,
                  grad->values);
    *keys_p = grad->keys;
    *values_p = grad->values;
    return VB_OK;
}
