/* SPDX-License-Identifier: MIT
 *
 * Writers of traces: Perfetto's protobuf and Chrome's JSON. A trace has a process for each rank; a
 * process has tracks: threads, lanes of what runs beside them, and counters. Items of a track come
 * in the order of time; a begin and its end nest.
 */
#ifndef VB_RECORD_TRACE_TRACE_OUT_H
#define VB_RECORD_TRACE_TRACE_OUT_H

#include "base/base.h"

enum vb_trace_format { VB_TRACE_PERFETTO, VB_TRACE_JSON };

enum vb_track_kind { VB_TRACK_THREAD, VB_TRACK_LANE, VB_TRACK_COUNTER };

enum vb_item_type { VB_ITEM_BEGIN = 1, VB_ITEM_END, VB_ITEM_INSTANT, VB_ITEM_COUNTER };

struct vb_trace_item {
    enum vb_item_type type;
    uint64_t ns;
    const char *name;           /* of a begin or an instant */
    uint32_t label;             /* the same for items of a track with the same name, from 0 */
    uint64_t bytes;             /* 0: not told */
    uint64_t arrow;             /* number of the first arrow that ends or begins here, from 1 */
    uint32_t n_arrows, n_ended; /* the first n_ended of n_arrows end here, the others begin */
    double value;               /* of a counter */
};

#define VB_TRACE_LABELS 4096 /* maximum number of labels of a track */

struct vb_trace_out;

/* Makes a file, which gets its name when it is complete. */
vb_status vb_trace_out_open(const char *path, enum vb_trace_format format,
                            struct vb_trace_out **out_p);

/* Completes the file, or removes it if keep is false. */
vb_status vb_trace_out_close(struct vb_trace_out *out, bool keep);

void vb_trace_out_process(struct vb_trace_out *out, int rank, const char *name);

/* The items that follow are of this track. begin_ns: no item is earlier. */
void vb_trace_out_track(struct vb_trace_out *out, int rank, int track, enum vb_track_kind kind,
                        const char *name, uint64_t begin_ns);
void vb_trace_out_item(struct vb_trace_out *out, const struct vb_trace_item *item);

#endif
