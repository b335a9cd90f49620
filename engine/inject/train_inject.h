/* SPDX-License-Identifier: MIT
 *
 * Faults that the user injects to see what a job does: a rank that dies, stops, is slow, or has
 * another clock.
 */
#ifndef VB_ENGINE_INJECT_TRAIN_INJECT_H
#define VB_ENGINE_INJECT_TRAIN_INJECT_H

#include "base/base.h"

struct vb_trainer;

#define VB_INJECT_MAX 16 /* faults of one job */

enum vb_inject_kind { VB_INJECT_KILL, VB_INJECT_STOP, VB_INJECT_SLOW, VB_INJECT_CLOCK };

struct vb_inject {
    enum vb_inject_kind kind;
    int rank;
    int64_t step;         /* kill, stop: before this step of the rank, from 1 */
    double seconds;       /* stop: how long */
    double factor;        /* slow: how many times as long */
    int phase;            /* slow: an enum vb_phase; -1: forward, backward and update */
    double offset_s, ppm; /* clock: how far it is ahead, and what it gains */
};

struct vb_inject_opts {
    struct vb_inject list[VB_INJECT_MAX];
    int n;
};

#define VB_INJECT_TEXT 96

/* Writes a fault as the option --inject takes it, and as words: "rank 1 is killed before step 5".
 */
void vb_inject_spec(const struct vb_inject *inject, char text[VB_INJECT_TEXT]);
void vb_inject_words(const struct vb_inject *inject, char text[VB_INJECT_TEXT]);

/* A rank that is made slower than it is. Times are those of the phases of a step. */
#define VB_INJECT_PHASES 8 /* as many as there are phases */
struct vb_trainer_slow {
    bool on;
    double factor[VB_INJECT_PHASES];    /* 0 or 1: as fast as it is */
    uint64_t idle_ns[VB_INJECT_PHASES]; /* how long to idle in the next step */
    uint64_t idled_ns[VB_INJECT_PHASES];
    uint64_t own_ns[VB_INJECT_PHASES];  /* how long the last step took without idling */
    uint64_t laps_ns[VB_INJECT_PHASES]; /* t->laps.ns after the last step */
};

/* Changes the clock of this rank's records if that was asked for. Called before anything records. A
 * worker that joins injects nothing. */
void vb_inject_clock(const struct vb_trainer *t);

/* Called when the number of steps is known. */
vb_status vb_inject_open(struct vb_trainer *t);

/* Kills or stops this rank if that is due before its next step. */
vb_status vb_inject_before_step(struct vb_trainer *t);

/* Idles in this phase, which is an enum vb_phase, and charges the time to it. */
void vb_inject_idle(struct vb_trainer *t, int phase);

/* Called after each step: decides how long to idle in the next one. */
void vb_inject_after_step(struct vb_trainer *t);

#endif
