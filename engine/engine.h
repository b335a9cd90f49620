/* SPDX-License-Identifier: MIT
 *
 * engine/: puts machine, network, kernels and models together: checkpoints and training.
 */
#ifndef VB_ENGINE_H
#define VB_ENGINE_H

#include "base/base.h"
#include "data/data.h"
#include "engine/pub_doctor.h"
#include "engine/pub_launch.h"
#include "kernels/kernels.h"
#include "models/models.h"
#include "net/net.h"
#include "topo/topo.h"

/* ---- checkpoints ----------------------------------------------------------------------------- */

#define VB_CHECKPOINT_NAME 32            /* bytes of a name, with its terminating zero */
#define VB_CHECKPOINT_ARRAYS_MAX 1024    /* arrays of a checkpoint */
#define VB_CHECKPOINT_TEXT_MAX (1 << 20) /* bytes of a text */

enum vb_array_type { VB_ARRAY_F32, VB_ARRAY_U32 };

struct vb_checkpoint_array {
    char name[VB_CHECKPOINT_NAME]; /* unique; printable, without / and without a leading dot */
    enum vb_array_type type;
    bool state;         /* state of the update rule, not a parameter; exported only on request */
    int64_t rows, cols; /* row-major; cols is 1 for vectors; rows may be 0 */
    const void *data; /* When writing: borrowed. After reading: aligned to the cache line, and valid
                         as long as the checkpoint. */
};

/* Everything that a run needs to be resumed. docs/checkpoint.md describes the format. */
struct vb_checkpoint {
    char model[VB_CHECKPOINT_NAME]; /* the same rules as for names of arrays */
    int64_t step;                   /* at least 0 */
    uint64_t seed;
    char *options; /* lines KEY=VALUE, in the form of the engine; NULL when writing: "" */
    char *plan;    /* text of vb_k_plan_text(); NULL when writing: "" */
    int n_arrays;
    struct vb_checkpoint_array *arrays;
    const void *map; /* the mapped file; map and map_bytes are set by vb_checkpoint_read() only */
    size_t map_bytes;
};

/* Writes dir/checkpoint-STEP.vbc. Creates the folder if its parent exists. The file is written
 * under a temporary name, synced and renamed. So older checkpoints stay intact whatever happens,
 * and an incomplete file never has the name of a checkpoint. Temporary files of killed writers are
 * removed, so a folder must have only one writer at a time. If keep is not 0, only this checkpoint
 * and the keep - 1 newest before it are kept. Blocks until all data is on the disk. seconds_p: how
 * long that took; may be NULL. */
vb_status vb_checkpoint_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                              double *seconds_p);

/* Maps a checkpoint and checks every byte of it. The caller frees it with vb_checkpoint_free(). */
vb_status vb_checkpoint_read(const char *path, struct vb_checkpoint **cp_p);
void vb_checkpoint_free(struct vb_checkpoint *cp);

/* Returns NULL if there is no array of this name. */
const struct vb_checkpoint_array *vb_checkpoint_find(const struct vb_checkpoint *cp,
                                                     const char *name);

/* The elements of the array of this name, which must be n of this type. Otherwise logs an error and
 * returns NULL. */
const void *vb_checkpoint_data(const struct vb_checkpoint *cp, const char *name,
                               enum vb_array_type type, size_t n);

/* Finds the checkpoint with the highest step. A broken checkpoint is skipped with a warning.
 * Returns VB_ERR_NO_FILE, without logging, if the folder does not exist or has no checkpoint;
 * VB_ERR_INPUT if all checkpoints are broken. */
vb_status vb_checkpoint_latest(const char *dir, char *path, size_t size);

/* ---- training -------------------------------------------------------------------------------- */

enum vb_mode { VB_MODE_SYNC, VB_MODE_SINGLE, VB_MODE_ASYNC };

/* Where the time of a rank goes. Each moment of training belongs to exactly one phase. */
enum vb_phase {
    VB_PHASE_DATA,
    VB_PHASE_FORWARD,
    VB_PHASE_BACKWARD,
    VB_PHASE_COMM, /* transfer and summing that computing does not hide */
    VB_PHASE_WAIT, /* waiting for a slower rank */
    VB_PHASE_UPDATE,
    VB_PHASE_EVAL,
    VB_PHASE_CHECKPOINT,
    VB_PHASES,
};

