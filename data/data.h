/* SPDX-License-Identifier: MIT
 *
 * data/: what a model is trained on, and in which order. So far: a generator of images.
 *
 * Everything random here is a function of a seed and a number (of a sample, a pixel, an epoch), not
 * of what was drawn before, so it is the same on every rank, thread and machine.
 */
#ifndef VB_DATA_H
#define VB_DATA_H

#include "base/base.h"

/* ---- data sets ------------------------------------------------------------------------------- */

struct vb_dataset {
    int n;
    int features;
    int classes;
    float *x;   /* (n, features), 0 to 1 */
    uint8_t *y; /* (n), the class of each */
    struct vb_mem mem;
};

/* Makes room for n samples, all 0. */
vb_status vb_dataset_create(int n, int features, int classes, struct vb_dataset *set_p);
void vb_dataset_destroy(struct vb_dataset *set); /* all-zero and already destroyed are fine */

/* Copies n samples, by their numbers, into one piece. x: (n, features), y: (n). */
void vb_dataset_pick(const struct vb_dataset *set, const uint32_t *which, int n, float *x,
                     uint8_t *y);

/* ---- what was asked for ---------------------------------------------------------------------- */

#define VB_DATA_SYNTH_DEFAULT 20000
#define VB_DATA_SYNTH_MAX 1000000

struct vb_data_spec {
    int n_train;
    int n_test;
};

/* "synth" or "synth:N". On VB_ERR_USAGE why has one line, which is not logged. */
vb_status vb_data_spec_parse(const char *text, struct vb_data_spec *spec_p, char why[VB_OPTS_WHY]);

/* ---- made-up images -------------------------------------------------------------------------- */

#define VB_SYNTH_SIDE 28
#define VB_SYNTH_FEATURES (VB_SYNTH_SIDE * VB_SYNTH_SIDE)
#define VB_SYNTH_CLASSES 10

enum vb_synth_part { VB_SYNTH_TRAIN, VB_SYNTH_TEST };

/* n images of 28 x 28 in 10 classes, like MNIST in shape and about as hard for a linear model. The
 * first n of a part are the same whatever n is; the parts have no image in common. */
vb_status vb_synth_create(uint64_t seed, enum vb_synth_part part, int n, struct vb_dataset *set_p);

/* ---- order ----------------------------------------------------------------------------------- */

/* The order of n samples in an epoch: a permutation of 0 ... n-1. */
void vb_order_fill(uint64_t seed, int64_t epoch, int n, uint32_t *order);

/* The share of a rank in n things: neighbouring ranks have neighbouring shares, which differ by at
 * most 1. */
void vb_share(int n, int rank, int world, int *first_p, int *n_p);

#endif
