/* SPDX-License-Identifier: MIT
 *
 * Collectives on a window: allreduce of float32 and related operations, on memory that has the same
 * length on all ranks. A caller starts a request, then waits for it; many requests may be under
 * way. docs/collectives.md explains how they work.
 *
 * Training uses allreduce and barrier. Reduce-scatter, allgather and broadcast complete the library
 * for other programs.
 */
#ifndef VB_NET_COLL_COLL_H
#define VB_NET_COLL_COLL_H

#include "net/group/group.h"

/* RANK: each element of a sum is ((g0 + g1) + g2) + ..., in rank order. The bits do not depend on
 * algorithm, transport, bucket size or order of arrival. ANY: algorithms that sum in another order
 * are allowed, too. All ranks still end with the same bits. */
enum vb_order { VB_ORDER_RANK, VB_ORDER_ANY };

enum vb_algo {
    VB_ALGO_AUTO,      /* the cost model chooses */
    VB_ALGO_MAPPED,    /* one host: ranks read and write each other's windows */
    VB_ALGO_GATHER,    /* every rank sends everything to every other; each sums */
    VB_ALGO_EXCHANGE,  /* rank c collects share c from all, sums it, sends the result to all */
    VB_ALGO_OWNER,     /* one rank, in turn, sums the whole vector: for many requests at a time */
    VB_ALGO_CHAIN,     /* each host has a leader; the partial sum goes from host to host */
    VB_ALGO_RING,      /* this one and those below: VB_ORDER_ANY only */
    VB_ALGO_HALVING,   /* recursive halving, then doubling */
    VB_ALGO_TWO_LEVEL, /* each host has a leader; the leaders exchange shares */
    VB_ALGOS
};

/* BF16: each rank rounds its contribution to bfloat16 before sending. Sums are computed in float32
 * and the result is rounded once. All ranks end with the same bits, and half the bytes travel. */
enum vb_wire { VB_WIRE_F32, VB_WIRE_BF16 };
enum vb_reduce { VB_REDUCE_SUM, VB_REDUCE_MEAN }; /* mean: the sum, times 1.0f / world */

struct vb_coll_opts { /* the same on all ranks */
    enum vb_order order;
    enum vb_algo algo; /* the algorithm of every allreduce; one that is not possible is an error */
    enum vb_wire wire;
    int in_flight; /* maximum number of requests under way; 0: 32 */
};

/* Collective: creates a window of len_bytes of data on every rank (the same length on all), and the
 * message slots of the algorithms behind it. Measures the links, which takes milliseconds. Rank 0
 * chooses the algorithms for all. opts NULL: rank order, chosen by the model, float32. */
struct vb_coll;
vb_status vb_coll_open(struct vb_group *group, size_t len_bytes, const struct vb_coll_opts *opts,
                       struct vb_coll **coll_p);

/* Collective. Called when no request is under way, or after a failure. */
void vb_coll_close(struct vb_coll *coll);

/* Returns this rank's data: page-aligned, and zero at the start. */
void *vb_coll_data(struct vb_coll *coll);

/* Returns a rank's data as plain memory that can be read and written, or NULL if the transport does
 * not map it. */
void *vb_coll_data_of(const struct vb_coll *coll, int rank);

/* One request under way. The caller provides the memory, with any contents, and keeps it until it
 * has waited for the request. */
struct vb_req {
    uint32_t seq;     /* number of the request in its vb_coll, from 1 */
    bool done;        /* used by net/, like the fields below: call vb_test() instead */
    vb_status status; /* valid once done */
    struct vb_coll *coll;
};

/* The functions below start a request. All ranks start the same requests in the same order. Offsets
 * are multiples of 4. The range belongs to net/ until the caller has waited for the request; the
 * ranges of requests under way must not overlap. A start that fails has started nothing; vb_wait()
 * reports later failures. Without a progress thread, a small request that is started while others
 * are under way may not be sent before the caller waits or tests. */
vb_status vb_allreduce_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                             enum vb_reduce how, struct vb_req *req);

/* Rank c ends with share c of the sum, at its place in the range (vb_coll_share()). The rest of the
 * range is then undefined. */
vb_status vb_reduce_scatter_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                                  enum vb_reduce how, struct vb_req *req);

/* Copies the bytes of each rank r, lens_bytes[r] of them at offsets_bytes[r], to the same place on
 * all ranks. Both arrays have world elements, are the same on all ranks, and are read before the
 * call returns. */
vb_status vb_allgather_start(struct vb_coll *coll, const size_t *offsets_bytes,
                             const size_t *lens_bytes, struct vb_req *req);
vb_status vb_broadcast_start(struct vb_coll *coll, int root, size_t offset_bytes, size_t len_bytes,
                             struct vb_req *req);
vb_status vb_barrier_start(struct vb_coll *coll, struct vb_req *req);

/* Waits for at most the group's timeout. A failure is logged with rank, request and sequence
 * number. After a failure the vb_coll can only be closed. */
vb_status vb_wait(struct vb_coll *coll, struct vb_req *req);

/* Makes progress on all requests, without waiting, and tells whether this one is done. */
vb_status vb_test(struct vb_coll *coll, struct vb_req *req, bool *done_p);

/* Computes the share of a rank in a vector: its first element and its number of elements. */
void vb_coll_share(size_t n_elems, int world, int rank, size_t *first_p, size_t *n_p);

const char *vb_algo_str(enum vb_algo algo); /* "mapped" ... */
bool vb_algo_parse(const char *text, enum vb_algo *algo_p);

/* Returns the algorithm that an allreduce of this size takes, alone or as one of many at a time. */
enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes);
enum vb_algo vb_coll_algo_many(const struct vb_coll *coll, size_t bytes);

/* Whether an algorithm is possible on these ranks and in this order of summing. */
bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo);
double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes);

/* Returns the bytes of payload that this rank has put to peers since the vb_coll was opened. On
 * mapped windows: the bytes it has read from the memory of peers. */
uint64_t vb_coll_wire_bytes(const struct vb_coll *coll);

#endif
