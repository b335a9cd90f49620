/* SPDX-License-Identifier: MIT
 *
 * bench/: microbenchmarks over the engine's own layers. Each verifies first and times after; rank 0
 * prints a table or, with json, one flat object a line.
 */
#ifndef VB_BENCH_H
#define VB_BENCH_H

#include "engine/engine.h"
#include "models/models.h"
#include "net/net.h"

#define VB_BENCH_SIZES_MAX 32

/* What transfer measures of each size. */
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
    double seconds; /* of each measurement */
    bool json;

    unsigned parts; /* of transfer: bits of enum vb_bench_part */

    /* The collectives. */
    enum vb_algo algos[VB_ALGOS]; /* to measure, one after the other */
    int n_algos;                  /* 0: all that are possible */
    enum vb_order order;
    enum vb_wire wire;
    int in_flight; /* operations that share the bytes of an allreduce */
    bool explain;  /* what the model said, beside what was measured */

    /* The sparse one. */
    enum vb_sparse_path paths[3];
    int n_paths;
    int64_t features;
};

/* "8,64K,1M" */
bool vb_bench_parse_sizes(const char *text, struct vb_bench_opts *opts);

/* "auto", "all", or names such as "mapped,exchange"; the same for the paths of the sparse one. */
bool vb_bench_parse_algos(const char *text, struct vb_bench_opts *opts);
bool vb_bench_parse_paths(const char *text, struct vb_bench_opts *opts);

/* "all", or names such as "put-latency,get". */
bool vb_bench_parse_parts(const char *text, struct vb_bench_opts *opts);

/* A line of the table. Negative numbers were not measured. */
struct vb_bench_line {
    const char *transport;
    int ranks;
    const char *op, *dir;
    size_t bytes;
    double p50_us, p99_us, gb_s;
    double pct;                       /* of the rung below */
    const char *below;                /* its name; "": there is none */
    int64_t retries, out_of_seq, rnr; /* that the RDMA ports of all hosts counted meanwhile */
};

void vb_bench_print_head(bool json);
void vb_bench_print(const struct vb_bench_line *line, bool json);

/* The counters of the RDMA ports of all hosts, where bytes go over verbs; elsewhere nothing is
 * read. All calls are collective. */
struct vb_bench_ports {
    struct vb_group *group;
    bool on, speaks; /* counters matter; this rank reads those of its host */
    struct vb_port_list start, last;
};

vb_status vb_bench_ports_start(struct vb_group *group, struct vb_bench_ports *ports);

/* What all ports counted since the last call or the start, negative: nothing is read. */
vb_status vb_bench_ports_next(struct vb_bench_ports *ports, int64_t moved[VB_PORT_TROUBLES]);

/* Rank 0 prints a line a port: what it had counted at the start, and at the last call. */
vb_status vb_bench_ports_print(const struct vb_bench_ports *ports);

/* The lowest rung of the ladder: memcpy between two mappings, for the larger sizes. Remembered in
 * rungs for what comes above. */
struct vb_bench_rungs {
    double gb_s[VB_BENCH_SIZES_MAX]; /* of the rung below, 0: none */
    char below[16];                  /* its name, "": none */
};

vb_status vb_bench_memcpy(const struct vb_bench_opts *opts, struct vb_bench_rungs *rungs);

/* Put and get between ranks 0 and 1: latency one way, bandwidth in one and in both directions; with
 * three ranks or more also a round in which every rank puts to the next. Collective. wrong_p counts
 * bytes that did not arrive as sent. */
vb_status vb_bench_transfer(struct vb_group *group, const struct vb_bench_opts *opts,
                            struct vb_bench_rungs *rungs, int64_t *wrong_p);

#define VB_BENCH_PAIR_OPS 8

/* Put and get between every two of n ranks, which are given in rising order, one pair after the
 * other: verified both ways, then timed. pairs has room for n * (n - 1) / 2, and is filled on every
 * rank. ops are borrowed until the group is closed; the group has no progress thread. Collective.
 */
vb_status vb_bench_pairs(struct vb_group *group, const int *ranks, int n, double seconds,
                         struct vb_op ops[VB_BENCH_PAIR_OPS], struct vb_pair *pairs);

/* Allreduces of each size by each algorithm. Collective. wrong_p, on rank 0, counts what was not
 * the sum, on any rank. */
vb_status vb_bench_allreduce(struct vb_group *group, const struct vb_bench_opts *opts,
                             int64_t *wrong_p);

/* Sparse allreduces: a size is that of one rank's list, with duplicates, 8 bytes an entry. */
vb_status vb_bench_sparse(struct vb_group *group, const struct vb_bench_opts *opts,
                          int64_t *wrong_p);

/* The kernels: no group, one process. The line "all" sums up what was chosen of the layers that are
 * counted in FLOPs. */
struct vb_bench_kernels {
    const struct vb_layer_table *table;
    int batch;
    int threads;    /* of the calling thread's team */
    double seconds; /* of each measurement, at least three runs */
    bool json;
};

vb_status vb_bench_kernels(const struct vb_bench_kernels *opts);

/* Winograd's kernels round most: by up to 1e-4 on AlexNet. */
#define VB_BENCH_OFF_MAX 1e-3

/* VB_ERR_UNSUPPORTED, naming layer, pass and backend, if one is off by more. */
vb_status vb_bench_kernels_judge(const char *layer, enum vb_k_pass pass,
                                 const struct vb_k_checked *checked, int n);

#endif
