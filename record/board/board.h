/* SPDX-License-Identifier: MIT
 *
 * What TensorBoard shows of a run. The recorder of the rank that leads reads the series of all
 * ranks while they grow and writes event files: one in the run folder for the job, and one in
 * rankR/ for each rank, so that TensorBoard draws the ranks into one chart.
 */
#ifndef VB_RECORD_BOARD_BOARD_H
#define VB_RECORD_BOARD_BOARD_H

#include "record/board/describe.h"

/* A part of the parameters that has histograms of its own. */
struct vb_board_tensor {
    char name[48];
    size_t first, n;
};

/* All that open borrows is copied. */
struct vb_board_opts {
    struct vb_recorder *rec;
    const char *dir; /* run folder */
    bool append;     /* an earlier run in this folder is continued, */
    int64_t resumed; /* from this step on */
    int ranks;       /* ranks that may get a folder, from 0 on */
    int workers;     /* ranks that make steps from the beginning */
    bool asleep;     /* another rank leads: nothing is written until vb_board_lead() */
    const struct vb_board_param *params;
    int n_params;
    const struct vb_proto *graph; /* GraphDef message; NULL: none */
    const struct vb_board_tensor *tensors;
    int n_tensors;
};

struct vb_board;

/* Before vb_recorder_start(). The board lives as long as the recorder, which destroys it. */
vb_status vb_board_open(const struct vb_board_opts *opts, struct vb_board **board_p);

/* From now on rank `lead` leads the job and has this board, after those before it were lost. Shows
 * what comes after `step`. fresh: the folder has nothing of this run yet. By a tick. */
void vb_board_lead(struct vb_board *board, int lead, int64_t step, bool fresh);

/* A rank was lost, and others go on. By a tick. */
void vb_board_lost(struct vb_board *board, int rank);

/* The run has succeeded. Without this call it is shown as failed when the recorder is closed. */
void vb_board_done(struct vb_board *board);

/* Histograms of parameters and gradients, by the training thread. vb_board_begin() returns false,
 * and the histograms of this step are left out, if the last ones are not yet written. Nothing is
 * allocated and nothing waits. */
enum vb_board_what { VB_BOARD_WEIGHTS, VB_BOARD_GRADIENTS };
bool vb_board_begin(struct vb_board *board, int64_t step);
/* values: all parameters or gradients, in the order of the tensors; each is multiplied by scale. */
void vb_board_count(struct vb_board *board, enum vb_board_what what, const float *values,
                    float scale);
/* values: any numbers, counted for one tensor. */
void vb_board_count_list(struct vb_board *board, enum vb_board_what what, int tensor,
                         const float *values, size_t n, float scale);
void vb_board_end(struct vb_board *board);

#endif
