/* SPDX-License-Identifier: MIT
 *
 * Shared by the peers of bench/compare allreduce: the same sizes, the same check and the same way
 * to measure, for any implementation of allreduce. It includes nothing of ours, so that the
 * compilers of MPI can build it.
 */
#ifndef VB_BENCH_PEERS_PEER_H
#define VB_BENCH_PEERS_PEER_H

#include <stddef.h>

/* One rank of a peer. All ranks call each function. */
struct peer {
    const char *name;      /* such as "openmpi" */
    const char *transport; /* "shm" or "tcp" */
    int rank, ranks;
    float *data;                                       /* as large as the largest size */
    void (*allreduce)(struct peer *p, size_t n_elems); /* sums data in place */
    void (*barrier)(struct peer *p);
    void (*max)(struct peer *p, double *values, int n); /* over the ranks, to rank 0 */
};

#define PEER_SIZES_MAX 32

struct peer_args {
    size_t sizes[PEER_SIZES_MAX]; /* in bytes */
    int n_sizes;
    size_t largest;
    double seconds; /* for each size */
};

/* Parses a list such as "4,64K,1M", and the seconds. Returns 0, or 2 after printing a line that
 * says what is wrong. */
int peer_parse(const char *sizes, const char *seconds, struct peer_args *args);

/* Measures all sizes. Rank 0 prints a line for each. Returns the exit code, which is 1 if a sum was
 * wrong. */
int peer_measure(struct peer *p, const struct peer_args *args);

/* Allocates memory as ordinary programs do, with its pages present; on huge pages if the
 * environment variable PEER_HUGE is set. Returns NULL on failure. It is never freed. */
float *peer_alloc(size_t bytes);

#endif
