/* SPDX-License-Identifier: MIT
 *
 * Synchronous training, on one rank or on many: each rank computes the gradient of its share of a
 * global batch, all add theirs up, and every rank makes the same step with the mean.
 *
 * The order of samples is drawn from the seed and the epoch, and shares are cut from it by rank;
 * so what a step trains on depends on the seed and the global batch, not on the number of ranks.
 * With another number of ranks the sums are associated in another way, and nothing else changes.
 */
#include "engine/train_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EVAL_BATCH 256
#define WATCH_NS 100000000u

struct trainer {
    const struct vb_train_opts *o;
    int rank, world;
    struct vb_place place;
    struct vb_dataset train, test;
    struct vb_softmax *model;
    struct vb_exchange *exchange; /* NULL: there are no others */
    uint32_t *order;              /* (train.n), of the epoch */
    float *x;                     /* (batch, features), the batch */
    uint16_t *classes;            /* (batch) */
    uint8_t *y;                   /* (batch), the same as the kernels want them */
    float *sum;                   /* (n_params), the gradient of all */
    int first, share;             /* of a global batch */
    double loss;                  /* of this rank's last batch, a sample */
    uint64_t watched_ns;
    struct vb_laps laps;
};

/* ---- setting up ------------------------------------------------------------------------------ */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static vb_status load_data(struct trainer *t)
{
    const struct vb_train_opts *o = t->o;
    vb_status st;

    st = vb_data_open(&o->data, o->seed, VB_SYNTH_TRAIN, &t->train);
    if (st == VB_OK)
        st = vb_data_open(&o->data, o->seed, VB_SYNTH_TEST, &t->test);
    return st;
}

static vb_status make_buffers(struct trainer *t)
{
    size_t batch = (size_t)larger(t->share, EVAL_BATCH);

    t->order = vb_alloc_aligned((size_t)larger(t->train.n, t->test.n) * sizeof(*t->order));
    t->x = vb_alloc_aligned(batch * (size_t)t->train.features * sizeof(*t->x));
    t->classes = vb_alloc_aligned(batch * sizeof(*t->classes));
    t->y = vb_alloc_aligned(batch);
    t->sum = vb_alloc_aligned(t->model->n_params * sizeof(*t->sum));
    if (t->order != NULL && t->x != NULL && t->classes != NULL && t->y != NULL && t->sum != NULL)
        return VB_OK;
    return vb_err(VB_ERR_NO_MEMORY, "no memory for a batch of %d", t->share);
}

static vb_status set_up(struct trainer *t)
{
    vb_status st;

    vb_share(t->o->global_batch, t->rank, t->world, &t->first, &t->share);
    st = load_data(t);
    if (st == VB_OK)
        st = vb_softmax_create(t->train.features, t->train.classes, larger(t->share, EVAL_BATCH),
                               &t->model);
    if (st == VB_OK)
        st = make_buffers(t);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_exchange_create(t->place.group, t->model->n_params, &t->exchange);
    return st;
}

