/* SPDX-License-Identifier: MIT
 *
 * verbena bench step: measures the parts of a training step.
 */
#ifndef VB_CLI_BENCH_CMD_BENCH_STEP_H
#define VB_CLI_BENCH_CMD_BENCH_STEP_H

#include "cli/job_opts.h"
#include "engine/engine.h"
#include "launch/launch.h"

struct cli_bench_step {
    const char *model, *batches, *data, *plot; /* NULL: the option was not given */
    int64_t threads;
    double seconds;
    bool json;
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
