/* SPDX-License-Identifier: MIT
 *
 * Sums of gradients over all ranks, in buckets. Backward goes from the last layer to the first, so
 * it fills the gradients from their end to their beginning. As soon as the filled gradients are
 * enough for a bucket, the allreduce of this bucket is started. If many gradients are filled at
 * once, they become several buckets. The caller receives the buckets in the order in which they
 * were started.
 *
 * The forward pass of the next step first needs the *front*, the parameters of the first layers,
 * which backward fills last. On a slow link the sum of the front would queue behind all other sums.
 * So the gradients that the link cannot send before the end of backward are *deferred*: they are
 * started after the front.
 *
 *     0          front          back                          n_params
 *     |  front   |   deferred   |            rest             |
 *
 * Backward moves `low` from n_params down to 0; gradients from low on are filled:
 *     low in rest        buckets of rest are started, downwards from `high`
 *     low in deferred    nothing is started; rest was started completely
 *     low in front       buckets of front are started, downwards
 *     low = 0            the last bucket of front is started, then all of deferred, upwards
 * If nothing is deferred, all gradients are rest.
 *
 * Some steps measure how many gradients to defer. All ranks must start their sums in the same
 * order, so they use the mean of the numbers that they measured. The mean takes one more allreduce.
 *
 * Ranks that have mapped each other's gradients may sum them by themselves (shared_update.c).
 * Then each bucket is only a barrier: after the barrier, all ranks have filled the gradients of
 * this bucket.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>

#define BUCKETS_MAX 32 /* maximum number of buckets; buckets are made larger to stay below it */
#define BUCKET_MIN ((size_t)4 << 10)
#define BUCKET_MAX ((size_t)16 << 20)
#define CUT ((size_t)1 << 18)  /* number of floats; a range longer than two of these is split */
#define PARTS 4                /* a small model is split into about this many buckets */
#define WASTE 1.1              /* maximum time per byte of a bucket, relative to a very large one */
#define WASTE_MOST 2           /* the same limit, if the model would otherwise be a single bucket */
#define LIST (BUCKETS_MAX + 3) /* front, deferred and rest may each end with a shorter bucket */
#define LINE (VB_CACHE_LINE / sizeof(float))

_Static_assert(VB_BUCKET_REQUESTS == LIST + 1, "one request a bucket, and one for a barrier");

struct bucket {
    size_t first, n;
    struct vb_req req;
};

struct vb_buckets {
    struct vb_trainer *trainer;
    struct vb_coll *coll; /* NULL: this is the only rank */
    float *grads;
    float *own; /* the memory of grads if coll is NULL */
    size_t n_params;
    size_t bucket;      /* minimum number of floats in a bucket */
    size_t least;       /* number of floats; a bucket with fewer floats takes more time per byte */
    bool barriers_only; /* no gradients are sent: each rank reads the gradients of the others */

    size_t front; /* number of parameters that the forward pass needs first */
    size_t back;  /* gradients from front to back - 1 are deferred; 0: nothing is deferred */
    struct vb_req agreement; /* the allreduce in which ranks agree on how much to defer */
    bool agreeing;           /* the agreement is running */

    size_t low;  /* gradients from low on are filled */
    size_t high; /* the sums of gradients from high on are started, except for deferred gradients */
    struct bucket list[LIST];
    int n_started, n_taken;
    uint64_t steps; /* number of steps with sums so far */
    vb_status failed;
};

/* Returns the size in bytes of the smallest bucket that takes at most waste times as long per byte
 * as a very large bucket. */
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

/* Chooses the size of a bucket in bytes. The smaller buckets are, the earlier the first one can
 * start, but each bucket adds its latency. If a small model were a single bucket, the backward pass
 * could not hide any of the transfer, so smaller buckets are accepted for small models. */
static size_t choose_bytes(const struct vb_coll *coll, size_t model_bytes)
{
    size_t bytes = least_bytes(coll, WASTE), least, part = model_bytes / PARTS;

    if (bytes <= part)
        return bytes;
    least = least_bytes(coll, WASTE_MOST);
    return part > least ? part : least;
}

