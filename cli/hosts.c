/* SPDX-License-Identifier: MIT */
#include "cli/hosts.h"

#include <string.h>

#define FIELD(name) offsetof(struct cli_hosts, name)

const struct vb_opt cli_hosts_opts[CLI_HOSTS_OPTS] = {
    {"hosts", VB_OPT_TEXT, FIELD(hosts), NULL, 0, 0, NULL, "LIST|FILE",
     "start the ranks over ssh: a,b:2,c is one rank on a, two on b, one on c; a file has one host "
     "a line"},
    {"ssh", VB_OPT_TEXT, FIELD(ssh), NULL, 0, 0, NULL, "COMMAND",
     "how to run a command on a host, words parted by blanks; else ssh -o BatchMode=yes -o "
     "ConnectTimeout=10"},
    {"program", VB_OPT_TEXT, FIELD(program), NULL, 0, 0, NULL, "PATH",
     "where verbena is on the hosts, if it is not where it is here"},
};

static const char *contradiction(const struct cli_hosts *hosts, const struct cli_job *job)
{
    if (hosts->hosts == NULL)
        return NULL; /* a VB_SSH that is always set does no harm */
    if (job->ranks > 1)
        return "--hosts says how many ranks there are: a:2 is two on a; leave --ranks out";
    if (job->has_rank || job->world > 0 || (job->secret_file != NULL && !job->outlive))
        return "--hosts starts all ranks; --rank, --world and --secret-file are for ranks started "
               "by hand";
    if (job->root != NULL && (strrchr(job->root, ':') == NULL || strlen(job->root) >= VB_ROOT_TEXT))
        return "--root must be HOST:PORT, where the first host can be reached by the others";
    return NULL;
}

int cli_hosts_place(const struct cli_command *command, struct cli_hosts *hosts,
                    const struct cli_job *job, struct vb_launch *launch,
                    struct vb_group_opts *group)
{
    struct cli_job place = *job;
    const char *why;
    int code;

    memset(&hosts->parsed, 0, sizeof(hosts->parsed));
    place.hosts = hosts->hosts != NULL;
    if (place.hosts)
        place.root = NULL; /* it is for the ranks, which are told */
    code = cli_job_place(command, &place, launch, group);
    if (code >= 0 || launch->supervised)
        return code;
    why = contradiction(hosts, job);
    if (why != NULL)
        return cli_refuse(command, why);
    if (hosts->hosts == NULL)
        return -1;
    if (vb_hosts_parse(hosts->hosts, &hosts->parsed) != VB_OK)
        return CLI_USAGE;
    group->world = hosts->parsed.ranks;
    return -1;
}

bool cli_hosts_launch(const struct cli_command *command, struct cli_hosts *hosts,
                      const struct cli_job *job, const struct vb_group_opts *group, int argc,
                      char **argv, int *code_p)
{
    struct vb_supervise_opts o = {.hosts = &hosts->parsed,
                                  .ssh = hosts->ssh,
                                  .program = hosts->program,
                                  .root = job->root,
                                  .logs = job->logs};

    if (hosts->parsed.n == 0)
        return false;
    cli_job_outlive(job, group->secret, &o);
    *code_p = cli_supervise(command, &o, argc, argv);
    vb_hosts_fini(&hosts->parsed);
    return true;
}
