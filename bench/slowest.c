/* SPDX-License-Identifier: MIT
 *
 * Measures collectives. The time of a collective is the time of its slowest rank.
 */
#include "bench/bench_priv.h"

#include <stdlib.h>

#define SAMPLES_MAX (VB_RECORD_MAX / (int)sizeof(double)) /* the samples fit into one record */
#define SAMPLES_MIN 5
#define BATCH_US 200.0
#define BATCH_MAX 4096
#define FIRST_BATCH 4

struct timing {
    struct vb_group *group;
    bench_op_fn op;
    void *arg;
    int64_t batch, n; /* number of operations per batch, number of batches; rank 0 decides both */
    double us[SAMPLES_MAX];
};

static vb_status one_batch(struct timing *t, int64_t batch, double *us_p)
{
    vb_status st = vb_group_barrier(t->group);
    uint64_t start = vb_clock_ns();
    int64_t i;

    for (i = 0; i < batch && st == VB_OK; i++)
        st = t->op(t->arg);
    *us_p = (double)(vb_clock_ns() - start) / 1e3 / (double)batch;
    return st;
}

/* Makes batches to warm up. Then rank 0 chooses the size and the number of batches. */
static vb_status plan(struct timing *t, double seconds)
{
    vb_status st = VB_OK;
    int64_t both[2];
    double us = 0;
    int i;

    for (i = 0; i < 4 && st == VB_OK; i++)
        st = one_batch(t, i == 0 ? 1 : FIRST_BATCH, &us);
    both[0] = (int64_t)(BATCH_US / us) + 1;
    both[0] = both[0] < BATCH_MAX ? both[0] : BATCH_MAX;
    both[1] = (int64_t)(seconds * 1e6 / (us * (double)both[0]));
    both[1] = both[1] < SAMPLES_MIN ? SAMPLES_MIN : both[1];
    both[1] = both[1] > SAMPLES_MAX ? SAMPLES_MAX : both[1];
    if (st == VB_OK)
        st = vb_group_broadcast(t->group, 0, both, sizeof(both));
    t->batch = both[0];
    t->n = both[1];
    return st;
}

/* Finds the slowest rank of each batch, and then the median and the 99th percentile over batches.
 * all: an array with SAMPLES_MAX samples for each rank. */
static vb_status take_slowest(struct timing *t, double *all, double *p50_us_p, double *p99_us_p)
{
    int64_t i, n = t->n;
    vb_status st = vb_group_gather(t->group, t->us, sizeof(t->us), all);
    int r;

    if (st != VB_OK)
        return st;
    for (r = 0; r < vb_group_world(t->group); r++)
        for (i = 0; i < n; i++)
            if (all[(int64_t)r * SAMPLES_MAX + i] > t->us[i])
                t->us[i] = all[(int64_t)r * SAMPLES_MAX + i];
    vb_sort(t->us, (size_t)n);
    *p50_us_p = t->us[n / 2];
    *p99_us_p = t->us[n * 99 / 100];
    return VB_OK;
}

static vb_status measure(struct timing *t, double seconds, double *p50_us_p, double *p99_us_p)
{
    double *all = calloc((size_t)vb_group_world(t->group), sizeof(t->us));
    vb_status st;
    int64_t i;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = plan(t, seconds);
    for (i = 0; i < t->n && st == VB_OK; i++)
        st = one_batch(t, t->batch, &t->us[i]);
    if (st == VB_OK)
        st = take_slowest(t, all, p50_us_p, p99_us_p);
    free(all);
    return st;
}

vb_status bench_slowest(struct vb_group *group, double seconds, bench_op_fn op, void *arg,
                        double *p50_us_p, double *p99_us_p)
{
    struct timing *t = calloc(1, sizeof(*t));
    vb_status st;

    if (t == NULL)
        return vb_err_sys("calloc");
    t->group = group;
    t->op = op;
    t->arg = arg;
    st = measure(t, seconds, p50_us_p, p99_us_p);
    free(t);
    return st;
}

vb_status bench_over_ranks(struct vb_group *group, int64_t value, int64_t *max_p, int64_t *sum_p)
{
    int64_t all[VB_WORLD_MAX];
    vb_status st = vb_group_gather(group, &value, sizeof(value), all);
    int r;

    if (st != VB_OK)
        return st;
    *max_p = all[0];
    *sum_p = 0;
    for (r = 0; r < vb_group_world(group); r++) {
        *sum_p += all[r];
        if (all[r] > *max_p)
            *max_p = all[r];
    }
    return VB_OK;
}

size_t bench_largest(const struct vb_bench_opts *opts)
{
    size_t max = 1;
    int i;

    for (i = 0; i < opts->n_sizes; i++)
        if (opts->sizes[i] > max)
            max = opts->sizes[i];
    return (max + 4095) / 4096 * 4096;
}
