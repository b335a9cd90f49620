/* SPDX-License-Identifier: MIT
 *
 * What the peers of bench/compare allreduce share: sizes, check and way to measure. Includes no
 * header of the engine, so that the compilers of MPI can build it.
 */
#ifndef VB_BENCH_PEERS_PEER_H
#define VB_BENCH_PEERS_PEER_H

#include <stddef.h>

/* One rank of a peer. All ranks call each function. */
struct peer {
    const char *name;      /* name of the implementation, such as "openmpi" */
    const char *transport; /* "shm" or "tcp" */
    int rank, ranks;
    float *data;                                       /* buffer for the largest size */
    void (*allreduce)(struct peer *p, size_t n_elems); /* sums data in place */
    void (*barrier)(struct peer *p);
    void (*max)(struct peer *p, double *values, int n); /* maximum over ranks, on rank 0 */
};

#define PEER_SIZES_MAX 32

struct peer_args {
    size_t sizes[PEER_SIZES_MAX]; /* sizes in bytes */
    int n_sizes;
    size_t largest;
    double seconds; /* duration of the measurement of each size */
};

/* Parses a list such as "4,64K,1M", and the seconds. Returns 0, or 2 after one line on stderr. */
int peer_parse(const char *sizes, const char *seconds, struct peer_args *args);

/* Measures all sizes; rank 0 prints them. Returns the exit code, 1 if a sum was wrong. */
int peer_measure(struct peer *p, const struct peer_args *args);

/* Allocates memory as ordinary programs do, on huge pages if the environment has PEER_HUGE, and
 * touches all pages. Never freed. Returns NULL on failure. */
float *peer_alloc(size_t bytes);

#endif
