/* SPDX-License-Identifier: MIT
 *
 * The members of a synchronous run form a new group with those who wait to join
 * (engine/elastic/form.c).
 */
#ifndef VB_ENGINE_RUN_RUN_FORM_H
#define VB_ENGINE_RUN_RUN_FORM_H

#include "engine/run/run_stop.h"

/* Collective, between two steps that all members have agreed on. VB_OK: the run goes on, in the new
 * group or, if that could not be formed, in the old one. VB_ERR_PEER: a rank was lost;
 * vb_train_recover() finds out in which group the run goes on. */
vb_status vb_run_form(struct vb_trainer *t, struct run_stop *stop);

/* The same for a joiner, before its first step. */
vb_status vb_run_form_joined(struct vb_trainer *t);

#endif
