/* SPDX-License-Identifier: MIT
 *
 * Computes the numbers of a run from the options, from the defaults in the model's row
 * (train_models.c) and from what is known of the data: batch size, number of steps, update rule,
 * learning rate and its schedule.
 *
 * Length. The row gives epochs and a least number of steps, so that small sets are trained on until
 * they are learnt. Linear models learn more from the data: trials on a sample (engine/trial) find
 * rule, rate and length. They are made only if the user gives none of the three.
 *
 * Rate. The row gives a rate for each rule, for one batch size. Up to four times this batch size,
 * the rate grows in proportion to the batch. Beyond, it grows with the square root of the batch,
 * because the noise of a gradient falls with the square root. The rate has a maximum. A warm-up
 * raises the rate from a low value to its full value. Rates of linear models also depend on the
 * size of the data's values: a row of large values has a large gradient.
 *
 * Company. By default all workers together take at most four batches of the row in a step, and
 * asynchronous ones two: larger steps learn less from the same samples. In asynchronous training a
 * stale gradient points in a direction that is no longer right, so the rate decreases with the
 * samples that others have trained on in the meantime. docs/performance.md has the measurements.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINEAR_UP_TO 4.0
#define TOGETHER_UP_TO 4       /* batches of the model that all workers take in a step by default */
#define TOGETHER_UP_TO_ASYNC 2 /* the same while a stale gradient is under way */
#define SQUARE 80.0        /* mean sum of squares of a row that the rates of linear models fit */
#define ALIKE 8.0          /* features whose sizes differ less than this are taken as they are */
#define TRIAL_ROWS_TIMES 5 /* more rows than this many times the sample need no trial */
#define TRIAL_LEAST_STEPS 1000

/* ---- roles of the ranks ---------------------------------------------------------------------- */

int vb_train_shards(const struct vb_async_opts *o)
{
    return o->servers > 0 ? o->servers : 1;
}

int vb_train_replicas(const struct vb_async_opts *o)
{
    return o->replicas > 1 ? o->replicas : 1;
}

int vb_train_servers(const struct vb_async_opts *o)
{
    return vb_train_shards(o) * vb_train_replicas(o);
}

int vb_train_workers(const struct vb_train_opts *o)
{
    if (o->mode != VB_MODE_ASYNC || !o->async.dedicated)
        return o->group.world;
    return o->group.world - vb_train_servers(&o->async);
}

bool vb_train_is_elastic(const struct vb_train_opts *o)
{
    return o->elastic && o->mode == VB_MODE_SYNC && o->group.world > 1 && !o->dry_run;
}

bool vb_train_apart(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !(o->async.bounded && o->async.staleness == 0);
}

/* ---- update rule ----------------------------------------------------------------------------- */

static const char *const schedule_names[] = {"constant", "step", "cosine"};

static bool has_momentum(enum vb_k_rule_kind kind)
{
    return kind == VB_K_MOMENTUM || kind == VB_K_NESTEROV;
}

static void choose_rule(const struct vb_train_opts *o, const struct vb_train_model *m,
                        const struct vb_trial *trial, struct vb_recipe *r)
{
    const char *name;
    int i;

    r->rule.kind = trial != NULL ? trial->rule : m->rule;
    r->chosen.rule_from = trial != NULL ? "trials" : "model";
    for (i = 0; o->learn.rule != NULL; i++) {
        name = vb_k_rule_str((enum vb_k_rule_kind)i);
        if (name == NULL)
            return;
        if (strcmp(o->learn.rule, name) == 0) {
            r->rule.kind = (enum vb_k_rule_kind)i;
            r->chosen.rule_from = "given";
        }
    }
}

static vb_status make_rule(const struct vb_train_opts *o, const struct vb_train_model *m,
                           struct vb_k_rule *rule)
{
    if (rule->kind == VB_K_FTRL && !m->sparse)
        return vb_err(VB_ERR_USAGE, "--rule ftrl can be used only with sparse models");
    if (has_momentum(rule->kind))
        rule->momentum = (float)(o->learn.momentum >= 0 ? o->learn.momentum : 0.9);
    else if (o->learn.momentum > 0)
        return vb_err(VB_ERR_USAGE, "--momentum can be used only with --rule momentum or nesterov");
    rule->decay = (float)(o->learn.weight_decay >= 0 ? o->learn.weight_decay : m->decay);
    if (rule->decay != 0 && rule->kind >= VB_K_ADAGRAD && m->sparse)
        return vb_err(VB_ERR_USAGE,
                      "--weight-decay with a sparse model needs --rule sgd, momentum or "
                      "nesterov: other rules would have to update every feature");
    if (o->learn.clip > 0 && m->sparse)
        return vb_err(VB_ERR_USAGE, "--clip can be used only with dense models");
    rule->eps = 1e-8f;
    rule->beta = 1;
    return VB_OK;
}

