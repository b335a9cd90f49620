/* SPDX-License-Identifier: MIT
 *
 * RUN/metrics.prom: the state of a run in the text format of Prometheus, for the textfile collector
 * of node_exporter. The recorder of the rank that leads reads the series of all ranks while they
 * grow, and replaces the file every few seconds.
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
    bool asleep; /* another rank leads: nothing is written until vb_metrics_lead() */
};

struct vb_metrics;

/* Before vb_recorder_start(). Copies opts; the recorder frees what is allocated, when it is closed.
 */
vb_status vb_metrics_open(const struct vb_metrics_opts *opts, struct vb_metrics **metrics_p);

/* From now on rank `lead` leads the job and writes the file. By a tick. */
void vb_metrics_lead(struct vb_metrics *metrics, int lead);

/* A rank was lost, and others go on. By a tick. */
void vb_metrics_lost(struct vb_metrics *metrics, int rank);

#endif