/* All ranks use the choice of rank 0, because rounding could make their own choices differ. */
static vb_status choose_bucket(struct vb_buckets *b)
{
    int64_t asked = b->trainer->o->sums.bucket_bytes;
    uint64_t bytes[2] = {BUCKET_MAX, BUCKET_MAX};
    vb_status st = VB_OK;

    if (asked > 0) {
        bytes[0] = bytes[1] = (uint64_t)asked;
    } else if (b->coll != NULL) {
        bytes[0] = choose_bytes(b->coll, b->n_params * sizeof(float));
        bytes[1] = least_bytes(b->coll, WASTE);
        st = vb_group_broadcast(b->trainer->place.group, 0, bytes, sizeof(bytes));
    }
    b->bucket = (size_t)bytes[0] / sizeof(float);
    b->least = (size_t)bytes[1] / sizeof(float);
    if (b->bucket * BUCKETS_MAX < b->n_params)
        b->bucket = (b->n_params + BUCKETS_MAX - 1) / BUCKETS_MAX;
    return st;
}

vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, size_t front,
                            struct vb_buckets **buckets_p)
{
    struct vb_buckets *b = calloc(1, sizeof(*b));
    struct vb_coll_opts opts = t->o->sums.coll;
    vb_status st = VB_OK;

    if (b == NULL)
        return vb_err_sys("calloc");
    *buckets_p = b; /* the caller destroys the buckets even if this function fails */
    b->n_params = n_params;
    b->front = front;
    b->trainer = t;
    if (t->place.group != NULL) {
        opts.in_flight = VB_BUCKET_REQUESTS;
        st = vb_coll_open(t->place.group, (n_params + 1) * sizeof(float), &opts, &b->coll);
        if (st == VB_OK) {
            b->grads = vb_coll_data(b->coll);
            t->sums.link = vb_coll_link(b->coll);
        }
    } else {
        b->grads = b->own = vb_alloc_aligned(n_params * sizeof(float));
        if (b->grads == NULL)
            st = vb_err(VB_ERR_NO_MEMORY, "no memory for %zu gradients", n_params);
    }
    return st == VB_OK ? choose_bucket(b) : st;
}

size_t vb_buckets_need(const struct vb_trainer *t, size_t n_params, int world)
{
    struct vb_coll_opts opts = t->o->sums.coll;

    opts.in_flight = VB_BUCKET_REQUESTS;
    return vb_coll_need(world, (n_params + 1) * sizeof(float), &opts);
}

void vb_buckets_close(struct vb_buckets *b)
{
    if (b == NULL || b->coll == NULL)
        return;
    vb_coll_close(b->coll);
    b->coll = NULL;
}

void vb_buckets_destroy(struct vb_buckets *b)
{
    if (b == NULL)
        return;
    free(b->own);
    free(b);
}

size_t vb_buckets_least(const struct vb_buckets *b)
{
    return b->least > b->bucket ? b->least : b->bucket;
}

float *vb_buckets_grads(struct vb_buckets *b)
{
    return b->grads;
}

bool vb_buckets_are_mapped(const struct vb_buckets *b)
{
    const struct vb_coll_opts *o = &b->trainer->o->sums.coll;

    return b->coll != NULL && o->wire == VB_WIRE_F32 &&
           vb_coll_algo(b->coll, b->n_params * sizeof(float)) == VB_ALGO_MAPPED;
}

const float *vb_buckets_grads_of(const struct vb_buckets *b, int rank)
{
    return vb_coll_data_of(b->coll, rank);
}

void vb_buckets_barriers_only(struct vb_buckets *b)
{
    b->barriers_only = true;
    b->front = b->back = 0; /* no sum is sent, so none is deferred */
}

vb_status vb_buckets_barrier(struct vb_buckets *b)
{
    struct vb_req req;
    vb_status st = vb_barrier_start(b->coll, &req);

    return st == VB_OK ? vb_wait(b->coll, &req) : st;
}

vb_status vb_buckets_broadcast(struct vb_buckets *b, int from, size_t n)
{
    struct vb_req req;
    vb_status st = vb_broadcast_start(b->coll, from, 0, n * sizeof(float), &req);

    return st == VB_OK ? vb_wait(b->coll, &req) : st;
}

