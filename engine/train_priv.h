/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of training.
 */
#ifndef VB_TRAIN_PRIV_H
#define VB_TRAIN_PRIV_H

#include "engine/engine.h"
#include "models/models.h"

#include <sched.h>

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

struct vb_laps {
    uint64_t begin_ns;
    uint64_t mark_ns; /* what came before has been given to a phase */
    uint64_t ns[VB_PHASES];
    uint64_t late_ns; /* of the group, when the last transfer was over */
    double cpu_begin_s;
};

void vb_laps_begin(struct vb_laps *laps);

/* The time since the last call belongs to a phase. */
void vb_lap(struct vb_laps *laps, enum vb_phase phase);

/* So much of a phase was another one. */
void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns);

/* It was transfer, but for what the group has waited for late ranks. group NULL: nothing was. */
void vb_lap_comm(struct vb_laps *laps, struct vb_group *group);

/* ---- what the options come to (train_recipe.c) ----------------------------------------------- */

struct vb_recipe {
    int global_batch;
    int64_t steps;           /* in all */
    int64_t steps_per_epoch; /* the last of an epoch may be shorter */
    struct vb_k_rule rule;
    struct vb_k_schedule schedule;
    double clip; /* the largest norm of a mean gradient; 0: any */
};

/* n: samples to train on. */
vb_status vb_recipe_make(const struct vb_train_opts *o, int n, struct vb_recipe *recipe_p);

/* The kind of made-up data that a model is meant for. */
enum vb_synth_kind vb_recipe_synth(const struct vb_train_opts *o);

/* The table of layers of a dense model. */
const char *vb_recipe_net(const struct vb_train_opts *o);

/* ---- is it possible (train_check.c) ---------------------------------------------------------- */

/* What decides the result, as lines "name=value": the same on all ranks, and in a checkpoint that
 * is to be gone on from. To be freed; NULL: no memory. */
char *vb_train_settings(const struct vb_train_opts *o, const struct vb_recipe *recipe);

/* Names the first line that differs. */
bool vb_train_settings_differ(const char *a, const char *b, char name[64]);

/* Collective: fails on all ranks if one was started with other options. */
vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings);

/* ---- places (train_place.c) ------------------------------------------------------------------ */

/* The group, and where on the machine this rank is. */
struct vb_place {
    struct vb_topo *topo;
    struct vb_placement *placement;
    struct vb_group *group; /* NULL: there are no others */
    bool borrowed;          /* the group is not ours to close */
    bool pinned;            /* threads have places of their own */
    int local_rank;
};

/* Opens the group, and puts this thread and its memory where the plan wants them. */
vb_status vb_place_open(const struct vb_train_opts *o, struct vb_place *place_p);
void vb_place_leave(struct vb_place *place); /* the group, and nothing else */
void vb_place_close(struct vb_place *place);

/* Asynchronous: whether ranks and servers have more threads than there are cpus for them. Where
 * nobody says how many ranks share the cpus, all do. */
bool vb_place_is_crowded(const struct vb_train_opts *o, const cpu_set_t *cpus);

/* ---- training (train.c) ---------------------------------------------------------------------- */

struct vb_trainer;

/* A model in training. Two kinds: dense and sparse. */
struct vb_trainee {
    /* Chooses kernels, those of t->plan where it is there, and says which in t->plan_text. */
    vb_status (*compile)(struct vb_trainer *t);

    /* Collective. The data is there, and the kernels are chosen. */
    vb_status (*create)(struct vb_trainer *t);

    /* One step on t->batch, forward to update, giving its time to phases. */
    vb_status (*step)(struct vb_trainer *t);

    /* The sums of the last step once more, and nothing else; bytes_p: what this rank gives. */
    vb_status (*sum_again)(struct vb_trainer *t, size_t *bytes_p);

    /* Goes back to the parameters before the last step, once: ranks that a failure left one step
     * apart can meet there. Only where there are other ranks. */
    vb_status (*step_back)(struct vb_trainer *t);

