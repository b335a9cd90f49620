/* SPDX-License-Identifier: MIT
 *
 * Logistic regression on sparse rows with nothing around it: what a good programmer writes in an
 * afternoon for rows of just this length, one thread. Forward over the batch, gradient, update in
 * place; weights and rows are prefetched ahead, across the ends of batches too, and the weights lie
 * on huge pages.
 */
#include "bench/peers/sparse_lr.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define AHEAD 6   /* rows */
#define LARGE 256 /* rows of a batch whose weights the second cache does not hold */

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Few of a field's features are in most rows, most in few. They are strewn over the field, as a
 * hash would. */
static uint32_t draw(uint64_t *state, size_t field)
{
    const uint64_t width = LR_FEATURES / LR_FIELDS;
    double u = (double)(mix(state) >> 11) * 0x1p-53;
    uint64_t rank = (uint64_t)pow((double)width, u * u * u * u) - 1;

    return (uint32_t)(field * width + rank * UINT64_C(611953) % width);
}

static void shuffle(uint32_t *order, size_t n, uint64_t *state)
{
    size_t i, j;
    uint32_t keep;

    for (i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (i = n; i > 1; i--) {
        j = mix(state) % i;
        keep = order[i - 1];
        order[i - 1] = order[j];
        order[j] = keep;
    }
}

/* On huge pages too: rows are read in shuffled order. */
static void *room(size_t len)
{
    size_t whole = (len + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *ptr = aligned_alloc(HUGE_PAGE, whole);

    if (ptr != NULL)
        madvise(ptr, whole, MADV_HUGEPAGE); /* small pages will do */
    return ptr;
}

int lr_data_make(size_t n_rows, struct lr_data *data_p)
{
    struct lr_data d = {.n_rows = n_rows};
    uint64_t state = 1;
    size_t i;

    d.index = room(n_rows * LR_FIELDS * sizeof(*d.index));
    d.value = room(n_rows * LR_FIELDS * sizeof(*d.value));
    d.label = room(n_rows);
    d.order = room(n_rows * sizeof(*d.order));
    if (d.index == NULL || d.value == NULL || d.label == NULL || d.order == NULL) {
        lr_data_free(&d);
        return -1;
    }
    for (i = 0; i < n_rows * LR_FIELDS; i++) {
        d.index[i] = draw(&state, i % LR_FIELDS);
        d.value[i] = (float)(mix(&state) >> 40) * 0x1p-24f;
    }
    for (i = 0; i < n_rows; i++)
        d.label[i] = mix(&state) % 4 == 0;
    shuffle(d.order, n_rows, &state);
    *data_p = d;
    return 0;
}

void lr_data_free(struct lr_data *data)
{
    free(data->index);
    free(data->value);
    free(data->label);
    free(data->order);
}

static inline __attribute__((always_inline)) void prefetch_row(const struct lr_data *d, size_t at)
{
    size_t first = (size_t)d->order[at] * LR_FIELDS, j;

    for (j = 0; j < LR_FIELDS; j += 16) {
        __builtin_prefetch(d->index + first + j);
        __builtin_prefetch(d->value + first + j);
    }
    __builtin_prefetch(d->index + first + LR_FIELDS - 1);
    __builtin_prefetch(d->value + first + LR_FIELDS - 1);
}

static inline __attribute__((always_inline)) void prefetch_weights(const struct lr_data *d,
                                                                   size_t at, const float *w)
{
    const uint32_t *k = d->index + (size_t)d->order[at] * LR_FIELDS;
    size_t j;

    for (j = 0; j < LR_FIELDS; j++)
        __builtin_prefetch(w + k[j], 1);
}

static inline float dot_row(const struct lr_data *d, size_t at, const float *w)
{
    size_t first = (size_t)d->order[at] * LR_FIELDS, j;
    const uint32_t *k = d->index + first;
    const float *x = d->value + first;
    float s[4] = {0};

    for (j = 0; j + 4 <= LR_FIELDS; j += 4) {
        s[0] += w[k[j]] * x[j];
        s[1] += w[k[j + 1]] * x[j + 1];
        s[2] += w[k[j + 2]] * x[j + 2];
        s[3] += w[k[j + 3]] * x[j + 3];
    }
    for (; j < LR_FIELDS; j++)
        s[0] += w[k[j]] * x[j];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static inline void add_row(const struct lr_data *d, size_t at, float g, float *w)
{
    size_t first = (size_t)d->order[at] * LR_FIELDS, j;
    const uint32_t *k = d->index + first;
    const float *x = d->value + first;

    for (j = 0; j < LR_FIELDS; j++)
        w[k[j]] += g * x[j];
}

/* The loss and, in place of the logit, its gradient. */
static inline float loss_of(float *logit, int label)
{
    float z = *logit, e = expf(-fabsf(z)), p = z >= 0 ? 1 / (1 + e) : e / (1 + e);
    float m = label ? -z : z;

    *logit = p - (float)label;
    return (m > 0 ? m : 0) + log1pf(e);
}

double lr_bare_steps(const struct lr_data *d, size_t first, size_t steps, size_t batch, float rate,
                     float *w, float *bias, float *logits)
{
    size_t end = first + steps * batch, at, i;
    float scale = -rate / (float)batch, sum;
    double loss = 0;

    for (at = first; at < end; at += batch) {
        for (i = at; i < at + batch; i++) {
            if (i + 2 * AHEAD < end)
                prefetch_row(d, i + 2 * AHEAD);
            if (i + AHEAD < end)
                prefetch_weights(d, i + AHEAD, w);
            logits[i - at] = dot_row(d, i, w) + *bias;
        }
        for (i = 0; i < batch; i++)
            loss += (double)loss_of(&logits[i], d->label[d->order[at + i]]);
        for (sum = 0, i = 0; i < batch; i++) {
            if (batch >= LARGE && i + 2 < batch)
                prefetch_weights(d, at + i + 2, w);
            add_row(d, at + i, scale * logits[i], w);
            sum += logits[i];
        }
        *bias += scale * sum;
    }
    return loss;
}
