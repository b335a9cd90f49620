/* SPDX-License-Identifier: MIT
 *
 * The weights of a sparse model and their update. A step *names* the features in its gradient;
 * momentum and decay are applied to a feature when it is next named (lazy.c). Until then memory
 * holds the weight as it was, and a reader applies the later steps without writing, so replicas
 * with different batches keep the same bits. Adagrad and FTRL do not change a feature without a
 * gradient.
 *
 * The 32-bit words of a feature's state are contiguous: one cache miss. All memory is mapped at the
 * beginning, and physical pages are allocated when they are touched.
 */
#include "kernels/sparse/csr_rows_priv.h"
#include "kernels/sparse/sparse_priv.h"
#include "kernels/update/update_inside.h"

#include <stdlib.h>

#define POPULATE_MAX ((size_t)1 << 30)
#define AHEAD 24   /* number of keys that are prefetched ahead */
#define BLOCK 32   /* number of keys whose features are updated at once */
#define CHUNK 1024 /* number of keys that a thread takes at a time */
#define PARALLEL 8192
#define ALWAYS static inline __attribute__((always_inline))

/* Maps memory and touches it now instead of in the first steps, because zeroing a huge page takes
 * longer than a step. Steps may never touch all of a very large memory. */
static vb_status map(size_t bytes, struct vb_mem *mem)
{
    vb_status st = vb_mem_map_private(bytes, mem);

    return st == VB_OK && bytes <= POPULATE_MAX ? vb_mem_populate(mem) : st;
}

static vb_status map_all(struct vb_k_sparse *s)
{
    vb_status st;

    if (s->w != NULL) /* the memory belongs to the caller */
        return VB_OK;

    st = map((size_t)s->features * sizeof(*s->w), &s->weights);
    if (st != VB_OK)
        return st;
    s->w = s->weights.ptr;
    if (s->has.words == 0)
        return VB_OK;
    st = map((size_t)s->features * (size_t)s->has.words * sizeof(*s->state), &s->states);
    if (st == VB_OK)
        s->state = s->states.ptr;
    return st;
}

bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule)
{
    return rule->kind == VB_K_MOMENTUM || rule->kind == VB_K_NESTEROV ||
           (rule->kind == VB_K_SGD && rule->decay != 0);
}

int vb_k_sparse_words(const struct vb_k_rule *rule)
{
    return vb_k_rule_states(rule->kind) + vb_k_sparse_is_lazy(rule);
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
        return vb_err(VB_ERR_USAGE, "expected 1 to 2^32 features, found %llu",
                      (unsigned long long)features);
    if (rule->decay != 0 && (rule->kind == VB_K_ADAGRAD || rule->kind == VB_K_FTRL))
        return vb_err(VB_ERR_UNSUPPORTED,
                      "sparse models do not support weight decay with adagrad or ftrl");
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err_sys("calloc");
    s->rule = *rule;
    s->features = features;
    s->has = (struct shape){rule->kind, vb_k_rule_states(rule->kind), vb_k_sparse_words(rule)};
    s->w = weights;
    s->state = state;
    st = map_all(s);
    if (st == VB_OK && vb_k_sparse_is_lazy(rule))
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
    vb_k_aside_destroy(sparse->aside);
    vb_k_lazy_destroy(sparse->lazy_then);
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

    parts[0] = (struct vb_k_sparse_part){"w", false, n, s->w};
    parts[1] = (struct vb_k_sparse_part){"state", s->has.words > s->has.floats,
                                         n * (size_t)s->has.words, s->state};
    return s->has.words > 0 ? 2 : 1;
}

ALWAYS struct state load(struct shape r, const struct vb_k_sparse *s, uint32_t key)
{
    return sparse_state(r, s->state + (size_t)key * (size_t)r.words);
}

ALWAYS void store(struct shape r, struct vb_k_sparse *s, uint32_t key, struct state x)
{
    sparse_put_state(r, s->state + (size_t)key * (size_t)r.words, x);
}

static inline float weight_now(const struct vb_k_sparse *s, uint32_t key)
{
    struct state x = load(s->has, s, key);
    float w = s->w[key];

    sparse_catch_up(s->lazy, &w, &x);
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

ALWAYS void fetch(const struct vb_k_sparse *s, uint32_t key)
{
    __builtin_prefetch(s->w + key, 1);
    if (s->has.words > 0)
        __builtin_prefetch(s->state + (size_t)key * (size_t)s->has.words, 1);
}

void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits)
{
    uint64_t j, end;
    float sum;
    size_t i;

    if (sparse->lazy == NULL) {
        vb_k_csr_forward(m, sparse->w, bias, logits);
        return;
    }
    for (i = 0; i < m->n; i++) {
        csr_bounds(m, i, &j, &end);
        for (sum = 0; j < end; j++) {
            if (j + AHEAD < m->nnz) /* the entry belongs to this row or a later one */
                fetch(sparse, m->index[j + AHEAD]);
            sum += weight_now(sparse, m->index[j]) * (m->value != NULL ? m->value[j] : 1);
        }
        logits[i] = sum + bias;
    }
}