/* Steps are counted from here, so that the link is measured again, by all ranks together. */
void vb_buckets_regrouped(struct vb_buckets *b)
{
    b->steps = 0;
    b->back = 0;
    b->agreeing = false;
    b->n_started = b->n_taken = 0;
}

const char *vb_buckets_algo(const struct vb_buckets *b)
{
    size_t largest = b->bucket < b->n_params ? b->bucket : b->n_params;

    return b->coll == NULL ? NULL : vb_algo_str(vb_coll_algo(b->coll, largest * sizeof(float)));
}

struct vb_coll_forecast vb_buckets_forecast(const struct vb_buckets *b)
{
    if (b->coll == NULL)
        return (struct vb_coll_forecast){0};
    return vb_coll_forecast(b->coll, b->n_params * sizeof(float), b->bucket * sizeof(float));
}

static bool summing(const struct vb_buckets *b)
{
    return b->coll != NULL && !b->trainer->sums.off;
}

/* ---- what is deferred ------------------------------------------------------------------------ */

/* Returns whether this step measures the link: steps 1, 2, 4, 8 and so on do. Later measurements
 * change little. */
static bool measures_link(const struct vb_buckets *b)
{
    return b->front > 0 && summing(b) && (b->steps & (b->steps - 1)) == 0;
}

/* Returns the number of gradients to defer: half of the gradients that the link has not summed at
 * the end of the backward pass. Deferring fewer makes the forward pass wait longer for the front.
 * Deferring more could leave the link idle if the next backward pass takes longer. */
static size_t to_defer(struct vb_buckets *b)
{
    size_t asked = (size_t)b->trainer->o->sums.defer_bytes / sizeof(float), summed = b->n_params;
    size_t most = b->n_params - b->front;
    bool done = true;
    int i;

    for (i = 0; i < b->n_started && done && b->failed == VB_OK; i++) {
        b->failed = vb_test(b->coll, &b->list[i].req, &done);
        if (done && b->list[i].first >= b->front)
            summed = b->list[i].first;
    }
    if (asked > 0)
        return asked < most ? asked : most;
    return (summed - b->front) / 2;
}

/* Starts the allreduce of the agreement. It uses one float of the window, after the gradients. */
static void agree_on_deferred(struct vb_buckets *b, size_t n)
{
    b->grads[b->n_params] = (float)n;
    if (b->failed == VB_OK)
        b->failed = vb_allreduce_start(b->coll, b->n_params * sizeof(float), 1, VB_REDUCE_SUM,
                                       &b->agreement);
    b->agreeing = b->failed == VB_OK;
}

