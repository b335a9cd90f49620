/* SPDX-License-Identifier: MIT
 *
 * Says aloud if a model does not learn. A model has learnt something if its accuracy is better than
 * that of always choosing the commonest class, or its loss is lower than the entropy of the labels.
 * Nothing is computed for this in a step: it uses the loss that a step has, and evaluations.
 */
#include "engine/train/train_room_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MIN 200     /* steps; with fewer, a model may still be at chance level */
#define SAMPLES_MIN 100   /* test samples; with fewer, the accuracy is a matter of chance */
#define LABELS_MIN 20     /* test samples; fewer may well be of one class */
#define LOOK_AT_MAX 10000 /* maximum number of test samples that are looked at */
#define LOOK_AT_FEW 1000  /* the same during training */
#define GOOD_ENOUGH 0.9   /* a model with this accuracy has learnt something */
#define LOOK_STEPS 500    /* the training loss is looked at after so many steps of a rank */
#define LOOK_PART 4       /* and not before this part of the run */
#define UNSEEN_MAX 0.2    /* share of nonzeros of features that training has not seen */

/* ---- warnings -------------------------------------------------------------------------------- */

static bool speaks(const struct vb_trainer *t)
{
    return t->shows || t->health.reports;
}

/* A rank that may become the lead looks, too, so that it knows what was said. */
static bool looks(const struct vb_trainer *t)
{
    return speaks(t) || vb_train_may_lead(t);
}

