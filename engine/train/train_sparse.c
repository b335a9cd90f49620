/* SPDX-License-Identifier: MIT
 *
 * Steps of sparse logistic regression. The cost of a step depends on the nonzeros of its batch, not
 * on the number of features. The bias is one more feature, after the last one.
 *
 * A share that is larger than the planned batch is computed in pieces, whose lists are added. So
 * buffers for rows have the planned size, and a list has at most one entry for each feature.
 *
 * Ranks sum lists of (feature, gradient). The update is the last part of a step and cannot fail in
 * the middle. If there are other ranks, its gradient is kept until the next update: a rank that
 * lacks this step makes the same update. Plain SGD on a single rank needs no list: it adds to the
 * weights row by row.
 */
#include "engine/train/train_sparse_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EVAL_ROWS 1000

struct vb_k_csr vb_train_csr(const struct vb_rows *rows)
{
    return (struct vb_k_csr){.n = (size_t)rows->n,
                             .offset = (const uint64_t *)rows->at,
                             .index = rows->index,
                             .value = rows->value,
                             .n_rows = (size_t)rows->n,
                             .nnz = (size_t)rows->at[rows->n]};
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static vb_status make_rows(struct vb_trainer *t, struct sparse *s)
{
    size_t entries =
        (size_t)EVAL_ROWS * (size_t)(t->data.test.row_max > 0 ? t->data.test.row_max : 1);
    size_t at = (EVAL_ROWS + 1) * sizeof(int64_t);
    vb_status st = vb_mem_map_private(at + entries * 8 + EVAL_ROWS, &s->rows_mem);
    char *from = s->rows_mem.ptr;

    if (st != VB_OK)
        return st;
    s->rows.at = (int64_t *)(void *)from;
    s->rows.index = (uint32_t *)(void *)(from + at);
    s->rows.value = (float *)(void *)(from + at + entries * 4);
    s->rows.y = (uint8_t *)from + at + entries * 8;
    s->rows.room = (int64_t)entries;
    return VB_OK;
}

static size_t most_entries(const struct vb_trainer *t, size_t rows)
{
    return rows * (size_t)(t->data.train.row_max > 0 ? t->data.train.row_max : 1);
}

/* Returns the number of entries of the longest list: that of a batch, with duplicates (see
 * not_finite()), or of all pieces of a whole step, without. */
static size_t room_of_list(const struct vb_trainer *t, const struct sparse *s)
{
    size_t whole = most_entries(t, (size_t)t->recipe.global_batch);

    whole = whole < s->features ? whole : (size_t)s->features;
    return (t->async || whole < s->max_nnz ? s->max_nnz : whole) + 1;
}

static vb_status make_buffers(struct vb_trainer *t, struct sparse *s)
{
    size_t batch = (size_t)vb_trainer_batch(t);
    vb_status st;

    s->max_nnz = most_entries(t, batch);
    s->logits = vb_alloc_aligned((batch > EVAL_ROWS ? batch : EVAL_ROWS) * sizeof(float));
    s->which = vb_alloc_aligned(EVAL_ROWS * sizeof(*s->which));
    if (s->logits == NULL || s->which == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for batches of %zu rows", batch);
    st = vb_list_open(&s->list, room_of_list(t, s));
    return st == VB_OK ? make_rows(t, s) : st;
}

/* Sparse models have one kernel for each operation, so there is nothing to choose. */
static vb_status sparse_compile(struct vb_trainer *t)
{
    t->state = calloc(1, sizeof(struct sparse));
    return t->state != NULL ? VB_OK : vb_err_sys("calloc");
}

/* Gives adagrad a first state for each feature, if features have different sizes
 * (train_recipe.c). A feature that the sample does not have is taken for one of size 1. */
static void begin_state(struct vb_trainer *t, struct sparse *s)
{
    const struct vb_sample *sample = &t->sample;
    const struct vb_recipe *r = &t->recipe;
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];
    float *state;
    uint64_t f;

    if (!r->by_size || vb_k_sparse_parts(s->weights, parts) < 2)
        return;
    state = parts[1].data;
    for (f = 0; f < s->features; f++)
        state[f] = vb_sample_begin((double)sample->size[f], (double)sample->share[f], sample->least,
                                   r->steps, r->global_batch);
    state[s->features] = vb_sample_begin(1, 1, sample->least, r->steps, r->global_batch);
}

/* Opens the sums of the group. */
static vb_status open_sums(struct vb_trainer *t, struct sparse *s)
{
    struct vb_sparse_opts opts = {.features = s->features + 1};
    size_t most; /* maximum number of entries in a sum: the entries in the lists of all ranks */
    vb_status st;

    /* A single rank that is left takes whole steps. */
    opts.max_nnz = vb_train_is_elastic(t->o) ? room_of_list(t, s)
                                             : most_entries(t, (size_t)vb_trainer_share(t)) + 1;
    most = opts.max_nnz * (size_t)t->world;
    st = vb_k_kept_create(most < opts.features ? most : (size_t)opts.features, &s->kept);
    if (st == VB_OK)
        st = vb_sparse_open(t->place.group, &opts, &s->all);
    if (st == VB_OK)
        t->sums.link = vb_sparse_link(s->all);
    return st;
}

/* A worker of an asynchronous job has a second model: while one is being saved, the next snapshot
 * goes into the other. Pages are allocated when they are first written, because only one of the
 * workers saves. */
static vb_status make_other(struct vb_trainer *t, struct sparse *s)
{
    size_t n = (size_t)s->features + 1, words = (size_t)vb_k_sparse_words(&t->recipe.rule);
    vb_status st = vb_mem_map_private(n * (1 + words) * sizeof(float), &s->other_mem);
    float *weights = s->other_mem.ptr;

    if (st != VB_OK)
        return st;
    return vb_k_sparse_create_at(&t->recipe.rule, s->features + 1, weights, weights + n, &s->other);
}

/* Where the weights in the memory of servers go, for a checkpoint. */
static vb_status make_late(struct vb_trainer *t, struct sparse *s)
{
    size_t n = (size_t)s->features + 1;
    vb_status st;

    if (!vb_k_sparse_is_lazy(&t->recipe.rule) || t->o->save.dir == NULL)
        return VB_OK;
    st = vb_mem_map_private(2 * n * sizeof(float), &s->late_mem);
    s->late.params = s->late_mem.ptr;
    s->other_late.params = s->late.params + n;
    return st;
}

static vb_status sparse_create(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);
    vb_status st;

