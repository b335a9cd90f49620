/* SPDX-License-Identifier: MIT
 *
 * RUN/metrics.prom: the state of a run in the text format of Prometheus, for the textfile collector
 * of node_exporter. Rank 0's recorder reads the series of all ranks while they grow, and replaces
 * the file every few seconds.
 */
#ifndef VB_RECORD_METRICS_METRICS_H
#define VB_RECORD_METRICS_METRICS_H

#include "record/folder/kinds.h"
#include "record/folder/recorder.h"

struct vb_metrics_opts {
    struct vb_recorder *rec;
    const char *dir;                      /* run folder */
    bool append;                          /* an earlier run in this folder is continued */
    int ranks;                            /* ranks that may have records, from 0 on */
    int64_t steps;                        /* of the whole run */
    int64_t resumed;                      /* steps that an earlier run has made */
    const char *model, *mode;             /* labels; texts that live as long as the recorder */
    const char *phases[VB_RECORD_PHASES]; /* names, as the model and the mode */
    const char *replayed;                 /* the run whose times are replayed; NULL: none */
    bool async;                           /* a row is a gradient, not a step of the job */
};

/* Before vb_recorder_start(). Copies opts; the recorder frees what is allocated. */
vb_status vb_metrics_open(const struct vb_metrics_opts *opts);

#endif
