/* SPDX-License-Identifier: MIT
 *
 * Dense models: steps, evaluation and checkpoints.
 *
 * The update runs bucket by bucket as sums arrive. While more sums are running, the forward pass of
 * the next batch computes the layers whose parameters are already updated. If all ranks have mapped
 * each other's memory, they share the update of a large model (engine/sums/shared_update.c).
 */
#include "engine/train/train_dense_priv.h"

#include <math.h>
#include <string.h>

#define NORM_EVERY 16 /* steps; ranks that share an update must agree when to compute the norm */

static void update(struct vb_trainer *t, size_t first, size_t n, float scale, float rate)
{
    struct dense *d = dense_of(t);
    struct dense_copies *c = &d->copies;
    const float *state = c->state[c->now];
    float *state_out = c->state[c->next];
    struct vb_k_update u = {
        .n = n,
        .params = c->params[c->now] + first,
        .state = state != NULL ? state + first : NULL,
        .grads = vb_buckets_grads(d->buckets) + first,
        .scale = scale,
        .rate = rate,
        .params_out = c->params[c->next] + first,
        .state_out = state_out != NULL ? state_out + first : NULL,
    };

    uint64_t begin_ns = vb_trace_begin();

    if (t->replay.on)
        vb_replay_update(t, (double)n / (double)d->n_params);
    else
        vb_k_update(&t->recipe.rule, &u);
    vb_trace_end(begin_ns, VB_OP_UPDATE, n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_UPDATE);
}

/* Extends the range of updated parameters. Sums arrive downwards to the first parameter, and then
 * upwards from the front if some gradients were deferred. */
static void note_new(struct dense_early *e, size_t first, size_t n)
{
    if (first == e->end) {
        e->end += n;
        return;
    }
    if (first + n != e->low)
        e->end = first + n;
    e->low = first;
}

/* Runs the forward pass of the next step through the layers whose parameters are updated, while
 * more sums are running. */
static void forward_early(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    struct dense_early *e = &d->early;
    const float *params = d->copies.params[d->copies.next];
    struct vb_model_batch batch;
    int before;

    if (vb_buckets_left(d->buckets) == 0)
        return;
    if (e->batch == NULL)
        e->batch = vb_trainer_next_batch(t);
    if (e->batch == NULL)
        return;
    batch = vb_dense_batch(t, e->batch, e->step);
    t->replay.ahead = 1;
    do {
        before = e->layers;
        e->layers = vb_model_forward_part(d->model, params, &batch, before, e->low, e->end);
        if (e->layers > before)
            vb_buckets_poll(d->buckets, VB_PHASE_FORWARD);
    } while (e->layers > before);
    t->replay.ahead = 0;
}

/* If there is no loader thread, this function makes the next batch while sums are running. */
static void make_next_batch(struct vb_trainer *t)
{
    if (t->world == 1)
        return;
    (void)vb_trainer_next_batch(t);
    vb_lap(&t->laps, VB_PHASE_DATA);
}

/* Waits for the next bucket. Returns false after the last bucket, or if the sum failed. */
static bool next_bucket(struct vb_trainer *t, vb_status *st_p, size_t *first_p, size_t *n_p)
{
    uint64_t begin_ns = vb_trace_begin();

    *st_p = vb_buckets_next(dense_of(t)->buckets, first_p, n_p);
    vb_trace_end(begin_ns, VB_OP_SUMS, *n_p * sizeof(float));
    vb_lap_comm(&t->laps, t->place.group);
    return *st_p == VB_OK && *n_p > 0;
}

/* Receives the sums as they arrive. at_once: parameters are updated bucket by bucket, and the
 * forward pass of the next step begins with the updated ones. Otherwise the caller updates all
 * parameters afterwards. */
static vb_status take_all(struct vb_trainer *t, float scale, float rate, bool at_once)
{
    struct dense *d = dense_of(t);
    size_t first, n;
    vb_status st;

    make_next_batch(t);
    while (next_bucket(t, &st, &first, &n)) {
        if (t->recipe.clip > 0 && !t->replay.on)
            vb_k_norm_add(&d->clip.norm, vb_buckets_grads(d->buckets), first, n);
        vb_lap(&t->laps, VB_PHASE_UPDATE);
        if (!at_once)
            continue;
        update(t, first, n, scale, rate);
        note_new(&d->early, first, n);
        forward_early(t);
    }
    return st;
}

