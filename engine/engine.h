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

#define VB_CHECKPOINT_NAME 32            /* bytes of a name, with its end */
#define VB_CHECKPOINT_ARRAYS_MAX 1024    /* in a checkpoint */
#define VB_CHECKPOINT_TEXT_MAX (1 << 20) /* bytes of a text */

enum vb_array_type { VB_ARRAY_F32, VB_ARRAY_U32 };

struct vb_checkpoint_array {
    char name[VB_CHECKPOINT_NAME]; /* unique; printable, without / and not with . in front */
    enum vb_array_type type;
    bool state;         /* of the training, no parameter: export leaves it out unless asked */
    int64_t rows, cols; /* row-major; cols is 1 for vectors; rows may be 0 */
    const void *data;   /* borrowed while writing; after reading it lives as long as the checkpoint,
                           aligned to the cache line */
};

/* What a run needs to go on. docs/checkpoint.md has the bytes. */
struct vb_checkpoint {
    char model[VB_CHECKPOINT_NAME]; /* a name like those of arrays */
    int64_t step;                   /* at least 0 */
    uint64_t seed;
    char *options; /* lines KEY=VALUE, as the engine wants them; NULL when writing: "" */
    char *plan;    /* of vb_k_plan_text(); likewise */
    int n_arrays;
    struct vb_checkpoint_array *arrays;
    const void *map; /* the file; only vb_checkpoint_read() sets these two */
    size_t map_bytes;
};

/* Writes dir/checkpoint-STEP.vbc, and makes the folder if only that is missing. The file is written
 * under another name, synced and renamed: whatever happens, older checkpoints stay as they were
 * and no half of one ever has a checkpoint's name. What killed writers left is removed, so a folder
 * has one writer at a time. Then, if keep is not 0, only this and the keep - 1 newest before it
 * stay. Blocks until all is on the disk; seconds_p (NULL: nobody asks) is how long that took. */
vb_status vb_checkpoint_write(const char *dir, const struct vb_checkpoint *cp, int keep,
                              double *seconds_p);

/* Maps a checkpoint and checks every byte of it. Given back with vb_checkpoint_free(). */
vb_status vb_checkpoint_read(const char *path, struct vb_checkpoint **cp_p);
void vb_checkpoint_free(struct vb_checkpoint *cp);

/* NULL: there is none of that name. */
const struct vb_checkpoint_array *vb_checkpoint_find(const struct vb_checkpoint *cp,
                                                     const char *name);

/* The 4-byte elements of the array of that name, which must be n of that type; NULL: they are not,
 * and that was logged. */
const void *vb_checkpoint_data(const struct vb_checkpoint *cp, const char *name,
                               enum vb_array_type type, size_t n);

/* The path of the checkpoint of the highest step. A broken one is skipped with a warning that names
 * it. VB_ERR_NO_FILE, which is not logged: there is none, or no such folder. VB_ERR_INPUT: all
 * are broken. */
vb_status vb_checkpoint_latest(const char *dir, char *path, size_t size);

/* ---- training -------------------------------------------------------------------------------- */

enum vb_mode { VB_MODE_SYNC, VB_MODE_SINGLE, VB_MODE_ASYNC };

/* Where the time of a rank goes. Every moment of training belongs to one of these. */
enum vb_phase {
    VB_PHASE_DATA,
    VB_PHASE_FORWARD,
    VB_PHASE_BACKWARD,
    VB_PHASE_COMM, /* transfer and summing that no computing hides */
    VB_PHASE_WAIT, /* for a rank that is not as far yet */
    VB_PHASE_UPDATE,
    VB_PHASE_EVAL,
    VB_PHASE_CHECKPOINT,
    VB_PHASES,
};

const char *vb_phase_str(enum vb_phase phase); /* "data", "forward" ... as in the final object */

/* How far it is. After a step of rank 0 at most ten times a second, and after each evaluation. */
struct vb_train_news {
    int64_t step, steps;
    double epoch;
    double loss;      /* of rank 0's last batch, a sample */
    double accuracy;  /* of the last evaluation; negative: there was none */
    double test_loss; /* likewise */
    double samples_per_s;
    double left_s;  /* as it looks */
    bool evaluated; /* just now */
};

typedef void (*vb_train_watch_fn)(void *arg, const struct vb_train_news *news);

/* Sees the parameters after each step; and once more when the run has failed, as they are then:
 * those of the last complete step. */
typedef void (*vb_train_look_fn)(void *arg, int64_t step, const float *params, size_t n,
                                 bool failed);

