/* SPDX-License-Identifier: MIT
 *
 * Training: models, options, results, and the run itself.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_H
#define VB_ENGINE_TRAIN_TRAIN_H

#include "data/data.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/inject/train_inject.h"
#include "engine/verdict/verdict.h"
#include "kernels/kernels.h"
#include "net/net.h"
#include "record/clock.h"
#include "record/trace/trace_out.h"

enum vb_mode { VB_MODE_SYNC, VB_MODE_SINGLE, VB_MODE_ASYNC };

/* Each moment of training belongs to exactly one phase. */
enum vb_phase {
    VB_PHASE_DATA,
    VB_PHASE_FORWARD,
    VB_PHASE_BACKWARD,
    VB_PHASE_COMM, /* transfer and summing that are not hidden behind computing */
    VB_PHASE_WAIT, /* waiting for a slower rank */
    VB_PHASE_UPDATE,
    VB_PHASE_EVAL,
    VB_PHASE_CHECKPOINT,
    VB_PHASES,
};

const char *vb_phase_str(enum vb_phase phase); /* "data" ...: the name in the JSON result */

/* The progress of a job, shown by rank 0 or, in asynchronous training, by the lowest worker that is
 * still there: after a step, at most ten times per second, and after each evaluation. */
struct vb_train_news {
    int64_t step, steps;
    double epoch;
    int rank;         /* the rank that shows only its own progress; -1: that of the job */
    double loss;      /* loss per sample in the last batch of the rank that shows progress */
    double test_loss; /* of the last evaluation, like accuracy */
    double accuracy;  /* negative: there was no evaluation */
    double samples_per_s;
    double left_s;  /* estimated time to the end */
    bool evaluated; /* this report follows an evaluation */
    bool replayed;  /* nothing is computed, so there is no loss */
};

typedef void (*vb_train_watch_fn)(void *arg, const struct vb_train_news *news);

/* A function that is called with the parameters after each step. If the run fails, the function is
 * called once more, with the parameters of the last complete step. */
typedef void (*vb_train_look_fn)(void *arg, int64_t step, const float *params, size_t n,
                                 bool failed);

struct vb_train_result;

/* A function that reports the complete result to the user. It is called on the rank that reports.
 * In asynchronous training the other workers wait until the result is reported; if this rank fails
 * or dies, the next worker reports. */
typedef vb_status (*vb_train_report_fn)(void *arg, const struct vb_train_result *result);

/* ---- models ---------------------------------------------------------------------------------- */

enum vb_schedule { VB_SCHEDULE_AUTO, VB_SCHEDULE_CONSTANT, VB_SCHEDULE_STEP, VB_SCHEDULE_COSINE };

/* One variant of a model, for one size of images. */
struct vb_train_net {
    const char *name; /* name of the net and of its table in models/tables.c, if it is dense */
    int input;        /* side of the images in pixels, as in --input; 0: the user has no choice */
    enum vb_synth_kind synth; /* built-in data that the net is trained on by default */
    const char *step_batches; /* batch sizes that bench step measures by default: "8,16" */
};

#define VB_TRAIN_NETS 2

/* Everything that differs between models, except for their layers. */
struct vb_train_model {
    const char *name;  /* name of the model for the command verbena train */
    const char *about; /* a description of the model in a few words */
    bool sparse;       /* sparse rows and a logistic loss; else images and a softmax */
    bool progress;     /* a progress thread sends the large gradients during the backward pass */
    float mean, scale; /* a pixel p becomes (p - mean) * scale; if scale is 0: p / 255 */

    /* default options */
    int batch;           /* number of samples of one rank in a step */
    int epochs;          /* length of the training */
    int64_t least_steps; /* and its least length, in steps of `batch` samples */
    bool linear;         /* trials on a sample find rule, rate and length (engine/trial) */
    enum vb_k_rule_kind rule;
    enum vb_schedule schedule;
    double lr, lr_max; /* learning rate for this batch size; maximum for larger batches */
    double lr_by_rule[VB_K_FTRL + 1]; /* of another rule than `rule`, if the user names it */
    double decay, clip;               /* 0: no weight decay, no clipping */
    double warmup_epochs; /* number of epochs in which the learning rate rises to its full value */

    struct vb_train_net nets[VB_TRAIN_NETS]; /* the first net is the default; unused: no name */
};

