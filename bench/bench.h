/* SPDX-License-Identifier: MIT
 *
 * bench/: microbenchmarks of the engine's layers. Each benchmark verifies results first and then
 * measures. Rank 0 prints a table or, with json, one flat object per line.
 */
#ifndef VB_BENCH_BENCH_H
#define VB_BENCH_BENCH_H

#include "doctor/doctor.h"
#include "engine/engine.h"
#include "models/models.h"
#include "net/net.h"

#define VB_BENCH_SIZES_MAX 32

/* The measurements that bench transfer makes for each size. */
enum vb_bench_part {
    VB_BENCH_MEMCPY,
    VB_BENCH_PUT_LATENCY,
    VB_BENCH_PUT,
    VB_BENCH_BOTH, /* puts in both directions */
    VB_BENCH_GET_LATENCY,
    VB_BENCH_GET,
    VB_BENCH_ROUND,
    VB_BENCH_PARTS
};

struct vb_bench_opts {
    size_t sizes[VB_BENCH_SIZES_MAX];
    int n_sizes;
    double seconds; /* duration of each measurement */
    bool json;

    unsigned parts; /* bench transfer: one bit for each enum vb_bench_part */

    /* options of the collectives */
    enum vb_algo algos[VB_ALGOS]; /* algorithms that are measured one after the other */
    int n_algos;                  /* 0: all algorithms that are possible */
    enum vb_order order;
    enum vb_wire wire;
    int in_flight; /* number of operations that share the bytes of an allreduce */
    bool explain;  /* print the cost model's prediction beside each measurement */

    /* options of the sparse allreduce */
    enum vb_sparse_path paths[3];
    int n_paths;
    int64_t features;
};

/* Parses a list of sizes such as "8,64K,1M". Returns false if text is something else. */
bool vb_bench_parse_sizes(const char *text, struct vb_bench_opts *opts);

/* Parse "auto", "all", or a list such as "mapped,exchange"; of the sparse allreduce, its paths. */
bool vb_bench_parse_algos(const char *text, struct vb_bench_opts *opts);
bool vb_bench_parse_paths(const char *text, struct vb_bench_opts *opts);

/* Parses "all", or a list of names such as "put-latency,get". */
bool vb_bench_parse_parts(const char *text, struct vb_bench_opts *opts);

/* One line of the table. A negative number means that the value was not measured. */
struct vb_bench_line {
    const char *transport;
    int ranks;
    const char *op, *dir;
    size_t bytes;
    double p50_us, p99_us, gb_s;
    double pct;                       /* percentage of the speed one level below */
    const char *below;                /* name of the level below; "": there is none */
    int64_t retries, out_of_seq, rnr; /* counted by the RDMA ports of all hosts */
};

void vb_bench_print_head(bool json);
void vb_bench_print(const struct vb_bench_line *line, bool json);

/* The counters of the RDMA ports of all hosts, read only if data goes over verbs. Collective. */
struct vb_bench_ports {
    struct vb_group *group;
    bool on, speaks; /* the counters are read; this rank reads those of its host */
    struct vb_port_list start, last;
};

vb_status vb_bench_ports_start(struct vb_group *group, struct vb_bench_ports *ports);

/* moved: the changes of all ports since the last call or the start; negative if not read. */
vb_status vb_bench_ports_next(struct vb_bench_ports *ports, int64_t moved[VB_PORT_TROUBLES]);

/* Rank 0 prints a line per port: counts at the start and at the last vb_bench_ports_next(). */
vb_status vb_bench_ports_print(const struct vb_bench_ports *ports);

/* The speeds of one level of the ladder. The lowest level is memcpy between two mappings. */
struct vb_bench_rungs {
    double gb_s[VB_BENCH_SIZES_MAX]; /* speed of the level below; 0: not measured */
    char below[16];                  /* name of the level below; "": there is none */
};

vb_status vb_bench_memcpy(const struct vb_bench_opts *opts, struct vb_bench_rungs *rungs);

/* Measures put and get between ranks 0 and 1: one-way latency, bandwidth in one direction and in
 * both; with more ranks, also a round of puts. Collective. *wrong_p: number of wrong bytes. */
vb_status vb_bench_transfer(struct vb_group *group, const struct vb_bench_opts *opts,
                            struct vb_bench_rungs *rungs, int64_t *wrong_p);

#define VB_BENCH_PAIR_OPS 8

/* Tests put and get between each two of n ranks, in turn: verifies both directions, then measures.
 * ranks: in ascending order. pairs: n * (n - 1) / 2 entries, filled on every rank. ops is borrowed
 * until the group is closed. The group must not have a progress thread. Collective. */
vb_status vb_bench_pairs(struct vb_group *group, const int *ranks, int n, double seconds,
                         struct vb_op ops[VB_BENCH_PAIR_OPS], struct vb_pair *pairs);

/* Measures allreduces of each size and algorithm. Collective. *wrong_p: wrong sums, on rank 0. */
vb_status vb_bench_allreduce(struct vb_group *group, const struct vb_bench_opts *opts,
                             int64_t *wrong_p);

/* Measures sparse allreduces. A size is a rank's list with duplicates, 8 bytes per entry. */
vb_status vb_bench_sparse(struct vb_group *group, const struct vb_bench_opts *opts,
                          int64_t *wrong_p);

/* Options for measuring kernels in one process without a group. The line "all" is the total of the
 * chosen kernels of all layers that have a FLOP count. */
struct vb_bench_kernels {
    const char *model;
    const struct vb_layer_table *table; /* NULL: the model is sparse, with so many features */
    int features;
    int batch;
    int threads;    /* number of threads in the calling thread's team */
    double seconds; /* duration of each measurement, which has at least three runs */
    bool fast_math; /* kernels that round more than sums of floats do may be chosen */
    bool json;
};

vb_status vb_bench_kernels(const struct vb_bench_kernels *opts);

/* The passes of a step of a sparse model, on generated rows. */
vb_status vb_bench_kernels_sparse(const struct vb_bench_kernels *opts);

/* The error of a backend, compared with that of a running sum of floats. */
struct vb_bench_rounding {
    const char *layer, *pass, *backend;
    int steps;    /* 0: the error of a pass; otherwise that of the parameters after these steps */
    double error; /* see struct vb_k_checked and vb_exact_steps_error() */
    double off;
    double running; /* the error of the backend VB_K_RUNNING */
    bool fast_math; /* the backend is chosen only with --fast-math */
};

#define VB_BENCH_STEPS 20
/* A backend is within the spread of single precision if its error is at most so many times that of
 * a running sum of floats. Sums in other orders differ by less. */
#define VB_BENCH_SPREAD_MAX 2.0
/* A smaller error of a running sum counts as this: a few roundings, as in results without sums. */
#define VB_BENCH_LEAST 6e-8
#define VB_BENCH_STEPS_LEAST 1e-7

bool vb_bench_rounding_within(const struct vb_bench_rounding *r);

/* Prints the errors of all backends for each pass of each layer, and after VB_BENCH_STEPS steps of
 * the model. Fails if a backend that needs no --fast-math is not within the spread. */
vb_status vb_bench_kernels_rounding(const struct vb_bench_kernels *opts);

/* The largest error that is accepted. Winograd's kernels have the largest rounding errors. */
#define VB_BENCH_OFF_MAX 1e-3

/* Fails with the layer, pass and backend of an error larger than VB_BENCH_OFF_MAX. */
vb_status vb_bench_kernels_check(const char *layer, enum vb_k_pass pass,
                                 const struct vb_k_checked *checked, int n);

#endif
