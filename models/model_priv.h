/* SPDX-License-Identifier: MIT
 *
 * A compiled model, as the files of this folder see it.
 */
#ifndef VB_MODELS_MODEL_PRIV_H
#define VB_MODELS_MODEL_PRIV_H

#include "models/models.h"

#define MODEL_NAME (VB_K_NAME + 2) /* size of "conv1.w", in bytes */

struct model_layer {
    struct vb_k_shape shape;
    struct vb_k_layer *k;
    int param;      /* index of its weights in the table, followed by its biases; -1: it has none */
    float *y;       /* its output; layers share buffers if the model is forward_only */
    uint8_t *where; /* conv-pool: as in struct vb_k_args */
};

struct vb_model {
    const struct vb_layer_table *table;
    bool pixels; /* softmax: the model computes with lists of pixels instead of layers */
    bool forward_only;
    int batch_max, classes;
    struct vb_param params[2 * VB_LAYERS_MAX];
    char names[2 * VB_LAYERS_MAX][MODEL_NAME];
    int n_table;
    size_t n_params; /* floats */
    int n_layers;
    struct model_layer layers[VB_LAYERS_MAX];
    int first;         /* index of the first layer with weights; no gradient is needed below it */
    struct vb_mem mem; /* the arena with all buffers below */
    float *logits;     /* (batch_max, classes); the loss replaces them by its gradient */
    int part;          /* softmax: number of features in one part; 0: all features at once */
    uint32_t *done;    /* softmax: what is kept between parts */
    float *sums;
    float *d[2]; /* gradients of outputs, alternating */
    void *scratch;
    struct vb_k_plan plan;
};

#endif
