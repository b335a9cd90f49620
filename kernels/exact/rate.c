/* SPDX-License-Identifier: MIT
 *
 * Learning rates. The rate is a function of the step alone, so a resumed run continues with the
 * same rates.
 */
#include "kernels/kernels.h"

#include <math.h>

/* Falls along half a cosine from base to factor * base, then stays constant. */
static double cosine_rate(const struct vb_k_schedule *s, int64_t step)
{
    int64_t span = s->period - s->warmup;
    double least = s->base * s->factor, part;

    if (step >= s->period || span <= 0)
        return least;
    part = (double)(step - s->warmup) / (double)span;
    return least + (s->base - least) * 0.5 * (1 + cos(acos(-1) * part));
}

float vb_k_rate(const struct vb_k_schedule *s, int64_t step)
{
    int64_t periods = s->period > 0 ? step / s->period : 0;

    if (step < s->warmup)
        return (float)(s->base * (double)(step + 1) / (double)s->warmup);
    if (s->kind == VB_K_RATE_STEP && s->period > 0)
        return (float)(s->base * pow(s->factor, (double)periods));
    if (s->kind == VB_K_RATE_COSINE)
        return (float)cosine_rate(s, step);
    return (float)s->base;
}
