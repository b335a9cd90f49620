/* SPDX-License-Identifier: MIT
 *
 * Softmax regression on the reference kernels, in plain steps. Tests compare models/ with this
 * implementation, and train it to measure how hard generated data are.
 */
#ifndef VB_TESTS_SUPPORT_SOFTMAX_FIXTURE_H
#define VB_TESTS_SUPPORT_SOFTMAX_FIXTURE_H

#include "models/models.h"

#include <stdlib.h>

#define VB_SOFTMAX_PARAMS 2

/* A model of one linear layer and softmax with cross-entropy. Only one thread at a time may use a
 * model. */
struct vb_softmax {
    int features, classes;
    int batch_max;
    struct vb_param table[VB_SOFTMAX_PARAMS]; /* w (features, classes), b (1, classes) */
    size_t n_params;                          /* number of floats in params */
    float *params;                            /* all parameters, in one array */
    float *logits; /* shape: (batch_max, classes); the loss replaces logits by their gradient */
};

enum { W, B };

static void fill_table(struct vb_softmax *m)
{
    m->table[W] = (struct vb_param){"w", m->features, m->classes, 0};
    m->table[B] = (struct vb_param){"b", 1, m->classes, (size_t)m->features * (size_t)m->classes};
    m->n_params = m->table[B].offset + (size_t)m->classes;
}

static inline void vb_softmax_destroy(struct vb_softmax *model)
{
    if (model == NULL)
        return;
    free(model->params);
    free(model->logits);
    free(model);
}

static inline vb_status vb_softmax_create(int features, int classes, int batch_max,
                                          struct vb_softmax **model_p)
{
    struct vb_softmax *m;

    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return vb_err_sys("calloc");
    m->features = features;
    m->classes = classes;
    m->batch_max = batch_max;
    fill_table(m);
    m->params = vb_alloc_aligned(m->n_params * sizeof(float));
    m->logits = vb_alloc_aligned((size_t)batch_max * (size_t)classes * sizeof(float));
    if (m->params == NULL || m->logits == NULL) {
        vb_softmax_destroy(m);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a model of %d x %d and a batch of %d",
                      features, classes, batch_max);
    }
    *model_p = m;
    return VB_OK;
}

static inline void vb_softmax_forward(struct vb_softmax *model, const float *x, int n)
{
    VB_ASSERT(n <= model->batch_max);
    vb_k_linear_forward_ref(x, model->params + model->table[W].offset,
                            model->params + model->table[B].offset, n, model->features,
                            model->classes, model->logits);
}

static inline int vb_softmax_correct(const struct vb_softmax *model, const uint8_t *y, int n)
{
    int i, correct = 0;

    for (i = 0; i < n; i++)
        correct += vb_k_argmax_ref(model->logits + (size_t)i * (size_t)model->classes,
                                   model->classes) == y[i];
    return correct;
}

static inline double vb_softmax_loss(struct vb_softmax *model, const uint8_t *y, int n)
{
    double loss = 0;
    uint16_t label;
    int i;

    for (i = 0; i < n; i++) {
        label = y[i];
        loss += vb_k_softmax_xent_ref(model->logits + (size_t)i * (size_t)model->classes, &label, 1,
                                      model->classes);
    }
    return loss;
}

static inline void vb_softmax_backward(const struct vb_softmax *model, const float *x, int n,
                                       float *grads)
{
    vb_k_linear_backward_ref(x, model->logits, n, model->features, model->classes,
                             grads + model->table[W].offset, grads + model->table[B].offset);
}

static inline void vb_softmax_update(struct vb_softmax *model, const float *grads, float rate)
{
    vb_k_sgd_ref(model->params, grads, model->n_params, rate);
}

#endif