struct vb_k_kept {
    size_t n, room;
    uint32_t *keys; /* (room) */
    float *values;  /* (room) in the memory of keys */
};

vb_status vb_k_kept_create(size_t max_keys, struct vb_k_kept **kept_p)
{
    struct vb_k_kept *k = calloc(1, sizeof(*k));

    if (k == NULL)
        return vb_err_sys("calloc");
    k->room = max_keys;
    k->keys = vb_alloc_aligned(2 * max_keys * sizeof(*k->keys));
    if (k->keys == NULL) {
        free(k);
        return vb_err(VB_ERR_NO_MEMORY, "no memory to keep a gradient of %zu keys", max_keys);
    }
    k->values = (void *)(k->keys + max_keys);
    *kept_p = k;
    return VB_OK;
}

void vb_k_kept_destroy(struct vb_k_kept *kept)
{
    if (kept != NULL)
        free(kept->keys);
    free(kept);
}

size_t vb_k_kept_gradient(const struct vb_k_kept *kept, const uint32_t **keys_p,
                          const float **values_p)
{
    *keys_p = kept->keys;
    *values_p = kept->values;
    return kept->n;
}

struct step {
    const uint32_t *keys;
    const float *values;
    size_t n;
    float scale, rate;
    struct vb_k_kept *kept;
};

/* A block of features. It is loaded, updated with vector instructions, and stored again. */
struct block {
    float w[BLOCK], s[BLOCK], t[BLOCK];
    uint32_t step[BLOCK];
};

ALWAYS void load_block(struct shape r, const struct vb_k_sparse *s, const uint32_t *keys, size_t n,
                       struct block *b)
{
    struct state x;
    size_t i;

    for (i = 0; i < n; i++) {
        x = load(r, s, keys[i]);
        b->w[i] = s->w[keys[i]];
        b->s[i] = x.s;
        b->t[i] = x.t;
        if (r.words > r.floats)
            b->step[i] = x.step;
    }
}

ALWAYS void store_block(struct shape r, struct vb_k_sparse *s, const uint32_t *keys, size_t n,
                        const struct block *b)
{
    size_t i;

    for (i = 0; i < n; i++) {
        s->w[keys[i]] = b->w[i];
        store(r, s, keys[i], (struct state){b->s[i], b->t[i], r.words > r.floats ? b->step[i] : 0});
    }
}

ALWAYS void keep_block(const struct step *p, size_t first, size_t n)
{
    struct vb_k_kept *kept = p->kept;

    memcpy(kept->keys + first, p->keys + first, n * sizeof(*p->keys));
    memcpy(kept->values + first, p->values + first, n * sizeof(*p->values));
}

static void catch_up_block(const struct vb_k_sparse *s, size_t n, struct block *b)
{
    struct state x;
    size_t i;

    for (i = 0; i < n; i++) {
        x = (struct state){.s = b->s[i], .step = b->step[i]};
        sparse_catch_up(s->lazy, &b->w[i], &x);
        b->s[i] = x.s;
        b->step[i] = x.step + 1;
    }
}

ALWAYS void step_block(struct shape r, const struct vb_k_sparse *s, const struct step *p,
                       const float *values, size_t n, struct block *b)
{
    const struct vb_k_rule rule = s->rule;
    struct update_one one;
    size_t i;

    for (i = 0; i < n; i++) {
        one = update_one(r.kind, &rule, p->rate, p->scale * values[i] + rule.decay * b->w[i],
                         (struct update_one){b->w[i], b->s[i], b->t[i]});
        b->w[i] = one.w;
        if (r.floats > 0)
            b->s[i] = one.s;
        if (r.floats > 1)
            b->t[i] = one.t;
    }
}

/* Updates the block of keys from first on. n is the constant BLOCK, except for the last block. */
ALWAYS void update_block(struct shape r, struct vb_k_sparse *s, const struct step *p, size_t first,
                         size_t n)
{
    const uint32_t *keys = p->keys + first;
    struct block b;

    load_block(r, s, keys, n, &b);
    if (p->kept != NULL)
        keep_block(p, first, n);
    if (r.words > r.floats)
        catch_up_block(s, n, &b);
    step_block(r, s, p, p->values + first, n, &b);
    store_block(r, s, keys, n, &b);
}

