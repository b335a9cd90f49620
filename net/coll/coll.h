/* SPDX-License-Identifier: MIT
 *
 * Collectives on a window: allreduce of float32 and related operations, on memory that has the same
 * length on all ranks. A caller starts a request, then waits until the request is done. Many
 * requests may be under way at the same time. docs/collectives.md explains how collectives work.
 */
#ifndef VB_NET_COLL_COLL_H
#define VB_NET_COLL_COLL_H

#include "net/group/group.h"

/* The order in which sums add the contributions of the ranks. RANK: each element of a sum is ((g0 +
 * g1) + g2) + ..., in rank order. The bits do not depend on algorithm, transport, bucket size or
 * order of arrival. ANY: algorithms that sum in another order are allowed, too. In both cases all
 * ranks get the same bits. */
enum vb_order { VB_ORDER_RANK, VB_ORDER_ANY };

enum vb_algo {
    VB_ALGO_AUTO,      /* the cost model chooses */
    VB_ALGO_MAPPED,    /* one host: ranks read and write each other's windows */
    VB_ALGO_GATHER,    /* every rank sends its vector to all others, and every rank sums */
    VB_ALGO_EXCHANGE,  /* rank c collects share c from all ranks, sums it, sends the sum to all */
    VB_ALGO_OWNER,     /* one rank sums the whole vector, another rank for each request */
    VB_ALGO_CHAIN,     /* each host has a leader, and the partial sum goes from leader to leader */
    VB_ALGO_RING,      /* this algorithm and those below need VB_ORDER_ANY */
    VB_ALGO_HALVING,   /* recursive halving, then doubling */
    VB_ALGO_TWO_LEVEL, /* each host has a leader, and the leaders exchange shares */
    VB_ALGOS
};

/* The number format in which vectors are sent. BF16: each rank rounds its contribution to bfloat16,
 * sums are computed in float32, and the result is rounded once. All ranks get the same bits, and
 * only half as many bytes are sent. */
enum vb_wire { VB_WIRE_F32, VB_WIRE_BF16 };
enum vb_reduce { VB_REDUCE_SUM, VB_REDUCE_MEAN }; /* a mean is the sum multiplied by 1.0f / world */

struct vb_coll_opts { /* must be the same on all ranks */
    enum vb_order order;
    enum vb_algo algo; /* for every allreduce; an algorithm that is not possible is an error */
    enum vb_wire wire;
    int in_flight; /* maximum number of requests under way; 0: 32 */
};

/* All ranks call this together. Creates a window that has len_bytes of data on every rank, and
 * behind the data the message slots of the algorithms. len_bytes is the same on all ranks. Measures
 * the links, which takes milliseconds. Rank 0 chooses the algorithms for all ranks. If opts is
 * NULL, sums are in rank order and float32, and the cost model chooses the algorithms. */
struct vb_coll;
vb_status vb_coll_open(struct vb_group *group, size_t len_bytes, const struct vb_coll_opts *opts,
                       struct vb_coll **coll_p);

/* Returns the length of the window that vb_coll_open() creates on every rank. */
size_t vb_coll_need(int world, size_t len_bytes, const struct vb_coll_opts *opts);

/* All ranks call this together, when no request is under way or after a failure. */
void vb_coll_close(struct vb_coll *coll);

/* Returns the data of this rank. The data is page-aligned, and zero at the start. */
void *vb_coll_data(struct vb_coll *coll);

/* Returns a rank's data as plain memory that can be read and written, or NULL if the transport does
 * not map it. */
void *vb_coll_data_of(const struct vb_coll *coll, int rank);

/* One request under way. The caller provides the memory, which may have any contents, and keeps the
 * memory until vb_wait() has returned. */
struct vb_req {
    uint32_t seq;     /* number of the request in its vb_coll, from 1 */
    bool done;        /* this field and those below are for net/; callers use vb_test() */
    vb_status status; /* valid once done */
    struct vb_coll *coll;
};