    if (t->data.train.kind != VB_DATA_ROWS)
        return vb_err(VB_ERR_USAGE, "%s is trained on sparse rows; %s does not contain sparse rows",
                      t->o->model, t->o->data.text);
    s->features = (uint64_t)t->data.train.features;
    st = vb_k_sparse_create(&t->recipe.rule, s->features + 1, &s->weights);
    if (st == VB_OK)
        begin_state(t, s);
    if (st == VB_OK && t->async)
        st = make_late(t, s);
    if (st == VB_OK && vb_train_saves_beside(t))
        st = t->async ? make_other(t, s) : vb_k_sparse_save_beside(s->weights, t->leads);
    if (st == VB_OK)
        st = make_buffers(t, s);
    if (st == VB_OK)
        st = vb_k_grad_create(s->features, s->max_nnz, &s->grad);
    if (t->async)
        return st;
    if (st == VB_OK && t->place.group != NULL)
        st = open_sums(t, s);
    t->sums.requests = 1;
    t->sums.algo = "sparse";
    return st;
}

static void sparse_close(struct vb_trainer *t)
{
    if (sparse_of(t) != NULL && sparse_of(t)->all != NULL)
        vb_sparse_close(sparse_of(t)->all);
}

static void sparse_destroy(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);

    if (s == NULL)
        return;
    vb_k_sparse_destroy(s->weights);
    vb_k_sparse_destroy(s->other);
    vb_mem_unmap(&s->other_mem);
    vb_mem_unmap(&s->late_mem);
    vb_k_grad_destroy(s->grad);
    vb_mem_unmap(&s->rows_mem);
    free(s->logits);
    vb_list_close(&s->list);
    free(s->which);
    vb_k_kept_destroy(s->kept);
    free(s->flat);
    free(s);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static float bias(const struct sparse *s)
{
    float b;

    vb_k_sparse_read(s->weights, s->features, 1, &b);
    return b;
}

/* Computes the gradient of a batch, and adds it to the list of *n_p entries. The bias has the
 * highest key, so it is the last entry. */
