/* SPDX-License-Identifier: MIT
 *
 * A step of a model: forward from layer to layer, the loss, and back again.
 *
 * Rows of the batch behind the last sample go the same way, as kernels are made for a whole batch;
 * the gradient of their logits is 0, so they add nothing to the gradients of the parameters.
 */
#include "models/model_priv.h"

#include <string.h>

/* ---- what layers are given ------------------------------------------------------------------- */

/* Dropout that does not drop passes on the pointer it is given. */
static bool passes_on(const struct vb_model *m, const struct model_layer *l,
                      const struct vb_model_batch *batch)
{
    return l->shape.kind == VB_K_DROPOUT && (m->forward_only || !batch->training);
}

/* What a layer takes in: what the nearest one before it that computes has put out. */
static const float *input_of(const struct vb_model *m, int i, const struct vb_model_batch *batch)
{
    for (i--; i >= 0; i--)
        if (!passes_on(m, &m->layers[i], batch))
            return m->layers[i].y;
    return batch->x;
}

/* Layers that drop must not drop the same elements: each has a seed of its own. */
static struct vb_k_args args_of(const struct vb_model *m, int i, const float *params,
                                const struct vb_model_batch *batch)
{
    const struct model_layer *l = &m->layers[i];
    struct vb_k_args args = {
        .x = input_of(m, i, batch),
        .y = l->y,
        .where = l->where,
        .seed = vb_random(batch->seed, (uint64_t)i),
        .step = batch->step,
        .scratch = m->scratch,
    };

    if (l->param >= 0) {
        args.w = params + m->params[l->param].offset;
        args.b = params + m->params[l->param + 1].offset;
    }
    return args;
}

static struct vb_k_picked picked_of(const struct vb_model_batch *batch)
{
    return (struct vb_k_picked){.order = batch->which,
                                .n = (size_t)batch->n,
                                .soon = batch->soon,
                                .n_soon = (size_t)batch->n_soon};
}

/* ---- forward --------------------------------------------------------------------------------- */

static void layer_forward(struct vb_model *m, int i, const float *params,
                          const struct vb_model_batch *batch)
{
    struct vb_k_args args;

    if (passes_on(m, &m->layers[i], batch))
        return;
    args = args_of(m, i, params, batch);
    vb_k_layer_run(m->layers[i].k, VB_K_FORWARD, &args);
}

/* Where the parameters of a layer end; 0: it has none. */
static size_t params_end(const struct vb_model *m, int i)
{
    const struct vb_param *b = &m->params[m->layers[i].param + 1];

    return m->layers[i].param >= 0 ? b->offset + (size_t)b->cols : 0;
}

int vb_model_forward_part(struct vb_model *model, const float *params,
                          const struct vb_model_batch *batch, int layer, size_t n_ready)
{
    int i = layer;

    if (i >= model->n_layers || params_end(model, i) > n_ready)
        return layer;
    do
        layer_forward(model, i++, params, batch);
    while (i < model->n_layers && params_end(model, i) == 0);
    return i;
}

static void judge(struct vb_model *m, const struct vb_model_batch *batch,
                  struct vb_model_loss *loss_p)
{
    size_t classes = (size_t)m->classes, n = (size_t)batch->n, i;

    for (i = 0; i < n; i++)
        VB_ASSERT(batch->y[i] < m->classes);
    loss_p->loss = vb_k_softmax_xent(m->logits, batch->y, n, m->classes, &loss_p->correct);
    memset(m->logits + n * classes, 0, ((size_t)m->batch_max - n) * classes * sizeof(float));
}

void vb_model_forward_from(struct vb_model *model, const float *params,
                           const struct vb_model_batch *batch, int layer,
                           struct vb_model_loss *loss_p)
{
    const struct vb_k_picked picked = picked_of(batch);
    int i;

    VB_ASSERT(batch->n >= 0 && batch->n <= model->batch_max);
    if (model->pixels)
        vb_k_pixels_forward(batch->pixels, &picked, params + model->params[0].offset,
                            params + model->params[1].offset, model->classes, model->logits);
    for (i = layer; i < model->n_layers; i++)
        layer_forward(model, i, params, batch);
    judge(model, batch, loss_p);
}

void vb_model_forward(struct vb_model *model, const float *params,
                      const struct vb_model_batch *batch, struct vb_model_loss *loss_p)
{
    vb_model_forward_from(model, params, batch, 0, loss_p);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct told {
    vb_grads_fn fn;
    void *arg;
};

static void tell(const struct vb_model *m, int param, const struct told *ready)
{
    const struct vb_param *w = &m->params[param], *b = w + 1;

    if (ready->fn != NULL)
        ready->fn(ready->arg, w->offset, b->offset + (size_t)b->cols - w->offset);
}

/* Weights first: whoever waits for their gradients can begin while the data's are computed. */
static void layer_backward(struct vb_model *m, int i, struct vb_k_args *args, float *grads,
                           const struct told *ready)
{
    const struct model_layer *l = &m->layers[i];

    if (l->param >= 0) {
        args->dw = grads + m->params[l->param].offset;
        args->db = grads + m->params[l->param + 1].offset;
        vb_k_layer_run(l->k, VB_K_BACKWARD_WEIGHTS, args);
        tell(m, l->param, ready);
    }
    vb_k_layer_run(l->k, VB_K_BACKWARD_DATA, args);
}

static void run_backward(struct vb_model *m, const float *params,
                         const struct vb_model_batch *batch, float *grads, const struct told *ready)
{
    float *dy = m->logits;
    struct vb_k_args args;
    int i, turn = 0;

    for (i = m->n_layers - 1; i >= m->first; i--) {
        const struct model_layer *l = &m->layers[i];

        if (passes_on(m, l, batch))
            continue;
        if (l->shape.relu)
            vb_k_relu_mask(l->y, dy, vb_k_shape_outputs(&l->shape));
        args = args_of(m, i, params, batch);
        args.dy = dy;
        args.dx = m->d[turn];
        layer_backward(m, i, &args, grads, ready);
        dy = m->d[turn];
        turn ^= 1;
    }
}

void vb_model_backward(struct vb_model *model, const float *params,
                       const struct vb_model_batch *batch, float *grads, vb_grads_fn ready,
                       void *arg)
{
    const struct vb_k_picked picked = picked_of(batch);
    const struct told told = {ready, arg};

    VB_ASSERT(!model->forward_only);
    if (!model->pixels) {
        run_backward(model, params, batch, grads, &told);
        return;
    }
    vb_k_pixels_backward(batch->pixels, &picked, model->logits, model->classes,
                         grads + model->params[0].offset, grads + model->params[1].offset);
    tell(model, 0, &told);
}

bool vb_model_descend(const struct vb_model *model, const struct vb_model_batch *batch, float scale,
                      float *params)
{
    const struct vb_k_picked picked = picked_of(batch);

    if (!model->pixels)
        return false;
    vb_k_pixels_add(batch->pixels, &picked, model->logits, scale, model->classes,
                    params + model->params[0].offset, params + model->params[1].offset);
    return true;
}
