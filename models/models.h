/* SPDX-License-Identifier: MIT
 *
 * models/: the models, built from the layers of kernels/. They know nothing about ranks or files.
 */
#ifndef VB_MODELS_MODELS_H
#define VB_MODELS_MODELS_H

#include "base/base.h"
#include "kernels/kernels.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* A row of the parameter table. All parameters of a model lie in one array in the order of the
 * table, each row-major. Gradients have the same layout. */
struct vb_param {
    const char *name;
    int rows, cols;
    size_t offset; /* index of its first float in the array */
};

/* ---- tables of layers ------------------------------------------------------------------------ */

#define VB_LAYERS_MAX 24

/* A layer: its name, and its shape for any batch. Its input is the output of the layer before. */
struct vb_layer_row {
    const char *name;
    struct vb_k_shape shape; /* without n, and without the input's size except in the first */
};

struct vb_layer_table {
    const char *name; /* a model, or one of several nets of a model */
    int n_layers;
    const struct vb_layer_row *layers;
    bool pixels; /* one linear layer, computed from lists of the pixels that are not 0 */
};

/* Returns all tables. They are never freed. */
const struct vb_layer_table *vb_layer_tables(int *n_p);

/* Finds a table by name. Returns NULL if no table has that name. */
const struct vb_layer_table *vb_layer_table_find(const char *name);

/* Fills in the shape of each layer for a batch. */
vb_status vb_layer_table_shapes(const struct vb_layer_table *table, int batch,
                                struct vb_k_shape shapes[VB_LAYERS_MAX]);

/* The number of weights and biases of all layers, in floats. For users of the library. */
size_t vb_layer_table_params(const struct vb_layer_table *table);

/* ---- models ---------------------------------------------------------------------------------- */

/* A dense model, compiled for a batch of at most batch_max samples: kernels are chosen, and every
 * buffer is in one arena. Steps allocate nothing. Used by one thread at a time. The caller owns
 * parameters and gradients; both are in the order of the parameter table. */
struct vb_model;

struct vb_model_opts {
    const char *name;                   /* the name of a table in vb_layer_tables() */
    const struct vb_layer_table *table; /* not NULL: the caller's, used instead of the name */
    int batch_max;                      /* samples */
    const struct vb_k_plan *plan;       /* the kernels; NULL: the fastest ones by timing */
    struct vb_k_cache *cache;           /* earlier timings; NULL: none */
    bool forward_only;                  /* for evaluation only, not for training */
};

/* The input of one step. */
struct vb_model_batch {
    int n;                            /* samples */
    const float *x;                   /* (batch_max, c, h, w), zeros behind n; not for softmax */
    const struct vb_k_pixels *pixels; /* softmax: the samples of the whole data set */
    const uint32_t *which;            /* softmax: (n), the numbers of the samples in the batch */
    const uint32_t *soon;             /* softmax: (n_soon), the numbers of the samples in the
                                       * next batch; n_soon may be 0 */
    int n_soon;
    const uint16_t *y;   /* (n), the class of each sample, below the number of classes */
    bool training;       /* dropout is active; ignored if the model is forward_only */
    uint64_t seed, step; /* determine what dropout drops; the rank must be part of the seed */
};

struct vb_model_loss {
    double loss; /* summed over the samples */
    int correct; /* number of samples whose class was predicted correctly; a NaN is never correct */
};

/* A plan may omit passes; these are timed. It may also name passes that this model does not run.
 * Returns VB_ERR_USAGE if the plan names a layer that the model does not have, or a backend that
 * cannot compute the layer. softmax has only one way of computing, so its plan is empty. The last
 * layer of a table must be linear, without ReLU. */
vb_status vb_model_create(const struct vb_model_opts *opts, struct vb_model **model_p);
void vb_model_destroy(struct vb_model *model);

size_t vb_model_n_params(const struct vb_model *model); /* floats */

/* The parameters "conv1.w" (oc, c * kh * kw), "conv1.b" (1, oc) and so on, without gaps. softmax:
 * "linear.w" is (features, classes). The table lives as long as the model. */
const struct vb_param *vb_model_table(const struct vb_model *model, int *n_p);

/* The size of the input, c * h * w, and the number of classes. For users of the library. */
void vb_model_input(const struct vb_model *model, int *c_p, int *h_p, int *w_p, int *classes_p);

/* The chosen kernels. The plan lives as long as the model. */
const struct vb_k_plan *vb_model_plan(const struct vb_model *model);

/* Sets the initial parameters, determined by the seed alone: He's uniform distribution for layers
 * with ReLU, Glorot's for others, biases 0. For softmax all are 0, because its loss is convex. */
void vb_model_init(const struct vb_model *model, uint64_t seed, float *params);

/* Computes the logits, the loss, and its gradient by the logits, kept for vb_model_backward(). */
void vb_model_forward(struct vb_model *model, const float *params,
                      const struct vb_model_batch *batch, struct vb_model_loss *loss_p);

/* Forward in parts, for a caller that receives the parameters one part at a time.
 * vb_model_forward_part() runs the layer with this number if it needs no parameters outside first
 * to end - 1, and then the layers without parameters that follow. It returns the number of the next
 * layer, which is the same number if the layer could not run. For softmax after vb_model_cut(), it
 * computes a part of the features, from the last to the first; "layer" is then the number of
 * features that are done. Once all parameters are available, vb_model_forward_from() does the rest,
 * up to the loss. Nothing else may use the model in between. */
int vb_model_forward_part(struct vb_model *model, const float *params,
                          const struct vb_model_batch *batch, int layer, size_t first, size_t end);
void vb_model_forward_from(struct vb_model *model, const float *params,
                           const struct vb_model_batch *batch, int layer,
                           struct vb_model_loss *loss_p);

/* softmax only, instead of vb_model_backward(): adds scale times the gradients to the parameters.
 * With scale = -rate / n this is a step of plain SGD, which touches only the weights of nonzero
 * pixels. Returns false, and does nothing, for any other model. */
bool vb_model_descend(const struct vb_model *model, const struct vb_model_batch *batch, float scale,
                      float *params);

/* Only for softmax with lists of pixels: the backward pass computes and reports `least` or more
 * gradients at a time, and the forward pass can begin with some of the parameters. Same bits. */
bool vb_model_can_cut(const struct vb_model *model, const struct vb_k_pixels *pixels);
void vb_model_cut(struct vb_model *model, size_t least);

/* Called when grads[first] to grads[first + n - 1] are ready, from the last layer to the first. */
typedef void (*vb_grads_fn)(void *arg, size_t first, size_t n);

/* Computes the gradients, summed over the samples. Must follow the forward pass of the same batch
 * with the same parameters. ready may be NULL. */
void vb_model_backward(struct vb_model *model, const float *params,
                       const struct vb_model_batch *batch, float *grads, vb_grads_fn ready,
                       void *arg);

#endif
