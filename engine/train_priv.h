/* SPDX-License-Identifier: MIT
 *
 * The trainer: what one rank needs to make steps. Shared by the files of training, and used by
 * asynchronous training, by the run and by benchmarks.
 */
#ifndef VB_TRAIN_PRIV_H
#define VB_TRAIN_PRIV_H

#include "engine/engine.h"
#include "models/models.h"

#include <sched.h>

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

/* The time of a rank, divided into phases. */
struct vb_laps {
    uint64_t begin_ns;
    uint64_t mark_ns; /* the time up to this point has been charged to phases */
    uint64_t ns[VB_PHASES];
    uint64_t late_ns; /* what vb_group_late_ns() returned after the last transfer */
    double cpu_begin_s;
};

void vb_laps_begin(struct vb_laps *laps);

/* Charges the time since the last call to a phase. */
void vb_lap(struct vb_laps *laps, enum vb_phase phase);

/* Moves ns, or all there is, from one phase to another. */
void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns);

/* Charges the time since the last call to transfer, and to waiting as far as the group has waited
 * for stragglers. Does nothing if group is NULL. */
void vb_lap_comm(struct vb_laps *laps, struct vb_group *group);

/* ---- from options to numbers (train_recipe.c) ------------------------------------------------ */

struct vb_recipe {
    int global_batch;
    int64_t steps;           /* of the whole run */
    int64_t steps_per_epoch; /* the last step of an epoch may be shorter */
    struct vb_k_rule rule;
    struct vb_k_schedule schedule;
    double clip; /* largest norm of a mean gradient; 0: no limit */
};

/* n: number of samples to train on. */
vb_status vb_recipe_make(const struct vb_train_opts *o, int n, struct vb_recipe *recipe_p);

/* ---- roles (train_roles.c) ------------------------------------------------------------------- */

/* Whether each worker has batches of its own. */
bool vb_train_apart(const struct vb_train_opts *o);

int vb_train_shards(const struct vb_async_opts *o);   /* servers without their standbys */
int vb_train_replicas(const struct vb_async_opts *o); /* servers per shard, including the standby */

/* ---- checks (train_check.c) ------------------------------------------------------------------ */

/* Checks that the options fit each other, as far as all modes have them. */
vb_status vb_trainer_check(const struct vb_train_opts *o);

/* Everything that decides the result, as lines "name=value". It must be the same on all ranks, and
 * in a checkpoint that a run resumes from. The caller frees the text. Returns NULL if there is no
 * memory. */
char *vb_train_settings(const struct vb_train_opts *o, const struct vb_recipe *recipe);

/* Returns whether the settings differ, and the name of the first line that does. */
bool vb_train_settings_differ(const char *a, const char *b, char name[64]);

/* Checks the settings of a joiner against those of the job. */
vb_status vb_train_fits_job(const char *settings, const char *of_job);

/* Collective: fails on all ranks if one was started with other options. */
vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings);

/* ---- placement (train_place.c) --------------------------------------------------------------- */

/* The group, and where on the machine this rank runs. */
struct vb_place {
    struct vb_topo *topo;
    struct vb_placement *placement;
    struct vb_group *group; /* NULL: this is the only rank */
    bool borrowed;          /* the group belongs to the caller, who closes it */
    bool pinned;            /* each thread has cores of its own */
    int local_rank;
};

/* Opens the group, and binds this thread and its memory as the placement says. */
vb_status vb_place_open(const struct vb_train_opts *o, struct vb_place *place_p);
void vb_place_leave(struct vb_place *place); /* closes the group only */
void vb_place_close(struct vb_place *place);

/* Asynchronous training: whether ranks and servers have more threads than cpus. If nobody says how
 * many ranks share the cpus, all ranks are assumed to. */
bool vb_place_is_crowded(const struct vb_train_opts *o, const cpu_set_t *cpus);

/* ---- the trainer of one rank (train.c)
 * ---------------------------------------------------------------------- */

struct vb_trainer;

/* Dense and sparse models implement the same interface. */
struct vb_trainer_ops {
    /* Chooses kernels, or takes those of t->kernels.asked, and describes them in t->kernels.text.
     */
    vb_status (*compile)(struct vb_trainer *t);

    /* Collective. Allocates parameters and buffers, after the data was opened and compile() ran. */
    vb_status (*create)(struct vb_trainer *t);

    /* Makes one step with t->batch, from forward to update, and charges its time to phases. */
    vb_status (*step)(struct vb_trainer *t);

    /* Repeats the sums of the last step and does nothing else. bytes_p: size of this rank's input.
     */
    vb_status (*sum_again)(struct vb_trainer *t, size_t *bytes_p);

    /* Restores the parameters before the last step. It works once per step, and only with several
     * ranks: a failure can leave these one step apart, and so they can meet again. */
    vb_status (*step_back)(struct vb_trainer *t);

