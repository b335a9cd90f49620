/* SPDX-License-Identifier: MIT
 *
 * What the subcommands share. One file a subcommand; main.c has the table of them.
 */
#ifndef VB_CLI_H
#define VB_CLI_H

#include "base/base.h"

#include <limits.h>

/* Exit codes of the command. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    const char *usage;   /* "[--ranks N] ..." */
    const char *about;   /* paragraphs of --help, before the options */
    int (*run)(const struct cli_command *command, int argc, char **argv);
};

extern const struct cli_command cli_bench;
extern const struct cli_command cli_data;
extern const struct cli_command cli_topo;
extern const struct cli_command cli_doctor;
extern const struct cli_command cli_eval;
extern const struct cli_command cli_export;
extern const struct cli_command cli_train;

/* Parses the arguments that follow the command's name; the groups common to all commands come
 * along. Returns -1 to go on, or the exit code: help was printed, or one line about what is
 * wrong. No command takes operands unless it says so with max_operands. */
int cli_parse(const struct cli_command *command, const struct vb_opt_group *groups, int n_groups,
              int max_operands, int argc, char **argv, struct vb_opts *opts);

/* One line about what is wrong with the arguments; returns the exit code. */
int cli_refuse(const struct cli_command *command, const char *why);

/* The exit code for a status. */
int cli_exit_code(vb_status st);

/* Whether everything written to standard output got there: the last thing a command does. */
int cli_finish(int exit_code);

/* The checkpoint that an argument names: a file, or a folder, which stands for its latest. */
vb_status cli_find_checkpoint(const char *given, char path[PATH_MAX]);

#endif
