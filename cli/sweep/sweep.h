/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the sweep command share.
 *
 * An *axis* is an option of train that takes a list here. A *case* has one value of each axis. A
 * *run* is one training of a case; a case has as many runs as --repeat says.
 */
#ifndef VB_CLI_SWEEP_SWEEP_H
#define VB_CLI_SWEEP_SWEEP_H

#include "base/base.h"

#include <limits.h>

/* ---- lists (sweep_list.c) -------------------------------------------------------------------- */

#define SWEEP_VALUE 32      /* size of the text of a value */
#define SWEEP_LIST_MAX 64   /* values of a list */
#define SWEEP_RUNS_MAX 4096 /* runs of a sweep */

struct sweep_list {
    char values[SWEEP_LIST_MAX][SWEEP_VALUE];
    int n; /* 0: the option was not given */
};

/* Parses values separated by commas. A range of whole numbers is A..B, A..B+STEP or A..BxFACTOR. A
 * value that is there twice counts once. On failure why has a message of one line. */
vb_status cli_sweep_list(const char *name, const char *text, struct sweep_list *list,
                         char why[VB_OPTS_WHY]);

/* ---- cases (sweep_plan.c) -------------------------------------------------------------------- */

enum sweep_axis {
    AXIS_LINK,
    AXIS_MODE,
    AXIS_STALENESS,
    AXIS_TRANSPORT,
    AXIS_RANKS,
    AXIS_THREADS,
    AXIS_GLOBAL_BATCH,
    AXIS_BATCH,
    AXIS_LR,
    SWEEP_AXES
};

extern const char *const cli_sweep_axes[SWEEP_AXES]; /* the names of the options */

#define SWEEP_NAME 256
#define SWEEP_NOTES 8
#define SWEEP_NOTE 160

struct sweep_case {
    const char *value[SWEEP_AXES]; /* borrowed from the lists; NULL: not given, or of no effect */
    char name[SWEEP_NAME];         /* such as "ranks-2_batch-64" */
};

/* Why cases were left out or changed. */
struct sweep_note {
    char text[SWEEP_NOTE];
    int n; /* number of cases */
};

struct sweep_plan {
    struct sweep_list lists[SWEEP_AXES];
    int ranks; /* of cases without a value of --ranks; 0: not known, more than 1 */
    int repeat;
    struct sweep_case *cases;
    int n_cases;
    struct sweep_note notes[SWEEP_NOTES];
    int n_notes;
};

/* Makes the cases from the lists. Cases that make no sense are left out, and a note says why. On
 * failure why has a message of one line. The caller calls cli_sweep_plan_fini() in any case. */
vb_status cli_sweep_plan(struct sweep_plan *plan, char why[VB_OPTS_WHY]);
void cli_sweep_plan_fini(struct sweep_plan *plan);

/* Runs are made in alternating order: the first of each case, then the second in reverse order, and
 * so on. So a machine that slows down does not favour the first cases. */
void cli_sweep_order(const struct sweep_plan *plan, int at, int *case_p, int *repeat_p);

/* ---- results (sweep_result.c) ---------------------------------------------------------------- */

enum sweep_metric {
    METRIC_TRAIN_S,
    METRIC_WALL_S,
    METRIC_STEPS,
    METRIC_STEPS_PER_S,
    METRIC_SAMPLES_PER_S,
    METRIC_LOSS,
    METRIC_ACCURACY,
    METRIC_CPU_PCT,
    METRIC_RSS_PEAK_MB,
    METRIC_SEND_MB_S,
    METRIC_RECV_MB_S,
    METRIC_DISK_READ_MB_S,
    METRIC_DISK_WRITE_MB_S,
    METRIC_STALENESS,
    METRIC_TIME_TO_S,
    METRIC_NOISE_SCALE,
    SWEEP_METRICS
};

struct sweep_metric_row {
    const char *key;   /* column of the CSV file */
    const char *title; /* column of the other tables */
    int digits;        /* after the point */
};

extern const struct sweep_metric_row cli_sweep_metrics[SWEEP_METRICS];

#define SWEEP_NODES 64 /* ranks whose own time is kept */
#define SWEEP_ERROR 256

/* What one run gave. */
struct sweep_result {
    bool done; /* the run has ended, well or not */
    bool ok;
    char error[SWEEP_ERROR];     /* why it failed */
    double value[SWEEP_METRICS]; /* NAN: not measured */
    double node_s[SWEEP_NODES];  /* time of training on each node */
    int n_nodes;
    double ranks, batch, global_batch, test_samples, noise_error;
    bool asked_until;  /* the run had --until */
    char resource[24]; /* bottleneck; "": not known */
    char mode[16];
};

/* Reads the result of a run from its folder. argv, argc: the arguments of the run, after "verbena
 * train"; a folder of other arguments is VB_ERR_USAGE. Returns VB_AGAIN if the folder has no
 * complete run: there is none, it was cut off, or it failed. Logs nothing in this case. */
vb_status cli_sweep_read(const char *dir, char *const *argv, int argc, struct sweep_result *r);

/* Reads why a run has failed: from its folder, or else the last line of its log. */
void cli_sweep_read_error(const char *dir, const char *log, int exit_code, struct sweep_result *r);

/* ---- statistics (sweep_stats.c) -------------------------------------------------------------- */

struct sweep_stat {
    double median, min, max; /* NAN if n is 0 */
    int n;
};

/* Returns the statistics of the values that are not NAN. At most SWEEP_RUNS_MAX values. */
struct sweep_stat cli_sweep_stat(const double *values, int n);

/* A case with the results of all its runs. */
struct sweep_row {
    const struct sweep_case *at;
    struct sweep_stat stat[SWEEP_METRICS];
    double node_s[SWEEP_NODES]; /* medians */
    int n_nodes;
    int ok, failed;
    double ranks, batch, global_batch, test_samples, noise_error;
    bool asked_until;
    char mode[16];
    const char *resource; /* of the most runs; "": not known */
};

/* results: (n) the runs of the case. */
void cli_sweep_row(const struct sweep_case *at, const struct sweep_result *results, int n,
                   struct sweep_row *row);

/* ---- recommendation (sweep_advice.c) --------------------------------------------------------- */

#define SWEEP_WHY 512

struct sweep_advice {
    int row;            /* -1: there is nothing to recommend */
    double noise_scale; /* NAN: not known */
    char why[SWEEP_WHY];
};

/* Chooses among the rows of a link, and those that use none; NULL: among all rows. */
void cli_sweep_advise(const struct sweep_row *rows, int n, const char *link,
                      struct sweep_advice *advice);

/* ---- tables (sweep_table.c) ------------------------------------------------------------------ */

struct sweep_table {
    const struct sweep_plan *plan;
    const struct sweep_row *rows;
    int n;
};

void cli_sweep_csv(FILE *out, const struct sweep_table *t);
void cli_sweep_markdown(FILE *out, const struct sweep_table *t);
void cli_sweep_text(FILE *out, const struct sweep_table *t); /* medians, for a terminal */

#endif
