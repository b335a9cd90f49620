/* SPDX-License-Identifier: MIT */
#include "record/folder/kinds.h"

#define U64(name, unit)                                                                            \
    {                                                                                              \
        name, unit, VB_COL_U64                                                                     \
    }
#define F32(name, unit)                                                                            \
    {                                                                                              \
        name, unit, VB_COL_F32                                                                     \
    }

#define KIND(text, type, columns)                                                                  \
    {                                                                                              \
        .name = (text), .version = 1, .cols = (columns), .n_cols = VB_COUNT(columns),              \
        .row_bytes = sizeof(type)                                                                  \
    }

static const struct vb_col step_cols[] = {
    U64("step", "-"),
    U64("end_ns", "ns"),
    U64("sent_bytes", "B"),
    U64("received_bytes", "B"),
    F32("data_s", "s"),
    F32("forward_s", "s"),
    F32("backward_s", "s"),
    F32("comm_exposed_s", "s"),
    F32("wait_s", "s"),
    F32("update_s", "s"),
    F32("eval_s", "s"),
    F32("checkpoint_s", "s"),
    F32("loss", "-"),
    F32("lr", "-"),
    F32("grad_norm", "-"),
    F32("staleness", "-"),
    {"samples", "-", VB_COL_U32},
    {"waited_for", "rank", VB_COL_I32},
    F32("waited_s", "s"),
    {"flags", "-", VB_COL_U32},
    F32("noise_scale", "samples"),
    F32("noise_scale_error", "samples"),
};

static const struct vb_col eval_cols[] = {
    U64("step", "-"),
    U64("end_ns", "ns"),
    {"loss", "-", VB_COL_F64},
    {"accuracy", "-", VB_COL_F64},
};

static const struct vb_col usage_cols[] = {
    U64("at_ns", "ns"),       U64("cpu_ns", "ns"),         U64("rss_bytes", "B"),
    U64("minor_faults", "-"), U64("major_faults", "-"),    U64("switches", "-"),
    U64("preempted", "-"),    U64("disk_read_bytes", "B"), U64("disk_written_bytes", "B"),
    U64("sent_bytes", "B"),   U64("received_bytes", "B"),
};

static const struct vb_col thread_cols[] = {
    U64("at_ns", "ns"),
    U64("cpu_ns", "ns"),
    {"tid", "-", VB_COL_U32},
    {"cpu", "-", VB_COL_I32},
};

static const struct vb_col host_cols[] = {
    U64("at_ns", "ns"),
    U64("busy_ns", "ns"),
    U64("idle_ns", "ns"),
    U64("memory_used_bytes", "B"),
    U64("memory_bytes", "B"),
    U64("disk_read_bytes", "B"),
    U64("disk_written_bytes", "B"),
    F32("mhz", "MHz"),
    {"cpus", "-", VB_COL_U32},
};

static const struct vb_col port_cols[] = {
    U64("at_ns", "ns"),       U64("sent_bytes", "B"),       U64("received_bytes", "B"),
    U64("sent_packets", "-"), U64("received_packets", "-"), U64("errors", "-"),
};

const struct vb_series_kind vb_kind_steps = KIND("steps", struct vb_step_row, step_cols);
const struct vb_series_kind vb_kind_evals = KIND("evals", struct vb_eval_row, eval_cols);
const struct vb_series_kind vb_kind_usage = KIND("usage", struct vb_usage_row, usage_cols);
const struct vb_series_kind vb_kind_threads = KIND("threads", struct vb_thread_row, thread_cols);
const struct vb_series_kind vb_kind_host = KIND("host", struct vb_host_row, host_cols);
const struct vb_series_kind vb_kind_port = KIND("port", struct vb_port_row, port_cols);
