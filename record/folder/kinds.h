/* SPDX-License-Identifier: MIT
 *
 * The rows of the series that a run folder has. Each struct is one row; the tables in kinds.c name
 * its fields in the same order.
 */
#ifndef VB_RECORD_FOLDER_KINDS_H
#define VB_RECORD_FOLDER_KINDS_H

#include "record/folder/series.h"

/* Times are nanoseconds of the rank's monotonic clock; run.json has what corrects them. Counters
 * count from the start of the run. Values that were not measured are NAN. */

#define VB_RECORD_PHASES 8 /* in the order of enum vb_phase of the engine */

/* rankR/steps.bin: one row a step of a rank. Asynchronous training: one row a gradient. */
struct vb_step_row {
    uint64_t step;                       /* the number of the step that has ended, from 1 */
    uint64_t end_ns;                     /* when it ended */
    uint64_t sent_bytes, received_bytes; /* by the transport of the rank, since the start */
    float phase_s[VB_RECORD_PHASES];     /* time of each phase since the last row */
    float loss;                          /* per sample, of this rank's batch */
    float lr;
    float grad_norm;    /* of the summed gradient, measured now and then */
    float staleness;    /* asynchronous training */
    uint32_t samples;   /* of this rank in this step */
    int32_t waited_for; /* the rank that was waited for longest in this step, -1: none */
    float waited_s;
    uint32_t flags;                       /* VB_STEP_* */
    float noise_scale, noise_scale_error; /* of this rank so far, measured now and then */
};

enum { VB_STEP_EVALUATED = 1, VB_STEP_SAVED = 2, VB_STEP_AGAIN = 4 };

/* evals.bin: one row an evaluation. Asynchronous training: a worker that evaluates because rank 0
 * is gone writes rankR/evals.bin. */
struct vb_eval_row {
    uint64_t step, end_ns;
    double loss, accuracy;
};

/* rankR/usage.bin: the process of a rank, ten times a second. */
struct vb_usage_row {
    uint64_t at_ns;
    uint64_t cpu_ns; /* user and system time of the process, since the start of the run */
    uint64_t rss_bytes;
    uint64_t minor_faults, major_faults;
    uint64_t switches, preempted; /* voluntary and involuntary context switches */
    uint64_t disk_read_bytes, disk_written_bytes;
    uint64_t sent_bytes, received_bytes; /* by the transport of the rank */
};

/* rankR/threads.bin: CPU time of each thread of a rank; rows of one at_ns belong together. */
struct vb_thread_row {
    uint64_t at_ns;
    uint64_t cpu_ns;
    uint32_t tid;
    int32_t cpu; /* where it ran last */
};

/* rankR/host.bin, R being the lowest rank of a host: the host. */
struct vb_host_row {
    uint64_t at_ns;
    uint64_t busy_ns, idle_ns; /* of all CPUs together */
    uint64_t memory_used_bytes, memory_bytes;
    uint64_t disk_read_bytes, disk_written_bytes; /* of all disks */
    float mhz;                                    /* mean frequency of the CPUs */
    uint32_t cpus;
};

/* rankR/net-NAME.bin and rankR/rdma-DEVICE-PORT.bin: an interface or an RDMA port of the host. */
struct vb_port_row {
    uint64_t at_ns;
    uint64_t sent_bytes, received_bytes, sent_packets, received_packets, errors;
};

extern const struct vb_series_kind vb_kind_steps, vb_kind_evals, vb_kind_usage, vb_kind_threads,
    vb_kind_host, vb_kind_port;

#endif
