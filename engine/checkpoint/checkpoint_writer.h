/* SPDX-License-Identifier: MIT
 *
 * Writes checkpoints on a thread of its own, so that training never waits for a disk.
 */
#ifndef VB_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H
#define VB_ENGINE_CHECKPOINT_CHECKPOINT_WRITER_H

#include "engine/checkpoint/checkpoint.h"

#include <sched.h>

struct vb_checkpoint_writer;

struct vb_checkpoint_writer_opts {
    const char *dir; /* borrowed */
    int keep;        /* as in vb_checkpoint_write() */
    cpu_set_t cpus;  /* where the thread may run; empty: where the caller may */
    int rank;        /* for the log; -1: none */
};

/* What became of a checkpoint. */
struct vb_checkpoint_done {
    int64_t step;
    vb_status status; /* VB_OK: it is on the disk */
    double seconds;   /* until it was */
    double bytes;     /* of its arrays */
    char path[4096];
    char why[512];   /* the cause of a failure; "": it did not fail */
    char last[4096]; /* after a failure: the newest checkpoint of the folder; "": there is none */
    char bad[VB_CHECKPOINT_NAME]; /* it failed because this parameter is not finite; "": it is */
};

/* Starts the thread. One other thread calls the functions below; only vb_checkpoint_writer_wait()
 * and vb_checkpoint_writer_close() block. */
vb_status vb_checkpoint_writer_open(const struct vb_checkpoint_writer_opts *opts,
                                    struct vb_checkpoint_writer **writer_p);

/* Returns whether a checkpoint is being written. While it is, its arrays and texts must stay as
 * they are. */
bool vb_checkpoint_writer_busy(const struct vb_checkpoint_writer *w);

/* Begins to write a checkpoint. Copies the list of arrays, and borrows what it points to. Returns
 * false if a checkpoint is being written, unless it queues: then this one is written next. At most
 * one may wait. */
bool vb_checkpoint_writer_begin(struct vb_checkpoint_writer *w, const struct vb_checkpoint *cp,
                                bool queues);

/* Tells what became of the oldest checkpoint that was not told of yet. Returns false if there is
 * none. */
bool vb_checkpoint_writer_take(struct vb_checkpoint_writer *w, struct vb_checkpoint_done *done_p);

/* Waits until nothing is being written, at most until this moment of vb_clock_ns(). Returns whether
 * that is so. */
bool vb_checkpoint_writer_wait(struct vb_checkpoint_writer *w, uint64_t until_ns);

/* Ends the thread. A checkpoint that is being written is given up: no memory of the caller is read
 * any more, and an incomplete file stays without a name. w may be NULL. */
void vb_checkpoint_writer_close(struct vb_checkpoint_writer *w);

#endif
