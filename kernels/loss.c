/* SPDX-License-Identifier: MIT
 *
 * Losses and their gradients. exp() is computed on short vectors: exp(x) = 2^n * exp(r), where n is
 * the whole number nearest to x / ln 2, so that |r| <= ln 2 / 2, and exp(r) is a polynomial of
 * degree 6, which is off by less than 2 in the last place.
 */
#include "kernels/layer_priv.h"

#include <math.h>
#include <string.h>

#define LANES 8

typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(int32_t))));

#define EXP_MIN (-87.0f)      /* below it, nothing that counts beside a 1 */
#define ROUND 12582912.0f     /* 1.5 * 2^23: adding it rounds to a whole number */
#define LN2_HIGH 0.693359375f /* few bits, so that n * LN2_HIGH is exact */
#define LN2_LOW (-2.12194440e-4f)
#define LOG2_E 1.44269504088896341f

static inline vec load(const float *v)
{
    vec out;

    memcpy(&out, v, sizeof(out));
    return out;
}

static inline void store(float *v, const vec *in)
{
    memcpy(v, in, sizeof(*in));
}

/* x = exp(x), x <= 0, in place (vectors wider than the CPU's are not for passing about). 0 below
 * EXP_MIN; NaN stays. */
static inline void exp_lanes(vec *x)
{
    vec v = *x, n, r, p;
    ivec small = v < EXP_MIN, scale;

    v = (vec)((ivec)v & ~small);
    n = v * LOG2_E + ROUND;
    scale = ((ivec)n - (int32_t)0x4b400000 + 127) << 23; /* 2^n: only the exponent */
    n -= ROUND;
    r = v - n * LN2_HIGH - n * LN2_LOW;
    p = r * 1.3981999507e-3f + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    p *= (vec)scale;
    *x = (vec)((ivec)p & ~small);
}

static inline float sum_lanes(const vec *v)
{
    float sum = 0;
    int l;

    for (l = 0; l < LANES; l++)
        sum += (*v)[l];
    return sum;
}

/* ---- softmax with cross-entropy -------------------------------------------------------------- */

static float largest(const float *v, int n)
{
    float max = v[0];
    int i;

    for (i = 1; i < n; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

/* Turns logits into exp(logit - max), and returns their sum. */
static float exp_row(float *logits, int n, float max)
{
    vec sum = {0}, x;
    float rest[LANES];
    int i, l;

    for (i = 0; i + LANES <= n; i += LANES) {
        x = load(logits + i) - max;
        exp_lanes(&x);
        store(logits + i, &x);
        sum += x;
    }
    if (i == n)
        return sum_lanes(&sum);
    for (l = 0; l < LANES; l++)
        rest[l] = i + l < n ? logits[i + l] - max : 2 * EXP_MIN; /* gives 0 */
    x = load(rest);
    exp_lanes(&x);
    store(rest, &x);
    memcpy(logits + i, rest, (size_t)(n - i) * sizeof(*rest));
    sum += x;
    return sum_lanes(&sum);
}

static double xent_row(float *logits, int label, int classes)
{
    float max = largest(logits, classes), own = logits[label] - max, sum, share;
    int c;

    sum = exp_row(logits, classes, max);
    share = 1 / sum;
    for (c = 0; c < classes; c++)
        logits[c] *= share;
    logits[label] -= 1;
    return (double)logf(sum) - (double)own;
}

double vb_k_softmax_xent(float *logits, const int32_t *y, int n, int classes)
{
    double loss = 0;
    int i;

    for (i = 0; i < n; i++)
        loss += xent_row(logits + (size_t)i * (size_t)classes, y[i], classes);
    return loss;
}

/* ---- logistic loss --------------------------------------------------------------------------- */

/* With m = |z| the loss of label 1 is log(1 + exp(-m)), and m more if z has the wrong sign: no
 * exp() overflows. */
double vb_k_logistic_ref(float *logits, const uint8_t *y, int n)
{
    double loss = 0, z, e, p, wrong;
    int i;

    for (i = 0; i < n; i++) {
        z = (double)logits[i];
        wrong = y[i] ? -z : z;
        e = exp(-fabs(z));
        p = z < 0 ? e / (1 + e) : 1 / (1 + e);
        loss += log1p(e) + (wrong < 0 ? 0 : wrong);
        logits[i] = (float)(p - (y[i] ? 1 : 0));
    }
    return loss;
}

static double logistic_lanes(float *z, const uint8_t *y, int n)
{
    float m[LANES];
    double loss = 0;
    vec e;
    int l;

    for (l = 0; l < LANES; l++)
        m[l] = l < n ? -fabsf(z[l]) : 0;
    e = load(m);
    exp_lanes(&e);
    for (l = 0; l < n; l++) {
        float wrong = y[l] ? -z[l] : z[l];

        loss += (double)log1pf(e[l]) + (wrong < 0 ? 0 : (double)wrong);
        z[l] = (z[l] < 0 ? e[l] : 1) / (1 + e[l]) - (y[l] ? 1.0f : 0.0f);
    }
    return loss;
}

double vb_k_logistic(float *logits, const uint8_t *y, int n)
{
    double loss = 0;
    int i;

    for (i = 0; i < n; i += LANES)
        loss += logistic_lanes(logits + i, y + i, n - i < LANES ? n - i : LANES);
    return loss;
}
