/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of the train command share.
 */
#ifndef VB_CLI_TRAIN_CMD_TRAIN_H
#define VB_CLI_TRAIN_CMD_TRAIN_H

#include "cli/job_opts.h"

#include <pthread.h>

/* ---- options (train_opts.c) ------------------------------------------------------------------ */

struct train_args {
    const char *data, *test_data;
    double test_split, record_rate, wait_ranks;
    int64_t input, features, seed, threads, eval_every, test_limit;
    struct vb_train_length_opts length;
    struct vb_train_learn_opts learn; /* without learn.rule, which is a text */
    struct vb_train_save_opts save;
    struct vb_train_sums_opts sums;
    int rule, mode, pin, noise_scale, elastic;
    int64_t min_ranks, restarts, servers, replicas, staleness, backup, max_workers;
    bool dedicated, hogwild, dry_run, json, fast_math, mixed_cpus;
    int trace_format;
    const char *until, *run, *trace, *again, *plan, *inject, *replay, *ledger, *slow, *join;
};

#define TRAIN_GROUPS (5 + CLI_JOB_GROUPS)

/* The values of all options of the command, and the groups of options that fill in the values. */
struct train_asked {
    struct train_args args;
    struct cli_job job;
    struct vb_opt_group groups[TRAIN_GROUPS];
    struct vb_opts parsed;
};

/* Makes *a ready for cli_parse(). The groups point into *a, which must not move. */
void cli_train_asked_init(struct train_asked *a);

/* Names of option values. Each list ends with NULL. */
extern const char *const cli_train_modes[]; /* in the order of enum vb_mode */
extern const char *const cli_train_rules[]; /* "auto", then the names that the engine knows */

#define TRAIN_ELASTIC_OFF 1 /* of train_args.elastic, in cli_on_off */

/* Parses the text of --inject and that of --slow, its older form. Either may be NULL. Returns -1 if
 * they are good; otherwise prints one line and returns the exit code (train_inject_opts.c). */
int cli_train_inject(const char *text, const char *slow, struct vb_inject_opts *inject);

/* ---- from arguments to options (train_fill.c) ------------------------------------------------ */

int cli_train_find_model(const struct vb_opts *parsed, const char **model_p);
struct vb_async_opts cli_train_async_opts(const struct train_args *a);

/* Copies the arguments to the engine's options. The caller has filled o->group and o->model, and
 * keeps *test as long as *o. Returns -1 if the arguments are good, else the exit code. */
int cli_train_fill(const struct train_args *a, const struct vb_launch *launch,
                   struct vb_data_spec *test, struct vb_train_opts *o);

/* ---- a rank (train_rank.c) ------------------------------------------------------------------- */

/* Trains, as the engine's options say. Returns the exit code. */
int cli_train_rank(const struct train_asked *asked, const struct vb_launch *launch,
                   const struct vb_train_opts *opts);

/* Returns what a joiner must give as --run-id, because the secret is made from it; NULL: nothing.
 */
const char *cli_train_run_id(const struct cli_job *job, const struct vb_launch *launch);

/* Writes how others can join the job. run_id: NULL, or what they must give. Returns text. */
#define CLI_JOIN_TEXT (VB_DOORS_TEXT + VB_DERIVE_MAX + 96)
const char *cli_train_tell_to_join(const char *doors, const char *run_id, char text[CLI_JOIN_TEXT]);

/* --join (train_call.c): becomes a rank of a running job. Returns the exit code. */
int cli_train_join(const struct cli_command *command, struct train_asked *a);

/* ---- --until (train_until_opts.c) ------------------------------------------------------------ */

/* If --until is given several times, each of them becomes the list of all conditions. The caller
 * frees *joined_p. Returns -1, or the exit code if there is no memory. */
int cli_train_until_join(int argc, char **argv, char **joined_p);

/* Parses the list of conditions, which may be NULL. Returns -1 if it is good; otherwise prints one
 * line and returns the exit code. */
int cli_train_until(const char *text, struct vb_train_until_opts *until);

/* Print what became of the conditions, as text and as the value "until". */
void cli_train_until_print(const struct vb_train_opts *o, const struct vb_train_result *result);
void cli_train_until_json(struct vb_json *json, const struct vb_train_opts *o,
                          const struct vb_train_result *result);

/* ---- what the job needs (train_fits.c) ------------------------------------------------------- */

/* Returns how many cpus this process may use; 0: not known. */
int cli_train_cpus(void);

/* Says on standard error if the compute threads of this host's ranks are more than its cpus. */
void cli_train_tell_cores(const struct vb_train_opts *o, int cpus);

/* Checks that the job fits into the limits of this process and, unless this process is a rank, of
 * this host. Raises the soft limit of open files if needed. Returns -1 if it fits; otherwise prints
 * one line and returns the exit code. */
int cli_train_fits(const struct cli_job *job, const struct vb_launch *launch,
                   const struct vb_train_opts *o);

/* Print what each rank and this host need, as text and as the object "needs". */
void cli_train_print_need(const struct vb_train_opts *o);
void cli_train_json_need(struct vb_json *json, const struct vb_train_opts *o);

/* ---- the final object (train_json.c) --------------------------------------------------------- */

/* Adds the keys of the final object to an object. */
void cli_train_json(struct vb_json *json, const char *mode, const struct vb_train_opts *o,
                    const struct vb_train_result *result);
void cli_train_json_recipe(struct vb_json *json, const struct vb_chosen *chosen);
void cli_train_json_rank(struct vb_json *json, const struct vb_rank_result *r);

/* Returns where the test samples are from: "given", "data", "held out" or "training". */
const char *cli_train_test_from(const struct vb_train_opts *o);