static void tear_down(struct trainer *t)
{
    vb_exchange_close(t->exchange);
    vb_place_close(&t->place);
    vb_exchange_destroy(t->exchange);
    free(t->order);
    free(t->x);
    free(t->classes);
    free(t->y);
    free(t->sum);
    vb_softmax_destroy(t->model);
    vb_dataset_destroy(&t->train);
    vb_dataset_destroy(&t->test);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void pick(struct trainer *t, const struct vb_dataset *set, const uint32_t *which, int n)
{
    int i;

    vb_dataset_pick(set, which, n, t->x, t->classes);
    for (i = 0; i < n; i++)
        t->y[i] = (uint8_t)t->classes[i];
}

static void next_batch(struct trainer *t, int64_t step)
{
    int per_epoch = vb_train_steps_per_epoch(t->o);
    int64_t epoch = step / per_epoch, in_epoch = step % per_epoch;

    if (in_epoch == 0)
        vb_order_fill(t->o->seed, epoch, t->train.n, t->order);
    pick(t, &t->train, t->order + in_epoch * t->o->global_batch + t->first, t->share);
    vb_lap(&t->laps, VB_PHASE_DATA);
}

/* The gradient of this rank's share, summed over its samples. */
static void compute(struct trainer *t, float *grads)
{
    vb_softmax_forward(t->model, t->x, t->share);
    t->loss = vb_softmax_loss(t->model, t->y, t->share) / t->share;
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    vb_softmax_backward(t->model, t->x, t->share, grads);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
}

static vb_status run_step(struct trainer *t, int64_t step)
{
    float *grads = t->sum;
    vb_status st = VB_OK;

    next_batch(t, step);
    if (t->exchange != NULL) {
        st = vb_exchange_begin(t->exchange, &grads);
        vb_lap(&t->laps, VB_PHASE_COMM);
    }
    if (st != VB_OK)
        return st;
    compute(t, grads);
    if (t->exchange != NULL) {
        st = vb_exchange_sum(t->exchange, &t->laps, t->sum);
        vb_group_step(t->place.group);
    }
    if (st != VB_OK)
        return st;
    vb_softmax_update(t->model, t->sum, (float)(t->o->lr / t->o->global_batch));
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    return VB_OK;
}

/* The clock was read at the end of the step; what is shown is too rare to count. */
static void show(struct trainer *t, int64_t step)
{
    if (t->o->watch == NULL || t->rank != 0 || t->laps.mark_ns - t->watched_ns < WATCH_NS)
        return;
    t->watched_ns = t->laps.mark_ns;
    t->o->watch(t->o->watch_arg, step + 1, t->o->steps, t->loss);
}

static vb_status run_steps(struct trainer *t)
{
    vb_status st = VB_OK;
    int64_t step;

    for (step = 0; step < t->o->steps && st == VB_OK; step++) {
        st = run_step(t, step);
        show(t, step);
    }
    if (st == VB_OK && t->exchange != NULL) {
        st = vb_exchange_flush(t->exchange);
        vb_lap(&t->laps, VB_PHASE_COMM);
    }
    return st;
}

/* Each rank judges its share of the test data; the figures are added up later. */
static void evaluate(struct trainer *t, struct vb_train_end *end)
{
    int first, n, i, len;

    for (i = 0; i < t->test.n; i++)
        t->order[i] = (uint32_t)i;
    vb_share(t->test.n, t->rank, t->world, &first, &n);
    for (i = first; i < first + n; i += len) {
        len = first + n - i < EVAL_BATCH ? first + n - i : EVAL_BATCH;
        pick(t, &t->test, t->order + i, len);
        vb_softmax_forward(t->model, t->x, len);
        end->correct += vb_softmax_correct(t->model, t->y, len);
        end->loss += vb_softmax_loss(t->model, t->y, len);
    }
    vb_lap(&t->laps, VB_PHASE_EVAL);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static vb_status work(struct trainer *t, struct vb_train_result *result)
{
    struct vb_train_end end = {.opts = t->o, .group = t->place.group, .laps = &t->laps};
    vb_status st = VB_OK;

    if (t->place.group != NULL)
        st = vb_train_agree(t->o, t->place.group);
    if (st == VB_OK)
        st = set_up(t);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_barrier(t->place.group); /* who is slow to set up is not slow to train */
    if (st != VB_OK)
        return st;
    vb_laps_begin(&t->laps);
    t->watched_ns = t->laps.begin_ns;
    st = run_steps(t);
    if (st != VB_OK)
        return st;
    evaluate(t, &end);
    end.model = t->model;
    return vb_train_collect(&end, result);
}

/* All find out about a lost peer, and about options that differ; anything else must be told. */
static void give_up(struct trainer *t, vb_status st)
{
    char why[96];

    if (t->place.group == NULL || st == VB_ERR_PEER || st == VB_ERR_TIMEOUT || st == VB_ERR_USAGE)
        return;
    snprintf(why, sizeof(why), "rank %d failed: %s", t->rank, vb_status_str(st));
    vb_group_abort(t->place.group, why);
}

int vb_train_steps_per_epoch(const struct vb_train_opts *o)
{
    return o->data.n_train / o->global_batch;
}

vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p)
{
    struct trainer t = {.o = o, .rank = o->group.rank, .world = o->group.world};
    uint64_t begin_ns = vb_clock_ns();
    vb_status st;

    st = vb_train_check(o);
    if (st == VB_OK)
        st = vb_place_open(o, &t.place);
    if (st != VB_OK)
        return st;
    st = work(&t, result_p);
    if (st != VB_OK)
        give_up(&t, st);
    tear_down(&t);
    if (st == VB_OK) {
        result_p->wall_s = (double)(vb_clock_ns() - begin_ns) / 1e9;
        if (t.rank == 0 && !isfinite(result_p->loss))
            VB_LOG_WARN("the loss is not finite: a learning rate of %g is too high", o->lr);
    }
    return st;
}
