/* SPDX-License-Identifier: MIT
 *
 * engine/: puts machine, network, kernels and models together. First what on a machine would slow
 * or stop a job, then the supervisor of the ranks on one host, checkpoints, and training.
 *
 * Facts are gathered by one function, which reads the machine, and judged by another, which reads
 * nothing but the facts; so any machine can be made up in a test.
 */
#ifndef VB_ENGINE_H
#define VB_ENGINE_H

#include "base/base.h"
#include "data/data.h"
#include "kernels/kernels.h"
#include "models/models.h"
#include "net/net.h"
#include "topo/topo.h"

/* ---- facts ----------------------------------------------------------------------------------- */

#define VB_LIMIT_NONE INT64_MAX /* unlimited */
#define VB_LIMIT_UNKNOWN (-1)   /* in a recording that has no such file */

struct vb_limit {
    int64_t soft, hard;
};

struct vb_facts {
    struct vb_iface *ifaces;
    struct vb_rdma_dev *rdma;
    int n_ifaces, n_rdma;
    struct vb_rxe rxe;
    char distro[32]; /* "debian", "ubuntu"; "" if not known */

    bool recorded; /* of another machine: what only a running process can tell is not known */
    bool may_lock; /* CAP_IPC_LOCK: the limit of locked memory does not count */
    vb_status shm; /* what became of a small piece of shared memory */
    struct vb_limit memlock; /* bytes */
    struct vb_limit files;

    char thp[16];       /* transparent huge pages: "always", "madvise", "never"; "": has none */
    char shmem_thp[16]; /* the same for shared memory, with "advise", "within_size" ... */
    int64_t huge_total, huge_free, huge_page_kib; /* reserved huge pages */
    int64_t memory_bytes;                         /* of the machine; 0: not known */
    int64_t memory_limit_bytes;                   /* of the cgroup; 0: none */

    double cpu_quota;           /* cpus' worth of time that the cgroup grants, 0: no limit */
    int n_cpus, n_allowed_cpus; /* hardware threads; 0: not known */
    int n_governed;             /* cpus whose frequency the kernel governs */
    int n_slow_governed;        /* ... by a governor that is slow to raise it */
    char governor[32];          /* of the first of the slow ones, or of all */
    char clock[32];             /* "tsc"; "": not known */
    char clocks[128];           /* those the kernel could use instead */

    struct vb_k_blas blas;
    struct vb_k_onednn onednn;
    vb_status onednn_status; /* of the probe */
};

/* Reads the running machine (sysroot "") or a recording of one. Takes some milliseconds, changes
 * nothing. The caller gives the facts back with vb_facts_fini(), unless gathering failed. */
vb_status vb_facts_gather(const char *sysroot, struct vb_facts *facts_p);
void vb_facts_fini(struct vb_facts *facts);

/* ---- doctor ---------------------------------------------------------------------------------- */

enum vb_check_level {
    VB_CHECK_OK,
    VB_CHECK_WARN, /* a job would run, but slower than it could */
    VB_CHECK_FAIL, /* a job would be stopped */
};

struct vb_check {
    const char *name; /* unique in a list, never freed */
    enum vb_check_level level;
    char what[768]; /* one sentence */
    char fix[512];  /* shell commands that mend it; "": there are none */
};

#define VB_CHECKS_MAX 16

/* Fills checks and returns how many there are. Does no I/O. Ports and GIDs are judged only where
 * there are RDMA devices. */
int vb_doctor_judge(const struct vb_facts *facts, struct vb_check checks[VB_CHECKS_MAX]);

const char *vb_check_level_str(enum vb_check_level level); /* "OK", "WARN", "FAIL" */

