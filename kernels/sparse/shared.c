/* SPDX-License-Identifier: MIT
 *
 * Reads and updates weights that others change at the same time, without a lock, by relaxed atomic
 * accesses. A read and the following write are two accesses, so updates may be lost.
 */
#include "kernels/sparse/shared_priv.h"
#include "kernels/update/update_inside.h"

#define AHEAD 16 /* number of entries that are prefetched ahead */

/* Reads two numbers at a time if they lie in one 64-bit word. */
void vb_k_shared_read(const float *from, size_t n, float *to)
{
    size_t i = 0;
    uint64_t two;

    for (; i + 2 <= n && (uintptr_t)from % sizeof(two) == 0; i += 2) {
        two = __atomic_load_n((const uint64_t *)(const void *)(from + i), __ATOMIC_RELAXED);
        memcpy(to + i, &two, sizeof(two));
    }
    for (; i < n; i++)
        to[i] = shared_load(from + i);
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
        shared_store(to + i, from[i]);
}

void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values)
{
    size_t i;

    for (i = 0; i < n; i++) {
        if (i + AHEAD < n)
            __builtin_prefetch(w + keys[i + AHEAD]);
        values[i] = shared_load(w + keys[i]);
    }
}

static inline __attribute__((always_inline)) void
update_at(const struct vb_k_rule *rule, float rate, float grad, float *w, float *s, float *t)
{
    struct update_one p = {.w = shared_load(w)};

    if (s != NULL)
        p.s = shared_load(s);
    if (t != NULL)
        p.t = shared_load(t);
    p = update_one(rule->kind, rule, rate, grad + rule->decay * p.w, p);
    shared_store(w, p.w);
    if (s != NULL)
        shared_store(s, p.s);
    if (t != NULL)
        shared_store(t, p.t);
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

void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits)
{
    uint64_t j, end;
    size_t i;
    float sum;

    for (i = 0; i < m->n; i++) {
        csr_bounds(m, i, &j, &end);
        for (sum = 0; j < end; j++) {
            if (j + 2 * AHEAD < m->nnz) /* the entry belongs to this row or a later one */
                __builtin_prefetch(w + m->index[j + 2 * AHEAD]);
            sum += shared_load(w + m->index[j]) * (m->value != NULL ? m->value[j] : 1);
        }
        logits[i] = sum + bias;
    }
}
