/* SPDX-License-Identifier: MIT
 *
 * The model as a graph for TensorBoard: the nodes of the table of layers, with the shapes of a
 * rank's batch. A layer is a box that has its operations and parameters inside.
 */
#include "engine/train/trainer.h"

#include <stdarg.h>

struct graph {
    struct vb_proto *msg;
    struct vb_board_node node; /* in the making */
    char last[64];             /* name of the node that the next layer reads */
};

/* Begins a node of a layer; without a part, the node is the layer. */
static void begin(struct graph *g, const char *layer, const char *part, const char *op)
{
    memset(&g->node, 0, sizeof(g->node));
    snprintf(g->node.name, sizeof(g->node.name), "%s%s%s", layer, part[0] != '\0' ? "/" : "", part);
    snprintf(g->node.op, sizeof(g->node.op), "%s", op);
}

static void add_dim(struct graph *g, int64_t size)
{
    g->node.dims[g->node.n_dims++] = size;
}

static void add_input(struct graph *g, const char *layer, const char *part)
{
    size_t i = 0;

    while (i < VB_COUNT(g->node.inputs) - 1 && g->node.inputs[i][0] != '\0')
        i++;
    snprintf(g->node.inputs[i], sizeof(g->node.inputs[i]), "%s%s%s", layer,
             part[0] != '\0' ? "/" : "", part);
}

static void note(struct graph *g, const char *fmt, ...) VB_PRINTF(2, 3);
static void note(struct graph *g, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(g->node.note, sizeof(g->node.note), fmt, args);
    va_end(args);
}

static void end(struct graph *g)
{
    vb_board_graph_node(g->msg, &g->node);
}

/* Ends a node that the next one reads. */
static void end_last(struct graph *g)
{
    end(g);
    snprintf(g->last, sizeof(g->last), "%s", g->node.name);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void add_params(struct graph *g, const char *layer, const struct vb_k_shape *s)
{
    begin(g, layer, "weights", "Parameter");
    add_dim(g, s->oc);
    if (s->kind == VB_K_LINEAR) {
        add_dim(g, (int64_t)s->c * s->h * s->w);
    } else {
        add_dim(g, s->c);
        add_dim(g, s->kh);
        add_dim(g, s->kw);
    }
    end(g);
    begin(g, layer, "biases", "Parameter");
    add_dim(g, s->oc);
    end(g);
}

static void add_output(struct graph *g, const struct vb_k_shape *s)
{
    add_dim(g, s->n);
    add_dim(g, s->oc);
    if (s->kind == VB_K_LINEAR)
        return;
    add_dim(g, s->oh);
    add_dim(g, s->ow);
}

static void add_weighted(struct graph *g, const char *layer, const struct vb_k_shape *s)
{
    bool linear = s->kind == VB_K_LINEAR;

    add_params(g, layer, s);
    begin(g, layer, linear ? "MatMul" : "Conv2D", linear ? "MatMul" : "Conv2D");
    add_input(g, g->last, "");
    add_input(g, layer, "weights");
    add_input(g, layer, "biases");
    add_output(g, s);
    if (!linear)
        note(g, "%d x %d, stride %d, padding %d", s->kh, s->kw, s->stride, s->pad);
    end_last(g);
    if (!s->relu)
        return;
    begin(g, layer, "ReLU", "Relu");
    add_input(g, g->last, "");
    add_output(g, s);
    end_last(g);
}

static void add_conv_pool(struct graph *g, const char *layer, const struct vb_k_shape *s)
{
    struct vb_k_shape conv = vb_k_shape_conv(s);

    add_weighted(g, layer, &conv);
    begin(g, layer, "MaxPool", "MaxPool");
    add_input(g, g->last, "");
    add_output(g, s);
    note(g, "2 x 2, stride 2");
    end_last(g);
}

static void add_plain(struct graph *g, const char *layer, const struct vb_k_shape *s)
{
    begin(g, layer, "", vb_k_kind_str(s->kind));
    add_input(g, g->last, "");
    add_output(g, s);
    if (s->kind == VB_K_DROPOUT)
        note(g, "rate %g", (double)s->rate);
    else if (s->kh > 0)
        note(g, "%d x %d, stride %d", s->kh, s->kw, s->stride);
    end_last(g);
}

static void add_layer(struct graph *g, const char *layer, const struct vb_k_shape *s)
{
    if (s->kind == VB_K_CONV_POOL)
        add_conv_pool(g, layer, s);
    else if (s->kind == VB_K_CONV || s->kind == VB_K_LINEAR)
        add_weighted(g, layer, s);
    else
        add_plain(g, layer, s);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void add_loss(struct graph *g, const char *op, int batch)
{
    begin(g, "labels", "", "Placeholder");
    add_dim(g, batch);
    end(g);
    begin(g, "loss", "", op);
    add_input(g, g->last, "");
    add_input(g, "labels", "");
    end(g);
}

static void add_dense(struct graph *g, const struct vb_layer_table *table, int batch)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    int i;

    if (vb_layer_table_shapes(table, batch, shapes) != VB_OK)
        return;
    begin(g, "input", "", "Placeholder");
    add_dim(g, batch);
    add_dim(g, shapes[0].c);
    add_dim(g, shapes[0].h);
    add_dim(g, shapes[0].w);
    end_last(g);
    for (i = 0; i < table->n_layers; i++)
        add_layer(g, table->layers[i].name, &shapes[i]);
    add_loss(g, "SoftmaxCrossEntropy", batch);
}

static void add_sparse(struct graph *g, int64_t features, int batch)
{
    begin(g, "rows", "", "SparsePlaceholder");
    add_dim(g, batch);
    add_dim(g, features);
    end(g);
    begin(g, "linear", "weights", "Parameter");
    add_dim(g, features);
    end(g);
    begin(g, "linear", "bias", "Parameter");
    add_dim(g, 1);
    end(g);
    begin(g, "linear", "SparseMatVec", "SparseMatVec");
    add_input(g, "rows", "");
    add_input(g, "linear", "weights");
    add_input(g, "linear", "bias");
    add_dim(g, batch);
    end_last(g);
    add_loss(g, "SigmoidCrossEntropy", batch);
}

void vb_train_graph(const struct vb_trainer *t, struct vb_proto *msg)
{
    struct graph g = {.msg = msg};

    if (t->model.layers != NULL)
        add_dense(&g, t->model.layers, vb_trainer_batch(t));
    else
        add_sparse(&g, t->data.train.features, vb_trainer_batch(t));
    vb_board_graph_end(msg);
}