struct vb_train_result;

/* Tells the user. Called when the result is complete, on the rank that reports. In asynchronous
 * training the others wait for it: if it fails, or the rank dies in it, the next worker reports. */
typedef vb_status (*vb_train_report_fn)(void *arg, const struct vb_train_result *result);

enum vb_schedule { VB_SCHEDULE_AUTO, VB_SCHEDULE_CONSTANT, VB_SCHEDULE_STEP, VB_SCHEDULE_COSINE };

/* The parameter server. Its servers are threads of ranks 0 to servers - 1, or the last ranks;
 * behind them their standbys. */
struct vb_async_opts {
    int servers;       /* 0: one */
    bool dedicated;    /* the last ranks of the group serve, and do nothing else */
    bool bounded;      /* workers are at most staleness steps apart; 0: the bits of sync */
    int64_t staleness; /* if bounded */
    int backup;        /* staleness 0: so many late gradients of a step are left out */
    bool hogwild;      /* workers on the server's host update in place */
    int max_workers;   /* with those who join late; 0: some more than there are */
    int replicas;      /* 2: each server has a standby, on the next rank; 0: none */
};

struct vb_joined;

/* What is 0, NULL or AUTO is chosen by model and batch; negative numbers were not given. */
struct vb_train_opts {
    const char *model;          /* "softmax", "sparse-lr", "lenet", "alexnet" */
    struct vb_async_opts async; /* mode async */
    int input;                  /* alexnet: side of its images, 224 or 32 */
    enum vb_mode mode;
    struct vb_data_ask data;
    const char *test_text; /* NULL: none was asked for */
    const char *data_text; /* as it was asked for, to compare with other ranks and checkpoints */
    int64_t batch;         /* samples of one rank in a step; or */
    int64_t global_batch;  /* ... of all ranks */
    int64_t epochs, steps, samples; /* how long to train: one of them */

    double lr;
    enum vb_schedule schedule;
    int64_t warmup;                      /* steps; negative: chosen */
    const char *rule;                    /* "sgd", "momentum", "nesterov", "adagrad", "ftrl" */
    double momentum, weight_decay, clip; /* negative: chosen; clip 0: none */

    uint64_t seed;
    int64_t eval_every;       /* steps; 0: at the end alone */
    int64_t test_limit;       /* samples to test with, the first ones; 0: all */
    const char *checkpoint;   /* folder; NULL: none are written */
    int64_t checkpoint_every; /* steps; 0: at the end alone */
    bool resume;              /* from the newest there, if there is one */
    const char *plan;         /* file with the choice of kernels; NULL: by timing */
    bool dry_run;             /* everything is set up, nothing is trained */
    bool whole_steps;         /* samples that would make a shorter step are left out; needs batch */

    struct vb_coll_opts coll; /* how gradients are summed */
    int64_t bucket_bytes;     /* of gradients that go together; 0: by the measured link */
    int64_t hold_back_bytes; /* of gradients that leave behind those of the first layers; 0: by what
                                the link gets done */
    int64_t share_out_bytes; /* of parameters from which on ranks of one host update a share each,
                                in all copies; 0: where it pays */
    int64_t check_replicas;  /* compare the ranks' parameters every so many steps; 0: at the end */
    int slow_rank;           /* this rank takes slow_factor times as long to compute, */
    double slow_factor;      /* to try what that does; 0: none */
    int threads;             /* compute threads, 0: as the machine suggests */
    bool pin;
    struct vb_group_opts group;  /* with a world of 1 only rank and world count */
    struct vb_group *open_group; /* already open, and left so; NULL: opened as group says */
    int local_rank, local_ranks; /* of those that share this rank's cpus; 0: the group tells */
    struct vb_joined *joined;    /* borrowed: a job that this worker joins late; NULL: none */
    const char *words; /* the command line, a zero behind each word: for others who know the secret
                          and may join; NULL: none may */
    size_t words_len;
    void (*say)(const char *root); /* where they can: called on rank 0; NULL: not */
    /* Asynchronous training: called once by each worker when all ranks have met; NULL: never. */
    void (*begun)(void *arg);
    void *begun_arg;
    vb_train_watch_fn watch; /* NULL: none */
    void *watch_arg;
    vb_train_look_fn look; /* NULL: none */
    void *look_arg;
    vb_train_report_fn report; /* NULL: none */
    void *report_arg;
};

