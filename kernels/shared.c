/* SPDX-License-Identifier: MIT
 *
 * Weights that several threads or processes change at once, without a lock. Every access is a
 * relaxed atomic one, which costs no more than a plain one; but a read and the write that follows
 * are two, so updates may get lost. Loops are not vectors for that.
 */
#include "kernels/update_priv.h"

#include <string.h>

#define AHEAD 16 /* entries that are prefetched */

static inline float load(const float *at)
{
    float v;

    __atomic_load(at, &v, __ATOMIC_RELAXED);
    return v;
}

static inline void store(float *at, float v)
{
    __atomic_store(at, &v, __ATOMIC_RELAXED);
}

/* Two at a time where they lie in one word. */
void vb_k_shared_read(const float *from, size_t n, float *to)
{
    size_t i = 0;
    uint64_t two;

    for (; i + 2 <= n && (uintptr_t)from % sizeof(two) == 0; i += 2) {
        two = __atomic_load_n((const uint64_t *)(const void *)(from + i), __ATOMIC_RELAXED);
        memcpy(to + i, &two, sizeof(two));
    }
    for (; i < n; i++)
        to[i] = load(from + i);
}

void vb_k_shared_write(const float *from, size_t n, float *to)
{
    size_t i = 0;
    uint64_t two;

    for (; i + 2 <= n && (uintptr_t)to % sizeof(two) == 0; i += 2) {
        memcpy(&two, from + i, sizeof(two));
        __atomic_store_n((uint64_t *)(void *)(to + i), two, __ATOMIC_RELAXED);
    }
    for (; i < n; i++)
        store(to + i, from[i]);
}

void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values)
{
    size_t i;

    for (i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(w + keys[i + AHEAD]);
        values[i] = load(w + keys[i]);
    }
}

/* ---- update rules ---------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) void
update_at(const struct vb_k_rule *rule, float rate, float grad, float *w, float *s, float *t)
{
    struct update_one p = {.w = load(w)};

    if (s != NULL)
        p.s = load(s);
    if (t != NULL)
        p.t = load(t);
    p = update_one(rule->kind, rule, rate, grad + rule->decay * p.w, p);
    store(w, p.w);
    if (s != NULL)
        store(s, p.s);
    if (t != NULL)
        store(t, p.t);
}

void vb_k_shared_update(const struct vb_k_rule *rule, const struct vb_k_update *u)
{
    int states = vb_k_rule_states(rule->kind);
    size_t i;

    for (i = 0; i < u->n; i++)
        update_at(rule, u->rate, u->scale * u->grads[i], u->params_out + i,
                  states > 0 ? u->state_out + i : NULL,
                  states > 1 ? u->state_out + u->n + i : NULL);
}

void vb_k_shared_update_keys(const struct vb_k_rule *rule, float *w, float *state,
                             const uint32_t *keys, const float *values, size_t n, float scale,
                             float rate)
{
    size_t i, words = (size_t)vb_k_rule_states(rule->kind);
    float *s;

    for (i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            __builtin_prefetch(w + keys[i + AHEAD], 1);
            if (words > 0)
                __builtin_prefetch(state + keys[i + AHEAD] * words, 1);
        }
        s = words > 0 ? state + keys[i] * words : NULL;
        update_at(rule, rate, scale * values[i], w + keys[i], s, words > 1 ? s + 1 : NULL);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void bounds(const struct vb_k_csr *m, size_t i, uint64_t *first_p, uint64_t *end_p)
{
    size_t r = m->rows != NULL ? m->rows[i] : i;

    *first_p = m->offset[r];
    *end_p = m->offset[r + 1];
}

void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
    uint64_t j, end;
    size_t i;
    float sum;

    for (i = 0; i < m->n; i++) {
        bounds(m, i, &j, &end);
        for (sum = 0; j < end; j++) {
            if (j + 2 * AHEAD < m->nnz) /* of this row or one behind it */
                __builtin_prefetch(w + m->index[j + 2 * AHEAD]);
            sum += load(w + m->index[j]) * (m->value != NULL ? m->value[j] : 1);
        }
        logits[i] = sum + bias;
    }
}

