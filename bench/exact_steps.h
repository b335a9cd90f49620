/* SPDX-License-Identifier: MIT
 *
 * The first steps of training a model on made-up samples, in double precision and with any backend.
 */
#ifndef VB_BENCH_EXACT_STEPS_H
#define VB_BENCH_EXACT_STEPS_H

#include "models/models.h"

/* The steps of a model in double precision. */
struct vb_exact_steps;

/* Runs n_steps steps of plain SGD in double precision. This is slow: it computes in plain loops. */
vb_status vb_exact_steps_create(const struct vb_layer_table *table, int batch, int n_steps,
                                struct vb_exact_steps **steps_p);
void vb_exact_steps_destroy(struct vb_exact_steps *steps);

/* Returns whether the backend can compute a pass of any layer of the model. */
bool vb_exact_steps_uses(const struct vb_exact_steps *steps, const char *backend);

/* Runs the same steps in single precision, with the backend for all passes that it can compute.
 * *error_p is the root mean square of the differences of the parameters from those in double
 * precision, divided by that of their change since the start; *off_p is the largest difference,
 * divided by the same. */
vb_status vb_exact_steps_error(const struct vb_exact_steps *steps, const char *backend,
                               double *error_p, double *off_p);

#endif
