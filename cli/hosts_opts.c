/* SPDX-License-Identifier: MIT */
#include "cli/hosts_opts.h"

#include <string.h>

#define FIELD(name) offsetof(struct cli_hosts, name)

static const struct vb_opt hosts_opts[] = {
    {"hosts", VB_OPT_TEXT, FIELD(hosts), .arg = "LIST|FILE",
     .help = "start the ranks over ssh: a,b:2 is one rank on host a and two on host b; a file has "
             "one host per line"},
    {"ssh", VB_OPT_TEXT, FIELD(ssh), .arg = "COMMAND", .level = VB_OPT_MORE,
     .help =
         "command that runs another command on a host, as words separated by blanks; by default "
         "ssh -o BatchMode=yes -o ConnectTimeout=10"},
    {"program", VB_OPT_TEXT, FIELD(program), .arg = "PATH", .level = VB_OPT_MORE,
     .help = "path of verbena on the hosts; by default the same path as on this host"},
};

void cli_rank_groups(struct cli_job *job, struct cli_hosts *hosts,
                     struct vb_opt_group groups[CLI_RANK_GROUPS])
{
    cli_job_groups(job, groups + 1);
    groups[0] = groups[1]; /* --ranks and --hosts come first */
    groups[1] = (struct vb_opt_group){"Hosts", hosts_opts, VB_COUNT(hosts_opts), hosts};
}

static const char *contradiction(const struct cli_hosts *hosts, const struct cli_job *job)
{
    if (hosts->hosts == NULL)
        return NULL; /* --ssh and --program may be set in the environment at all times */
    if (job->ranks > 1)
        return "--hosts decides the number of ranks: a:2 is two ranks on host a; leave --ranks out";
    if (job->has_rank || job->world > 0 || (job->secret_file != NULL && !job->outlive))
        return "--hosts starts all ranks; --rank, --world and --secret-file are for ranks that are "
               "started by hand";
    if (job->root != NULL && (strrchr(job->root, ':') == NULL || strlen(job->root) >= VB_ROOT_TEXT))
        return "--root must be HOST:PORT, an address at which the others reach the first host";
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
        place.root = NULL; /* the launcher passes --root on to the ranks */
    code = cli_job_place(command, &place, launch, group);
    if (code >= 0 || launch->supervised)
        return code;
    why = contradiction(hosts, job);
    if (why != NULL)
        return cli_refuse(command, "%s", why);
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
