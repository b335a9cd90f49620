/* SPDX-License-Identifier: MIT
 *
 * Gradients of all ranks. Backward goes from the last layer to the first, and so from the end of
 * the parameters to their beginning: what is ready is a range that grows downwards. When it is a
 * bucket long its allreduce is started; the sums are taken in the same order.
 */
#include "engine/train_priv.h"

#include <stdlib.h>

#define BUCKET_BYTES (4 << 20)
#define BUCKETS_MAX 32 /* a bucket is as much larger as that takes */

struct bucket {
    size_t first, n;
    struct vb_req req;
};

struct vb_buckets {
    struct vb_coll *coll; /* NULL: there are no others */
    float *grads;
    float *own;              /* grads, where there is no coll */
    size_t n_params, bucket; /* floats */
    size_t low, high;        /* ready and not started: [low, high) */
    struct bucket list[BUCKETS_MAX + 1];
    int n_started, n_taken;
    vb_status failed;
};

vb_status vb_buckets_create(struct vb_group *group, const struct vb_train_opts *o, size_t n_params,
                            struct vb_buckets **buckets_p)
{
    struct vb_coll_opts opts = o->coll;
    struct vb_buckets *b = calloc(1, sizeof(*b));
    vb_status st = VB_OK;

    if (b == NULL)
        return vb_err_sys("calloc");
    b->n_params = n_params;
    b->bucket = (size_t)(o->bucket_bytes > 0 ? o->bucket_bytes : BUCKET_BYTES) / sizeof(float);
    if (b->bucket * BUCKETS_MAX < n_params)
        b->bucket = (n_params + BUCKETS_MAX - 1) / BUCKETS_MAX;
    if (group == NULL) {
        b->grads = b->own = vb_alloc_aligned(n_params * sizeof(float));
        if (b->grads == NULL)
            st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu gradients", n_params);
    } else {
        opts.in_flight = BUCKETS_MAX + 1;
        st = vb_coll_open(group, n_params * sizeof(float), &opts, &b->coll);
        if (st == VB_OK)
            b->grads = vb_coll_data(b->coll);
    }
    if (st != VB_OK) {
        free(b);
        return st;
    }
    *buckets_p = b;
    return VB_OK;
}

void vb_buckets_close(struct vb_buckets *b)
{
    if (b != NULL && b->coll != NULL)
        vb_coll_close(b->coll);
    if (b != NULL)
        b->coll = NULL;
}

void vb_buckets_destroy(struct vb_buckets *b)
{
    if (b == NULL)
        return;
    free(b->own);
    free(b);
}

float *vb_buckets_grads(struct vb_buckets *b)
{
    return b->grads;
}

const char *vb_buckets_algo(const struct vb_buckets *b)
{
    size_t largest = b->bucket < b->n_params ? b->bucket : b->n_params;

    return b->coll == NULL ? NULL : vb_algo_str(vb_coll_algo(b->coll, largest * sizeof(float)));
}

void vb_buckets_begin(struct vb_buckets *b)
{
    b->low = b->high = b->n_params;
    b->n_started = b->n_taken = 0;
    b->failed = VB_OK;
}

static void start_bucket(struct vb_buckets *b)
{
    struct bucket *next = &b->list[b->n_started++];

    next->first = b->low;
    next->n = b->high - b->low;
    b->high = b->low;
    if (b->coll != NULL && b->failed == VB_OK)
        b->failed = vb_allreduce_start(b->coll, next->first * sizeof(float), next->n, VB_REDUCE_SUM,
                                       &next->req);
}

void vb_buckets_ready(void *arg, size_t first, size_t n)
{
    struct vb_buckets *b = arg;

    VB_ASSERT(first + n == b->low);
    (void)n;
    b->low = first;
    if (b->high - b->low >= b->bucket || (b->low == 0 && b->high > 0))
        start_bucket(b);
}

vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p)
{
    struct bucket *next = &b->list[b->n_taken];

    *n_p = 0;
    if (b->failed != VB_OK)
        return b->failed;
    if (b->n_taken == b->n_started)
        return VB_OK;
    b->n_taken++;
    if (b->coll != NULL)
        b->failed = vb_wait(b->coll, &next->req);
    if (b->failed != VB_OK)
        return b->failed;
    *first_p = next->first;
    *n_p = next->n;
    return VB_OK;
}
