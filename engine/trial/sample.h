/* SPDX-License-Identifier: MIT
 *
 * A sample of the training data, and trials on it.
 */
#ifndef VB_ENGINE_TRIAL_SAMPLE_H
#define VB_ENGINE_TRIAL_SAMPLE_H

#include "data/data.h"
#include "kernels/kernels.h"

/* ---- the sample (sample.c) ------------------------------------------------------------------- */

struct vb_sample {
    int n, features;
    int outputs; /* number of classes; 1: one logistic output */
    int64_t *at; /* row i has the entries at[i] to at[i + 1] - 1 */
    uint32_t *index;
    float *value;
    uint16_t *y;
    double square;      /* mean sum of squares of a row, with the 1 of the bias */
    double in_mean;     /* images: share of `square` that the mean image has */
    double least, most; /* of the sizes of all features and of 1, the size of the bias */
    float *size;  /* (features) root mean square of the values that are not 0; NULL: unknown */
    float *share; /* (features) share of rows that have the feature */
};

/* Takes a sample of at most 20,000 rows, and of fewer if they are long. It depends on the data
 * alone. The caller frees it. */
vb_status vb_sample_take(const struct vb_dataset *set, struct vb_sample *sample_p);
void vb_sample_free_rows(struct vb_sample *sample); /* keeps the measurements */
void vb_sample_free(struct vb_sample *sample);

/* Numbers the features that the sample has from 0 on and leaves out all others, so that weights for
 * them take little memory. The copy borrows rows, values and labels. */
vb_status vb_sample_compact(const struct vb_sample *sample, struct vb_sample *compact_p);
void vb_sample_free_compact(struct vb_sample *compact);

/* Adagrad with features of different sizes: the state in which a feature begins, so that its weight
 * moves by a distance in proportion to 1 / size. steps, batch: of the run. */
float vb_sample_begin(double size, double share, double least, int64_t steps, int batch);

/* ---- trials (trial.c) ------------------------------------------------------------------------ */

/* What a linear model learns best with, found by short trainings on the sample. */
struct vb_trial {
    bool ran;
    int tried; /* number of rules and rates that were tried */
    int rows;  /* number of rows that they were tried with */
    enum vb_k_rule_kind rule;
    double lr; /* for steps of `batch` samples */
    int batch;
    double steps;      /* number of steps after which held-out rows were predicted best */
    double rows_train; /* number of rows that these steps were made with */
    bool end;          /* this was the last step of the trial: more steps might be better */
    double loss;       /* of the held-out rows, per row */
};

vb_status vb_trial_run(const struct vb_sample *sample, uint64_t seed, struct vb_trial *trial_p);

/* The result as text, for other ranks. vb_trial_parse() returns false if the text is not one. */
#define VB_TRIAL_TEXT 200
void vb_trial_print(const struct vb_trial *trial, char text[VB_TRIAL_TEXT]);
bool vb_trial_parse(const char *text, struct vb_trial *trial_p);

#endif