/* ---- hot features ---------------------------------------------------------------------------- */

#define LEARN 32        /* batches */
#define NONE UINT32_MAX /* no feature: there are fewer */

static inline size_t place_of(uint32_t key)
{
    return key * 0x9e3779b1u >> 20; /* 12 bits: VB_K_HOT */
}

void vb_k_hot_init(struct vb_k_hot *hot)
{
    memset(hot, 0, sizeof(*hot));
    memset(hot->key, 0xff, sizeof(hot->key)); /* NONE */
}

/* Of the features that share a place the one that comes most often stays: others only count it
 * down. */
static void vote(struct vb_k_hot *hot, uint32_t key)
{
    size_t at = place_of(key);

    if (hot->may_be[at] == key || hot->votes[at] == 0) {
        hot->may_be[at] = key;
        hot->votes[at]++;
    } else {
        hot->votes[at]--;
    }
}

/* Hot is what has come once a batch or more. */
static void settle(struct vb_k_hot *hot)
{
    int i;

    for (i = 0; i < VB_K_HOT; i++) {
        if (hot->votes[i] >= LEARN) {
            hot->key[i] = hot->may_be[i];
            hot->used[hot->n_used++] = (uint16_t)i;
        }
    }
}

void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m)
{
    uint64_t j, end;
    size_t i;

    if (hot->batches == LEARN)
        return;
    for (i = 0; i < m->n; i++) {
        bounds(m, i, &j, &end);
        for (; j < end; j++)
            vote(hot, m->index[j]);
    }
    if (++hot->batches == LEARN)
        settle(hot);
}

#define BLOCK 64 /* entries whose places are known before anything is added */

/* Where to add for a feature: in which of two arrays, and at which place. */
struct where {
    uint32_t is_hot, at;
};

/* Whether a feature is hot cannot be foretold, so there is no branch. */
static void find_places(const struct vb_k_hot *hot, const uint32_t *keys, size_t n,
                        struct where where[BLOCK])
{
    size_t i;

    for (i = 0; i < n; i++) {
        uint32_t place = (uint32_t)place_of(keys[i]), is_hot = hot->key[place] == keys[i];

        where[i].is_hot = is_hot;
        where[i].at = keys[i] ^ ((keys[i] ^ place) & (0 - is_hot));
    }
}

/* A load waits for stores before it whose places are not known, so these are found first. */
static void add_block(struct vb_k_hot *hot, float *w, const uint32_t *keys, const float *values,
                      size_t n, float by)
{
    float *const arrays[2] = {w, hot->sum}, *to;
    struct where where[BLOCK];
    size_t i;

    find_places(hot, keys, n, where);
    for (i = 0; i < n; i++) {
        to = arrays[where[i].is_hot] + where[i].at;
        store(to, load(to) + by * (values != NULL ? values[i] : 1));
    }
}

static void add_hot(struct vb_k_hot *hot, float *w)
{
    int i;

    for (i = 0; i < hot->n_used; i++) {
        float *sum = &hot->sum[hot->used[i]], *at = w + hot->key[hot->used[i]];

        if (i + AHEAD < hot->n_used)
            __builtin_prefetch(w + hot->key[hot->used[i + AHEAD]], 1);
        store(at, load(at) + *sum);
        *sum = 0;
    }
}

static void add_row(const struct vb_k_csr *m, uint64_t j, uint64_t end, float by,
                    struct vb_k_hot *hot, float *w)
{
    size_t n;

    for (; j < end; j += n) {
        n = end - j < BLOCK ? (size_t)(end - j) : BLOCK;
        add_block(hot, w, m->index + j, m->value != NULL ? m->value + j : NULL, n, by);
    }
}

void vb_k_shared_add(const struct vb_k_csr *m, const float *d, float scale, struct vb_k_hot *hot,
                     float *w)
{
    uint64_t j, end;
    size_t i;

    for (i = 0; i < m->n; i++) {
        bounds(m, i, &j, &end);
        add_row(m, j, end, scale * d[i], hot, w);
    }
    add_hot(hot, w);
}
