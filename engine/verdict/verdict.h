/* SPDX-License-Identifier: MIT
 *
 * The verdict on a run: what limits its speed, with the figures that show it, and what would help.
 * Pure functions: facts in, verdict out. docs/verdict.md explains the rules.
 */
#ifndef VB_ENGINE_VERDICT_VERDICT_H
#define VB_ENGINE_VERDICT_VERDICT_H

#include "base/base.h"

/* The first five are older than the others: programs know their numbers. */
enum vb_resource {
    VB_COMPUTE,
    VB_NETWORK,
    VB_STRAGGLER,
    VB_INPUT,
    VB_DISK,
    VB_CORES,        /* threads were ready to run, but had no core */
    VB_SERVER,       /* of the parameter server */
    VB_MIXED,        /* two causes, which are told */
    VB_INCONCLUSIVE, /* nothing that was recorded explains most of the loss */
    VB_RESOURCES,
};

const char *vb_resource_str(enum vb_resource resource); /* name in the JSON result: "compute" ... */

/* ---- facts ----------------------------------------------------------------------------------- */

/* A worker or a server. The times of a worker add up to the time of training without
 * evaluations. */
struct vb_verdict_rank {
    int rank;
    const char *host;
    uint64_t machine;  /* the same for ranks of one machine */
    double data_s;     /* waiting for a batch */
    double compute_s;  /* forward, backward, update; a server: applying gradients */
    double comm_s;     /* transfer that no computing hides; a server: receiving and answering */
    double wait_s;     /* for a slower rank; a server: for gradients */
    double save_s;     /* checkpoints */
    double queue_s;    /* ready to run, but without a core; negative: not known */
    double thread_s;   /* CPU time of the thread that trains, or serves */
    double cpu_s;      /* CPU time of the process */
    double busy_s;     /* CPU time of all processes of its machine; negative: not known */
    double late_s;     /* how long the rank that waited longest for this one has waited */
    double late_max_s; /* the longest of these waits */
    int64_t late_n;
    double sent_bytes, received_bytes; /* by the transports, in training */
    double read_mb_s, write_mb_s;      /* disk */
    double read_peak_mb_s, write_peak_mb_s;
};

struct vb_verdict_facts {
    const struct vb_verdict_rank *workers, *servers;
    int n_workers, n_servers;
    bool apart;    /* each worker makes its own steps */
    bool bounded;  /* ... but waits for the slowest one */
    int64_t steps; /* of one worker, in this run */
    double steps_per_s;
    double samples_per_s;  /* of all workers */
    int batch;             /* of one worker */
    const char *transport; /* "": nothing was transferred */
    const char *algo;      /* NULL: none */
    bool narrow;           /* gradients are sent as bfloat16, or cannot be */
    double grad_bytes;     /* of one gradient */
    int cpus;              /* that the ranks of this machine may use */
    int threads;           /* of the job that work on this machine */
    double gflop;          /* floating-point operations of a worker's step; 0: not known */

    /* Ceilings, measured on these machines; 0: not known. */
    double peak_gflop_s, peak_gb_s; /* matrix product and memory, of one rank */
    double link_us, link_gb_s;      /* latency and bandwidth of a link */
    double sum_gb_s;
    bool mapped;  /* ranks read each other's memory */
    int requests; /* sums in a step */

    /* The sums of a step, as the cost model predicts their time: with this algorithm, and with the
     * best one; 0: not known. */
    double algo_us, best_algo_us;
    const char *best_algo;
};

/* ---- the verdict ----------------------------------------------------------------------------- */

/* A figure that was achieved, and the highest that this machine can reach. */
struct vb_evidence {
    char name[32];
    double value, ceiling; /* ceiling: NAN if there is none */
    char unit[12];
};

struct vb_advice {
    char change[96];
    double steps_per_s;   /* expected */
    double samples_per_s; /* of all workers; a step may have another number of samples than now */
};

struct vb_cause {
    enum vb_resource resource;
    double share;
};

#define VB_EVIDENCE_MAX 24
#define VB_ADVICE_MAX 6

struct vb_bottleneck {
    enum vb_resource resource;
    double share; /* of the time of training without evaluations, as others wait: docs/verdict.md */
    /* network: "bandwidth", "latency"; straggler: "compute", "data", "link", "neighbour"; cores:
     * "threads", "neighbour"; disk: "read", "checkpoint"; "": none */
    char kind[16];
    int rank; /* the straggler; -1: no rank is accused */
    char why[320];
    struct vb_cause causes[VB_RESOURCES]; /* computing and the losses, largest first */
    struct vb_evidence evidence[VB_EVIDENCE_MAX];
    struct vb_advice advice[VB_ADVICE_MAX];
    int n_causes, n_evidence, n_advice;
};

/* Judges a run. If it made no step, why is "". */
void vb_verdict(const struct vb_verdict_facts *facts, struct vb_bottleneck *verdict_p);

#endif
