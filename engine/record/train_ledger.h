/* SPDX-License-Identifier: MIT
 *
 * The ledger of a job: which samples each rank trained on in each step. All ranks append whole
 * lines to one file. docs/run.md describes them.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_LEDGER_H
#define VB_ENGINE_RECORD_TRAIN_LEDGER_H

#include "base/base.h"

struct vb_trainer;

struct vb_trainer_ledger {
    bool on;
    int fd;
};

/* Opens the file of the options, if one is given. The loader is open, and t->step is known. */
vb_status vb_ledger_open(struct vb_trainer *t);
void vb_ledger_close(struct vb_trainer *t);

/* Writes that lines of later steps than t->step, which are in the file by now, do not count any
 * more. All ranks have called it before one of them makes a step. */
vb_status vb_ledger_begin(struct vb_trainer *t);

/* Writes the samples of the step that t->batch begins. Called before the step is made: a rank that
 * dies in a step that the others complete has written its line. */
vb_status vb_ledger_step(struct vb_trainer *t);

#endif
