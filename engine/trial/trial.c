/* SPDX-License-Identifier: MIT
 *
 * Trials: short trainings of a linear model on a sample of the data, with several rules and rates.
 * Each trial trains on one part of the sample and predicts the held-out part at *milestones*, after
 * 8, 12, 16, 24, 32 ... steps. The rule, the rate and the number of steps with the lowest held-out
 * loss are the recipe of the run.
 *
 * Few steps with a small rate keep weights small, as a penalty on weights does. So a trial finds
 * how much regularisation the data needs, too: wide data with few rows is best predicted early.
 *
 * A small sample is divided into folds, and the losses of all folds are added up. The work of a
 * trial is bounded.
 *
 * The arithmetic is here and not that of kernels/. Trials come before the plan that says which
 * kernels run, must take well under a second, and see compact features: only those that the sample
 * has. One thread computes in a fixed order, so the same data always gives the same recipe.
 */
#include "engine/trial/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 100
#define FOLDS_MAX 3
#define FOLDS_UP_TO 6000 /* rows; of more rows one part of a quarter is held out */
#define WORK 1.2e7       /* entries times outputs that a trial may visit, for each fold */
#define STEPS_MAX 8192
#define MILESTONES 24
#define LOSS_BAD 1e30
#define NARROW 0.9 /* share of the mean image in the squares: images hardly differ */
#define NARROW_RATE 30
#define NARROW_STEPS 1e9 /* as many as the recipe allows */

/* A rule and a rate. For adagrad, the rate is per size of the smallest feature; for the others, per
 * mean sum of squares of a row. Adagrad fits features of different sizes, momentum those that vary
 * little around a large mean. */
struct attempt {
    enum vb_k_rule_kind rule;
    double rate;
};

#define MOMENTUM 0.9f /* the default of the rule */
#define GLIDE_FEATURES 1000

struct trainer {
    const struct vb_sample *s;
    const struct attempt *attempt;
    double lr;
    int batch, n_train, n_held;
    const uint32_t *train, *held;
    bool glides;   /* momentum is tried, too; it changes every weight in each step */
    int64_t steps; /* of the longest trial: adagrad's first state depends on it */
    float *w;      /* (features + 1, outputs); the last is the bias */
    float *grad, *state;
    uint32_t *touched; /* features of the batch, for adagrad */
    uint8_t *is_touched;
    int n_touched;
    float *err; /* (batch, outputs) */
};

float vb_sample_begin(double size, double share, double least, int64_t steps, int batch)
{
    /* the variance of (probability - label), as it is for rows that are mostly predicted right */
    const double noise = 0.1;
    double times = size / least;
    double sum = (double)steps * share * size * size * noise / batch;

    return (float)fmin((times * times - 1) * sum, 1e36);
}

/* ---- one training ---------------------------------------------------------------------------- */

static void outputs_of(const struct trainer *t, uint32_t row, float *out)
{
    const struct vb_sample *s = t->s;
    int k, outputs = s->outputs;
    const float *bias = t->w + (size_t)s->features * (size_t)outputs;
    int64_t e;

    for (k = 0; k < outputs; k++)
        out[k] = bias[k];
    for (e = s->at[row]; e < s->at[row + 1]; e++) {
        const float *w = t->w + (size_t)s->index[e] * (size_t)outputs;
        float x = s->value[e];

        for (k = 0; k < outputs; k++)
            out[k] += x * w[k];
    }
}

/* Turns outputs into probabilities minus label. Returns the loss. */
static double errors_of(float *out, int outputs, int label)
{
    float most = out[0], sum = 0, z = out[0];
    double loss;
    int k;

    if (outputs == 1) {
        loss = log1p(exp(-fabs((double)z))) + (label ? fmax(-(double)z, 0) : fmax((double)z, 0));
        out[0] = 1 / (1 + expf(-z)) - (float)label;
        return loss;
    }
    for (k = 1; k < outputs; k++)
        most = fmaxf(most, out[k]);
    z = out[label];
    for (k = 0; k < outputs; k++) {
        out[k] = expf(out[k] - most);
        sum += out[k];
    }
    for (k = 0; k < outputs; k++)
        out[k] /= sum;
    out[label] -= 1;
    return log((double)sum) + (double)(most - z);
}

