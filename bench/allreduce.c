/* SPDX-License-Identifier: MIT
 *
 * bench allreduce: sums float32 vectors in place, with each requested algorithm.
 *
 * Every size is verified, timed and verified again; timed on zeros, because sums of sums would
 * grow to infinity. One coll, which chooses its algorithms itself, gives the predictions. Each
 * algorithm is measured in another coll that uses only this algorithm.
 */
#include "bench/bench_priv.h"

#include <stdlib.h>
#include <string.h>

/* The predictions of the cost model for all sizes. */
struct model {
    bool can[VB_ALGOS];
    enum vb_algo chosen[VB_BENCH_SIZES_MAX];
    double us[VB_ALGOS][VB_BENCH_SIZES_MAX];
};

struct bench {
    struct vb_group *group;
    const struct vb_bench_opts *opts;
    int rank, world;
    struct model model;
    struct vb_coll *coll;
    size_t n_elems; /* number of elements of the current size */
    struct vb_req *reqs;
    int64_t wrong;
};

/* Makes an allreduce of the current size, divided into as many operations as are in flight. */
static vb_status reduce(void *arg)
{
    struct bench *b = arg;
    vb_status st = VB_OK;
    size_t first, n;
    int i, started;

    for (started = 0; started < b->opts->in_flight && st == VB_OK; started++) {
        vb_coll_share(b->n_elems, b->opts->in_flight, started, &first, &n);
        st =
            vb_allreduce_start(b->coll, first * sizeof(float), n, VB_REDUCE_SUM, &b->reqs[started]);
    }
    for (i = 0; i < started && st == VB_OK; i++)
        st = vb_wait(b->coll, &b->reqs[i]);
    return st;
}

/* Returns a small integer: sums are exact in any order, up to 256 in bfloat16, too. */
static float value(size_t i, int rank, int world)
{
    size_t most = 31;

    while (most > 1 && most * (size_t)world > 256)
        most >>= 1;
    return rank < 256 ? (float)(((i ^ i >> 11) + (size_t)rank * 13) & most) : 0;
}

static int64_t count_wrong(const struct bench *b, const float *data)
{
    int64_t wrong = 0;
    float sum;
    size_t i;
    int r;

    for (i = 0; i < b->n_elems; i++) {
        for (sum = 0, r = 0; r < b->world; r++)
            sum += value(i, r, b->world);
        wrong += data[i] != sum;
    }
    return wrong;
}

static vb_status verify(struct bench *b, int64_t *wrong_p, int64_t *wire_p)
{
    uint64_t before = vb_coll_wire_bytes(b->coll);
    float *data = vb_coll_data(b->coll);
    int64_t most, total;
    vb_status st;
    size_t i;

    for (i = 0; i < b->n_elems; i++)
        data[i] = value(i, b->rank, b->world);
    st = reduce(b);
    if (st != VB_OK)
        return st;
    st = bench_over_ranks(b->group, count_wrong(b, data), &most, &total);
    *wrong_p += total;
    memset(data, 0, b->n_elems * sizeof(float));
    if (st == VB_OK)
        st = bench_over_ranks(b->group, (int64_t)(vb_coll_wire_bytes(b->coll) - before), wire_p,
                              &total);
    return st;
}

static void describe(const struct bench *b, struct bench_coll_line *line)
{
    memset(line, 0, sizeof(*line));
    line->bench = "allreduce";
    line->transport = b->world > 1 ? vb_group_transports(b->group) : "self";
    line->ranks = b->world;
    line->order = b->opts->order == VB_ORDER_ANY ? "any" : "rank";
    line->wire = b->opts->wire == VB_WIRE_BF16 ? "bf16" : "f32";
    line->in_flight = b->opts->in_flight;
    line->nnz = -1;
    line->predicted_us = -1;
}

/* The size of one operation, which decides the algorithm if several are in flight. */
static size_t op_bytes(const struct bench *b, int size)
{
    return b->opts->sizes[size] / (size_t)b->opts->in_flight;
}

/* Returns the algorithm in use: the requested algorithm may be for larger vectors only. */
static enum vb_algo algo_of(const struct bench *b, int size)
{
    size_t bytes = op_bytes(b, size);

