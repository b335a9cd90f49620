/* SPDX-License-Identifier: MIT
 *
 * Options and functions of commands whose ranks may run on other hosts: the options that name the
 * hosts, and the start of the ranks over ssh. Such a command calls cli_hosts_place() instead of
 * cli_job_place(), and then cli_hosts_launch() before cli_job_supervise().
 */
#ifndef VB_CLI_HOSTS_OPTS_H
#define VB_CLI_HOSTS_OPTS_H

#include "cli/job_opts.h"
#include "launch/launch.h"

struct cli_hosts {
    const char *hosts, *ssh, *program;
    struct vb_hosts parsed; /* filled in only in the launcher; cli_hosts_launch() frees it */
};

/* Fills in the groups of options that say where ranks run. Parsing these options fills in *hosts
 * and *job. */
#define CLI_RANK_GROUPS (1 + CLI_JOB_GROUPS)
void cli_rank_groups(struct cli_job *job, struct cli_hosts *hosts,
                     struct vb_opt_group groups[CLI_RANK_GROUPS]);

/* Like cli_job_place(). With --hosts, group->world is the number of ranks on all hosts, and a
 * process that is not one of these ranks becomes the launcher. */
int cli_hosts_place(const struct cli_command *command, struct cli_hosts *hosts,
                    const struct cli_job *job, struct vb_launch *launch,
                    struct vb_group_opts *group);

/* Starts the ranks on their hosts if --hosts was given. Returns true after the ranks have ended;
 * *code_p is then the exit code of the job. Returns false if this process is not the launcher. */
bool cli_hosts_launch(const struct cli_command *command, struct cli_hosts *hosts,
                      const struct cli_job *job, const struct vb_group_opts *group, int argc,
                      char **argv, int *code_p);

#endif