static vb_status gradient(struct sparse *s, const struct vb_k_csr *csr, size_t *n_p)
{
    size_t before = *n_p > 0 ? *n_p - 1 : 0, n, i;
    float sum = 0, bias_before = *n_p > 0 ? s->list.values[before] : 0;
    const uint32_t *keys;
    const float *values;
    vb_status st = vb_k_grad_build(s->grad, csr, s->logits, &keys, &values, &n);

    if (st != VB_OK)
        return st;
    for (i = 0; i < csr->n; i++)
        sum += s->logits[i];
    n = vb_list_add(&s->list, before, keys, values, n);
    s->list.keys[n] = (uint32_t)s->features;
    s->list.values[n] = *n_p > 0 ? bias_before + sum : sum;
    *n_p = n + 1;
    return VB_OK;
}

/* Loads the next batch and prefetches its weights, while ranks exchange their lists. */
static void fetch_next(struct vb_trainer *t)
{
    const struct vb_batch *next = vb_loader_peek(t->loader);
    struct vb_k_csr csr;

    if (next == NULL)
        return;
    csr = vb_train_csr(&next->rows);
    vb_k_sparse_fetch(sparse_of(t)->weights, &csr);
    vb_lap(&t->laps, VB_PHASE_DATA);
}

/* Sums the lists of all ranks. *n_p is the length of this rank's list before the call, and the
 * length of the sum afterwards. */
static vb_status sum_up(struct vb_trainer *t, const uint32_t **keys_p, const float **values_p,
                        size_t *n_p)
{
    struct sparse *s = sparse_of(t);
    vb_status st = vb_sparse_start(s->all, s->list.keys, s->list.values, *n_p, VB_REDUCE_SUM);

    vb_lap_comm(&t->laps, t->place.group);
    if (st != VB_OK)
        return st;
    fetch_next(t);
    st = vb_sparse_finish(s->all, keys_p, values_p, n_p);
    vb_lap_comm(&t->laps, t->place.group);
    return st;
}

/* Finds the weight of a batch that is not finite. The next step writes the values again. */
static vb_status not_finite(struct vb_trainer *t, int64_t step, const struct vb_k_csr *csr)
{
    struct sparse *s = sparse_of(t);
    size_t i, n = csr->nnz < s->max_nnz ? csr->nnz : s->max_nnz;

    for (i = 0; i < n; i++)
        s->list.keys[i] = csr->index[i];
    s->list.keys[n] = (uint32_t)s->features;
    for (i = 0; i <= n; i++)
        vb_k_sparse_read(s->weights, s->list.keys[i], 1, &s->list.values[i]);
    return vb_health_weights(t, step, s->list.keys, s->list.values, n + 1);
}

/* A checkpoint that is being written keeps the weights that these rows change. */
static void touch_rows(struct sparse *s, const struct vb_k_csr *csr)
{
    uint32_t bias_key = (uint32_t)s->features;

    vb_k_sparse_touch(s->weights, csr->index + csr->offset[0],
                      (size_t)(csr->offset[csr->n] - csr->offset[0]));
    vb_k_sparse_touch(s->weights, &bias_key, 1);
}

/* Adds to the weights directly. Returns false, and does nothing, if the update rule is not plain
 * SGD, if there are other ranks, or if steps may have several pieces. */
static bool descend(struct vb_trainer *t, const struct vb_k_csr *csr)
{
    const struct vb_k_rule *rule = &t->recipe.rule;
    struct sparse *s = sparse_of(t);
    float *w = vb_k_sparse_weights(s->weights), sum = 0;
    float scale = -vb_k_rate(&t->recipe.schedule, t->step) / (float)t->batch->n_global;
    size_t i, n = 0;

    uint64_t begin_ns;

    if (s->all != NULL || vb_trainer_has_pieces(t) || rule->kind != VB_K_SGD || rule->decay != 0)
        return false;
    if (vb_train_record_wants_norm(t) && gradient(s, csr, &n) == VB_OK)
        vb_train_record_norm(t, vb_k_norm(s->list.values, n) / t->batch->n_global);
    begin_ns = vb_trace_begin();
    touch_rows(s, csr);
    vb_k_csr_add(csr, s->logits, scale, w);
    for (i = 0; i < csr->n; i++)
        sum += s->logits[i];
    w[s->features] += scale * sum;
    vb_trace_end(begin_ns, t->trace.backward, csr->nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return true;
}

/* Makes a step of a run that is replayed. The lists of the first batches are sent again and again,
 * because making a list is computing. */
static vb_status replay_step(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);
    const uint32_t *keys;
    const float *values;
    struct vb_k_csr csr;
    vb_status st = VB_OK;
    size_t n;

    while (st == VB_OK && t->batch->more)
        st = vb_trainer_load(t);
    if (st != VB_OK)
        return st;
    csr = vb_train_csr(&t->batch->rows);
    vb_replay_forward(t);
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    t->loss = (double)NAN;
    if (!vb_replay_has_list(t, s->list.keys, &s->n_grad)) {
        memset(s->logits, 0, csr.n * sizeof(float));
        s->n_grad = 0;
        st = vb_k_csr_check(&csr, s->features);
        if (st == VB_OK)
            st = gradient(s, &csr, &s->n_grad);
        if (st == VB_OK)
            st = vb_replay_keep_list(t, s->list.keys, s->n_grad);
        if (st != VB_OK)
            return st;
    }
    vb_replay_backward(t);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    n = s->n_grad;
    st = s->all != NULL ? sum_up(t, &keys, &values, &n) : VB_OK;
    if (st == VB_OK)
        st = vb_train_commit(t, t->step + 1);
    if (st == VB_OK)
        vb_replay_update(t, 1);
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    return st;
}

