/* SPDX-License-Identifier: MIT
 *
 * Sparse logistic regression: rows, gradients, weights, and updates in place by several workers.
 */
#ifndef VB_KERNELS_SPARSE_SPARSE_MODEL_H
#define VB_KERNELS_SPARSE_SPARSE_MODEL_H

#include "kernels/update/update.h"

/* ---- sparse rows ----------------------------------------------------------------------------- */

/* The rows of a batch, taken from a sparse matrix that the caller owns. Indices may be in any
 * order. If an index occurs several times in a row, its values are added. A row may be empty. */
struct vb_k_csr {
    size_t n;                           /* number of rows in the batch */
    const uint32_t *rows;               /* the rows' indices in the matrix; NULL: 0 to n - 1 */
    size_t ahead;                       /* number of further rows, only prefetched */
    const uint64_t *offset;             /* (n_rows + 1): where each row begins in index and value */
    const uint32_t *index;              /* (nnz): the feature of each entry */
    const float *value;                 /* (nnz); NULL: all values are 1 */
    const struct vb_k_csr_parts *parts; /* (n_rows), from vb_k_csr_group(); NULL: not grouped */
    size_t n_rows, nnz;                 /* number of rows and of entries of the whole matrix */
};

/* Returns VB_ERR_INPUT, and logs row and index, if the batch refers to a row outside the matrix or
 * to a feature not below features. The kernels below do not check: check data from outside once. */
vb_status vb_k_csr_check(const struct vb_k_csr *m, uint64_t features);

/* Computes logits (n) = rows * w + bias. NaN and infinity propagate as in any sum. */
void vb_k_csr_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* Computes w += scale * d * rows: each entry (row i, index k, value x) adds (scale * d[i]) * x to
 * w[k], in the order of the rows. With scale -rate / n this is a step of SGD. */
void vb_k_csr_add(const struct vb_k_csr *m, const float *d, float scale, float *w);

/* Sorts the entries of each row, in place, by the part of the features that they belong to. Threads
 * can then divide the features without searching. On other rows, vb_k_csr_add() uses one thread.
 * Bits do not depend on the number of threads, but on whether rows are grouped. parts is (n_rows);
 * each element fills a cache line. */
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
/* Does the same in double precision. */
double vb_k_logistic_ref(float *logits, const uint8_t *y, size_t n);

/* ---- gradients of sparse rows ---------------------------------------------------------------- */

/* Memory for the gradient of one batch at a time. Only one thread may use it at a time. */
struct vb_k_grad;
vb_status vb_k_grad_create(uint64_t features, size_t max_nnz, struct vb_k_grad **grad_p);
void vb_k_grad_destroy(struct vb_k_grad *grad);

/* Builds the gradient from a checked batch and the gradient d (n) of its logits. Keys are in
 * ascending order, each key occurs once, and its values are added in the order of the rows. The
 * list remains valid until the next call. VB_ERR_USAGE: more than max_nnz entries. */
vb_status vb_k_grad_build(struct vb_k_grad *grad, const struct vb_k_csr *m, const float *d,
                          const uint32_t **keys_p, const float **values_p, size_t *n_p);

/* ---- weights of a sparse model --------------------------------------------------------------- */

/* The weights of a sparse model and the state of their update rule, on huge pages; both are 0 at
 * first. An update is lazy: a feature that is not in the gradient of a step is brought up to date
 * when it is next read or updated. The results are those of a dense update. Only one thread may use
 * it at a time. Weight decay with adagrad or ftrl gives VB_ERR_UNSUPPORTED. */
struct vb_k_sparse;
vb_status vb_k_sparse_create(const struct vb_k_rule *rule, uint64_t features,
                             struct vb_k_sparse **sparse_p);
void vb_k_sparse_destroy(struct vb_k_sparse *sparse);

/* Does the same in memory of the caller, whose contents are kept: `features` weights, and
 * vb_k_sparse_words() words of 32 bits for each weight. NULL: memory is allocated. */
vb_status vb_k_sparse_create_at(const struct vb_k_rule *rule, uint64_t features, float *weights,
                                void *state, struct vb_k_sparse **sparse_p);
int vb_k_sparse_words(const struct vb_k_rule *rule);
/* Returns true if the rule is lazy: weights in memory may be out of date. */
bool vb_k_sparse_is_lazy(const struct vb_k_rule *rule);

/* Returns the weights in memory. With momentum or decay, each weight is as old as the last step
 * that had this feature in its gradient. */
float *vb_k_sparse_weights(struct vb_k_sparse *sparse);

/* These compute with the weights as they are after the last step. They change nothing. */
void vb_k_sparse_read(const struct vb_k_sparse *sparse, uint64_t first, size_t n, float *w);
/* The state of the same features, as it is after vb_k_sparse_settle(), in 32-bit words. */
void vb_k_sparse_read_state(const struct vb_k_sparse *sparse, uint64_t first, size_t n, void *to);
void vb_k_sparse_forward(const struct vb_k_sparse *sparse, const struct vb_k_csr *m, float bias,
                         float *logits);

/* Prefetches the weights that a forward pass of m will read. */
void vb_k_sparse_fetch(const struct vb_k_sparse *sparse, const struct vb_k_csr *m);

/* The gradient of the last update, of at most max_keys keys. */
struct vb_k_kept;
vb_status vb_k_kept_create(size_t max_keys, struct vb_k_kept **kept_p);
void vb_k_kept_destroy(struct vb_k_kept *kept);

