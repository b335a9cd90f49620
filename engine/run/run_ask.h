/* SPDX-License-Identifier: MIT
 *
 * What the user asks of a running synchronous job: a checkpoint now, that a rank leaves, or whether
 * others may join.
 *
 * The lead saves alone, because saving changes no bit of any rank. A rank that is to leave does so
 * between two of its steps: it tells all members, says goodbye, and the others go on as after a
 * death, without waiting for anything to be noticed.
 */
#ifndef VB_ENGINE_RUN_RUN_ASK_H
#define VB_ENGINE_RUN_RUN_ASK_H

#include "engine/run/run_stop.h"

/* Called before each step. Sets t->leaves if this rank leaves now. */
vb_status vb_run_ask(struct vb_trainer *t, struct run_stop *stop);

#endif
