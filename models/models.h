/* SPDX-License-Identifier: MIT
 *
 * models/: the models, as layers over kernels. They know neither ranks nor files.
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
    const char *name; /* a model, or one of several nets of a model */
    int n_layers;
    const struct vb_layer_row *layers;
    bool pixels; /* one linear layer, computed from lists of the pixels that are not 0 */
};

/* All tables. They are never freed. */
const struct vb_layer_table *vb_layer_tables(int *n_p);

/* Returns NULL if there is no table of this name. */
const struct vb_layer_table *vb_layer_table_find(const char *name);

/* Fills in the shapes for a batch, one a layer. */
vb_status vb_layer_table_shapes(const struct vb_layer_table *table, int batch,
                                struct vb_k_shape shapes[VB_LAYERS_MAX]);

/* Weights and biases of all layers. */
size_t vb_layer_table_params(const struct vb_layer_table *table);

/* ---- models ---------------------------------------------------------------------------------- */

/* A dense model, compiled for a batch of at most so many samples: kernels chosen, every buffer in
 * one arena. Steps allocate nothing. Used by one thread at a time; parameters and gradients are the
 * caller's, in the order of the parameter table. */
struct vb_model;

struct vb_model_opts {
    const char *name;                   /* of a row of vb_layer_tables() */
    const struct vb_layer_table *table; /* not NULL: a table of the caller's, instead of a name */
    int batch_max;                      /* samples */
    const struct vb_k_plan *plan;       /* which kernels compute; NULL: the fastest, by timing */
    struct vb_k_cache *cache;           /* of earlier timings; NULL: none */
    bool forward_only;                  /* to judge with, not to train */
};

/* What a model takes in a step. */
struct vb_model_batch {
    int n;                            /* samples */
    const float *x;                   /* (batch_max, c, h, w), zeros behind n; not for softmax */
    const struct vb_k_pixels *pixels; /* softmax: all samples, ... */
    const uint32_t *which;            /* ... and the numbers of those of the batch: (n) */
    const uint32_t *soon;             /* ... and of those of the next: (n_soon), which may be 0 */
    int n_soon;
    const uint16_t *y;   /* (n), classes, each below their number */
    bool training;       /* dropout drops; forward_only: never */
    uint64_t seed, step; /* ... what follows from these two: the rank is in seed */
};

struct vb_model_loss {
    double loss; /* summed over the samples */
    int correct; /* samples that were put into the right class, which NaN never is */
};

/* A plan may leave passes out, which are timed then, and name some that are not used here; a layer
 * that the model does not have, or a backend that cannot do it, is VB_ERR_USAGE. softmax has one
 * way of computing, so its plan is empty. The last layer of a table is linear, without ReLU. */
vb_status vb_model_create(const struct vb_model_opts *opts, struct vb_model **model_p);
void vb_model_destroy(struct vb_model *model);

size_t vb_model_n_params(const struct vb_model *model); /* floats */

/* "conv1.w" (oc, c * kh * kw), "conv1.b" (1, oc) and so on, without gaps. softmax: "linear.w" is
 * (features, classes). Lives as long as the model. */
const struct vb_param *vb_model_table(const struct vb_model *model, int *n_p);

/* The input that it takes: c * h * w features of a sample. */
void vb_model_input(const struct vb_model *model, int *c_p, int *h_p, int *w_p, int *classes_p);

/* The kernels that were chosen. Lives as long as the model. */
const struct vb_k_plan *vb_model_plan(const struct vb_model *model);

/* First values of the parameters, from the seed alone: He's uniform ones for layers with ReLU,
 * Glorot's uniform ones for others, biases 0; softmax: all 0, for its loss is convex. */
void vb_model_init(const struct vb_model *model, uint64_t seed, float *params);

/* Logits, loss, and the gradient of the loss with respect to the logits, which is kept. */
void vb_model_forward(struct vb_model *model, const float *params,
                      const struct vb_model_batch *batch, struct vb_model_loss *loss_p);

/* The same in parts, for who has the parameters one after the other: the layer with this number, if
 * those from first to end - 1 are all that it needs, and what follows it without parameters.
 * Returns the layer to go on with, which is the same one if it could not be run. softmax, if it was
 * cut: a part of its features, from the last to the first; "layer" is how many of them are done.
 * With all parameters there, forward_from goes on to the loss. Nothing else may use the model
 * meanwhile. */
int vb_model_forward_part(struct vb_model *model, const float *params,
                          const struct vb_model_batch *batch, int layer, size_t first, size_t end);
void vb_model_forward_from(struct vb_model *model, const float *params,
                           const struct vb_model_batch *batch, int layer,
                           struct vb_model_loss *loss_p);

/* Of softmax alone, instead of backward: adds scale times the gradients to the parameters. With
 * scale = -rate / n a step of plain SGD, which goes over the pixels that are not 0 and nothing
 * else. False: another model, and nothing was done. */
bool vb_model_descend(const struct vb_model *model, const struct vb_model_batch *batch, float scale,
                      float *params);

/* Softmax with lists of pixels: backward computes least gradients or more at a time, and tells of
 * them, and forward can begin with some. No bit depends on it. */
bool vb_model_can_cut(const struct vb_model *model, const struct vb_k_pixels *pixels);
void vb_model_cut(struct vb_model *model, size_t least);

/* Told which gradients are ready, from the last layer to the first: grads[first] to
 * grads[first + n - 1]. */
typedef void (*vb_grads_fn)(void *arg, size_t first, size_t n);

/* After forward of the same batch with the same parameters: the gradients, summed over the samples.
 * ready may be NULL. */
void vb_model_backward(struct vb_model *model, const float *params,
                       const struct vb_model_batch *batch, float *grads, vb_grads_fn ready,
                       void *arg);

#endif