/* The forward pass of t->batch. *loss_p: sum over the pieces of the step so far. */
static vb_status forward(struct vb_trainer *t, struct vb_k_csr *csr_p, double *loss_p)
{
    struct sparse *s = sparse_of(t);
    const struct vb_batch *batch = t->batch;
    uint64_t begin_ns = vb_trace_next();
    vb_status st;

    *csr_p = vb_train_csr(&batch->rows);
    st = vb_k_csr_check(csr_p, s->features);
    if (st != VB_OK)
        return st;
    vb_k_sparse_forward(s->weights, csr_p, bias(s), s->logits);
    *loss_p += vb_k_logistic(s->logits, batch->rows.y, csr_p->n);
    t->loss = batch->n_share > 0 ? *loss_p / batch->n_share : t->loss;
    vb_trace_end(begin_ns, t->trace.forward, csr_p->nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    return isfinite(t->loss) ? VB_OK : not_finite(t, t->step + 1, csr_p);
}

static vb_status backward(struct vb_trainer *t, const struct vb_k_csr *csr, size_t *n_p)
{
    uint64_t begin_ns = vb_trace_next();
    vb_status st = gradient(sparse_of(t), csr, n_p);

    vb_trace_end(begin_ns, t->trace.backward, csr->nnz * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return st;
}

/* Computes all pieces but the last one, and the forward pass of the last one. */
static vb_status first_pieces(struct vb_trainer *t, struct vb_k_csr *csr_p, size_t *n_p)
{
    double loss = 0;
    vb_status st = forward(t, csr_p, &loss);

    while (st == VB_OK && t->batch->more) {
        st = backward(t, csr_p, n_p);
        if (st == VB_OK)
            st = vb_trainer_load(t);
        if (st == VB_OK)
            st = forward(t, csr_p, &loss);
    }
    return st;
}

static vb_status vb_sparse_step(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);
    const uint32_t *keys;
    const float *values;
    struct vb_k_csr csr;
    uint64_t begin_ns;
    size_t n = 0;
    vb_status st;

    vb_inject_idle(t, VB_PHASE_FORWARD);
    if (t->replay.on)
        return replay_step(t);
    st = first_pieces(t, &csr, &n);
    if (st != VB_OK)
        return st;
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    if (descend(t, &csr))
        return VB_OK;
    st = backward(t, &csr, &n);
    s->n_grad = st == VB_OK ? n : 0;
    keys = s->list.keys;
    values = s->list.values;
    vb_train_noise_begin(t, st == VB_OK && s->all != NULL);
    vb_train_noise_own(t, values, n);
    if (st == VB_OK && s->all != NULL && !t->sums.off)
        st = sum_up(t, &keys, &values, &n);
    if (st == VB_OK)
        st = vb_train_commit(t, t->step + 1);
    begin_ns = vb_trace_begin();
    if (st == VB_OK)
        st = vb_k_sparse_update(s->weights, keys, values, n, 1.f / (float)t->batch->n_global,
                                vb_k_rate(&t->recipe.schedule, t->step), s->kept);
    s->n_global = st == VB_OK ? t->batch->n_global : s->n_global;
    vb_trace_end(begin_ns, t->trace.update, n * sizeof(float));
    if (st == VB_OK)
        vb_train_record_gradient_norm(t, values, n, 1.f / (float)t->batch->n_global);
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    return st;
}

static vb_status sparse_sum_again(struct vb_trainer *t, size_t *bytes_p)
{
    struct sparse *s = sparse_of(t);
    const uint32_t *keys;
    const float *values;
    size_t n;

    *bytes_p = s->n_grad * (sizeof(*keys) + sizeof(*values));
    if (s->all == NULL)
        return VB_OK;
    return vb_sparse_allreduce(s->all, s->list.keys, s->list.values, s->n_grad, VB_REDUCE_SUM,
                               &keys, &values, &n);
}

/* Sends len bytes of the rank at place `from` to the others, as records. */
static vb_status send_all(struct vb_trainer *t, int from, void *data, size_t len)
{
    vb_status st = VB_OK;
    size_t at, n;

    for (at = 0; at < len && st == VB_OK; at += n) {
        n = len - at < VB_RECORD_MAX ? len - at : VB_RECORD_MAX;
        st = vb_group_broadcast(t->place.group, from, (char *)data + at, n);
    }
    return st;
}

/* What the others need to know of an update. */
struct last_update {
    uint64_t n;
    int64_t n_global;
};

/* The rank at place `from` sends the gradient of its last update, and those that lack this update
 * make it with the same numbers. So it is exact for lazy rules, too. */
static vb_status sparse_copy(struct vb_trainer *t, int from, bool lacks, int64_t step)
{
    struct sparse *s = sparse_of(t);
    struct last_update last = {0};
    const uint32_t *keys;
    const float *values;
    vb_status st;

    if (t->rank == from && !t->replay.on) {
        last.n = vb_k_kept_gradient(s->kept, &keys, &values);
        last.n_global = s->n_global;
        memcpy(s->list.keys, keys, last.n * sizeof(*keys));
        memcpy(s->list.values, values, last.n * sizeof(*values));
    }
    st = vb_group_broadcast(t->place.group, from, &last, sizeof(last));
    if (st == VB_OK && (last.n > room_of_list(t, s) || last.n_global < 0))
        st = vb_err(VB_ERR_INPUT, "rank %d sent an update of %llu features, but at most %zu fit",
                    vb_group_view_member(t->place.group, from), (unsigned long long)last.n,
                    room_of_list(t, s));
    if (st == VB_OK)
        st = send_all(t, from, s->list.keys, last.n * sizeof(*keys));
    if (st == VB_OK)
        st = send_all(t, from, s->list.values, last.n * sizeof(*values));
    if (st == VB_OK && lacks)
        st = vb_train_commit(t, step);
    if (st != VB_OK || !lacks || t->replay.on)
        return st;
    s->n_global = (int)last.n_global;
    return vb_k_sparse_update(s->weights, s->list.keys, s->list.values, last.n,
                              1.f / (float)last.n_global, vb_k_rate(&t->recipe.schedule, step - 1),
                              s->kept);
}

static void sparse_regrouped(struct vb_trainer *t)
{
    sparse_of(t)->n_grad = 0;
}

static vb_status sparse_form(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);

    s->has_aside = true;
    s->all_aside = s->all;
    s->kept_aside = s->kept;
    s->all = NULL;
    s->kept = NULL;
    return open_sums(t, s);
}

