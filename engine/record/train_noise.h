/* SPDX-License-Identifier: MIT
 *
 * The gradient noise scale (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018):
 * the batch at which the noise of the gradient is as large as the gradient itself. A much larger
 * batch hardly learns more from a step.
 *
 *     B_simple = tr(S) / |G|^2
 *
 * G is the gradient of the whole data, S the covariance of the gradients of single samples. A mean
 * over b samples has the expected squared norm |G|^2 + tr(S) / b. In a synchronous step a rank
 * knows two such norms: that of its own gradient, and that of the sum over all ranks. So each rank
 * gets unbiased estimates of tr(S) and of |G|^2 from a step, without another pass and without
 * messages. They are averaged over the run; later steps weigh more, because the scale grows while a
 * model learns. At the end the ranks' sums are added.
 *
 * Only some steps are measured, so that measuring takes less than 1 % of the time.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_NOISE_H
#define VB_ENGINE_RECORD_TRAIN_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb_trainer;
struct vb_train_result;

/* Sums of one rank over its measured steps. The i-th step has the weight i. */
struct vb_noise {
    double trace, square;           /* weighted sums of the estimates of tr(S) and |G|^2 */
    double traces2, both, squares2; /* of their products, with squared weights */
    int64_t n;
};

/* Adds a step: the squared norms of the mean gradients over b samples and over all_b samples, which
 * include the b. */
void vb_noise_add(struct vb_noise *noise, double b, double square_b, double all_b,
                  double square_all);

/* Returns the scale from the sums of n ranks, and its standard error, which is at most *error_p:
 * the ranks' estimates depend on each other. NAN: the steps are too few to tell. */
double vb_noise_scale(const struct vb_noise *ranks, int n, double *error_p);

/* What a rank measures. Only the training thread uses it. */
struct vb_trainer_noise {
    struct vb_noise sums;
    bool measures;      /* this step is measured */
    double own_square;  /* squared norm of this rank's gradient, as far as it is known */
    uint64_t cost_ns;   /* time that measuring this step took so far */
    uint64_t next_ns;   /* when a step may be measured again */
    float scale, error; /* of this rank so far; NAN: this step was not measured */
};

/* Called when a step begins to sum gradients. knows_sum: the norm of the sum is going to be known
 * in this step. */
void vb_train_noise_begin(struct vb_trainer *t, bool knows_sum);

/* If this step is measured: takes a part of this rank's gradient, before it is summed. */
void vb_train_noise_own(struct vb_trainer *t, const float *values, size_t n);

/* Returns whether this step is measured. Then the caller calls vb_train_noise_sum() with the norm
 * of the mean gradient over all ranks, and the time that computing it took. */
bool vb_train_noise_wants_sum(const struct vb_trainer *t);
void vb_train_noise_sum(struct vb_trainer *t, double norm, uint64_t cost_ns);

/* Fills in noise of the result from the sums of n ranks; NULL: they are not known. */
void vb_train_noise_result(const struct vb_trainer *t, const struct vb_noise *ranks, int n,
                           struct vb_train_result *result);

#endif
