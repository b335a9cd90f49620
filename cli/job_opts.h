/* SPDX-License-Identifier: MIT
 *
 * Options and functions of commands that run as several ranks, on this host or on others: the
 * options that say where the ranks run, and the start of the ranks.
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
    double patience, detect_s;
    const char *root, *secret_file, *run_id, *logs;
    const char *run; /* set by the command: run folder, for logs without --logs; NULL: none */
    bool append;     /* set by the command: the logs in the run folder are continued */
    bool ours;       /* set by cli_job_place(): our own supervisor has started this process */
    char why[512];   /* set by cli_job_launch(): why the job has failed */
    int transport;
    const char *link;     /* NULL: the ranks of this host share the network */
    struct vb_link cable; /* set by cli_job_place(): what link says */
    const char *device, *bind;
    int spin;
    int verbs_imm;
    bool any_interface;
    const char *hosts, *ssh, *program;
    struct vb_hosts
        parsed;  /* filled in only in the launcher of --hosts; cli_job_launch() frees it */
    char **argv; /* (argc + 2) the whole command line, beginning with "verbena" and the command */
    int argc;    /* number of the command's arguments */

    /* Set by the command; struct vb_supervise_opts explains these fields. If outlive is set,
     * workers that know the secret may join, so --secret-file is allowed together with --ranks and
     * --hosts. */
    bool outlive;
    int vital, vital_end, workers;
    int restarts; /* set by the command: so many ranks that have died are started again */
    bool elastic; /* set by the command: the ranks of a synchronous job go on without those that die
                   */
};

/* Names of option values that several commands have. Each list ends with NULL. */
extern const char *const cli_on_off[];
extern const char *const cli_orders[]; /* in the order of enum vb_order */
extern const char *const cli_wires[];  /* in the order of enum vb_wire */

/* Fills in the groups of options. Parsing these options fills in *job. */
#define CLI_JOB_GROUPS 4
void cli_job_groups(struct cli_job *job, struct vb_opt_group groups[CLI_JOB_GROUPS]);

/* Like cli_parse(). Before, the command line is copied to job->argv, because parsing reorders it.
 * The caller frees job->argv, even if this function failed. */
int cli_job_parse(const struct cli_command *command, const struct vb_opt_group *groups,
                  int n_groups, int max_operands, int argc, char **argv, struct cli_job *job,
                  struct vb_opts *opts);

/* Finds the group that this process belongs to, from the options and the environment. With --hosts,
 * group->world is the number of ranks on all hosts, and a process that is not one of these ranks
 * becomes the launcher. group refers to *launch. Returns -1 on success. Otherwise the function
 * prints one line and returns the exit code. */
int cli_job_place(const struct cli_command *command, struct cli_job *job, struct vb_launch *launch,
                  struct vb_group_opts *group);

/* Returns whether this process has to supervise ranks. Called after cli_job_place(). */
bool cli_job_supervises(const struct cli_job *job, const struct vb_launch *launch);

/* Starts and supervises the ranks, on their hosts or on this one, if this process has to. Returns
 * true after the ranks have ended; *code_p is then the exit code of the job. Returns false if this
 * process is a rank. */
bool cli_job_launch(struct cli_job *job, const struct vb_launch *launch,
                    const struct vb_group_opts *group, int *code_p);

/* The times that follow from --detect and --patience. */
struct vb_times cli_job_times(const struct cli_job *job);

/* Fills *group with the defaults and the options that concern only this process. */
void cli_job_group(const struct cli_job *job, struct vb_group_opts *group);

/* Finds the secret of the job, if a launcher or the user gave one, and takes it out of launch. The
 * memory is kept until the process ends. Returns -1, or the exit code. */
int cli_job_secret(const struct cli_job *job, struct vb_launch *launch,
                   struct vb_group_opts *group);

#endif