    return b->opts->in_flight > b->world ? vb_coll_algo_many(b->coll, bytes)
                                         : vb_coll_algo(b->coll, bytes);
}

static vb_status one_line(struct bench *b, int size)
{
    enum vb_algo algo = algo_of(b, size);
    size_t bytes = b->opts->sizes[size];
    struct bench_coll_line line;
    vb_status st;

    describe(b, &line);
    line.bytes = bytes;
    b->n_elems = bytes / sizeof(float);
    line.algo = vb_algo_str(algo);
    if (b->opts->explain) {
        line.predicted_us = b->model.us[algo][size];
        line.chosen = b->model.chosen[size] == algo;
    }
    st = verify(b, &line.wrong, &line.wire_bytes);
    if (st == VB_OK)
        st = bench_slowest(b->group, b->opts->seconds, reduce, b, &line.p50_us, &line.p99_us);
    if (st == VB_OK)
        st = verify(b, &line.wrong, &line.wire_bytes);
    if (st == VB_OK && b->rank == 0)
        bench_coll_print(b->opts, &line);
    b->wrong += line.wrong;
    return st;
}

static vb_status open_coll(struct bench *b, enum vb_algo algo)
{
    struct vb_coll_opts opts = {.order = b->opts->order,
                                .algo = algo,
                                .wire = b->opts->wire,
                                .in_flight = b->opts->in_flight};

    return vb_coll_open(b->group, bench_largest(b->opts), &opts, &b->coll);
}

static vb_status one_algo(struct bench *b, enum vb_algo algo)
{
    vb_status st = open_coll(b, algo);
    int i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < b->opts->n_sizes && st == VB_OK; i++)
        if (b->opts->n_algos > 0 || algo_of(b, i) == algo)
            st = one_line(b, i);
    vb_coll_close(b->coll);
    return st;
}

static vb_status ask_model(struct bench *b)
{
    vb_status st = open_coll(b, VB_ALGO_AUTO);
    int a, i;

    if (st != VB_OK)
        return st;
    for (i = 0; i < b->opts->n_sizes; i++)
        b->model.chosen[i] = vb_coll_algo(b->coll, op_bytes(b, i));
    for (a = VB_ALGO_AUTO + 1; a < VB_ALGOS; a++) {
        b->model.can[a] = vb_coll_can(b->coll, (enum vb_algo)a);
        for (i = 0; i < b->opts->n_sizes && b->model.can[a]; i++)
            b->model.us[a][i] = vb_coll_predict_us(b->coll, (enum vb_algo)a, b->opts->sizes[i]);
    }
    vb_coll_close(b->coll);
    return VB_OK;
}

static vb_status run(struct bench *b)
{
    const struct vb_bench_opts *o = b->opts;
    struct bench_coll_line about;
    vb_status st = VB_OK;
    int a;

    describe(b, &about);
    if (b->rank == 0)
        bench_coll_head(o, &about);
    if (o->explain || o->n_algos == 0)
        st = ask_model(b);
    for (a = 0; a < o->n_algos && st == VB_OK; a++)
        st = one_algo(b, o->algos[a]);
    for (a = VB_ALGO_AUTO + 1; a < VB_ALGOS && o->n_algos == 0 && st == VB_OK; a++)
        if (b->model.can[a])
            st = one_algo(b, (enum vb_algo)a);
    return st;
}

vb_status vb_bench_allreduce(struct vb_group *group, const struct vb_bench_opts *opts,
                             int64_t *wrong_p)
{
    struct bench *b = calloc(1, sizeof(*b));
    vb_status st = VB_OK;

    if (b == NULL)
        return vb_err_sys("calloc");
    b->group = group;
    b->opts = opts;
    b->rank = vb_group_rank(group);
    b->world = vb_group_world(group);
    b->reqs = calloc((size_t)opts->in_flight, sizeof(*b->reqs));
    if (b->reqs == NULL)
        st = vb_err_sys("calloc");
    if (st == VB_OK)
        st = run(b);
    *wrong_p = b->rank == 0 ? b->wrong : 0;
    free(b->reqs);
    free(b);
    return st;
}
