/* SPDX-License-Identifier: MIT
 *
 * verbena train --join: what it takes to join a job that is under way.
 */
#ifndef VB_CLI_TRAIN_JOIN_H
#define VB_CLI_TRAIN_JOIN_H

#include "cli/job.h"

/* Joins the job at root ("HOST:PORT"). Returns -1 to go on, or the exit code. The transport is the
 * job's, unless one was given. */
int cli_join_open(const struct cli_command *command, const char *root, const struct cli_job *job,
                  struct vb_group_opts *group, struct vb_joined **joined_p);

/* The job's words, then one's own, which win: argv for another parse, to be freed; the words are
 * borrowed from joined. argc 0: the job's alone. NULL: no memory. */
char **cli_join_arguments(const struct vb_joined *joined, int argc, char **argv, int *argc_p);

/* The words of a command line as one text, a zero behind each; to be freed. NULL: no memory. */
char *cli_join_words(int argc, char **argv, size_t *len_p);

/* Tells how to join a job; a vb_train_opts.say. */
void cli_join_say(const char *root);

#endif
