/* SPDX-License-Identifier: MIT
 *
 * Initial values of parameters, chosen so that signals neither grow nor fade from layer to layer:
 *   with ReLU     uniform in +-sqrt(6 / inputs)               He, Zhang, Ren and Sun, 2015
 *   without       uniform in +-sqrt(6 / (inputs + outputs))   Glorot and Bengio, 2010
 * inputs and outputs are the numbers of inputs and outputs of one neuron; a neuron of a convolution
 * sees kh * kw places of each channel. An initial value depends only on the seed, on its parameter,
 * and on its index in the parameter.
 */
#include "models/model_priv.h"

#include <math.h>
#include <string.h>

static double limit(const struct vb_k_shape *s)
{
    double inputs = (double)vb_k_shape_weights(s) / s->oc;
    double outputs = s->kind == VB_K_CONV ? (double)s->oc * s->kh * s->kw : s->oc;

    return sqrt(6 / (s->relu || s->kind == VB_K_CONV_POOL ? inputs : inputs + outputs));
}

/* Fills v with random numbers. The interval [-max, max] has 2^24 equal parts, and each number is
 * the middle of a random part. */
static void draw(float *v, size_t n, uint64_t seed, double max)
{
    size_t i;

    for (i = 0; i < n; i++)
        v[i] = (float)((((double)(vb_random(seed, i) >> 40) + 0.5) / (1 << 23) - 1) * max);
}

void vb_model_init(const struct vb_model *model, uint64_t seed, float *params)
{
    const struct model_layer *l;
    int i;

    memset(params, 0, model->n_params * sizeof(*params));
    for (i = 0; i < model->n_layers; i++) {
        l = &model->layers[i];
        if (l->param >= 0)
            draw(params + model->params[l->param].offset, vb_k_shape_weights(&l->shape),
                 vb_random(seed, (uint64_t)l->param), limit(&l->shape));
    }
}
