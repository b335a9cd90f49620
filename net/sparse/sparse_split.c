/* SPDX-License-Identifier: MIT
 *
 * Decides which rank sums which indices: each owner gets a range of indices, such that all owners
 * have about the same amount of work. All ranks compute the same ranges and the places of all parts
 * from samples of the lists (docs/collectives.md).
 */
#include "net/sparse/sparse_priv.h"

#include <stdlib.h>

#define STEP_MIN 8 /* minimum distance of samples: short lists need no more samples */

/* ---- heads ----------------------------------------------------------------------------------- */

size_t vb_sparse_step(size_t n, uint32_t max_samples)
{
    size_t step = (n + max_samples - 1) / max_samples;

    return step > STEP_MIN ? step : STEP_MIN;
}

uint32_t vb_sparse_n_samples(size_t n, uint32_t max_samples)
{
    size_t step = vb_sparse_step(n, max_samples);

    return (uint32_t)((n + step - 1) / step);
}

size_t vb_sparse_head_bytes(uint32_t n_samples)
{
    return sizeof(struct sparse_head) + n_samples * sizeof(uint32_t);
}

void vb_sparse_sample(const uint64_t *words, uint32_t max_samples, struct sparse_head *head)
{
    size_t step = vb_sparse_step(head->n, max_samples);
    uint32_t i;

    head->n_samples = vb_sparse_n_samples(head->n, max_samples);
    for (i = 0; i < head->n_samples; i++)
        head->samples[i] = word_index(words[i * step]);
}

const char *vb_sparse_head_wrong(const struct sparse_head *head, const struct sparse_limits *limits)
{
    if (head->n > limits->max_nnz)
        return "the list is longer than the announced maximum";
    if (head->refused > SPARSE_OUT_OF_RANGE || (head->refused != SPARSE_FINE && head->n != 0))
        return "the head of the list is invalid";
    if (head->along > 1 || (head->along == 1 && head->n > limits->max_along))
        return "the list inside the head is too long";
    if (head->n_samples != vb_sparse_n_samples(head->n, limits->max_samples))
        return "the number of samples is wrong";
    if (!vb_sparse_ascending(head->samples, head->n_samples))
        return "the samples are out of order";
    if (head->n_samples > 0 && head->samples[head->n_samples - 1] >= limits->features)
        return "an index is not below the number of features";
    return NULL;
}

/* ---- the plan -------------------------------------------------------------------------------- */

size_t vb_sparse_room(size_t max_nnz, uint32_t max_samples, int world)
{
    return max_nnz + (size_t)(world - 1) * (vb_sparse_step(max_nnz, max_samples) - 1);
}

vb_status vb_sparse_plan_init(struct sparse_plan *plan, int world, uint32_t max_samples)
{
    size_t ranks = (size_t)world, samples = ranks * max_samples;

    memset(plan, 0, sizeof(*plan));
    plan->world = world;
    plan->max_samples = max_samples;
    plan->splits = calloc(ranks + 1, sizeof(*plan->splits));
    plan->low = calloc((ranks + 1) * ranks, sizeof(*plan->low));
    plan->high = calloc((ranks + 1) * ranks, sizeof(*plan->high));
    plan->runs = calloc(ranks, sizeof(*plan->runs));
    plan->a = calloc(2 * samples, sizeof(*plan->a));
    plan->b = calloc(samples, sizeof(*plan->b));
    if (plan->splits == NULL || plan->low == NULL || plan->high == NULL || plan->runs == NULL ||
        plan->a == NULL || plan->b == NULL) {
        vb_sparse_plan_fini(plan);
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a plan of %d ranks", world);
    }
    return VB_OK;
}

void vb_sparse_plan_fini(struct sparse_plan *plan)
{
    free(plan->splits);
    free(plan->low);
    free(plan->high);
    free(plan->runs);
    free(plan->a);
    free(plan->b);
    memset(plan, 0, sizeof(*plan));
}

/* Returns the samples of all ranks in ascending order. The value of each word is the weight of the
 * sample. */
static struct sparse_run merge_samples(struct sparse_plan *plan, struct sparse_head *const *heads)
{
    uint64_t *words = plan->a + (size_t)plan->world * plan->max_samples;
    uint32_t i;
    int r;

    for (r = 0; r < plan->world; r++) {
        const struct sparse_head *head = heads[r];
        size_t step = vb_sparse_step(head->n, plan->max_samples);

        plan->runs[r] = (struct sparse_run){words, head->n_samples};
        for (i = 0; i < head->n_samples; i++)
            *words++ = word_of(head->samples[i], (uint32_t)step);
    }
    return vb_sparse_merge_runs(plan->runs, plan->world, plan->a, plan->b);
}

/* Puts each split at the sample where the weight of all samples before it has reached a whole
 * number of shares. */
static void choose_splits(struct sparse_plan *plan, const struct sparse_run *all, uint64_t features)
{
    uint64_t total = 0, so_far = 0;
    size_t i;
    int o = 1;

    for (i = 0; i < all->n; i++)
        total += (uint32_t)all->words[i];
    plan->splits[0] = 0;
    for (i = 0; i < all->n; i++) {
        for (; o < plan->world && so_far * (uint64_t)plan->world >= total * (uint64_t)o; o++)
            plan->splits[o] = word_index(all->words[i]);
        so_far += (uint32_t)all->words[i];
    }
    for (; o <= plan->world; o++)
        plan->splits[o] = features;
}

static uint32_t samples_below(const struct sparse_head *head, uint64_t limit)
{
    uint32_t low = 0, high = head->n_samples, mid;

    while (low < high) {
        mid = low + (high - low) / 2;
        if (head->samples[mid] < limit)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Bounds the places of a split in all lists. If c samples of a list are below the split, the split
 * lies behind the last of these samples, and not behind the next sample. */
static void bound_parts(struct sparse_plan *plan, struct sparse_head *const *heads, int o)
{
    size_t *low = plan->low + (size_t)o * (size_t)plan->world;
    size_t *high = plan->high + (size_t)o * (size_t)plan->world;
    size_t step, n;
    uint32_t c;
    int r;

    for (r = 0; r < plan->world; r++) {
        n = heads[r]->n;
        step = vb_sparse_step(n, plan->max_samples);
        c = samples_below(heads[r], plan->splits[o]);
        low[r] = c == 0 ? 0 : (c - 1) * step + 1;
        high[r] = c * step < n ? c * step : n;
        if (o == plan->world)
            low[r] = high[r] = n;
    }
}

void vb_sparse_plan_make(struct sparse_plan *plan, struct sparse_head *const *heads)
{
    struct sparse_run all = merge_samples(plan, heads);
    int o;

    choose_splits(plan, &all, heads[0]->features);
    for (o = 0; o <= plan->world; o++)
        bound_parts(plan, heads, o);
}

size_t vb_sparse_part_room(const struct sparse_plan *plan, int rank, int owner)
{
    size_t first = (size_t)owner * (size_t)plan->world + (size_t)rank;

    return plan->high[first + (size_t)plan->world] - plan->low[first];
}

size_t vb_sparse_sum_room(const struct sparse_plan *plan, int owner)
{
    uint64_t range = plan->splits[owner + 1] - plan->splits[owner];
    size_t room = 0;
    int r;

    for (r = 0; r < plan->world; r++)
        room += vb_sparse_part_room(plan, r, owner);
    return room < range ? room : (size_t)range;
}
