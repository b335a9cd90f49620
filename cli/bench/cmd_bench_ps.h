/* SPDX-License-Identifier: MIT
 *
 * verbena bench ps: measures the parameter server.
 */
#ifndef VB_CLI_BENCH_CMD_BENCH_PS_H
#define VB_CLI_BENCH_CMD_BENCH_PS_H

#include "bench/bench.h"

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

#endif
