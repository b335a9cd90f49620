/* SPDX-License-Identifier: MIT
 *
 * Describes layers: kinds, shapes, passes, and the arguments of a pass.
 */
#ifndef VB_KERNELS_LAYER_LAYER_H
#define VB_KERNELS_LAYER_LAYER_H

#include "base/base.h"

enum vb_k_kind {
    VB_K_CONV,
    VB_K_LINEAR,
    VB_K_MAX_POOL,
    VB_K_AVG_POOL,
    VB_K_RELU,
    VB_K_LRN,
    VB_K_DROPOUT,
    VB_K_CONV_POOL,
};

enum vb_k_pass { VB_K_FORWARD, VB_K_BACKWARD_DATA, VB_K_BACKWARD_WEIGHTS };
#define VB_K_PASSES 3

/* The kind and the sizes of a layer. Between layers every tensor is plain row-major: activations
 * are (n, c, h, w), the weights of a convolution are (oc, c, kh, kw), the weights of a linear layer
 * are (oc, c * h * w), and biases are (oc). A linear layer has c * h * w inputs and oh = ow = 1.
 * "conv-pool" is a convolution, ReLU, and max pooling of 2 x 2 without overlap in one layer. Only
 * the largest of four neighbours has a gradient. */
struct vb_k_shape {
    enum vb_k_kind kind;
    int n;           /* number of samples in a batch; a shorter batch is filled up with zeros */
    int c, h, w;     /* size of the input */
    int oc, oh, ow;  /* size of the output; vb_k_shape_finish() computes what follows from others */
    int kh, kw;      /* size of the kernel of a convolution or pooling; lrn: kh is the number of
                      * channels in a window; conv-pool: size of the convolution's kernel */
    int stride, pad; /* the same in both directions; average pooling counts the padding */
    bool relu;       /* convolution, linear: the layer ends with a ReLU; conv-pool: false */
    float rate;      /* dropout: the fraction of elements that are dropped */
    float alpha, beta, bias; /* lrn: y = x * (bias + alpha / kh * sum of squares) ^ -beta */
};

/* Checks the shape and fills in the size of the output. On VB_ERR_USAGE why has one line. */
vb_status vb_k_shape_finish(struct vb_k_shape *shape, char why[VB_OPTS_WHY]);

/* Returns the number of multiplications and additions that a direct convolution needs for a pass.
 * GFLOP/s are computed from it. Returns 0 for kinds of layers whose speed is limited by memory. */
double vb_k_shape_flops(const struct vb_k_shape *shape, enum vb_k_pass pass);

/* Only convolutions and linear layers have the backward weights pass; all have the others. */
bool vb_k_has_pass(enum vb_k_kind kind, enum vb_k_pass pass);

const char *vb_k_kind_str(enum vb_k_kind kind); /* "conv", "linear", "max-pool" ... */
const char *vb_k_pass_str(enum vb_k_pass pass); /* "forward", "backward-data", "backward-weights" */

/* Returns the shape of the convolution, with ReLU, in a conv-pool layer; others unchanged. */
struct vb_k_shape vb_k_shape_conv(const struct vb_k_shape *shape);

/* Return the number of floats in the input, in the output, and in the weights (0 if none). */
size_t vb_k_shape_inputs(const struct vb_k_shape *shape);
size_t vb_k_shape_outputs(const struct vb_k_shape *shape);
size_t vb_k_shape_weights(const struct vb_k_shape *shape);

/* The tensors of a pass; unused ones are NULL. Inputs and outputs must not overlap.
 *   forward           x w b -> y   (with ReLU if the shape has it)
 *   backward data     w dy -> dx   (pooling, ReLU, lrn and dropout read x and y too)
 *   backward weights  x dy -> dw db (summed over the batch, overwritten)
 * dy is the gradient before the ReLU: the caller has already applied vb_k_relu_mask(). For
 * conv-pool, dy is the gradient of y; the forward pass also writes where, and the backward passes
 * read where.
 *
 * A NaN stays a NaN in sums, in ReLU, and in max pooling, where the first NaN of a window wins.
 * Winograd kernels spread a NaN or an infinity over the whole tile that contains it. The backward
 * data pass of conv-pool spreads a NaN or an infinity in dy over all inputs that its window sees.
 */
struct vb_k_args {
    const float *x, *w, *b, *dy;
    float *y, *dx, *dw, *db;
    uint8_t *where; /* conv-pool: (n, oc, oh, ow), place of y in its window; VB_K_NOWHERE: y <= 0 */
    uint64_t seed, step; /* dropout: they, the number of a sample in the step and the element of the
                            sample determine what is dropped */
    uint64_t first;      /* dropout: the number of the first sample */
    void *scratch;       /* of the size that the layer asked for, aligned to 64 bytes; not kept */
};

/* A value of where. The values 0 to 3 are the places of a window, row by row; if several numbers
 * are the largest, the first one counts. A NaN has no gradient. */
#define VB_K_NOWHERE 4

/* Computes the gradient through a ReLU whose output is y: sets dy to 0 unless y > 0. */
void vb_k_relu_mask(const float *y, float *dy, size_t n);

/* Does the same as vb_k_softmax_xent_ref(), with vectors; sums may differ in the last digits.
 * *correct_p is the number of rows without NaN where the label has the first largest logit. */
double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes, int *correct_p);

#endif
