/* SPDX-License-Identifier: MIT
 *
 * Benchmarks of the engine: the parts of a training step, and the parameter server.
 */
#ifndef VB_ENGINE_BENCH_ENGINE_BENCH_H
#define VB_ENGINE_BENCH_ENGINE_BENCH_H

#include "engine/train/train.h"

/* ---- the parts of a step --------------------------------------------------------------------- */

#define VB_STEP_BATCHES_MAX 32
#define VB_STEP_REACH 1000000 /* largest batch size that is considered */

/* The measurement of one batch size. Times are medians over blocks of steps. The time of a block is
 * the time of the slowest rank. */
struct vb_step_point {
    int batch;          /* number of samples of one rank */
    int times;          /* how many times it was measured; times below are means of these */
    int64_t bytes;      /* size of a rank's gradient; sparse models: of the longest list */
    double step_ms;     /* time of a step as in training */
    double compute_ms;  /* time of a step without sums over ranks */
    double transfer_ms; /* time of the sums alone */
    double exposed_ms;  /* time that the sums add to a step; never negative */
};

struct vb_step_result {
    char transport[32]; /* "shm", "shm+verbs" ...; "self": there is only one rank */
    int ranks;
    int threads; /* number of computing threads per rank */
    struct vb_step_point points[VB_STEP_BATCHES_MAX];
    int n;
};

struct vb_step_opts {
    /* The caller fills in group, model and data. Other options are chosen. */
    struct vb_train_opts train;
    int batches[VB_STEP_BATCHES_MAX];
    int n_batches;
    double seconds; /* duration of each measurement; there are three per batch size */
    bool refine;    /* also measure batches near the one from which on it is hidden, the two around
                       it several times; points are then in the order of their batches */

    /* Called on rank 0 after each measurement, with all points so far, the measured one last. May
     * be NULL. */
    void (*each)(void *arg, const struct vb_step_result *result);
    void *each_arg;
};

/* Measures steps of each batch size in three modes, in turn: steps as in training, steps without
 * sums over ranks, and the sums alone. Collective: all ranks call this function with the same
 * options except for their rank and placement. Synthetic data is made as long as needed, unless the
 * options set its length. */
vb_status vb_bench_step(const struct vb_step_opts *o, struct vb_step_result *result_p);

#define VB_STEP_HIDDEN 0.05 /* a transfer is hidden if at most this part of a step is exposed */

/* Returns the smallest measured batch size at which computing hides the transfer, as it does at all
 * larger ones that were measured. Returns 0 if there is none, 1 if nothing is transferred. */
int64_t vb_step_hidden_from(const struct vb_step_point *points, int n);

/* Returns the batch size from which on computing is expected to hide the transfer. Between a batch
 * whose transfer is exposed and a larger one where it is hidden, the exposed part decides. Below
 * the points nothing is expected. Above them, straight lines through their computing and transfer
 * times decide: computing must take at least as long. Returns 0 if there is no such batch size up
 * to VB_STEP_REACH, or if the points show that the lines are wrong. */
int64_t vb_step_expected_from(const struct vb_step_point *points, int n);

/* Returns the batch size that, measured next, tells most about it; 0: none does. given: the largest
 * batch of the user, beyond which it goes only a little; most: the largest that the data allows. */
int64_t vb_step_next_batch(const struct vb_step_point *points, int n, int64_t given, int64_t most);

/* Returns the batch, of the two around vb_step_hidden_from(), that should be measured again,
 * because noise may have put it on the wrong side; 0: neither. */
int64_t vb_step_unsure_batch(const struct vb_step_point *points, int n);

/* Adds another measurement of the same batch to a point. */
void vb_step_merge(struct vb_step_point *point, const struct vb_step_point *again);

/* ---- the parameter server -------------------------------------------------------------------- */

enum vb_ps_op { VB_PS_PUSH, VB_PS_PULL, VB_PS_BOTH };

/* A measurement of the parameter server. All workers run at the same time, and each one has one
 * operation under way. */
struct vb_ps_line {
    enum vb_ps_op op;
    char transport[32];
    int workers, servers;
    int64_t keys;           /* number of keys in a sparse operation; 0: the operation is dense */
    int64_t bytes;          /* size of the values in one direction */
    double time_us, p99_us; /* median and 99th percentile of the slowest worker */
    double gb_s;            /* rate at which all workers together transfer values */
    double server_cpu_us;   /* cpu time of the servers' threads per operation, including polling */
    double server_apply_us; /* time to apply a gradient, summed over all servers */
    double server_idle;     /* share of the time in which the servers were idle */
    int64_t wrong; /* number of parameters that differ from the expected result of all pushes */
};

struct vb_ps_bench {
    const size_t *sizes; /* sizes of dense parameters in bytes */
    int n_sizes;
    const int64_t *keys; /* numbers of keys of sparse operations */
    int n_keys;
    int64_t features;
    int servers;              /* number of servers, which are the last ranks; 0: one */
    enum vb_k_rule_kind rule; /* any rule but VB_K_FTRL */
    double seconds;
    void (*each)(void *arg, const struct vb_ps_line *line); /* called on rank 0; may be NULL */
    void *each_arg;
};

/* Collective. Measures pushes, pulls, and both together, for each size and each number of keys. */
vb_status vb_bench_ps(struct vb_group *group, const struct vb_ps_bench *o, int64_t *wrong_p);

#endif