const char *vb_phase_str(enum vb_phase phase); /* "data", "forward" ... as in the JSON result */

/* The progress of a job. Reported after a step of rank 0, at most ten times a second, and after
 * each evaluation. */
struct vb_train_news {
    int64_t step, steps;
    double epoch;
    double loss;      /* per sample, of rank 0's last batch */
    double accuracy;  /* of the last evaluation; negative: there was none */
    double test_loss; /* of the last evaluation; negative: there was none */
    double samples_per_s;
    double left_s;  /* estimated time to the end */
    bool evaluated; /* this report follows an evaluation */
};

typedef void (*vb_train_watch_fn)(void *arg, const struct vb_train_news *news);

/* Called with the parameters after each step. If the run fails, it is called once more, with the
 * parameters of the last complete step. */
typedef void (*vb_train_look_fn)(void *arg, int64_t step, const float *params, size_t n,
                                 bool failed);

struct vb_train_result;

/* Reports the complete result to the user. Called on the rank that reports. In asynchronous
 * training the other workers wait for it: if it fails, or the rank dies, the next worker reports.
 */
typedef vb_status (*vb_train_report_fn)(void *arg, const struct vb_train_result *result);

enum vb_schedule { VB_SCHEDULE_AUTO, VB_SCHEDULE_CONSTANT, VB_SCHEDULE_STEP, VB_SCHEDULE_COSINE };

/* One variant of a model: the input that it takes. A model with images of one size has one net. */
struct vb_train_net {
    const char *name; /* of its table of layers in models/tables.c; sparse models have none */
    int input;        /* side of its images, as --input takes it; 0: there is no choice */
    enum vb_synth_kind synth; /* built-in data that it is trained on by default */
    const char *step_batches; /* batch sizes that bench step measures by default: "8,16" */
};

#define VB_TRAIN_NETS 2

/* Everything that differs between models, except for their layers. */
struct vb_train_model {
    const char *name;  /* as verbena train takes it */
    const char *about; /* what it is, in a few words */
    bool sparse;       /* trained on sparse rows, with a logistic loss; false: trained on images,
                          with the cross-entropy of a softmax */
    bool progress;     /* gradients are so large that a thread sends them during backward */
    float mean, scale; /* a pixel p becomes (p - mean) * scale; scale 0: p / 255 */

    /* defaults */
    int batch;  /* samples of one rank in a step */
    int epochs; /* length of the training */
    enum vb_k_rule_kind rule;
    enum vb_schedule schedule;
    double lr, lr_max;    /* for this batch size, and the limit for larger ones */
    double decay, clip;   /* 0: none */
    double warmup_epochs; /* epochs until the learning rate is reached */

    struct vb_train_net nets[VB_TRAIN_NETS]; /* the first is the default; unused: no name */
};

/* The table of models. It is never freed. */
const struct vb_train_model *vb_train_models(int *n_p);

/* Returns NULL if there is no model of this name. */
const struct vb_train_model *vb_train_model_find(const char *name);

/* The net of a model for images of this side. Returns the default net if there is no other. */
const struct vb_train_net *vb_train_net_of(const struct vb_train_model *model, int input);

/* The parameter server. Its servers are threads of ranks 0 to servers - 1, or the last ranks of the
 * group. Standby servers follow the servers. */
struct vb_async_opts {
    int servers;       /* 0: one */
    bool dedicated;    /* the last ranks of the group are servers and do not compute */
    bool bounded;      /* a worker may be at most staleness steps ahead of the slowest */
    int64_t staleness; /* used if bounded; 0: the bits of synchronous training */
    int backup;        /* staleness 0: number of gradients of a step that are not waited for */
    bool hogwild;      /* workers on the server's host update its parameters in place */
    int max_workers;   /* including joiners; 0: some more than at the start */
    int replicas;      /* 2: each server has a standby, on the next rank; 0: none has */
};

struct vb_joined;

/* The engine chooses a value for options that are 0, NULL or AUTO, and for options that are
 * negative where a comment says so. */
