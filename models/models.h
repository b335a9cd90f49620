/* SPDX-License-Identifier: MIT
 *
 * models/: the models, built from the layers of kernels/. They know nothing about ranks or files.
 */
#ifndef VB_MODELS_MODELS_H
#define VB_MODELS_MODELS_H

#include "base/base.h"
#include "kernels/kernels.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* A row of the parameter table. One array holds all parameters of a model in the order of the
 * table; each parameter is row-major. Gradients have the same layout. */
struct vb_param {
    const char *name;
    int rows, cols;
    size_t offset; /* index of the parameter's first float in the array */
};

/* ---- tables of layers ------------------------------------------------------------------------ */

#define VB_LAYERS_MAX 24

/* A layer, described by its name and its shape for any batch. The input of a layer is the output of
 * the layer before it. */
struct vb_layer_row {
    const char *name;
    struct vb_k_shape shape; /* n is 0; the size of the input is set in the first layer only */
};

struct vb_layer_table {
    const char *name; /* name of a model, or of one of several nets of a model */
    int n_layers;
    const struct vb_layer_row *layers;
    bool pixels; /* the model is one linear layer, computed from lists of nonzero pixels */
};

/* Finds a table by name. Returns NULL if no table has that name. */
const struct vb_layer_table *vb_layer_table_find(const char *name);

/* Fills in the shape of each layer for a batch. */
vb_status vb_layer_table_shapes(const struct vb_layer_table *table, int batch,
                                struct vb_k_shape shapes[VB_LAYERS_MAX]);

/* Returns the number of weights and biases of all layers together. For users of the library. */
size_t vb_layer_table_params(const struct vb_layer_table *table);

/* ---- models ---------------------------------------------------------------------------------- */

/* A dense model, compiled for a batch of at most batch_max samples: kernels are chosen, and every
 * buffer is in one arena. Steps allocate nothing. Only one thread may use a model at a time. The
 * caller owns parameters and gradients; both are in the order of the parameter table. */
struct vb_model;

struct vb_model_opts {
    const char *name;                   /* the name of a table in models/tables.c */
    const struct vb_layer_table *table; /* a table used instead of the name; NULL: none */
    int batch_max;                      /* largest number of samples in a batch */
    const struct vb_k_plan *plan;       /* names the kernels; NULL: the fastest ones by timing */
    struct vb_k_cache *cache;           /* earlier timings; NULL: none */
    bool forward_only;                  /* for evaluation only, not for training */
    bool fast_math; /* timing may choose kernels that round more than sums of floats do */
};

/* The input of one step. */
struct vb_model_batch {
    int n;                            /* number of samples */
    const float *x;                   /* (batch_max, c, h, w), 0 after n samples; not softmax */
    const struct vb_k_pixels *pixels; /* softmax: the samples of the whole data set */
    const uint32_t *which;            /* softmax: (n), the indices of the samples in the batch */
    const uint32_t *soon;             /* softmax: (n_soon), the samples in the next batch */
    int n_soon;                       /* may be 0 */
    const uint16_t *y;   /* (n), the class of each sample, below the number of classes */
    bool training;       /* dropout is active; ignored if the model is forward_only */
    uint64_t seed, step; /* with the position of a sample they decide what dropout drops */
    uint64_t position;   /* of the first sample among all samples of the step */

    /* Asked before each layer. If it returns true, the pass ends there, and its results are not
     * valid. NULL: every pass ends. softmax does not ask. */
    bool (*stop)(void *arg);
    void *stop_arg;
};

struct vb_model_loss {
    double loss; /* summed over the samples */
    int correct; /* number of samples whose class was predicted correctly; a NaN is never correct */
};

/* Creates a model. If the plan omits a pass, the pass is timed. The plan may also name passes that
 * this model does not run. Returns VB_ERR_USAGE if the plan names a layer that the model does not
 * have, or a backend that cannot compute the layer. softmax has only one way of computing, so its
 * plan is empty. The last layer of a table must be linear, without ReLU. */
vb_status vb_model_create(const struct vb_model_opts *opts, struct vb_model **model_p);
void vb_model_destroy(struct vb_model *model);

/* Returns the floating-point operations of forward and backward on a whole batch, computed
 * directly. */
double vb_model_flops(const struct vb_model *model);

size_t vb_model_n_params(const struct vb_model *model); /* number of floats in all parameters */