/* ---- learning rate --------------------------------------------------------------------------- */

/* Returns 1, 2 or 5 times a power of 10: the one next to x. Data that differs a little then has the
 * same rate. */
static double round_rate(double x)
{
    double power = pow(10, floor(log10(x))), digit = x / power;

    return power * (digit < sqrt(2) ? 1 : digit < sqrt(10) ? 2 : digit < sqrt(50) ? 5 : 10);
}

static bool adapts(enum vb_k_rule_kind kind)
{
    return kind == VB_K_ADAGRAD || kind == VB_K_FTRL;
}

/* Returns whether the values of some features are much larger or smaller than those of others. */
static bool differ_in_size(const struct vb_sample *s)
{
    return s->size != NULL && (s->least * ALIKE < 1 || s->most > ALIKE);
}

/* Returns the rate for the batch size of the model's row. */
static double base_rate(const struct vb_train_model *m, const struct vb_sample *sample,
                        struct vb_recipe *r)
{
    double lr = r->rule.kind == m->rule ? m->lr : m->lr_by_rule[r->rule.kind], by_data;

    r->chosen.lr_from = r->rule.kind == m->rule ? "model" : "rule";
    if (!m->linear || sample == NULL || (adapts(r->rule.kind) && !r->by_size))
        return lr;
    by_data = r->by_size ? lr / sample->least : round_rate(lr * SQUARE / sample->square);
    if (by_data != lr)
        r->chosen.lr_from = "data";
    return by_data;
}

static double rate_for(const struct vb_train_model *m, double lr, const struct vb_recipe *r)
{
    double times = (double)r->global_batch / m->batch, most = lr / m->lr * m->lr_max;

    if (adapts(r->rule.kind))
        return lr; /* these update rules adapt the rate by themselves */
    if (times > LINEAR_UP_TO)
        return fmin(lr * LINEAR_UP_TO * sqrt(times / LINEAR_UP_TO), most);
    return fmin(lr * times, most);
}

/* Returns the factor of the rate for asynchronous workers. */
static double company(const struct vb_train_opts *o, const struct vb_train_model *m,
                      const struct vb_recipe *r)
{
    double others = (vb_train_workers(o) - 1) * (double)r->global_batch / m->batch;

    return vb_train_apart(o) && !adapts(r->rule.kind) ? 2 / (others + 2) : 1;
}

/* Rules that adapt their rate need no schedule; the others end with a small rate. So do runs whose
 * length is chosen here, because a small rate at the end removes noise. */
static enum vb_schedule schedule_for(const struct vb_train_opts *o, const struct vb_train_model *m,
                                     const struct vb_trial *trial, enum vb_k_rule_kind rule)
{
    const struct vb_train_length_opts *l = &o->length;

    if (o->learn.schedule != VB_SCHEDULE_AUTO)
        return o->learn.schedule;
    if (rule == VB_K_FTRL) /* its weights are a multiple of the rate, and would fall with it */
        return VB_SCHEDULE_CONSTANT;
    if (trial != NULL || (rule != m->rule && !adapts(rule)) ||
        (m->linear && l->epochs == 0 && l->steps == 0 && l->samples == 0))
        return VB_SCHEDULE_COSINE;
    return m->schedule;
}

static void make_schedule(const struct vb_train_opts *o, const struct vb_train_model *m,
                          const struct vb_trial *trial, double lr, struct vb_recipe *r)
{
    enum vb_schedule kind = schedule_for(o, m, trial, r->rule.kind);
    int64_t warmup = (int64_t)(m->warmup_epochs * (double)r->steps_per_epoch);
    struct vb_k_schedule *s = &r->schedule;

    s->base = o->learn.lr > 0 ? o->learn.lr : rate_for(m, lr, r) * company(o, m, r);
    if (o->learn.lr > 0)
        r->chosen.lr_from = "given";
    if (warmup > r->steps / 10)
        warmup = r->steps / 10;
    s->warmup = o->learn.warmup >= 0 ? o->learn.warmup : warmup;
    s->kind = kind == VB_SCHEDULE_COSINE ? VB_K_RATE_COSINE
              : kind == VB_SCHEDULE_STEP ? VB_K_RATE_STEP
                                         : VB_K_RATE_CONSTANT;
    s->period = kind == VB_SCHEDULE_STEP ? (r->steps + 2) / 3 : r->steps;
    s->factor = kind == VB_SCHEDULE_STEP ? 0.1 : 0;
}

/* ---- batch and length ------------------------------------------------------------------------ */

/* Returns the samples of a rank in a step. The model's own batch is made smaller for few samples
 * and for many workers; a batch that the user gave is not. */
