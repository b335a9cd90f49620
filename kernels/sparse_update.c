/* SPDX-License-Identifier: MIT
 *
 * The weights of a sparse model and their update. A step costs what its keys cost, never the number
 * of features: momentum and decay come to a feature when it is next named (kernels/lazy.c). Until
 * then what lies in memory is its weight as of the step that touched it last, and a reader applies
 * what has happened since; it writes nothing, so that replicas whose batches differ keep the same
 * bits. Adagrad and FTRL leave a feature without a gradient alone by themselves.
 *
 * State lies beside state: momentum and step, or z and n, in 8 bytes, one cache miss. All memory
 * is mapped at first and becomes real where it is touched.
 */
#include "kernels/lazy_priv.h"
#include "kernels/update_priv.h"

#include <stdlib.h>
#include <string.h>

#define POPULATE_MAX ((size_t)1 << 30)
#define AHEAD 24   /* keys that are prefetched */
#define CHUNK 1024 /* keys that a thread takes at a time */
#define PARALLEL 8192

/* Words of state, in this order. */
struct state {
    float s, t;
    uint32_t step; /* steps that have come to the feature */
};

struct vb_k_sparse {
    struct vb_k_rule rule;
    uint64_t features;
    int floats, words; /* of state a feature: floats, and all of it */
    struct lazy *lazy; /* NULL: features without a gradient stay as they are */
    struct vb_mem weights, states;
    float *w;        /* (features) */
    uint32_t *state; /* (features, words) */
};

/* ---- making ---------------------------------------------------------------------------------- */

static bool is_lazy(const struct vb_k_rule *r)
{
    return r->kind == VB_K_MOMENTUM || r->kind == VB_K_NESTEROV ||
           (r->kind == VB_K_SGD && r->decay != 0);
}

/* Touched now, not by the first steps: zeroing a huge page takes longer than a step. What is very
 * large may never be touched whole. */
static vb_status map(size_t bytes, struct vb_mem *mem)
{
    vb_status st = vb_mem_map_private(bytes, mem);

    return st == VB_OK && bytes <= POPULATE_MAX ? vb_mem_populate(mem) : st;
}

static vb_status map_all(struct vb_k_sparse *s)
{
    vb_status st;

    if (s->w != NULL) /* the caller's */
        return VB_OK;

    st = map((size_t)s->features * sizeof(*s->w), &s->weights);
    if (st != VB_OK)
        return st;
    s->w = s->weights.ptr;
    if (s->words == 0)
        return VB_OK;
    st = map((size_t)s->features * (size_t)s->words * sizeof(*s->state), &s->states);
    if (st == VB_OK)
        s->state = s->states.ptr;
    return st;
}

int vb_k_sparse_words(const struct vb_k_rule *rule)
{
    return vb_k_rule_states(rule->kind) + is_lazy(rule);
}

bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule)
{
    return is_lazy(rule);
}

vb_status vb_k_sparse_create(const struct vb_k_rule *rule, uint64_t features,
                             struct vb_k_sparse **sparse_p)
{
    return vb_k_sparse_create_at(rule, features, NULL, NULL, sparse_p);
}

vb_status vb_k_sparse_create_at(const struct vb_k_rule *rule, uint64_t features, float *weights,
                                void *state, struct vb_k_sparse **sparse_p)
{
    struct vb_k_sparse *s;
    vb_status st;

    if (features == 0 || features > (uint64_t)1 << 32)
        return vb_err(VB_ERR_USAGE, "%llu features: 1 to 2^32 are possible",
                      (unsigned long long)features);
    if (rule->decay != 0 && (rule->kind == VB_K_ADAGRAD || rule->kind == VB_K_FTRL))
        return vb_err(VB_ERR_UNSUPPORTED,
                      "weight decay with adagrad or ftrl needs every feature at every step");
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err_sys("calloc");
    s->rule = *rule;
    s->features = features;
    s->floats = vb_k_rule_states(rule->kind);
    s->words = vb_k_sparse_words(rule);
    s->w = weights;
    s->state = state;
    st = map_all(s);
    if (st == VB_OK && is_lazy(rule))
        st = vb_k_lazy_create(rule, &s->lazy);
    if (st != VB_OK) {
        vb_k_sparse_destroy(s);
        return st;
    }
    *sparse_p = s;
    return VB_OK;
}