/* Returns the table of models, which is never freed. */
const struct vb_train_model *vb_train_models(int *n_p);

/* Returns the model of this name, or NULL if there is none. */
const struct vb_train_model *vb_train_model_find(const char *name);

/* Returns the net of a model for images with this side, or the default net if there is none. */
const struct vb_train_net *vb_train_net_of(const struct vb_train_model *model, int input);

/* ---- options --------------------------------------------------------------------------------- */

/* The parameter server. Its servers are threads of ranks 0 to servers - 1, or the last ranks of the
 * group. Standby servers follow the servers. */
struct vb_async_opts {
    int servers;       /* number of servers without standbys; 0: one */
    bool dedicated;    /* the last ranks of the group are servers and do not compute */
    bool bounded;      /* a worker may be at most `staleness` steps ahead of the slowest worker */
    int64_t staleness; /* used if bounded is set; 0: the same bits as in synchronous training */
    int backup;   /* number of gradients in each step that are not waited for; needs staleness 0 */
    bool hogwild; /* workers on the server's host update the server's parameters in place */
    int max_workers; /* maximum, including joiners; 0: some more than at the start */
    int replicas;    /* 2: each server has a standby, on the next rank; 0: there are no standbys */
};

/* The data to train on, and to evaluate on at the end. */
struct vb_train_data_opts {
    struct vb_data_ask ask;
    const char *text;      /* --data as given, to compare with other ranks and checkpoints */
    const char *test_text; /* --test-data as given; NULL: not given */
    int input;             /* side of the images, for a model with several nets; 0: chosen */
    int64_t test_limit;    /* number of test samples to evaluate on, from the first one; 0: all */
    bool whole_steps; /* samples that would make a shorter step are left out; batch must be given */
};

/* The size of a step and the length of the training. */
struct vb_train_length_opts {
    int64_t batch;                  /* number of samples of one rank in a step, */
    int64_t global_batch;           /* or of all ranks; at most one of the two is given */
    int64_t epochs, steps, samples; /* length of the training; at most one of the three is given */
};

#define VB_LR_MAX 1000

/* The update rule and the learning rate. */
struct vb_train_learn_opts {
    double lr;
    enum vb_schedule schedule;
    int64_t warmup;                      /* number of steps; negative: chosen */
    const char *rule;                    /* "sgd", "momentum", "nesterov", "adagrad", "ftrl" */
    double momentum, weight_decay, clip; /* negative: chosen; clip 0: no clipping */
};

/* When the run is done before its last step: at the first evaluation for which one of the
 * conditions holds. */
enum vb_until_kind {
    VB_UNTIL_ACCURACY, /* at least this accuracy */
    VB_UNTIL_LOSS,     /* at most this loss */
    VB_UNTIL_PLATEAU,  /* so many evaluations without a better loss; the best parameters are kept */
};

#define VB_UNTIL_MAX 8
#define VB_UNTIL_TEXT 48
#define VB_UNTIL_LIST (VB_UNTIL_MAX * VB_UNTIL_TEXT)

struct vb_until {
    enum vb_until_kind kind;
    double value;     /* accuracy or loss */
    int64_t patience; /* plateau: number of evaluations */
};

struct vb_train_until_opts {
    struct vb_until list[VB_UNTIL_MAX];
    int n; /* 0: the run makes all its steps */
};

/* Write a condition, and all of them, as the command line takes them: "accuracy=0.97,plateau:5". */
void vb_until_text(const struct vb_until *until, char text[VB_UNTIL_TEXT]);
void vb_until_list(const struct vb_train_until_opts *o, char text[VB_UNTIL_LIST]);

/* Checkpoints. */
struct vb_train_save_opts {
    const char *dir; /* folder for checkpoints; NULL: no checkpoints are written */
    int64_t every;   /* number of steps between checkpoints; 0: only one at the end */
    bool strict;     /* a checkpoint that cannot be written ends the run */
    bool resume;     /* continue from the newest checkpoint, if there is one */
    bool other_data; /* resume: the data may have changed since the run began */
};

#define VB_FACTS_PEERS 256 /* the transports to this many ranks are told */

