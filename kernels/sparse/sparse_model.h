/* SPDX-License-Identifier: MIT
 *
 * Sparse logistic regression: rows, gradients, weights, and updates in place by several workers.
 */
#ifndef VB_KERNELS_SPARSE_SPARSE_MODEL_H
#define VB_KERNELS_SPARSE_SPARSE_MODEL_H

#include "kernels/update/update.h"

/* ---- sparse rows ----------------------------------------------------------------------------- */

/* The rows of a batch, taken from a sparse matrix that the caller owns. An index may occur several
 * times in a row, in any order: its values are added. A row may be empty. */
struct vb_k_csr {
    size_t n;                           /* number of rows in the batch */
    const uint32_t *rows;               /* the numbers of the rows; NULL: 0 to n - 1 */
    size_t ahead;                       /* rows of the next batch, which follow; only prefetched */
    const uint64_t *offset;             /* (n_rows + 1): where each row begins in index and value */
    const uint32_t *index;              /* (nnz) */
    const float *value;                 /* (nnz); NULL: all values are 1 */
    const struct vb_k_csr_parts *parts; /* (n_rows), from vb_k_csr_group(); NULL: not grouped */
    size_t n_rows, nnz;                 /* size of the whole matrix */
};

/* Returns VB_ERR_INPUT, with a message that names row and index, if the batch refers to rows
 * outside the matrix or to a feature that is not below features. The kernels below do not check.
 * Data from outside must therefore be checked once. */
vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features);

/* logits (n) = rows * w + bias. NaN and infinity in weights and values propagate as in any sum. */
void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* w += scale * d * rows: each entry (row i, index k, value x) adds (scale * d[i]) * x to w[k], in
 * the order of the rows. With scale = -rate / n and the gradient of the logits: a step of SGD. */
void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w);

/* Sorts the entries of each row, in place, by the part of the features that they belong to. Threads
 * can then divide the features among themselves, forward and backward, without searching. On rows
 * that are not grouped, vb_k_csr_add() uses one thread. The part of a feature never changes, so
 * bits do not depend on the number of threads; but the order of a row's sum depends on whether it
 * was grouped. parts: (n_rows), preferably aligned to cache lines: each entry fills one. */
#define VB_K_CSR_PARTS 14

struct vb_k_csr_parts {
    uint64_t first;                /* first entry of the row */
    uint32_t ends[VB_K_CSR_PARTS]; /* end of each part, counted from first */
};

void vb_k_csr_group(const uint64_t *offset, size_t n_rows, uint32_t *index, float *value,
                    struct vb_k_csr_parts *parts);

/* Logistic loss: replaces n logits by the gradient of the loss with respect to them, and returns
 * the loss, summed over the samples. A label y is 0 or not 0. Large logits do not overflow. */
double vb_k_logistic(float *logits, const uint8_t *y, size_t n);
/* The same in double precision. */
double vb_k_logistic_ref(float *logits, const uint8_t *y, size_t n);

/* ---- gradients of sparse rows ---------------------------------------------------------------- */

/* Memory for the gradient of one batch at a time. Used by one thread at a time. */
struct vb_k_grad;
vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p);
void vb_k_grad_destroy(struct vb_k_grad *grad);

/* Builds the gradient from a checked batch and the gradient d (n) of its logits: keys in ascending
 * order, each once, with values added in the order of the rows. The list remains valid until the
 * next call. Returns VB_ERR_USAGE if the batch has more than max_nnz entries. */
vb_status vb_k_grad_build(struct vb_k_grad *grad, const struct vb_k_csr *m, const float *d,
                          const uint32_t **keys_p, const float **values_p, size_t *n_p);

/* ---- weights of a sparse model --------------------------------------------------------------- */

/* The weights and the state of their rule, on huge pages; both are 0 at first. An update is lazy: a
 * feature that a step does not name catches up when it is next read or named, as in a dense update.
 * Used by one thread at a time. VB_ERR_UNSUPPORTED: weight decay with adagrad or ftrl. */
struct vb_k_sparse;
vb_status vb_k_sparse_create(const struct vb_k_rule *rule, uint64_t features,
                             struct vb_k_sparse **sparse_p);
void vb_k_sparse_destroy(struct vb_k_sparse *sparse);

/* The same in memory of the caller, whose contents are kept: `features` weights, and
 * vb_k_sparse_words() words of state for each of them. NULL: the function allocates the memory. */
