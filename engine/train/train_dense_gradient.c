/* SPDX-License-Identifier: MIT
 *
 * The gradient of a rank's share of a step. The plan is for a number of samples. If the share is
 * larger, because the run goes on with fewer ranks, it is computed in pieces of this number:
 *
 *     sum = g(piece 0);  sum += g(piece 1);  ...  window = g(last piece) + sum
 *
 * The last sum is made layer by layer, as backward hands the layers over. So the sums over ranks
 * overlap with the backward pass of the last piece as they do without pieces.
 */
#include "engine/train/train_dense_priv.h"

#include <math.h>

/* Asked before each layer. After the last one nobody asks: the sums of the step may be complete. */
static bool is_in_vain(void *arg)
{
    struct vb_trainer *t = arg;

    dense_of(t)->lost = vb_group_lost(t->place.group);
    return dense_of(t)->lost >= 0;
}

vb_status vb_dense_in_vain(struct vb_trainer *t)
{
    struct vb_group *group = t->place.group;
    int rank = dense_of(t)->lost;

    if (rank < 0)
        return VB_OK;
    VB_LOG_INFO("step %lld was given up, because rank %d (%s) is gone: %s", (long long)t->step + 1,
                vb_group_id(group, rank), vb_group_host(group, rank),
                vb_group_gone_why(group, rank));
    return VB_ERR_PEER;
}

/* Ranks that share a batch drop the same as one rank would. Workers that have batches of their own
 * have masks of their own. */
struct vb_model_batch vb_dense_batch(const struct vb_trainer *t, const struct vb_batch *batch,
                                     int64_t step)
{
    return (struct vb_model_batch){.n = batch->n,
                                   .x = batch->x,
                                   .pixels = dense_of(t)->pixels,
                                   .which = batch->which,
                                   .soon = batch->soon,
                                   .n_soon = batch->n_soon,
                                   .y = batch->y,
                                   .training = true,
                                   .seed =
                                       t->o->seed + (vb_train_apart(t->o) ? (uint64_t)t->rank : 0),
                                   .step = (uint64_t)step,
                                   .position = (uint64_t)batch->first};
}

vb_status vb_dense_forward(struct vb_trainer *t, const float *params,
                           struct vb_model_batch *batch_p, double *loss_p, int64_t step)
{
    struct dense_early *e = &dense_of(t)->early;
    /* layers that forward_early() has already run on this batch */
    int done = e->batch == t->batch && e->step == t->step ? e->layers : 0;
    struct vb_model_loss loss;
    uint64_t begin_ns = vb_trace_next();
    vb_status st;

    e->batch = NULL;
    dense_of(t)->lost = -1;
    *batch_p = vb_dense_batch(t, t->batch, t->step);
    if (t->recoveries.list != NULL) {
        batch_p->stop = is_in_vain;
        batch_p->stop_arg = t;
    }
    if (!t->batch->more)
        vb_inject_idle(t, VB_PHASE_FORWARD);
    vb_model_forward_from(dense_of(t)->model, params, batch_p, done, &loss);
    st = vb_dense_in_vain(t);
    if (st != VB_OK)
        return st;
    *loss_p += loss.loss;
    t->loss = t->batch->n_share > 0 ? *loss_p / t->batch->n_share : t->loss;
    if (t->replay.on)
        t->loss = (double)NAN;
    vb_trace_end(begin_ns, VB_OP_FORWARD, 0);
    vb_lap(&t->laps, VB_PHASE_FORWARD);
    if (isfinite(t->loss) || t->replay.on)
        return VB_OK;
    return vb_health_layers(t, step, dense_of(t)->model, params, batch_p);
}

vb_status vb_dense_gradient(struct vb_trainer *t, const float *params, float *grads, int64_t step)
{
    struct vb_model_batch batch;
    uint64_t begin_ns;
    double loss = 0;
    vb_status st = vb_dense_forward(t, params, &batch, &loss, step);

    if (st != VB_OK)
        return st;
    begin_ns = vb_trace_next(); /* an injected delay is a part of the pass */
    vb_inject_idle(t, VB_PHASE_BACKWARD);
    vb_model_backward(dense_of(t)->model, params, &batch, grads, NULL, NULL);
    vb_trace_end(begin_ns, VB_OP_BACKWARD, 0);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
    return VB_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void add_to_sum(void *arg, size_t first, size_t n)
{
    struct dense *d = arg;
    float *sum = d->pieces.ptr;

    vb_k_add(sum + first, vb_buckets_grads(d->buckets) + first, n);
}

static void add_sum(void *arg, size_t first, size_t n)
{
    struct dense *d = arg;
    const float *sum = d->pieces.ptr;

    vb_k_add(vb_buckets_grads(d->buckets) + first, sum + first, n);
    vb_buckets_ready(d->buckets, first, n);
}

/* The first gradient needs no addition. */
static void piece_backward(struct vb_trainer *t, const float *params,
                           const struct vb_model_batch *batch, bool is_first)
{
    struct dense *d = dense_of(t);
    uint64_t begin_ns = vb_trace_next();

    if (is_first)
        vb_model_backward(d->model, params, batch, d->pieces.ptr, NULL, NULL);
    else
        vb_model_backward(d->model, params, batch, vb_buckets_grads(d->buckets), add_to_sum, d);
    vb_trace_end(begin_ns, VB_OP_BACKWARD, 0);
    vb_lap(&t->laps, VB_PHASE_BACKWARD);
}

vb_status vb_dense_first_pieces(struct vb_trainer *t, const float *params, double *loss_p)
{
    struct vb_model_batch batch;
    bool is_first = true;
    vb_status st = VB_OK;

    while (st == VB_OK && t->batch->more) {
        st = vb_dense_forward(t, params, &batch, loss_p, t->step + 1);
        if (st != VB_OK)
            return st;
        piece_backward(t, params, &batch, is_first);
        is_first = false;
        st = vb_trainer_load(t);
    }
    return st;
}

void vb_dense_last_backward(struct vb_trainer *t, const float *params,
                            const struct vb_model_batch *batch)
{
    struct dense *d = dense_of(t);
    bool only = t->batch->n == t->batch->n_share;

    vb_model_backward(d->model, params, batch, vb_buckets_grads(d->buckets),
                      only ? vb_buckets_ready : add_sum, only ? (void *)d->buckets : d);
}