    /* Adds what n test samples from first on come to. */
    vb_status (*judge)(struct vb_trainer *t, int first, int n, struct vb_model_loss *sum);

    /* The parameters as they are after the last step, as one piece. */
    const float *(*params)(struct vb_trainer *t, size_t *n_p);

    /* What goes into a checkpoint, borrowed until the next step; and back out of one, checked. */
    vb_status (*save)(struct vb_trainer *t, struct vb_checkpoint *cp);
    vb_status (*restore)(struct vb_trainer *t, const struct vb_checkpoint *cp);

    /* Asynchronous: parameters, and the state of their rule (NULL: it has none) of so many words a
     * parameter, as they are judged and saved. */
    float *(*memory)(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p);

    void (*close)(struct vb_trainer *t);   /* collective, before the group is closed */
    void (*destroy)(struct vb_trainer *t); /* after it */
};

extern const struct vb_trainee vb_trainee_dense;  /* train_dense.c */
extern const struct vb_trainee vb_trainee_sparse; /* train_sparse.c */

struct vb_trainer {
    const struct vb_train_opts *o;
    uint64_t opened_ns;
    int rank, world; /* ranks that compute; a dedicated server has a rank behind them, */
    bool serves;     /* ... and does nothing else */
    bool shows;      /* how far training is: one of those that are there */
    int shares;      /* ranks that share a batch: world, or 1 where each has batches of its own */
    bool async;
    cpu_set_t cpus; /* that this process may use, before anything was pinned */
    struct vb_place place;
    struct vb_dataset train, test;
    int n_test;      /* samples to test with */
    bool judge_only; /* no step will be made */
    struct vb_recipe recipe;
    char *settings;
    struct vb_k_plan *plan; /* what --plan or a checkpoint says; NULL: nothing */
    char *plan_text;        /* of the kernels in use; NULL: there is none */
    struct vb_loader *loader;
    const struct vb_batch *batch;
    int batch_n; /* asynchronous: samples of the last step */
    const struct vb_trainee *ops;
    void *state;  /* of ops */
    int64_t step; /* steps that are complete */
    int64_t resumed, samples;
    bool all_know; /* why it failed: nobody need be told */
    bool no_sums;  /* steps leave the sums over ranks out: to see what these cost */
    double loss;   /* of this rank's last batch, a sample */
    struct vb_laps laps;
    char checkpoint[4096];
    double pause_s;
    uint64_t drag_ns;           /* how long a slowed rank is to be idle in the next step */
    uint64_t own_ns;            /* ... that the last one took it otherwise */
    int64_t equal_step;         /* the last at which replicas were compared and equal */
    double accuracy, test_loss; /* of the last evaluation; negative: none */
    struct vb_eval *evals;      /* on the way */
    int n_evals, max_evals;
    int64_t evals_seen, evals_gap; /* one of so many is kept */
    const char *algo;              /* how gradients are summed; NULL: they are not */
    char transport[16];            /* asynchronous */
    uint64_t watched_ns;
};

/* This rank's share of a global batch, at most. */
int vb_trainer_share(const struct vb_trainer *t);

/* The batches are from now on those of this rank among so many, of as many samples as before; step:
 * that training has come to. */
vb_status vb_trainer_cut_anew(struct vb_trainer *t, int rank, int ranks, int64_t step);

/* The batch of the step after this one, while this one is made; NULL: it is not there yet, or
 * something else needs the model before. */
const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t);

/* For who drives the steps by himself. Collective: sets up all that a step needs; to be closed,
 * whatever came of it. */
vb_status vb_trainer_open(struct vb_trainer *t, const struct vb_train_opts *o);
vb_status vb_trainer_step(struct vb_trainer *t);
void vb_trainer_close(struct vb_trainer *t);

