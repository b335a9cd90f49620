/* SPDX-License-Identifier: MIT
 *
 * Softmax with cross-entropy, four classes at a time. A NaN makes its whole row NaN, as in the
 * reference.
 */
#include "kernels/kernels.h"
#include "kernels/vec_priv.h"

#include <math.h>

static inline float largest(const float *v, int n)
{
    float max = v[0];
    int i;

    for (i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

/* Turns the logits into exp(logit - max), and returns their sum. Four sums, by the place modulo 4;
 * in the last vector, places behind the last class are far below all others. */
static inline float exp_row(float *logits, int classes, float max)
{
    vb_v4 sum = vb_v4_all(0), e;
    float rest[4];
    int c, l, n;

    for (c = 0; c + 4 <= classes; c += 4) {
        e = vb_v4_exp_below_0(vb_v4_load(logits + c) - max);
        vb_v4_store(logits + c, e);
        sum += e;
    }
    n = classes - c;
    for (l = 0; l < n; l++)
        rest[l] = logits[c + l] - max;
    for (; l < 4; l++)
        rest[l] = -100;
    vb_v4_store(rest, vb_v4_exp_below_0(vb_v4_load(rest)));
    for (l = 0; l < n; l++) {
        logits[c + l] = rest[l];
        sum[l] += rest[l];
    }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static float row_loss(float *logits, int label, int classes)
{
    float max = largest(logits, classes), own = logits[label] - max, sum, share;
    int c;

    sum = exp_row(logits, classes, max);
    share = 1 / sum;
    for (c = 0; c < classes; c++)
        logits[c] *= share;
    logits[label] -= 1;
    return logf(sum) - own;
}

double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes)
{
    double loss = 0;
    size_t i;

    for (i = 0; i < n; i++, logits += classes)
        loss += (double)row_loss(logits, y[i], classes);
    return loss;
}
