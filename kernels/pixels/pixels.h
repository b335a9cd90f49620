/* SPDX-License-Identifier: MIT
 *
 * A linear layer on samples that are mostly zero, like images of digits. Only nonzero pixels are
 * computed with.
 */
#ifndef VB_KERNELS_PIXELS_PIXELS_H
#define VB_KERNELS_PIXELS_PIXELS_H

#include "base/base.h"

#define VB_K_PIXELS_FEATURES 65536

/* The nonzero features of all samples. An entry takes 3 bytes if the samples have at most 256
 * different values, otherwise 6. On CPUs with long vectors, if all values are multiples of one
 * number, 16 neighbours are stored together, one byte each. Any thread may read it. */
struct vb_k_pixels;

/* Writes n samples from number first on to x (n, features). Is called in order, twice. */
typedef void (*vb_k_samples_fn)(void *arg, size_t first, size_t n, float *x);

struct vb_k_samples {
    vb_k_samples_fn read;
    void *arg;
    size_t n;
    int features;
    int width; /* number of features in one row of an image; 0: the samples are not images */
};

vb_status vb_k_pixels_create(const struct vb_k_samples *samples, struct vb_k_pixels **pixels_p);
void vb_k_pixels_destroy(struct vb_k_pixels *pixels);
/* Copies pixels into sealable memory, so that processes of one host can share them; the caller
 * seals and unmaps the memory. vb_k_pixels_unpack() uses packed pixels where they are: the memory
 * must outlive them. It fails if the memory is not packed pixels of n samples. */
vb_status vb_k_pixels_pack(const struct vb_k_pixels *pixels, struct vb_mem *mem_p);
vb_status vb_k_pixels_unpack(const void *packed, size_t len_bytes, size_t n, int features,
                             struct vb_k_pixels **pixels_p);

/* Returns the mean number of nonzero features of a sample. */
double vb_k_pixels_mean(const struct vb_k_pixels *pixels);

/* For tests: returns the number of nonzero features of all samples. */
size_t vb_k_pixels_nonzeros(const struct vb_k_pixels *pixels);

/* The samples of a batch: order[0] to order[n - 1], each below the number of samples. soon has the
 * samples of the next batch, which the backward pass prefetches. */
struct vb_k_picked {
    const uint32_t *order;
    size_t n;
    const uint32_t *soon;
    size_t n_soon; /* may be 0 */
};

/* Does the same as vb_k_linear_forward_ref(), but a feature that is 0 contributes nothing. */
void vb_k_pixels_forward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                         const float *w, const float *b, int classes, float *logits);

/* Computes dw (features, classes) and db (classes), summed over the samples in order. */
void vb_k_pixels_backward(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                          const float *d, int classes, float *dw, float *db);

/* These functions run the same two passes in parts, from the last features to the first, for a
 * caller that gets weights, or needs gradients, one part at a time. The bits are the same. high of
 * a part is low of the part before it; in the first part, high is the number of features. After the
 * part whose low is 0, all gradients and logits are complete. The first part also handles the
 * biases. Until the last part is done, `done` and `sums` must not change. */
#define VB_K_PIXELS_SUMS 40 /* four sums for each of ten classes */

struct vb_k_pixels_part {
    int low, high;  /* the part has the features from low to high - 1 */
    uint32_t *done; /* (n): how many entries of each sample are done */
    float *sums;    /* (n, VB_K_PIXELS_SUMS); used by forward only */
};

bool vb_k_pixels_has_parts(const struct vb_k_pixels *pixels, int classes);
void vb_k_pixels_forward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                              const struct vb_k_pixels_part *part, const float *w, const float *b,
                              float *logits);
void vb_k_pixels_backward_part(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                               const struct vb_k_pixels_part *part, const float *d, float *dw,
                               float *db);

/* Adds scale times the gradients to dw and db: a step of SGD, if those are the parameters. */
void vb_k_pixels_add(const struct vb_k_pixels *pixels, const struct vb_k_picked *picked,
                     const float *d, float scale, int classes, float *dw, float *db);

#endif
