/* SPDX-License-Identifier: MIT
 *
 * The steps of a worker with sparse logistic regression. The worker compacts each batch first
 * (ps_compact.c), so that the forward and the backward pass touch only a few thousand numbers. The
 * worker pushes a gradient together with the features of the next batch.
 *
 * With hogwild and plain SGD a batch is not compacted: the worker reads and updates the shared
 * weights row by row. The worker has its own copy of the weights that nearly every batch updates.
 */
#include "engine/async/train_async_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_AHEAD 2 /* number of rows whose weights are prefetched */

/* A compacted batch. */
struct compact_batch {
    struct ps_compact *compact;
    uint32_t *keys; /* the distinct features; the last key is the bias */
    size_t n;
    struct vb_k_csr csr; /* the indices in csr are places in keys */
};

struct sparse_worker {
    struct vb_async *async;
    uint64_t features;
    struct compact_batch batch[2];
    int now;
    float *logits, *grad;
    struct vb_k_hot *hot; /* used only if by_rows */
    bool by_rows;         /* hogwild with plain SGD: batches are not compacted */
    bool in_order;        /* lazy rules: rows are added in the order of synchronous training */
};

/* Takes the next batch from the loader and compacts it. The loader may then reuse the memory of the
 * previous batch. */
static vb_status next_batch(struct sparse_worker *s, struct compact_batch *b)
{
    struct vb_trainer *t = s->async->trainer;
    const uint32_t *places;
    vb_status st = vb_async_repartition(s->async);

    vb_train_does(t, VB_DOES_LOAD);
    if (st == VB_OK)
        st = vb_loader_next(t->loader, &t->batch);
    vb_train_does(t, VB_DOES_COMPUTE);
    vb_lap(&t->laps, VB_PHASE_DATA);
    vb_inject_idle(t, VB_PHASE_DATA);
    if (st != VB_OK)
        return st;
    b->csr = vb_train_csr(&t->batch->rows);
    st = vb_k_csr_check(&b->csr, s->features);
    if (st != VB_OK || s->by_rows)
        return st;
    vb_ps_compact_make(b->compact, b->csr.index, b->csr.nnz, &b->keys, &b->n, &places);
    b->keys[b->n++] = (uint32_t)s->features;
    b->csr.index = places;
    vb_lap(&t->laps, VB_PHASE_DATA);
    return VB_OK;
}

static void note_loss(struct vb_trainer *t, double loss, size_t n)
{
    t->loss = n > 0 ? loss / (double)n : t->loss;
    t->batch_n = (int)n;
}

static int64_t step_of(const struct sparse_worker *s)
{
    return (int64_t)s->async->worker->version + 1;
}

static float scale_of(size_t n)
{
    return 1.f / (float)(n > 0 ? n : 1);
}

/* Computes the gradient at the keys of a batch. w: the weights at these keys. Fails if the loss is
 * not finite. */