/* Takes one step with the gradient scale * values at keys. Keys must be in ascending order, each
 * once; otherwise the function returns VB_ERR_INPUT before it writes anything. kept is filled in
 * unless it is NULL. Bits do not depend on the number of threads. */
vb_status vb_k_sparse_update(struct vb_k_sparse *sparse, const uint32_t *keys, const float *values,
                             size_t n, float scale, float rate, struct vb_k_kept *kept);

/* Returns the number of keys of the last update that has filled in kept, and its gradient as it was
 * given to it: another replica can make the same update. */
size_t vb_k_kept_gradient(const struct vb_k_kept *kept, const uint32_t **keys_p,
                          const float **values_p);

/* The memory of a sparse model. With a lazy rule, weights in memory are out of date. */
#define VB_K_SPARSE_PARTS 2

struct vb_k_sparse_part {
    const char *name;
    bool whole; /* the data are 32-bit words, not floats */
    size_t n;
    void *data;
};

int vb_k_sparse_parts(struct vb_k_sparse *sparse, struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS]);

/* Brings all features in memory up to date. Updates do this every 65,536 steps. All ranks must do
 * it at the same step, because it changes the rounding of later steps. */
void vb_k_sparse_settle(struct vb_k_sparse *sparse);

/* With a lazy rule: returns the number of steps since all features were up to date; otherwise 0. A
 * model whose memory was restored goes on after `step` steps with resume. Returns false if that is
 * impossible. */
uint32_t vb_k_sparse_late(const struct vb_k_sparse *sparse);
bool vb_k_sparse_resume(struct vb_k_sparse *sparse, const struct vb_k_schedule *schedule,
                        int64_t step, uint32_t late);

/* ---- saving a sparse model while it is updated ----------------------------------------------- */

/* Allocates what hold needs: as much memory as the model has. now: touches all pages, too. */
vb_status vb_k_sparse_save_beside(struct vb_k_sparse *sparse, bool now);

/* From hold(true) to hold(false), another thread may read the model as it was at hold(true).
 * Returns false if save_beside was not called. */
bool vb_k_sparse_hold(struct vb_k_sparse *sparse, bool on);

enum vb_k_sparse_saved {
    VB_K_SAVED_WEIGHTS, /* up to date */
    VB_K_SAVED_STATE,
    VB_K_SAVED_MEMORY, /* the weights in memory */
};

/* Reads n 32-bit words of a part, from word `first` on. Any thread may call this function while the
 * model is held, one at a time. Returns false if the old values are lost. */
bool vb_k_sparse_held(const struct vb_k_sparse *sparse, enum vb_k_sparse_saved part, size_t first,
                      size_t n, void *to);

/* Called before somebody else writes the weights at keys, in any order, or all of them. */
void vb_k_sparse_touch(struct vb_k_sparse *sparse, const uint32_t *keys, size_t n);
void vb_k_sparse_touch_all(struct vb_k_sparse *sparse);

/* ---- weights that others change at the same time --------------------------------------------- */

/* With these functions, several threads or processes read and update the same weights and state
 * without a lock. A number is never torn. Of two updates at once one may be lost (Hogwild). */

void vb_k_shared_read(const float *from, size_t n, float *to);  /* from is shared memory */
void vb_k_shared_write(const float *from, size_t n, float *to); /* to is shared memory */

/* Copies the weights at keys to values (n), and prefetches ahead. Keys are not checked. */
void vb_k_shared_gather(const float *w, const uint32_t *keys, size_t n, float *values);

/* Does the same as vb_k_update() in place: *_out must be the same memory as params and state. */
void vb_k_shared_update(const struct vb_k_rule *rule, const struct vb_k_update *update);

/* Applies the gradient scale * values at keys, each key once. Only for rules that are not lazy.
 * state has the layout of vb_k_sparse_create_at(). Keys are not checked. */
void vb_k_shared_update_keys(const struct vb_k_rule *rule, float *w, float *state,
                             const uint32_t *keys, const float *values, size_t n, float scale,
                             float rate);

/* Computes the same as vb_k_csr_forward(), on one thread. The batch must have been checked. */
void vb_k_shared_forward(const struct vb_k_csr *m, const float *w, float bias, float *logits);

/* One worker's copy of the *hot* weights, of features that occur in nearly every batch (hot.c). The
 * first batches determine which are hot. entries is the largest number of entries of a batch.
 * vb_k_hot_destroy() accepts NULL. */
struct vb_k_hot;

vb_status vb_k_hot_create(size_t entries, struct vb_k_hot **hot_p);
void vb_k_hot_destroy(struct vb_k_hot *hot);
int vb_k_hot_count(const struct vb_k_hot *hot); /* number of hot features; for tests */

/* The caller first calls learn with each checked batch. For each row, it then calls find, which
 * locates the weights of the row and prefetches them. After that, forward returns the product of
 * the row and its weights, and add adds `by` times the row to the weights. */
void vb_k_hot_learn(struct vb_k_hot *hot, const struct vb_k_csr *m, const float *w);
void vb_k_hot_find(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float *w);
float vb_k_hot_forward(const struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row);
void vb_k_hot_add(struct vb_k_hot *hot, const struct vb_k_csr *m, size_t row, float by);

/* Adds this worker's changes of hot weights to the shared ones, and fetches those of the others. */
void vb_k_hot_exchange(struct vb_k_hot *hot, float *w);

#endif
