/* SPDX-License-Identifier: MIT
 *
 * The gradient of a batch of sparse rows as a list: keys in ascending order, each once, its values
 * added up in the order of the rows. What the sparse allreduce of net/ takes.
 *
 * Entries become words, the key above the bits of the value. A radix sort by the key keeps the
 * order of equal ones; then neighbours are added up. The other
 * way, a hash table that adds up first, must sort what is left all the same; it was no faster where
 * both were tried on rows from skewed fields. So there is only the sort.
 */
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

struct vb_k_grad {
    size_t max_nnz;
    int bits;                /* of a key */
    uint64_t *words, *spare; /* (max_nnz) each */
    uint32_t *keys;          /* (max_nnz): the list */
    float *values;
};

vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p)
{
    struct vb_k_grad *g;

    if (features == 0 || features > (uint64_t)1 << 32 || max_nnz > UINT32_MAX)
        return vb_err(VB_ERR_USAGE, "a gradient of %zu entries of %llu features is not possible",
                      max_nnz, (unsigned long long)features);
    g = calloc(1, sizeof(*g));
    if (g == NULL)
        return vb_err_sys("calloc");
    g->max_nnz = max_nnz;
    g->bits = vb_bits_below(features);
    g->words = vb_alloc_aligned(max_nnz * sizeof(*g->words));
    g->spare = vb_alloc_aligned(max_nnz * sizeof(*g->spare));
    g->keys = vb_alloc_aligned(max_nnz * sizeof(*g->keys));
    g->values = vb_alloc_aligned(max_nnz * sizeof(*g->values));
    if (g->words == NULL || g->spare == NULL || g->keys == NULL || g->values == NULL) {
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
    free(grad->words);
    free(grad->spare);
    free(grad->keys);
    free(grad->values);
    free(grad);
}

static uint64_t word_of(uint32_t key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint64_t)key << 32 | bits;
}

static float value_of(uint64_t word)
{
    uint32_t bits = (uint32_t)word;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The entries of the batch as words; VB_ERR_USAGE if there are more than room for them. */
static vb_status pack(struct vb_k_grad *g, const struct vb_k_csr *m, const float *d, size_t *n_p)
{
    size_t i, r, n = 0;
    uint64_t j, end;

    for (i = 0; i < m->n; i++) {
        r = m->rows != NULL ? m->rows[i] : i;
        end = m->offset[r + 1];
        if (end - m->offset[r] > g->max_nnz - n)
            return vb_err(VB_ERR_USAGE, "the batch has more than %zu entries", g->max_nnz);
        if (m->value != NULL)
            for (j = m->offset[r]; j < end; j++)
                g->words[n++] = word_of(m->index[j], d[i] * m->value[j]);
        else
            for (j = m->offset[r]; j < end; j++)
                g->words[n++] = word_of(m->index[j], d[i]);
    }
    *n_p = n;
    return VB_OK;
}

/* Adds up neighbours of the same key. Whether the next one is of the same key cannot be foreseen,
 * so there is a choice and no branch; what is overwritten was not complete. */
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
    *n_p =
        add_up(vb_sort_words(grad->words, grad->spare, n, grad->bits), n, grad->keys, grad->values);
    *keys_p = grad->keys;
    *values_p = grad->values;
    return VB_OK;
}
