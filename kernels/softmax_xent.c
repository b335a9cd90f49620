/* SPDX-License-Identifier: MIT
 *
 * Softmax with cross-entropy, four classes at a time. A NaN makes its whole row NaN, as in the
 * reference.
 */
#include "kernels/kernels.h"
#include "kernels/vec_priv.h"

#include <math.h>

/* The last vector of a row of at least four ends with its last class. Some of its places are the
 * vector before's too: it is loaded before that one is stored, and they are not added up again. */
static inline vb_v4 last_of(const float *row, int classes)
{
    return vb_v4_load(row + classes - 4);
}

static inline vb_v4 only_new(vb_v4 last, int classes)
{
    const vb_v4i places = {0, 1, 2, 3};

    return vb_v4_pick(places < (4 - classes % 4) % 4, vb_v4_all(0), last);
}

static inline vb_v4 larger(vb_v4 a, vb_v4 b)
{
    return vb_v4_pick(b > a, b, a);
}

static inline float largest(const float *row, int classes)
{
    vb_v4 max = last_of(row, classes);
    float a, b;
    int c;

    for (c = 0; c + 4 < classes; c += 4)
        max = larger(max, vb_v4_load(row + c));
    a = max[1] > max[0] ? max[1] : max[0];
    b = max[3] > max[2] ? max[3] : max[2];
    return b > a ? b : a;
}

/* Turns the logits into exp(logit - max), and returns their sum. Four sums, by the place modulo 4.
 */
static inline float exp_row(float *row, int classes, float max)
{
    vb_v4 last = vb_v4_exp_below_0(last_of(row, classes) - max), sum = only_new(last, classes), e;
    int c;

    for (c = 0; c + 4 < classes; c += 4) {
        e = vb_v4_exp_below_0(vb_v4_load(row + c) - max);
        vb_v4_store(row + c, e);
        sum += e;
    }
    vb_v4_store(row + classes - 4, last);
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static inline void scale_row(float *row, int classes, float share)
{
    vb_v4 last = last_of(row, classes) * share;
    int c;

    for (c = 0; c + 4 < classes; c += 4)
        vb_v4_store(row + c, vb_v4_load(row + c) * share);
    vb_v4_store(row + classes - 4, last);
}

static inline float row_loss(float *row, int label, int classes)
{
    float max = largest(row, classes), own = row[label] - max, sum;

    sum = exp_row(row, classes, max);
    scale_row(row, classes, 1 / sum);
    row[label] -= 1;
    return logf(sum) - own;
}

/* Of fewer than four classes: filled up with some that are far below all others. */
static float short_row_loss(float *row, int label, int classes)
{
    float four[4], loss;
    int c;

    for (c = 0; c < 4; c++)
        four[c] = c < classes ? row[c] : -INFINITY;
    loss = row_loss(four, label, 4);
    for (c = 0; c < classes; c++)
        row[c] = four[c];
    return loss;
}

double vb_k_softmax_xent(float *logits, const uint16_t *y, size_t n, int classes)
{
    double loss = 0;
    size_t i;

    for (i = 0; i < n; i++, logits += classes)
        loss += (double)(classes < 4     ? short_row_loss(logits, y[i], classes)
                         : classes == 10 ? row_loss(logits, y[i], 10) /* the digits */
                                         : row_loss(logits, y[i], classes));
    return loss;
}