struct vb_train_opts {
    const char *model; /* name of a row of vb_train_models() */
    int input;         /* side of the images, of a model with several nets; 0: chosen */
    enum vb_mode mode;
    struct vb_async_opts async; /* used in mode async */
    struct vb_data_ask data;
    const char *data_text; /* --data as given, to compare with other ranks and checkpoints */
    const char *test_text; /* --test-data as given; NULL: not given */
    int64_t batch;         /* samples of one rank in a step */
    int64_t global_batch;  /* samples of all ranks in a step; give one of the two */
    int64_t epochs, steps, samples; /* length of the training; give one of them */

    double lr;
    enum vb_schedule schedule;
    int64_t warmup;                      /* steps; negative: chosen */
    const char *rule;                    /* "sgd", "momentum", "nesterov", "adagrad", "ftrl" */
    double momentum, weight_decay, clip; /* negative: chosen; clip 0: none */

    uint64_t seed;
    int64_t eval_every;       /* steps between evaluations; 0: only at the end */
    int64_t test_limit;       /* evaluate on the first samples only; 0: on all */
    const char *checkpoint;   /* folder for checkpoints; NULL: none are written */
    int64_t checkpoint_every; /* steps between checkpoints; 0: only at the end */
    bool resume;              /* continue from the newest checkpoint, if there is one */
    const char *plan;         /* file with the choice of kernels; NULL: the engine times them */
    bool dry_run;             /* set up everything, but do not train */
    bool whole_steps;         /* leave out samples that would make a shorter step; needs batch */

    struct vb_coll_opts coll; /* how gradients are summed */
    int64_t bucket_bytes;     /* gradients summed together; 0: chosen from the measured link */
    int64_t hold_back_bytes;  /* gradients that are sent after those of the first layers; 0: chosen
                                 from the speed of the link */
    int64_t share_out_bytes;  /* size of a model from which on the ranks of one host share the
                                 update; 0: where it pays */
    int64_t check_replicas;   /* steps between comparisons of the ranks' parameters; 0: only at the
                                 end */
    int slow_rank;            /* for experiments: the rank that computes slowly */
    double slow_factor;       /* how many times as long it takes to compute; 0: no rank is slow */
    int threads;              /* computing threads per rank; 0: chosen for the machine */
    bool pin;                 /* pin threads to cores */
    struct vb_group_opts group;  /* with a world of 1 only rank and world are used */
    struct vb_group *open_group; /* an open group to use, which stays open; NULL: open one */
    int local_rank, local_ranks; /* among the ranks on this host; 0: learnt from the group */
    struct vb_joined *joined;    /* borrowed: the job that this worker joins; NULL: none */
    const char *words; /* the command line, with a zero after each word, for joiners; NULL:
                          nobody can join */
    size_t words_len;
    void (*say)(const char *root); /* called on rank 0 with the address for joiners; may be NULL */
    /* Asynchronous training: called once by each worker when all ranks have met. May be NULL. */
    void (*begun)(void *arg);
    void *begun_arg;
    vb_train_watch_fn watch; /* may be NULL */
    void *watch_arg;
    vb_train_look_fn look; /* may be NULL */
    void *look_arg;
    vb_train_report_fn report; /* may be NULL */
    void *report_arg;
};

struct vb_rank_result {
    int rank;
    bool server;     /* a row of a server: applying counts as update, idling as wait */
    double accuracy; /* of a worker at its own end, or of the job; negative: none */
    char host[64];
    double train_s;
    double phase_s[VB_PHASES]; /* their sum is train_s */
    double cpu_pct;            /* of one cpu, during training */
    double rss_peak_mb;        /* 10^6 bytes, of the whole process */
    double registered_mb;      /* memory registered with RDMA devices */
    double register_s;         /* time for that, before training */
    int64_t late_n;            /* how often a rank waited for this one (counted by one rank) */
    double late_s, late_max_s; /* how long it waited, in all and at most */
};

#define VB_STALE_BUCKETS 20

/* The staleness of a gradient is the number of gradients of other workers that were applied after
 * its parameters were read and before it was applied. */
struct vb_stale {
    uint64_t n, sum, max;
    uint64_t dropped;                  /* gradients that were not applied */
    uint64_t bucket[VB_STALE_BUCKETS]; /* counts of staleness 0, 1, 2 to 3, 4 to 7 ... */
};

