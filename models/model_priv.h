/* SPDX-License-Identifier: MIT
 *
 * A compiled model, as the files of this folder see it.
 */
#ifndef VB_MODEL_PRIV_H
#define VB_MODEL_PRIV_H

#include "models/models.h"

#define MODEL_NAME (VB_K_NAME + 2) /* bytes of "conv1.w" */

struct model_layer {
    struct vb_k_shape shape;
    struct vb_k_layer *k;
    int param;      /* number of its weights in the table, those of its biases follow; -1: none */
    float *y;       /* what it puts out; shared by others if the model only goes forward */
    uint8_t *where; /* conv-pool: as in struct vb_k_args */
};

struct vb_model {
    const struct vb_layer_table *table;
    bool pixels; /* softmax: no layers, but lists of pixels */
    bool forward_only;
    int batch_max, classes;
    struct vb_param params[2 * VB_LAYERS_MAX];
    char names[2 * VB_LAYERS_MAX][MODEL_NAME];
    int n_table;
    size_t n_params; /* floats */
    int n_layers;
    struct model_layer layers[VB_LAYERS_MAX];
    int first;         /* layer that has weights: gradients need not go below it */
    struct vb_mem mem; /* the arena of all that follows */
    float *logits;     /* (batch_max, classes); after the loss, its gradient */
    int part;          /* softmax: features that it computes with at a time; 0: all */
    uint32_t *done;    /* ... and what is kept between parts */
    float *sums;
    float *d[2]; /* gradients of outputs, in turn */
    void *scratch;
    struct vb_k_plan plan;
};

#endif
