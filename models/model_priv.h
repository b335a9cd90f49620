/* SPDX-License-Identifier: MIT
 *
 * A compiled model, as the files of this folder see it.
 */
#ifndef VB_MODELS_MODEL_PRIV_H
#define VB_MODELS_MODEL_PRIV_H

#include "base/trace.h"
#include "models/models.h"

#define MODEL_NAME (VB_K_NAME + 2) /* largest size of a name like "conv1.w", in bytes */

/* An operation as a trace knows it, and the bytes of its output. */
struct model_op {
    int id;
    uint64_t bytes;
};

struct model_layer {
    struct vb_k_shape shape;
    struct vb_k_layer *k;
    int param;      /* index of the weights in params; the biases follow; -1: no parameters */
    float *y;       /* output of the layer; layers share buffers if the model is forward_only */
    uint8_t *where; /* conv-pool: see the field of this name in struct vb_k_args */
    struct model_op ops[VB_K_PASSES];
};

/* What is called instead of computing. */
struct model_pace {
    vb_pace_fn fn; /* NULL: the model computes */
    void *arg;
    double share[VB_LAYERS_MAX][VB_K_PASSES];
};

struct vb_model {
    const struct vb_layer_table *table;
    bool pixels; /* softmax: the model computes with lists of pixels instead of layers */
    bool forward_only;
    int batch_max, classes;
    struct vb_param params[2 * VB_LAYERS_MAX];
    char names[2 * VB_LAYERS_MAX][MODEL_NAME];
    int n_table;
    size_t n_params; /* number of floats in all parameters together */
    int n_layers;
    struct model_layer layers[VB_LAYERS_MAX];
    int first;         /* index of the first layer with weights; the backward pass ends there */
    struct vb_mem mem; /* the arena that contains all buffers of this struct */
    float *logits;     /* (batch_max, classes); replaced by the gradient of the loss */
    int part;          /* softmax: number of features in one part; 0: all features at once */
    uint32_t *done;    /* softmax: done and sums are kept between parts (struct vb_k_pixels_part) */
    float *sums;
    float *d[2]; /* two buffers for gradients of outputs; layers use them in turn */
    void *scratch;
    struct vb_k_plan plan;
    const struct vb_trace *trace; /* that knows the operations; NULL: none */
    struct model_op loss;
    struct model_pace pace;
};

/* model_trace.c: names the operations in the trace of the calling thread, which must have one. */
void vb_model_name_ops(struct vb_model *model, const struct vb_model_batch *batch);

/* Returns the time if operations are measured, and 0 otherwise. next: another one has just ended,
 * or one around this has just begun. */
static inline uint64_t model_begin(struct vb_model *m, const struct vb_model_batch *batch,
                                   bool next)
{
    if (vb_trace_self == NULL)
        return 0;
    if (m->trace != vb_trace_self->trace)
        vb_model_name_ops(m, batch);
    return next ? vb_trace_next() : vb_trace_begin();
}

#endif