static void update_shared(struct vb_trainer *t, const struct vb_shared_args *u, size_t first,
                          size_t n)
{
    uint64_t begin_ns = vb_trace_begin();

    vb_shared_update_run(dense_of(t)->shared, u, first, n);
    vb_trace_end(begin_ns, VB_OP_UPDATE, n * sizeof(float) / (size_t)t->world);
}

/* Updates this rank's part of each bucket, and then waits until all ranks have updated their
 * parts. */
static vb_status update_shares(struct vb_trainer *t, const struct vb_shared_args *u)
{
    struct dense *d = dense_of(t);
    size_t first, n;
    vb_status st;

    make_next_batch(t);
    while (next_bucket(t, &st, &first, &n))
        update_shared(t, u, first, n);
    if (st == VB_OK)
        st = vb_buckets_barrier(d->buckets);
    vb_lap_comm(&t->laps, t->place.group);
    return st;
}

/* Like apply(), for ranks that share the update. The ranks' gradients are not overwritten by sums,
 * so they are summed once more if the gradient has to be clipped. */
static vb_status apply_shared(struct vb_trainer *t, float scale, float rate)
{
    struct dense *d = dense_of(t);
    struct dense_copies *c = &d->copies;
    bool clips = t->recipe.clip > 0;
    struct vb_shared_args u = {
        .params = c->params[c->now],
        .state = c->state[c->now],
        .state_ahead =
            c->state[c->now] != NULL ? (size_t)(c->state[c->now] - c->params[c->now]) : 0,
        .scale = scale,
        .rate = rate,
        .norm = clips || t->step % NORM_EVERY == 0,
        .norm_only = clips && d->clip.last,
    };
    vb_status st = update_shares(t, &u);
    double norm;
    float part;

    if (st != VB_OK || !u.norm)
        return st;
    norm = vb_shared_update_norm(d->shared) * (double)scale;
    vb_train_record_norm(t, norm);
    if (vb_train_noise_wants_sum(t))
        vb_train_noise_sum(t, norm, 0);
    if (!clips)
        return VB_OK;
    part = vb_k_clip(norm, t->recipe.clip);
    d->clip.last = part != 1;
    if (!u.norm_only && !d->clip.last)
        return VB_OK;
    u.norm = u.norm_only = false;
    u.scale = scale * part;
    update_shared(t, &u, 0, d->n_params);
    st = vb_buckets_barrier(d->buckets);
    vb_lap_comm(&t->laps, t->place.group);
    return st;
}

/* Clipping needs the norm of the whole gradient, but most gradients are not clipped. So if the step
 * is not made in place and the last gradient was not clipped, the update is made
 * without clipping, and it is repeated if clipping turns out to be needed. */
static vb_status apply(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    float scale = 1.f / (float)t->batch->n_global, rate = vb_k_rate(&t->recipe.schedule, t->step);
    bool clips = t->recipe.clip > 0 && !t->replay.on, again = d->copies.next != d->copies.now;
    bool at_once = !clips || (again && !d->clip.last);
    double norm;
    vb_status st;
    float part;

    if (d->shared != NULL && !t->sums.off)
        return apply_shared(t, scale, rate);
    d->early = (struct dense_early){.step = t->step + 1, .low = d->n_params, .end = d->n_params};
    if (clips)
        vb_k_norm_begin(&d->clip.norm, d->n_params);
    st = take_all(t, scale, rate, at_once);
    if (st == VB_OK && !clips && !t->replay.on) {
        vb_train_record_gradient_norm(t, vb_buckets_grads(d->buckets), d->n_params, scale);
        vb_lap(&t->laps, VB_PHASE_UPDATE);
    }
    if (st != VB_OK || !clips)
        return st;
    norm = vb_k_norm_end(&d->clip.norm) * (double)scale;
    vb_train_record_norm(t, norm);
    if (vb_train_noise_wants_sum(t))
        vb_train_noise_sum(t, norm, 0);
    part = vb_k_clip(norm, t->recipe.clip);
    d->clip.last = part != 1;
    if (at_once && !d->clip.last)
        return VB_OK;
    /* The early forward pass has used parameters that are replaced now. */
    d->early.batch = NULL;
    update(t, 0, d->n_params, scale * part, rate);
    return VB_OK;
}

