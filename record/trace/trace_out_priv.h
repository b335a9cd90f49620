/* SPDX-License-Identifier: MIT */
#ifndef VB_RECORD_TRACE_TRACE_OUT_PRIV_H
#define VB_RECORD_TRACE_TRACE_OUT_PRIV_H

#include "record/trace/trace_out.h"

/* The functions of a format. */
struct trace_format {
    void (*begin)(struct vb_trace_out *out);
    void (*process)(struct vb_trace_out *out, const char *name);
    void (*track)(struct vb_trace_out *out, const char *name, uint64_t begin_ns);
    void (*item)(struct vb_trace_out *out, const struct vb_trace_item *item);
    void (*end)(struct vb_trace_out *out);
};

struct vb_trace_out {
    const struct trace_format *format;
    FILE *file;
    char path[4200], part[4240];
    int rank, track; /* of the items that follow */
    enum vb_track_kind kind;
    uint32_t sequence;                    /* Perfetto: number of the track, from 1 */
    uint64_t last_ns;                     /* Perfetto: times are stored as differences */
    bool first;                           /* JSON: no comma is needed */
    char track_name[96];                  /* JSON: the name of a counter */
    unsigned char known[VB_TRACE_LABELS]; /* Perfetto: names that the track has stored */
};

extern const struct trace_format vb_trace_perfetto, vb_trace_json;

/* Numbers of processes and threads in a trace. Ranks of several hosts may have the same ones in
 * truth, so these are made from ranks. */
static inline int trace_pid(const struct vb_trace_out *out)
{
    return (out->rank + 1) * 1000;
}

static inline int trace_tid(const struct vb_trace_out *out)
{
    return trace_pid(out) + out->track;
}

#endif
