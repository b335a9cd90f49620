/* SPDX-License-Identifier: MIT
 *
 * The operations of a model as a trace knows them: a layer, a pass, and the kernel that computes
 * it, with the size of its output, its floating-point operations and the bytes that it moves.
 */
#include "models/model_priv.h"

#include <string.h>

/* Sets the output of a pass: the output of the layer, the gradient of its input or its weights. */
static size_t output_of(const struct vb_k_shape *s, enum vb_k_pass pass, char shape[VB_TRACE_TEXT])
{
    if (pass == VB_K_BACKWARD_WEIGHTS) {
        snprintf(shape, VB_TRACE_TEXT, "%dx%zu", s->oc, vb_k_shape_weights(s) / (size_t)s->oc);
        return vb_k_shape_weights(s);
    }
    if (pass == VB_K_BACKWARD_DATA) {
        snprintf(shape, VB_TRACE_TEXT, "%dx%dx%dx%d", s->n, s->c, s->h, s->w);
        return vb_k_shape_inputs(s);
    }
    if (s->kind == VB_K_LINEAR)
        snprintf(shape, VB_TRACE_TEXT, "%dx%d", s->n, s->oc);
    else
        snprintf(shape, VB_TRACE_TEXT, "%dx%dx%dx%d", s->n, s->oc, s->oh, s->ow);
    return vb_k_shape_outputs(s);
}

/* Each pass moves two of the three arrays to the cores and writes the third. */
static void name_pass(struct vb_model *m, int i, enum vb_k_pass pass)
{
    struct model_layer *l = &m->layers[i];
    const struct vb_k_shape *s = &l->shape;
    const char *backend = vb_k_layer_backend(l->k, pass);
    struct vb_trace_op op = {.flops = vb_k_shape_flops(s, pass)};
    size_t n = output_of(s, pass, op.shape);

    if (!vb_k_has_pass(s->kind, pass) || backend == NULL || n == 0)
        return;
    snprintf(op.layer, sizeof(op.layer), "%s", m->table->layers[i].name);
    snprintf(op.pass, sizeof(op.pass), "%s", vb_k_pass_str(pass));
    snprintf(op.op, sizeof(op.op), "%s (%s)", vb_k_kind_str(s->kind), backend);
    l->ops[pass].bytes = n * sizeof(float);
    op.flops /= (double)l->ops[pass].bytes;
    op.moved =
        (double)(vb_k_shape_inputs(s) + vb_k_shape_outputs(s) + vb_k_shape_weights(s)) / (double)n;
    l->ops[pass].id = vb_trace_op(vb_trace_current(), &op);
}

/* Only nonzero pixels are computed with: each is multiplied with the weights of all classes. */
static void name_pixels(struct vb_model *m, enum vb_k_pass pass, const struct vb_model_batch *batch)
{
    struct model_layer *l = &m->layers[0];
    double pixels = vb_k_pixels_mean(batch->pixels), products;
    struct vb_trace_op op = {.op = "linear (pixels)"};
    size_t n = output_of(&l->shape, pass, op.shape);

    products = pixels * m->batch_max * m->classes;
    snprintf(op.layer, sizeof(op.layer), "%s", m->table->layers[0].name);
    snprintf(op.pass, sizeof(op.pass), "%s", vb_k_pass_str(pass));
    l->ops[pass].bytes = n * sizeof(float);
    op.flops = 2 * products / (double)l->ops[pass].bytes;
    op.moved = products / (double)n;
    l->ops[pass].id = vb_trace_op(vb_trace_current(), &op);
}

void vb_model_name_ops(struct vb_model *m, const struct vb_model_batch *batch)
{
    struct vb_trace_op loss = {
        .layer = "loss", .pass = "forward", .op = "softmax-loss", .moved = 2};
    int i, pass;

    for (i = 0; i < m->n_layers && !m->pixels; i++)
        for (pass = 0; pass < VB_K_PASSES; pass++)
            name_pass(m, i, (enum vb_k_pass)pass);
    if (m->pixels) {
        name_pixels(m, VB_K_FORWARD, batch);
        name_pixels(m, VB_K_BACKWARD_WEIGHTS, batch);
    }
    snprintf(loss.shape, sizeof(loss.shape), "%dx%d", m->batch_max, m->classes);
    m->loss.bytes = (uint64_t)m->batch_max * (uint64_t)m->classes * sizeof(float);
    m->loss.id = vb_trace_op(vb_trace_current(), &loss);
    m->trace = vb_trace_current();
}
