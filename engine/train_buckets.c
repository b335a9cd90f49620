/* SPDX-License-Identifier: MIT
 *
 * Gradients of all ranks. Backward goes from the last layer to the first, and so from the end of
 * the parameters to their beginning: what is ready is a range that grows downwards. When it is a
 * bucket long its allreduce is started; the sums are taken in the same order.
 */
#include "engine/train_priv.h"

#include <stdlib.h>

#define BUCKETS_MAX 32 /* a bucket is as much larger as that takes */
#define BUCKET_MIN ((size_t)16 << 10)
#define BUCKET_MAX ((size_t)16 << 20)
#define PARTS 4      /* a small model is cut into about so many */
#define WASTE 1.1    /* what a bucket may take, against its part of a very large one ... */
#define WASTE_MOST 2 /* ... for the sake of that */

struct bucket {
    size_t first, n;
    struct vb_req req;
};

struct vb_buckets {
    struct vb_coll *coll; /* NULL: there are no others */
    struct vb_trainer *trainer;
    float *grads;
    float *own;              /* grads, where there is no coll */
    size_t n_params, bucket; /* floats */
    size_t low, high;        /* ready and not started: [low, high) */
    struct bucket list[BUCKETS_MAX + 1];
    int n_started, n_taken;
    vb_status failed;
};

/* The smallest bucket whose latency is no more than that part of what it takes. */
static size_t least_bytes(const struct vb_coll *coll, double waste)
{
    double best = vb_coll_predict_us(coll, vb_coll_algo(coll, BUCKET_MAX), BUCKET_MAX) / BUCKET_MAX;
    size_t bytes;

    for (bytes = BUCKET_MIN; bytes < BUCKET_MAX; bytes *= 2)
        if (vb_coll_predict_us(coll, vb_coll_algo(coll, bytes), bytes) <=
            waste * best * (double)bytes)
            break;
    return bytes;
}

/* The more buckets there are the earlier the first can start, but each costs some latency. Of a
 * model that is but one bucket by that rule nothing would be hidden behind backward. */
static size_t choose_bytes(const struct vb_coll *coll, size_t model_bytes)
{
    size_t bytes = least_bytes(coll, WASTE), least, part = model_bytes / PARTS;

    if (bytes <= part)
        return bytes;
    least = least_bytes(coll, WASTE_MOST);
    return part > least ? part : least;
}

/* Rank 0's choice is that of all, for theirs may be rounded otherwise. */
static vb_status choose_bucket(struct vb_buckets *b)
{
    int64_t asked = b->trainer->o->bucket_bytes;
    uint64_t bytes = asked > 0 ? (uint64_t)asked : BUCKET_MAX;
    vb_status st = VB_OK;

    if (asked == 0 && b->coll != NULL) {
        bytes = choose_bytes(b->coll, b->n_params * sizeof(float));
        st = vb_group_broadcast(b->trainer->place.group, 0, &bytes, sizeof(bytes));
    }
    b->bucket = (size_t)bytes / sizeof(float);
    if (b->bucket * BUCKETS_MAX < b->n_params)
        b->bucket = (b->n_params + BUCKETS_MAX - 1) / BUCKETS_MAX;
    return st;
}

static vb_status open_coll(struct vb_buckets *b)
{
    struct vb_coll_opts opts = b->trainer->o->coll;
    vb_status st;

    opts.in_flight = BUCKETS_MAX + 1;
    st = vb_coll_open(b->trainer->place.group, b->n_params * sizeof(float), &opts, &b->coll);
    if (st == VB_OK)
        b->grads = vb_coll_data(b->coll);
    return st;
}

vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, struct vb_buckets **buckets_p)
{
    struct vb_buckets *b = calloc(1, sizeof(*b));
    vb_status st = VB_OK;

    if (b == NULL)
        return vb_err_sys("calloc");
    *buckets_p = b; /* the caller's from now on, whatever happens */
    b->n_params = n_params;
    b->trainer = t;
    if (t->place.group != NULL) {
        st = open_coll(b);
    } else {
        b->grads = b->own = vb_alloc_aligned(n_params * sizeof(float));
        if (b->grads == NULL)
            st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu gradients", n_params);
    }
    return st == VB_OK ? choose_bucket(b) : st;
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

static bool summing(const struct vb_buckets *b)
{
    return b->coll != NULL && !b->trainer->no_sums;
}

static void start_bucket(struct vb_buckets *b)
{
    struct bucket *next = &b->list[b->n_started++];

    next->first = b->low;
    next->n = b->high - b->low;
    b->high = b->low;
    if (summing(b) && b->failed == VB_OK)
        b->failed = vb_allreduce_start(b->coll, next->first * sizeof(float), next->n, VB_REDUCE_SUM,
                                       &next->req);
}

/* Between two layers: sums that are under way get on, on this rank's time. */
static void get_on(struct vb_buckets *b)
{
    bool done;

    if (!summing(b) || b->n_started == 0 || b->failed != VB_OK)
        return;
    vb_lap(&b->trainer->laps, VB_PHASE_BACKWARD);
    b->failed = vb_test(b->coll, &b->list[0].req, &done);
    vb_lap(&b->trainer->laps, VB_PHASE_COMM);
}

void vb_buckets_ready(void *arg, size_t first, size_t n)
{
    struct vb_buckets *b = arg;

    VB_ASSERT(first + n == b->low);
    (void)n;
    b->low = first;
    if (b->high - b->low >= b->bucket || (b->low == 0 && b->high > 0))
        start_bucket(b);
    if (b->low > 0)
        get_on(b);
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
    if (summing(b))
        b->failed = vb_wait(b->coll, &next->req);
    if (b->failed != VB_OK)
        return b->failed;
    *first_p = next->first;
    *n_p = next->n;
    return VB_OK;
}

/* Sums of sums become infinite on all ranks alike, never NaN, which costs no time. */
vb_status vb_buckets_again(struct vb_buckets *b)
{
    int i, n = b->coll != NULL ? b->n_started : 0;
    vb_status st = VB_OK;

    for (i = 0; i < n && st == VB_OK; i++)
        st = vb_allreduce_start(b->coll, b->list[i].first * sizeof(float), b->list[i].n,
                                VB_REDUCE_SUM, &b->list[i].req);
    for (i = 0; i < n && st == VB_OK; i++)
        st = vb_wait(b->coll, &b->list[i].req);
    return st;
}
