/* SPDX-License-Identifier: MIT
 *
 * verbena train --join: joins a running job as one more worker.
 */
#ifndef VB_CLI_TRAIN_CMD_TRAIN_JOIN_H
#define VB_CLI_TRAIN_CMD_TRAIN_JOIN_H

#include "cli/job_opts.h"

/* Joins the job at root ("HOST:PORT"). Returns -1 on success; otherwise the exit code. The job
 * decides the transport unless the user gave one. */
int cli_join_open(const struct cli_command *command, const char *root, const struct cli_job *job,
                  struct vb_group_opts *group, struct vb_joined **joined_p);

/* Returns an argument list: the arguments of the job, followed by the joiner's arguments, which
 * override them. If argc is 0, the list has only the arguments of the job. The caller frees the
 * list; the job's arguments are borrowed from joined. Returns NULL if there is no memory. */
char **cli_join_arguments(const struct vb_joined *joined, int argc, char **argv, int *argc_p);

/* Returns the arguments as one text, each argument followed by a zero byte. A job sends this text
 * to joiners. The caller frees the text. Returns NULL if there is no memory. */
char *cli_join_words(int argc, char **argv, size_t *len_p);

/* Prints how to join the job that listens at root. The field join.say of struct vb_train_opts
 * points to this function. */
void cli_join_say(const char *root);

#endif
