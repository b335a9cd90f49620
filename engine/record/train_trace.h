/* SPDX-License-Identifier: MIT
 *
 * What a rank measures about itself for the run folder: how often each operation ran and for how
 * long, and, for the steps of --trace, an event for each.
 */
#ifndef VB_ENGINE_RECORD_TRAIN_TRACE_H
#define VB_ENGINE_RECORD_TRAIN_TRACE_H

#include "base/trace.h"
#include "record/record.h"

struct vb_trainer;
struct vb_train_clock;

struct vb_trainer_trace {
    struct vb_trace *trace; /* NULL: nothing is measured */
    struct vb_trace_files *files;
    int forward, backward, update; /* operations of sparse models */
};

/* Begins to measure the calling thread, if there is a run folder. */
vb_status vb_train_trace_open(struct vb_trainer *t);

/* Adds the files of the trace to the recorder, which has not been started. */
vb_status vb_train_trace_files(struct vb_trainer *t);

/* Called when the time of training begins to count. */
void vb_train_trace_begin(struct vb_trainer *t);

/* Called before a step, with its number, from 1: the trace is on for the steps that were asked. */
void vb_train_trace_step(struct vb_trainer *t, int64_t step);

/* No step follows. */
void vb_train_trace_end(struct vb_trainer *t);

/* After the recorder, the loader and the group of this rank were closed. */
void vb_train_trace_close(struct vb_trainer *t);

/* The rank that leads, after all of that: merges the traces of all ranks into the file that was
 * asked for. A failure is logged; the run has its result already. */
void vb_train_trace_merge(const struct vb_trainer *t, const struct vb_train_clock *clocks,
                          int n_clocks);

#endif
