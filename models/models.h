/* SPDX-License-Identifier: MIT
 *
 * models/: the models, as layers over kernels. They know neither ranks nor files. So far: softmax
 * regression.
 */
#ifndef VB_MODELS_H
#define VB_MODELS_H

#include "base/base.h"
#include "kernels/kernels.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* A row of the parameter table. All parameters of a model lie in one arena in the order of the
 * table, each row-major; gradients have the same layout. */
struct vb_param {
    const char *name;
    int rows, cols;
    size_t offset; /* of the first, in floats */
};

/* ---- tables of layers ------------------------------------------------------------------------ */

#define VB_LAYERS_MAX 24

/* A layer of a model: its name, and its shape for a batch of any size. Inputs are what the layer
 * before puts out. */
struct vb_layer_row {
    const char *name;
    struct vb_k_shape shape; /* n, and the input of all but the first, are not filled in */
};

struct vb_layer_table {
    const char *name; /* "alexnet" */
    int n_layers;
    const struct vb_layer_row *layers;
};

/* By name: alexnet, alexnet32 (for images of 32 x 32), lenet, softmax. NULL: there is none. */
const struct vb_layer_table *vb_layer_table_find(const char *name);

/* The names, which end with NULL. */
const char *const *vb_layer_table_names(void);

/* Fills in the shapes for a batch, one a layer. */
vb_status vb_layer_table_shapes(const struct vb_layer_table *table, int batch,
                                struct vb_k_shape shapes[VB_LAYERS_MAX]);

/* Weights and biases of all layers. */
size_t vb_layer_table_params(const struct vb_layer_table *table);

/* ---- softmax regression ---------------------------------------------------------------------- */

#define VB_SOFTMAX_PARAMS 2

/* One linear layer and softmax with cross-entropy. Used by one thread at a time. */
struct vb_softmax {
    int features, classes;
    int batch_max;
    struct vb_param table[VB_SOFTMAX_PARAMS]; /* w (features, classes), b (1, classes) */
    size_t n_params;                          /* floats in the arena */
    float *params;                            /* the arena */
    float *logits; /* (batch_max, classes); after the loss, its gradient */
};

/* All parameters are 0: the loss is convex, so there is nothing to be gained by chance. */
vb_status vb_softmax_create(int features, int classes, int batch_max, struct vb_softmax **model_p);
void vb_softmax_destroy(struct vb_softmax *model);

/* Computes the logits of n samples, at most batch_max. x: (n, features) */
void vb_softmax_forward(struct vb_softmax *model, const float *x, int n);

/* How many of the n samples the logits put into the right class. Before the loss. */
int vb_softmax_correct(const struct vb_softmax *model, const uint8_t *y, int n);

/* The loss of the n samples that went forward, summed. */
double vb_softmax_loss(struct vb_softmax *model, const uint8_t *y, int n);

/* Writes the gradients, summed over the n samples whose loss was computed, to the caller's memory:
 * n_params floats. */
void vb_softmax_backward(const struct vb_softmax *model, const float *x, int n, float *grads);

/* One step of plain SGD: params -= rate * grads. */
void vb_softmax_update(struct vb_softmax *model, const float *grads, float rate);

#endif
