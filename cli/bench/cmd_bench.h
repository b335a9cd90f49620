/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the bench command share.
 */
#ifndef VB_CLI_BENCH_CMD_BENCH_H
#define VB_CLI_BENCH_CMD_BENCH_H

#include "bench/bench.h"
#include "cli/job_opts.h"

/* ---- the parameter server (cmd_bench_ps.c) --------------------------------------------------- */

#define CLI_PS_KEYS "1,10,100,1000,2000,10000"
#define CLI_PS_KEYS_MAX 32

extern const char *const cli_ps_rules[]; /* in the order of enum vb_k_rule_kind */

struct cli_bench_ps {
    int64_t keys[CLI_PS_KEYS_MAX];
    int n_keys;
    int64_t features;
    int servers;
    enum vb_k_rule_kind rule;
};

/* Checks the options and fills in *ps_p. world: number of ranks. Returns -1 on success. Otherwise
 * the function prints one line and returns the exit code. */
int cli_bench_ps_check(const char *keys, int64_t features, int64_t servers, int rule, int world,
                       struct cli_bench_ps *ps_p);

/* Measures together with the other ranks of the group. Rank 0 prints the result. */
vb_status cli_bench_ps(struct vb_group *group, const struct cli_bench_ps *ps,
                       const struct vb_bench_opts *o, int64_t *wrong_p);

/* ---- parts of a training step (cmd_bench_step.c) --------------------------------------------- */

struct cli_bench_step {
    const char *model, *batches, *data, *plot; /* NULL: the option was not given */
    int64_t threads;
    double seconds;
    bool json, fast_math, refine;
};

/* Checks the arguments and fills in *o for the engine. elsewhere: rank 0 will run on another host,
 * and the file of --plot is written there. Returns -1 on success. Otherwise the function prints one
 * line and returns the exit code. */
int cli_bench_step_check(const struct cli_bench_step *args, const struct vb_launch *launch,
                         const struct vb_group_opts *group, bool elsewhere, struct vb_step_opts *o);

/* Measures together with the other ranks. Rank 0 prints the result. Returns the exit code. */
int cli_bench_step(const struct cli_bench_step *args, struct vb_step_opts *o);

/* ---- gnuplot (bench_step_plot.c) ------------------------------------------------------------- */

/* Checks that the file (.png, .svg, .pdf or .gp) can be written on this host. Returns -1 on
 * success. Otherwise the function prints one line and returns the exit code. */
int cli_step_plot_check(const char *path);

/* Writes the plot. A .gp file is the gnuplot script with the data. Files of other formats are drawn
 * by gnuplot. */
vb_status cli_step_plot(const char *path, const char *model, const struct vb_step_result *result);

#endif
