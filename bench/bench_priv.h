/* SPDX-License-Identifier: MIT
 *
 * Declarations that the benches share.
 */
#ifndef VB_BENCH_BENCH_PRIV_H
#define VB_BENCH_BENCH_PRIV_H

#include "bench/bench.h"

/* One line about a collective. A negative number means that the value is unknown. */
struct bench_coll_line {
    const char *bench; /* "allreduce" or "sparse-allreduce" */
    const char *transport;
    int ranks;
    size_t bytes;
    int64_t nnz, features; /* sparse only: nnz is the number of entries of rank 0 after merging */
    const char *algo, *order, *wire;
    int in_flight;
    double p50_us, p99_us; /* times of the slowest rank */
    double merge_us;       /* sparse only: time to sort and merge one list before the operation */
    double predicted_us;
    bool chosen;        /* the cost model chooses this algorithm */
    int64_t wire_bytes; /* number of bytes that the busiest rank sends in one operation */
    int64_t wrong;
};

void bench_coll_head(const struct vb_bench_opts *opts, const struct bench_coll_line *line);
void bench_coll_print(const struct vb_bench_opts *opts, const struct bench_coll_line *line);

/* Collective. Runs op on all ranks for about `seconds`, in batches with a barrier before each, so
 * long that the cost of clock and barrier does not matter. The time of an operation is the batch's
 * time on its slowest rank, divided by its length. Rank 0 gets the results. */
typedef vb_status (*bench_op_fn)(void *arg);
vb_status bench_slowest(struct vb_group *group, double seconds, bench_op_fn op, void *arg,
                        double *p50_us_p, double *p99_us_p);

/* Collective: computes the maximum and the sum of one number per rank. */
vb_status bench_over_ranks(struct vb_group *group, int64_t value, int64_t *max_p, int64_t *sum_p);

/* Returns the largest requested size, rounded up to whole pages. */
size_t bench_largest(const struct vb_bench_opts *opts);

#endif