struct vb_worker_stale {
    int rank;
    struct vb_stale stale;
};

/* An event of one rank that did not stop the job. */
struct vb_fault {
    double at_s;  /* since the start of training */
    int64_t step; /* gradients applied until then */
    int rank;
    char what[16]; /* "died", "stopped", "left", "joined", "rejoined" */
    char why[160];
};

/* An evaluation before the end of the run. */
struct vb_eval {
    int64_t step;
    double accuracy, loss; /* on test data; loss per sample */
};

#define VB_EVALS_MAX                                                                               \
    10000 /* evaluations that are kept; if there are more, every second is dropped */

enum vb_resource { VB_COMPUTE, VB_NETWORK, VB_STRAGGLER, VB_INPUT, VB_DISK };

const char *vb_resource_str(enum vb_resource resource); /* "compute" ... as in the JSON result */

/* What took the most time, with the figures that show it. */
struct vb_bottleneck {
    enum vb_resource resource;
    double share; /* of train_s without evaluation */
    char why[256];
};

/* The same on all ranks, except for reports and wall_s. Asynchronous training: a worker that does
 * not report has only its own row and samples, and the steps and seconds that it knows of. */
struct vb_train_result {
    bool reports;             /* this rank reports the result */
    int ranks;                /* ranks that compute, at the start */
    int workers;              /* ranks that computed to the end, including joiners */
    int rows;                 /* of per_rank: the workers, then the servers */
    char transport[16];       /* "": nothing was transferred */
    const char *order, *algo; /* of the sums; NULL: nothing was transferred */
    const char *wire;         /* number format of the transfer; NULL: none, or asynchronous */
    bool apart;               /* a step is made by one worker, not by all */
    int batch, global_batch;  /* of the rank with the largest batch; of all ranks */
    int64_t steps;            /* in all, including those of the run that was resumed */
    int64_t resumed;          /* ... of which this many were made before */
    int64_t samples;          /* of this run */
    double epochs;
    double lr;                 /* the highest */
    double train_s;            /* mean over ranks; includes evaluation, excludes set-up */
    double wall_s;             /* of this rank, including set-up */
    double phase_s[VB_PHASES]; /* means over ranks; their sum is train_s */
    double loss;               /* on test data, per sample */
    double accuracy;           /* on test data, 0 to 1 */
    int test_samples;
    int classes;
    int64_t params;
    char params_sha256[65]; /* of the parameters as little-endian floats, in table order */
    char *plan;             /* the kernels, in the format of --plan; NULL: no choice */
    char plan_sha256[65];   /* of the plan's text; "": no choice */
    char checkpoint[4096];  /* path of the last one written; "": none */
    double pause_s;         /* the longest time that a checkpoint took */
    struct vb_rank_result *per_rank;
    struct vb_worker_stale *staleness; /* of each worker; NULL: synchronous */
    int n_staleness;
    struct vb_fault *faults;
    int n_faults;
    struct vb_eval *evals; /* with eval_every; asynchronous: evaluations of this worker, which is
                              all of them unless a worker that evaluated before is gone */
    int n_evals;
    struct vb_bottleneck bottleneck;
};

/* The number of ranks that compute. The other ranks of the group are dedicated servers. */
int vb_train_workers(const struct vb_train_opts *o);

/* The number of servers, threads or ranks, including standbys. */
int vb_train_servers(const struct vb_async_opts *o);

/* Checks that the options fit each other, without opening anything, and logs the first error.
 * vb_train() calls it, too. */
vb_status vb_train_check(const struct vb_train_opts *o);

/* Joins a running asynchronous job as one more worker. rank and world of opts are not used. The
 * joiner then calls vb_train() with options made from the job's words; it may replace those that
 * concern only itself. group.world is that of the job, group.rank is 0. After that it calls
 * vb_joined_leave(). */
vb_status vb_train_join(const struct vb_group_opts *opts, struct vb_joined **joined_p);
void vb_joined_leave(struct vb_joined *joined); /* may be NULL */
const char *vb_joined_words(const struct vb_joined *joined, size_t *len_p);
int vb_joined_world(const struct vb_joined *joined);
int vb_joined_rank(const struct vb_joined *joined); /* of this process, before it trains */

