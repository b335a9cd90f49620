/* SPDX-License-Identifier: MIT
 *
 * A run without computing: each rank sleeps for the times that an earlier run has recorded, and
 * exchanges gradients as always. So ranks that share a few cores behave as if each had its own.
 */
#ifndef VB_ENGINE_INJECT_TRAIN_REPLAY_H
#define VB_ENGINE_INJECT_TRAIN_REPLAY_H

#include "base/base.h"

struct vb_trainer;
struct vb_model;

/* Nanoseconds of a recorded step. */
struct vb_replay_step {
    uint64_t forward_ns, backward_ns, update_ns;
};

#define VB_REPLAY_LISTS 16

/* The keys of a sparse gradient. */
struct vb_replay_list {
    uint32_t *keys; /* NULL: not made yet */
    size_t n;
};

struct vb_trainer_replay {
    bool on;
    struct vb_replay_step *steps; /* of one rank of the earlier run, used again and again */
    int64_t n;
    int64_t ahead;     /* 1: the forward pass is that of the next step */
    int64_t owed_ns;   /* time that is still to be slept; negative: slept too long */
    bool has_sums;     /* the recorded backward passes have started sums over a network, too */
    uint64_t slept_ns; /* when the last sleep of this backward pass ended; 0: there was none */
    struct vb_replay_list lists[VB_REPLAY_LISTS];
};

/* Reads the records of the run that the options name, if they name one. */
vb_status vb_replay_open(struct vb_trainer *t);
void vb_replay_close(struct vb_trainer *t);

/* From now on the model sleeps instead of computing. */
void vb_replay_model(struct vb_trainer *t, struct vb_model *model);

/* Called at the end of a backward pass that the model has slept for. */
void vb_replay_passed(struct vb_trainer *t);

/* Sleep for a whole pass, or for a part of the update. */
void vb_replay_forward(struct vb_trainer *t);
void vb_replay_backward(struct vb_trainer *t);
void vb_replay_update(struct vb_trainer *t, double share);

/* Sparse models: copies the keys of this step's gradient, or returns false if the caller has to
 * make and keep them, which counts as a part of the backward pass. */
bool vb_replay_has_list(struct vb_trainer *t, uint32_t *keys, size_t *n_p);
vb_status vb_replay_keep_list(struct vb_trainer *t, const uint32_t *keys, size_t n);

#endif