struct vb_rank_result {
    int rank;
    bool server;     /* its row as a server: applying counts as update, idling as wait */
    double accuracy; /* of a worker, at its own end, or of all; negative: none */
    char host[64];
    double train_s;
    double phase_s[VB_PHASES]; /* sum to train_s */
    double cpu_pct;            /* of one cpu, while training */
    double rss_peak_mb;        /* 10^6 bytes, of the whole process */
    double registered_mb;      /* with RDMA devices */
    double register_s;         /* that it took, before training */
    int64_t late_n;            /* how often others waited for it (at most one of them counts) */
    double late_s, late_max_s; /* for how long in all, and at most */
};

#define VB_STALE_BUCKETS 20

/* How many gradients of others were applied between reading parameters and applying what was
 * computed from them. */
struct vb_stale {
    uint64_t n, sum, max;
    uint64_t dropped;                  /* gradients that came too late */
    uint64_t bucket[VB_STALE_BUCKETS]; /* 0, 1, 2 to 3, 4 to 7 ... */
};

struct vb_worker_stale {
    int rank;
    struct vb_stale stale;
};

/* Something that happened to a rank while others went on. */
struct vb_fault {
    double at_s;  /* since training began */
    int64_t step; /* gradients that were applied by then */
    int rank;
    char what[16]; /* "died", "stopped", "left", "joined", "rejoined" */
    char why[160];
};

/* A test on the way, not the one at the end. */
struct vb_eval {
    int64_t step;
    double accuracy, loss; /* on test data; the loss of a sample */
};

#define VB_EVALS_MAX 10000 /* that are kept; of more, every second is dropped, and so on */

/* What took the most time, and how that is known. */
enum vb_resource { VB_COMPUTE, VB_NETWORK, VB_STRAGGLER, VB_INPUT, VB_DISK };

const char *vb_resource_str(enum vb_resource resource); /* "compute" ... as in the final object */

struct vb_bottleneck {
    enum vb_resource resource;
    double share; /* of train_s, without evaluation */
    char why[256];
};

/* The same on all ranks but for reports and wall_s. Asynchronous: a worker that does not report has
 * its own row alone, its own samples, and the steps and seconds that it knows of. */
struct vb_train_result {
    bool reports;             /* this rank tells the result */
    int ranks;                /* that compute, at the start */
    int workers;              /* that computed to the end, those that joined included */
    int rows;                 /* of per_rank: the workers, then the servers */
    char transport[16];       /* "" where nothing was moved */
    const char *order, *algo; /* of the gradients; NULL where nothing was moved */
    const char *wire;         /* what they travelled as; likewise, or not as such */
    bool apart;               /* a step is one worker's, not one of all */
    int batch, global_batch;  /* of the largest rank, of all */
    int64_t steps;            /* made in all, those before a resumed run too */
    int64_t resumed;          /* ... of which so many were made before */
    int64_t samples;          /* of this run */
    double epochs;
    double lr;                 /* the highest */
    double train_s;            /* mean over ranks; set-up does not count, evaluation does */
    double wall_s;             /* of this rank, set-up included */
    double phase_s[VB_PHASES]; /* means over ranks, sum to train_s */
    double loss;               /* on test data, a sample */
    double accuracy;           /* on test data, 0 to 1 */
    int test_samples;
    int classes;
    int64_t params;
    char params_sha256[65]; /* of little-endian floats in table order */
    char *plan;             /* which kernels computed, as --plan takes it; NULL: it has none */
    char plan_sha256[65];   /* of the plan's text; "": it has none */
    char checkpoint[4096];  /* the last that was written; "": none */
    double pause_s;         /* the longest that one held up training */
    struct vb_rank_result *per_rank;
    struct vb_worker_stale *staleness; /* of each worker; NULL: synchronous */
    int n_staleness;
    struct vb_fault *faults;
    int n_faults;
    struct vb_eval *evals; /* with eval_every; asynchronous: those that this worker made, which is
                              all unless one that tested before it is gone */
    int n_evals;
    struct vb_bottleneck bottleneck;
};

/* Ranks that compute, of those that the group has: the others are dedicated servers. */
int vb_train_workers(const struct vb_train_opts *o);

/* Threads or ranks that serve: standbys count. */
int vb_train_servers(const struct vb_async_opts *o);

/* Whether the options fit each other, as far as they alone tell; what does not is logged.
 * vb_train() does it, too. */
vb_status vb_train_check(const struct vb_train_opts *o);

/* Joins an asynchronous job that is under way, as one more worker; rank and world of opts do not
 * count. Then vb_train() with options made of the job's words, of which the newcomer may replace
 * what is its own affair; group.world is the job's, group.rank 0. Left after that. */
