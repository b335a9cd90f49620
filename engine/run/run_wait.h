/* SPDX-License-Identifier: MIT
 *
 * --min-ranks: a synchronous job that has lost too many ranks does not go on with the few that are
 * left. They save, wait for others to join, and end if nobody does.
 */
#ifndef VB_ENGINE_RUN_RUN_WAIT_H
#define VB_ENGINE_RUN_RUN_WAIT_H

#include "engine/run/run_stop.h"

/* Called before each step, by all members; does nothing while there are enough of them. Otherwise
 * it returns VB_OK when somebody wants to join, or when the user wants to stop (t->stopped is then
 * the signal), and fails, with the last checkpoint, when nobody has come in time. VB_ERR_PEER: the
 * members must agree again; the time goes on. */
vb_status vb_run_wait(struct vb_trainer *t, struct run_stop *stop);

#endif
