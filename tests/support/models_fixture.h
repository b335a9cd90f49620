/* SPDX-License-Identifier: MIT
 *
 * Helpers for the tests of models: a model with parameters, gradients and batches computed from a
 * seed.
 */
#ifndef VB_TESTS_SUPPORT_MODELS_FIXTURE_H
#define VB_TESTS_SUPPORT_MODELS_FIXTURE_H

#include "models/models.h"
#include "tests/support/samples.h"
#include "tests/support/test.h"

struct t_model {
    struct vb_model *m;
    int batch_max, classes;
    size_t n_params, n_in; /* n_in: number of features per sample */
    float *params, *grads;
    float *x; /* shape: (batch_max, n_in) */
    uint16_t *y;
    uint32_t *which;
    struct vb_k_pixels *pixels; /* only for softmax regression, otherwise NULL */
    struct vb_model_batch batch;
    struct vb_model_loss loss;
};

static inline void *t_model_new(size_t n, size_t size)
{
    void *v = calloc(n + 1, size);

    assert_non_null(v);
    return v;
}

static inline void t_model_create(struct t_model *t, const struct vb_model_opts *opts)
{
    int c, h, w;

    memset(t, 0, sizeof(*t));
    assert_int_equal(vb_model_create(opts, &t->m), VB_OK);
    vb_model_input(t->m, &c, &h, &w, &t->classes);
    t->batch_max = opts->batch_max;
    t->n_in = (size_t)c * (size_t)h * (size_t)w;
    t->n_params = vb_model_n_params(t->m);
    t->params = t_model_new(t->n_params, sizeof(float));
    t->grads = t_model_new(t->n_params, sizeof(float));
    t->x = t_model_new((size_t)t->batch_max * t->n_in, sizeof(float));
    t->y = t_model_new((size_t)t->batch_max, sizeof(*t->y));
    t->which = t_model_new((size_t)t->batch_max, sizeof(*t->which));
    vb_model_init(t->m, 3, t->params);
}

static inline void t_model_destroy(struct t_model *t)
{
    vb_model_destroy(t->m);
    vb_k_pixels_destroy(t->pixels);
    free(t->params);
    free(t->grads);
    free(t->x);
    free(t->y);
    free(t->which);
}

/* Makes n samples from the seed and fills the rest of the batch with zeros. If the model takes
 * lists of pixels, three of four features are 0. */
static inline void t_model_batch(struct t_model *t, int n, uint64_t seed, bool pixels)
{
    size_t i, used = (size_t)n * t->n_in;
    struct vb_k_pixels *lists;
    int k;

    for (i = 0; i < (size_t)t->batch_max * t->n_in; i++)
        t->x[i] = i < used ? (float)(vb_random(seed, i) >> 40) / (1 << 23) - 1 : 0;
    for (i = 0; i < used && pixels; i++)
        t->x[i] = i % 4 != 0 ? 0 : t->x[i];
    for (k = 0; k < n; k++) {
        t->y[k] = (uint16_t)(vb_random(seed + 1000, (uint64_t)k) % (uint64_t)t->classes);
        t->which[k] = (uint32_t)k;
    }
    t->batch = (struct vb_model_batch){
        .n = n, .x = t->x, .which = t->which, .y = t->y, .training = true, .seed = 5, .step = seed};
    if (!pixels)
        return;
    vb_k_pixels_destroy(t->pixels);
    assert_int_equal(t_pixels_list(t->x, (size_t)n, (int)t->n_in, &lists), VB_OK);
    t->batch.pixels = t->pixels = lists;
    t->batch.x = NULL;
}

static inline void t_model_run(struct t_model *t)
{
    vb_model_forward(t->m, t->params, &t->batch, &t->loss);
    vb_model_backward(t->m, t->params, &t->batch, t->grads, NULL, NULL);
}

/* A small model with every kind of layer. */
static const struct vb_layer_row t_every_kind[] = {
    {"conv0",
     {.kind = VB_K_CONV_POOL,
      .c = 1,
      .h = 27,
      .w = 23,
      .oc = 3,
      .kh = 3,
      .kw = 3,
      .stride = 1,
      .pad = 1}},
    {"conv1", {.kind = VB_K_CONV, .oc = 5, .kh = 3, .kw = 3, .stride = 1, .pad = 1, .relu = true}},
    {"lrn1", {.kind = VB_K_LRN, .kh = 3, .alpha = 0.5f, .beta = 0.75f, .bias = 1}},
    {"pool1", {.kind = VB_K_MAX_POOL, .kh = 3, .kw = 3, .stride = 2, .pad = 1}},
    {"drop2", {.kind = VB_K_DROPOUT, .rate = 0.125f}},
    {"conv2", {.kind = VB_K_CONV, .oc = 6, .kh = 3, .kw = 2, .stride = 1, .pad = 1}},
    {"relu2", {.kind = VB_K_RELU}},
    {"pool2", {.kind = VB_K_AVG_POOL, .kh = 2, .kw = 2, .stride = 2}},
    {"drop3", {.kind = VB_K_DROPOUT, .rate = 0.25f}},
    {"fc3", {.kind = VB_K_LINEAR, .oc = 9, .relu = true}},
    {"drop4", {.kind = VB_K_DROPOUT, .rate = 0.5f}},
    {"fc4", {.kind = VB_K_LINEAR, .oc = 4}},
};

static const struct vb_layer_table t_every_kind_table = {"every-kind", VB_COUNT(t_every_kind),
                                                         t_every_kind, false};

#endif