void vb_k_sparse_destroy(struct vb_k_sparse *sparse)
{
    if (sparse == NULL)
        return;
    vb_k_lazy_destroy(sparse->lazy);
    vb_mem_unmap(&sparse->states);
    vb_mem_unmap(&sparse->weights);
    free(sparse);
}

float *vb_k_sparse_weights(struct vb_k_sparse *sparse)
{
    return sparse->w;
}

int vb_k_sparse_parts(struct vb_k_sparse *s, struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS])
{
    size_t n = (size_t)s->features;

    vb_k_sparse_settle(s);
    parts[0] = (struct vb_k_sparse_part){"w", false, n, s->w};
    parts[1] = (struct vb_k_sparse_part){"state", true, n * (size_t)s->words, s->state};
    return s->words > 0 ? 2 : 1;
}

/* ---- one feature ----------------------------------------------------------------------------- */

static inline struct state load(const struct vb_k_sparse *s, uint32_t key)
{
    const uint32_t *at = s->state + (size_t)key * (size_t)s->words;
    struct state x = {0};

    if (s->floats > 0)
        memcpy(&x.s, at, sizeof(x.s));
    if (s->floats > 1)
        memcpy(&x.t, at + 1, sizeof(x.t));
    if (s->lazy != NULL)
        x.step = at[s->floats];
    return x;
}

static inline void store(struct vb_k_sparse *s, uint32_t key, struct state x)
{
    uint32_t *at = s->state + (size_t)key * (size_t)s->words;

    if (s->floats > 0)
        memcpy(at, &x.s, sizeof(x.s));
    if (s->floats > 1)
        memcpy(at + 1, &x.t, sizeof(x.t));
    if (s->lazy != NULL)
        at[s->floats] = x.step;
}

/* Brings a weight and its momentum up to the step that is complete. */
static inline void catch_up(const struct vb_k_sparse *s, float *w, struct state *x)
{
    struct lazy_map m;
    double was = (double)*w, v = (double)x->s;

    if (s->lazy == NULL || x->step == vb_k_lazy_steps(s->lazy))
        return;
    m = vb_k_lazy_since(s->lazy, x->step);
    x->step = vb_k_lazy_steps(s->lazy);
    if (was == 0 && v == 0)
        return;
    *w = (float)(m.a * was + m.b * v);
    x->s = (float)(m.c * was + m.d * v);
}

/* ---- reading --------------------------------------------------------------------------------- */

static inline float weight_now(const struct vb_k_sparse *s, uint32_t key)
{
    struct state x = load(s, key);
    float w = s->w[key];

    catch_up(s, &w, &x);
    return w;
}

void vb_k_sparse_read(const struct vb_k_sparse *sparse, uint64_t first, size_t n, float *w)
{
    size_t i;

    if (sparse->lazy == NULL) {
        memcpy(w, sparse->w + first, n * sizeof(*w));
        return;
    }
    for (i = 0; i < n; i++)
        w[i] = weight_now(sparse, (uint32_t)(first + i));
}

static inline __attribute__((always_inline)) void fetch(const struct vb_k_sparse *s, uint32_t key)
{
    __builtin_prefetch(s->w + key, 1);
    if (s->words > 0)
        __builtin_prefetch(s->state + (size_t)key * (size_t)s->words, 1);
}

static float row_now(const struct vb_k_sparse *s, const struct vb_k_csr *m, size_t r)
{
    uint64_t j, end = m->offset[r + 1];
    float sum = 0;

    for (j = m->offset[r]; j < end; j++) {
        if (j + AHEAD < m->nnz) /* of this row or the one behind it */
            fetch(s, m->index[j + AHEAD]);
        sum += weight_now(s, m->index[j]) * (m->value != NULL ? m->value[j] : 1);
    }
    return sum;
}

void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits)
{
    size_t i;

    if (sparse->lazy == NULL) {
        vb_k_csr_forward(m, sparse->w, bias, logits);
        return;
    }
    for (i = 0; i < m->n; i++)
        logits[i] = row_now(sparse, m, m->rows != NULL ? m->rows[i] : i) + bias;
}

/* ---- updating -------------------------------------------------------------------------------- */

struct step {
    const uint32_t *keys;
    const float *values;
    size_t n;
    float scale, rate;
    struct vb_k_undo *undo;
};

