/* SPDX-License-Identifier: MIT
 *
 * Evaluates the parameters of a checkpoint on data. It sets up a trainer, restores the parameters
 * and evaluates, without making a step. Sizes are checked first, because choosing kernels takes
 * time.
 */
#include "engine/train/train_room_priv.h"

#include <stdlib.h>
#include <string.h>

#define EVAL_BATCH 64

static vb_status check_array(const struct vb_checkpoint *cp, const char *layer, const char *what,
                             size_t n)
{
    char name[VB_K_NAME + 8];

    snprintf(name, sizeof(name), "%s.%s", layer, what);
    return vb_checkpoint_data(cp, name, VB_ARRAY_F32, n) != NULL ? VB_OK : VB_ERR_INPUT;
}

/* Checks that the checkpoint has the parameters of this table of layers. */
static vb_status check_dense(const struct vb_checkpoint *cp, const struct vb_layer_table *table)
{
    struct vb_k_shape shapes[VB_LAYERS_MAX];
    vb_status st = vb_layer_table_shapes(table, 1, shapes);
    int i;

    for (i = 0; i < table->n_layers && st == VB_OK; i++) {
        const char *layer = table->layers[i].name;

        if (vb_k_shape_weights(&shapes[i]) == 0)
            continue;
        st = check_array(cp, layer, "w", vb_k_shape_weights(&shapes[i]));
        if (st == VB_OK)
            st = check_array(cp, layer, "b", (size_t)shapes[i].oc);
    }
    return st;
}

/* Checks that the checkpoint has the weights of a sparse model; the last weight is the bias. The
 * data may have fewer features than the model. */
static vb_status check_sparse(const struct vb_checkpoint *cp, struct vb_data_spec *spec)
{
    const struct vb_checkpoint_array *w = vb_checkpoint_find(cp, "w");

    if (w == NULL || w->cols != 1 || w->rows < 2 || w->rows - 1 > INT32_MAX)
        return vb_err(
            VB_ERR_INPUT,
            "the checkpoint has no array of weights, one per feature and one for the bias");
    if (spec->features == 0)
        spec->features = (int)(w->rows - 1);
    return VB_OK;
}

/* Returns the value of a setting of the run that wrote the checkpoint; "": it has no such setting.
 */
static const char *setting(const struct vb_checkpoint *cp, const char *name)
{
    char key[48];
    const char *at;

    snprintf(key, sizeof(key), "\n%s=", name);
    at = strstr(cp->options, key);
    return at != NULL ? at + strlen(key) : "";
}

/* Takes the data of the run: the setting is the text of --data and its checksum. */
static vb_status take_own_data(const struct vb_checkpoint *cp, char text[VB_EVAL_DATA],
                               struct vb_data_ask *ask)
{
    const char *value = setting(cp, "data");
    int len = (int)strcspn(value, "\n");
    char why[VB_OPTS_WHY];

    while (len > 0 && value[len - 1] != ' ')
        len--;
    if (len < 2 || len > VB_EVAL_DATA)
        return vb_err(VB_ERR_USAGE, "the checkpoint does not say what it was trained on: name the "
                                    "data with --data");
    snprintf(text, VB_EVAL_DATA, "%.*s", len - 1, value);
    if (strtoul(value + len, NULL, 16) != vb_crc32c(0, text, strlen(text)) ||
        vb_data_spec_parse(text, &ask->data, why) != VB_OK)
        return vb_err(VB_ERR_USAGE,
                      "the checkpoint has only a part of the name of its data, "
                      "%.64s...: name the data with --data",
                      text);
    ask->test_share = strtod(setting(cp, "test split"), NULL);
    if (!(ask->test_share > 0 && ask->test_share < 1))
        ask->test_share = 0;
    return VB_OK;
}

/* Opens the test part of the data, or the rows that the run held out. */
static vb_status open_test(struct vb_trainer *t, struct vb_data_spec *spec)
{
    struct vb_data_ask ask = t->o->data.ask;
    struct vb_dataset train;
    vb_status st;

    if (ask.test_share == 0)
        return vb_data_open(spec, t->o->seed, VB_SYNTH_TEST, &t->data.test);
    ask.data = *spec;
    st = vb_data_open_both(&ask, &train, &t->data.test);
    if (st == VB_OK)
        vb_dataset_destroy(&train);
    return st;
}

/* Evaluation needs only the parameters of the checkpoint, not the state of its update rule. So the
 * rule is set to SGD, which has no state. */
static vb_status set_up(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct vb_data_spec spec = t->o->data.ask.data;
    vb_status st;

    if (vb_train_model_find(t->o->model) == NULL)
        return vb_err(VB_ERR_INPUT, "the checkpoint is of model %.64s, which does not exist",
                      t->o->model);
    vb_trainer_find_model(t);
    vb_data_spec_prefer(&spec, t->model.net->synth);
    st = t->model.row->sparse ? check_sparse(cp, &spec) : check_dense(cp, t->model.layers);
    if (st == VB_OK)
        st = open_test(t, &spec);
    if (st != VB_OK)
        return st;
    t->data.train = t->data.test; /* train is used only for its sizes; it is not destroyed */
    t->data.n_test = t->data.test.n;
    t->recipe.global_batch = t->data.test.n < EVAL_BATCH ? t->data.test.n : EVAL_BATCH;
    t->recipe.rule.kind = VB_K_SGD;
    st = t->ops->compile(t);
    if (st == VB_OK)
        st = t->ops->create(t);
    return st == VB_OK ? t->ops->restore(t, cp) : st;
}

static vb_status evaluate(struct vb_checkpoint *cp, const struct vb_eval_opts *o,
                          struct vb_eval_result *result_p)
{
    char text[VB_EVAL_DATA] = "";
    struct vb_train_opts opts = {.model = cp->model,
                                 .data = {.input = atoi(setting(cp, "input")),
                                          .ask = {.data = o->data, .seed = cp->seed},
                                          .text = o->data_text != NULL ? o->data_text : text},
                                 .seed = cp->seed,
                                 .group = {.world = 1}};
    struct vb_trainer t = {.o = &opts, .world = 1, .shares = 1, .planned = 1, .eval_only = true};
    vb_status st = o->data_text == NULL ? take_own_data(cp, text, &opts.data.ask) : VB_OK;

    if (st == VB_OK)
        st = set_up(&t, cp);
    vb_laps_begin(&t.laps);
    if (st == VB_OK)
        st = vb_train_evaluate(&t);
    if (st == VB_OK) {
        memset(result_p, 0, sizeof(*result_p));
        snprintf(result_p->model, sizeof(result_p->model), "%s", cp->model);
        snprintf(result_p->data, sizeof(result_p->data), "%.511s", opts.data.text);
        result_p->step = cp->step;
        result_p->view = cp->view;
        result_p->samples = t.data.n_test;
        result_p->accuracy = t.evals.accuracy;
        result_p->loss = t.evals.loss;
        result_p->seconds = (double)t.laps.ns[VB_PHASE_EVAL] / 1e9;
    }
    if (t.ops != NULL)
        t.ops->destroy(&t);
    vb_dataset_destroy(&t.data.test);
    free(t.kernels.text);
    return st;
}

vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p)
{
    struct vb_checkpoint *cp;
    vb_status st = vb_checkpoint_read(path, &cp);

    if (st != VB_OK)
        return st;
    st = evaluate(cp, opts, result_p);
    vb_checkpoint_free(cp);
    return st;
}