/* Computes a gradient only to measure it. */
static void measure_norm(struct vb_trainer *t, const struct vb_model_batch *batch)
{
    struct dense *d = dense_of(t);
    float *grads = vb_buckets_grads(d->buckets);

    if (!vb_train_record_wants_norm(t))
        return;
    vb_model_backward(d->model, d->copies.params[d->copies.now], batch, grads, NULL, NULL);
    vb_train_record_norm(t, vb_k_norm(grads, d->n_params) / t->batch->n_global);
}

/* Returns the parameters that a step in place changes. If a checkpoint holds them, the others get
 * their values first. Models that descend in place are small, and their rule has no state. */
static float *leave_held(struct dense *d)
{
    struct dense_copies *c = &d->copies;

    if (c->next != c->now)
        memcpy(c->params[c->next], c->params[c->now], d->n_params * sizeof(float));
    c->now = c->next;
    return c->params[c->now];
}

/* Plain SGD on a single rank adds to the parameters directly, without storing a gradient. Returns
 * false, and changes nothing, if this is not possible. */
static bool descend(struct vb_trainer *t, const struct vb_model_batch *batch)
{
    const struct vb_recipe *r = &t->recipe;
    struct dense *d = dense_of(t);
    float rate = vb_k_rate(&r->schedule, t->step);
    uint64_t begin_ns;

    if (d->copies.swaps || !vb_trainer_has_pixels(t) || vb_trainer_has_pieces(t) || t->replay.on ||
        r->rule.kind != VB_K_SGD || r->rule.decay != 0 || r->clip > 0)
        return false;
    measure_norm(t, batch);
    begin_ns = vb_trace_begin();
    if (!vb_model_descend(d->model, batch, -rate / (float)t->batch->n_global, leave_held(d)))
        return false;
    vb_trace_end(begin_ns, VB_OP_BACKWARD, 0);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    d->kept = false;
    return true;
}

/* Returns whether the norm of this step's summed gradient can be known. */
static bool knows_norm(const struct vb_trainer *t)
{
    return dense_of(t)->shared == NULL || t->recipe.clip > 0 || t->step % NORM_EVERY == 0;
}

/* Chooses the copy that the next step writes: neither the last complete step nor one that is being
 * saved. */
static int next_copy(const struct dense_copies *c)
{
    int i;

    if (!c->swaps && c->now != c->held)
        return c->now;
    if (c->before != c->now && c->before != c->held)
        return c->before;
    for (i = 0; i == c->now || i == c->held; i++)
        ;
    return i;
}

static void commit(struct dense_copies *c)
{
    c->before = c->now;
    c->now = c->next;
}

static vb_status dense_step(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);
    const float *params = d->copies.params[d->copies.now];
    struct vb_model_batch batch;
    uint64_t begin_ns;
    double loss = 0;
    vb_status st = vb_dense_first_pieces(t, params, &loss);

    d->copies.next = next_copy(&d->copies);
    if (st == VB_OK)
        st = vb_dense_forward(t, params, &batch, &loss, t->step + 1);
    if (st != VB_OK)
        return st;
    begin_ns = vb_trace_next(); /* an injected delay is a part of the pass */
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    if (descend(t, &batch))
        return VB_OK;
    d->kept = true;
    if (d->shared != NULL)
        vb_shared_update_aim(d->shared, d->copies.next);
    vb_train_noise_begin(t, knows_norm(t));
    vb_buckets_begin(d->buckets);
    vb_dense_last_backward(t, params, &batch);
    vb_replay_passed(t);
    vb_trace_end(begin_ns, VB_OP_BACKWARD, 0);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    st = vb_dense_in_vain(t);
    if (st == VB_OK)
        st = apply(t);
    if (st == VB_OK)
        st = vb_train_commit(t, t->step + 1);
    if (st == VB_OK && !t->replay.on) /* otherwise no copy was written */
        commit(&d->copies);
    return st;
}

/* Parameters and state are one array, which is sent through the window of the gradients. */
static vb_status dense_copy(struct vb_trainer *t, int from, bool lacks, int64_t step)
{
    struct dense *d = dense_of(t);
    struct dense_copies *c = &d->copies;
    size_t words = (size_t)vb_k_rule_states(t->recipe.rule.kind), at, n, len = d->n_params;
    vb_status st = VB_OK;
    float *to, *window = vb_buckets_grads(d->buckets);

    if (words > 0)
        len = (size_t)(c->state[c->now] - c->params[c->now]) + words * d->n_params;
    c->next = next_copy(c);
    to = c->params[c->next];
    for (at = 0; at < len && st == VB_OK && !t->replay.on; at += n) {
        n = len - at < d->n_params ? len - at : d->n_params;
        if (t->rank == from)
            memcpy(window, c->params[c->now] + at, n * sizeof(float));
        st = vb_buckets_broadcast(d->buckets, from, n);
        if (st == VB_OK && lacks)
            memcpy(to + at, window, n * sizeof(float));
    }
    if (st == VB_OK && lacks)
        st = vb_train_commit(t, step);
    if (st == VB_OK && lacks && !t->replay.on)
        commit(c);
    return st;
}

