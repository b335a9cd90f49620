/* SPDX-License-Identifier: MIT
 *
 * A sparse model in training, shared by train_sparse.c and train_sparse_save.c.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_SPARSE_PRIV_H
#define VB_ENGINE_TRAIN_TRAIN_SPARSE_PRIV_H

#include "engine/train/train_room_priv.h"

#define SPARSE_ARRAYS (VB_K_SPARSE_PARTS + 2) /* of a checkpoint */

struct sparse {
    uint64_t features; /* number of features of the data set */
    struct vb_k_sparse *weights;
    struct vb_k_sparse *other; /* NULL unless this worker of an asynchronous job may save */
    struct vb_mem other_mem;
    struct vb_trainer_late late, other_late; /* of these two; NULL unless servers have such */
    struct vb_mem late_mem;
    uint32_t late_now, late_held; /* late.steps of the last save(), and of what is held */
    struct vb_k_grad *grad;
    struct vb_sparse *all;  /* NULL: this is the only rank */
    float *logits;          /* (largest batch) outputs of the model */
    struct vb_list list;    /* the gradient; the bias is the last entry */
    size_t max_nnz;         /* of a batch */
    size_t n_grad;          /* number of entries in the last gradient */
    size_t n_shown;         /* number of entries of the gradient that was shown */
    struct vb_k_kept *kept; /* the gradient of the last update; NULL: this is the only rank */
    int n_global;           /* samples of the last update */
    struct vb_rows rows;    /* buffers for evaluation */
    struct vb_mem rows_mem;
    uint32_t *which;
    float *flat; /* a copy of the parameters, allocated at the first use */
    struct vb_checkpoint_array arrays[SPARSE_ARRAYS];
    bool has_aside; /* the ranks form another group; these hang on the one before */
    struct vb_sparse *all_aside;
    struct vb_k_kept *kept_aside;
};

static inline struct sparse *sparse_of(const struct vb_trainer *t)
{
    return t->state;
}

/* train_sparse_save.c: see struct vb_trainer_ops. */
vb_status vb_sparse_save(struct vb_trainer *t, struct vb_checkpoint *cp);
bool vb_sparse_hold(struct vb_trainer *t, struct vb_checkpoint *cp);
vb_status vb_sparse_restore(struct vb_trainer *t, const struct vb_checkpoint *cp);
void vb_sparse_settle(struct vb_trainer *t);
struct vb_trainer_late *vb_sparse_late(struct vb_trainer *t);

#endif
