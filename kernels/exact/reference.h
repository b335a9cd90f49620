/* SPDX-License-Identifier: MIT
 *
 * Reference kernels: plain loops that specify the results.
 */
#ifndef VB_KERNELS_EXACT_REFERENCE_H
#define VB_KERNELS_EXACT_REFERENCE_H

#include "kernels/layer/layer.h"

/* These functions specify what the fast kernels must compute; the tests compare both. All arrays
 * belong to the caller, are row-major, and must not overlap. */

/* Computes logits (n, classes) = x (n, features) * w (features, classes) + b (classes). */
void vb_k_linear_forward_ref(const float *x, const float *w, const float *b, int n, int features,
                             int classes, float *logits);

/* Computes the gradients dw (features, classes) and db (classes), summed over the n samples. */
void vb_k_linear_backward_ref(const float *x, const float *dlogits, int n, int features,
                              int classes, float *dw, float *db);

/* Replaces the logits (n, classes) by the gradient of the loss with respect to them, and returns
 * the loss, summed over the samples. Large logits do not overflow. y (n): labels below classes. */
double vb_k_softmax_xent_ref(float *logits, const uint16_t *y, int n, int classes);

/* Returns the class with the largest logit; the first one if several are equal. */
int vb_k_argmax_ref(const float *logits, int classes);

void vb_k_add_ref(float *sum, const float *v, size_t n); /* sum += v */

/* params -= rate * grads */
void vb_k_sgd_ref(float *params, const float *grads, size_t n, float rate);

/* ---- layers ---------------------------------------------------------------------------------- */

/* The tensors of a pass in double precision; see struct vb_k_args. */
struct vb_k_args64 {
    const double *x, *w, *b, *dy;
    double *y, *dx, *dw, *db;
    uint8_t *where;
    uint64_t seed, step, first;
};

/* Computes a pass in double precision. */
void vb_k_layer_ref64(const struct vb_k_shape *shape, enum vb_k_pass pass,
                      const struct vb_k_args64 *args);

/* Computes a pass in single precision, with one running sum for each result. */
void vb_k_layer_running(const struct vb_k_shape *shape, enum vb_k_pass pass,
                        const struct vb_k_args *args);

/* The same as a backend; see kernels/layer/backend.h. */
struct vb_k_backend;
extern const struct vb_k_backend vb_k_backend_running;

#endif