/* Trains a model. Each rank calls it, with the same options except for its place. If it succeeds,
 * the caller releases the result with vb_train_result_fini(). */
vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p);
void vb_train_result_fini(struct vb_train_result *result);

/* ---- the parts of a step --------------------------------------------------------------------- */

#define VB_STEP_BATCHES_MAX 32
#define VB_STEP_REACH 1000000 /* largest batch that is considered */

/* The measurement of one batch size. Times are medians over blocks of steps; the time of a block is
 * that of its slowest rank. */
struct vb_step_point {
    int batch;          /* of one rank */
    int64_t bytes;      /* of a rank's gradient; sparse models: of the longest list */
    double step_ms;     /* a step as in training */
    double compute_ms;  /* a step without sums over ranks */
    double transfer_ms; /* the sums alone */
    double exposed_ms;  /* what the sums add to a step; never negative */
};

struct vb_step_result {
    char transport[32]; /* "shm", "shm+verbs" ...; "self": one rank */
    int ranks;
    int threads; /* of a rank */
    struct vb_step_point points[VB_STEP_BATCHES_MAX];
    int n;
};

struct vb_step_opts {
    struct vb_train_opts train; /* group, model and data; the rest is chosen */
    int batches[VB_STEP_BATCHES_MAX];
    int n_batches;
    double seconds; /* of each measurement; there are three per batch size */

    /* Called on rank 0 after each batch size, with all points so far. May be NULL. */
    void (*each)(void *arg, const struct vb_step_result *result);
    void *each_arg;
};

/* Measures steps of each batch size: steps as in training, steps without the sums over ranks, and
 * the sums alone, in turn. Collective: all ranks call it with the same options except for their
 * place. Synthetic data is made as long as needed, unless the options say how long it is. */
vb_status vb_bench_step(const struct vb_step_opts *o, struct vb_step_result *result_p);

/* The smallest batch whose computing takes at least as long as the sums, by straight lines through
 * the points. Returns 0 if there is none up to VB_STEP_REACH. Does no I/O. */
int64_t vb_step_hidden_from(const struct vb_step_point *points, int n);

/* ---- the parameter server -------------------------------------------------------------------- */

enum vb_ps_op { VB_PS_PUSH, VB_PS_PULL, VB_PS_BOTH };

/* A measurement of the parameter server. All workers run at the same time, and each one has one
 * operation under way. */
struct vb_ps_line {
    enum vb_ps_op op;
    char transport[32];
    int workers, servers;
    int64_t keys;           /* sparse; 0: dense */
    int64_t bytes;          /* size of the values in one direction */
    double time_us, p99_us; /* median and 99th percentile, of the slowest worker */
    double gb_s;            /* of values, of all workers together */
    double server_cpu_us;   /* cpu time of the servers' threads per operation, including polling */
    double server_apply_us; /* time to apply an operation, summed over all servers */
    double server_idle;     /* share of the time in which servers had nothing to do */
    int64_t wrong;          /* parameters that differ from the result of all pushes */
};

struct vb_ps_bench {
    const size_t *sizes; /* bytes of dense parameters */
    int n_sizes;
    const int64_t *keys; /* numbers of keys of sparse operations */
    int n_keys;
    int64_t features;
    int servers;              /* number of servers, which are the last ranks; 0: one */
    enum vb_k_rule_kind rule; /* not ftrl */
    double seconds;
    void (*each)(void *arg, const struct vb_ps_line *line); /* called on rank 0; may be NULL */
    void *each_arg;
};

/* Collective. Measures pushes, pulls and both, for each size and each number of keys. */
vb_status vb_bench_ps(struct vb_group *group, const struct vb_ps_bench *o, int64_t *wrong_p);

/* ---- evaluation ------------------------------------------------------------------------------ */

struct vb_eval_opts {
    struct vb_data_spec data; /* its test part is used, if it has one */
    const char *data_text;
};

struct vb_eval_result {
    char model[VB_CHECKPOINT_NAME];
    int64_t step;
    int samples;
    double accuracy, loss, seconds;
};

/* Evaluates the parameters of a checkpoint on data. */
vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p);

#endif
