/* SPDX-License-Identifier: MIT
 *
 * verbena bench step: what a step of training is made of.
 */
#ifndef VB_CLI_BENCH_STEP_H
#define VB_CLI_BENCH_STEP_H

#include "cli/job.h"
#include "engine/engine.h"

struct cli_bench_step {
    const char *model, *batches, *data, *plot; /* NULL: not given */
    int64_t threads;
    double seconds;
    bool json;
};

/* What was asked for, as the engine takes it. Returns -1 to go on, or the exit code after one line
 * that says what is wrong. elsewhere: rank 0 will be on another host. */
int cli_bench_step_check(const struct cli_bench_step *args, const struct vb_launch *launch,
                         const struct vb_group_opts *group, bool elsewhere, struct vb_step_opts *o);

/* Measures, as one rank; rank 0 prints. Returns the exit code. */
int cli_bench_step(const struct cli_bench_step *args, struct vb_step_opts *o);

/* ---- gnuplot (bench_step_plot.c) ------------------------------------------------------------- */

/* Whether FILE.png, .svg, .pdf or .gp can be written here. Returns -1, or the exit code likewise.
 */
int cli_step_plot_check(const char *path);

/* A .gp file is the script with the data, for gnuplot; the others are what gnuplot makes of it. */
vb_status cli_step_plot(const char *path, const char *model, const struct vb_step_result *result);

#endif
