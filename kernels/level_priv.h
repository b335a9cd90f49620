/* SPDX-License-Identifier: MIT
 *
 * Kernels of our own are compiled once for each level of instructions (base.h), and the best one
 * that this CPU has is taken at run time. A header that declares a name of such a file defines it
 * as VB_AT_LEVEL(name) first.
 *
 * A level is entered by its table alone.
 */
#ifndef VB_LEVEL_PRIV_H
#define VB_LEVEL_PRIV_H

#include "kernels/layer_priv.h"

/* What every state of our own backends begins with; a state is one block of memory. */
struct vb_k_pass_state {
    void (*run)(struct vb_k_pass_state *state, const struct vb_k_args *args);
};

typedef vb_status vb_k_prepare(const struct vb_k_shape *shape, enum vb_k_pass pass, void **state_p,
                               size_t *scratch_p);

typedef void vb_pixels_forward_fn(const struct vb_k_pixels *pixels,
                                  const struct vb_k_picked *picked, const float *w, const float *b,
                                  float *logits);
typedef void vb_pixels_add_fn(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const float *d, float scale, float *dw, float *db);
typedef void vb_pixels_forward_part_fn(const struct vb_k_pixels *pixels,
                                       const struct vb_k_picked *picked,
                                       const struct vb_k_pixels_part *part, const float *w,
                                       const float *b, float *logits);
typedef void vb_pixels_backward_part_fn(const struct vb_k_pixels *pixels,
                                        const struct vb_k_picked *picked,
                                        const struct vb_k_pixels_part *part, const float *d,
                                        float *dw, float *db);
typedef double vb_softmax_fn(float *logits, const uint16_t *y, size_t n, int classes,
                             int *correct_p);

struct vb_k_level {
    const char *name;
    vb_k_prepare *gemm_conv, *gemm_linear;
    vb_k_prepare *direct; /* a convolution, or a conv-pool layer forward */
    vb_k_prepare *pooled; /* a conv-pool layer backward */
    vb_k_prepare *winograd2, *winograd4;
    vb_pixels_forward_fn *pixels_ten_forward; /* ten classes */
    vb_pixels_add_fn *pixels_ten_add;
    vb_pixels_forward_part_fn *pixels_ten_forward_part;
    vb_pixels_backward_part_fn *pixels_ten_backward_part;
    vb_pixels_forward_fn *tiles_ten_forward; /* NULL: this level has lists alone */
    vb_pixels_add_fn *tiles_ten_add;
    vb_softmax_fn *softmax; /* vb_k_softmax_xent() */
};

/* kernels/level.c, once a level */
extern const struct vb_k_level vb_k_level_base, vb_k_level_v3, vb_k_level_v4;

/* kernels/levels.c: the best one that this CPU has, or the one that was set. */
const struct vb_k_level *vb_k_level(void);

/* For tests. False: there is none of that name, or this CPU has not all of its instructions. */
bool vb_k_level_set(const char *name);

/* The names of all that this CPU has, the best one last. */
int vb_k_level_names(const char *names[3]);

/* Runs a state of any of our own backends: the run() of their tables. */
void vb_k_level_run(void *state, const struct vb_k_args *args);

#endif