/* train_verdict_print.c: the verdict, as an object and as text. */
void cli_train_json_bottleneck(struct vb_json *json, const struct vb_bottleneck *b);
void cli_train_print_bottleneck(const struct vb_bottleneck *b, double steps_per_s,
                                double samples_per_s);

/* Adds what makes the run an experiment: "injected" faults, and the run that was "replayed". */
void cli_train_json_tools(struct vb_json *json, const struct vb_train_opts *o);

/* Returns the staleness of all workers together. */
struct vb_stale cli_train_stale(const struct vb_train_result *r);

/* ---- the run folder (train_run.c) ------------------------------------------------------------ */

/* What run.json tells besides the result. All pointers are borrowed. */
struct train_run {
    const char *dir;
    const struct vb_train_opts *o;
    const struct vb_opts *parsed;
    char *const *argv; /* the command line, beginning with "verbena train" */
    int argc;
    struct vb_run_facts facts; /* the engine fills them in */
    int number;                /* of this rank; -1: a joiner has none yet; guarded by lock */
    char doors[VB_DOORS_TEXT]; /* where a synchronous job can be joined; "": nowhere; the same */
    _Atomic bool leads;        /* this rank writes run.json */
    pthread_mutex_t lock;      /* guards run.json: another thread writes when this rank leads */
    bool ended;                /* run.json has the result; guarded by lock */
};

/* Through which ranks are added to the job (train_add.c). */
struct train_adder {
    const struct vb_launch *launch;
    const char *secret_file, *run_id;      /* what a joiner must give; NULL: not known */
    void (*doors)(void *arg, char *doors); /* where others can join; "": nowhere */
    void *arg;
};

#define TRAIN_ADD_S 600 /* longer than the supervisor waits for a rank to join */

/* Asks the supervisor for n more ranks on a host, and waits for the answer. Returns false if the
 * run ends before it comes. */
bool cli_train_add(const struct train_adder *a, const char *host, int n,
                   bool (*is_ending)(void *arg), void *arg, struct vb_added *added_p);

/* The socket for verbena ctl, of the rank that reports (train_ctl.c). Returns NULL if there can be
 * none; the functions below accept that. adder is borrowed. */
struct train_ctl;
struct train_ctl *cli_train_ctl_open(const char *dir, bool async, const struct train_adder *adder);
void cli_train_ctl_close(struct train_ctl *ctl);

/* Called by the training thread: hooks.ask and hooks.answer, and the signal for hooks.stop. */
struct vb_train_ask cli_train_ctl_ask(struct train_ctl *ctl, int64_t step);
void cli_train_ctl_answer(struct train_ctl *ctl, bool done, const char *text);
int cli_train_ctl_stop(const struct train_ctl *ctl);

/* Makes the folder and checks that its files can be written. Called by rank 0 before training, so
 * that a bad path is found at once. Without append, removes what an earlier run has left, except
 * for the logs of the first `world` ranks, which are being written. */
vb_status cli_train_run_prepare(const char *dir, bool append, int world);

/* From now on copies the log lines of this process to the folder. */
void cli_train_run_log(const char *dir, int rank, bool append);

/* Write run.json: while the run goes on, after a failure, and at the end, with the final object. */
void cli_train_run_begun(const struct train_run *run);
void cli_train_run_failed(const struct train_run *run, vb_status status);
/* This rank leads from now on. far: the folder has nothing of this run yet. */
void cli_train_run_led(struct train_run *run, bool far);
vb_status cli_train_run_ended(const struct train_run *run, const char *mode,
                              const struct vb_train_result *result);

/* Adds the workers that have joined to an array: from their events, or what the result tells of
 * them (train_joined.c). */
void cli_train_json_joined(struct vb_json *json, const struct train_run *run,
                           const struct vb_train_result *result);

/* Called by the supervisor: if run.json says that the run goes on, it has failed. */
void cli_train_run_dead(const char *dir, const char *why);

/* ---- --again (train_again.c) ----------------------------------------------------------------- */

struct train_again {
    char **argv; /* NULL: --again was not given */
    int argc;
    char **owned; /* texts to free */
    int n_owned;
};

/* If --again is among the arguments, makes the arguments of that run, followed by the other
 * arguments. Returns -1 on success; otherwise prints one line and returns the exit code. The caller
 * calls cli_train_again_fini() in any case. */
int cli_train_again(int argc, char **argv, struct train_again *again);
void cli_train_again_fini(struct train_again *again);

/* ---- output (train_print.c) ------------------------------------------------------------------ */

const char *cli_train_signal(int number); /* returns "SIGINT" ... */

/* Prints the result to standard output, as text or as the final object (JSON). */
vb_status cli_train_print(const char *mode, const struct vb_train_opts *o,
                          const struct vb_train_result *result, bool json);

/* Prints the figures of this rank, which joined the job at root. Called if another rank reports the
 * result. */
vb_status cli_train_print_joined(const char *root, int rank, const struct vb_train_opts *o,
                                 const struct vb_train_result *result, bool json);

/* The place where progress is shown: nowhere, on this process's terminal, or by the supervisor,
 * which reads this process's standard error. */
enum cli_screen { CLI_NO_SCREEN, CLI_TERMINAL, CLI_SUPERVISOR };

/* cli_train_watch() shows progress as one line. It is a vb_train_watch_fn, and screen points to an
 * enum cli_screen. cli_train_watch_end() erases the line. */
void cli_train_watch(void *screen, const struct vb_train_news *news);
void cli_train_watch_end(enum cli_screen screen);

/* Writes the clocks of all ranks against that of rank 0 as the array "clocks" (train_clocks.c). */
void cli_train_json_clocks(struct vb_json *json, const struct vb_train_result *result);

#endif
