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
