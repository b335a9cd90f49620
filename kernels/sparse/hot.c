/* SPDX-License-Identifier: MIT
 *
 * Handles the *hot* features, which occur in nearly every batch. If every worker wrote to the hot
 * weights with every row, their cache lines would move between the cores all the time. So each
 * worker has its own copy and exchanges it once for each batch: it adds its changes to the shared
 * weights, and fetches the changes of the others.
 */
#include "kernels/sparse/shared_priv.h"

#include <stdlib.h>

/* With twice as many places, less of a batch would fit into the first-level cache. */
#define PLACES_BITS 11
#define PLACES (1 << PLACES_BITS)
#define LEARN 32 /* number of batches to learn from */
#define AHEAD 32 /* number of features that are prefetched ahead */

struct vb_k_hot {
    uint32_t key[PLACES]; /* the feature at each place */
    float own[PLACES];
    float before[PLACES]; /* values of own right after the last exchange */
    uint16_t used[PLACES];
    int n_used; /* number of places with hot features */
    int batches;
    uint32_t may_be[PLACES], votes[PLACES]; /* used until the hot features are known */
    float **at;                             /* (entries): the weight of each entry of a batch */
};

vb_status vb_k_hot_create(size_t entries, struct vb_k_hot **hot_p)
{
    struct vb_k_hot *hot = vb_alloc_aligned(sizeof(*hot));

    if (hot != NULL)
        hot->at = vb_alloc_aligned(entries * sizeof(*hot->at));
    if (hot == NULL || hot->at == NULL) {
        free(hot);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a batch of %zu entries", entries);
    }
    memset(hot->key, 0xff, sizeof(hot->key)); /* no feature: all indices are smaller */
    *hot_p = hot;
    return VB_OK;
}

void vb_k_hot_destroy(struct vb_k_hot *hot)
{
    if (hot != NULL)
        free(hot->at);
    free(hot);
}

int vb_k_hot_count(const struct vb_k_hot *hot)
{
    return hot->n_used;
}

/* Ends the learning. A feature is hot if its count is at least the number of batches. */
static void settle(struct vb_k_hot *hot, const float *w)
{
    int i;

    for (i = 0; i < PLACES; i++) {
        if (hot->votes[i] < LEARN)
            continue;
        hot->key[i] = hot->may_be[i];
        hot->own[i] = hot->before[i] = shared_load(w + hot->key[i]);
        hot->used[hot->n_used++] = (uint16_t)i;
    }
}

void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m, const float *w)
{
    size_t at;
    uint64_t j;

    if (hot->batches == LEARN)
        return;
    for (j = 0; j < m->nnz; j++) { /* of features that share a place, the most frequent stays */
        at = csr_hash(m->index[j], PLACES_BITS);
        if (hot->may_be[at] == m->index[j] || hot->votes[at] == 0) {
            hot->may_be[at] = m->index[j];
            hot->votes[at]++;
        } else {
            hot->votes[at]--;
        }
    }
    if (++hot->batches == LEARN)
        settle(hot, w);
}

/* Locates all weights of a row before the first one is used, so that no load waits for a store to
 * the same address. There is no branch, because whether a feature is hot cannot be predicted. */
void vb_k_hot_find(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float *w)
{
    float *const weights[2] = {w, hot->own};
    uint64_t j, end;

    csr_bounds(m, row, &j, &end);
    for (; j < end; j++) {
        uint32_t key = m->index[j], place = csr_hash(key, PLACES_BITS),
                 is_hot = hot->key[place] == key;

        hot->at[j] = weights[is_hot] + vb_choose(is_hot, place, key);
        __builtin_prefetch(hot->at[j], 1);
    }
}

float vb_k_hot_forward(const struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row)
{
    const float *value = m->value;
    float *const *at = hot->at;
    uint64_t j, end;
    float sum = 0;

    csr_bounds(m, row, &j, &end);
    for (; j < end; j++)
        sum += shared_load(at[j]) * (value != NULL ? value[j] : 1);
    return sum;
}

void vb_k_hot_add(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float by)
{
    const float *value = m->value;
    float *const *at = hot->at;
    uint64_t j, end;

    csr_bounds(m, row, &j, &end);
    for (; j < end; j++)
        shared_store(at[j], shared_load(at[j]) + by * (value != NULL ? value[j] : 1));
}

void vb_k_hot_exchange(struct vb_k_hot *hot, float *w)
{
    size_t place;
    float *at;
    int i;

    for (i = 0; i < hot->n_used; i++) {
        if (i + AHEAD < hot->n_used)
            __builtin_prefetch(w + hot->key[hot->used[i + AHEAD]], 1);
        place = hot->used[i];
        at = w + hot->key[place];
        hot->own[place] = shared_load(at) + (hot->own[place] - hot->before[place]);
        hot->before[place] = hot->own[place];
        shared_store(at, hot->own[place]);
    }
}
