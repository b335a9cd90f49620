/* SPDX-License-Identifier: MIT
 *
 * The options of verbena train.
 */
#ifndef VB_CLI_TRAIN_TRAIN_OPTS_H
#define VB_CLI_TRAIN_TRAIN_OPTS_H

#include "cli/hosts_opts.h"

struct train_args {
    const char *data, *test_data;
    double test_split;
    int64_t input, features, batch, global_batch;
    int64_t epochs, steps, samples;
    int64_t seed, threads;
    double lr, momentum, weight_decay, clip;
    int64_t warmup;
    int schedule, rule;
    int64_t eval_every, test_limit, checkpoint_every;
    const char *checkpoint, *run, *plan;
    bool resume, dry_run;
    int mode, order, algo, wire;
    int64_t bucket, defer_bytes, shared_update_min, check_replicas;
    int64_t servers, replicas, staleness, backup, max_workers;
    bool dedicated, hogwild;
    const char *slow, *join;
    int pin;
    bool json;
};

#define TRAIN_GROUPS (5 + CLI_RANK_GROUPS)

/* The values of all options of the command, and the groups of options that fill in the values. */
struct train_asked {
    struct train_args args;
    struct cli_hosts hosts;
    struct cli_job job;
    struct vb_opt_group groups[TRAIN_GROUPS];
};

/* Makes *a ready for cli_parse(). The groups point into *a, which must not move. */
void cli_train_asked_init(struct train_asked *a);

/* Names of option values. Each list ends with NULL. */
extern const char *const cli_train_modes[]; /* in the order of enum vb_mode */
extern const char *const cli_train_rules[]; /* "auto", then the names that the engine knows */

#endif