static void sparse_formed(struct vb_trainer *t, bool stays)
{
    struct sparse *s = sparse_of(t);
    struct vb_sparse *all = stays ? s->all_aside : s->all;
    struct vb_k_kept *kept = stays ? s->kept_aside : s->kept;

    if (!s->has_aside)
        return;
    s->all = stays ? s->all : s->all_aside;
    s->kept = stays ? s->kept : s->kept_aside;
    if (all != NULL)
        vb_sparse_close(all);
    vb_k_kept_destroy(kept);
    s->all_aside = NULL;
    s->kept_aside = NULL;
    s->has_aside = false;
}

/* ---- evaluation -------------------------------------------------------------------------- */

static vb_status read_test(struct vb_trainer *t, int first, int n, struct vb_k_csr *csr_p)
{
    struct sparse *s = sparse_of(t);
    vb_status st;
    int i;

    for (i = 0; i < n; i++)
        s->which[i] = (uint32_t)(first + i);
    st = vb_dataset_rows(&t->data.test, s->which, n, &s->rows);
    if (st == VB_OK)
        *csr_p = vb_train_csr(&s->rows);
    return st;
}

static vb_status sparse_evaluate(struct vb_trainer *t, int first, int n, struct vb_eval_sum *sum)
{
    struct sparse *s = sparse_of(t);
    struct vb_k_csr csr;
    vb_status st;
    int i, len;

    for (; n > 0; n -= len, first += len) {
        len = n < EVAL_ROWS ? n : EVAL_ROWS;
        st = read_test(t, first, len, &csr);
        if (st != VB_OK)
            return st;
        vb_k_sparse_forward(s->weights, &csr, bias(s), s->logits);
        for (i = 0; i < len; i++) {
            sum->correct += (s->logits[i] > 0) == (s->rows.y[i] != 0);
            vb_eval_class(&sum->labels, s->rows.y[i] + 1);
            vb_eval_class(&sum->predicted, (s->logits[i] > 0) + 1);
        }
        sum->loss += vb_k_logistic(s->logits, s->rows.y, csr.n);
        if (!isfinite(sum->loss))
            return not_finite(t, t->step, &csr);
    }
    return VB_OK;
}

