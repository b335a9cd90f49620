/* SPDX-License-Identifier: MIT
 *
 * Judges a finished run: finds the resource that took the most time, with the figures that show it,
 * and whether more steps would have improved the model further.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>

#define LEAST_LOSSES 20  /* of a tenth of the steps; fewer say nothing */
#define LEAST_FALL 0.005 /* share of the loss; a smaller fall is none */

/* ---- what took the most time ----------------------------------------------------------------- */

const char *vb_resource_str(enum vb_resource resource)
{
    static const char *const names[] = {[VB_COMPUTE] = "compute",
                                        [VB_NETWORK] = "network",
                                        [VB_STRAGGLER] = "straggler",
                                        [VB_INPUT] = "input",
                                        [VB_DISK] = "disk"};

    return names[resource];
}

static const struct vb_rank_result *straggler_of(const struct vb_train_result *r)
{
    const struct vb_rank_result *late = &r->per_rank[0];
    int i;

    for (i = 1; i < r->workers; i++)
        if (r->per_rank[i].late_s > late->late_s)
            late = &r->per_rank[i];
    return late;
}

/* Returns the number of steps per rank. Asynchronous training: the mean over the workers. */
static double steps_of_one(const struct vb_train_result *r)
{
    return (double)(r->steps - r->resumed) / (r->apart ? r->workers : 1);
}

static void say_why(const struct vb_train_result *r, double step_ms, struct vb_bottleneck *b)
{
    const struct vb_rank_result *late = straggler_of(r);
    double steps = steps_of_one(r);

    switch (b->resource) {
    case VB_COMPUTE:
        snprintf(b->why, sizeof(b->why), "%.4g ms of a step are spent computing", step_ms);
        break;
    case VB_NETWORK:
        snprintf(b->why, sizeof(b->why),
                 "in a step, %.4g ms of the transfer over %s are not hidden behind computing",
                 step_ms, r->transport);
        break;
    case VB_STRAGGLER:
        snprintf(b->why, sizeof(b->why),
                 "rank %d (%s) made other ranks wait %lld times in %.0f steps: on average %.4g ms "
                 "per step, at most %.4g ms",
                 late->rank, late->host, (long long)late->late_n, steps, 1e3 * late->late_s / steps,
                 1e3 * late->late_max_s);
        break;
    case VB_INPUT:
        snprintf(b->why, sizeof(b->why), "%.4g ms of a step are spent waiting for data", step_ms);
        break;
    case VB_DISK:
        snprintf(b->why, sizeof(b->why), "checkpoints stopped training for up to %.4g ms",
                 1e3 * r->pause_s);
        break;
    }
}

/* Returns the time that was spent waiting for stragglers. A straggler itself does not wait, so the
 * time of the rank that waited the most is used. The time is limited to the waiting time that all
 * stragglers caused, because asynchronous workers also wait for the others at the end. */
static double waited(const struct vb_train_result *r)
{
    double most = 0, late = 0;
    int i;

    for (i = 0; i < r->workers; i++) {
        late += r->per_rank[i].late_s;
        if (r->per_rank[i].phase_s[VB_PHASE_WAIT] > most)
            most = r->per_rank[i].phase_s[VB_PHASE_WAIT];
    }
    return most < late ? most : late;
}

void vb_train_find_bottleneck(struct vb_train_result *r)
{
    const double *s = r->phase_s;
    const double spent[] = {[VB_COMPUTE] =
                                s[VB_PHASE_FORWARD] + s[VB_PHASE_BACKWARD] + s[VB_PHASE_UPDATE],
                            [VB_NETWORK] = s[VB_PHASE_COMM],
                            [VB_STRAGGLER] = waited(r),
                            [VB_INPUT] = s[VB_PHASE_DATA],
                            [VB_DISK] = s[VB_PHASE_CHECKPOINT]};
    double all = r->train_s - s[VB_PHASE_EVAL], most = 0;
    struct vb_bottleneck *b = &r->bottleneck;
    size_t i;

    if (r->steps <= r->resumed || all <= 0)
        return;
    for (i = 0; i < VB_COUNT(spent); i++)
        if (spent[i] > most) {
            most = spent[i];
            b->resource = (enum vb_resource)i;
        }
    b->share = most < all ? most / all : 1; /* most may be the time of one rank, all is a mean */
    say_why(r, 1e3 * most / steps_of_one(r), b);
}

/* ---- is the model still improving? ----------------------------------------------------------- */

void vb_train_note_loss(struct vb_trainer *t, int64_t step)
{
    struct vb_trainer_tenths *x = &t->tenths;
    int last = step * 10 > t->recipe.steps * 9;

    if (step * 10 <= t->recipe.steps * 8)
        return;
    x->n[last]++;
    x->sum[last] += t->loss;
    x->squares[last] += t->loss * t->loss;
}

/* The loss of a batch is noisy. It has fallen if the means differ by more than two standard errors,
 * and by more than a user would care about. */
struct vb_improving vb_train_improving(const struct vb_trainer_tenths *x)
{
    struct vb_improving r = {0};
    double error = 0, mean[2], spread;
    int i;

    if (x->n[0] < LEAST_LOSSES || x->n[1] < LEAST_LOSSES)
        return r;
    for (i = 0; i < 2; i++) {
        mean[i] = x->sum[i] / (double)x->n[i];
        spread = fmax(x->squares[i] / (double)x->n[i] - mean[i] * mean[i], 0);
        error += spread / (double)x->n[i];
    }
    r.known = isfinite(mean[0]) && isfinite(mean[1]);
    r.before = mean[0];
    r.last = mean[1];
    r.still = r.known && mean[0] - mean[1] > fmax(2 * sqrt(error), LEAST_FALL * mean[0]);
    return r;
}
