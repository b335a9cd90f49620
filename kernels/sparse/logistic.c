/* SPDX-License-Identifier: MIT
 *
 * Logistic loss. With the margin m = -z for label 1 and m = z for label 0, the loss log(1 + exp(m))
 * is computed as max(m, 0) + log(1 + exp(-|m|)), where no exponential exceeds 1. The gradient is
 * the probability of the other label, with a sign; 1 minus the own one would lose digits.
 *
 * Four rows are computed at a time, so the result of a row does not depend on its place. Threads
 * compute parts of large batches that depend on the number of rows alone.
 */
#include "kernels/kernels.h"
#include "kernels/layer/vec.h"

#include <math.h>

#define MANY 512 /* with at least this number of rows, several threads are used */
#define PARTS 8

double vb_k_logistic_ref(float *logits, const uint8_t *y, size_t n)
{
    double loss = 0, z, m, e, p;
    size_t i;

    for (i = 0; i < n; i++) {
        z = (double)logits[i];
        m = y[i] ? -z : z;
        e = exp(-fabs(z));
        p = (m < 0 ? e : 1) / (1 + e);          /* probability of the other label */
        loss += (m > 0 ? m : m - m) + log1p(e); /* m - m is 0, or NaN if m is NaN */
        logits[i] = (float)(y[i] ? -p : p);
    }
    return loss;
}

/* Returns the gradients of four logits, and writes the losses to loss. */
static vb_v4 four(vb_v4 z, vb_v4i is_1, vb_v4 *loss)
{
    vb_v4 zero = vb_v4_all(0), one = vb_v4_all(1), m, e, p;
    vb_v4i below = z < zero;

    e = vb_vec_exp_below_0(vb_v4_pick(below, z, -z));
    m = vb_v4_pick(is_1, -z, z);
    p = vb_v4_pick(m < zero, e, one) / (e + one);
    *loss = vb_v4_pick(m < zero, zero, m) + vb_vec_log1p_to_1(e);
    return vb_v4_pick(is_1, -p, p);
}

static inline double sum(vb_v4 loss)
{
    return ((double)loss[0] + (double)loss[1]) + ((double)loss[2] + (double)loss[3]);
}

/* Replaces four logits by their gradients, and returns the sum of the losses, added in order. */
static inline double group(float *logits, const uint8_t *y)
{
    vb_v4i labels = {y[0], y[1], y[2], y[3]};
    vb_v4 loss, d = four(vb_v4_load(logits), labels != 0, &loss);

    vb_v4_store(logits, d);
    return sum(loss);
}

/* Does the same for the last n logits, 1 to 3. The group is filled up with copies of the first, in
 * registers, because a vector load right after stores would wait. Their losses do not count. A
 * value with a loss of nearly 0 would give denormal numbers, which are slow. */
static double last(float *logits, const uint8_t *y, size_t n)
{
    float z0 = logits[0];
    vb_v4 z = {z0, n > 1 ? logits[1] : z0, n > 2 ? logits[2] : z0, z0};
    vb_v4i labels = {y[0], n > 1 ? y[1] : y[0], n > 2 ? y[2] : y[0], y[0]};
    vb_v4 loss, d = four(z, labels != 0, &loss);

    logits[0] = d[0];
    if (n > 1)
        logits[1] = d[1];
    if (n > 2)
        logits[2] = d[2];
    return (double)loss[0] + (n > 1 ? (double)loss[1] : 0) + (n > 2 ? (double)loss[2] : 0);
}

static double rows(float *logits, const uint8_t *y, size_t n)
{
    double loss = 0;
    size_t i;

    for (i = 0; i + 4 <= n; i += 4)
        loss += group(logits + i, y + i);
    if (i < n)
        loss += last(logits + i, y + i, n - i);
    return loss;
}

double vb_k_logistic(float *logits, const uint8_t *y, size_t n)
{
    /* len, the number of rows in a part, is a multiple of four. The last part may be shorter. */
    size_t len = (n + 4 * PARTS - 1) / (4 * PARTS) * 4, p;
    double losses[PARTS] = {0}, loss = 0;

    if (n < MANY)
        return rows(logits, y, n);
#pragma omp parallel for schedule(static)
    for (p = 0; p < PARTS; p++)
        if (p * len < n)
            losses[p] = rows(logits + p * len, y + p * len, n - p * len < len ? n - p * len : len);
    for (p = 0; p < PARTS; p++)
        loss += losses[p];
    return loss;
}
