/* SPDX-License-Identifier: MIT
 *
 * Counts the bytes that the transports of a rank have moved. The thread that holds the group's lock
 * counts; any other thread may read at any time. Counting is an addition to memory that no other
 * core writes, so that it costs nothing on the hot path.
 */
#ifndef VB_NET_TRAFFIC_H
#define VB_NET_TRAFFIC_H

#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>

/* One thread at a time writes. */
struct vb_flow {
    _Atomic uint64_t sent, received;
};

/* A connection that counts in memory of its own, some of which the peer writes: a rank cannot see
 * how much a peer has written to its memory or read from it. */
struct vb_traffic_link {
    struct vb_traffic_link *next;
    const struct vb_flow *ours;   /* written by this rank; NULL: none */
    const struct vb_flow *theirs; /* written by the peer, from its point of view */
};

struct vb_traffic {
    struct vb_flow flow;  /* of transports that count here */
    pthread_mutex_t lock; /* guards what follows; never taken on the hot path */
    struct vb_traffic_link *links;
    uint64_t sent, received; /* by links that were removed */
};

void vb_traffic_init(struct vb_traffic *traffic);
void vb_traffic_fini(struct vb_traffic *traffic);

/* traffic may be NULL: nobody counts. The link stays valid until it is removed; removing one that
 * was not added does nothing. */
void vb_traffic_add(struct vb_traffic *traffic, struct vb_traffic_link *link);
void vb_traffic_remove(struct vb_traffic *traffic, struct vb_traffic_link *link);

/* Any thread. */
void vb_traffic_read(struct vb_traffic *traffic, uint64_t *sent_p, uint64_t *received_p);

static inline void vb_flow_add(_Atomic uint64_t *count, uint64_t bytes)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

static inline void vb_traffic_sent(struct vb_traffic *traffic, uint64_t bytes)
{
    if (traffic != NULL)
        vb_flow_add(&traffic->flow.sent, bytes);
}

static inline void vb_traffic_received(struct vb_traffic *traffic, uint64_t bytes)
{
    if (traffic != NULL)
        vb_flow_add(&traffic->flow.received, bytes);
}

#endif
