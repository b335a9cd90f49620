/* SPDX-License-Identifier: MIT
 *
 * Sparse allreduce: sums lists of (index, value) over all ranks. The result has every index that at
 * least one rank has. The value of an index is ((g0 + g1) + g2) + ... over the ranks that have this
 * index, in rank order. The time grows with the lengths of the lists and not with the number of
 * features, unless the dense path is faster.
 *
 * The bits are the same on all ranks, transports and paths. For that reason -0.0 counts as +0.0,
 * and every NaN in the result is the same NaN.
 */
#ifndef VB_NET_SPARSE_SPARSE_H
#define VB_NET_SPARSE_SPARSE_H

#include "net/coll/coll.h"

enum vb_sparse_path { VB_SPARSE_AUTO, VB_SPARSE_SPARSE, VB_SPARSE_DENSE };

struct vb_sparse_opts {
    uint64_t features;        /* indices are below this number; 1 to 2^32, the same on all ranks */
    size_t max_nnz;           /* maximum length of this rank's lists, duplicates included */
    enum vb_sparse_path path; /* VB_SPARSE_AUTO: the cost model chooses for every call */
};

/* The context of sparse allreduces. All ranks open and close it together. The context has a window
 * with about 16 bytes for each element that all ranks together may have (the sum of max_nnz), and
 * as much other memory. The dense path needs another window of 4 bytes for each feature, which is
 * created when this path is first used. In an elastic group it is created at once if path is DENSE,
 * or if path is AUTO and it has at most 64 MiB; AUTO never takes the dense path without it. */
struct vb_sparse;
vb_status vb_sparse_open(struct vb_group *group, const struct vb_sparse_opts *opts,
                         struct vb_sparse **sparse_p);
void vb_sparse_close(struct vb_sparse *sparse);

/* Sorts a list of *n_p elements by index and adds up duplicates in the order in which they appear.
 * *n_p becomes the new length. Other ranks do not take part in this call. */
vb_status vb_sparse_merge(struct vb_sparse *sparse, uint32_t *index, float *value, size_t *n_p);

/* Sums a list over all ranks. All ranks call this together. The input is a list in ascending order
 * in which each index occurs once. The output is the sum in the same form. It is the same on all
 * ranks, and valid until the next call. The mean is the sum divided by the number of ranks. If a
 * list is not in order, has an index that is not below the number of features or is too long, the
 * call fails on all ranks, and all ranks may continue with the next call. If a rank of an elastic
 * group is gone, the call fails with VB_ERR_PEER on all ranks that have not got the sum, until the
 * others have regrouped (vb_group_regroup()). After any other failure the context can only be
 * closed. */
vb_status vb_sparse_allreduce(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                              size_t n, enum vb_reduce how, const uint32_t **index_p,
                              const float **value_p, size_t *n_p);

/* The two halves of vb_sparse_allreduce(), so that the caller can do other work in between.
 * vb_sparse_start() reads the list and sends the data that other ranks wait for. After a successful
 * start the caller must call vb_sparse_finish(). */
vb_status vb_sparse_start(struct vb_sparse *sparse, const uint32_t *index, const float *value,
                          size_t n, enum vb_reduce how);
vb_status vb_sparse_finish(struct vb_sparse *sparse, const uint32_t **index_p,
                           const float **value_p, size_t *n_p);

/* Return the path that the last call used, and the time that the cost model predicts for a path
 * with the lists of the last call. */
enum vb_sparse_path vb_sparse_took(const struct vb_sparse *sparse);
double vb_sparse_predict_us(const struct vb_sparse *sparse, enum vb_sparse_path path);

/* What rank 0 has measured when the context was opened. */
struct vb_coll_link vb_sparse_link(const struct vb_sparse *sparse);

/* Returns the number of payload bytes that this rank has put to peers since the context was opened.
 * On mapped windows, this includes the bytes that this rank has read from the memory of peers. */
uint64_t vb_sparse_wire_bytes(const struct vb_sparse *sparse);

#endif
