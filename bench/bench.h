/* SPDX-License-Identifier: MIT
 *
 * bench/: microbenchmarks of the engine's layers. Each one verifies first and then measures. Rank 0
 * prints a table or, with json, one flat object per line.
 */
#ifndef VB_BENCH_BENCH_H
#define VB_BENCH_BENCH_H

#include "doctor/doctor.h"
#include "engine/engine.h"
#include "models/models.h"
#include "net/net.h"

#define VB_BENCH_SIZES_MAX 32

/* The measurements of bench transfer, for each size. */
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
    double seconds; /* for each measurement */
    bool json;

    unsigned parts; /* transfer: a bit for each enum vb_bench_part */

    /* For the collectives. */
    enum vb_algo algos[VB_ALGOS]; /* measured one after the other */
    int n_algos;                  /* 0: all that are possible */
    enum vb_order order;
    enum vb_wire wire;
    int in_flight; /* operations that share the bytes of an allreduce */
    bool explain;  /* print the cost model's prediction beside each measurement */

    /* For the sparse allreduce. */
    enum vb_sparse_path paths[3];
    int n_paths;
    int64_t features;
};

/* Parses a list such as "8,64K,1M". */
bool vb_bench_parse_sizes(const char *text, struct vb_bench_opts *opts);

/* Parse "auto", "all", or names such as "mapped,exchange"; the second function is for the paths of
 * the sparse allreduce. */
bool vb_bench_parse_algos(const char *text, struct vb_bench_opts *opts);
bool vb_bench_parse_paths(const char *text, struct vb_bench_opts *opts);

/* Parses "all", or names such as "put-latency,get". */
bool vb_bench_parse_parts(const char *text, struct vb_bench_opts *opts);

/* A line of the table. Negative numbers were not measured. */
struct vb_bench_line {
    const char *transport;
    int ranks;
    const char *op, *dir;
    size_t bytes;
    double p50_us, p99_us, gb_s;
    double pct;                       /* percentage of the speed one level below */
    const char *below;                /* the name of the level below; "": none */
    int64_t retries, out_of_seq, rnr; /* counted by the RDMA ports of all hosts */
};

void vb_bench_print_head(bool json);
void vb_bench_print(const struct vb_bench_line *line, bool json);

/* The counters of the RDMA ports of all hosts. They are read only if data goes over verbs. All
 * functions are collective. */
struct vb_bench_ports {
    struct vb_group *group;
    bool on, speaks; /* the counters are read; this rank reads those of its host */
    struct vb_port_list start, last;
};

vb_status vb_bench_ports_start(struct vb_group *group, struct vb_bench_ports *ports);

/* Sums what all ports counted since the last call or the start. Negative if the counters are not
 * read. */
vb_status vb_bench_ports_next(struct vb_bench_ports *ports, int64_t moved[VB_PORT_TROUBLES]);

/* Rank 0 prints a line for each port, with its counts at the start and at the last call. */
vb_status vb_bench_ports_print(const struct vb_bench_ports *ports);

/* The speeds that the next higher level is compared with. The lowest level is memcpy between two
 * mappings, for the larger sizes. */
struct vb_bench_rungs {
    double gb_s[VB_BENCH_SIZES_MAX]; /* of the level below; 0: none */
    char below[16];                  /* the name of the level below; "": none */
};

vb_status vb_bench_memcpy(const struct vb_bench_opts *opts, struct vb_bench_rungs *rungs);

/* Measures put and get between ranks 0 and 1: one-way latency, and bandwidth in one and in both
 * directions. With three ranks or more it also measures a round in which every rank puts to the
 * next. Collective. wrong_p counts bytes that arrived with wrong contents. */
vb_status vb_bench_transfer(struct vb_group *group, const struct vb_bench_opts *opts,
                            struct vb_bench_rungs *rungs, int64_t *wrong_p);

#define VB_BENCH_PAIR_OPS 8

/* Tests put and get between each two of n ranks, one pair after the other: verifies both
 * directions, then measures. ranks is in ascending order. pairs must have room for n * (n - 1) / 2
 * entries and is filled on every rank. ops is borrowed until the group is closed. The group must
 * not have a progress thread. Collective. */
vb_status vb_bench_pairs(struct vb_group *group, const int *ranks, int n, double seconds,
                         struct vb_op ops[VB_BENCH_PAIR_OPS], struct vb_pair *pairs);

/* Measures allreduces of each size by each algorithm. Collective. On rank 0, *wrong_p counts wrong
 * sums on all ranks. */
vb_status vb_bench_allreduce(struct vb_group *group, const struct vb_bench_opts *opts,
                             int64_t *wrong_p);

/* Measures sparse allreduces. A size is the size of one rank's list including duplicates, at 8
 * bytes per entry. */
vb_status vb_bench_sparse(struct vb_group *group, const struct vb_bench_opts *opts,
                          int64_t *wrong_p);

/* Measures the kernels in one process without a group. The line "all" is the total of the chosen
 * kernels of all layers that have a FLOP count. */
struct vb_bench_kernels {
    const struct vb_layer_table *table;
    int batch;
    int threads;    /* the size of the calling thread's team */
    double seconds; /* for each measurement, which has at least three runs */
    bool json;
};

vb_status vb_bench_kernels(const struct vb_bench_kernels *opts);

/* The largest error that is accepted. Winograd's kernels have the largest rounding errors. */
#define VB_BENCH_OFF_MAX 1e-3

/* Returns VB_ERR_UNSUPPORTED if the error of a backend is larger. The message names the layer, the
 * pass and the backend. */
vb_status vb_bench_kernels_check(const char *layer, enum vb_k_pass pass,
                                 const struct vb_k_checked *checked, int n);

#endif
