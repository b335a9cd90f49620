/* SPDX-License-Identifier: MIT
 *
 * The functions of asynchronous training that the run calls (train_async*.c, train_join.c).
 */
#ifndef VB_ENGINE_ASYNC_TRAIN_ASYNC_H
#define VB_ENGINE_ASYNC_TRAIN_ASYNC_H

#include "engine/train/trainer.h"

/* Checks the options that only asynchronous training has. */
vb_status vb_async_check(const struct vb_train_opts *o);

/* Returns what a joiner has learnt from its job. The texts in the result are valid until joined is
 * freed. */
struct vb_trainer_joiner vb_joined_joiner(const struct vb_joined *joined);

struct vb_async;

/* Trains, as a worker or a server, until the job is finished. The caller calls
 * vb_async_leave() and vb_async_destroy() even if vb_async_run() failed. *async_p stays
 * unchanged if there is no memory. */
vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p);

/* Fills *result. The reporter gets the result of all workers, after it has evaluated and saved; the
 * other workers get only their own figures. The caller has zeroed *result, and frees it even if
 * this function failed. */
vb_status vb_async_collect(struct vb_async *async, struct vb_train_result *result);

/* Leaves the group. st tells whether this worker could report the result. The other workers
 * wait until the result is reported; if st is a failure, another worker reports it. async may
 * be NULL. */
void vb_async_leave(struct vb_async *async, vb_status st);
void vb_async_destroy(struct vb_async *async); /* NULL is fine */

#endif
