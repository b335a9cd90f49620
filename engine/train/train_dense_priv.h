/* SPDX-License-Identifier: MIT
 *
 * A dense model in training, shared by train_dense.c and train_dense_open.c.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_DENSE_PRIV_H
#define VB_ENGINE_TRAIN_TRAIN_DENSE_PRIV_H

#include "engine/train/train_room_priv.h"

#define DENSE_COPIES 3

/* Parameters and the state of the update rule, in several copies. If there are several ranks, a
 * step reads one copy and writes another; then they swap roles. So a failure within a step leaves
 * the last complete step intact. A single rank updates its copy in place.
 *
 * The rank that writes checkpoints while it trains has one copy more: a copy that is being written
 * to a checkpoint is held, and steps use the others. */
struct dense_copies {
    struct vb_mem mem; /* memory of all copies; unused if the ranks of one host share the update */
    int n;
    bool swaps; /* no step is made in place */
    float *params[DENSE_COPIES];
    float *state[DENSE_COPIES]; /* NULL: the update rule has no state */
    int now;                    /* number of the copy with the parameters of the last full step */
    int next;                   /* number of the copy that the present step writes */
    int before;                 /* number of the copy that the last step has read */
    int held;                   /* number of the copy that no step may write; -1: none */
};

struct dense_clip {
    bool last; /* the last gradient was clipped */
    struct vb_k_norm norm;
};

/* The forward pass of the next step, begun while sums of this step are still running. It uses the
 * updated parameters of the other copy. It is discarded if this step does not complete. */
struct dense_early {
    const struct vb_batch *batch; /* NULL: the forward pass has not begun */
    int64_t step;
    int layers; /* number of layers, or of features, that are computed (vb_model_forward_part()) */
    size_t low, end; /* range of the parameters in the other copy that are already updated */
};

/* Buffers for evaluation, for max samples. */
struct dense_eval {
    int max;
    float *x;        /* (max, c, h, w) images; NULL: the model takes lists of pixels */
    uint16_t *y;     /* (max) labels */
    uint32_t *which; /* (max) numbers of the samples */
};

/* What hangs on the group before, while the ranks form another one. */
struct dense_aside {
    bool on;
    struct vb_buckets *buckets;
    struct vb_shared_update *shared;
    struct dense_copies copies; /* not in use if those of the model stay where they are */
    bool same_copies;
    bool clipped; /* clip.last: the members go on alike if some of them have not come so far */
};

struct dense {
    struct vb_model *model;
    size_t n_params;
    struct vb_buckets *buckets;
    struct vb_mem pieces; /* n_params floats: the sum over the first pieces of a large share. Its
                             pages are touched only if there is one */
    struct vb_shared_update *shared;          /* NULL: each rank updates all parameters itself */
    struct vb_k_pixels *pixels, *pixels_test; /* NULL: the model takes images */
    bool kept;                                /* the buckets hold the gradient of the last step */
    int lost; /* the member whose loss has ended a pass of this step early; -1: none */
    struct dense_copies copies;
    struct dense_clip clip;
    struct dense_early early;
    struct dense_eval eval;
    struct vb_checkpoint_array *arrays;
    struct dense_aside aside;
};

static inline struct dense *dense_of(const struct vb_trainer *t)
{
    return t->state;
}

/* train_dense_gradient.c */

/* Returns the input of a batch of this rank. */
struct vb_model_batch vb_dense_batch(const struct vb_trainer *t, const struct vb_batch *batch,
                                     int64_t step);

/* Returns VB_ERR_PEER, and logs why, if the last pass on the batch of vb_dense_forward() has ended
 * early, because a member is gone. */
vb_status vb_dense_in_vain(struct vb_trainer *t);

/* The forward pass of t->batch, which is returned in *batch_p, too. *loss_p: sum over the pieces of
 * the step so far. step: for messages. Fails if the loss is not finite, and as
 * vb_dense_in_vain() does. */
vb_status vb_dense_forward(struct vb_trainer *t, const float *params,
                           struct vb_model_batch *batch_p, double *loss_p, int64_t step);

/* If the share of this rank has several pieces: computes all but the last one, which is t->batch
 * afterwards. */
vb_status vb_dense_first_pieces(struct vb_trainer *t, const float *params, double *loss_p);

/* The backward pass of the last piece. Gradients of the whole share are handed to the buckets layer
 * by layer. */
void vb_dense_last_backward(struct vb_trainer *t, const float *params,
                            const struct vb_model_batch *batch);

/* train_dense_open.c */
vb_status vb_dense_compile(struct vb_trainer *t);
vb_status vb_dense_create(struct vb_trainer *t);
vb_status vb_dense_form(struct vb_trainer *t);
void vb_dense_formed(struct vb_trainer *t, bool stays);
int vb_dense_ahead(struct vb_trainer *t, int world, size_t *lens_bytes);
void vb_dense_close(struct vb_trainer *t);
void vb_dense_destroy(struct vb_trainer *t);

#endif