    /* Runs the model on n test samples, from number first on, and adds the result to sum. */
    vb_status (*evaluate)(struct vb_trainer *t, int first, int n, struct vb_model_loss *sum);

    /* The parameters after the last step, in one piece. Returns NULL if there is no memory. */
    const float *(*params)(struct vb_trainer *t, size_t *n_p);

    /* save() fills in the arrays of a checkpoint, which are borrowed until the next step. restore()
     * checks the arrays of a checkpoint and copies them. */
    vb_status (*save)(struct vb_trainer *t, struct vb_checkpoint *cp);
    vb_status (*restore)(struct vb_trainer *t, const struct vb_checkpoint *cp);

    /* Asynchronous training: the parameters that are evaluated and saved, and the state of the
     * update rule, words_p words per parameter. *state_p is NULL if the rule has no state. */
    float *(*memory)(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p);

    void (*close)(struct vb_trainer *t);   /* collective, before the group is closed */
    void (*destroy)(struct vb_trainer *t); /* after the group is closed */
};

extern const struct vb_trainer_ops vb_trainer_dense;  /* train_dense.c */
extern const struct vb_trainer_ops vb_trainer_sparse; /* train_sparse.c */

/* The rows of the tables that describe a model. */
struct vb_trainer_model {
    const struct vb_train_model *row;
    const struct vb_train_net *net;
    const struct vb_layer_table *layers; /* NULL: a sparse model */
};

struct vb_trainer_data {
    struct vb_dataset train, test;
    int n_test; /* test samples in use */
};

/* Which kernel computes which layer. */
struct vb_trainer_kernels {
    struct vb_k_plan *asked; /* from --plan, a checkpoint or rank 0; NULL: nobody has asked */
    char *text;              /* the plan in use; NULL: the model has no choice of kernels */
};

/* How gradients are summed over ranks. */
struct vb_trainer_sums {
    const char *algo;   /* NULL: they are not summed */
    char transport[16]; /* asynchronous training only */
    bool off;           /* bench step: steps leave the sums out, to measure their cost */
};

/* Results of evaluations, in memory that is allocated before training. */
struct vb_trainer_evals {
    double accuracy, loss; /* of the last evaluation; negative: there was none */
    struct vb_eval *list;  /* evaluations before the end of the run */
    int n, max;
    int64_t seen; /* evaluations so far */
    int64_t gap;  /* one of gap evaluations is kept */
};

/* Checkpoints that this rank has written. */
struct vb_trainer_saved {
    char path[4096]; /* of the last one; "": none */
    double pause_s;  /* the longest time that one took */
};

/* --slow: this rank idles to be slower than it is. */
struct vb_trainer_slow {
    uint64_t idle_ns; /* how long to idle in the next step */
    uint64_t own_ns;  /* how long the last step took without idling */
};

/* What a worker that joins a running job has learnt from it. The texts are borrowed. */
struct vb_trainer_joiner {
    int rank;             /* of this worker in the job */
    int64_t begin;        /* steps of the run that the job has resumed */
    const char *settings; /* of the job */
    const char *plan;     /* of the job; NULL: it has none */
};

struct vb_trainer {
    const struct vb_train_opts *o;
    const struct vb_trainer_joiner *joiner; /* borrowed; NULL: a rank of the start */
    struct vb_recipe recipe;
    char *settings; /* of vb_train_settings() */

    /* the role of this rank */
    int rank, world; /* world: ranks that compute; dedicated servers have the ranks after these */
    int shares;      /* ranks that share a batch: world, or 1 if each worker has its own batches */
    bool async;
    bool serves;    /* this rank is a dedicated server */
    bool shows;     /* this rank shows the progress of the job */
    bool eval_only; /* this trainer makes no step */
    cpu_set_t cpus; /* that this process may use, before any thread was pinned */
    struct vb_place place;

    struct vb_trainer_model model;
    const struct vb_trainer_ops *ops;
    void *state; /* of ops */
    struct vb_trainer_kernels kernels;

    struct vb_trainer_data data;
    struct vb_loader *loader;
    const struct vb_batch *batch;
    int batch_n; /* asynchronous training: samples of the last step */

    int64_t step;       /* steps that are complete */
    int64_t resumed;    /* steps of the run that this one resumes */
    int64_t samples;    /* of this run */
    int64_t equal_step; /* the last step after which all ranks had equal parameters */
    double loss;        /* per sample, of this rank's last batch */
    bool all_know;      /* all ranks know of the failure: none must be told */

    uint64_t opened_ns, shown_ns;
    struct vb_laps laps;
    struct vb_trainer_slow slow;
    struct vb_trainer_sums sums;
    struct vb_trainer_evals evals;
    struct vb_trainer_saved saved;
};

