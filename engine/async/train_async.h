/* SPDX-License-Identifier: MIT
 *
 * Asynchronous training, as the run uses it (train_async*.c, train_join.c).
 */
#ifndef VB_ENGINE_ASYNC_TRAIN_ASYNC_H
#define VB_ENGINE_ASYNC_TRAIN_ASYNC_H

#include "engine/train/trainer.h"

/* Checks the options that only asynchronous training has. */
vb_status vb_async_check(const struct vb_train_opts *o);

/* What a joiner has learnt from its job. The texts are valid as long as joined is. */
struct vb_trainer_joiner vb_joined_joiner(const struct vb_joined *joined);

struct vb_async;

/* Trains, as a worker or a server, until the job is finished. The caller calls vb_async_leave() and
 * vb_async_destroy() even if this failed. *async_p stays unchanged if there is no memory. */
vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p);

/* One worker reports the result of all workers, after it has evaluated and saved. The others have a
 * result of their own. *result is zeroed before; the caller frees it even if this failed. */
vb_status vb_async_collect(struct vb_async *async, struct vb_train_result *result);

/* Releases the other workers, which wait for the report. If st is a failure, one of them reports.
 * NULL is fine. */
void vb_async_leave(struct vb_async *async, vb_status st);
void vb_async_destroy(struct vb_async *async); /* NULL is fine */

#endif
