/* SPDX-License-Identifier: MIT
 *
 * Softmax with cross-entropy, four classes at a time. Up to FAST classes; a row of more goes
 * the way of the reference. A NaN makes its whole row NaN, as in the reference.
 */
#include "kernels/kernels.h"
#include "kernels/vec_priv.h"

#include <math.h>

#define FAST 64

static inline float largest(const float *v, int n)
{
    float max = v[0];
    int i;

    for (i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

static float row_loss(float *logits, int label, int classes)
{
    float e[FAST], max = largest(logits, classes), own = logits[label] - max, sum = 0;
    int c, whole = (classes + 3) / 4 * 4;

    for (c = 0; c < classes; c++)
        e[c] = logits[c] - max;
    for (; c < whole; c++)
        e[c] = 0;
    for (c = 0; c < whole; c += 4)
        v4_store(e + c, v4_exp_below_0(v4_load(e + c)));
    for (c = 0; c < classes; c++)
        sum += e[c];
    for (c = 0; c < classes; c++)
        logits[c] = e[c] * (1 / sum);
    logits[label] -= 1;
    return logf(sum) - own;
}

double vb_k_softmax_xent(float *logits, const uint8_t *y, size_t n, int classes)
{
    double loss = 0;
    size_t i;

    if (classes > FAST)
        return vb_k_softmax_xent_ref(logits, y, (int)n, classes);
    for (i = 0; i < n; i++, logits += classes)
        loss += (double)row_loss(logits, y[i], classes);
    return loss;
}
