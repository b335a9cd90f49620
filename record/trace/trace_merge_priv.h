/* SPDX-License-Identifier: MIT */
#ifndef VB_RECORD_TRACE_TRACE_MERGE_PRIV_H
#define VB_RECORD_TRACE_TRACE_MERGE_PRIV_H

#include "record/trace/trace_files.h"
#include "record/trace/trace_merge.h"

/* The arrows of an event: numbers first to first + n - 1, of which the first n_ended end there. */
struct arrows {
    uint64_t first;
    uint32_t n, n_ended;
};

/* The events of a rank, with corrected times. */
struct merge_rank {
    struct vb_trace_names names;
    struct vb_trace_event *events;
    struct arrows *arrows; /* one for each event */
    size_t n;
};

struct merge {
    const struct vb_trace_merge_opts *opts;
    struct vb_trace_out *out;
    struct merge_rank *ranks; /* opts->ranks elements; n 0: the rank has no events */
    uint64_t begin_ns, end_ns;
    struct vb_trace_merged *merged;
};

/* trace_arrows.c: joins events with the same key, and checks the times of messages. */
vb_status vb_merge_arrows(struct merge *m);

/* trace_tracks.c: writes the tracks of a rank. */
vb_status vb_merge_tracks(struct merge *m, int rank);

/* trace_usage.c: writes the counters of a rank, from its usage.bin. */
void vb_merge_usage(struct merge *m, int rank, int track);

#define MERGE_TRACKS 256 /* maximum number of tracks of threads and lanes of a rank */

#endif
