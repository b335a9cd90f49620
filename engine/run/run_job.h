/* SPDX-License-Identifier: MIT
 *
 * What somebody who wants to join a synchronous run is told before it sets itself up.
 */
#ifndef VB_ENGINE_RUN_RUN_JOB_H
#define VB_ENGINE_RUN_RUN_JOB_H

#include "engine/train/trainer.h"

/* From now on callers are told about this run. Called on each member, also in a new group. */
vb_status vb_run_let_in(struct vb_trainer *t);

/* Reads what the caller was told. The texts are borrowed from the caller. */
vb_status vb_run_job_read(struct vb_caller *caller, struct vb_trainer_joiner *joiner_p);

#endif
