/* SPDX-License-Identifier: MIT
 *
 * Evaluates a dense model, and saves and restores its parameters.
 */
#include "engine/train/train_dense_priv.h"

#include <string.h>

/* ---- evaluation ------------------------------------------------------------------------------ */

vb_status vb_dense_evaluate(struct vb_trainer *t, int first, int n, struct vb_model_loss *sum)
{
    struct dense *d = dense_of(t);
    size_t row = (size_t)t->data.test.features;
    struct vb_model_batch batch = {
        .x = d->eval.x, .pixels = d->pixels_test, .which = d->eval.which, .y = d->eval.y};
    struct vb_model_loss loss;
    int i;

    d->early.batch = NULL; /* evaluation overwrites the outputs of the layers */
    for (; n > 0; n -= batch.n, first += batch.n) {
        batch.n = n < d->eval.max ? n : d->eval.max;
        for (i = 0; i < batch.n; i++)
            d->eval.which[i] = (uint32_t)(first + i);
        vb_dataset_pick(&t->data.test, d->eval.which, batch.n, d->eval.x, d->eval.y);
        if (d->eval.x != NULL && batch.n < d->eval.max)
            memset(d->eval.x + (size_t)batch.n * row, 0,
                   (size_t)(d->eval.max - batch.n) * row * sizeof(float));
        vb_model_forward(d->model, d->copies.params[d->copies.now], &batch, &loss);
        sum->loss += loss.loss;
        sum->correct += loss.correct;
    }
    return VB_OK;
}

const float *vb_dense_params(struct vb_trainer *t, size_t *n_p)
{
    const struct dense *d = dense_of(t);

    *n_p = d->n_params;
    return d->copies.params[d->copies.now];
}

float *vb_dense_memory(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p)
{
    const struct dense_copies *c = &dense_of(t)->copies;

    *n_p = dense_of(t)->n_params;
    *state_p = c->state[c->now];
    *words_p = vb_k_rule_states(t->recipe.rule.kind);
    return c->params[c->now];
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

vb_status vb_dense_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    const struct vb_param *table = vb_model_table(d->model, &cp->n_arrays);
    const float *params = d->copies.params[d->copies.now], *state = d->copies.state[d->copies.now];
    struct vb_checkpoint_array *a = d->arrays;
    int i;

    for (i = 0; i < cp->n_arrays; i++, a++) {
        snprintf(a->name, sizeof(a->name), "%s", table[i].name);
        a->type = VB_ARRAY_F32;
        a->rows = table[i].rows;
        a->cols = table[i].cols;
        a->data = params + table[i].offset;
    }
    if (state != NULL) {
        *a = (struct vb_checkpoint_array){.name = "state",
                                          .type = VB_ARRAY_F32,
                                          .rows = (int64_t)d->n_params,
                                          .cols = 1,
                                          .state = true,
                                          .data = state};
        cp->n_arrays++;
    }
    cp->arrays = d->arrays;
    return VB_OK;
}

static vb_status copy_array(const struct vb_checkpoint *cp, const char *name, size_t n, float *to)
{
    const float *data = vb_checkpoint_data(cp, name, VB_ARRAY_F32, n);

    if (data == NULL)
        return VB_ERR_INPUT;
    memcpy(to, data, n * sizeof(float));
    return VB_OK;
}

vb_status vb_dense_restore(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct dense *d = dense_of(t);
    float *params = d->copies.params[d->copies.now], *state = d->copies.state[d->copies.now];
    vb_status st = VB_OK;
    int i, n;
    const struct vb_param *table = vb_model_table(d->model, &n);

    d->early.batch = NULL;
    for (i = 0; i < n && st == VB_OK; i++)
        st = copy_array(cp, table[i].name, (size_t)table[i].rows * (size_t)table[i].cols,
                        params + table[i].offset);
    if (st == VB_OK && state != NULL)
        st = copy_array(cp, "state", d->n_params, state);
    return st;
}