/* Fills in model and ops. The model must exist. */
void vb_trainer_find_model(struct vb_trainer *t);

/* Whether the model computes on lists of the pixels that are not 0. */
static inline bool vb_trainer_has_pixels(const struct vb_trainer *t)
{
    return t->model.layers != NULL && t->model.layers->pixels;
}

/* The largest number of samples that this rank has of a global batch. */
int vb_trainer_share(const struct vb_trainer *t);

/* Changes this rank's part of the batches: it is now rank of ranks. The number of samples per rank
 * stays the same. step: where training is. */
vb_status vb_trainer_repartition(struct vb_trainer *t, int rank, int ranks, int64_t step);

/* Whether something that happens every so many steps happens after this one; every 0: never. */
static inline bool vb_trainer_is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* The batch of the next step, while the current step runs. Returns NULL if the batch is not loaded
 * yet, or if an evaluation uses the model before that step. */
const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t);

/* Opening is collective and sets up everything that a step needs. joiner: NULL unless the worker
 * joins a running job. The trainer borrows both. The caller closes the trainer even if opening
 * failed. */
vb_status vb_trainer_open(struct vb_trainer *t, const struct vb_train_opts *o,
                          const struct vb_trainer_joiner *joiner);
vb_status vb_trainer_step(struct vb_trainer *t);
void vb_trainer_close(struct vb_trainer *t);

/* Tells the other ranks about a failure, before closing. */
void vb_trainer_give_up(struct vb_trainer *t, vb_status st);

/* --slow: vb_trainer_drag() idles, before forward. vb_trainer_slow_down() is called after a step
 * that took computed_ns to compute and decides how long to idle in the next one. */
void vb_trainer_drag(struct vb_trainer *t);
void vb_trainer_slow_down(struct vb_trainer *t, uint64_t computed_ns);
uint64_t vb_trainer_computed_ns(const struct vb_trainer *t);

/* Reports the progress to the user, if it is time to. */
bool vb_trainer_is_to_show(const struct vb_trainer *t, bool evaluated);
void vb_trainer_show(struct vb_trainer *t, int64_t step, bool evaluated);

/* Collective: checks that all ranks hold the same parameters. The error names a rank that does not,
 * and the last step at which all did (train_check.c). */
vb_status vb_train_compare(struct vb_trainer *t);

/* ---- dense models (train_dense.c) -------------------------------------------------------------
 */

/* Computes the gradient of t->batch, summed over its samples. */
void vb_dense_gradient(struct vb_trainer *t, const float *params, float *grads);

/* ---- sums of gradients (train_buckets.c) ----------------------------------------------------- */

/* Gradients are summed in buckets, each as soon as backward has filled it. */
struct vb_buckets;

/* Collective. Without a group nothing is summed. front: number of parameters, of whole layers, that
 * forward needs first. The caller destroys the buckets even if this failed. */
vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, size_t front,
                            struct vb_buckets **buckets_p);
void vb_buckets_close(struct vb_buckets *b); /* collective */
void vb_buckets_destroy(struct vb_buckets *b);

float *vb_buckets_grads(struct vb_buckets *b);          /* where backward writes */
size_t vb_buckets_least(const struct vb_buckets *b);    /* gradients that the link sends well */
void vb_buckets_begin(struct vb_buckets *b);            /* before backward */
void vb_buckets_ready(void *b, size_t first, size_t n); /* a vb_grads_fn */

/* Waits for the next bucket and returns its range. *n_p is 0 after the last bucket. */
vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p);
int vb_buckets_left(const struct vb_buckets *b); /* buckets not yet returned */

/* Polls running allreduces. Charges the time before the call to the phase. */
void vb_buckets_poll(struct vb_buckets *b, enum vb_phase phase);

/* Sums the buckets of the last step once more, whatever they contain: starts them in the same order
 * and then waits for them. */
vb_status vb_buckets_again(struct vb_buckets *b);

const char *vb_buckets_algo(const struct vb_buckets *b); /* of the largest bucket; NULL: none */

/* Ranks that have mapped each other's gradients can sum them without the network. After
 * vb_buckets_barriers_only() a bucket is a barrier: all ranks have filled it. */
bool vb_buckets_are_mapped(const struct vb_buckets *b);
const float *vb_buckets_grads_of(const struct vb_buckets *b, int rank);
void vb_buckets_barriers_only(struct vb_buckets *b);
vb_status vb_buckets_barrier(struct vb_buckets *b); /* waits until all ranks call it */

/* ---- updates that ranks of one host share (train_here.c) ------------------------------------- */

struct vb_shared_update;

/* Collective: allocates len_bytes of zeroed memory on each rank, mapped by all ranks. From now on
 * buckets are barriers only. The caller destroys the result even if this failed. */