vb_status vb_k_sparse_create_at(const struct vb_k_rule *rule, uint64_t features, float *weights,
                                void *state, struct vb_k_sparse **sparse_p);
int vb_k_sparse_words(const struct vb_k_rule *rule);
/* Returns true if weights in memory may be out of date. */
bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule);

/* The weights in memory. With momentum or decay, each is that of the step that last named it. */
float *vb_k_sparse_weights(struct vb_k_sparse *sparse);

/* Reads the weights as they are after the last step. Changes nothing. */
void vb_k_sparse_read(const struct vb_k_sparse *sparse, uint64_t first, size_t n, float *w);
void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits);

/* Prefetches the weights that a forward pass of m will read. */
void vb_k_sparse_fetch(const struct vb_k_sparse *sparse, const struct vb_k_csr *m);

/* What an update of at most max_keys keys has overwritten. */
struct vb_k_undo;
vb_status vb_k_undo_create(size_t max_keys, struct vb_k_undo **undo_p);
void vb_k_undo_destroy(struct vb_k_undo *undo);

/* One step with the gradient scale * values at keys. Keys must be in ascending order, each once;
 * otherwise it returns VB_ERR_INPUT before it writes anything. undo is filled in, or NULL. Bits do
 * not depend on the number of threads. */
vb_status vb_k_sparse_update(struct vb_k_sparse *sparse, const uint32_t *keys, const float *values,
                             size_t n, float scale, float rate, struct vb_k_undo *undo);

/* Reverts the last update, which must have been given this undo. May be called once. */
void vb_k_sparse_undo(struct vb_k_sparse *sparse, const struct vb_k_undo *undo);

/* A sparse model's memory, to be saved and restored as it is. Call vb_k_sparse_settle() first. */
#define VB_K_SPARSE_PARTS 2

struct vb_k_sparse_part {
    const char *name;
    bool whole; /* the data are 32-bit words, not floats */
    size_t n;
    void *data;
};

int vb_k_sparse_parts(struct vb_k_sparse *sparse, struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS]);

/* Brings all features up to date, in all memory; automatic after 65,536 changes of the rate. Bits
 * of later steps depend on when it was done, so all ranks must do it at the same step. */
void vb_k_sparse_settle(struct vb_k_sparse *sparse);

/* ---- weights that others change at the same time --------------------------------------------- */

/* Several threads or processes read and update the same weights and state without a lock. A number
 * is never torn. Of two updates at the same time one may be lost, which SGD tolerates (Hogwild). */

void vb_k_shared_read(const float *from, size_t n, float *to);  /* from is shared memory */
void vb_k_shared_write(const float *from, size_t n, float *to); /* to is shared memory */

/* values (n) = w at keys. Prefetches ahead. Keys are not checked. */
void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values);

/* params_out and state_out must be the same memory as params and state. */
void vb_k_shared_update(const struct vb_k_rule *rule, const struct vb_k_update *update);

/* Applies the gradient scale * values at keys, each key once. Only for rules that are not lazy; the
 * state is that of vb_k_sparse_create_at(). Keys are not checked. */
void vb_k_shared_update_keys(const struct vb_k_rule *rule, float *w, float *state,
                             const uint32_t *keys, const float *values, size_t n, float scale,
                             float rate);

/* Computes the same as vb_k_csr_forward(), on one thread. The batch must have been checked. */
void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* One worker's copy of the *hot* weights: those of features that occur in nearly every batch. Other
 * workers change the shared weights at the same time; the copy belongs to this worker alone from
 * one exchange to the next (hot.c). It learns from the first batches which features are hot.
 * entries: the largest number of entries of a batch. hot may be NULL for the destroyer. */
struct vb_k_hot;

vb_status vb_k_hot_create(size_t entries, struct vb_k_hot **hot_p);
void vb_k_hot_destroy(struct vb_k_hot *hot);
int vb_k_hot_count(const struct vb_k_hot *hot); /* number of hot features; for tests */

/* Call learn with each checked batch first. For each row, call find, which locates the weights of
 * the row and prefetches them. Then forward returns the product of the row and its weights, and add
 * adds `by` times the row to them. */
void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m, const float *w);
void vb_k_hot_find(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float *w);
float vb_k_hot_forward(const struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row);
void vb_k_hot_add(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float by);

/* Adds this worker's changes of hot features to the shared weights, and fetches the others'. */
void vb_k_hot_exchange(struct vb_k_hot *hot, float *w);

#endif