static vb_status gradient(struct sparse_worker *s, const struct compact_batch *b, const float *w)
{
    struct vb_trainer *t = s->async->trainer;
    uint64_t begin_ns;
    float sum = 0;
    size_t i;

    vb_inject_idle(t, VB_PHASE_FORWARD);
    begin_ns = vb_trace_begin();
    if (s->in_order)
        vb_k_shared_forward(&b->csr, w, w[b->n - 1], s->logits);
    else
        vb_k_csr_forward(&b->csr, w, w[b->n - 1], s->logits);
    note_loss(t, vb_k_logistic(s->logits, t->batch->rows.y, b->csr.n), b->csr.n);
    vb_trace_end(begin_ns, t->trace.forward, b->csr.nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    if (!isfinite(t->loss))
        return vb_health_weights(t, step_of(s), b->keys, w, b->n);
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    begin_ns = vb_trace_next();
    memset(s->grad, 0, b->n * sizeof(float));
    vb_k_csr_add(&b->csr, s->logits, 1, s->grad);
    for (i = 0; i < b->csr.n; i++)
        sum += s->logits[i];
    s->grad[b->n - 1] = sum;
    vb_trace_end(begin_ns, t->trace.backward, b->csr.nnz * sizeof(float));
    vb_train_record_gradient_norm(t, s->grad, b->n, scale_of(b->csr.n));
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return VB_OK;
}

static vb_status step(struct sparse_worker *s)
{
    struct vb_async *a = s->async;
    struct vb_trainer *t = a->trainer;
    const struct compact_batch *b = &s->batch[s->now];
    struct compact_batch *next = &s->batch[1 - s->now];
    size_t n = b->csr.n;
    const float *w;
    uint64_t begin_ns = vb_trace_begin();
    vb_status st = vb_ps_worker_values(a->worker, b->keys, b->n, &w);

    vb_trace_end(begin_ns, VB_OP_PULL, b->n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_COMM);
    if (st != VB_OK)
        return st;
    st = gradient(s, b, w);
    if (st != VB_OK)
        return st;
    begin_ns = vb_trace_begin();
    st = next_batch(s, next);
    begin_ns = vb_trace_end(begin_ns, VB_OP_DATA, 0);
    if (st == VB_OK)
        st = vb_ps_worker_push_sparse(a->worker, b->keys, s->grad, b->n, (uint32_t)n, scale_of(n),
                                      next->keys, next->n);
    vb_trace_end(begin_ns, VB_OP_PUSH, b->n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_COMM);
    s->now = 1 - s->now;
    return st == VB_OK ? vb_async_step_done(a) : st;
}

/* ---- hogwild --------------------------------------------------------------------------------- */

/* Computes the logits of all rows. While this function computes one row, it prefetches the weights
 * of later rows. */
static void forward_rows(struct sparse_worker *s, const struct vb_k_csr *csr, float *w, float bias)
{
    size_t i;

    vb_k_hot_learn(s->hot, csr, w);
    for (i = 0; i < csr->n + ROWS_AHEAD; i++) {
        if (i < csr->n)
            vb_k_hot_find(s->hot, csr, i, w);
        if (i >= ROWS_AHEAD)
            s->logits[i - ROWS_AHEAD] = vb_k_hot_forward(s->hot, csr, i - ROWS_AHEAD) + bias;
    }
}

/* Adds the gradients of all rows to the weights. While this function adds one row, it prefetches a
 * row of the next batch. */
static void add_rows(struct sparse_worker *s, const struct vb_k_csr *csr, float scale, float *w)
{
    size_t i;

    for (i = 0; i < csr->n; i++) {
        vb_loader_soon(s->async->trainer->loader, (int)i);
        vb_k_hot_add(s->hot, csr, i, scale * s->logits[i]);
    }
    vb_k_hot_exchange(s->hot, w);
}

/* Each entry of a row reads a weight and adds to it. */
static size_t entries_of(const struct vb_k_csr *csr)
{
    size_t i, r, n = 0;

    for (i = 0; i < csr->n; i++) {
        r = csr->rows != NULL ? csr->rows[i] : i;
        n += (size_t)(csr->offset[r + 1] - csr->offset[r]);
    }
    return n;
}

/* Finds a weight of the batch that is not finite. The gradient's memory is not used by rows. */
static vb_status not_finite(struct sparse_worker *s, const struct vb_k_csr *csr, float *w)
{
    size_t i;

    for (i = 0; i < csr->nnz; i++)
        vb_k_shared_read(w + csr->index[i], 1, &s->grad[i]);
    return vb_health_weights(s->async->trainer, step_of(s), csr->index, s->grad, csr->nnz);
}

static vb_status by_rows(struct sparse_worker *s, const struct compact_batch *b, float *w,
                         float rate)
{
    const struct vb_k_rule sgd = {.kind = VB_K_SGD};
    struct vb_trainer *t = s->async->trainer;
    float bias, sum = 0, scale = -rate * scale_of(b->csr.n);
    uint32_t bias_key = (uint32_t)s->features;
    uint64_t begin_ns;
    size_t i;

    vb_inject_idle(t, VB_PHASE_FORWARD);
    begin_ns = vb_trace_begin();
    vb_k_shared_read(w + s->features, 1, &bias);
    forward_rows(s, &b->csr, w, bias);
    note_loss(t, vb_k_logistic(s->logits, t->batch->rows.y, b->csr.n), b->csr.n);
    vb_trace_end(begin_ns, t->trace.forward, b->csr.nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    if (!isfinite(t->loss))
        return not_finite(s, &b->csr, w);
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    begin_ns = vb_trace_next();
    add_rows(s, &b->csr, scale, w);
    for (i = 0; i < b->csr.n; i++)
        sum += s->logits[i];
    vb_k_shared_update_keys(&sgd, w, NULL, &bias_key, &sum, 1, -scale, 1);
    i = entries_of(&b->csr);
    vb_ps_worker_touched(s->async->worker, 0, i, i);
    vb_trace_end(begin_ns, t->trace.backward, b->csr.nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return VB_OK;
}

static vb_status by_keys(struct sparse_worker *s, const struct compact_batch *b, float *w,
                         void *state, float rate)
{
    struct vb_trainer *t = s->async->trainer;
    const float *values;
    vb_status st = vb_ps_worker_values(s->async->worker, b->keys, b->n, &values);

    vb_lap(&t->laps, VB_PHASE_COMM);
    if (st != VB_OK)
        return st;
    st = gradient(s, b, values);
    if (st != VB_OK)
        return st;
    vb_k_shared_update_keys(&t->recipe.rule, w, state, b->keys, s->grad, b->n, scale_of(b->csr.n),
                            rate);
    vb_ps_worker_touched(s->async->worker, 0, 0, b->n);
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    return VB_OK;
}

static vb_status step_in_place(struct sparse_worker *s)
{
    struct ps_worker *worker = s->async->worker;
    struct vb_trainer *t = s->async->trainer;
    struct compact_batch *b = &s->batch[0];
    float *w, rate;
    void *state;
    vb_status st = next_batch(s, b);

    if (st != VB_OK)
        return st;
    worker->version = worker->base = vb_ps_worker_version(worker);
    w = vb_ps_worker_shared(worker, &state);
    rate = vb_k_rate(&t->recipe.schedule, (int64_t)worker->version);
    if (s->by_rows)
        st = by_rows(s, b, w, rate);
    else
        st = by_keys(s, b, w, state, rate);
    if (st != VB_OK) /* a step that failed is not counted */
        return st;
    vb_ps_worker_applied(worker);
    st = vb_async_step_done(s->async);
    return st == VB_OK && worker->due != 0 ? vb_async_do_due(s->async) : st;
}

static vb_status create(struct sparse_worker *s)
{
    struct vb_trainer *t = s->async->trainer;
    const struct vb_k_rule *rule = &t->recipe.rule;
    size_t batch = (size_t)vb_trainer_share(t), max_keys = s->async->job.max_keys;
    vb_status st = VB_OK;
    int i;

    s->features = s->async->job.n - 1;
    s->by_rows = s->async->job.hogwild && rule->kind == VB_K_SGD && rule->decay == 0;
    s->in_order = vb_k_sparse_is_lazy(rule);
    s->logits = vb_alloc_aligned(batch * sizeof(float));
    s->grad = vb_alloc_aligned(max_keys * sizeof(float));
    if (s->logits == NULL || s->grad == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for batches of %zu rows", batch);
    if (s->by_rows)
        st = vb_k_hot_create(max_keys - 1, &s->hot);
    for (i = 0; i < 2 && st == VB_OK; i++)
        st = vb_ps_compact_create(s->features, max_keys - 1, &s->batch[i].compact);
    return st;
}

static vb_status make_steps(struct sparse_worker *s)
{
    struct vb_async *a = s->async;
    vb_status st = VB_OK;
    bool go = true;

    while (st == VB_OK && go && a->job.hogwild) {
        st = vb_async_claim(a, &go);
        if (st == VB_OK && go)
            st = step_in_place(s);
    }
    if (st != VB_OK || a->job.hogwild)
        return st;
    st = next_batch(s, &s->batch[0]);
    if (st == VB_OK)
        st = vb_ps_worker_ask(a->worker, s->batch[0].keys, s->batch[0].n);
    while (st == VB_OK && go) {
        st = vb_async_ticket(a, &go);
        if (st == VB_OK && go)
            st = step(s);
    }
    return st;
}

vb_status vb_async_run_sparse(struct vb_async *a)
{
    struct sparse_worker s = {.async = a};
    vb_status st = create(&s);

    if (st == VB_OK)
        st = make_steps(&s);
    vb_ps_compact_destroy(s.batch[0].compact);
    vb_ps_compact_destroy(s.batch[1].compact);
    free(s.logits);
    free(s.grad);
    vb_k_hot_destroy(s.hot);
    return st;
}