ALWAYS void update_keys(struct shape r, struct vb_k_sparse *s, const struct step *p, size_t first,
                        size_t end)
{
    size_t i;

    VB_ASSERT(r.floats == s->has.floats && r.words == s->has.words);
    for (; first < end; first += BLOCK) {
        for (i = first + AHEAD; i < first + AHEAD + BLOCK && i < p->n; i++)
            fetch(s, p->keys[i]);
        if (end - first >= BLOCK)
            update_block(r, s, p, first, BLOCK);
        else
            update_block(r, s, p, first, end - first);
    }
}

static void any_keys(struct vb_k_sparse *s, const struct step *p, size_t first, size_t end)
{
    switch (s->rule.kind) {
    case VB_K_SGD:
        if (s->lazy == NULL)
            update_keys((struct shape){VB_K_SGD, 0, 0}, s, p, first, end);
        else
            update_keys((struct shape){VB_K_SGD, 0, 1}, s, p, first, end);
        break;
    case VB_K_MOMENTUM:
        update_keys((struct shape){VB_K_MOMENTUM, 1, 2}, s, p, first, end);
        break;
    case VB_K_NESTEROV:
        update_keys((struct shape){VB_K_NESTEROV, 1, 2}, s, p, first, end);
        break;
    case VB_K_ADAGRAD:
        update_keys((struct shape){VB_K_ADAGRAD, 1, 1}, s, p, first, end);
        break;
    case VB_K_FTRL:
        update_keys((struct shape){VB_K_FTRL, 2, 2}, s, p, first, end);
        break;
    }
}

static void update_all(struct vb_k_sparse *s, const struct step *p)
{
    size_t c, chunks = (p->n + CHUNK - 1) / CHUNK;

    if (p->n < PARALLEL) { /* even a team of one thread has a noticeable cost */
        any_keys(s, p, 0, p->n);
        return;
    }
#pragma omp parallel for schedule(static)
    for (c = 0; c < chunks; c++)
        any_keys(s, p, c * CHUNK, (c + 1) * CHUNK < p->n ? (c + 1) * CHUNK : p->n);
}

void vb_k_sparse_settle(struct vb_k_sparse *s)
{
    struct state x;
    uint64_t k;

    if (s->lazy == NULL)
        return;
    vb_k_sparse_touch_all(s);
    for (k = 0; k < s->features; k++) {
        x = load(s->has, s, (uint32_t)k);
        if (x.step == 0 && s->w[k] == 0 && x.s == 0)
            continue; /* the feature was never updated; skipping it avoids allocating its page */
        sparse_catch_up(s->lazy, &s->w[k], &x);
        x.step = 0;
        store(s->has, s, (uint32_t)k, x);
    }
    vb_k_lazy_forget(s->lazy);
}

static vb_status check_keys(const struct vb_k_sparse *s, const uint32_t *keys, size_t n)
{
    uint32_t wrong = 0;
    size_t i;

    for (i = 1; i < n; i++) /* no branch, so that the compiler can use vectors */
        wrong |= (uint32_t)(keys[i] <= keys[i - 1]);
    if (wrong == 0 && (n == 0 || keys[n - 1] < s->features))
        return VB_OK;
    for (i = 0; i < n; i++) {
        if (keys[i] >= s->features)
            return vb_err(VB_ERR_INPUT,
                          "entry %zu: key %u is not below %llu, the number of features", i, keys[i],
                          (unsigned long long)s->features);
        if (i > 0 && keys[i] <= keys[i - 1])
            return vb_err(VB_ERR_INPUT, "entry %zu: key %u follows key %u, expected ascending keys",
                          i, keys[i], keys[i - 1]);
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
                             size_t n, float scale, float rate, struct vb_k_kept *kept)
{
    struct step p = {keys, values, n, scale, rate, kept};
    vb_status st;

    st = check_keys(sparse, keys, n);
    if (st == VB_OK && kept != NULL && n > kept->room)
        st = vb_err(VB_ERR_USAGE, "the update has %zu keys, but only %zu can be kept", n,
                    kept->room);
    if (st != VB_OK)
        return st;
    if (sparse->lazy != NULL && vb_k_lazy_steps(sparse->lazy) == vb_k_lazy_room())
        vb_k_sparse_settle(sparse);
    if (vb_k_aside_is_on(sparse->aside))
        vb_k_aside_keep(sparse->aside, keys, n);
    update_all(sparse, &p);
    if (sparse->lazy != NULL)
        vb_k_lazy_note(sparse->lazy, rate);
    if (kept != NULL)
        kept->n = n;
    return VB_OK;
}
