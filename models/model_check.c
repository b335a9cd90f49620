/* SPDX-License-Identifier: MIT
 *
 * Looks at what a forward pass has left: the predicted classes, and the first layer with a number
 * that is not finite. The outputs of layers stay in memory until the next pass. The logits have
 * been replaced by the gradient of the loss, which may be finite although a logit is not.
 */
#include "models/model_priv.h"

#include <math.h>

/* The gradient of a logit is its probability, less 1 for the class of the sample. */
int vb_model_predicted(const struct vb_model *model, const struct vb_model_batch *batch, int i)
{
    const float *g = model->logits + (size_t)i * (size_t)model->classes;
    float p, most = -1;
    int c, best = 0;

    for (c = 0; c < model->classes; c++) {
        p = g[c] + (c == batch->y[i] ? 1.f : 0.f);
        if (p > most) {
            most = p;
            best = c;
        }
    }
    return best;
}

static bool all_finite(const float *x, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static size_t n_params(const struct vb_model *m, int param)
{
    const struct vb_param *w = &m->params[param], *b = w + 1;

    return b->offset + (size_t)b->rows * (size_t)b->cols - w->offset;
}

/* Layers of a model that is forward_only share buffers, so only its last output is still there. A
 * dropout layer that drops nothing is not run. */
static bool output_is_finite(const struct vb_model *m, int i, const struct vb_model_batch *batch)
{
    const struct vb_k_shape *s = &m->layers[i].shape;

    if (m->pixels || i == m->n_layers - 1)
        return all_finite(m->logits, (size_t)batch->n * (size_t)m->classes);
    if (m->forward_only || (s->kind == VB_K_DROPOUT && !batch->training))
        return true;
    return all_finite(m->layers[i].y,
                      vb_k_shape_outputs(s) / (size_t)m->batch_max * (size_t)batch->n);
}

const char *vb_model_find_not_finite(const struct vb_model *m, const float *params,
                                     const struct vb_model_batch *batch, const char **what_p)
{
    int i, n = m->pixels ? 1 : m->n_layers;

    for (i = 0; i < n; i++) {
        int param = m->pixels ? 0 : m->layers[i].param;

        *what_p = "parameters are";
        if (param >= 0 && !all_finite(params + m->params[param].offset, n_params(m, param)))
            return m->table->layers[i].name;
        *what_p = "output is";
        if (!output_is_finite(m, i, batch))
            return m->table->layers[i].name;
    }
    *what_p = "output is too large or";
    return m->table->layers[n - 1].name;
}
