/* SPDX-License-Identifier: MIT
 *
 * Sums of the gradients of all ranks, and updates that the ranks of a host share.
 */
#ifndef VB_ENGINE_SUMS_SUMS_H
#define VB_ENGINE_SUMS_SUMS_H

#include "engine/train/train.h"

struct vb_trainer;

/* How gradients are summed over ranks. */
struct vb_trainer_sums {
    const char *algo;   /* name of the algorithm; NULL: gradients are not summed */
    char transport[16]; /* used in asynchronous training only */
    struct vb_coll_link link;
    struct vb_coll_forecast forecast; /* of the sums of a step; dense models */
    int requests;                     /* number of sums of the last step that was looked at */
    bool off; /* bench step: steps do not sum gradients, so that the cost of sums can be measured */
};

/* ---- sums of gradients (buckets.c) ----------------------------------------------------------- */

#define VB_BUCKET_REQUESTS 36 /* number of sums that may be under way at once */

/* Sums gradients in buckets. The sum of a bucket is started as soon as the backward pass has filled
 * the bucket. */
struct vb_buckets;

/* Collective. If there is no group, nothing is summed. front: number of parameters of the first
 * layers, which the forward pass needs first. The caller destroys the buckets even if this function
 * failed. */
vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, size_t front,
                            struct vb_buckets **buckets_p);
void vb_buckets_close(struct vb_buckets *b); /* collective */
void vb_buckets_destroy(struct vb_buckets *b);

/* Returns the buffer that the backward pass writes gradients to. */
float *vb_buckets_grads(struct vb_buckets *b);
/* Returns the length of the window that vb_buckets_create() creates in a group of so many ranks. */
size_t vb_buckets_need(const struct vb_trainer *t, size_t n_params, int world);

/* Returns a number of gradients; the link takes more time per byte for fewer gradients. */
size_t vb_buckets_least(const struct vb_buckets *b);
void vb_buckets_begin(struct vb_buckets *b);            /* called before the backward pass */
void vb_buckets_ready(void *b, size_t first, size_t n); /* a vb_grads_fn */

/* Waits until the next bucket is summed and returns its range. *n_p is 0 after the last bucket. */
vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p);
/* Returns the number of started buckets that vb_buckets_next() has not yet returned. */
int vb_buckets_left(const struct vb_buckets *b);

/* Polls running allreduces. The time before the call is charged to this phase. */
void vb_buckets_poll(struct vb_buckets *b, enum vb_phase phase);

/* Sums the buckets of the last step once more, in the same order, whatever they contain. */
vb_status vb_buckets_again(struct vb_buckets *b);

/* Returns the algorithm that sums the largest bucket, or NULL if nothing is summed. */
const char *vb_buckets_algo(const struct vb_buckets *b);

/* Predicts the time of the sums of a step; 0 if nothing is summed. */
struct vb_coll_forecast vb_buckets_forecast(const struct vb_buckets *b);

/* Ranks that have mapped each other's gradients can sum them without the network. After
 * vb_buckets_barriers_only() a bucket is only a barrier: when vb_buckets_next() returns a bucket,
 * all ranks have filled it. */
bool vb_buckets_are_mapped(const struct vb_buckets *b);
const float *vb_buckets_grads_of(const struct vb_buckets *b, int rank);
void vb_buckets_barriers_only(struct vb_buckets *b);
vb_status vb_buckets_barrier(struct vb_buckets *b); /* waits until all ranks call it */

/* Collective, between steps: sends n floats at the beginning of the gradients of the rank at place
 * `from` to the others. */
vb_status vb_buckets_broadcast(struct vb_buckets *b, int from, size_t n);

/* The ranks have regrouped: what one of them may know about the link, and others not, is forgotten.
 */
void vb_buckets_regrouped(struct vb_buckets *b);

/* ---- updates that ranks of one host share (shared_update.c) ---------------------------------- */

struct vb_shared_update;

/* Collective: allocates zeroed memory for the copies of this rank, mapped by all ranks; the number
 * of copies may differ. From now on buckets are barriers only. The caller destroys *shared_p even
 * if this function failed. */
vb_status vb_shared_update_create(struct vb_trainer *t, struct vb_buckets *buckets, size_t n_params,
                                  size_t copy_bytes, int copies,
                                  struct vb_shared_update **shared_p);

/* The ranks have regrouped: the next update is shared by the members. */
void vb_shared_update_regrouped(struct vb_shared_update *shared, const struct vb_buckets *buckets);
void vb_shared_update_close(struct vb_shared_update *shared); /* collective */
void vb_shared_update_destroy(struct vb_shared_update *shared);
/* Returns the length of the window that vb_shared_update_create() creates. */
size_t vb_shared_update_need(size_t copy_bytes, int copies);

/* Returns this rank's memory. */
void *vb_shared_update_memory(const struct vb_shared_update *shared);

/* Says which copy of this rank the ranks are to write in this step. Called before the step fills
 * its first bucket. */
void vb_shared_update_aim(struct vb_shared_update *shared, int copy);

/* An update that reads this rank's memory and writes to the memory of all ranks. */
struct vb_shared_args {
    const float *params, *state; /* in this rank's memory; state is NULL if the rule has none */
    size_t state_ahead; /* in a copy, the state begins so many floats after the parameters; 0: the
                           rule has no state */
    float scale, rate;
    bool norm;      /* also compute this rank's parts of the norm */
    bool norm_only; /* compute only these parts of the norm, and update nothing */
};

/* Updates this rank's part of the parameters from first to first + n - 1. All ranks must have
 * filled the gradients of these parameters. The caller passes buckets from the end of the
 * parameters to the beginning. After a barrier the parts of the other ranks are updated, too. */
void vb_shared_update_run(struct vb_shared_update *shared, const struct vb_shared_args *args,
                          size_t first, size_t n);
/* Returns the norm of the gradient. Called after a barrier. */
double vb_shared_update_norm(struct vb_shared_update *shared);

/* ---- lists of gradients (list.c) ------------------------------------------------------------- */

/* A list of (key, value) with ascending keys, and room for its sum with another one. */
struct vb_list {
    struct vb_mem mem; /* pages are touched only where a list reaches them */
    uint32_t *keys, *spare_keys;
    float *values, *spare_values;
};

vb_status vb_list_open(struct vb_list *list, size_t room);
void vb_list_close(struct vb_list *list);

/* Adds m entries to the first n ones of the list: list + entries, for each key. Returns the number
 * of entries of the sum, which the list must have room for. Allocates nothing. */
size_t vb_list_add(struct vb_list *list, size_t n, const uint32_t *keys, const float *values,
                   size_t m);

#endif
