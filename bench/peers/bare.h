/* SPDX-License-Identifier: MIT
 *
 * What the two bare allreduces share: the ranks are processes of one program, their data lies in
 * one shared mapping.
 */
#ifndef VB_BENCH_PEERS_BARE_H
#define VB_BENCH_PEERS_BARE_H

#include "base/base.h"
#include "bench/peers/peer.h"

#include <sched.h>
#include <stdatomic.h>

#define BARE_RANKS_MAX 8
#define BARE_SLOT_BYTES 1024 /* of the largest vector that goes through slots, shm */
#define BARE_SAMPLES 512

/* What a rank shows to the others. */
struct bare_slot {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t seq;
    float payload[BARE_SLOT_BYTES / sizeof(float)]; /* the first ones in the line of seq */
};

struct bare_rank {
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t at; /* how many meetings it has come to */
    struct bare_slot slots[2];                   /* taken in turn */
    double samples[BARE_SAMPLES];
};

struct bare {
    struct peer peer; /* first */
    bool crowded;     /* more ranks than cpus: give way while waiting */
    struct bare_rank *shared[BARE_RANKS_MAX];
    float *data[BARE_RANKS_MAX];
    uint32_t meetings, seq;
    int fds[BARE_RANKS_MAX]; /* tcp: to each other rank */
    char *scratch[BARE_RANKS_MAX];
};

static inline void bare_relax(const struct bare *b)
{
    if (b->crowded)
        sched_yield();
}

/* The share of rank r: elements from first on. */
static inline size_t bare_share(const struct bare *b, size_t n, int r, size_t *first_p)
{
    size_t first = n * (size_t)r / (size_t)b->peer.ranks / 16 * 16; /* whole cache lines */
    size_t end = n * ((size_t)r + 1) / (size_t)b->peer.ranks / 16 * 16;

    *first_p = first;
    return (r == b->peer.ranks - 1 ? n : end) - first;
}

/* One mapping: what the ranks show each other, then the data of each. Before the ranks are
 * processes; it is never unmapped. */
vb_status bare_map(struct bare *b, size_t largest);

/* All ranks are here, and see what the others wrote before. */
void bare_meet(struct bare *b);

void bare_shm_allreduce(struct peer *p, size_t n_elems);
void bare_tcp_allreduce(struct peer *p, size_t n_elems);

/* Before the ranks are processes: a connection for each pair, fds[i][j] the end of i. */
vb_status bare_tcp_connect(int ranks, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX]);
vb_status bare_tcp_open(struct bare *b, int fds[BARE_RANKS_MAX][BARE_RANKS_MAX]);

#endif
