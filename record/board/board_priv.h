/* SPDX-License-Identifier: MIT */
#ifndef VB_RECORD_BOARD_BOARD_PRIV_H
#define VB_RECORD_BOARD_BOARD_PRIV_H

#include "record/board/board.h"
#include "record/board/follow.h"
#include "record/folder/kinds.h"

/* What the rows of a rank add up to since its last point. */
struct board_sum {
    uint64_t steps, samples, first_step;
    double phase_s[VB_RECORD_PHASES];
};

struct board_rank {
    int rank;
    struct vb_events events;
    struct vb_follow steps, usage;
    struct vb_step_row last; /* the newest row; step 0: none */
    struct board_sum sum;
    struct vb_usage_row before, now; /* usage at the last point and now; at_ns 0: none */
    double samples_per_s;            /* at the last point; 0: the rank makes no steps now */
    int64_t shown_step;              /* step of the last point */
    int64_t skew_ns;                 /* what makes this rank's clock rank 0's; INT64_MAX: unknown */
    struct vb_histogram staleness;
};

void vb_board_rank_init(struct board_rank *r, const struct vb_board_opts *o, int rank,
                        unsigned char *bytes);
/* Begins a new event file after this step. leads: the board's own clock is that of this rank. */
void vb_board_rank_again(struct board_rank *r, struct vb_recorder *rec, int64_t step, bool leads);
void vb_board_rank_close(struct board_rank *r);

/* Reads what the rank has recorded. row(): called for each step, with the number of those that
 * follow; NULL: none. */
typedef void (*board_row_fn)(void *arg, const struct vb_step_row *row, int64_t left);
void vb_board_rank_read(struct board_rank *r, uint64_t now_ns, board_row_fn row, void *arg);

/* Writes a point of phases and resources if there are steps since the last one. job_step: the step
 * of the job, for a rank that makes no steps. wall_s: the time when rank 0's clock was 0. Returns
 * whether it did. */
bool vb_board_rank_show(struct board_rank *r, double wall_s, int64_t job_step);

/* Writes a histogram of the staleness since the last one, if there is any. */
void vb_board_rank_show_staleness(struct board_rank *r, double wall_s);

/* Returns the time of the rank's clock on the wall's. */
double vb_board_rank_wall(const struct board_rank *r, double wall_s, uint64_t at_ns);

/* Time of steps without evaluations and checkpoints. */
double vb_board_train_s(const struct board_sum *sum);

#endif
