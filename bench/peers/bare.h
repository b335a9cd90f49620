/* SPDX-License-Identifier: MIT
 *
 * Declarations that the two bare allreduces share. The ranks are processes of one program, and
 * their data is in one shared mapping.
 */
#ifndef VB_BENCH_PEERS_BARE_H
#define VB_BENCH_PEERS_BARE_H

#include "base/base.h"
#include "bench/peers/peer.h"

#include <sched.h>
#include <stdatomic.h>

#define BARE_RANKS_MAX 8
#define BARE_SLOT_BYTES 1024 /* size of the largest vector that is sent through slots (shm) */
#define BARE_SAMPLES 512

/* Data that a rank publishes to the others. */
struct bare_slot {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t seq;
    float payload[BARE_SLOT_BYTES / sizeof(float)]; /* its beginning is in the cache line of seq */
};

struct bare_rank {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t at; /* number of barriers that this rank has reached */
    struct bare_slot slots[2];                   /* used alternately */
    double samples[BARE_SAMPLES];
};

struct bare {
    struct peer peer; /* must be the first member */
    bool crowded;     /* there are more ranks than cpus, so ranks yield while waiting */
    struct bare_rank *shared[BARE_RANKS_MAX];
    float *data[BARE_RANKS_MAX];
    uint32_t meetings, seq;
    int fds[BARE_RANKS_MAX]; /* tcp: connections to the other ranks */
    char *scratch[BARE_RANKS_MAX];
};

static inline void bare_relax(const struct bare *b)
{
    if (b->crowded)
        sched_yield();
}

static inline void bare_add(float *restrict sum, const float *restrict in, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        sum[i] += in[i];
}

/* Returns the number of elements in the share of rank r. *first_p: first element of the share. */
static inline size_t bare_share(const struct bare *b, size_t n, int r, size_t *first_p)
{
    size_t first = n * (size_t)r / (size_t)b->peer.ranks / 16 * 16; /* whole cache lines */
    size_t end = n * ((size_t)r + 1) / (size_t)b->peer.ranks / 16 * 16;

    *first_p = first;
    return (r == b->peer.ranks - 1 ? n : end) - first;
}

/* Maps the slots, then the data of all ranks, before they are forked. Never unmapped. */
vb_status bare_map(struct bare *b, size_t largest);

/* A barrier: afterwards every rank sees what the others wrote before it. */
void bare_meet(struct bare *b);

void bare_shm_allreduce(struct peer *p, size_t n_elems);
void bare_tcp_allreduce(struct peer *p, size_t n_elems);

/* Opens a connection between each two ranks. fds[i][j] is the end of rank i in its connection to
 * rank j. Called before the ranks are forked. */
vb_status bare_tcp_connect(int ranks, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX]);
vb_status bare_tcp_open(struct bare *b, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX]);

/* Pins the process to one of the cpus that it may use. Returns false if these are fewer than n. */
bool bare_pin(int which, int n);

/* Connects two TCP sockets, over loopback or, if via is not NULL, in two namespaces. */
vb_status bare_tcp_pair(char *const *via, int fds[2]);

#endif