static int64_t batch_of(const struct vb_train_opts *o, const struct vb_train_model *m, int n)
{
    int workers = vb_train_workers(o), most = workers > 0 ? n / workers : 0, batch = m->batch;
    int together = vb_train_apart(o) ? TOGETHER_UP_TO_ASYNC : TOGETHER_UP_TO;

    if (o->length.batch > 0)
        return o->length.batch;
    if (o->length.global_batch > 0 || most < 1)
        return m->batch;
    /* A number of steps counts whole batches. Rules that adapt their rate learn in large steps,
     * too. */
    if (workers > together && o->length.steps == 0 && !adapts(m->rule))
        batch = (together * m->batch + workers - 1) / workers;
    if (batch <= most)
        return batch;
    if (o->group.rank == 0)
        VB_LOG_WARN("the batch is %d instead of %d, because there are only %d samples for %d "
                    "rank%s; --batch sets it",
                    most, batch, n, workers, workers == 1 ? "" : "s");
    return most;
}

static vb_status make_batch(const struct vb_train_opts *o, const struct vb_train_model *m, int n,
                            struct vb_recipe *r)
{
    int64_t batch = batch_of(o, m, n);
    int workers = vb_train_workers(o);
    int64_t global = o->length.global_batch > 0 ? o->length.global_batch : batch * workers;

    if (global < 1 || global < workers || global > n)
        return vb_err(VB_ERR_USAGE,
                      "a step of %lld samples is not possible: the number must be from %d (one per "
                      "rank) to %d (all samples)",
                      (long long)global, workers, n);
    if (vb_train_apart(o)) /* each step is made by one worker alone */
        global = o->length.batch > 0 || o->length.global_batch == 0 ? batch : global / workers;
    r->global_batch = (int)global;
    r->chosen.batch_from = o->length.batch > 0 || o->length.global_batch > 0 ? "given" : "model";
    return VB_OK;
}

/* Returns the steps of the model's own batch that the trials suggest. *lr_p: receives the rate.
 * A trial has a constant rate. The run has one that falls, so it takes longer for the same way. A
 * short run is made longer with a smaller rate: it goes the same way with less noise. */
static double steps_by_trial(const struct vb_train_model *m, const struct vb_trial *trial, int n,
                             double *lr_p)
{
    double epoch = (double)n / m->batch;
    double steps = trial->steps * trial->batch / trial->rows_train * epoch * 2;
    double usual = fmax(m->epochs * epoch, (double)m->least_steps), longer;

    *lr_p = trial->lr * m->batch / trial->batch;
    if (trial->rule == VB_K_ADAGRAD)
        *lr_p = trial->lr;
    if (trial->end)
        return fmin(fmax(steps, usual), 2 * usual);
    longer = fmin(fmax(steps, TRIAL_LEAST_STEPS), 2 * usual);
    *lr_p *= trial->rule == VB_K_ADAGRAD ? sqrt(steps / longer) : steps / longer;
    return longer;
}

static void make_length(const struct vb_train_opts *o, const struct vb_train_model *m, int n,
                        double steps, struct vb_recipe *r)
{
    const struct vb_train_length_opts *l = &o->length;
    double least = steps > 0 ? steps : (double)m->least_steps;

    r->steps_per_epoch = ((int64_t)n + r->global_batch - 1) / r->global_batch;
    r->chosen.steps_from = "given";
    if (l->steps > 0) {
        r->steps = l->steps;
    } else if (l->samples > 0) {
        r->steps = (l->samples + r->global_batch - 1) / r->global_batch;
    } else if (l->epochs > 0) {
        r->steps = l->epochs * r->steps_per_epoch;
    } else {
        r->chosen.steps_from = steps > 0 ? "trials" : "model";
        r->steps = steps > 0 ? 0 : m->epochs * r->steps_per_epoch;
        /* Many workers share the samples. Few samples make a small batch, but no more steps. */
        least *= fmin((double)m->batch / r->global_batch, vb_train_workers(o));
        r->steps = r->steps > (int64_t)ceil(least) ? r->steps : (int64_t)ceil(least);
    }
}

/* ---- what was chosen ------------------------------------------------------------------------- */

static void tell(const struct vb_sample *sample, const struct vb_trial *trial, int n,
                 struct vb_recipe *r)
{
    struct vb_chosen *c = &r->chosen;
    double epochs = (double)r->steps / (double)r->steps_per_epoch;
    char why[96] = "the model's defaults", length[32];

