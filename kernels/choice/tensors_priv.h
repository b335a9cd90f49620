/* SPDX-License-Identifier: MIT
 *
 * Tensors with made-up values for one pass of a layer, to time and to check backends.
 */
#ifndef VB_KERNELS_CHOICE_TENSORS_PRIV_H
#define VB_KERNELS_CHOICE_TENSORS_PRIV_H

#include "kernels/layer/backend.h"

enum vb_k_tensor { X, W, B, Y, DY, DX, DW, DB, N_TENSORS };

struct vb_k_tensors {
    struct vb_k_shape s;
    enum vb_k_pass pass;
    float *t[N_TENSORS]; /* the tensors that the pass uses; the others are NULL */
    uint8_t *where;      /* used by conv-pool only */
};

void vb_k_fill(float *v, size_t n, uint64_t seed); /* fills v with random values from -1 to 1 */

/* Returns the number of floats in a tensor; 0 if the layer does not have this tensor. */
size_t vb_k_tensor_len(const struct vb_k_shape *s, enum vb_k_tensor which);

vb_status vb_k_tensors_init(struct vb_k_tensors *t, const struct vb_k_shape *s,
                            enum vb_k_pass pass);
void vb_k_tensors_fini(struct vb_k_tensors *t);

struct vb_k_args vb_k_tensors_args(const struct vb_k_tensors *t); /* the caller sets scratch */

#endif
