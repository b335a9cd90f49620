/* SPDX-License-Identifier: MIT
 *
 * The specification of the update rules: one parameter at a time, in double precision. The dense
 * loops and the lazy updates are tested against it.
 *
 *   all          g = scale * gradient + decay * w             (the same as PyTorch's SGD)
 *   sgd          w -= rate * g
 *   momentum     v = momentum * v + g;  w -= rate * v
 *   nesterov     v = momentum * v + g;  w -= rate * (g + momentum * v)
 *   adagrad      s += g * g;  w -= rate * g / (sqrt(s) + eps)
 *   ftrl         McMahan and others, 2013, with alpha = rate; begins with w = 0:
 *                z += g - (sqrt(n + g * g) - sqrt(n)) / rate * w;  n += g * g
 *                w = |z| <= l1 ? 0 : -(z - sign(z) * l1) / ((beta + sqrt(n)) / rate + l2)
 *                If g is 0, w stays as it is, even if the rate has changed.
 */
#include "kernels/kernels.h"

#include <math.h>

static double ftrl(const struct vb_k_rule *r, double rate, double w, double g, double *z, double *n)
{
    double sum = *n + g * g, shrunk;

    *z += g - (sqrt(sum) - sqrt(*n)) / rate * w;
    *n = sum;
    if (g == 0)
        return w;
    shrunk = fabs(*z) - (double)r->l1;
    if (shrunk <= 0)
        return 0;
    return -copysign(shrunk, *z) / (((double)r->beta + sqrt(sum)) / rate + (double)r->l2);
}

static double one(const struct vb_k_rule *r, double rate, double w, double g, double *s, double *t)
{
    double mu = (double)r->momentum;

    switch (r->kind) {
    case VB_K_SGD:
        break;
    case VB_K_MOMENTUM:
        *s = mu * *s + g;
        return w - rate * *s;
    case VB_K_NESTEROV:
        *s = mu * *s + g;
        return w - rate * (g + mu * *s);
    case VB_K_ADAGRAD:
        *s += g * g;
        return w - rate * g / (sqrt(*s) + (double)r->eps);
    case VB_K_FTRL:
        return ftrl(r, rate, w, g, s, t);
    }
    return w - rate * g;
}

void vb_k_update_ref(const struct vb_k_rule *rule, const struct vb_k_update *u)
{
    int states = vb_k_rule_states(rule->kind);
    size_t i;

    for (i = 0; i < u->n; i++) {
        double w = (double)u->params[i], s = states > 0 ? (double)u->state[i] : 0;
        double t = states > 1 ? (double)u->state[u->n + i] : 0;
        double g = (double)u->scale * (double)u->grads[i] + (double)rule->decay * w;

        u->params_out[i] = (float)one(rule, (double)u->rate, w, g, &s, &t);
        if (states > 0)
            u->state_out[i] = (float)s;
        if (states > 1)
            u->state_out[u->n + i] = (float)t;
    }
}
