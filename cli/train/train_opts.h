/* SPDX-License-Identifier: MIT
 *
 * The options of verbena train.
 */
#ifndef VB_CLI_TRAIN_TRAIN_OPTS_H
#define VB_CLI_TRAIN_TRAIN_OPTS_H

#include "cli/job_opts.h"

struct train_args {
    const char *data, *test_data;
    double test_split;
    int64_t input, features, seed, threads, eval_every, test_limit;
    struct vb_train_length_opts length;
    struct vb_train_learn_opts learn; /* without learn.rule, which is a text */
    struct vb_train_save_opts save;
    struct vb_train_sums_opts sums;
    int rule, mode, pin;
    int64_t servers, replicas, staleness, backup, max_workers;
    bool dedicated, hogwild, dry_run, json;
    const char *run, *plan, *slow, *join;
};

#define TRAIN_GROUPS (5 + CLI_JOB_GROUPS)

/* The values of all options of the command, and the groups of options that fill in the values. */
struct train_asked {
    struct train_args args;
    struct cli_job job;
    struct vb_opt_group groups[TRAIN_GROUPS];
};

/* Makes *a ready for cli_parse(). The groups point into *a, which must not move. */
void cli_train_asked_init(struct train_asked *a);

/* Names of option values. Each list ends with NULL. */
extern const char *const cli_train_modes[]; /* in the order of enum vb_mode */
extern const char *const cli_train_rules[]; /* "auto", then the names that the engine knows */

#endif