/* Adds scale * error * value to `to`, a vector like w. */
static void add_row(const struct trainer *t, uint32_t row, const float *err, float scale, float *to)
{
    const struct vb_sample *s = t->s;
    int k, outputs = s->outputs;
    float *bias = to + (size_t)s->features * (size_t)outputs;
    int64_t e;

    for (k = 0; k < outputs; k++)
        bias[k] += scale * err[k];
    for (e = s->at[row]; e < s->at[row + 1]; e++) {
        float *w = to + (size_t)s->index[e] * (size_t)outputs;
        float x = s->value[e] * scale;

        for (k = 0; k < outputs; k++)
            w[k] += x * err[k];
    }
}

static void touch(struct trainer *t, uint32_t row)
{
    const struct vb_sample *s = t->s;
    int64_t e;

    for (e = s->at[row]; e < s->at[row + 1]; e++) {
        uint32_t f = s->index[e];

        if (!t->is_touched[f]) {
            t->is_touched[f] = 1;
            t->touched[t->n_touched++] = f;
        }
    }
}

/* Updates the features of a batch by adagrad. There is one output. */
static void adapt(struct trainer *t, float lr)
{
    int i;

    t->touched[t->n_touched++] = (uint32_t)t->s->features;
    for (i = 0; i < t->n_touched; i++) {
        uint32_t f = t->touched[i];
        float g = t->grad[f];

        t->state[f] += g * g;
        t->w[f] -= lr * g / (sqrtf(t->state[f]) + 1e-8f);
        t->grad[f] = 0;
        t->is_touched[f] = 0;
    }
    t->n_touched = 0;
}

/* Updates all weights with Nesterov's momentum. */
static void glide(struct trainer *t, float lr)
{
    size_t n = ((size_t)t->s->features + 1) * (size_t)t->s->outputs, i;

    for (i = 0; i < n; i++) {
        float g = t->grad[i];

        t->state[i] = MOMENTUM * t->state[i] + g;
        t->w[i] -= lr * (g + MOMENTUM * t->state[i]);
        t->grad[i] = 0;
    }
}

static void step(struct trainer *t, const uint32_t *rows, int n, float lr)
{
    int i, outputs = t->s->outputs;

    for (i = 0; i < n; i++) {
        outputs_of(t, rows[i], t->err + (size_t)i * (size_t)outputs);
        (void)errors_of(t->err + (size_t)i * (size_t)outputs, outputs, t->s->y[rows[i]]);
    }
    for (i = 0; i < n; i++) {
        const float *err = t->err + (size_t)i * (size_t)outputs;

        if (t->attempt->rule == VB_K_SGD) {
            add_row(t, rows[i], err, -lr / (float)n, t->w);
        } else {
            if (t->attempt->rule == VB_K_ADAGRAD)
                touch(t, rows[i]);
            add_row(t, rows[i], err, 1 / (float)n, t->grad);
        }
    }
    if (t->attempt->rule == VB_K_ADAGRAD)
        adapt(t, lr);
    if (t->attempt->rule == VB_K_NESTEROV)
        glide(t, lr);
}

static double held_loss(const struct trainer *t)
{
    double sum = 0;
    int i;

    for (i = 0; i < t->n_held; i++) {
        outputs_of(t, t->held[i], t->err);
        sum += errors_of(t->err, t->s->outputs, t->s->y[t->held[i]]);
    }
    return isfinite(sum) ? fmin(sum, LOSS_BAD) : LOSS_BAD;
}

static void reset(struct trainer *t)
{
    size_t n = ((size_t)t->s->features + 1) * (size_t)t->s->outputs, f;

    memset(t->w, 0, n * sizeof(*t->w));
    memset(t->grad, 0, n * sizeof(*t->grad));
    memset(t->state, 0, n * sizeof(*t->state));
    for (f = 0; t->attempt->rule == VB_K_ADAGRAD && f < n; f++) {
        bool known = t->s->size != NULL && f < (size_t)t->s->features;

        t->state[f] =
            vb_sample_begin(known ? (double)t->s->size[f] : 1, known ? (double)t->s->share[f] : 1,
                            t->s->least, t->steps, t->batch);
    }
}

/* Returns the number of steps before milestone i. */
static int64_t milestone(int i)
{
    return (i & 1 ? INT64_C(12) : INT64_C(8)) << (i / 2);
}

