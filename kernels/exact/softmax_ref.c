/* SPDX-License-Identifier: MIT
 *
 * A linear layer, softmax with cross-entropy, and plain SGD, written to be read. Sums run in the
 * order of the samples, and for the logits in the order of the features.
 */
#include "kernels/kernels.h"

#include <math.h>

void vb_k_linear_forward_ref(const float *x, const float *w, const float *b, int n, int features,
                             int classes, float *logits)
{
    int i, f, c;

    for (i = 0; i < n; i++, x += features, logits += classes) {
        memcpy(logits, b, (size_t)classes * sizeof(*b));
        for (f = 0; f < features; f++)
            for (c = 0; c < classes; c++)
                logits[c] += x[f] * w[f * classes + c];
    }
}

void vb_k_linear_backward_ref(const float *x, const float *dlogits, int n, int features,
                              int classes, float *dw, float *db)
{
    int i, f, c;

    memset(dw, 0, (size_t)features * (size_t)classes * sizeof(*dw));
    memset(db, 0, (size_t)classes * sizeof(*db));
    for (i = 0; i < n; i++, x += features, dlogits += classes) {
        for (c = 0; c < classes; c++)
            db[c] += dlogits[c];
        for (f = 0; f < features; f++)
            for (c = 0; c < classes; c++)
                dw[f * classes + c] += x[f] * dlogits[c];
    }
}

/* Replaces the logits of a row by their gradient and returns the loss. The largest logit is
 * subtracted first, so that exp() cannot overflow and the sum is at least 1. */
static float xent_row(float *logits, int label, int classes)
{
    float max = logits[vb_k_argmax_ref(logits, classes)], own = logits[label] - max, sum;
    int c;

    sum = logits[0] = expf(logits[0] - max);
    for (c = 1; c < classes; c++) {
        logits[c] = expf(logits[c] - max);
        sum += logits[c];
    }
    for (c = 0; c < classes; c++)
        logits[c] /= sum;
    logits[label] -= 1;
    return logf(sum) - own;
}

double vb_k_softmax_xent_ref(float *logits, const uint16_t *y, int n, int classes)
{
    double loss = 0;
    int i;

    for (i = 0; i < n; i++)
        loss += (double)xent_row(logits + (size_t)i * (size_t)classes, y[i], classes);
    return loss;
}

int vb_k_argmax_ref(const float *logits, int classes)
{
    int best = 0, c;

    for (c = 1; c < classes; c++)
        if (logits[c] > logits[best])
            best = c;
    return best;
}

void vb_k_add_ref(float *sum, const float *v, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        sum[i] += v[i];
}

void vb_k_sgd_ref(float *params, const float *grads, size_t n, float rate)
{
    size_t i;

    for (i = 0; i < n; i++)
        params[i] -= rate * grads[i];
}
