/* SPDX-License-Identifier: MIT
 *
 * Logistic regression on sparse rows, on one thread and without an engine, as a good programmer
 * would write it in an afternoon: outputs of the batch, then gradient and update in place. Weights
 * and rows are prefetched, also across batches. A loop is compiled for LR_FIELDS entries per row.
 */
#include "bench/peers/bare_sparse_lr.h"

#include <math.h>

#define AHEAD 6   /* number of rows to prefetch ahead */
#define LARGE 256 /* number of rows; such a batch uses more weights than the L2 cache holds */

#define ALWAYS static inline __attribute__((always_inline))

struct row {
    const uint32_t *k;
    const float *x;
    size_t n;
};

ALWAYS struct row row_at(const struct lr_data *d, size_t at, bool even)
{
    size_t r = d->order[at], first = even ? r * LR_FIELDS : d->offset[r];

    return (struct row){
        .k = d->index + first,
        .x = d->value + first,
        .n = even ? LR_FIELDS : d->offset[r + 1] - first,
    };
}

ALWAYS void prefetch_row(const struct lr_data *d, size_t at, bool even)
{
    struct row row = row_at(d, at, even);
    size_t j;

    for (j = 0; j < row.n; j += 16) {
        __builtin_prefetch(row.k + j);
        __builtin_prefetch(row.x + j);
    }
    if (row.n > 0) {
        __builtin_prefetch(row.k + row.n - 1);
        __builtin_prefetch(row.x + row.n - 1);
    }
}

ALWAYS void prefetch_weights(const struct lr_data *d, size_t at, bool even, const float *w)
{
    struct row row = row_at(d, at, even);
    size_t j;

    for (j = 0; j < row.n; j++)
        __builtin_prefetch(w + row.k[j], 1);
}

/* Prefetches the data and weights of rows after row i. */
ALWAYS void look_ahead(const struct lr_data *d, size_t i, size_t end, bool even, const float *w)
{
    if (!even && i + 4 * AHEAD < end)
        __builtin_prefetch(d->offset + d->order[i + 4 * AHEAD]);
    if (i + 2 * AHEAD < end) {
        prefetch_row(d, i + 2 * AHEAD, even);
        __builtin_prefetch(d->label + d->order[i + 2 * AHEAD]);
    }
    if (i + AHEAD < end)
        prefetch_weights(d, i + AHEAD, even, w);
}

ALWAYS float dot_row(struct row row, const float *w)
{
    const uint32_t *k = row.k;
    const float *x = row.x;
    float s[4] = {0};
    size_t j;

    for (j = 0; j + 4 <= row.n; j += 4) {
        s[0] += w[k[j]] * x[j];
        s[1] += w[k[j + 1]] * x[j + 1];
        s[2] += w[k[j + 2]] * x[j + 2];
        s[3] += w[k[j + 3]] * x[j + 3];
    }
    for (; j < row.n; j++)
        s[0] += w[k[j]] * x[j];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

ALWAYS void add_row(struct row row, float g, float *w)
{
    size_t j;

    for (j = 0; j < row.n; j++)
        w[row.k[j]] += g * row.x[j];
}

/* Returns the loss, and replaces the logit by its gradient. */
static inline float loss_of(float *logit, int label)
{
    float z = *logit, e = expf(-fabsf(z)), p = z >= 0 ? 1 / (1 + e) : e / (1 + e);
    float m = label ? -z : z;

    *logit = p - (float)label;
    return (m > 0 ? m : 0) + log1pf(e);
}

ALWAYS double bare_steps(const struct lr_data *d, size_t first, size_t steps, size_t batch,
                         float rate, float *w, float *bias, float *logits, bool even)
{
    size_t end = first + steps * batch, at, i;
    float scale = -rate / (float)batch, sum;
    double loss = 0;

    for (at = first; at < end; at += batch) {
        for (i = at; i < at + batch; i++) {
            look_ahead(d, i, end, even, w);
            logits[i - at] = dot_row(row_at(d, i, even), w) + *bias;
        }
        for (i = 0; i < batch; i++)
            loss += (double)loss_of(&logits[i], d->label[d->order[at + i]]);
        for (sum = 0, i = 0; i < batch; i++) {
            if (batch >= LARGE && i + 2 < batch)
                prefetch_weights(d, at + i + 2, even, w);
            add_row(row_at(d, at + i, even), scale * logits[i], w);
            sum += logits[i];
        }
        *bias += scale * sum;
    }
    return loss;
}

double lr_bare_steps(const struct lr_data *d, size_t first, size_t steps, size_t batch, float rate,
                     float *w, float *bias, float *logits)
{
    if (d->even)
        return bare_steps(d, first, steps, batch, rate, w, bias, logits, true);
    return bare_steps(d, first, steps, batch, rate, w, bias, logits, false);
}