/* The machine of a rank. */
struct vb_rank_facts {
    int rank, pid;
    bool server;
    char host[64];
    int cpus; /* that the process may use */
    char cpu_model[96], kernel[160], topology[256];
    int64_t memory_bytes;
    char via[VB_FACTS_PEERS]; /* to each rank: first letter of the transport; '-': itself */
    char device[64];          /* "": no RDMA */
};

/* The numbers of a run, and where each comes from: "given" by the user, from the "model", from a
 * measurement of the "data", or from "trials" on a sample of it. */
struct vb_chosen {
    const char *rule, *schedule;
    double lr, momentum, decay, clip;
    int64_t warmup, steps;
    int global_batch;
    const char *rule_from, *lr_from, *steps_from, *batch_from;
    char why[200]; /* one line for the user; "": all is given */
};

/* What is known about a run when it begins. */
struct vb_run_facts {
    uint64_t unix_ns, clock_ns; /* now, by the clock of the day and by that of records */
    struct vb_rank_facts *ranks;
    int n_ranks;
    int64_t train_rows, test_rows, features;
    int classes;
    uint64_t data_digest[2]; /* of training and test data */
    int64_t steps, steps_per_epoch, resumed;
    int global_batch;
    struct vb_chosen chosen;
    char *plan; /* NULL: there is no choice of kernels */
    char transport_why[512];
    char doors[VB_DOORS_TEXT]; /* where a synchronous job can be joined; "": nowhere */
};

void vb_run_facts_fini(struct vb_run_facts *facts);

/* Adds the machine of a rank as an object. */
void vb_rank_facts_json(struct vb_json *json, const char *key, const struct vb_rank_facts *facts);

/* The run folder. */
struct vb_train_run_opts {
    const char *link;           /* --link, for TensorBoard alone; NULL: none */
    const char *dir;            /* NULL: nothing is kept */
    bool append;                /* the records of an earlier run in this folder are continued */
    struct vb_run_facts *facts; /* the run fills them in, and the caller frees them; may be NULL */
    double record_mb_s; /* records that a rank which does not see the folder may send; 0: 1 */
    int64_t trace_from, trace_to; /* steps that are traced, from 1; trace_to 0: none */
    enum vb_trace_format trace_format;
};

/* Synchronous training: how gradients are summed over ranks. */
struct vb_train_sums_opts {
    struct vb_coll_opts coll;
    int64_t bucket_bytes;      /* bytes that are summed together; 0: chosen for the link */
    int64_t defer_bytes;       /* bytes that are sent after those of the first layers; 0: chosen */
    int64_t shared_update_min; /* least bytes of parameters to share the update; 0: chosen */
    int64_t check_replicas; /* steps between comparisons of all ranks' parameters; 0: at the end */
    bool no_noise;          /* the gradient noise scale is not measured */
};

/* The cores that a rank runs on. */
struct vb_train_place_opts {
    int threads; /* number of computing threads per rank; 0: chosen for the machine */
    bool pin;    /* pin threads to cores */
    int local_rank, local_ranks; /* rank on this host; ranks on it, 0: learnt from the group */
};

struct vb_joined;

/* Workers that join a running job. */
struct vb_train_join_opts {
    struct vb_joined *joined; /* borrowed: the job that this worker joins; NULL: none */
    struct vb_caller *caller; /* borrowed: the same for a synchronous job */
    bool own; /* the job's supervisor has started this process: its user is that of the job */
    const char *words; /* arguments for joiners, each with a zero byte; NULL: nobody can join */
    size_t words_len;
    /* Asynchronous jobs: called on rank 0 with the address for joiners; may be NULL. */
    void (*say)(const char *root, void *arg);
    void *say_arg;
};

/* What becomes of the lead of a synchronous job that loses ranks. */
enum vb_led {
    VB_LED_HERE, /* this rank leads from now on, and writes to the same run folder */
    VB_LED_FAR,  /* the same, but it does not see that folder: it writes to its own, which has
                    nothing of this run yet */
    VB_LED_NOT,  /* this rank must neither save nor report */
};

/* Returns the command line of the job that a caller was told about (vb_caller_job()); false: it is
 * not valid. */
bool vb_train_job_words(const void *job, size_t len, const char **words_p, size_t *len_p);

