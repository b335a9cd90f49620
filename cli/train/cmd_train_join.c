/* SPDX-License-Identifier: MIT */
#include "cli/train/cmd_train_join.h"
#include "launch/launch.h"

#include <stdlib.h>
#include <string.h>

static int find_secret(const struct cli_command *command, const struct cli_job *job,
                       struct vb_group_opts *group)
{
    struct vb_launch launch;

    if (vb_launch_read(&launch) != VB_OK)
        return CLI_FAILED;
    if (job->secret_file != NULL)
        return vb_secret_read(job->secret_file, group->secret) == VB_OK ? -1 : CLI_FAILED;
    if (launch.supervised || !launch.has_secret)
        return cli_refuse(
            command, "--join needs the job's secret: give --secret-file FILE or set VB_SECRET");
    memcpy(group->secret, launch.secret, sizeof(group->secret));
    return -1;
}

int cli_join_open(const struct cli_command *command, const char *root, const struct cli_job *job,
                  struct vb_group_opts *group, struct vb_joined **joined_p)
{
    const char *colon = strrchr(root, ':');
    int rc;

    if (colon == NULL || colon == root || colon[1] == '\0' || strlen(root) >= VB_ROOT_TEXT)
        return cli_refuse(command,
                          "--join must be HOST:PORT, the address that rank 0 of the job printed");
    if (job->ranks > 0 || job->world > 0 || job->has_rank || job->root != NULL)
        return cli_refuse(command,
                          "--join starts one worker: --ranks, --rank, --world and --root cannot be "
                          "used with it");
    rc = find_secret(command, job, group);
    if (rc >= 0)
        return rc;
    cli_job_group(job, group);
    group->root = root;
    return vb_train_join(group, joined_p) == VB_OK ? -1 : CLI_FAILED;
}

char **cli_join_arguments(const struct vb_joined *joined, int argc, char **argv, int *argc_p)
{
    size_t len, at;
    const char *words = vb_joined_words(joined, &len);
    char **all;
    int n = 0, i = 0;

    for (at = 0; at < len; at++)
        n += words[at] == '\0';
    all = calloc((size_t)n + (size_t)argc + 1, sizeof(*all));
    if (all == NULL)
        return NULL;
    for (at = 0; i < n; at += strlen(words + at) + 1)
        all[i++] = (char *)words + at;
    if (argc > 0)
        memcpy(all + n, argv, (size_t)argc * sizeof(*all));
    *argc_p = n + argc;
    return all;
}

char *cli_join_words(int argc, char **argv, size_t *len_p)
{
    size_t len = 0, at = 0;
    char *words;
    int i;

    for (i = 0; i < argc; i++)
        len += strlen(argv[i]) + 1;
    words = malloc(len + 1);
    if (words == NULL)
        return NULL;
    for (i = 0; i < argc; i++) {
        memcpy(words + at, argv[i], strlen(argv[i]) + 1);
        at += strlen(argv[i]) + 1;
    }
    *len_p = len;
    return words;
}

void cli_join_say(const char *root)
{
    fprintf(stderr, "others can join: verbena train --join %s --secret-file FILE\n", root);
}
