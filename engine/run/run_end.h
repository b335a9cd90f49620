/* SPDX-License-Identifier: MIT
 *
 * The end of a synchronous run: the figures of all ranks are collected, and the lead reports them.
 *
 * In an elastic job the lead reports while the others wait, so that the next one can report if it
 * dies. A rank says goodbye only when the report is out. So if one has said goodbye, the job is
 * over, whatever else has happened.
 */
#ifndef VB_ENGINE_RUN_RUN_END_H
#define VB_ENGINE_RUN_RUN_END_H

#include "engine/train/trainer.h"

/* Collective. VB_ERR_PEER: unless the job is over, the members that are left may recover and call
 * this again with the same result. */
vb_status vb_run_end(struct vb_trainer *t, struct vb_train_result *result);

/* Reports the result if it is this rank that reports. */
vb_status vb_run_tell(const struct vb_trainer *t, struct vb_train_result *result);

#endif