/* What the user wants of a running synchronous job. */
enum vb_train_ask_kind { VB_ASK_NOTHING, VB_ASK_CHECKPOINT, VB_ASK_REMOVE, VB_ASK_ROOM };
struct vb_train_ask {
    enum vb_train_ask_kind kind;
    int rank; /* VB_ASK_REMOVE: the rank that is to leave */
    int n;    /* VB_ASK_ROOM: whether so many more can join */
};

/* Functions that training calls. Each may be NULL. */
struct vb_train_hooks {
    /* Called on rank 0 before the first step, with what the engine has chosen. Every rank of an
     * elastic job needs all other hooks, because it may have to report. */
    void (*chose)(void *arg, const struct vb_chosen *chosen);
    void *chose_arg;
    /* Called before the first step, when the facts of the run are known. */
    void (*opened)(void *arg);
    void *opened_arg;
    /* Called when the group of a synchronous job is open, and with NULL before it is closed. */
    void (*grouped)(void *arg, struct vb_group *group);
    void *grouped_arg;
    /* Each rank calls begun() once, before its first step. */
    void (*begun)(void *arg);
    void *begun_arg;
    /* With a run folder: called on a rank that reports from now on, because the ranks below it are
     * lost, also by another thread; and on a rank that cannot go on, although others may. */
    void (*led)(void *arg, enum vb_led led);
    void *led_arg;
    /* Called before each step. Returns the signal for which the user wants to stop; 0: go on. All
     * ranks then stop after the same step, save if there is a folder for it, evaluate and report. A
     * joiner leaves, and the others go on. At least one rank must return it; NULL: the run is never
     * stopped. */
    int (*stop)(void *arg);
    void *stop_arg;
    /* For tests: if it returns true on the lead, the members of a synchronous job form a new group
     * after the next two steps, as if somebody waited to join. */
    bool (*form)(void *arg, int64_t step);
    void *form_arg;
    /* Called before each step on the rank that reports: returns what the user wants, and gets the
     * answer before the next call that returns something. text: the path of the checkpoint, or why
     * it was not done. Asynchronous training only tells the last step of the job that this rank
     * knows, and must not be asked for anything. */
    struct vb_train_ask (*ask)(void *arg, int64_t step);
    void (*answer)(void *arg, bool done, const char *text);
    void *ask_arg;
    /* Synchronous jobs that can be joined: called on the lead with the addresses for --join, at the
     * start and whenever they are others. */
    void (*joinable)(void *arg, const char *doors);
    void *joinable_arg;
    /* A joiner of a synchronous job: called with the number that its files and messages have,
     * before it takes part in the job. */
    void (*numbered)(void *arg, int number);
    void *numbered_arg;
    vb_train_watch_fn watch;
    void *watch_arg;
    bool watch_own; /* this rank has a screen of its own, and shows its progress there, also if
                       another rank shows that of the job */
    vb_train_look_fn look;
    void *look_arg;
    /* Called on the lowest rank, also after others were lost. */
    vb_train_report_fn report;
    void *report_arg;
};

/* The engine chooses the value of an option that is 0, NULL or AUTO, or negative where a comment
 * says so. */
struct vb_train_opts {
    const char *model; /* name of a model in vb_train_models() */
    enum vb_mode mode;
    uint64_t seed;
    const char *plan;    /* file that names the kernel of each layer; NULL: chosen by timing */
    bool fast_math;      /* may choose kernels that round more than sums of floats do */
    bool mixed_cpus;     /* may join a synchronous job whose ranks compute with other CPUs */
    bool elastic;        /* synchronous jobs of several ranks go on when ranks are lost */
    int min_ranks;       /* elastic: fewer ranks do not go on, but save and wait for others, */
    double wait_ranks_s; /* for so long, and then end. 0: any number of ranks goes on */
    bool dry_run;        /* everything is set up, but nothing is trained */
    int64_t eval_every; /* number of steps between evaluations; 0: only one at the end, or chosen if
                           there are conditions in `until` */

    struct vb_train_data_opts data;
    struct vb_train_length_opts length;
    struct vb_train_learn_opts learn;
    struct vb_train_until_opts until;
    struct vb_train_save_opts save;
    struct vb_train_run_opts run;
    struct vb_train_sums_opts sums;
    struct vb_async_opts async; /* used if mode is VB_MODE_ASYNC */
    struct vb_train_place_opts place;
    struct vb_inject_opts inject; /* for experiments */
    const char *replay; /* run folder: ranks sleep for the times that it recorded, instead of
                           computing; NULL: they compute */
    const char *ledger; /* file to which ranks append which samples a step has; NULL: none */
    struct vb_train_join_opts join;
    struct vb_train_hooks hooks;

