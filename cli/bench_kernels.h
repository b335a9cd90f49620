/* SPDX-License-Identifier: MIT
 *
 * verbena bench kernels: the part of the command that needs no ranks.
 */
#ifndef VB_CLI_BENCH_KERNELS_H
#define VB_CLI_BENCH_KERNELS_H

#include "bench/bench.h"

/* The table of a model by its name. Returns -1 to go on, or the exit code after one line that says
 * what is wrong. */
int cli_bench_kernels_find(const char *model, const struct vb_layer_table **table_p);

/* Pins the team first; threads 0: as the machine suggests. Returns the exit code. */
int cli_bench_kernels(struct vb_bench_kernels *opts);

#endif
