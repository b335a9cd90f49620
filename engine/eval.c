/* SPDX-License-Identifier: MIT
 *
 * How well the parameters of a checkpoint do on data: a trainer that is set up, given them, and
 * judges, without a step.
 */
#include "engine/train_priv.h"

#include <stdlib.h>
#include <string.h>

#define EVAL_BATCH 64

/* The side of the images of a net that has two sizes. */
static int input_of(const struct vb_checkpoint *cp)
{
    const char *line = strstr(cp->options, "\ninput=");

    return line != NULL ? atoi(line + strlen("\ninput=")) : 0;
}

/* The rule decides what state there is, and sgd has none: of a checkpoint only the parameters are
 * taken. */
static vb_status set_up(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    const struct vb_checkpoint_array *w = vb_checkpoint_find(cp, "w"); /* of sparse-lr */
    struct vb_data_spec spec = t->o->data.data;
    vb_status st;

    vb_data_spec_prefer(&spec, vb_recipe_synth(t->o));
    if (w != NULL && spec.features == 0)
        spec.features =
            (int)(w->rows - 1); /* a file need not have them all; the last is the bias */
    st = vb_data_open(&spec, t->o->seed, VB_SYNTH_TEST, &t->test);
    if (st == VB_OK)
        st = vb_data_open(&spec, t->o->seed, VB_SYNTH_TEST, &t->train);
    if (st != VB_OK)
        return st;
    t->n_test = t->test.n;
    t->recipe.global_batch = t->test.n < EVAL_BATCH ? t->test.n : EVAL_BATCH;
    t->recipe.rule.kind = VB_K_SGD;
    t->ops = strcmp(t->o->model, "sparse-lr") == 0 ? &vb_trainee_sparse : &vb_trainee_dense;
    st = t->ops->compile(t);
    if (st == VB_OK)
        st = t->ops->create(t);
    return st == VB_OK ? t->ops->restore(t, cp) : st;
}

static vb_status judge(struct vb_checkpoint *cp, const struct vb_eval_opts *o,
                       struct vb_eval_result *result_p)
{
    struct vb_train_opts opts = {.model = cp->model,
                                 .input = input_of(cp),
                                 .data = {.data = o->data},
                                 .data_text = o->data_text,
                                 .seed = cp->seed,
                                 .group = {.world = 1}};
    struct vb_trainer t = {.o = &opts, .world = 1};
    vb_status st = set_up(&t, cp);

    vb_laps_begin(&t.laps);
    if (st == VB_OK)
        st = vb_train_evaluate(&t);
    if (st == VB_OK) {
        memset(result_p, 0, sizeof(*result_p));
        snprintf(result_p->model, sizeof(result_p->model), "%s", cp->model);
        result_p->step = cp->step;
        result_p->samples = t.n_test;
        result_p->accuracy = t.accuracy;
        result_p->loss = t.test_loss;
        result_p->seconds = (double)t.laps.ns[VB_PHASE_EVAL] / 1e9;
    }
    if (t.ops != NULL)
        t.ops->destroy(&t);
    vb_dataset_destroy(&t.train);
    vb_dataset_destroy(&t.test);
    free(t.plan_text);
    return st;
}

vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p)
{
    struct vb_checkpoint *cp;
    vb_status st = vb_checkpoint_read(path, &cp);

    if (st != VB_OK)
        return st;
    st = judge(cp, opts, result_p);
    vb_checkpoint_free(cp);
    return st;
}
