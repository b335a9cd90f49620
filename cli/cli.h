/* SPDX-License-Identifier: MIT
 *
 * Declarations that all subcommands share. Each subcommand has a file of its own; main.c has the
 * table of them.
 */
#ifndef VB_CLI_CLI_H
#define VB_CLI_CLI_H

#include "base/base.h"

#include <limits.h>

/* Exit codes of the command. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    const char *usage;   /* "[--ranks N] ..." */
    const char *about;   /* paragraphs and examples that both help texts begin with */
    const char *details; /* further paragraphs, which only --help-all shows; NULL: none */
    int (*run)(const struct cli_command *command, int argc, char **argv);
};

extern const struct cli_command cli_bench;
extern const struct cli_command cli_data;
extern const struct cli_command cli_topo;
extern const struct cli_command cli_doctor;
extern const struct cli_command cli_eval;
extern const struct cli_command cli_export;
extern const struct cli_command cli_train;

/* Parses the arguments that follow the command's name, and adds the options that all commands
 * have. Returns -1 if the command may go on. Otherwise it has printed a help text, or one line
 * about a wrong argument, and returns the exit code. More than max_operands operands are an
 * error. */
int cli_parse(const struct cli_command *command, const struct vb_opt_group *groups, int n_groups,
              int max_operands, int argc, char **argv, struct vb_opts *opts);

/* Prints one line about wrong arguments to standard error. Returns CLI_USAGE. */
int cli_refuse(const struct cli_command *command, const char *fmt, ...) VB_PRINTF(2, 3);

/* Writes "a, b or c". */
void cli_names_text(const char *const *names, int n, char *text, size_t size);

/* Returns the index of given in names, or -1 if it is not there. In that case it has printed one
 * line that calls the name an unknown WHAT, and suggests the nearest name or lists all. */
int cli_find_name(const struct cli_command *command, const char *what, const char *given,
                  const char *const *names, int n);

/* Parses numbers from 1 to max, separated by commas, such as "8,16". Returns how many there are, or
 * -1 if text is something else or has more than n_max numbers. */
int cli_parse_numbers(const char *text, int64_t max, int64_t *numbers, int n_max);

/* Returns the exit code for a status. */
int cli_exit_code(vb_status st);

/* Flushes standard output; the last call of every command. Returns exit_code, or CLI_FAILED if
 * something could not be written. */
int cli_finish(int exit_code);

/* Prints the value on one line of standard output, and destroys it. */
vb_status cli_print_json(struct vb_json *json);

/* Finds the checkpoint that an argument names: a file, or a folder, whose latest checkpoint is
 * used. */
vb_status cli_find_checkpoint(const char *given, char path[PATH_MAX]);

#endif