/* Returns the table of parameters: "conv1.w" (oc, c * kh * kw), "conv1.b" (1, oc) and so on. The
 * parameters are stored without gaps. For softmax, "linear.w" is (features, classes). The table
 * lives as long as the model. */
const struct vb_param *vb_model_table(const struct vb_model *model, int *n_p);

/* Reports the size of the input, c * h * w, and the number of classes. For users of the library. */
void vb_model_input(const struct vb_model *model, int *c_p, int *h_p, int *w_p, int *classes_p);

/* Returns the chosen kernels. The plan lives as long as the model. */
const struct vb_k_plan *vb_model_plan(const struct vb_model *model);

/* Sets the initial parameters, determined by the seed alone: He's uniform distribution for layers
 * with ReLU, Glorot's for others, small weights in the last layer, biases 0. The first loss is
 * about the logarithm of the number of classes. For softmax all parameters are 0, because its loss
 * is convex. */
void vb_model_init(const struct vb_model *model, uint64_t seed, float *params);

/* Computes the logits and the loss. Keeps the gradient of the loss with respect to the logits for
 * vb_model_backward(). */
void vb_model_forward(struct vb_model *model, const float *params,
                      const struct vb_model_batch *batch, struct vb_model_loss *loss_p);

/* The forward pass in parts, for a caller that receives the parameters one part at a time.
 * vb_model_forward_part() runs layer number `layer` if first is 0 and all its parameters are below
 * end, and then the layers without parameters after it. It returns the number of the next layer to
 * run: `layer` again if the layer could not run. For softmax after vb_model_cut(), it computes a
 * part of the features, from the last to the first; "layer" is the number of features that are
 * done. At the end vb_model_forward_from() runs the remaining layers and computes the loss. No
 * other function may use the model in between. */
int vb_model_forward_part(struct vb_model *model, const float *params,
                          const struct vb_model_batch *batch, int layer, size_t first, size_t end);
void vb_model_forward_from(struct vb_model *model, const float *params,
                           const struct vb_model_batch *batch, int layer,
                           struct vb_model_loss *loss_p);

/* Replaces vb_model_backward() for softmax: adds scale times the gradients to the parameters. With
 * scale = -rate / n this is a step of plain SGD. Only the weights of nonzero pixels are touched.
 * For any other model the function does nothing and returns false. */
bool vb_model_descend(struct vb_model *model, const struct vb_model_batch *batch, float scale,
                      float *params);

/* vb_model_cut() is only for softmax with lists of pixels. After it, the backward pass computes and
 * reports `least` or more gradients at a time, and the forward pass can begin with some of the
 * parameters. The bits of the results do not change. */
bool vb_model_can_cut(const struct vb_model *model, const struct vb_k_pixels *pixels);
void vb_model_cut(struct vb_model *model, size_t least);

/* Is called when grads[first] to grads[first + n - 1] are ready, for the last layer first. */
typedef void (*vb_grads_fn)(void *arg, size_t first, size_t n);

/* Computes the gradients, summed over the samples. The caller must have run the forward pass on the
 * same batch with the same parameters. ready may be NULL. */
void vb_model_backward(struct vb_model *model, const float *params,
                       const struct vb_model_batch *batch, float *grads, vb_grads_fn ready,
                       void *arg);

/* ---- checks (model_check.c) ------------------------------------------------------------------ */

/* After a forward pass with these parameters on this batch: returns the class that was predicted
 * for sample i. */
int vb_model_predicted(const struct vb_model *model, const struct vb_model_batch *batch, int i);

/* After a forward pass with these parameters on this batch, whose loss was not finite: returns the
 * name of the first layer with parameters or an output that is not finite. If there is none, it is
 * the last layer. *what_p: what is not finite, such as "parameters are". */
const char *vb_model_find_not_finite(const struct vb_model *model, const float *params,
                                     const struct vb_model_batch *batch, const char **what_p);

/* ---- passes without computing (model_pace.c) ------------------------------------------------- */

/* Stands for the computing of a layer. pass: forward, or one of the backward passes. share: the
 * part of the floating-point operations of the whole forward or backward pass that this is; for
 * softmax, the part of the features. */
typedef void (*vb_pace_fn)(void *arg, enum vb_k_pass pass, double share);

/* From now on the model calls fn instead of computing anything. It reports gradients as before. The
 * outputs stay what they are, and the loss is 0. */
void vb_model_pace(struct vb_model *model, vb_pace_fn fn, void *arg);

#endif
