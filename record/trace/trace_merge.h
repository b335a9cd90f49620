/* SPDX-License-Identifier: MIT
 *
 * One trace of all ranks, on the clock of rank 0.
 */
#ifndef VB_RECORD_TRACE_TRACE_MERGE_H
#define VB_RECORD_TRACE_TRACE_MERGE_H

#include "record/clock.h"
#include "record/trace/trace_out.h"

struct vb_trace_merge_opts {
    const char *dir;  /* run folder */
    const char *path; /* file to write */
    enum vb_trace_format format;
    int ranks;                         /* ranks 0 to ranks - 1 may have files */
    const struct vb_clock_fit *clocks; /* one for each rank; NULL: all have the clock of rank 0 */
};

struct vb_trace_merged {
    int ranks;         /* that have events */
    uint64_t events;   /* that the file has: begins, ends, moments, values of counters */
    uint64_t recorded; /* rows of all ranks that became these events */
    uint64_t arrows;   /* between two events */
    uint64_t lost;     /* events that found no room */
    uint64_t bytes;    /* size of the file */
};

/* Reads the events of all ranks and writes one file. Refuses, without a file, if a message would
 * come before it was sent, by more than the errors of both clocks. */
vb_status vb_trace_merge(const struct vb_trace_merge_opts *opts, struct vb_trace_merged *merged_p);

#endif