static void take_agreement(struct vb_buckets *b)
{
    size_t least = b->trainer->o->sums.defer_bytes > 0 ? 1 : b->bucket;
    size_t n, most = b->n_params - b->front;

    b->agreeing = false;
    b->failed = vb_wait(b->coll, &b->agreement);
    if (b->failed != VB_OK)
        return;
    n = (size_t)(b->grads[b->n_params] / (float)b->trainer->world);
    n = n < most ? n : most; /* the sum may have been rounded */
    b->back = n >= least ? b->front + n : 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

void vb_buckets_begin(struct vb_buckets *b)
{
    b->low = b->high = b->n_params;
    b->n_started = b->n_taken = 0;
    b->failed = VB_OK;
    b->steps += summing(b);
}

static void start_bucket(struct vb_buckets *b, size_t first, size_t end)
{
    struct bucket *next = &b->list[b->n_started++];

    VB_ASSERT(b->n_started <= LIST);
    next->first = first;
    next->n = end - first;
    vb_train_noise_own(b->trainer, b->grads + first, next->n); /* the sum overwrites it */
    if (!summing(b) || b->failed != VB_OK)
        return;
    if (b->barriers_only)
        b->failed = vb_barrier_start(b->coll, &next->req);
    else
        b->failed = vb_allreduce_start(b->coll, next->first * sizeof(float), next->n, VB_REDUCE_SUM,
                                       &next->req);
}

/* Returns whether the sum of n floats is sent in one go. Other algorithms send a part only after
 * another part was received and added; the link is idle while the ranks add. */
static bool goes_whole(const struct vb_buckets *b, size_t n)
{
    return summing(b) && vb_coll_algo(b->coll, n * sizeof(float)) == VB_ALGO_GATHER;
}

/* Splits n floats into pieces of equal length, in whole cache lines; the last piece may be shorter.
 * Returns the length of a piece. */
static size_t piece_of(size_t n, size_t pieces)
{
    return pieces == 1 ? n : ((n + pieces - 1) / pieces + LINE - 1) / LINE * LINE;
}

/* Chooses the length of the pieces of a range. A range has few pieces, because each piece adds its
 * latency. But there are enough pieces that each one is sent in one go, if a piece that is not
 * smaller than a bucket can be. */
static size_t choose_piece(const struct vb_buckets *b, size_t n)
{
    size_t few = n / (b->bucket > CUT ? b->bucket : CUT), more;

    few = few > 0 ? few : 1;
    for (more = few; n / more >= b->bucket; more++)
        if (goes_whole(b, piece_of(n, more)))
            return piece_of(n, more);
    return piece_of(n, few);
}

/* Starts a range of gradients as buckets of about the same length. up: the buckets are started from
 * the beginning of the range to its end; otherwise from the end. */
static void start_range(struct vb_buckets *b, size_t first, size_t end, bool up)
{
    size_t len, n, i;

    if (first == end)
        return;
    len = choose_piece(b, end - first);
    n = (end - first + len - 1) / len;
    for (i = 0; i < n; i++) {
        size_t at = first + (up ? i : n - 1 - i) * len;

        start_bucket(b, at, at + len < end ? at + len : end);
    }
}

/* Starts buckets of the filled gradients above end, if there are enough for a bucket or if the
 * gradients down to end are filled. */
static void start_down_to(struct vb_buckets *b, size_t end)
{
    size_t low = b->low > end ? b->low : end;

    if (b->high <= low || (b->high - low < b->bucket && low > end))
        return;
    start_range(b, low, b->high, false);
    b->high = low;
}

/* Called between two layers, because running sums make progress only if this rank spends time on
 * them. */
void vb_buckets_poll(struct vb_buckets *b, enum vb_phase phase)
{
    bool done;

    if (!summing(b) || b->n_started == 0 || b->failed != VB_OK)
        return;
    vb_lap(&b->trainer->laps, phase);
    b->failed = vb_test(b->coll, &b->list[0].req, &done);
    vb_lap(&b->trainer->laps, VB_PHASE_COMM);
}

/* Starts the buckets that can be started with this value of low: see the table at the head of this
 * file. */
static void start_filled(struct vb_buckets *b)
{
    size_t held = b->back > 0 ? b->front : 0, held_end = b->back;

    start_down_to(b, held_end);
    if (b->low > held)
        return;
    if (b->high > held)
        b->high = held; /* buckets of rest are started; deferred gradients are skipped */
    start_down_to(b, 0);
    if (b->low == 0)
        start_range(b, held, held_end, true);
}

void vb_buckets_ready(void *arg, size_t first, size_t n)
{
    struct vb_buckets *b = arg;
    bool measures;
    size_t deferred;

    VB_ASSERT(first + n == b->low);
    (void)n;
    b->low = first;
    measures = b->low == 0 && measures_link(b);
    deferred = measures ? to_defer(b) : 0; /* called before more sums are started */
    start_filled(b);
    if (measures)
        agree_on_deferred(b, deferred);
    if (b->low > 0)
        vb_buckets_poll(b, VB_PHASE_BACKWARD);
}

int vb_buckets_left(const struct vb_buckets *b)
{
    return b->n_started - b->n_taken;
}

vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p)
{
    struct bucket *next = &b->list[b->n_taken];

    *n_p = 0;
    if (b->failed != VB_OK)
        return b->failed;
    if (b->n_taken == b->n_started && b->agreeing)
        take_agreement(b);
    if (b->n_taken == b->n_started) {
        b->trainer->sums.requests = b->n_started;
        return b->failed;
    }
    b->n_taken++;
    if (summing(b))
        b->failed = vb_wait(b->coll, &next->req);
    if (b->failed != VB_OK)
        return b->failed;
    *first_p = next->first;
    *n_p = next->n;
    return VB_OK;
}

/* If sums are repeated, the values can become infinite, on all ranks alike, but never NaN.
 * Computing with infinities is not slower. */
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
