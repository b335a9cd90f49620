/* SPDX-License-Identifier: MIT
 *
 * Sparse allreduce: sums lists of (index, value) over all ranks. The result has every index that
 * some rank has. Its value is ((g0 + g1) + g2) + ... over the ranks that have it, in rank order.
 * The time grows with the lengths of the lists and not with the number of features, unless the
 * dense path is cheaper.
 *
 * The bits are the same on all ranks, transports and paths. For that reason -0.0 counts as +0.0,
 * and every NaN in the result is the same NaN.
 */
#ifndef VB_NET_SPARSE_SPARSE_H
#define VB_NET_SPARSE_SPARSE_H

#include "net/coll/coll.h"

enum vb_sparse_path { VB_SPARSE_AUTO, VB_SPARSE_SPARSE, VB_SPARSE_DENSE };

struct vb_sparse_opts {
    uint64_t features;        /* indices are below this; 1 to 2^32, the same on all ranks */
    size_t max_nnz;           /* the longest list of this rank, duplicates included */
    enum vb_sparse_path path; /* VB_SPARSE_AUTO: the cost model chooses for every call */
};

/* A context. All ranks open and close it together. It has a window of about 16 bytes for each
 * element of max_nnz of all ranks, and as much memory of its own. The dense path needs another
 * window of 4 bytes per feature, which is created when that path is first taken. */
struct vb_sparse;
vb_status vb_sparse_open(struct vb_group *group, const struct vb_sparse_opts *opts,
                         struct vb_sparse **sparse_p);
void vb_sparse_close(struct vb_sparse *sparse);

/* Sorts a list of *n_p elements by index and adds up duplicates in the order in which they appear.
 * *n_p becomes the new length. Other ranks take no part in it. */
vb_status vb_sparse_merge(struct vb_sparse *sparse, uint32_t *index, float *value, size_t *n_p);

/* Called by all ranks. The input is a list in ascending order with each index once. The output is
 * the sum in the same form, equal on all ranks; it is valid until the next call. The mean is the
 * sum divided once by the number of ranks. If a list is not in order, has an index beyond the
 * features or is too long, the call fails on all ranks, and all may continue with the next call.
 * After any other failure the context can only be closed. */
vb_status vb_sparse_allreduce(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                              size_t n, enum vb_reduce how, const uint32_t **index_p,
                              const float **value_p, size_t *n_p);

/* The same in two halves, so that the caller can do other work in between. The first half reads the
 * list and sends what other ranks wait for. A successful start must be followed by a finish. */
vb_status vb_sparse_start(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                          size_t n, enum vb_reduce how);
vb_status vb_sparse_finish(struct vb_sparse *sparse, const uint32_t **index_p,
                           const float **value_p, size_t *n_p);

/* The path that the last call took, and the predicted time of both paths for its lists. */
enum vb_sparse_path vb_sparse_took(const struct vb_sparse *sparse);
double vb_sparse_predict_us(const struct vb_sparse *sparse, enum vb_sparse_path path);

/* Returns the bytes of payload that this rank has put to peers since open. On mapped windows: the
 * bytes it has read from the memory of peers. */
uint64_t vb_sparse_wire_bytes(const struct vb_sparse *sparse);

#endif
