/* SPDX-License-Identifier: MIT
 *
 * The steps of a worker with a dense model. In each step the worker gets a ticket, reads
 * parameters, computes a gradient and pushes it. With hogwild the worker updates the server's
 * parameters itself.
 */
#include "engine/async/train_async_priv.h"

#include <stdlib.h>

/* Returns the factor for the gradient, which is a sum over samples. With a bound of 0 the server
 * ignores this factor: the server scales and clips the sum of all workers' gradients. */
static float scale_of(const struct vb_async *a, const float *grads)
{
    struct vb_trainer *t = a->trainer;
    float scale = 1.f / (float)(t->batch->n > 0 ? t->batch->n : 1);

    vb_train_record_gradient_norm(t, grads, a->job.n, scale);
    if (t->recipe.clip > 0 && a->job.bound != 0)
        scale *= vb_k_clip(vb_k_norm(grads, a->job.n) * (double)scale, t->recipe.clip);
    return scale;
}

/* Makes one step. own: a buffer for the gradient, used if the gradient cannot be computed directly
 * into its slot. */
static vb_status step(struct vb_async *a, float *own)
{
    struct vb_trainer *t = a->trainer;
    const float *params;
    float *grads = NULL, scale;
    uint64_t begin_ns = vb_trace_begin();
    vb_status st = vb_ps_worker_pull(a->worker, &params);

    if (st == VB_OK)
        st = vb_ps_worker_grads(a->worker, &grads);
    begin_ns = vb_trace_end(begin_ns, VB_OP_PULL, a->job.n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_COMM);
    if (st == VB_OK)
        st = vb_async_repartition(a);
    vb_train_does(t, VB_DOES_LOAD);
    if (st == VB_OK)
        st = vb_loader_next(t->loader, &t->batch);
    vb_train_does(t, VB_DOES_COMPUTE);
    vb_trace_end(begin_ns, VB_OP_DATA, 0);
    vb_lap(&t->laps, VB_PHASE_DATA);
    vb_inject_idle(t, VB_PHASE_DATA);
    if (st != VB_OK)
        return st;
    grads = grads != NULL ? grads : own;
    st = vb_dense_gradient(t, params, grads, (int64_t)a->worker->version + 1);
    if (st != VB_OK)
        return st;
    scale = scale_of(a, grads);
    t->batch_n = t->batch->n;
    begin_ns = vb_trace_begin();
    st = vb_ps_worker_push(a->worker, grads, (uint32_t)t->batch->n, scale);
    if (st == VB_OK)
        st = vb_ps_worker_prefetch(a->worker);
    vb_trace_end(begin_ns, VB_OP_PUSH, a->job.n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_COMM);
    return st == VB_OK ? vb_async_step_done(a) : st;
}

static vb_status step_in_place(struct vb_async *a, float *grads)
{
    struct vb_trainer *t = a->trainer;
    struct vb_k_update u = {.n = a->job.n, .grads = grads};
    const float *params;
    void *state;
    uint64_t begin_ns = vb_trace_begin();
    vb_status st = vb_ps_worker_pull(a->worker, &params);

    begin_ns = vb_trace_end(begin_ns, VB_OP_PULL, a->job.n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_COMM);
    vb_train_does(t, VB_DOES_LOAD);
    if (st == VB_OK)
        st = vb_loader_next(t->loader, &t->batch);
    vb_train_does(t, VB_DOES_COMPUTE);
    vb_trace_end(begin_ns, VB_OP_DATA, 0);
    vb_lap(&t->laps, VB_PHASE_DATA);
    vb_inject_idle(t, VB_PHASE_DATA);
    if (st != VB_OK)
        return st;
    st = vb_dense_gradient(t, params, grads, (int64_t)a->worker->version + 1);
    if (st != VB_OK)
        return st;
    u.params_out = vb_ps_worker_shared(a->worker, &state);
    u.state_out = state;
    u.scale = scale_of(a, grads);
    u.rate = vb_k_rate(&t->recipe.schedule, (int64_t)a->worker->version);
    begin_ns = vb_trace_begin();
    vb_k_shared_update(&t->recipe.rule, &u);
    vb_ps_worker_touched(a->worker, 0, 0, a->job.n);
    vb_ps_worker_applied(a->worker);
    vb_trace_end(begin_ns, VB_OP_UPDATE, u.n * sizeof(float));
    vb_lap(&t->laps, VB_PHASE_UPDATE);
    t->batch_n = t->batch->n;
    st = vb_async_step_done(a);
    return st == VB_OK && a->worker->due != 0 ? vb_async_do_due(a) : st;
}

vb_status vb_async_run_dense(struct vb_async *a)
{
    float *own = vb_alloc_aligned(a->job.n * sizeof(float));
    vb_status st = VB_OK;
    bool go = true;

    if (own == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu gradients", a->job.n);
    a->trainer->grads_room = own;
    while (st == VB_OK && go) {
        if (a->job.hogwild) {
            st = vb_async_claim(a, &go);
            if (st == VB_OK && go)
                st = step_in_place(a, own);
            continue;
        }
        st = vb_async_ticket(a, &go);
        if (st == VB_OK && go)
            st = step(a, own);
    }
    a->trainer->grads_room = NULL;
    free(own);
    return st;
}
