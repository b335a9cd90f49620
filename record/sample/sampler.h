/* SPDX-License-Identifier: MIT
 *
 * The sampler: what a process uses of its host. It is a tick of the recorder. Each rank samples its
 * own process; one rank of a host samples the host, its network interfaces and its RDMA ports too
 * (kinds.h has the rows). It also keeps the averages and peaks that the result of a run has, for
 * which it needs no run folder.
 */
#ifndef VB_RECORD_SAMPLE_SAMPLER_H
#define VB_RECORD_SAMPLE_SAMPLER_H

#include "record/folder/recorder.h"

struct vb_sampler;

struct vb_sampler_opts {
    int rank;          /* rows go to files in rankR/ */
    int ranks_on_host; /* above eight, each samples less often */
    int threads;       /* that compute together; 0: one */
    bool write;        /* false: no rows, only averages and peaks */
    bool host;         /* this rank samples the host, too */
    bool ports;        /* ... and the network interfaces and RDMA ports that it sees */
    bool quiet;        /* says nothing of files that are missing */
    const char *root;  /* put before /proc and /sys, for tests; NULL: "" */
};

/* Adds the sampler to a recorder that was not started yet. The recorder owns it. */
vb_status vb_sampler_open(struct vb_recorder *rec, const struct vb_sampler_opts *opts,
                          struct vb_sampler **sampler_p);

/* From now on this rank samples the host, and its interfaces and ports, too. By a tick of the
 * recorder; a second call does nothing. Accepts NULL. */
void vb_sampler_take(struct vb_sampler *s, bool host, bool ports);

/* How many descriptors a sampler that writes has open, with the files that its rows go to. Each
 * part that has begun has one more, whether the sampler writes or not. */
int vb_sampler_fds(bool host);

/* ---- averages and peaks ---------------------------------------------------------------------- */

/* A process has several parts if servers are threads of it. The first part has the CPU time of all
 * threads that belong to no other part. */
enum vb_sampler_part { VB_PART_RANK, VB_PART_SERVER, VB_PART_STANDBY, VB_PARTS };

/* Returns how many bytes were sent and received so far. Any thread may call it. */
typedef void (*vb_bytes_fn)(void *arg, uint64_t *sent_p, uint64_t *received_p);

/* The functions below accept NULL for the sampler. */

/* Says where the bytes of a part are counted from now on. What was counted before is kept. fn NULL:
 * nowhere; arg may then be freed. */
void vb_sampler_source(struct vb_sampler *s, enum vb_sampler_part part, vb_bytes_fn fn, void *arg);

/* The averages and peaks of a part begin here. The part of a server is the calling thread. */
void vb_sampler_begin(struct vb_sampler *s, enum vb_sampler_part part);

/* A peak is the highest average over a second, or over the whole time if that is shorter. MB are
 * 10^6 bytes. */
struct vb_usage {
    double seconds;
    double cpu_pct_peak; /* of one CPU */
    double send_mb_s, send_mb_s_peak, recv_mb_s, recv_mb_s_peak;
    double disk_read_mb_s, disk_read_mb_s_peak, disk_write_mb_s, disk_write_mb_s_peak;
    double queue_s;     /* how long the calling thread, or its team, had no core to run on */
    double thread_s;    /* CPU time of the calling thread */
    double host_busy_s; /* CPU time of all processes of the machine */
    uint64_t machine;   /* a digest of its name, the same for all processes of a machine */
};

/* Returns the figures of the time since vb_sampler_begin(). Called by the same thread as
 * vb_sampler_begin(). queue_s, host_busy_s: negative if the kernel does not tell. machine: 0. */
struct vb_usage vb_sampler_usage(struct vb_sampler *s, enum vb_sampler_part part);

#endif
