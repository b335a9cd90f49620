/* SPDX-License-Identifier: MIT
 *
 * Declarations of the sweep command that need more than base/: options, folder and runs.
 */
#ifndef VB_CLI_SWEEP_CMD_SWEEP_H
#define VB_CLI_SWEEP_CMD_SWEEP_H

#include "cli/cli.h"
#include "cli/sweep/sweep.h"
#include "cli/train/cmd_train.h"
#include "launch/launch.h"

/* ---- options (sweep_opts.c) ------------------------------------------------------------------ */

struct sweep_args {
    const char *lists[SWEEP_AXES];
    int64_t repeat;
    const char *out;
    bool resume, json, vary_seed;
};

#define SWEEP_GROUPS (2 + TRAIN_GROUPS)

struct sweep_asked {
    struct sweep_args args;
    struct train_asked train;        /* receives the options of train that take no list */
    struct vb_opt rows[VB_OPTS_MAX]; /* these options */
    struct vb_opt_group groups[SWEEP_GROUPS];
    struct vb_opts parsed;
};

/* Makes *a ready for cli_parse(). The groups point into *a, which must not move. */
void cli_sweep_asked_init(struct sweep_asked *a);

/* Returns whether the value is one that train takes for this option; otherwise why has a message of
 * one line. */
bool cli_sweep_value_ok(enum sweep_axis axis, const char *value, char why[VB_OPTS_WHY]);

/* ---- the sweep ------------------------------------------------------------------------------- */

struct sweep {
    struct sweep_plan plan;
    char dir[PATH_MAX];
    int lock_fd;
    char **fixed; /* (n_fixed) the model and the options that all runs have; owned */
    int n_fixed;
    char *const *command; /* (n_command) the arguments of sweep, for --resume; borrowed */
    int n_command;
    int64_t seed;                 /* with --vary-seed: of the first run; otherwise -1 */
    struct sweep_result *results; /* (n_cases * repeat) case by case */
    double *took_s;               /* the same: time of the whole run; 0: not known */
    bool json, terminal;
};

/* Returns the arguments of a run after "verbena train"; NULL: no memory. The first n_fixed texts
 * are borrowed. cli_sweep_argv_free() frees the others. */
char **cli_sweep_argv(const struct sweep *s, int c, int repeat, int *argc_p);
void cli_sweep_argv_free(const struct sweep *s, char **argv);

/* Writes the folder of a run. */
void cli_sweep_run_dir(const struct sweep *s, int c, int repeat, char path[PATH_MAX]);

/* ---- the folder (sweep_folder.c) ------------------------------------------------------------- */

/* Makes or opens s->dir, and locks it. Without resume the folder must be new or empty. Returns -1,
 * or prints one line and returns the exit code. */
int cli_sweep_open(struct sweep *s, bool resume);
void cli_sweep_close(struct sweep *s);

/* Writes sweep.json, from which --resume takes the arguments. */
vb_status cli_sweep_keep(const struct sweep *s);

/* Returns the arguments that sweep.json has, followed by argv; NULL, after one line was printed:
 * it has none. The caller frees both *json_p, which owns the texts, and the list. */
char **cli_sweep_stored(const char *dir, int argc, char **argv, int *argc_p,
                        struct vb_json **json_p);

/* Writes table.csv, table.md and, if all, runs.jsonl. */
vb_status cli_sweep_write(const struct sweep *s, const struct sweep_row *rows, bool all);

/* Appends a run to runs.jsonl; c -1: empties it. */
vb_status cli_sweep_append(const struct sweep *s, int c, int repeat);

/* Fills a row for each case. The caller frees the rows; NULL: no memory. */
struct sweep_row *cli_sweep_rows(const struct sweep *s);

/* ---- TensorBoard (sweep_board.c) ---------------------------------------------------------------
 */

/* Writes an event file that describes the table of hyper-parameters. */
vb_status cli_sweep_board(const struct sweep *s);

/* ---- runs (sweep_run.c) ---------------------------------------------------------------------- */

/* Makes all runs that are not complete. Returns -1, or the exit code if the sweep cannot go on:
 * after a signal, or if a folder is that of another run. */
int cli_sweep_run_all(struct sweep *s);

/* Returns the seconds that the runs from `at` on will take; NAN: nobody knows. */
double cli_sweep_left_s(const struct sweep_plan *plan, const double *took_s, int at);

/* ---- output as JSON (sweep_json.c) ----------------------------------------------------------- */

/* Print one line for a run, and the last line, with the recommendation. */
vb_status cli_sweep_json_run(FILE *out, const struct sweep *s, int c, int repeat);
vb_status cli_sweep_json_end(FILE *out, const struct sweep *s, const struct sweep_row *rows);

/* Writes the command that trains a case, without a run folder. */
void cli_sweep_command(const struct sweep *s, int c, char *text, size_t size);

#endif
