/* SPDX-License-Identifier: MIT */
#include "engine/train/trainer.h"

#include <math.h>

#define FIRST 1000        /* measured steps that may follow each other closely */
#define GAP_NS 100000000u /* time between two measured steps after these */
#define COST 200          /* time between two measured steps, relative to the time of measuring */

/* ---- estimates ------------------------------------------------------------------------------- */

void vb_noise_add(struct vb_noise *noise, double b, double square_b, double all_b,
                  double square_all)
{
    double trace = (square_b - square_all) / (1 / b - 1 / all_b);
    double square = (all_b * square_all - b * square_b) / (all_b - b);
    double w = (double)(noise->n + 1);

    if (!isfinite(trace) || !isfinite(square))
        return;
    noise->n++;
    noise->trace += w * trace;
    noise->square += w * square;
    noise->traces2 += w * w * trace * trace;
    noise->both += w * w * trace * square;
    noise->squares2 += w * w * square * square;
}

/* The error is that of a ratio of two sums: the sum of (trace - scale * square)^2, over square. */
double vb_noise_scale(const struct vb_noise *ranks, int n, double *error_p)
{
    double trace = 0, square = 0, spread = 0, scale, rest;
    int64_t steps = 0;
    int i;

    *error_p = (double)NAN;
    for (i = 0; i < n; i++) {
        trace += ranks[i].trace;
        square += ranks[i].square;
        steps += ranks[i].n;
    }
    if (steps < 2 || square <= 0 || trace <= 0)
        return (double)NAN;
    scale = trace / square;
    for (i = 0; i < n; i++) {
        rest = ranks[i].traces2 - 2 * scale * ranks[i].both + scale * scale * ranks[i].squares2;
        spread += sqrt(fmax(rest, 0));
    }
    if (spread / square > scale) /* the gradient does not stand out from its noise */
        return (double)NAN;
    *error_p = spread / square;
    return scale;
}

/* ---- steps ----------------------------------------------------------------------------------- */

void vb_train_noise_begin(struct vb_trainer *t, bool knows_sum)
{
    struct vb_trainer_noise *m = &t->noise;

    m->scale = m->error = NAN;
    m->measures = knows_sum && t->world > 1 && !t->async && !t->o->sums.no_noise && !t->replay.on &&
                  !t->sums.off && t->laps.mark_ns >= m->next_ns && t->batch->n_share > 0 &&
                  t->batch->n_share < t->batch->n_global;
    m->own_square = 0;
    m->cost_ns = 0;
}

void vb_train_noise_own(struct vb_trainer *t, const float *values, size_t n)
{
    struct vb_trainer_noise *m = &t->noise;
    uint64_t begin_ns;
    double norm;

    if (!m->measures)
        return;
    begin_ns = vb_clock_ns();
    norm = vb_k_norm(values, n);
    m->own_square += norm * norm;
    m->cost_ns += vb_clock_ns() - begin_ns;
}

bool vb_train_noise_wants_sum(const struct vb_trainer *t)
{
    return t->noise.measures;
}

void vb_train_noise_sum(struct vb_trainer *t, double norm, uint64_t cost_ns)
{
    struct vb_trainer_noise *m = &t->noise;
    double b = t->batch->n_share, error;
    uint64_t gap_ns;

    m->measures = false;
    vb_noise_add(&m->sums, b, m->own_square / (b * b), t->batch->n_global, norm * norm);
    m->scale = (float)vb_noise_scale(&m->sums, 1, &error);
    m->error = (float)error;
    gap_ns = COST * (m->cost_ns + cost_ns);
    if (m->sums.n >= FIRST && gap_ns < GAP_NS)
        gap_ns = GAP_NS;
    m->next_ns = t->laps.mark_ns + gap_ns;
}

/* ---- the result ------------------------------------------------------------------------------ */

static const char *why_unknown(const struct vb_trainer *t, int64_t steps)
{
    if (t->async)
        return "asynchronous training does not sum the gradients of a step; use --mode sync";
    if (vb_train_workers(t->o) == 1)
        return "one rank has gradients of one batch size only; use at least 2 ranks";
    if (t->o->sums.no_noise)
        return "it was not measured: --noise-scale off";
    if (t->replay.on)
        return "nothing was computed";
    if (steps == 0)
        return "no step was measured";
    return "in the steps that were measured the gradient does not stand out from its noise";
}

void vb_train_noise_result(const struct vb_trainer *t, const struct vb_noise *ranks, int n,
                           struct vb_train_result *result)
{
    struct vb_noise_result *r = &result->noise;
    int i;

    *r = (struct vb_noise_result){.scale = (double)NAN, .error = (double)NAN};
    for (i = 0; i < n; i++)
        r->steps += ranks[i].n;
    if (n > 0)
        r->scale = vb_noise_scale(ranks, n, &r->error);
    r->why = isnan(r->scale) ? why_unknown(t, r->steps) : NULL;
}
