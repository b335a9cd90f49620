/* SPDX-License-Identifier: MIT
 *
 * Options and functions of commands that run as several ranks: the options that say where the ranks
 * run, and the start of the supervisor.
 */
#ifndef VB_CLI_JOB_OPTS_H
#define VB_CLI_JOB_OPTS_H

#include "cli/cli.h"
#include "engine/engine.h"
#include "launch/launch.h"
#include "net/net.h"

struct cli_job {
    int64_t ranks, rank, world; /* 0: not given */
    bool has_rank;              /* set by the command: --rank was given, even if it is 0 */
    int64_t extra; /* set by the command: number of processes to start in addition to ranks */
    int64_t timeout_s;
    double patience;
    const char *root, *secret_file, *logs;
    int transport;
    const char *device, *bind;
    int spin;
    int verbs_imm;
    bool any_interface;
    bool hosts; /* set by cli_hosts_place(): --hosts was given */

    /* Set by the command; struct vb_supervise_opts explains these fields. If outlive is set,
     * workers that know the secret may join, so --secret-file is allowed together with --ranks and
     * --hosts. */
    bool outlive;
    int vital, vital_end, workers;
};

/* Names of option values that several commands have. Each list ends with NULL. */
extern const char *const cli_on_off[];
extern const char *const cli_orders[]; /* in the order of enum vb_order */
extern const char *const cli_wires[];  /* in the order of enum vb_wire */

/* Fills in the groups of options. Parsing these options fills in *job. */
#define CLI_JOB_GROUPS 3
void cli_job_groups(struct cli_job *job, struct vb_opt_group groups[CLI_JOB_GROUPS]);

/* Finds the group that this process belongs to, from the options and the environment. Returns -1 on
 * success. Otherwise the function prints one line and returns the exit code. */
int cli_job_place(const struct cli_command *command, const struct cli_job *job,
                  struct vb_launch *launch, struct vb_group_opts *group);

/* Becomes the supervisor of the ranks if this process has to start them. Returns true after the
 * ranks have ended; *code_p is then the exit code of the job. Returns false if this process is a
 * rank. argv: the command's arguments as they were before parsing. */
bool cli_job_supervise(const struct cli_command *command, const struct cli_job *job,
                       const struct vb_launch *launch, const struct vb_group_opts *group, int argc,
                       char **argv, int *code_p);

/* Starts and supervises ranks that run the same command. Returns the exit code of the job. */
int cli_supervise(const struct cli_command *command, struct vb_supervise_opts *opts, int argc,
                  char **argv);

/* Copies the options that concern only this process to *group. Does not change the secret in
 * *group. */
void cli_job_group(const struct cli_job *job, struct vb_group_opts *group);

/* Fills in opts: which ranks the job can lose, and the secret that the user chose. secret: the
 * secret that cli_job_place() found; borrowed. */
void cli_job_outlive(const struct cli_job *job, const unsigned char *secret,
                     struct vb_supervise_opts *opts);

/* Returns a copy of the argument list, because parsing reorders the list. The caller frees the
 * copy. Returns NULL if there is no memory. */
char **cli_job_arguments(int argc, char **argv);

#endif
