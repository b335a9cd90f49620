/* SPDX-License-Identifier: MIT
 *
 * Computes a step of a model: the forward pass through the layers, the loss, and the backward pass.
 *
 * Kernels are prepared for a whole batch. If a batch has fewer samples, the unused rows are
 * computed too. The gradient of their logits is 0, so they add nothing to the gradients of the
 * parameters.
 */
#include "models/model_priv.h"

#include <string.h>

/* Returns true for a dropout layer that drops nothing. Such a layer is not run: the next layer
 * reads its input. */
static bool passes_on(const struct vb_model *m, const struct model_layer *l,
                      const struct vb_model_batch *batch)
{
    return l->shape.kind == VB_K_DROPOUT && (m->forward_only || !batch->training);
}

static bool is_stopped(const struct vb_model_batch *batch)
{
    return batch->stop != NULL && batch->stop(batch->stop_arg);
}

/* Returns the input of layer i: the output of the nearest layer before it that is run, or the
 * batch. */
static const float *input_of(const struct vb_model *m, int i, const struct vb_model_batch *batch)
{
    for (i--; i >= 0; i--)
        if (!passes_on(m, &m->layers[i], batch))
            return m->layers[i].y;
    return batch->x;
}

/* Each dropout layer has its own seed, because two layers must not drop the same elements. */
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
        .first = batch->position,
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

static void run_layer(const struct vb_model *m, int i, enum vb_k_pass pass,
                      const struct vb_k_args *args)
{
    if (m->pace.fn != NULL)
        m->pace.fn(m->pace.arg, pass, m->pace.share[i][pass]);
    else
        vb_k_layer_run(m->layers[i].k, pass, args);
}

/* Returns whether a part of the features is not computed, because something stands for it. */
static bool pace_pixels(const struct vb_model *m, enum vb_k_pass pass, int features)
{
    if (m->pace.fn == NULL)
        return false;
    m->pace.fn(m->pace.arg, pass, (double)features / m->params[0].rows);
    return true;
}

static void model_end(uint64_t begin_ns, const struct model_layer *l, enum vb_k_pass pass)
{
    vb_trace_end(begin_ns, l->ops[pass].id, l->ops[pass].bytes);
}

