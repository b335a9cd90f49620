/* SPDX-License-Identifier: MIT
 *
 * What is said of a result that nobody wanted: a loss that is no number, and a model that does no
 * better than who has seen nothing but how often each label comes. Such a one names the commonest
 * class; its loss is the entropy of the labels. Who beats it in either has learnt something.
 */
#include "engine/train_priv.h"

#include <math.h>

#define STEPS_TO_JUDGE 200   /* after fewer a model may still be at chance level */
#define SAMPLES_TO_JUDGE 100 /* of fewer it is luck */
#define LOOK_AT_MAX 10000    /* samples tell how often labels come */
#define GOOD_ENOUGH 0.9      /* an accuracy that is not looked into */

/* What guessing comes to. */
struct guess {
    double accuracy, loss;
};

static vb_status guess(const struct vb_trainer *t, struct guess *g)
{
    struct vb_dataset some = t->test; /* borrowed */
    struct vb_data_facts facts;
    vb_status st;
    int i;

    some.n = t->n_test < LOOK_AT_MAX ? t->n_test : LOOK_AT_MAX;
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

/* Beyond luck: by half of what guessing gives, or, where that is much, by a twentieth of what it
 * leaves. */
static bool learnt(const struct guess *g, double accuracy, double loss)
{
    double more = fmin(0.5 * g->accuracy, 0.05 * (1 - g->accuracy));

    return accuracy >= g->accuracy + more || loss < 0.95 * g->loss;
}

void vb_train_remark(const struct vb_trainer *t, const struct vb_train_result *r)
{
    struct guess g;

    if (!r->reports || t->o->dry_run)
        return;
    if (!isfinite(r->loss)) {
        VB_LOG_WARN("the loss is not finite: a learning rate of %g is too high", r->lr);
        return;
    }
    if (r->steps < STEPS_TO_JUDGE || t->n_test < SAMPLES_TO_JUDGE || r->accuracy >= GOOD_ENOUGH ||
        guess(t, &g) != VB_OK)
        return;
    if (!learnt(&g, r->accuracy, r->loss))
        VB_LOG_WARN("an accuracy of %.1f %% is what guessing gives, as the commonest class has "
                    "%.1f %%: nothing was learnt with a learning rate of %g",
                    100 * r->accuracy, 100 * g.accuracy, r->lr);
}
