/* SPDX-License-Identifier: MIT
 *
 * bench sparse-allreduce: sums lists of (index, value), such as gradients of click data. A row has
 * FIELDS fields with one feature each; a few features are in most rows. Merging a list is timed
 * separately. Values are small integers, so that sums are exact, and each rank compares the result
 * with a plain sum of all lists.
 */
#include "bench/bench_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 39
#define ENTRY_BYTES 8 /* size of an index and a value */

struct list {
    uint32_t *index;
    float *value;
    size_t n;
};

struct bench {
    struct vb_group *group;
    const struct vb_bench_opts *opts;
    int rank, world;
    struct vb_sparse *sparse;
    struct list mine;
    size_t drawn; /* number of entries in a list before merging */
    const uint32_t *index;
    const float *value;
    size_t n;                                   /* number of entries in the sum */
    double predicted_us[3][VB_BENCH_SIZES_MAX]; /* time per path and size; computed with the first
                                                   path, for all paths */
    int64_t wrong;
};

static uint64_t mix(uint64_t *state)
{
    return vb_mix(*state += UINT64_C(0x9e3779b97f4a7c15));
}

struct entry {
    uint32_t index;
    float value;
};

static struct entry draw(uint64_t *state, int64_t features, size_t at)
{
    int64_t fields = features < FIELDS ? features : FIELDS, width = features / fields;
    double u = (double)(mix(state) >> 11) * 0x1p-53;
    int64_t in_field = (int64_t)pow((double)width, u * u * u * u) - 1;

    return (struct entry){
        .index = (uint32_t)((int64_t)(at % (size_t)fields) * width + in_field % width),
        .value = (float)(mix(state) % 15) - 7,
    };
}

static uint64_t seed(const struct bench *b, int rank)
{
    return (uint64_t)rank << 32 | b->drawn;
}

/* Draws and merges this rank's list. *merge_us_p: time that the slowest rank takes to merge. */
static vb_status make_list(struct bench *b, double *merge_us_p)
{
    int64_t took, most, total;
    uint64_t start, state = seed(b, b->rank);
    struct entry e;
    vb_status st;
    size_t i;

    for (i = 0; i < b->drawn; i++) {
        e = draw(&state, b->opts->features, i);
        b->mine.index[i] = e.index;
        b->mine.value[i] = e.value;
    }
    b->mine.n = b->drawn;
    start = vb_clock_ns();
    st = vb_sparse_merge(b->sparse, b->mine.index, b->mine.value, &b->mine.n);
    took = (int64_t)(vb_clock_ns() - start);
    if (st == VB_OK)
        st = bench_over_ranks(b->group, took, &most, &total);
    if (st == VB_OK)
        *merge_us_p = (double)most / 1e3;
    return st;
}

static int by_index(const void *a, const void *b)
{
    uint32_t x = ((const struct entry *)a)->index, y = ((const struct entry *)b)->index;

    return (x > y) - (x < y);
}

/* Returns the lists of all ranks as one sorted list, to be freed, or NULL without memory. */
static struct entry *draw_all(const struct bench *b)
{
    size_t i, n = b->drawn * (size_t)b->world;
    struct entry *all = calloc(n, sizeof(*all));
    uint64_t state = 0;

    if (all == NULL)
        return NULL;
    for (i = 0; i < n; i++) {
        if (i % b->drawn == 0)
            state = seed(b, (int)(i / b->drawn));
        all[i] = draw(&state, b->opts->features, i % b->drawn);
    }
    qsort(all, n, sizeof(*all), by_index);
    return all;
}

/* Returns the number of entries that are missing, superfluous or wrong. */
static int64_t compare(const struct bench *b, const struct entry *all)
{
    size_t i = 0, out = 0, n = b->drawn * (size_t)b->world;
    int64_t wrong = 0;
    float sum;

    while (i < n) {
        uint32_t index = all[i].index;

        for (sum = 0; i < n && all[i].index == index; i++)
            sum += all[i].value;
        wrong += out >= b->n || b->index[out] != index || b->value[out] != sum;
        out++;
    }
    return wrong + (b->n > out ? (int64_t)(b->n - out) : 0);
}

static vb_status reduce(void *arg)
{
    struct bench *b = arg;

    return vb_sparse_allreduce(b->sparse, b->mine.index, b->mine.value, b->mine.n, VB_REDUCE_SUM,
                               &b->index, &b->value, &b->n);
}