/* After a failure, before closing: the other ranks are told. */
void vb_trainer_give_up(struct vb_trainer *t, vb_status st);

/* After a step that took so long to compute: how long to be idle in the next. */
void vb_trainer_slow_down(struct vb_trainer *t, uint64_t computed_ns);
uint64_t vb_trainer_computed_ns(const struct vb_trainer *t);

/* Tells the watcher how far it is, if it is time to. */
bool vb_trainer_is_to_show(const struct vb_trainer *t, bool evaluated);
void vb_trainer_show(struct vb_trainer *t, int64_t step, bool evaluated);

/* A rank that is slowed on purpose is idle for a while, before it computes. */
void vb_trainer_drag(struct vb_trainer *t);

/* Collective: whether all ranks hold the same parameters; the error says which does not, and since
 * when (train_check.c). */
vb_status vb_train_compare(struct vb_trainer *t);

/* ---- asynchronous training (train_async*.c) -------------------------------------------------- */

/* Each has batches of its own. */
bool vb_train_apart(const struct vb_train_opts *o);

struct vb_async;
vb_status vb_async_check(const struct vb_train_opts *o);
vb_status vb_async_run(struct vb_trainer *t, struct vb_async **async_p); /* to be destroyed */

/* Of a job that this worker has joined (train_join.c): what it must agree with. */
const char *vb_joined_plan(const struct vb_joined *joined); /* NULL: it has none */
vb_status vb_joined_check(const struct vb_joined *joined, const char *settings);
int64_t vb_joined_begin(const struct vb_joined *joined); /* steps of a run before */

/* One worker tells the result of all: it has tested and saved. */
bool vb_async_reports(const struct vb_async *async);
vb_status vb_async_collect(struct vb_async *async, struct vb_train_result *result);

vb_status vb_async_own(struct vb_async *async,
                       struct vb_train_result *result); /* of who does not */

/* The others need not wait any longer; or, with a failure, one of them is to report. */
void vb_async_leave(struct vb_async *async, vb_status st);
void vb_async_destroy(struct vb_async *async);

/* The gradient of t->batch, summed over its samples (train_dense.c). */
void vb_dense_gradient(struct vb_trainer *t, const float *params, float *grads);

bool vb_train_is_softmax(const struct vb_trainer *t); /* which computes on pixels that are not 0 */

/* ---- gradients of all ranks (train_buckets.c) ------------------------------------------------ */

/* Gradients are summed in buckets, each as soon as backward has filled it. */
struct vb_buckets;

/* Collective; without a group there is nothing to sum. front: so many parameters, of whole layers,
 * are those that forward can begin with. */
vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, size_t front,
                            struct vb_buckets **buckets_p);
void vb_buckets_close(struct vb_buckets *b); /* collective */
void vb_buckets_destroy(struct vb_buckets *b);

float *vb_buckets_grads(struct vb_buckets *b);          /* where backward is to write */
size_t vb_buckets_least(const struct vb_buckets *b);    /* gradients that the link takes well */
void vb_buckets_begin(struct vb_buckets *b);            /* before backward */
void vb_buckets_ready(void *b, size_t first, size_t n); /* a vb_grads_fn */

/* The next bucket, once it is summed: n is 0 after the last. */
vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p);
int vb_buckets_left(const struct vb_buckets *b); /* how many are still to be taken */

/* Sums under way get on for a moment; the time before that belongs to the phase. */
void vb_buckets_get_on(struct vb_buckets *b, enum vb_phase phase);

/* The buckets of the last step once more, of whatever is in them: started in the same order, then
 * waited for. */
vb_status vb_buckets_again(struct vb_buckets *b);

const char *vb_buckets_algo(const struct vb_buckets *b); /* of the largest; NULL: none */

/* Whether ranks have mapped each other's gradients; then they can be told of buckets that all ranks
 * have, and add up by themselves. To meet is to wait until all ranks do. */
