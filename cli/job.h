/* SPDX-License-Identifier: MIT
 *
 * What commands that run as several ranks share: the options that say where the ranks are, and
 * becoming their supervisor.
 */
#ifndef VB_CLI_JOB_H
#define VB_CLI_JOB_H

#include "cli/cli.h"
#include "engine/engine.h"
#include "net/net.h"

struct cli_job {
    int64_t ranks, rank, world; /* 0: not given */
    bool has_rank;              /* no option: --rank was, be it 0 */
    int64_t extra;              /* no option: processes to start beside the ranks */
    int64_t timeout_s;
    double patience;
    const char *root, *secret_file, *logs;
    int transport;
    const char *device, *bind;
    int spin;
    int verbs_imm;
    bool any_interface;
    bool hosts; /* no option: there is a list of hosts (cli/hosts.h) */

    /* No options: as in struct vb_supervise_opts. Then others may join, who know the secret, so the
     * user may say what it is. */
    bool outlive;
    int vital, vital_end, workers;
};

#define CLI_JOB_OPTS 14
extern const struct vb_opt cli_job_opts[CLI_JOB_OPTS];

/* The group that this process belongs to, from options and environment. Returns -1 to go on, or the
 * exit code after one line that says what is wrong. */
int cli_job_place(const struct cli_command *command, const struct cli_job *job,
                  struct vb_launch *launch, struct vb_group_opts *group);

/* True: this process was the supervisor of the ranks, which have ended; code_p is the job's. argv
 * are the command's own arguments, from before they were parsed. */
bool cli_job_supervise(const struct cli_command *command, const struct cli_job *job,
                       const struct vb_launch *launch, const struct vb_group_opts *group, int argc,
                       char **argv, int *code_p);

/* Becomes the supervisor of ranks that run the same command; returns the exit code. */
int cli_supervise(const struct cli_command *command, struct vb_supervise_opts *opts, int argc,
                  char **argv);

/* The options that are about this process alone, into a group whose secret is there already. */
void cli_job_group(const struct cli_job *job, struct vb_group_opts *group);

/* What a supervisor, or a launcher, needs of the job. secret: of cli_job_place(). */
void cli_job_outlive(const struct cli_job *job, const unsigned char *secret,
                     struct vb_supervise_opts *opts);

/* A copy of the arguments, before parsing moves them about. To be freed; NULL: no memory. */
char **cli_job_arguments(int argc, char **argv);

#endif
