/* SPDX-License-Identifier: MIT
 *
 * verbena train --join: calls a running job, of either kind, and takes its arguments.
 */
#include "cli/train/cmd_train.h"

#include <stdlib.h>
#include <string.h>

/* Also finds out what our supervisor tells a process that it has started again. */
static int find_secret(const struct cli_command *command, const struct cli_job *job,
                       struct vb_launch *launch, struct vb_group_opts *group)
{
    if (vb_launch_read(job->timeout_s * 1000, launch) != VB_OK)
        return CLI_FAILED;
    launch->terminal = false; /* the lead shows the progress */
    if (job->secret_file == NULL && ((launch->supervised && !launch->joins) || !launch->has_secret))
        return cli_refuse(
            command, "--join needs the job's secret: give --secret-file FILE or set VB_SECRET");
    /* The secret of the job to join, not that of a launcher; but our supervisor has told the one
     * that the job has made of file and run id. */
    launch->supervised = launch->joins;
    return cli_job_secret(job, launch, group);
}

/* Calls the job at --join. Returns -1 on success; otherwise the exit code. The job decides the
 * transport unless the user gave one. */
static int call_job(const struct cli_command *command, const char *root, const struct cli_job *job,
                    struct vb_launch *launch, struct vb_group_opts *group,
                    struct vb_caller **caller_p)
{
    const char *colon = strrchr(root, ':');
    int rc;

    if (colon == NULL || colon == root || colon[1] == '\0')
        return cli_refuse(command,
                          "--join must be HOST:PORT, the address that the job printed, or several "
                          "of them with commas between");
    if (!vb_launch_is_joiner() &&
        (job->ranks > 0 || job->world > 0 || job->has_rank || job->root != NULL))
        return cli_refuse(command,
                          "--join starts one rank: --ranks, --rank, --world and --root cannot be "
                          "used with it");
    cli_job_group(job, group);
    rc = find_secret(command, job, launch, group);
    if (rc >= 0)
        return rc;
    group->root = root;
    return vb_group_call(group, caller_p) == VB_OK ? -1 : CLI_FAILED;
}

/* The job that was called, of either kind. */
struct joining {
    struct vb_caller *caller; /* of a synchronous job; NULL: it is asynchronous */
    struct vb_joined *joined;
    const char *words; /* the arguments of the job */
    size_t words_len;
};

/* Finds out of which kind the job is, by its answer. */
static int open_join(const struct cli_command *command, const char *root, const struct cli_job *job,
                     struct vb_launch *launch, struct vb_group_opts *group, struct joining *j)
{
    const void *text;
    size_t len;
    int rc = call_job(command, root, job, launch, group, &j->caller);

    if (rc >= 0)
        return rc;
    if (vb_caller_has_slot(j->caller)) {
        rc = vb_train_join(group, j->caller, &j->joined) == VB_OK ? -1 : CLI_FAILED;
        vb_caller_close(j->caller);
        j->caller = NULL;
        if (rc < 0)
            j->words = vb_joined_words(j->joined, &j->words_len);
        return rc;
    }
    text = vb_caller_job(j->caller, &len);
    if (vb_train_job_words(text, len, &j->words, &j->words_len))
        return -1;
    return cli_refuse(command, "--join: what the job says about itself is not valid");
}

/* Returns an argument list: the arguments of the job, followed by the joiner's arguments, which
 * override them. The caller frees the list; the job's arguments are borrowed from j. Returns NULL
 * if there is no memory. */
static char **join_arguments(const struct joining *j, int argc, char **argv, int *argc_p)
{
    char **all;
    size_t at;
    int n = 0, i = 0;

    for (at = 0; at < j->words_len; at++)
        n += j->words[at] == '\0';
    all = calloc((size_t)n + (size_t)argc + 1, sizeof(*all));
    if (all == NULL)
        return NULL;
    for (at = 0; i < n; at += strlen(j->words + at) + 1)
        all[i++] = (char *)j->words + at;
    if (argc > 0)
        memcpy(all + n, argv, (size_t)argc * sizeof(*all));
    *argc_p = n + argc;
    return all;
}

/* Parses the arguments of the job, followed by the joiner's arguments, which override them. data_p:
 * receives the --data of the job. The job compares this text even if the joiner has the data at
 * another path. */
static int parse_joined(const struct cli_command *command, const struct joining *j,
                        struct train_asked *a, const char **data_p, const char **model_p)
{
    int n = 0, all_n = 0, rc = CLI_FAILED;
    char **words = join_arguments(j, 0, NULL, &n);
    char **all = join_arguments(j, a->job.argc, a->job.argv + 2, &all_n);

    if (words != NULL && all != NULL)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, n, words, &a->parsed);
    *data_p = a->args.data;
    if (rc < 0)
        rc = cli_parse(command, a->groups, TRAIN_GROUPS, 1, all_n, all, &a->parsed);
    if (rc < 0)
        rc = cli_train_find_model(&a->parsed, model_p);
    free(words);
    free(all);
    return rc;
}

/* The ranks of a synchronous job have the same options for their group. */
static void take_group_opts(const struct train_asked *a, struct vb_launch *launch,
                            struct vb_group_opts *group)
{
    const unsigned char *secret = group->secret;

    cli_job_group(&a->job, group);
    group->secret = secret;
    if (launch->joins) {
        group->lost = vb_launch_tell_lost;
        group->lost_arg = launch;
    }
    group->root = a->args.join;
}

int cli_train_join(const struct cli_command *command, struct train_asked *a)
{
    struct vb_train_opts o = {0};
    struct vb_launch launch = {.root_fd = -1};
    struct vb_data_spec test = {0};
    struct joining j = {0};
    const char *data = NULL;
    int rc;

    if (a->args.dry_run || a->job.hosts != NULL)
        return cli_refuse(&cli_train,
                          "--join starts one rank: --dry-run and --hosts cannot be used with it");
    rc = open_join(command, a->args.join, &a->job, &launch, &o.group, &j);
    if (rc < 0)
        rc = parse_joined(command, &j, a, &data, &o.model);
    if (rc < 0 && j.caller != NULL)
        take_group_opts(a, &launch, &o.group);
    if (rc < 0) {
        o.group.rank = 0;
        o.group.world = j.joined != NULL ? vb_joined_world(j.joined) : 2; /* the job says more */
        rc = cli_train_fill(&a->args, &launch, &test, &o);
    }
    if (rc < 0) {
        o.data.text = data;
        o.plan = NULL; /* the job sends its plan to the joiner */
        o.join.joined = j.joined;
        o.join.caller = j.caller;
        o.join.own = launch.joins;
        o.join.words = j.words; /* it may lead one day */
        o.join.words_len = j.words_len;
        rc = cli_train_rank(a, &launch, &o);
    }
    vb_joined_leave(j.joined);
    vb_caller_close(j.caller);
    return rc;
}