static inline __attribute__((always_inline)) void update_keys(enum vb_k_rule_kind kind,
                                                              struct vb_k_sparse *s,
                                                              const struct step *p, size_t first,
                                                              size_t end)
{
    struct update_one one;
    struct state x;
    uint32_t key;
    float w;
    size_t i;

    for (i = first; i < end; i++) {
        if (i + AHEAD < p->n)
            fetch(s, p->keys[i + AHEAD]);
        key = p->keys[i];
        x = load(s, key);
        w = s->w[key];
        if (p->undo != NULL)
            p->undo[i] = (struct vb_k_undo){key, w, x.s, x.t, x.step};
        catch_up(s, &w, &x);
        one = update_one(kind, &s->rule, p->rate, p->scale * p->values[i] + s->rule.decay * w,
                         (struct update_one){w, x.s, x.t});
        s->w[key] = one.w;
        store(s, key, (struct state){one.s, one.t, x.step + 1});
    }
}

static void update_chunk(struct vb_k_sparse *s, const struct step *p, size_t first, size_t end)
{
    switch (s->rule.kind) {
    case VB_K_SGD:
        update_keys(VB_K_SGD, s, p, first, end);
        break;
    case VB_K_MOMENTUM:
        update_keys(VB_K_MOMENTUM, s, p, first, end);
        break;
    case VB_K_NESTEROV:
        update_keys(VB_K_NESTEROV, s, p, first, end);
        break;
    case VB_K_ADAGRAD:
        update_keys(VB_K_ADAGRAD, s, p, first, end);
        break;
    case VB_K_FTRL:
        update_keys(VB_K_FTRL, s, p, first, end);
        break;
    }
}

void vb_k_sparse_settle(struct vb_k_sparse *s)
{
    struct state x;
    uint64_t k;

    if (s->lazy == NULL)
        return;
    for (k = 0; k < s->features; k++) {
        x = load(s, (uint32_t)k);
        if (x.step == 0 && s->w[k] == 0 && x.s == 0)
            continue; /* nothing ever came to it: its page need not become real */
        catch_up(s, &s->w[k], &x);
        x.step = 0;
        store(s, (uint32_t)k, x);
    }
    vb_k_lazy_forget(s->lazy);
}

static vb_status check_keys(const struct vb_k_sparse *s, const uint32_t *keys, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        if (keys[i] >= s->features)
            return vb_err(VB_ERR_INPUT,
                          "entry %zu: key %u is not below %llu, the number of features", i, keys[i],
                          (unsigned long long)s->features);
        if (i > 0 && keys[i] <= keys[i - 1])
            return vb_err(VB_ERR_INPUT, "entry %zu: key %u follows %u", i, keys[i], keys[i - 1]);
    }
    return VB_OK;
}

void vb_k_sparse_fetch(const struct vb_k_sparse *sparse, const struct vb_k_csr *m)
{
    size_t i;

    for (i = 0; i < m->nnz; i++)
        if (m->index[i] < sparse->features)
            __builtin_prefetch(&sparse->w[m->index[i]]);
}

vb_status vb_k_sparse_update(struct vb_k_sparse *sparse, const uint32_t *keys, const float *values,
                             size_t n, float scale, float rate, struct vb_k_undo *undo)
{
    struct step p = {keys, values, n, scale, rate, undo};
    size_t c, chunks = (n + CHUNK - 1) / CHUNK;
    vb_status st;

    st = check_keys(sparse, keys, n);
    if (st != VB_OK)
        return st;
    if (sparse->lazy != NULL && vb_k_lazy_full(sparse->lazy, rate))
        vb_k_sparse_settle(sparse);
#pragma omp parallel for schedule(static) if (n >= PARALLEL)
    for (c = 0; c < chunks; c++)
        update_chunk(sparse, &p, c * CHUNK, (c + 1) * CHUNK < n ? (c + 1) * CHUNK : n);
    if (sparse->lazy != NULL)
        vb_k_lazy_note(sparse->lazy, rate);
    return VB_OK;
}

void vb_k_sparse_undo(struct vb_k_sparse *sparse, const struct vb_k_undo *undo, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        sparse->w[undo[i].key] = undo[i].w;
        store(sparse, undo[i].key, (struct state){undo[i].s, undo[i].t, undo[i].step});
    }
    if (sparse->lazy != NULL)
        vb_k_lazy_take_back(sparse->lazy);
}