/* A part of a layer of pixels has a part of its output. */
static void pixels_end(uint64_t begin_ns, const struct vb_model *m, enum vb_k_pass pass,
                       int features)
{
    const struct model_op *op = &m->layers[0].ops[pass];

    vb_trace_end(begin_ns, op->id, op->bytes * (uint64_t)features / (uint64_t)m->params[0].rows);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void layer_forward(struct vb_model *m, int i, const float *params,
                          const struct vb_model_batch *batch, bool next)
{
    struct vb_k_args args;
    uint64_t begin_ns;

    if (passes_on(m, &m->layers[i], batch))
        return;
    begin_ns = model_begin(m, batch, next);
    args = args_of(m, i, params, batch);
    run_layer(m, i, VB_K_FORWARD, &args);
    model_end(begin_ns, &m->layers[i], VB_K_FORWARD);
}

/* Returns the index behind the last parameter of layer i, or 0 if the layer has no parameters. */
static size_t params_end(const struct vb_model *m, int i)
{
    const struct vb_param *b = &m->params[m->layers[i].param + 1];

    return m->layers[i].param >= 0 ? b->offset + (size_t)b->cols : 0;
}

/* ---- parts of softmax ------------------------------------------------------------------------ */

static int n_features(const struct vb_model *m)
{
    return m->params[0].rows;
}

bool vb_model_can_cut(const struct vb_model *model, const struct vb_k_pixels *pixels)
{
    return model->pixels && vb_k_pixels_has_parts(pixels, model->classes);
}

void vb_model_cut(struct vb_model *model, size_t least)
{
    size_t classes = (size_t)model->classes, features = (size_t)n_features(model);
    size_t parts = features / ((least + classes - 1) / classes);

    model->part = parts > 1 ? (int)((features + parts - 1) / parts) : 0;
}

/* Returns the part that ends before feature high. If at most half a part would be left over, its
 * features belong to this part. */
static struct vb_k_pixels_part part_below(const struct vb_model *m, int high)
{
    int low = high - m->part;

    return (struct vb_k_pixels_part){
        .low = low > m->part / 2 ? low : 0, .high = high, .done = m->done, .sums = m->sums};
}

/* Computes the next part if its parameters are available. Leaves the last part to
 * vb_model_forward_from(). Returns the number of features that are done. */
static int forward_pixels(struct vb_model *m, const float *params,
                          const struct vb_model_batch *batch, int done, size_t first)
{
    const struct vb_k_pixels_part part = part_below(m, n_features(m) - done);
    const struct vb_k_picked picked = picked_of(batch);
    uint64_t begin_ns;

    if (m->part == 0 || part.low == 0 ||
        m->params[0].offset + (size_t)part.low * (size_t)m->classes < first)
        return done;
    begin_ns = model_begin(m, batch, false);
    if (!pace_pixels(m, VB_K_FORWARD, part.high - part.low))
        vb_k_pixels_forward_part(batch->pixels, &picked, &part, params + m->params[0].offset,
                                 params + m->params[1].offset, m->logits);
    pixels_end(begin_ns, m, VB_K_FORWARD, part.high - part.low);
    return n_features(m) - part.low;
}

static void finish_pixels(struct vb_model *m, const float *params,
                          const struct vb_model_batch *batch, int done)
{
    const struct vb_k_pixels_part rest = {
        .high = n_features(m) - done, .done = m->done, .sums = m->sums};
    const float *w = params + m->params[0].offset, *b = params + m->params[1].offset;
    const struct vb_k_picked picked = picked_of(batch);
    uint64_t begin_ns = model_begin(m, batch, true);

    if (pace_pixels(m, VB_K_FORWARD, rest.high))
        ;
    else if (done > 0)
        vb_k_pixels_forward_part(batch->pixels, &picked, &rest, w, b, m->logits);
    else
        vb_k_pixels_forward(batch->pixels, &picked, w, b, m->classes, m->logits);
    pixels_end(begin_ns, m, VB_K_FORWARD, rest.high);
}

int vb_model_forward_part(struct vb_model *model, const float *params,
                          const struct vb_model_batch *batch, int layer, size_t first, size_t end)
{
    int i = layer;

    if (model->pixels)
        return end == model->n_params ? forward_pixels(model, params, batch, layer, first) : layer;
    if (i >= model->n_layers || first > 0 || params_end(model, i) > end)
        return layer;
    do
        layer_forward(model, i, params, batch, i > layer);
    while (++i < model->n_layers && params_end(model, i) == 0);
    return i;
}

void vb_model_forward_from(struct vb_model *model, const float *params,
                           const struct vb_model_batch *batch, int layer,
                           struct vb_model_loss *loss_p)
{
    size_t classes = (size_t)model->classes, n = (size_t)batch->n;
    uint64_t begin_ns;
    int i;

    VB_ASSERT(batch->n >= 0 && batch->n <= model->batch_max);
    if (model->pixels)
        finish_pixels(model, params, batch, layer);
    *loss_p = (struct vb_model_loss){0};
    for (i = layer; i < model->n_layers; i++) {
        if (is_stopped(batch))
            return;
        layer_forward(model, i, params, batch, true);
    }
    if (model->pace.fn != NULL)
        return;
    for (i = 0; i < batch->n; i++)
        VB_ASSERT(batch->y[i] < model->classes);
    begin_ns = model_begin(model, batch, true);
    loss_p->loss = vb_k_softmax_xent(model->logits, batch->y, n, model->classes, &loss_p->correct);
    memset(model->logits + n * classes, 0,
           ((size_t)model->batch_max - n) * classes * sizeof(float));
    vb_trace_end(begin_ns, model->loss.id, model->loss.bytes);
}

void vb_model_forward(struct vb_model *model, const float *params,
                      const struct vb_model_batch *batch, struct vb_model_loss *loss_p)
{
    vb_model_forward_from(model, params, batch, 0, loss_p);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct on_ready {
    vb_grads_fn fn; /* NULL: nobody is told */
    void *arg;
};

static void report_ready(const struct vb_model *m, int param, const struct on_ready *ready)
{
    const struct vb_param *w = &m->params[param], *b = w + 1;

    if (ready->fn != NULL)
        ready->fn(ready->arg, w->offset, b->offset + (size_t)b->cols - w->offset);
}

/* The backward pass of the weights of a layer is first, so that their gradients can be sent while
 * the backward data pass is computed. */
static void run_backward(struct vb_model *m, const float *params,
                         const struct vb_model_batch *batch, float *grads,
                         const struct on_ready *ready)
{
    float *dy = m->logits;
    struct vb_k_args args;
    uint64_t begin_ns;
    int i, turn = 0;

    for (i = m->n_layers - 1; i >= m->first; i--) {
        const struct model_layer *l = &m->layers[i];

        if (passes_on(m, l, batch))
            continue;
        if (is_stopped(batch))
            return;
        begin_ns = model_begin(m, batch, true);
        if (l->shape.relu && m->pace.fn == NULL)
            vb_k_relu_mask(l->y, dy, vb_k_shape_outputs(&l->shape));
        args = args_of(m, i, params, batch);
        args.dy = dy;
        args.dx = m->d[turn];
        if (l->param >= 0) {
            args.dw = grads + m->params[l->param].offset;
            args.db = grads + m->params[l->param + 1].offset;
            run_layer(m, i, VB_K_BACKWARD_WEIGHTS, &args);
            model_end(begin_ns, l, VB_K_BACKWARD_WEIGHTS);
            report_ready(m, l->param, ready);
            begin_ns = model_begin(m, batch, false);
        }
        run_layer(m, i, VB_K_BACKWARD_DATA, &args);
        if (i > m->first) /* otherwise nothing was computed */
            model_end(begin_ns, l, VB_K_BACKWARD_DATA);
        dy = m->d[turn];
        turn ^= 1;
    }
}

static void pixels_backward(struct vb_model *m, const struct vb_model_batch *batch, float *grads,
                            const struct on_ready *ready)
{
    float *dw = grads + m->params[0].offset, *db = grads + m->params[1].offset;
    const struct vb_k_picked picked = picked_of(batch);
    size_t classes = (size_t)m->classes, first, end = m->params[1].offset + classes;
    struct vb_k_pixels_part part;
    uint64_t begin_ns = model_begin(m, batch, true);
    int high;

    if (m->part == 0) {
        if (!pace_pixels(m, VB_K_BACKWARD_WEIGHTS, n_features(m)))
            vb_k_pixels_backward(batch->pixels, &picked, m->logits, m->classes, dw, db);
        pixels_end(begin_ns, m, VB_K_BACKWARD_WEIGHTS, n_features(m));
        report_ready(m, 0, ready);
        return;
    }
    for (high = n_features(m); high > 0; high = part.low) {
        part = part_below(m, high);
        begin_ns = model_begin(m, batch, high == n_features(m));
        if (!pace_pixels(m, VB_K_BACKWARD_WEIGHTS, part.high - part.low))
            vb_k_pixels_backward_part(batch->pixels, &picked, &part, m->logits, dw, db);
        pixels_end(begin_ns, m, VB_K_BACKWARD_WEIGHTS, part.high - part.low);
        first = m->params[0].offset + (size_t)part.low * classes;
        if (ready->fn != NULL) /* the biases, after the weights, belong to the first report */
            ready->fn(ready->arg, first, end - first);
        end = first;
    }
}

void vb_model_backward(struct vb_model *model, const float *params,
                       const struct vb_model_batch *batch, float *grads, vb_grads_fn ready,
                       void *arg)
{
    const struct on_ready on_ready = {ready, arg};

    VB_ASSERT(!model->forward_only);
    if (model->pixels)
        pixels_backward(model, batch, grads, &on_ready);
    else
        run_backward(model, params, batch, grads, &on_ready);
}

bool vb_model_descend(struct vb_model *model, const struct vb_model_batch *batch, float scale,
                      float *params)
{
    const struct vb_k_picked picked = picked_of(batch);
    uint64_t begin_ns;

    if (!model->pixels)
        return false;
    begin_ns = model_begin(model, batch, true);
    vb_k_pixels_add(batch->pixels, &picked, model->logits, scale, model->classes,
                    params + model->params[0].offset, params + model->params[1].offset);
    pixels_end(begin_ns, model, VB_K_BACKWARD_WEIGHTS, n_features(model));
    return true;
}