    struct vb_group_opts group;  /* if world is 1, only rank and world are used */
    struct vb_group *open_group; /* an open group to use, which stays open; NULL: one is opened */
};

/* What a rank of a job needs. The rank that needs most counts. Data is not included. */
struct vb_train_need {
    int on_host; /* number of ranks on this host */
    int fds, threads;
    bool memory_known;    /* false: the sums below lack what the model needs */
    size_t program_bytes; /* the program and its libraries */
    size_t params_bytes;  /* parameters and the state of the update rule, with their copies */
    size_t windows_bytes; /* gradients, and the slots and rings of their sums */
    size_t work_bytes;    /* outputs of layers, batches */
    size_t peers_bytes;   /* inboxes and records of all peers */
    size_t host_bytes;    /* shared by the ranks of a host */
};

/* Computes the need without opening anything. The options have passed vb_train_check(). */
vb_status vb_train_need(const struct vb_train_opts *o, int on_host, struct vb_train_need *need_p);
size_t vb_train_need_rank(const struct vb_train_need *need); /* memory of one rank */
size_t vb_train_need_host(const struct vb_train_need *need); /* memory of this host's ranks */

/* Returns whether the other ranks go on when one is lost, by training without it. */
bool vb_train_is_elastic(const struct vb_train_opts *o);

/* Returns the number of ranks that compute. The other ranks of the group are dedicated servers. */
int vb_train_workers(const struct vb_train_opts *o);

/* Returns the number of servers, including standbys. A server is a thread or a rank. */
int vb_train_servers(const struct vb_async_opts *o);

/* ---- results --------------------------------------------------------------------------------- */

struct vb_rank_result {
    int rank;
    bool server;     /* row of a server: applying gradients counts as update, idling as wait */
    double accuracy; /* of a worker when it ended, or of the job; negative: there is none */
    char host[64];
    char transport[16]; /* asynchronous: between this worker and the servers; else "" */
    double train_s;
    double phase_s[VB_PHASES];        /* time of each phase; the sum of all phases is train_s */
    double cpu_pct;                   /* cpu time during training, in percent of one cpu */
    double cpu_pct_peak;              /* peaks are the highest averages over one second */
    double send_mb_s, send_mb_s_peak; /* by the transports of the rank, in 10^6 bytes */
    double recv_mb_s, recv_mb_s_peak;
    double disk_read_mb_s, disk_read_mb_s_peak;
    double disk_write_mb_s, disk_write_mb_s_peak; /* peak: or of a synced checkpoint */
    double rss_peak_mb;   /* peak memory of the whole process, in units of 10^6 bytes */
    double registered_mb; /* amount of memory registered with RDMA devices */
    double register_s;    /* time spent on registering memory, before training */
    int64_t records_lost; /* rows that the run folder did not take */
    int64_t late_n;       /* how often the rank that waited longest for this rank had to wait */
    double late_s, late_max_s; /* how long that rank waited, in total and in the longest wait */
    double queue_s;     /* time in which it was ready to run, but had no core; negative: unknown */
    double thread_s;    /* CPU time of the thread that trains */
    double host_busy_s; /* CPU time of all processes of its machine; negative: unknown */
    uint64_t machine;   /* the same for all ranks of a machine */
};

#define VB_STALE_BUCKETS 20

/* The staleness of a gradient is the number of gradients of other workers that were applied after
 * the worker read the parameters and before the update with this gradient. */
struct vb_stale {
    uint64_t n, sum, max;
    uint64_t dropped;                  /* number of gradients that were not applied */
    uint64_t bucket[VB_STALE_BUCKETS]; /* gradients with staleness 0, 1, 2 to 3, 4 to 7 ... */
};

struct vb_worker_stale {
    int rank;
    struct vb_stale stale;
};