bool vb_buckets_are_mapped(const struct vb_buckets *b);
const float *vb_buckets_grads_of(const struct vb_buckets *b, int rank);
void vb_buckets_words_only(struct vb_buckets *b);
vb_status vb_buckets_meet(struct vb_buckets *b);

/* ---- updates that ranks of one host share out (train_here.c) --------------------------------- */

struct vb_here;

/* Collective: memory of len_bytes, zeroed, that all ranks have mapped. Buckets give words only from
 * then on. */
vb_status vb_here_create(struct vb_trainer *t, struct vb_buckets *buckets, size_t n_params,
                         size_t len_bytes, struct vb_here **here_p);
void vb_here_close(struct vb_here *here); /* collective */
void vb_here_destroy(struct vb_here *here);
void *vb_here_memory(const struct vb_here *here); /* this rank's */

/* An update out of this rank's memory into that of all ranks. */
struct vb_here_update {
    const float *params, *state; /* in vb_here_memory(); state NULL: the rule has none */
    float *params_out, *state_out;
    float scale, rate;
    bool norm; /* the norm's parts are wanted */
    bool norm_only;
};

/* This rank's share of a bucket that all ranks have, given from the end of the parameters to their
 * beginning; or of all parameters. Others' shares are there when all ranks have met. */
void vb_here_share(struct vb_here *here, const struct vb_here_update *u, size_t first, size_t n);
double vb_here_norm(struct vb_here *here); /* after they have met */

/* ---- sparse rows (train_sparse.c) ------------------------------------------------------------ */

struct vb_k_csr vb_train_csr(const struct vb_rows *rows); /* a batch, as kernels take it */

/* ---- plans (train_plan.c) -------------------------------------------------------------------- */

#define VB_PLAN_BYTES_MAX 65536 /* of a plan as text, with its end */

/* Collective: gives all ranks the text of rank 0, to be freed. text: of rank 0; NULL is "". Too
 * long a text is VB_ERR_USAGE on all ranks. */
vb_status vb_train_tell_plan(struct vb_group *group, const char *text, char **told_p);

/* ---- checkpoints (train_save.c) -------------------------------------------------------------- */

/* Rank 0 makes sure that there is a folder that it may write to. */
vb_status vb_train_prepare_save(struct vb_trainer *t);

/* Called by all ranks; rank 0 writes what all have. */
vb_status vb_train_save(struct vb_trainer *t);

/* Collective: goes back to the newest checkpoint there is, the same on all ranks. read_p is to be
 * restored with vb_train_restore() once the model is there; NULL: there is none. */
vb_status vb_train_find(struct vb_trainer *t, struct vb_checkpoint **read_p);
vb_status vb_train_restore(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- results (train_result.c) ---------------------------------------------------------------- */

/* Collective: what the share of test data that each rank judged comes to. */
vb_status vb_train_evaluate(struct vb_trainer *t);

/* What comes of tests on the way is kept in room made before: a step allocates nothing. The second
 * keeps the last evaluation. */
vb_status vb_train_make_room(struct vb_trainer *t);
void vb_train_keep_eval(struct vb_trainer *t, int64_t step);

/* Collective: brings the ranks' figures together. Fails if they ended with other parameters.
 * Asynchronous: called by the one that reports. */
vb_status vb_train_collect(struct vb_trainer *t, struct vb_async *async,
                           struct vb_train_result *result_p);

/* This rank's figures, as a worker; group: whose memory is registered, NULL: none. */
void vb_train_fill_rank(const struct vb_trainer *t, struct vb_group *group,
                        struct vb_rank_result *r);
void vb_train_fill_host(struct vb_rank_result *r); /* what is the process's */

/* What held the run up most, from its figures (train_verdict.c). */
void vb_train_judge(struct vb_train_result *r);

/* Who reports warns of a model that learnt nothing (train_remark.c). The data is still there. */
void vb_train_remark(const struct vb_trainer *t, const struct vb_train_result *r);

#endif
