/* SPDX-License-Identifier: MIT
 *
 * Evaluates the parameters of a checkpoint, without training.
 */
#ifndef VB_ENGINE_TRAIN_EVAL_H
#define VB_ENGINE_TRAIN_EVAL_H

#include "data/data.h"
#include "engine/checkpoint/checkpoint.h"

struct vb_eval_opts {
    struct vb_data_spec data; /* the test part of the data is used if there is one */
    const char *data_text;
};

struct vb_eval_result {
    char model[VB_CHECKPOINT_NAME];
    int64_t step;
    int samples;
    double accuracy, loss, seconds;
};

/* Evaluates the parameters of a checkpoint on data. */
vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p);

#endif
