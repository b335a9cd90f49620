/* SPDX-License-Identifier: MIT
 *
 * What the benches share.
 */
#ifndef VB_BENCH_PRIV_H
#define VB_BENCH_PRIV_H

#include "bench/bench.h"

/* A line of a collective. Negative numbers are not known. */
struct bench_coll_line {
    const char *bench; /* "allreduce", "sparse-allreduce" */
    const char *transport;
    int ranks;
    size_t bytes;
    int64_t nnz, features; /* sparse only: entries of rank 0 after merging */
    const char *algo, *order, *wire;
    int in_flight;
    double p50_us, p99_us; /* of the slowest rank */
    double merge_us;       /* sparse only: sorting and merging one list, before */
    double predicted_us;
    bool chosen;        /* the model takes this one */
    int64_t wire_bytes; /* that the busiest rank sent, in one operation */
    int64_t wrong;
};

void bench_coll_head(const struct vb_bench_opts *opts, const struct bench_coll_line *line);
void bench_coll_print(const struct vb_bench_opts *opts, const struct bench_coll_line *line);

/* Collective: runs op on all ranks, in batches with a barrier before each, for about that long. A
 * batch is long enough for clock and barrier not to matter; its time is its slowest rank's, over
 * the operations in it. Results on rank 0. The peers in bench/peers/ are timed the same way. */
typedef vb_status (*bench_op_fn)(void *arg);
vb_status bench_slowest(struct vb_group *group, double seconds, bench_op_fn op, void *arg,
                        double *p50_us_p, double *p99_us_p);

/* Collective: the largest and the sum of a number of each rank. */
vb_status bench_over_ranks(struct vb_group *group, int64_t value, int64_t *max_p, int64_t *sum_p);

/* Large enough for every size, in whole pages. */
size_t bench_largest(const struct vb_bench_opts *opts);

#endif