static void dense_regrouped(struct vb_trainer *t)
{
    struct dense *d = dense_of(t);

    vb_buckets_regrouped(d->buckets);
    if (d->shared != NULL)
        vb_shared_update_regrouped(d->shared, d->buckets);
    d->kept = false;
    d->clip.last = false;
    d->early.batch = NULL;
}

static vb_status dense_sum_again(struct vb_trainer *t, size_t *bytes_p)
{
    *bytes_p = dense_of(t)->n_params * sizeof(float);
    return vb_buckets_again(dense_of(t)->buckets);
}

static void dense_forget(struct vb_trainer *t)
{
    dense_of(t)->early.batch = NULL;
}

/* ---- evaluation and checkpoints -------------------------------------------------------------- */

/* Notes the classes of a batch and what was predicted for them, until several were found. */
static void note_classes(const struct dense *d, const struct vb_model_batch *batch,
                         struct vb_eval_sum *sum)
{
    int i;

    for (i = 0; i < batch->n && sum->labels >= 0; i++)
        vb_eval_class(&sum->labels, batch->y[i] + 1);
    for (i = 0; i < batch->n && sum->predicted >= 0; i++)
        vb_eval_class(&sum->predicted, vb_model_predicted(d->model, batch, i) + 1);
}

static vb_status dense_evaluate(struct vb_trainer *t, int first, int n, struct vb_eval_sum *sum)
{
    struct dense *d = dense_of(t);
    size_t row = (size_t)t->data.test.features;
    struct vb_model_batch batch = {
        .x = d->eval.x, .pixels = d->pixels_test, .which = d->eval.which, .y = d->eval.y};
    struct vb_model_loss loss;
    int i;

    d->early.batch = NULL; /* evaluation overwrites the outputs of the layers */
    for (; n > 0; n -= batch.n, first += batch.n) {
        batch.n = n < d->eval.max ? n : d->eval.max;
        for (i = 0; i < batch.n; i++)
            d->eval.which[i] = (uint32_t)(first + i);
        vb_dataset_pick(&t->data.test, d->eval.which, batch.n, d->eval.x, d->eval.y);
        if (d->eval.x != NULL && batch.n < d->eval.max)
            memset(d->eval.x + (size_t)batch.n * row, 0,
                   (size_t)(d->eval.max - batch.n) * row * sizeof(float));
        (void)vb_trace_begin(); /* the first layer begins now */
        vb_model_forward(d->model, d->copies.params[d->copies.now], &batch, &loss);
        if (!isfinite(loss.loss))
            return vb_health_layers(t, t->step, d->model, d->copies.params[d->copies.now], &batch);
        sum->loss += loss.loss;
        sum->correct += loss.correct;
        note_classes(d, &batch, sum);
    }
    return VB_OK;
}

static const float *dense_params(struct vb_trainer *t, size_t *n_p)
{
    const struct dense *d = dense_of(t);

    *n_p = d->n_params;
    return d->copies.params[d->copies.now];
}

static double dense_flops(const struct vb_trainer *t)
{
    return vb_model_flops(dense_of(t)->model);
}

static const struct vb_param *dense_tensors(struct vb_trainer *t, int *n_p)
{
    return vb_model_table(dense_of(t)->model, n_p);
}

/* Ranks that share the update keep their own gradients. */
static const float *dense_gradient(struct vb_trainer *t, size_t *n_p, float *scale_p)
{
    struct dense *d = dense_of(t);
    const float *params = d->copies.params[d->copies.now];
    float *grads = d->buckets != NULL ? vb_buckets_grads(d->buckets) : t->grads_room;
    struct vb_model_batch batch;
    struct vb_model_loss loss;

    if (t->batch == NULL || t->batch->n == 0 || grads == NULL)
        return NULL;
    *n_p = d->n_params;
    *scale_p = 1.f / (float)(d->shared != NULL ? t->batch->n_share : t->batch->n_global);
    if (d->kept)
        return grads;
    *scale_p = 1.f / (float)t->batch->n;
    batch = vb_dense_batch(t, t->batch, t->step);
    vb_model_forward(d->model, params, &batch, &loss);
    vb_model_backward(d->model, params, &batch, grads, NULL, NULL);
    return grads;
}

