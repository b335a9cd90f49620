/* SPDX-License-Identifier: MIT
 *
 * Declarations that all subcommands share. Each subcommand has its own file.
 */
#ifndef VB_CLI_CLI_H
#define VB_CLI_CLI_H

#include "base/base.h"
#include "engine/engine.h"

#include <limits.h>

struct vb_series;
struct vb_series_kind;

/* Exit codes of the command. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#define CLI_NAMES_MAX 32

struct cli_names {
    const char *list[CLI_NAMES_MAX];
    int n;
};

struct cli_command {
    const char *name;
    const char *summary; /* one line about the command, for the list of commands */
    const char *usage;   /* arguments of the command, such as "[--ranks N] ..." */
    const char *about;   /* paragraphs and examples at the beginning of --help and --help-all */
    const char *details; /* further paragraphs that only --help-all shows; NULL: there are none */
    int (*run)(const struct cli_command *command, int argc, char **argv);
    struct cli_names (*words)(void); /* what the first operand may be; NULL: a file */
    struct cli_names (*then)(void);  /* the same for the second one */
};

extern const struct cli_command cli_bench;
extern const struct cli_command cli_completion;
extern const struct cli_command cli_ctl;
extern const struct cli_command cli_data;
extern const struct cli_command cli_demo;
extern const struct cli_command cli_topo;
extern const struct cli_command cli_doctor;
extern const struct cli_command cli_eval;
extern const struct cli_command cli_export;
extern const struct cli_command cli_ops;
extern const struct cli_command cli_report;
extern const struct cli_command cli_sweep;
extern const struct cli_command cli_top;
extern const struct cli_command cli_train;

/* All commands, in the order of their names (main.c). */
const struct cli_command *const *cli_commands(int *n_p);

/* If how is one of the following options, prints this form of the command's help text and returns
 * true (help/help.c). No help text mentions these options: the build uses them. */
#define CLI_HELP_MAN "--help-man"
#define CLI_HELP_BASH "--help-bash"
#define CLI_HELP_ZSH "--help-zsh"
bool cli_help_print(const struct cli_command *command, const struct vb_opt_group *groups,
                    int n_groups, const char *how);

/* Prints the versions of verbena and of its libraries (version.c). */
vb_status cli_version_print(bool json);

/* Parses the arguments after the command's name. Returns -1 if the command may go on. Otherwise the
 * function has printed a help text, or one line about a wrong argument, and returns the exit code.
 * More than max_operands operands are an error. */
int cli_parse(const struct cli_command *command, const struct vb_opt_group *groups, int n_groups,
              int max_operands, int argc, char **argv, struct vb_opts *opts);

/* Prints one line about wrong arguments to standard error. Returns CLI_USAGE. */
int cli_refuse(const struct cli_command *command, const char *fmt, ...) VB_PRINTF(2, 3);

/* Writes the names as "a, b or c" to text. */
void cli_names_text(const char *const *names, int n, char *text, size_t size);

/* Returns the index of given in names, or -1 after printing one line that calls it an unknown WHAT
 * and suggests the nearest name or lists all names. */
int cli_find_name(const struct cli_command *command, const char *what, const char *given,
                  const char *const *names, int n);

/* Names of models, from the tables in engine/ and models/: no command is edited for a new model. */
struct cli_names cli_model_names(bool nets); /* of models, for train; or of nets, for bench */

/* Finds the model that the user has named. Returns -1 on success. Otherwise the function prints one
 * line and returns CLI_USAGE. If given is NULL, the line has the question and then all names. */
int cli_find_model(const struct cli_command *command, const char *question, const char *given,
                   const struct cli_names *names, const char **name_p);

/* Returns the model that has a net of this name, or NULL if there is none. */
const struct vb_train_model *cli_net_find(const char *name, const struct vb_train_net **net_p);

/* Parses numbers from 1 to max, such as "8,16". Returns how many numbers there are, or -1 if text
 * is something else or has more than n_max numbers. */
int cli_parse_numbers(const char *text, int64_t max, int64_t *numbers, int n_max);

/* Returns the exit code for a status. */
int cli_exit_code(vb_status st);

/* Flushes standard output. Every command calls this function last. Returns exit_code, or CLI_FAILED
 * if something could not be written. */
int cli_finish(int exit_code);

/* Creates a JSON object. cli_print_json() ends the object, prints it on one line of standard output
 * and destroys it. */
struct vb_json *cli_json_object(void);
vb_status cli_print_json(struct vb_json *json);

/* Checks that dir is a run folder, and reads its run.json. The caller destroys it (run_read.c). */
vb_status cli_run_json(const char *dir, struct vb_json **json_p);

/* Opens a series of a run folder; rank -1: of the job. Returns NULL, without a log line, if there
 * is none yet; after a log line if it cannot be read, or has other columns than those of kind.
 * kind NULL: any columns. */
struct vb_series *cli_run_series(const char *dir, int rank, const char *name,
                                 const struct vb_series_kind *kind, vb_status *st_p);

/* Runs gnuplot. The files in and out become its standard input and standard output. Returns
 * VB_ERR_NO_FILE, without a log line, if gnuplot is not installed (gnuplot.c). */
vb_status cli_gnuplot(int in, int out);
bool cli_gnuplot_there(void);

/* Returns the event with which the worker that has this slot joined the run, with its "machine"
 * (run_joined.c). NULL: none has since this time, by the clock of the day. */
struct vb_json *cli_run_joined(const char *dir, int rank, uint64_t since_ns);

/* A rank that a run has lost while the others went on. Numbers that are not known are NAN. */
struct cli_lost {
    int rank;
    bool removed; /* the user wanted it (verbena ctl) */
    char host[64], why[160];
    double at_s, step, again, left, recovered_s;
    double phase_s[VB_RECOVERY_PHASES];
};

#define CLI_LOST_MAX 1024

#define CLI_CTL_SOCKET "ctl.sock" /* in the run folder, while the job runs (train/train_ctl.c) */

/* Returns the ranks that were lost, in this order, and their number (run_lost.c). json: run.json.
 * The caller frees the list, which is NULL if there are none. */
struct cli_lost *cli_run_lost(const char *dir, const struct vb_json *json, int *n_p);

/* Finds the checkpoint that an argument names. The argument is a file, or a folder; of a folder the
 * latest checkpoint is used. */
vb_status cli_find_checkpoint(const char *given, char path[PATH_MAX]);

/* Adds whose steps a checkpoint has, as the object "view"; nothing if that is not known. */
void cli_json_view(struct vb_json *json, const struct vb_checkpoint_view *view);

#endif
