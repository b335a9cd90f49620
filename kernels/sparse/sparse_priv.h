/* SPDX-License-Identifier: MIT
 *
 * The weights of a sparse model in memory, shared by sparse_update.c and sparse_saved.c.
 */
#ifndef VB_KERNELS_SPARSE_SPARSE_PRIV_H
#define VB_KERNELS_SPARSE_SPARSE_PRIV_H

#include "kernels/sparse/aside_priv.h"
#include "kernels/sparse/lazy_priv.h"

#include <string.h>

/* The 32-bit words of a feature's state. In memory they are in this order. */
struct state {
    float s, t;
    uint32_t step; /* number of steps already applied to the feature */
};

/* What a feature has. Constants wherever a function with such an argument is inlined in a loop. */
struct shape {
    enum vb_k_rule_kind kind;
    int floats, words; /* number of floats, and of all 32-bit words, in a feature's state */
};

struct vb_k_sparse {
    struct vb_k_rule rule;
    uint64_t features;
    struct shape has;
    struct lazy *lazy; /* NULL: features without a gradient do not change */
    struct vb_mem weights, states;
    float *w;        /* (features) */
    uint32_t *state; /* (features, words) */

    /* What saving beside updates needs (sparse_saved.c); NULL: nothing is saved so. */
    struct aside *aside;
    struct lazy *lazy_then; /* the steps when the model was held */
};

#define SPARSE_INLINE static inline __attribute__((always_inline))

/* Returns the state of a feature from its words. */
SPARSE_INLINE struct state sparse_state(struct shape r, const uint32_t *at)
{
    struct state x = {0};

    if (r.floats > 0)
        memcpy(&x.s, at, sizeof(x.s));
    if (r.floats > 1)
        memcpy(&x.t, at + 1, sizeof(x.t));
    if (r.words > r.floats)
        x.step = at[r.floats];
    return x;
}

SPARSE_INLINE void sparse_put_state(struct shape r, uint32_t *at, struct state x)
{
    if (r.floats > 0)
        memcpy(at, &x.s, sizeof(x.s));
    if (r.floats > 1)
        memcpy(at + 1, &x.t, sizeof(x.t));
    if (r.words > r.floats)
        at[r.floats] = x.step;
}

/* Brings a weight and its momentum up to the last complete step. lazy may be NULL. */
static inline void sparse_catch_up(const struct lazy *lazy, float *w, struct state *x)
{
    struct lazy_map m;
    double was = (double)*w, v = (double)x->s;

    if (lazy == NULL || x->step >= vb_k_lazy_steps(lazy))
        return;
    m = vb_k_lazy_since(lazy, x->step);
    x->step = vb_k_lazy_steps(lazy);
    if (was == 0 && v == 0)
        return;
    *w = (float)(m.a * was + m.b * v);
    x->s = (float)(m.c * was + m.d * v);
}

#endif