    snprintf(length, sizeof(length), epochs < 1000 ? "%.3g" : "%.0f", epochs);
    c->rule = vb_k_rule_str(r->rule.kind);
    c->schedule = schedule_names[r->schedule.kind];
    c->lr = r->schedule.base;
    c->momentum = (double)r->rule.momentum;
    c->decay = (double)r->rule.decay;
    c->clip = r->clip;
    c->warmup = r->schedule.warmup;
    c->steps = r->steps;
    c->global_batch = r->global_batch;
    if (trial != NULL && trial->tried == 0)
        snprintf(why, sizeof(why), "pixels hardly differ between images");
    else if (trial != NULL)
        snprintf(why, sizeof(why), "the best of %d short trials on %d of %d samples", trial->tried,
                 trial->rows, n);
    else if (strcmp(c->lr_from, "data") == 0 && r->by_size)
        snprintf(why, sizeof(why), "features have sizes from %.3g to %.3g", sample->least,
                 sample->most);
    else if (strcmp(c->lr_from, "data") == 0)
        snprintf(why, sizeof(why), "the squares of a sample add up to %.3g", sample->square - 1);
    if (strcmp(c->lr_from, "given") != 0 || strcmp(c->steps_from, "given") != 0)
        snprintf(c->why, sizeof(c->why), "%s, %s rate up to %.3g, %lld steps of %d (%s epochs): %s",
                 c->rule, c->schedule, c->lr, (long long)c->steps, c->global_batch, length, why);
}

/* ---- the numbers of a run -------------------------------------------------------------------- */

bool vb_recipe_wants_sample(const struct vb_train_opts *o)
{
    return vb_train_model_find(o->model)->linear && o->learn.lr <= 0;
}

bool vb_recipe_wants_trial(const struct vb_train_opts *o, int n, const struct vb_sample *sample)
{
    const struct vb_train_length_opts *l = &o->length;

    return vb_recipe_wants_sample(o) && o->learn.rule == NULL && !o->async.hogwild &&
           l->epochs == 0 && l->steps == 0 && l->samples == 0 &&
           o->learn.schedule == VB_SCHEDULE_AUTO && o->learn.weight_decay <= 0 &&
           n <= TRIAL_ROWS_TIMES * (int64_t)sample->n;
}

vb_status vb_recipe_make(const struct vb_train_opts *o, int n, const struct vb_sample *sample,
                         const struct vb_trial *trial, struct vb_recipe *recipe_p)
{
    const struct vb_train_model *m = vb_train_model_find(o->model);
    struct vb_recipe r = {.global_batch = 1};
    double steps = 0, lr = 0;
    vb_status st = make_batch(o, m, n, &r);

    trial = trial != NULL && trial->ran ? trial : NULL;
    choose_rule(o, m, trial, &r);
    if (st == VB_OK)
        st = make_rule(o, m, &r.rule);
    if (st != VB_OK || r.global_batch < 1)
        return st;
    r.by_size =
        r.rule.kind == VB_K_ADAGRAD && m->sparse && sample != NULL && differ_in_size(sample);
    if (trial != NULL) {
        steps = steps_by_trial(m, trial, n, &lr);
        r.chosen.lr_from = "trials";
    } else {
        lr = base_rate(m, sample, &r);
    }
    make_length(o, m, n, steps, &r);
    make_schedule(o, m, trial, lr, &r);
    r.clip = o->learn.clip >= 0 ? o->learn.clip : m->clip;
    tell(sample, trial, n, &r);
    *recipe_p = r;
    return VB_OK;
}

/* Returns what follows a name at the beginning of a line. */
static const char *line_of(const char *settings, const char *name)
{
    const char *at = strstr(settings, name);

    return at != NULL && (at == settings || at[-1] == '\n') ? at + strlen(name) : "";
}

void vb_recipe_of_job(const char *settings, struct vb_recipe *r)
{
    long long steps, warmup, period;
    int rule, kind;
    double lr, factor;

    if (sscanf(line_of(settings, "number of steps="), "%lld", &steps) != 1 || steps < 1 ||
        sscanf(line_of(settings, "learning rate="), "%lf", &lr) != 1 || !(lr > 0) ||
        sscanf(line_of(settings, "schedule="), "%d %lld %lld %lf", &kind, &warmup, &period,
               &factor) != 4 ||
        sscanf(line_of(settings, "update rule="), "%d", &rule) != 1 || rule < VB_K_SGD ||
        rule > VB_K_FTRL || kind < VB_K_RATE_CONSTANT || kind > VB_K_RATE_COSINE || period < 1)
        return; /* the comparison of all settings says what is wrong */
    r->steps = steps;
    r->rule.kind = (enum vb_k_rule_kind)rule;
    r->schedule = (struct vb_k_schedule){.kind = (enum vb_k_rate_kind)kind,
                                         .base = lr,
                                         .warmup = warmup,
                                         .period = period,
                                         .factor = factor};
}
