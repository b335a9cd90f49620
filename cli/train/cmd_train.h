/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the train command share.
 */
#ifndef VB_CLI_TRAIN_CMD_TRAIN_H
#define VB_CLI_TRAIN_CMD_TRAIN_H

#include "cli/job_opts.h"

/* ---- options (train_opts.c) ------------------------------------------------------------------ */

struct train_args {
    const char *data, *test_data;
    double test_split, record_rate;
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

/* ---- what the job needs (train_fits.c) ------------------------------------------------------- */

/* Checks that the job fits into the limits of this process and, unless this process is a rank, of
 * this host. Raises the soft limit of open files if needed. Returns -1 if it fits; otherwise prints
 * one line and returns the exit code. */
int cli_train_fits(const struct cli_job *job, const struct vb_launch *launch,
                   const struct vb_train_opts *o);

/* Print what each rank and this host need, as text and as the object "needs". */
void cli_train_print_need(const struct vb_train_opts *o);
void cli_train_json_need(struct vb_json *json, const struct vb_train_opts *o);

/* ---- output (train_print.c) ------------------------------------------------------------------ */

/* Prints the result to standard output, as text or as the final object (JSON). */
vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *result, bool json);

/* Makes the folder and checks that cli_train_keep() can write its files there. Called before
 * training, so that a bad path is found at once. */
vb_status cli_train_may_keep(const char *dir);

/* Writes the final object to dir/run.json and the choice of kernels to dir/plan. Makes the folder
 * if it is missing. */
vb_status cli_train_keep(const char *dir, const char *mode, const struct vb_train_opts *o,
                         const struct vb_train_result *result);

/* Prints the figures of a worker that joined the job at root. Called if another rank reports the
 * result. */
vb_status cli_train_print_joined(const char *root, const struct vb_train_opts *o,
                                 const struct vb_train_result *result, bool json);

/* The place where progress is shown: nowhere, on this process's terminal, or by the supervisor,
 * which reads this process's standard error. */
enum cli_screen { CLI_NO_SCREEN, CLI_TERMINAL, CLI_SUPERVISOR };

/* cli_train_watch() shows progress as one line. It is a vb_train_watch_fn, and screen points to an
 * enum cli_screen. cli_train_watch_end() erases the line. */
void cli_train_watch(void *screen, const struct vb_train_news *news);
void cli_train_watch_end(enum cli_screen screen);

#endif