static float *dense_memory(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p)
{
    const struct dense_copies *c = &dense_of(t)->copies;

    *n_p = dense_of(t)->n_params;
    *state_p = c->state[c->now];
    *words_p = vb_k_rule_states(t->recipe.rule.kind);
    return c->params[c->now];
}

static vb_status dense_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    const struct vb_param *table = vb_model_table(d->model, &cp->n_arrays);
    const float *params = d->copies.params[d->copies.now], *state = d->copies.state[d->copies.now];
    struct vb_checkpoint_array *a = d->arrays;
    int i;

    for (i = 0; i < cp->n_arrays; i++, a++) {
        snprintf(a->name, sizeof(a->name), "%s", table[i].name);
        a->type = VB_ARRAY_F32;
        a->rows = table[i].rows;
        a->cols = table[i].cols;
        a->data = params + table[i].offset;
    }
    if (state != NULL) {
        *a = (struct vb_checkpoint_array){.name = "state",
                                          .type = VB_ARRAY_F32,
                                          .rows = (int64_t)d->n_params,
                                          .cols = 1,
                                          .state = true,
                                          .data = state};
        cp->n_arrays++;
    }
    cp->arrays = d->arrays;
    return VB_OK;
}

static bool dense_hold(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct dense_copies *c = &dense_of(t)->copies;

    if (cp != NULL && c->n < (c->swaps ? 3 : 2))
        return false;
    c->held = cp != NULL ? c->now : -1;
    if (t->async && cp != NULL) /* the next snapshot goes into the other copy */
        c->now = 1 - c->now;
    return true;
}

static vb_status copy_array(const struct vb_checkpoint *cp, const char *name, size_t n, float *to)
{
    const float *data = vb_checkpoint_data(cp, name, VB_ARRAY_F32, n);

    if (data == NULL)
        return VB_ERR_INPUT;
    if (data != to) /* dense_land() */
        memcpy(to, data, n * sizeof(float));
    return VB_OK;
}

static void *dense_land(struct vb_trainer *t, const struct vb_checkpoint_array *a)
{
    struct dense *d = dense_of(t);
    struct dense_copies *c = &d->copies;
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);

    if (c->now == c->held || a->type != VB_ARRAY_F32)
        return NULL;
    if (strcmp(a->name, "state") == 0 && c->state[c->now] != NULL && a->cols == 1 &&
        a->rows == (int64_t)d->n_params)
        return c->state[c->now];
    for (i = 0; i < n; i++)
        if (strcmp(a->name, table[i].name) == 0 && a->rows == table[i].rows &&
            a->cols == table[i].cols)
            return c->params[c->now] + table[i].offset;
    return NULL;
}

static vb_status dense_restore(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    struct dense_copies *c = &d->copies;
    vb_status st = VB_OK;
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);
    float *params, *state;

    if (c->now == c->held)
        c->now = next_copy(c);
    params = c->params[c->now];
    state = c->state[c->now];
    d->early.batch = NULL;
    for (i = 0; i < n && st == VB_OK; i++)
        st = copy_array(cp, table[i].name, (size_t)table[i].rows * (size_t)table[i].cols,
                        params + table[i].offset);
    if (st == VB_OK && state != NULL)
        st = copy_array(cp, "state", d->n_params, state);
    return st;
}

const struct vb_trainer_ops vb_trainer_dense = {
    .compile = vb_dense_compile,
    .create = vb_dense_create,
    .step = dense_step,
    .sum_again = dense_sum_again,
    .copy = dense_copy,
    .regrouped = dense_regrouped,
    .form = vb_dense_form,
    .formed = vb_dense_formed,
    .ahead = vb_dense_ahead,
    .forget = dense_forget,
    .evaluate = dense_evaluate,
    .params = dense_params,
    .flops = dense_flops,
    .tensors = dense_tensors,
    .gradient = dense_gradient,
    .save = dense_save,
    .hold = dense_hold,
    .restore = dense_restore,
    .land = dense_land,
    .memory = dense_memory,
    .close = vb_dense_close,
    .destroy = vb_dense_destroy,
};
