/* SPDX-License-Identifier: MIT
 *
 * verbena bench kernels: the only bench that runs without ranks.
 */
#ifndef VB_CLI_BENCH_CMD_BENCH_KERNELS_H
#define VB_CLI_BENCH_CMD_BENCH_KERNELS_H

#include "bench/bench.h"

/* Finds the layers of a model by its name. Returns -1 on success. Otherwise the function prints one
 * line and returns the exit code. */
int cli_bench_kernels_find(const char *model, const struct vb_layer_table **table_p);

/* Pins the threads, and then measures. If opts->threads is 0, the number of threads is chosen for
 * the machine. Returns the exit code. */
int cli_bench_kernels(struct vb_bench_kernels *opts);

#endif
