/* SPDX-License-Identifier: MIT
 *
 * Ends a synchronous run early, after the same step on all ranks.
 *
 * A rank whose user wants to stop (Ctrl-C) asks the lead, which is rank 0 at first. The lead has
 * just completed step S, so no rank can complete step S + 1 without it. It tells all ranks that
 * S + 1 is the last step, and takes part in that step only when all have confirmed. The ranks
 * confirm while they wait for the lead in the sums of step S + 1, so nobody waits for longer than
 * that step takes.
 */
#ifndef VB_ENGINE_RUN_RUN_STOP_H
#define VB_ENGINE_RUN_RUN_STOP_H

#include "engine/train/trainer.h"

struct run_stop;

/* Collective, if the trainer has a group. The caller closes *stop_p, and frees it when the group is
 * closed, also after a failure. NULL is fine for both. */
vb_status vb_run_stop_open(struct vb_trainer *t, struct run_stop **stop_p);
void vb_run_stop_close(struct run_stop *stop); /* collective */
void vb_run_stop_free(struct run_stop *stop);

/* Called before each step. *signal_p becomes the signal that ends the run here; 0: go on. */
vb_status vb_run_stop_check(struct run_stop *stop, int *signal_p);

/* Collective, by the members of a new view, before anything else is done: if one of them knows that
 * somebody wants to stop, the run ends at this step. VB_ERR_PEER: the members must agree again. */
vb_status vb_run_stop_regroup(struct run_stop *stop);

/* The lead tells a rank to leave before its next step. VB_AGAIN: it was not told, try again. */
vb_status vb_run_stop_send_off(struct run_stop *stop, int rank);
bool vb_run_stop_is_to_leave(struct run_stop *stop); /* this rank was told to */

/* Tells all members that this rank leaves, and waits until they know: its goodbye does not mean
 * that the job is over. */
void vb_run_stop_go(struct run_stop *stop);

#endif
