/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of training.
 */
#ifndef VB_TRAIN_PRIV_H
#define VB_TRAIN_PRIV_H

#include "engine/engine.h"

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

struct vb_laps {
    uint64_t begin_ns;
    uint64_t mark_ns; /* what came before has been given to a phase */
    uint64_t ns[VB_PHASES];
    double cpu_begin_s;
};

void vb_laps_begin(struct vb_laps *laps);

/* The time since the last call belongs to a phase. */
void vb_lap(struct vb_laps *laps, enum vb_phase phase);

/* ---- gradients of all ranks (train_exchange.c) ----------------------------------------------- */

struct vb_exchange;

/* Collective. n_elems: floats in a gradient. */
vb_status vb_exchange_create(struct vb_group *group, size_t n_elems, struct vb_exchange **ex_p);

/* Collective, before the group is closed. Its memory is net/'s as long as a put is under way, which
 * after a failure is as long as there is a group; it is freed by vb_exchange_destroy(). */
void vb_exchange_close(struct vb_exchange *ex);
void vb_exchange_destroy(struct vb_exchange *ex);

/* Where this rank is to write the gradient of its next step: in the window, so that it need not be
 * copied. Waits until what was there has been sent. */
vb_status vb_exchange_begin(struct vb_exchange *ex, float **grads_p);

/* Sends it to all, and adds up those of all ranks in rank order. Every rank calls it once a step
 * and ends with the same bits. */
vb_status vb_exchange_sum(struct vb_exchange *ex, struct vb_laps *laps, float *sum);

/* After the last step: waits until all of this rank's gradients have been sent. */
vb_status vb_exchange_flush(struct vb_exchange *ex);

/* ---- is it possible (train_check.c) ---------------------------------------------------------- */

vb_status vb_train_check(const struct vb_train_opts *o);

/* Collective: fails on all ranks if one was started with other options. */
vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group);

/* ---- places (train_place.c) ------------------------------------------------------------------ */

/* The group, and where on the machine this rank is. */
struct vb_place {
    struct vb_topo *topo;
    struct vb_plan *plan;
    struct vb_group *group; /* NULL: there are no others */
};

/* Opens the group, and puts this thread and its memory where the plan wants them. */
vb_status vb_place_open(const struct vb_train_opts *o, struct vb_place *place_p);
void vb_place_close(struct vb_place *place);

/* ---- results (train_result.c) ---------------------------------------------------------------- */

/* What a rank has to say at the end. */
struct vb_train_end {
    const struct vb_train_opts *opts;
    struct vb_group *group;
    const struct vb_laps *laps;
    const struct vb_softmax *model;
    int64_t correct; /* of its share of the test data */
    double loss;     /* likewise, summed */
};

/* Collective: brings the ranks' figures together. Fails if they ended with other parameters. */
vb_status vb_train_collect(const struct vb_train_end *end, struct vb_train_result *result_p);

#endif
