/* SPDX-License-Identifier: MIT
 *
 * Computes the numbers of a run from the options and from the defaults in the model's row
 * (train_models.c): batch size, number of steps, update rule, learning rate and its schedule.
 *
 * The row gives a learning rate for one batch size. Up to four times this batch size, the rate
 * grows in proportion to the batch. Beyond, it grows with the square root of the batch, because the
 * noise of a gradient falls with the square root. The rate has a maximum. A warm-up raises the rate
 * from a low value to its full value.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>
#include <string.h>

#define LINEAR_UP_TO 4.0

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

bool vb_train_apart(const struct vb_train_opts *o)
{
    return o->mode == VB_MODE_ASYNC && !(o->async.bounded && o->async.staleness == 0);
}

/* ---- the numbers of a run -------------------------------------------------------------------- */

static double rate_for(const struct vb_train_model *m, int batch)
{
    double times = (double)batch / m->batch, lr = m->lr * times;

    if (m->rule == VB_K_ADAGRAD || m->rule == VB_K_FTRL)
        return m->lr; /* these update rules adapt the rate by themselves */
    if (times > LINEAR_UP_TO)
        lr = m->lr * LINEAR_UP_TO * sqrt(times / LINEAR_UP_TO);
    return fmin(lr, m->lr_max);
}

static vb_status make_rule(const struct vb_train_opts *o, const struct vb_train_model *m,
                           struct vb_k_rule *rule)
{
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adagrad", "ftrl"};
    size_t i;

    rule->kind = m->rule;
    for (i = 0; o->learn.rule != NULL && i < VB_COUNT(names); i++)
        if (strcmp(o->learn.rule, names[i]) == 0)
            rule->kind = (enum vb_k_rule_kind)i;
    if (rule->kind == VB_K_FTRL && !m->sparse)
        return vb_err(VB_ERR_USAGE, "--rule ftrl can be used only with sparse models");
    if (rule->kind == VB_K_MOMENTUM || rule->kind == VB_K_NESTEROV)
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

static void make_schedule(const struct vb_train_opts *o, const struct vb_train_model *m,
                          struct vb_recipe *r)
{
    enum vb_schedule kind = o->learn.schedule != VB_SCHEDULE_AUTO ? o->learn.schedule : m->schedule;
    int64_t warmup = (int64_t)(m->warmup_epochs * (double)r->steps_per_epoch);
    struct vb_k_schedule *s = &r->schedule;

    s->base = o->learn.lr > 0 ? o->learn.lr : rate_for(m, r->global_batch);
    /* A stale gradient points in a direction that is no longer right, and momentum repeats this
     * direction. So the rate decreases with the number of asynchronous workers. docs/performance.md
     * has the measurements. */
    if (o->learn.lr <= 0 && (r->rule.kind == VB_K_MOMENTUM || r->rule.kind == VB_K_NESTEROV) &&
        vb_train_apart(o))
        s->base *= 2.0 / (vb_train_workers(o) + 1);
    if (warmup > r->steps / 10)
        warmup = r->steps / 10;
    s->warmup = o->learn.warmup >= 0 ? o->learn.warmup : warmup;
    s->kind = kind == VB_SCHEDULE_COSINE ? VB_K_RATE_COSINE
              : kind == VB_SCHEDULE_STEP ? VB_K_RATE_STEP
                                         : VB_K_RATE_CONSTANT;
    s->period = kind == VB_SCHEDULE_STEP ? (r->steps + 2) / 3 : r->steps;
    s->factor = kind == VB_SCHEDULE_STEP ? 0.1 : 0;
}

/* Returns the samples of a rank in a step. The model's own batch is made smaller for few samples;
 * a batch that the user gave is not. */
static int64_t batch_of(const struct vb_train_opts *o, const struct vb_train_model *m, int n)
{
    int workers = vb_train_workers(o), most = workers > 0 ? n / workers : 0;

    if (o->length.batch > 0)
        return o->length.batch;
    if (o->length.global_batch > 0 || most < 1 || m->batch <= most)
        return m->batch;
    if (o->group.rank == 0)
        VB_LOG_WARN("the batch is %d instead of %d, because there are only %d samples for %d "
                    "rank%s; --batch sets it",
                    most, m->batch, n, workers, workers == 1 ? "" : "s");
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
    return VB_OK;
}

vb_status vb_recipe_make(const struct vb_train_opts *o, int n, struct vb_recipe *recipe_p)
{
    const struct vb_train_model *m = vb_train_model_find(o->model);
    struct vb_recipe r = {.global_batch = 1};
    vb_status st = make_batch(o, m, n, &r);

    if (st == VB_OK)
        st = make_rule(o, m, &r.rule);
    if (st != VB_OK || r.global_batch < 1)
        return st;
    r.steps_per_epoch = ((int64_t)n + r.global_batch - 1) / r.global_batch;
    if (o->length.steps > 0)
        r.steps = o->length.steps;
    else if (o->length.samples > 0)
        r.steps = (o->length.samples + r.global_batch - 1) / r.global_batch;
    else
        r.steps = (o->length.epochs > 0 ? o->length.epochs : m->epochs) * r.steps_per_epoch;
    make_schedule(o, m, &r);
    r.clip = o->learn.clip >= 0 ? o->learn.clip : m->clip;
    *recipe_p = r;
    return VB_OK;
}