static vb_status verify(struct bench *b, const struct entry *all, struct bench_coll_line *line)
{
    uint64_t before = vb_sparse_wire_bytes(b->sparse);
    int64_t total, most;
    vb_status st = reduce(b);

    if (st == VB_OK)
        st = bench_over_ranks(b->group, (int64_t)(vb_sparse_wire_bytes(b->sparse) - before),
                              &line->wire_bytes, &total);
    if (st == VB_OK)
        st = bench_over_ranks(b->group, compare(b, all), &most, &total);
    if (st == VB_OK)
        line->wrong += total;
    return st;
}

static void describe(const struct bench *b, struct bench_coll_line *line)
{
    memset(line, 0, sizeof(*line));
    line->bench = "sparse-allreduce";
    line->transport = b->world > 1 ? vb_group_transports(b->group) : "self";
    line->ranks = b->world;
    line->order = "rank";
    line->wire = "f32";
    line->in_flight = 1;
    line->features = b->opts->features;
    line->predicted_us = -1;
}

static void explain(struct bench *b, enum vb_sparse_path path, int size,
                    struct bench_coll_line *line)
{
    double *sparse_us = &b->predicted_us[VB_SPARSE_SPARSE][size];
    double *dense_us = &b->predicted_us[VB_SPARSE_DENSE][size];

    if (*sparse_us == 0) {
        *sparse_us = vb_sparse_predict_us(b->sparse, VB_SPARSE_SPARSE);
        *dense_us = vb_sparse_predict_us(b->sparse, VB_SPARSE_DENSE);
    }
    line->predicted_us = b->predicted_us[path][size];
    line->chosen = (path == VB_SPARSE_DENSE) == (*dense_us < *sparse_us);
}

static vb_status measure(struct bench *b, const struct entry *all, enum vb_sparse_path path,
                         int size, struct bench_coll_line *line)
{
    vb_status st = make_list(b, &line->merge_us);

    line->nnz = (int64_t)b->mine.n;
    if (st == VB_OK)
        st = verify(b, all, line);
    if (path == VB_SPARSE_AUTO)
        path = vb_sparse_took(b->sparse);
    line->algo = path == VB_SPARSE_DENSE ? "dense" : "sparse";
    if (st == VB_OK)
        st = bench_slowest(b->group, b->opts->seconds, reduce, b, &line->p50_us, &line->p99_us);
    if (st == VB_OK)
        st = verify(b, all, line);
    if (b->opts->explain)
        explain(b, path, size, line);
    return st;
}

static vb_status one_line(struct bench *b, enum vb_sparse_path path, int size)
{
    struct bench_coll_line line;
    struct entry *all;
    vb_status st;

    describe(b, &line);
    line.bytes = b->opts->sizes[size];
    b->drawn = b->opts->sizes[size] / ENTRY_BYTES;
    all = draw_all(b);
    if (all == NULL)
        return vb_err_sys("calloc");
    st = measure(b, all, path, size, &line);
    if (st == VB_OK && b->rank == 0)
        bench_coll_print(b->opts, &line);
    b->wrong += line.wrong;
    free(all);
    return st;
}

static vb_status one_path(struct bench *b, enum vb_sparse_path path)
{
    struct vb_sparse_opts opts = {.features = (uint64_t)b->opts->features,
                                  .max_nnz = bench_largest(b->opts) / ENTRY_BYTES,
                                  .path = path};
    vb_status st = vb_sparse_open(b->group, &opts, &b->sparse);
    int i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < b->opts->n_sizes && st == VB_OK; i++)
        st = one_line(b, path, i);
    vb_sparse_close(b->sparse);
    return st;
}

static vb_status run(struct bench *b)
{
    size_t most = bench_largest(b->opts) / ENTRY_BYTES;
    struct bench_coll_line about;
    vb_status st = VB_OK;
    int i;

    describe(b, &about);
    if (b->rank == 0)
        bench_coll_head(b->opts, &about);
    b->mine.index = calloc(most, sizeof(*b->mine.index));
    b->mine.value = calloc(most, sizeof(*b->mine.value));
    if (b->mine.index == NULL || b->mine.value == NULL)
        st = vb_err_sys("calloc");
    for (i = 0; i < b->opts->n_paths && st == VB_OK; i++)
        st = one_path(b, b->opts->paths[i]);
    free(b->mine.index);
    free(b->mine.value);
    return st;
}

vb_status vb_bench_sparse(struct vb_group *group, const struct vb_bench_opts *opts,
                          int64_t *wrong_p)
{
    struct bench b = {
        .group = group, .opts = opts, .rank = vb_group_rank(group), .world = vb_group_world(group)};
    vb_status st = run(&b);

    *wrong_p = b.rank == 0 ? b.wrong : 0;
    return st;
}