/* What synchronous ranks do after a loss, one after another, until the next step is done. */
enum vb_recovery_phase {
    VB_RECOVERY_DETECT,    /* until it was noticed */
    VB_RECOVERY_AGREE,     /* until the ranks agreed which of them go on */
    VB_RECOVERY_FENCE,     /* until nothing of the lost ranks could arrive any more */
    VB_RECOVERY_REBUILD,   /* until all had the last step, and their new shares */
    VB_RECOVERY_RECOMPUTE, /* until the next step was done */
    VB_RECOVERY_PHASES,
};
const char *vb_recovery_phase_str(enum vb_recovery_phase phase); /* "detect" ... */

/* An event that concerns one rank and did not stop the job; step is the number of gradients applied
 * before. "checkpoint": the one of this step could not be written. "rank lost": step is the last
 * one that was kept; synchronous ranks lose a rank for whatever reason, and what follows is known.
 */
struct vb_fault {
    double at_s; /* seconds since the start of training */
    int64_t step;
    int rank;
    char what[16]; /* "died", "stopped", "left", "removed", "joined", "rejoined", "checkpoint",
                      "rank lost" */
    char why[160];
    bool recovered; /* of what follows */
    char host[64];
    int64_t again;      /* the step that was computed again */
    int left;           /* number of ranks that went on */
    double recovered_s; /* from the last sign of life until the next step was done */
    double phase_s[VB_RECOVERY_PHASES]; /* the sum is recovered_s */
};

/* Adds what is known of a recovery, if anything, to an object. */
void vb_fault_json(struct vb_json *json, const struct vb_fault *fault);

/* An evaluation before the end of the run. */
struct vb_eval {
    int64_t step;
    double accuracy, loss; /* measured on test data; the loss is per sample */
};

/* What became of the conditions in vb_train_opts.until. */
struct vb_until_result {
    bool reached;
    int which;        /* the condition that held; used if reached */
    int64_t step;     /* step of the evaluation for which it held */
    double time_to_s; /* time of training until then in this run, without evaluation and saving */
    double wall_to_s; /* time of the whole run until then */
    int64_t params_step;   /* step of the evaluation whose parameters are the result */
    double accuracy, loss; /* the highest accuracy and the lowest loss of all evaluations */
    int64_t eval_every;
    int64_t kept_bytes; /* memory of a rank for the best parameters */
};

#define VB_WARNING_TEXT 320

/* Whether training loss still fell at the end of the run, as the rank that reports saw it. */
struct vb_improving {
    bool known, still;
    double before, last; /* mean training loss in the last tenth of the steps, and in that before */
};

/* The clock of a rank against that of rank 0. */
struct vb_train_clock {
    int rank;
    struct vb_clock_fit fit;
};

/* The gradient noise scale (engine/record/train_noise.h), in samples of a global batch. */
struct vb_noise_result {
    double scale, error; /* NAN: not known */
    int64_t steps;       /* measurements, of all ranks together */
    const char *why;     /* why it is not known; NULL: it is */
};

/* What the machine of this rank can do; 0: not known. */
struct vb_result_machine {
    int cpus;                 /* that the process may use */
    int threads;              /* of this rank that compute */
    double gflop;             /* 10^9 floating-point operations of a step of this rank */
    double gflop_s, gb_s;     /* highest rates of matrix products and of memory */
    struct vb_coll_link link; /* as measured before training */
    struct vb_coll_forecast forecast;
    int requests; /* sums in a step */
};

/* The result of a run. It is the same on all members, except for reports, wall_s and machine, and
 * what the bottleneck tells of these. Asynchronous
 * training: a worker that does not report fills in only its own row and samples, and the steps and
 * seconds that it knows of. */