vb_status vb_shared_update_create(struct vb_trainer *t, struct vb_buckets *buckets, size_t n_params,
                                  size_t len_bytes, struct vb_shared_update **shared_p);
void vb_shared_update_close(struct vb_shared_update *shared); /* collective */
void vb_shared_update_destroy(struct vb_shared_update *shared);
void *vb_shared_update_memory(const struct vb_shared_update *shared); /* of this rank */

/* An update that reads this rank's memory and writes to the memory of all ranks. */
struct vb_shared_args {
    const float *params, *state; /* in this rank's memory; state NULL: the rule has none */
    float *params_out, *state_out;
    float scale, rate;
    bool norm;      /* compute this rank's parts of the norm, too */
    bool norm_only; /* ... and nothing else */
};

/* Updates this rank's part of the parameters from first to first + n - 1. All ranks must have
 * filled these gradients. Buckets are passed from the end of the parameters to the beginning. The
 * parts of the other ranks are complete after a barrier. */
void vb_shared_update_run(struct vb_shared_update *shared, const struct vb_shared_args *args,
                          size_t first, size_t n);
double vb_shared_update_norm(struct vb_shared_update *shared); /* after a barrier */

/* ---- sparse rows (train_sparse.c) ------------------------------------------------------------ */

struct vb_k_csr vb_train_csr(const struct vb_rows *rows); /* a batch, in the form for kernels */

/* ---- plans (train_plan.c) -------------------------------------------------------------------- */

#define VB_PLAN_BYTES_MAX 65536 /* of a plan as text, with its terminating zero */

/* Reads the file of --plan into t->kernels.asked. */
vb_status vb_train_read_plan(struct vb_trainer *t);

/* Parses a plan into t->kernels.asked. from: where it comes from, for messages. */
vb_status vb_train_parse_plan(struct vb_trainer *t, const char *from, const char *text);

/* Collective: rank 0 chooses kernels, and all ranks compile the model with these. */
vb_status vb_train_compile(struct vb_trainer *t);

/* Collective: sends the text of rank 0 to all ranks. text: used on rank 0 only; NULL means "". The
 * caller frees the copy. Returns VB_ERR_USAGE on all ranks if the text is too long. */
vb_status vb_train_tell_plan(struct vb_group *group, const char *text, char **told_p);

/* ---- checkpoints (train_save.c) -------------------------------------------------------------- */

/* Rank 0 makes sure that the folder for checkpoints exists and is writable. */
vb_status vb_train_prepare_save(struct vb_trainer *t);

/* Writes a checkpoint of this step. All ranks call it; rank 0 writes, because all ranks have the
 * same parameters. Asynchronous training: the caller writes. */
vb_status vb_train_save(struct vb_trainer *t, int64_t step);

/* Collective: reads the newest checkpoint, which must be the same one on all ranks. The caller
 * passes it to vb_train_restore() after the model was created, and frees it. NULL: there is no
 * checkpoint. */
vb_status vb_train_find(struct vb_trainer *t, struct vb_checkpoint **read_p);
vb_status vb_train_restore(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- results (train_result.c) ---------------------------------------------------------------- */

/* Collective: each rank evaluates its share of the test data; all ranks get the whole result. */
vb_status vb_train_evaluate(struct vb_trainer *t);

/* vb_train_make_room() allocates memory for the results of evaluations, because a step must not
 * allocate. vb_train_keep_eval() stores the last evaluation there. */
vb_status vb_train_make_room(struct vb_trainer *t);
void vb_train_keep_eval(struct vb_trainer *t, int64_t step);

/* Synchronous training, collective: combines the figures of all ranks. Fails if the ranks ended
 * with different parameters. */
vb_status vb_train_collect(struct vb_trainer *t, struct vb_train_result *result_p);

/* vb_train_fill_params() fills in the number of parameters and their digest. vb_train_fill_run()
 * fills in what is the same on all ranks, the means over the rows of workers, and the bottleneck;
 * it moves the plan and the list of evaluations from the trainer to the result. */
vb_status vb_train_fill_params(struct vb_trainer *t, struct vb_train_result *r);
void vb_train_fill_run(struct vb_trainer *t, struct vb_train_result *r);

/* The figures of this rank as a worker. group: whose registered memory is counted; NULL: none. */
void vb_train_fill_rank(const struct vb_trainer *t, struct vb_group *group,
                        struct vb_rank_result *r);
void vb_train_fill_host(struct vb_rank_result *r); /* host name and memory of the process */

/* ---- verdict (train_verdict.c) --------------------------------------------------------------- */

/* Fills in r->bottleneck: what took the most time. */
void vb_train_find_bottleneck(struct vb_train_result *r);

/* The reporting rank warns about a model that has learnt nothing. The data must still be open. */
void vb_train_warn(const struct vb_trainer *t, const struct vb_train_result *r);

#endif