/* Trains, and adds the held-out loss at each milestone to loss. */
static void train(struct trainer *t, uint64_t seed, uint32_t *order, double loss[MILESTONES])
{
    int64_t done = 0, epoch = 0;
    int next = 0, at = t->n_train, i, n;
    uint32_t rows[BATCH];

    reset(t);
    while (next < MILESTONES && milestone(next) <= t->steps) {
        if (at + t->batch > t->n_train) {
            vb_order_fill(seed, epoch++, t->n_train, order);
            at = 0;
        }
        n = t->n_train < t->batch ? t->n_train : t->batch;
        for (i = 0; i < n; i++)
            rows[i] = t->train[order[at + i]];
        at += n;
        step(t, rows, n, (float)t->lr);
        if (++done == milestone(next))
            loss[next++] += held_loss(t);
    }
}

/* ---- all trials ------------------------------------------------------------------------------ */

static void free_trainer(struct trainer *t)
{
    free(t->w);
    free(t->grad);
    free(t->state);
    free(t->touched);
    free(t->is_touched);
    free(t->err);
}

static vb_status make_trainer(const struct vb_sample *s, struct trainer *t)
{
    size_t n = (size_t)s->features + 1, all = n * (size_t)s->outputs;

    t->s = s;
    t->w = malloc(all * sizeof(*t->w));
    t->err = malloc((size_t)BATCH * (size_t)s->outputs * sizeof(*t->err));
    t->grad = malloc(all * sizeof(*t->grad));
    t->state = malloc(all * sizeof(*t->state));
    t->touched = malloc(n * sizeof(*t->touched));
    t->is_touched = calloc(n, 1);
    if (t->w != NULL && t->err != NULL && t->grad != NULL && t->state != NULL &&
        t->touched != NULL && t->is_touched != NULL)
        return VB_OK;
    free_trainer(t);
    return vb_err(VB_ERR_NO_MEMORY, "no memory for trials of %zu weights", all);
}

/* Holds out every n-th row of a random order: those of the fold. rows: receives first the rows to
 * train on, then the others. */
static void divide(const uint32_t *order, int n, int parts, int fold, struct trainer *t,
                   uint32_t *rows)
{
    int i, held = 0, trained = 0;

    t->n_held = (n - fold + parts - 1) / parts;
    t->n_train = n - t->n_held;
    for (i = 0; i < n; i++) {
        if (i % parts == fold)
            rows[t->n_train + held++] = order[i];
        else
            rows[trained++] = order[i];
    }
    t->train = rows;
    t->held = rows + t->n_train;
}

static int64_t steps_for(const struct vb_sample *s)
{
    double row = (double)s->at[s->n] / s->n + 1;
    double steps = WORK / (row * BATCH * (s->outputs > 1 ? s->outputs / 4.0 : 1));

    return steps > STEPS_MAX ? STEPS_MAX : steps < 32 ? 32 : (int64_t)steps;
}

/* Keeps the milestone with the lowest loss of all so far. */
static void keep_best(const struct trainer *t, const double loss[MILESTONES], int held,
                      struct vb_trial *best)
{
    int i;

    for (i = 0; i < MILESTONES && milestone(i) <= t->steps; i++) {
        if (best->ran && loss[i] / held >= best->loss)
            continue;
        best->ran = true;
        best->rule = t->attempt->rule;
        best->lr = t->lr;
        best->batch = t->batch;
        best->steps = (double)milestone(i);
        best->rows_train = t->n_train;
        best->end = i + 1 == MILESTONES || milestone(i + 1) > t->steps;
        best->loss = loss[i] / held;
    }
}

static void log_trial(const struct trainer *t, const double loss[MILESTONES], int held)
{
    int i, best = 0, last = 0;

    for (i = 0; i < MILESTONES && milestone(i) <= t->steps; i++) {
        best = loss[i] < loss[best] ? i : best;
        last = i;
    }
    VB_LOG_INFO("trial of %s, rate %.3g: held-out loss %.4f after %lld steps, %.4f after %lld",
                vb_k_rule_str(t->attempt->rule), t->lr, loss[best] / held,
                (long long)milestone(best), loss[last] / held, (long long)milestone(last));
}

