/* SPDX-License-Identifier: MIT
 *
 * What the peers of bench/compare allreduce share: the same sizes, the same check and the same way
 * to take the time, for whatever does the allreduce. Stands alone, so that the compilers of MPI
 * can build it.
 */
#ifndef VB_BENCH_PEERS_PEER_H
#define VB_BENCH_PEERS_PEER_H

#include <stddef.h>

/* One rank of a peer. All functions are called by all ranks. */
struct peer {
    const char *name;      /* "openmpi" */
    const char *transport; /* "shm", "tcp" */
    int rank, ranks;
    float *data;                                       /* as large as the largest size */
    void (*allreduce)(struct peer *p, size_t n_elems); /* sums data in place */
    void (*barrier)(struct peer *p);
    void (*max)(struct peer *p, double *values, int n); /* over the ranks, at rank 0 */
};

#define PEER_SIZES_MAX 32

struct peer_args {
    size_t sizes[PEER_SIZES_MAX]; /* bytes */
    int n_sizes;
    size_t largest;
    double seconds; /* of each size */
};

/* "4,64K,1M" and seconds, as text. 0: fine; 2 after one line about what is wrong. */
int peer_parse(const char *sizes, const char *seconds, struct peer_args *args);

/* Measures all sizes; rank 0 prints a line each. Returns the exit code: 1 if a sum was wrong. */
int peer_measure(struct peer *p, const struct peer_args *args);

/* Memory that is there, as programs have it; on huge pages where the environment has PEER_HUGE.
 * NULL: none. Never freed. */
float *peer_alloc(size_t bytes);

#endif