vb_status vb_train_join(const struct vb_group_opts *opts, struct vb_joined **joined_p);
void vb_joined_leave(struct vb_joined *joined); /* NULL is fine */
const char *vb_joined_words(const struct vb_joined *joined, size_t *len_p);
int vb_joined_world(const struct vb_joined *joined);
int vb_joined_rank(const struct vb_joined *joined); /* this process's, until it trains */

/* Trains a model, as the rank that o->group says. All ranks call it with the same options but for
 * their place. The result is given back with vb_train_result_fini(), unless it failed. */
vb_status vb_train(const struct vb_train_opts *o, struct vb_train_result *result_p);
void vb_train_result_fini(struct vb_train_result *result);

/* ---- what a step is made of ------------------------------------------------------------------ */

#define VB_STEP_BATCHES_MAX 32
#define VB_STEP_REACH 1000000 /* no batch is looked for beyond */

/* A batch size, measured: medians over blocks of steps, of the slowest rank each. */
struct vb_step_point {
    int batch;          /* of one rank */
    int64_t bytes;      /* of the gradient that a rank gives; the longest, where it is a list */
    double step_ms;     /* as in training */
    double compute_ms;  /* the same without sums over ranks */
    double transfer_ms; /* the sums alone */
    double exposed_ms;  /* what they add to a step; never negative */
};

struct vb_step_result {
    char transport[32]; /* "shm", "shm+verbs" ...; "self": one rank */
    int ranks;
    int threads; /* of a rank */
    struct vb_step_point points[VB_STEP_BATCHES_MAX];
    int n;
};

struct vb_step_opts {
    struct vb_train_opts train; /* how ranks meet, the model, its data: the rest is chosen */
    int batches[VB_STEP_BATCHES_MAX];
    int n_batches;
    double seconds; /* of each measurement, three a batch */

    /* Called on rank 0 for each batch, with the points up to it. NULL: not. */
    void (*each)(void *arg, const struct vb_step_result *result);
    void *each_arg;
};

/* Makes steps of each batch size, some as in training, some without the sums over ranks, and the
 * sums alone, in turn. Collective: all ranks call it with the same options but for their place. Of
 * made-up data there is enough, unless it was asked for by number. */
vb_status vb_bench_step(const struct vb_step_opts *o, struct vb_step_result *result_p);

/* The smallest batch from which on computing takes at least as long as the sums, by straight lines
 * through the points; 0: there is none in reach. Does no I/O. */
int64_t vb_step_hidden_from(const struct vb_step_point *points, int n);

/* ---- what the parameter server takes --------------------------------------------------------- */

enum vb_ps_op { VB_PS_PUSH, VB_PS_PULL, VB_PS_BOTH };

/* One operation at a time by each of the workers, all at once. */
struct vb_ps_line {
    enum vb_ps_op op;
    char transport[32];
    int workers, servers;
    int64_t keys;           /* sparse; 0: dense */
    int64_t bytes;          /* of the values, one way */
    double time_us, p99_us; /* median and 99 %, of the slowest worker */
    double gb_s;            /* of values, of all workers together */
    double server_cpu_us;   /* of the servers' threads, an operation: waiting by polling counts */
    double server_apply_us; /* applying, an operation, of all servers together */
    double server_idle;     /* the part of their time that servers had nothing to do */
    int64_t wrong;          /* parameters that are not what the pushes make them */
};

struct vb_ps_bench {
    const size_t *sizes; /* bytes of dense parameters */
    int n_sizes;
    const int64_t *keys; /* of sparse ones */
    int n_keys;
    int64_t features;
    int servers;              /* the last ranks; 0: one */
    enum vb_k_rule_kind rule; /* not ftrl */
    double seconds;
    void (*each)(void *arg, const struct vb_ps_line *line); /* on rank 0; NULL: not */
    void *each_arg;
};

/* Collective. Pushes, pulls and both, for each size and each number of keys. */
vb_status vb_bench_ps(struct vb_group *group, const struct vb_ps_bench *o, int64_t *wrong_p);

/* ---- evaluation ------------------------------------------------------------------------------ */

struct vb_eval_opts {
    struct vb_data_spec data; /* its part for testing, where it has parts */
    const char *data_text;
};

struct vb_eval_result {
    char model[VB_CHECKPOINT_NAME];
    int64_t step;
    int samples;
    double accuracy, loss, seconds;
};

/* Judges the parameters of a checkpoint. */
vb_status vb_eval(const char *path, const struct vb_eval_opts *opts,
                  struct vb_eval_result *result_p);

#endif