void vb_health_say(struct vb_trainer *t, enum vb_warning kind, const char *format, ...)
{
    char *text = t->health.said[kind];
    va_list args;

    if (!looks(t) || text[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(text, VB_WARNING_TEXT, format, args);
    va_end(args);
    if (!speaks(t))
        return;
    VB_LOG_WARN("%s", text);
    vb_train_event_say(t, "warned", t->step, text);
}

static vb_status list_warnings(const struct vb_trainer *t, struct vb_train_result *r)
{
    int i;

    r->warnings = calloc(VB_WARNINGS, sizeof(*r->warnings));
    if (r->warnings == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < VB_WARNINGS; i++)
        if (t->health.said[i][0] != '\0')
            memcpy(r->warnings[r->n_warnings++], t->health.said[i], VB_WARNING_TEXT);
    return VB_OK;
}

/* ---- better than guessing -------------------------------------------------------------------- */

/* Accuracy and loss of a model that knows only the frequency of each label. */
struct guess {
    double accuracy, loss;
};

static vb_status guess(const struct vb_trainer *t, int most, struct guess *g)
{
    struct vb_dataset some = t->data.test; /* a shallow copy, not to be destroyed */
    struct vb_data_facts facts;
    vb_status st;
    int i;

    some.n = t->data.n_test < most ? t->data.n_test : most;
    st = vb_data_look(&some, &facts);
    if (st != VB_OK)
        return st;
    *g = (struct guess){0, 0};
    for (i = 0; i < some.classes; i++) {
        double share = (double)facts.count[i] / some.n;

        g->accuracy = share > g->accuracy ? share : g->accuracy;
        g->loss -= share > 0 ? share * log(share) : 0;
    }
    vb_data_facts_fini(&facts);
    return VB_OK;
}

/* Returns whether the model is better than the guess by more than chance: by half of the guess's
 * accuracy, by a twentieth of its errors, or by a twentieth of its loss. */
static bool learnt(const struct guess *g, double accuracy, double loss)
{
    double more = fmin(0.5 * g->accuracy, 0.05 * (1 - g->accuracy));

    return accuracy >= g->accuracy + more || loss < 0.95 * g->loss;
}

/* A loss far above that of guessing shows that the rate is too high. */
static void what_to_try(const struct vb_trainer *t, double loss, const struct guess *g,
                        char text[64])
{
    double lr = t->recipe.schedule.base;

    if (loss > 1.1 * g->loss || lr * 10 > VB_LR_MAX)
        snprintf(text, 64, "a lower rate, such as --lr %.3g", lr / 10);
    else
        snprintf(text, 64, "another rate, such as --lr %.3g or --lr %.3g", lr * 10, lr / 10);
}

void vb_health_begin(struct vb_trainer *t)
{
    int64_t left = (t->recipe.steps - t->resumed) / LOOK_PART;

    if (vb_train_apart(t->o) && t->world > 0)
        left /= t->world;
    t->health.look_at = left > LOOK_STEPS ? left : LOOK_STEPS;
}

/* The mean loss of the last steps is compared with that of guessing the labels. */
static void look_at_loss(struct vb_trainer *t)
{
    struct vb_trainer_health *h = &t->health;
    int64_t n = h->look_at - h->look_at / 2;
    double loss = h->loss / (double)n;
    struct guess g;
    char try[64];

    if (!looks(t) || t->replay.on || t->data.n_test < SAMPLES_MIN ||
        loss < 0.5 * log(t->data.train.classes) || guess(t, LOOK_AT_FEW, &g) != VB_OK ||
        loss < 0.99 * g.loss)
        return;
    what_to_try(t, loss, &g, try);
    vb_health_say(t, VB_WARN_CHANCE,
                  "after %lld steps the training loss is %.4g, and guessing by the frequency of "
                  "labels gives %.4g; try %s, and check the labels",
                  (long long)h->steps, loss, g.loss, try);
}

void vb_health_step(struct vb_trainer *t)
{
    struct vb_trainer_health *h = &t->health;

    h->loss += t->loss;
    h->steps++;
    if (h->steps == h->look_at / 2)
        h->loss = 0;
    else if (h->steps == h->look_at)
        look_at_loss(t);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

void vb_health_evaluated(struct vb_trainer *t, int64_t step, const struct vb_eval_sum *sum)
{
    struct guess g;

    if (!looks(t) || t->eval_only)
        return;
    if (sum->labels > 0 && t->data.n_test >= LABELS_MIN)
        vb_health_say(t, VB_WARN_LABEL,
                      "all %d test samples are of class %d, so their accuracy says nothing about "
                      "other classes: check --test-data, or take a share of the training data with "
                      "--test-split 0.1",
                      t->data.n_test, sum->labels - 1);
    if (t->health.said[VB_WARN_PREDICTION][0] != '\0' || sum->predicted <= 0 || sum->labels > 0 ||
        t->data.n_test < SAMPLES_MIN || step < STEPS_MIN || guess(t, LOOK_AT_MAX, &g) != VB_OK ||
        t->evals.loss < 0.95 * g.loss)
        return;
    vb_health_say(t, VB_WARN_PREDICTION,
                  "after %lld steps the model predicts class %d for all %d test samples: try "
                  "another learning rate than %.3g, more --epochs, or data with more samples of "
                  "other classes",
                  (long long)step, sum->predicted - 1, t->data.n_test, t->recipe.schedule.base);
}

/* ---- numbers that are not finite ------------------------------------------------------------- */

vb_status vb_health_not_finite(struct vb_trainer *t, int64_t step, const char *where)
{
    char last[4096 + 64] = "";

    t->health.not_finite = true;
    if (t->saved.path[0] != '\0')
        snprintf(last, sizeof(last), "; the last checkpoint is %s", t->saved.path);
    if (t->eval_only)
        return vb_err(VB_ERR_INPUT, "the loss is not a finite number: %s", where);
    return vb_err(VB_ERR_INPUT,
                  "step %lld: the loss is not a finite number: %s; try a lower learning rate than "
                  "%.3g, such as --lr %.3g%s%s",
                  (long long)step, where, t->recipe.schedule.base, t->recipe.schedule.base / 10,
                  t->model.row->sparse ? ", or data with smaller values"
                  : t->recipe.clip > 0 ? ""
                                       : ", or --clip 1",
                  last);
}

vb_status vb_health_layers(struct vb_trainer *t, int64_t step, const struct vb_model *model,
                           const float *params, const struct vb_model_batch *batch)
{
    const char *what = NULL, *layer = vb_model_find_not_finite(model, params, batch, &what);
    char where[160];

    snprintf(where, sizeof(where), "layer %s is the first whose %s not finite", layer, what);
    return vb_health_not_finite(t, step, where);
}

vb_status vb_health_weights(struct vb_trainer *t, int64_t step, const uint32_t *keys,
                            const float *w, size_t n)
{
    uint32_t bias = (uint32_t)t->data.train.features;
    char where[96] = "the weights are finite, but their sum over a row is not";
    size_t i;

    for (i = 0; i < n && isfinite(w[i]); i++)
        ;
    if (i < n && keys[i] == bias)
        snprintf(where, sizeof(where), "the bias is not finite");
    else if (i < n)
        snprintf(where, sizeof(where), "the weight of feature %u is not finite", keys[i]);
    return vb_health_not_finite(t, step, where);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void look_at_result(struct vb_trainer *t, const struct vb_train_result *r)
{
    struct guess g;
    char try[64];

    if (r->steps < STEPS_MIN || t->data.n_test < SAMPLES_MIN || r->accuracy >= GOOD_ENOUGH ||
        guess(t, LOOK_AT_MAX, &g) != VB_OK || learnt(&g, r->accuracy, r->loss))
        return;
    what_to_try(t, r->loss, &g, try);
    vb_health_say(
        t, VB_WARN_NOTHING,
        "the model has learnt nothing with a learning rate of %g: its accuracy is %.1f %%, and "
        "always choosing the commonest class gives %.1f %%; try %s",
        r->lr, 100 * r->accuracy, 100 * g.accuracy, try);
}

static void look_for_unseen(struct vb_trainer *t, struct vb_train_result *r)
{
    int n = t->data.n_test < LOOK_AT_MAX ? t->data.n_test : LOOK_AT_MAX;
    int64_t nonzeros = 0, unseen = 0;

    if (t->ops->unseen == NULL || t->ops->unseen(t, n, &nonzeros, &unseen) != VB_OK ||
        nonzeros == 0)
        return;
    r->unseen = (double)unseen / (double)nonzeros;
    if (r->unseen <= UNSEEN_MAX || (r->epochs < 1 && r->steps < STEPS_MIN))
        return;
    vb_health_say(t, VB_WARN_UNSEEN,
                  "%.0f %% of the nonzeros of the test data belong to features that training has "
                  "not seen: check that --data and --test-data number features alike, or train on "
                  "more samples",
                  100 * r->unseen);
}

/* A plateau that was not reached means that the loss still fell, which is no reason to warn. */
static void look_at_until(struct vb_trainer *t, const struct vb_train_result *r)
{
    const struct vb_until *u;
    char text[VB_UNTIL_TEXT];
    int i;

    for (i = 0; i < t->o->until.n && !r->until.reached && r->stopped == 0; i++) {
        u = &t->o->until.list[i];
        vb_until_text(u, text);
        if (u->kind != VB_UNTIL_PLATEAU)
            vb_health_say(t, VB_WARN_UNTIL,
                          "--until %s was not reached in %lld steps: the highest accuracy was "
                          "%.4g, the lowest loss %.4g; try more --epochs",
                          text, (long long)r->steps, r->until.accuracy, r->until.loss);
    }
}

vb_status vb_train_warn(struct vb_trainer *t, struct vb_train_result *r)
{
    r->unseen = -1;
    if (!r->reports || t->o->dry_run || t->replay.on)
        return VB_OK;
    t->health.reports = true;
    look_at_result(t, r);
    look_for_unseen(t, r);
    look_at_until(t, r);
    return list_warnings(t, r);
}