static vb_status run_trials(struct trainer *t, uint64_t seed, struct vb_trial *best)
{
    static const struct attempt one_output[] = {{VB_K_SGD, 80},       {VB_K_SGD, 10},
                                                {VB_K_SGD, 1},        {VB_K_ADAGRAD, 0.5},
                                                {VB_K_ADAGRAD, 0.05}, {VB_K_NESTEROV, 10}};
    static const struct attempt classes[] = {
        {VB_K_SGD, 80}, {VB_K_SGD, 10}, {VB_K_NESTEROV, NARROW_RATE}};
    const struct attempt *tries = t->s->outputs > 1 ? classes : one_output;
    size_t n_tries = t->s->outputs > 1 ? VB_COUNT(classes) : VB_COUNT(one_output);
    const struct vb_sample *s = t->s;
    int n = s->n, folds = n <= FOLDS_UP_TO ? FOLDS_MAX : 1, fold, held;
    uint32_t *order = malloc(3 * (size_t)n * sizeof(*order));
    size_t i;

    if (order == NULL)
        return vb_err_sys("malloc");
    vb_order_fill(seed, 0, n, order);
    t->steps = steps_for(s);
    for (i = 0; i < n_tries; i++) {
        double loss[MILESTONES] = {0};

        if (tries[i].rule == VB_K_NESTEROV && !t->glides)
            continue;
        t->attempt = &tries[i];
        t->lr = tries[i].rate / (tries[i].rule == VB_K_ADAGRAD ? s->least : s->square);
        for (fold = held = 0; fold < folds; fold++) {
            divide(order, n, folds > 1 ? folds : 4, fold, t, order + n);
            t->batch = t->n_train < BATCH ? t->n_train : BATCH;
            held += t->n_held;
            train(t, seed, order + 2 * (size_t)n, loss);
        }
        best->tried++;
        keep_best(t, loss, held, best);
        log_trial(t, loss, held);
    }
    free(order);
    return VB_OK;
}

vb_status vb_trial_run(const struct vb_sample *sample, uint64_t seed, struct vb_trial *trial_p)
{
    struct trainer t = {.glides = sample->features <= GLIDE_FEATURES};
    struct vb_trial best = {.rows = sample->n};
    struct vb_sample compact;
    vb_status st;

    if (sample->n < 8) { /* nothing could be held out */
        *trial_p = best;
        return VB_OK;
    }
    if (sample->outputs > 1 && sample->in_mean > NARROW) {
        /* A short trial would see only the mean. Momentum and many steps are what it takes. */
        *trial_p = (struct vb_trial){.ran = true,
                                     .rule = VB_K_NESTEROV,
                                     .rows = sample->n,
                                     .lr = NARROW_RATE / sample->square,
                                     .batch = BATCH,
                                     .steps = NARROW_STEPS,
                                     .rows_train = sample->n,
                                     .end = true};
        return VB_OK;
    }
    st = vb_sample_compact(sample, &compact);
    if (st != VB_OK)
        return st;
    st = make_trainer(&compact, &t);
    if (st == VB_OK)
        st = run_trials(&t, seed, &best);
    free_trainer(&t);
    vb_sample_free_compact(&compact);
    if (st == VB_OK)
        *trial_p = best;
    return st;
}

/* ---- as text --------------------------------------------------------------------------------- */

void vb_trial_print(const struct vb_trial *r, char text[VB_TRIAL_TEXT])
{
    snprintf(text, VB_TRIAL_TEXT, "%d %d %d %d %a %d %a %a %d %a", r->ran, r->tried, r->rows,
             (int)r->rule, r->lr, r->batch, r->steps, r->rows_train, r->end, r->loss);
}

bool vb_trial_parse(const char *text, struct vb_trial *trial_p)
{
    struct vb_trial r = {0};
    int ran, rule, end;

    if (sscanf(text, "%d %d %d %d %la %d %la %la %d %la", &ran, &r.tried, &r.rows, &rule, &r.lr,
               &r.batch, &r.steps, &r.rows_train, &end, &r.loss) != 10)
        return false;
    r.ran = ran != 0;
    r.end = end != 0;
    r.rule = (enum vb_k_rule_kind)rule;
    if (rule < VB_K_SGD || rule > VB_K_ADAGRAD)
        return false;
    if (r.ran && !(r.lr > 0 && r.batch > 0 && r.steps > 0 && r.rows_train > 0))
        return false;
    *trial_p = r;
    return true;
}