/* What was measured between two hosts, over one transport. */
struct vb_pair {
    int a, b; /* the ranks, a < b */
    char host_a[64], host_b[64];
    char transport[16];
    double put_us, get_us;           /* of 8 bytes, one way and there and back */
    double put_gb_s, get_gb_s;       /* of streams that a drives */
    int64_t wrong;                   /* bytes that did not arrive as sent */
    int64_t moved[VB_PORT_TROUBLES]; /* what RDMA ports counted; negative: nothing was read */
};

/* Likewise for all pairs of a job, over one transport or several. Does no I/O. */
int vb_doctor_judge_pairs(const struct vb_pair *pairs, int n,
                          struct vb_check checks[VB_CHECKS_MAX]);

/* ---- hosts ----------------------------------------------------------------------------------- */

#define VB_HOST_NAME 256 /* bytes of a host's name, with its end */

struct vb_host {
    char name[VB_HOST_NAME]; /* as ssh takes it: perhaps with a user, IPv6 without brackets */
    int slots;               /* ranks on it */
    int first_rank;
};

struct vb_hosts {
    struct vb_host *list;
    int n;
    int ranks; /* on all of them */
};

/* "a,b:2,user@c" or, where the text has a / or names a file, one a line of it. Blanks, options of
 * ssh and a host that is there twice are refused. Given back with vb_hosts_fini(). */
vb_status vb_hosts_parse(const char *text, struct vb_hosts *hosts_p);
void vb_hosts_fini(struct vb_hosts *hosts);

const struct vb_host *vb_hosts_of_rank(const struct vb_hosts *hosts, int rank);

/* ---- the supervisor -------------------------------------------------------------------------- */

/* Wipes out the line that the cursor is in. Where a rank's launch has a terminal, a line on its
 * standard error that begins so says how far it is: the supervisor shows it until there is another
 * to show, without the rank's number, and keeps it in no log. With nothing behind, it shows none.
 */
#define VB_WIPE_LINE "\r\033[K"

/* A line on a rank's standard error that tells the supervisor, and nobody else, that training has
 * begun: until then no job outlives a rank. */
#define VB_BEGUN_LINE "\033[mtraining has begun"

struct vb_supervise_opts {
    int ranks;
    const char *program; /* NULL: the one that is running */
    char *const *argv;   /* for every rank, its name first; ends with NULL */
    int grace_ms;        /* between the stages of ending a job; 0: 2 s */
    const char *logs;    /* folder for rank-0.log and so on, made if need be; NULL: none */

    const struct vb_hosts *hosts; /* NULL: this one. Else the ranks are theirs, and program is a
                                     path over there */
    const char *ssh;              /* words that start a remote shell; NULL: ssh, never asking */
    const char *root;             /* HOST:PORT for rank 0 to listen at; NULL: it is found out */

    /* The job goes on without ranks that die, but for those from vital to vital_end - 1; ranks from
     * workers on end before the others. */
    bool outlive;
    int vital, vital_end, workers;
    const unsigned char *secret; /* the job's; NULL: a new one */
};

/* Runs a program once a rank and waits for all of them. Each finds out which rank it is with
 * vb_launch_read(). On other hosts it must be the same file, byte for byte: a rank gets the secret,
 * through its standard input, only when all have shown that. A host that cannot be reached, or
 * cannot run the program, is named. Standard output of rank 0 is passed on as it is, everything
 * else goes to standard error, line by line, with the rank before it. The logs have both. The first
 * rank that fails is named there, and the others are ended. No rank is alive on return, and none
 * outlives this process. A job that outlives its ranks is ended when a vital one has failed, or
 * soon after the first has ended well; standard output of all is passed on then, for any may
 * report.
 *
 * exit_code: 0 if all ranks had that, or those that count, else 1, or 2 if it was 2; 128 and the
 * signal's number if one ended the job. A failure is returned only if the ranks could not be run at
 * all. Blocks; takes over SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGPIPE meanwhile, so one at a time
 * in a process, and from a thread that stays: ranks die with the thread that started them. */
vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p);

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
    void (*begun)(void); /* asynchronous: called by a worker after all have met */
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
