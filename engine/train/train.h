/* SPDX-License-Identifier: MIT
 *
 * Training: models, options, results, and the run itself.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_H
#define VB_ENGINE_TRAIN_TRAIN_H

#include "data/data.h"
#include "kernels/kernels.h"
#include "net/net.h"

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
    double loss;     /* per sample, of rank 0's last batch */
    double accuracy; /* of the last evaluation; negative: there was none */
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
 * training the other workers wait for it: if it fails, or the rank dies, the next one reports. */
typedef vb_status (*vb_train_report_fn)(void *arg, const struct vb_train_result *result);

/* ---- models ---------------------------------------------------------------------------------- */

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

/* ---- options --------------------------------------------------------------------------------- */

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

/* The data to train on, and to evaluate on at the end. */
struct vb_train_data_opts {
    struct vb_data_ask ask;
    const char *text;      /* --data as given, to compare with other ranks and checkpoints */
    const char *test_text; /* --test-data as given; NULL: not given */
    int input;             /* side of the images, of a model with several nets; 0: chosen */
    int64_t test_limit;    /* evaluate on the first samples only; 0: on all */
    bool whole_steps;      /* leave out samples that would make a shorter step; needs a batch */
};

/* The size of a step and the length of the training. */
struct vb_train_length_opts {
    int64_t batch;                  /* samples of one rank in a step */
    int64_t global_batch;           /* samples of all ranks in a step; give one of the two */
    int64_t epochs, steps, samples; /* length of the training; give one of them */
};

/* The update rule and the learning rate. */
struct vb_train_learn_opts {
    double lr;
    enum vb_schedule schedule;
    int64_t warmup;                      /* steps; negative: chosen */
    const char *rule;                    /* "sgd", "momentum", "nesterov", "adagrad", "ftrl" */
    double momentum, weight_decay, clip; /* negative: chosen; clip 0: none */
};

/* Checkpoints. */
struct vb_train_save_opts {
    const char *dir; /* folder for checkpoints; NULL: none are written */
    int64_t every;   /* steps between checkpoints; 0: only at the end */
    bool resume;     /* continue from the newest checkpoint, if there is one */
};

/* Synchronous training: how gradients are summed over ranks. */
struct vb_train_sums_opts {
    struct vb_coll_opts coll;
    int64_t bucket_bytes;      /* gradients summed together; 0: chosen from the measured link */
    int64_t defer_bytes;       /* gradients that are sent after those of the first layers; 0: chosen
                                  from the speed of the link */
    int64_t shared_update_min; /* bytes of a model from which on the ranks of one host share the
                                  update; 0: where it pays */
    int64_t check_replicas;    /* steps between comparisons of the ranks' parameters; 0: only at the
                                  end */
};

/* Where a rank runs, and how fast. */
struct vb_train_place_opts {
    int threads;                 /* computing threads per rank; 0: chosen for the machine */
    bool pin;                    /* pin threads to cores */
    int local_rank, local_ranks; /* among the ranks on this host; 0: learnt from the group */
    int slow_rank;               /* for experiments: the rank that computes slowly */
    double slow_factor; /* how many times as long it takes to compute; 0: no rank is slow */
};

struct vb_joined;

/* Asynchronous training: workers that join a running job. */
struct vb_train_join_opts {
    struct vb_joined *joined; /* borrowed: the job that this worker joins; NULL: none */
    const char *words;        /* the command line, with a zero after each word, for joiners; NULL:
                                 nobody can join */
    size_t words_len;
    void (*say)(const char *root); /* called on rank 0 with the address for joiners; may be NULL */
};

/* Functions that training calls. Each may be NULL. */
struct vb_train_hooks {
    /* Asynchronous training: called once by each worker when all ranks have met. */
    void (*begun)(void *arg);
    void *begun_arg;
    vb_train_watch_fn watch;
    void *watch_arg;
    vb_train_look_fn look;
    void *look_arg;
    vb_train_report_fn report;
    void *report_arg;
};

/* The engine chooses a value for options that are 0, NULL or AUTO, and for options that are
 * negative where a comment says so. */
struct vb_train_opts {
    const char *model; /* name of a row of vb_train_models() */
    enum vb_mode mode;
    uint64_t seed;
    const char *plan;   /* file with the choice of kernels; NULL: the engine times them */
    bool dry_run;       /* set up everything, but do not train */
    int64_t eval_every; /* steps between evaluations; 0: only at the end */

    struct vb_train_data_opts data;
    struct vb_train_length_opts length;
    struct vb_train_learn_opts learn;
    struct vb_train_save_opts save;
    struct vb_train_sums_opts sums;
    struct vb_async_opts async; /* used in mode async */
    struct vb_train_place_opts place;
    struct vb_train_join_opts join;
    struct vb_train_hooks hooks;

    struct vb_group_opts group;  /* with a world of 1 only rank and world are used */
    struct vb_group *open_group; /* an open group to use, which stays open; NULL: open one */
};

/* The number of ranks that compute. The other ranks of the group are dedicated servers. */
int vb_train_workers(const struct vb_train_opts *o);

/* The number of servers, threads or ranks, including standbys. */
int vb_train_servers(const struct vb_async_opts *o);

/* ---- results --------------------------------------------------------------------------------- */

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

/* ---- the run --------------------------------------------------------------------------------- */

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

#endif
