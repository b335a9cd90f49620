/* SPDX-License-Identifier: MIT
 *
 * Commands whose ranks may be on other hosts: the options that say where, and becoming the
 * launcher. A command has these beside those of cli/job.h and calls cli_hosts_place() instead of
 * cli_job_place(), then cli_hosts_launch() before cli_job_supervise().
 */
#ifndef VB_CLI_HOSTS_H
#define VB_CLI_HOSTS_H

#include "cli/job.h"
#include "engine/engine.h"

struct cli_hosts {
    const char *hosts, *ssh, *program;
    struct vb_hosts parsed; /* of the launcher alone; cli_hosts_launch() gives it back */
};

#define CLI_HOSTS_OPTS 3
extern const struct vb_opt cli_hosts_opts[CLI_HOSTS_OPTS];

/* Like cli_job_place(). With --hosts the world is that of all hosts; whoever is not one of its
 * ranks becomes the launcher. */
int cli_hosts_place(const struct cli_command *command, struct cli_hosts *hosts,
                    const struct cli_job *job, struct vb_launch *launch,
                    struct vb_group_opts *group);

/* True: this process was the launcher of the ranks, which have ended; code_p is the job's. */
bool cli_hosts_launch(const struct cli_command *command, struct cli_hosts *hosts,
                      const struct cli_job *job, const struct vb_group_opts *group, int argc,
                      char **argv, int *code_p);

#endif