/* The functions below start a request. All ranks start the same requests in the same order. Offsets
 * are multiples of 4. The caller must not touch the range until it has waited for the request, and
 * the ranges of requests under way must not overlap. A function that fails has started nothing;
 * vb_wait() reports later failures. Without a progress thread, a small request that is started
 * while others are under way is perhaps not sent before the caller calls vb_wait() or vb_test(). */
vb_status vb_allreduce_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                             enum vb_reduce how, struct vb_req *req);

/* Rank c gets share c of the sum, at the place of this share in the range (vb_coll_share()). The
 * rest of the range is undefined afterwards. */
vb_status vb_reduce_scatter_start(struct vb_coll *coll, size_t offset_bytes, size_t n_elems,
                                  enum vb_reduce how, struct vb_req *req);

/* For each rank r, copies lens_bytes[r] bytes at offsets_bytes[r] of rank r's data to the same
 * place on all other ranks. Both arrays have world elements and are the same on all ranks. The
 * caller may free them when the call returns. */
vb_status vb_allgather_start(struct vb_coll *coll, const size_t *offsets_bytes,
                             const size_t *lens_bytes, struct vb_req *req);
vb_status vb_broadcast_start(struct vb_coll *coll, int root, size_t offset_bytes, size_t len_bytes,
                             struct vb_req *req);
vb_status vb_barrier_start(struct vb_coll *coll, struct vb_req *req);

/* Waits until a request is done, for at most the group's timeout. A failure is logged with the
 * rank, the kind of request and its number. After a failure the vb_coll can only be closed, except
 * if a rank of an elastic group is gone: then all requests under way fail with VB_ERR_PEER, the
 * group goes on, and the other ranks can regroup (vb_group_regroup()). From then on a rank in this
 * file is the place of a member in the view of the group. */
vb_status vb_wait(struct vb_coll *coll, struct vb_req *req);

/* Makes progress on all requests without waiting, and sets *done_p to whether req is done. */
vb_status vb_test(struct vb_coll *coll, struct vb_req *req, bool *done_p);

/* Computes the share of a rank in a vector of n_elems elements: the first element and the number of
 * elements of the share. */
void vb_coll_share(size_t n_elems, int world, int rank, size_t *first_p, size_t *n_p);

const char *vb_algo_str(enum vb_algo algo); /* "mapped" ... */
bool vb_algo_parse(const char *text, enum vb_algo *algo_p);

/* Returns the algorithm that an allreduce of this size uses, if it is the only request
 * (vb_coll_algo()) or one of many requests under way (vb_coll_algo_many()). */
enum vb_algo vb_coll_algo(const struct vb_coll *coll, size_t bytes);
enum vb_algo vb_coll_algo_many(const struct vb_coll *coll, size_t bytes);

/* Returns whether an algorithm is possible with these ranks and this order of summing. */
bool vb_coll_can(const struct vb_coll *coll, enum vb_algo algo);
double vb_coll_predict_us(const struct vb_coll *coll, enum vb_algo algo, size_t bytes);

/* How long the sums of a step take, as the cost model predicts it: with the algorithm that the
 * options name, and with the best one; VB_ALGO_AUTO: no single one is best for all requests. */
struct vb_coll_forecast {
    double us, best_us;
    enum vb_algo best;
};

/* bytes: of all requests; each: of a request, except for the last. */
struct vb_coll_forecast vb_coll_forecast(const struct vb_coll *coll, size_t bytes, size_t each);

/* What rank 0 has measured of the links when the collectives were opened. */
struct vb_coll_link {
    double latency_us; /* until a note has come; mapped windows: until a flag is seen */
    double gb_s;       /* of one link, or of memory; 0: not measured */
    double sum_gb_s;   /* summing vectors */
    bool mapped;
};

struct vb_coll_link vb_coll_link(const struct vb_coll *coll);

/* Returns the number of payload bytes that this rank has put to peers since the vb_coll was opened.
 * On mapped windows, returns the number of bytes that this rank has read from the memory of
 * peers. */
uint64_t vb_coll_wire_bytes(const struct vb_coll *coll);

#endif