struct vb_train_result {
    bool reports; /* this rank reports the result */
    int reporter; /* elastic synchronous training: number of the rank that does; -1: not known */
    int ranks;    /* number of ranks that compute, at the start */
    int workers;  /* number of ranks that computed to the end, including joiners */
    int *lost;    /* synchronous training: the ranks that were lost, n_lost of them, ascending */
    int n_lost;
    int rows;                 /* number of rows of per_rank: first the workers, then the servers */
    char transport[16];       /* "": nothing was transferred */
    const char *order, *algo; /* order and algorithm of the sums; NULL: nothing was transferred */
    const char *wire;         /* number format of the transfer; NULL: none, or asynchronous */
    bool apart;               /* each step is made by one worker, not by all workers together */
    int batch, global_batch;  /* samples in a step: of the rank with the most; of all ranks */
    int64_t steps;   /* number of steps in total, including the steps of the run that was resumed */
    int64_t resumed; /* number of these steps that the resumed run had made */
    int stopped;     /* the signal that ended the run early; 0: all steps were made */
    bool left;       /* only this rank was stopped: a joiner, or a rank that was removed */
    int64_t samples; /* number of samples that were trained on in this run */
    double epochs;
    double lr; /* the highest learning rate */
    struct vb_chosen chosen;
    struct vb_improving improving;
    double train_s; /* mean of the ranks' training times; includes evaluation, excludes set-up */
    double step_s;  /* train_s without evaluation and checkpoints: rates count this time */
    double wall_s;  /* time of the whole run on this rank, including set-up */
    double phase_s[VB_PHASES]; /* time of each phase, as a mean over ranks; the sum is train_s */
    struct vb_noise_result noise;
    double loss;     /* loss per sample on test data */
    double accuracy; /* accuracy on test data, 0 to 1 */
    double unseen;   /* share of the nonzeros of test data whose feature training has not seen;
                        negative: the model is dense, or nothing was trained */
    int test_samples;
    int classes;
    int64_t params;
    char params_sha256[65]; /* of little-endian floats, in the order of the table of parameters */
    char *plan;             /* the kernels in use, as for --plan; NULL: there is no choice */
    char plan_sha256[65];   /* digest of the plan's text; "": there is no choice of kernels */
    char checkpoint[4096];  /* path of the last checkpoint that was written; "": none was written */
    double pause_s;         /* the longest time that training paused for a checkpoint */
    double save_s;          /* the longest time until a checkpoint was on the disk */
    int64_t saves_skipped;  /* checkpoints left out, because another one was being written */
    struct vb_rank_result *per_rank;
    struct vb_worker_stale *staleness; /* staleness per worker; NULL: synchronous training */
    struct vb_fault *faults;
    int n_staleness, n_faults;
    struct vb_eval *evals; /* evaluations before the end, if eval_every is set. Asynchronous
                              training: those of this worker, not those of a worker that is gone */
    int n_evals;
    int n_clocks, n_warnings;
    struct vb_train_clock *clocks; /* on rank 0, with a run folder; NULL: none were compared */
    struct vb_result_machine machine;
    struct vb_bottleneck bottleneck;
    struct vb_until_result until;      /* used if there are conditions */
    char (*warnings)[VB_WARNING_TEXT]; /* what was warned of, each once */
};

/* ---- the run --------------------------------------------------------------------------------- */

/* Checks that the options fit each other, without opening anything, and logs the first error.
 * vb_train() calls this function, too. */
vb_status vb_train_check(const struct vb_train_opts *o);

/* Joins a running asynchronous job as one more worker. rank and world of opts are not used. Then
 * the joiner calls vb_train(). It makes the options for vb_train() from the job's command line
 * (vb_joined_words()); it may replace options that concern only itself. group.world must be the
 * job's world, group.rank must be 0. At the end the joiner calls vb_joined_leave(). */
vb_status vb_train_join(const struct vb_group_opts *opts, struct vb_caller *caller,
                        struct vb_joined **joined_p);
void vb_joined_leave(struct vb_joined *joined); /* joined may be NULL */
const char *vb_joined_words(const struct vb_joined *joined, size_t *len_p);
int vb_joined_world(const struct vb_joined *joined);
int vb_joined_rank(const struct vb_joined *joined); /* rank in the job, before it trains */

/* Trains a model. Each rank calls this function, with the same options except for the rank and
 * its placement. If the function succeeds, the caller releases the result with
 * vb_train_result_fini(). */
vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p);
void vb_train_result_fini(struct vb_train_result *result);

/* ---- evaluation of a checkpoint (eval.c) ----------------------------------------------------- */

struct vb_eval_opts {
    struct vb_data_spec data; /* the test part of the data is used if there is one */
    const char *data_text;    /* NULL: the data of the run that wrote the checkpoint */
};

#define VB_EVAL_DATA 512

struct vb_eval_result {
    char model[VB_CHECKPOINT_NAME];
    int64_t step;
    int samples;
    double accuracy, loss, seconds;
    struct vb_checkpoint_view view;
    char data[VB_EVAL_DATA]; /* what it was evaluated on, as for --data */
};

/* Evaluates the parameters of a checkpoint on data, without training. */
vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p);

#endif