/* All weights begin at 0, and a step changes those of its features. */
static vb_status sparse_unseen(struct vb_trainer *t, int n, int64_t *nonzeros_p, int64_t *unseen_p)
{
    struct sparse *s = sparse_of(t);
    struct vb_k_csr csr;
    int first, len;
    vb_status st;
    size_t i;
    float w;

    for (first = 0; first < n; first += len) {
        len = n - first < EVAL_ROWS ? n - first : EVAL_ROWS;
        st = read_test(t, first, len, &csr);
        if (st != VB_OK)
            return st;
        for (i = 0; i < csr.nnz; i++) {
            vb_k_sparse_read(s->weights, csr.index[i], 1, &w);
            *unseen_p += w == 0;
        }
        *nonzeros_p += (int64_t)csr.nnz;
    }
    return VB_OK;
}

static const float *sparse_params(struct vb_trainer *t, size_t *n_p)
{
    struct sparse *s = sparse_of(t);

    *n_p = s->features + 1;
    if (s->flat == NULL)
        s->flat = malloc(*n_p * sizeof(float));
    if (s->flat != NULL)
        vb_k_sparse_read(s->weights, 0, *n_p, s->flat);
    return s->flat;
}

/* Returns this rank's gradient. Evaluation has overwritten the logits. */
static const float *sparse_gradient(struct vb_trainer *t, size_t *n_p, float *scale_p)
{
    struct sparse *s = sparse_of(t);
    struct vb_k_csr csr;

    if (t->batch == NULL || t->batch->n_share == 0)
        return NULL;
    *scale_p = 1.f / (float)t->batch->n_share;
    *n_p = s->n_shown = s->n_grad;
    if (s->n_grad > 0)
        return s->list.values;
    csr = vb_train_csr(&t->batch->rows);
    vb_k_sparse_forward(s->weights, &csr, bias(s), s->logits);
    (void)vb_k_logistic(s->logits, t->batch->rows.y, csr.n);
    if (gradient(s, &csr, n_p) != VB_OK)
        return NULL;
    s->n_shown = *n_p;
    return s->list.values;
}

/* The next step writes the values again, so the weights may replace them. */
static const float *sparse_weights(struct vb_trainer *t, size_t *n_p)
{
    struct sparse *s = sparse_of(t);
    size_t i;

    *n_p = s->n_shown;
    for (i = 0; i < s->n_shown; i++)
        vb_k_sparse_read(s->weights, s->list.keys[i], 1, &s->list.values[i]);
    return s->list.values;
}

static float *sparse_memory(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p)
{
    struct sparse *s = sparse_of(t);
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];

    /* servers apply what the weights of a checkpoint lack, and snapshots are up to date */
    (void)vb_k_sparse_resume(s->weights, &t->recipe.schedule, 0, 0);
    *n_p = s->features + 1;
    *words_p = vb_k_sparse_words(&t->recipe.rule);
    *state_p = vb_k_sparse_parts(s->weights, parts) > 1 ? parts[1].data : NULL;
    return vb_k_sparse_weights(s->weights);
}

const struct vb_trainer_ops vb_trainer_sparse = {
    .compile = sparse_compile,
    .create = sparse_create,
    .step = vb_sparse_step,
    .sum_again = sparse_sum_again,
    .copy = sparse_copy,
    .regrouped = sparse_regrouped,
    .form = sparse_form,
    .formed = sparse_formed,
    .evaluate = sparse_evaluate,
    .params = sparse_params,
    .gradient = sparse_gradient,
    .weights = sparse_weights,
    .unseen = sparse_unseen,
    .save = vb_sparse_save,
    .hold = vb_sparse_hold,
    .restore = vb_sparse_restore,
    .settle = vb_sparse_settle,
    .late = vb_sparse_late,
    .memory = sparse_memory,
    .close = sparse_close,
    .destroy = sparse_destroy,
};
