/* SPDX-License-Identifier: MIT
 *
 * What metrics.prom tells, shared by metrics.c, which adds up rows, and metrics_text.c.
 */
#ifndef VB_RECORD_METRICS_METRICS_PRIV_H
#define VB_RECORD_METRICS_METRICS_PRIV_H

#include "record/board/follow.h"
#include "record/folder/kinds.h"
#include "record/metrics/metrics.h"

/* A rank. Sums are over the rows of this run. */
struct metrics_rank {
    struct vb_follow steps, usage;
    bool has_steps, has_usage;
    bool lost;
    double phase_s[VB_RECORD_PHASES];
    double late_s; /* that others have waited for this rank */
    uint64_t rows, samples;
    struct vb_step_row last; /* if has_steps */
    struct vb_usage_row use; /* if has_usage */
};

struct vb_metrics {
    struct vb_metrics_opts o;
    char dir[4096];
    struct vb_follow evals;
    bool has_eval;
    struct vb_eval_row eval; /* if has_eval */
    bool running;
    double started_s, now_s; /* by the clock of the day */
    uint64_t written_ns;
    int lead; /* the rank whose steps are those of the job */
    int n_lost;
    struct metrics_rank *ranks;
};

/* Writes the text format. Returns false if that fails. */
bool vb_metrics_text(const struct vb_metrics *m, FILE *out);

#endif
