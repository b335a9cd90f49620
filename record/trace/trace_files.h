/* SPDX-License-Identifier: MIT
 *
 * The files of a rank that its trace is kept in:
 *
 *     rankR/names.bin   text: operations, threads, and what was lost; "end" if the rank has ended
 *     rankR/ops.bin     series: how often each operation ran and how long, every second
 *     rankR/trace.bin   series: events, while the trace was on
 */
#ifndef VB_RECORD_TRACE_TRACE_FILES_H
#define VB_RECORD_TRACE_TRACE_FILES_H

#include "base/trace.h"
#include "record/folder/recorder.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* A row of ops.bin. The last row of an operation counts. */
struct vb_op_row {
    uint64_t at_ns, op, calls, ns, bytes;
};

extern const struct vb_series_kind vb_kind_trace, vb_kind_ops;

struct vb_trace_files;

/* Writes a trace to the files of a rank, in ticks of a recorder that has not been started.
 * n_events: as for vb_trace_create(). threads: with which the rank computes. */
vb_status vb_trace_files_open(struct vb_recorder *rec, struct vb_trace *trace, int n_events,
                              int rank, int threads, struct vb_trace_files **files_p);

/* The names go to another place from now on, and begin anew. By a tick. Accepts NULL. */
void vb_trace_files_again(struct vb_trace_files *files);

/* After the recorder was closed. Returns false if a slow disk still holds the recorder's thread:
 * then nothing is freed, and the trace must stay, too. Accepts NULL. */
bool vb_trace_files_free(struct vb_trace_files *files);

/* ---- reading --------------------------------------------------------------------------------- */

struct vb_trace_names {
    int rank, threads;
    uint64_t since_ns; /* when the run began; earlier rows are of a run that this one continues */
    char host[64];
    struct vb_trace_op ops[VB_TRACE_OPS];
    int n_ops;
    char thread[VB_TRACE_THREADS][VB_TRACE_TEXT];
    int n_threads;
    uint64_t lost; /* events that found no room */
    bool ended;
};

/* Reads rankR/names.bin of a run folder. Returns VB_ERR_NO_FILE, without a log line, if there is
 * none. */
vb_status vb_trace_names_read(const char *dir, int rank, struct vb_trace_names *names_p);

/* Reads the counts of all operations. sums has VB_TRACE_OPS elements. */
vb_status vb_trace_ops_read(const char *dir, const struct vb_trace_names *names,
                            struct vb_trace_sum *sums);

/* Reads the events. The caller frees them. No file: no events. */
vb_status vb_trace_events_read(const char *dir, const struct vb_trace_names *names,
                               struct vb_trace_event **events_p, size_t *n_p);

#endif
