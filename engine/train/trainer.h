/* SPDX-License-Identifier: MIT
 *
 * The trainer: everything that one rank needs to make steps. Other rooms use it, too.
 */
#ifndef VB_ENGINE_TRAIN_TRAINER_H
#define VB_ENGINE_TRAIN_TRAINER_H

#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/elastic/elastic.h"
#include "engine/sums/sums.h"
#include "engine/train/train.h"
#include "engine/trial/sample.h"
#include "engine/record/train_ledger.h"
#include "engine/record/train_noise.h"
#include "engine/record/train_record.h"
#include "engine/inject/train_replay.h"
#include "engine/record/train_trace.h"
#include "models/models.h"
#include "topo/topo.h"

#include <sched.h>

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

/* The time of a rank, divided into phases. */
struct vb_laps {
    uint64_t begin_ns;
    uint64_t mark_ns; /* the time before this moment has been charged to phases */
    uint64_t ns[VB_PHASES];
    uint64_t late_ns; /* value of vb_group_wait_total_ns() after the last transfer */
    double cpu_begin_s;
};

void vb_laps_begin(struct vb_laps *laps);
double vb_laps_steps_s(const struct vb_laps *laps); /* without evaluations and checkpoints */

/* Charges the time since the last call to this phase. */
void vb_lap(struct vb_laps *laps, enum vb_phase phase);

/* Moves time from one phase to another, at most the whole time of the phase. */
void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns);

/* ---- from options to numbers (train_recipe.c) ------------------------------------------------ */

struct vb_recipe {
    int global_batch;
    int64_t steps;           /* number of steps of the whole run */
    int64_t steps_per_epoch; /* the last step of an epoch may be shorter */
    struct vb_k_rule rule;
    struct vb_k_schedule schedule;
    double clip;  /* largest norm of a mean gradient; 0: no limit */
    bool by_size; /* adagrad: features begin with a state that depends on their size */
    struct vb_chosen chosen;
};

/* Returns whether each worker has its own batches. */
bool vb_train_apart(const struct vb_train_opts *o);

/* Returns the number of servers, not counting standbys. */
int vb_train_shards(const struct vb_async_opts *o);
/* Returns the number of servers per shard, including the standby. */
int vb_train_replicas(const struct vb_async_opts *o);

/* ---- checks (train_check.c) ------------------------------------------------------------------ */

/* Checks that the options fit each other, except for the options of the parameter server. */
vb_status vb_trainer_check(const struct vb_train_opts *o);

/* Returns the number of ranks of a synchronous run with these settings; 0: it is not known. */
int vb_train_ranks_of(const char *settings);

/* ---- placement (train_place.c) --------------------------------------------------------------- */

/* The group of this rank, and the place on the machine where the rank runs. */
struct vb_place {
    struct vb_topo *topo;
    struct vb_placement *placement;
    struct vb_group *group;                             /* NULL: this is the only rank */
    void (*grouped)(void *arg, struct vb_group *group); /* to tell that the group is closed */
    void *grouped_arg;
    struct vb_group *members; /* asynchronous: that of workers and servers; NULL: not open */
    bool borrowed;            /* the group belongs to the caller, who closes it */
    bool pinned;              /* each thread has cores of its own */
    int local_rank;
};

/* Opens the group, and binds this thread and its memory as the placement says. */
vb_status vb_place_open(const struct vb_train_opts *o, struct vb_place *place_p);
/* Opens the group that this rank was invited to. */
vb_status vb_place_meet(const struct vb_train_opts *o, struct vb_place *place,
                        const struct vb_meeting *meeting);
void vb_place_leave(struct vb_place *place); /* closes the group, but keeps the placement */
void vb_place_close(struct vb_place *place);

/* Asynchronous training: returns whether ranks and servers have more threads than there are cpus.
 * If the number of ranks on this host is unknown, all ranks are assumed to be here. */
bool vb_place_is_crowded(const struct vb_train_opts *o, const cpu_set_t *cpus);

struct vb_trainer;

/* ---- is the model still improving? (train_verdict.c) ----------------------------------------- */

/* Notes the loss of a step. step: number of steps of the job so far. */
void vb_train_note_loss(struct vb_trainer *t, int64_t step);

/* ---- the trainer of one rank (train.c) ------------------------------------------------------- */

/* What an evaluation adds up. labels, predicted: 0: there were none; class + 1: all are of this
 * class; -1: they are of several classes. */
struct vb_eval_sum {
    double loss;
    int64_t correct;
    int labels, predicted;
};

/* Adds a class, or what another sum has found, to labels or predicted. */
static inline void vb_eval_class(int *sum, int class_and_1)
{
    if (class_and_1 != 0)
        *sum = *sum == 0 || *sum == class_and_1 ? class_and_1 : -1;
}

/* Parameters that lack what the last steps do to features without a gradient. */
struct vb_trainer_late {
    float *params;
    uint32_t steps; /* that they lack */
};

/* Dense and sparse models implement the same interface. */
struct vb_trainer_ops {
    /* Chooses kernels, or uses t->kernels.asked. Writes the plan in use to t->kernels.text. */
    vb_status (*compile)(struct vb_trainer *t);

    /* Collective, after compile(). Allocates parameters and buffers. */
    vb_status (*create)(struct vb_trainer *t);

    /* Makes one step with t->batch and the further pieces of this step, and charges its time to
     * phases. t->batch is the last piece afterwards. */
    vb_status (*step)(struct vb_trainer *t);

    /* Repeats only the sums of the last step. *bytes_p: size of this rank's gradient. */
    vb_status (*sum_again)(struct vb_trainer *t, size_t *bytes_p);

    /* Synchronous training, collective, after the ranks have regrouped and t->rank and t->world
     * were set. copy() gives those that lack it (lacks) the last step of the member at place
     * `from`. The bits are the same. It commits this step (vb_group_commit()) before anything
     * changes, and fails with VB_ERR_PEER if that is refused. regrouped() follows on all members:
     * the next step is made by the new members, and nothing but parameters and state depends on the
     * past. */
    vb_status (*copy)(struct vb_trainer *t, int from, bool lacks, int64_t step);
    void (*regrouped)(struct vb_trainer *t);

    /* Synchronous training, collective: makes anew, in the group that t->place.group is now, what
     * create() has made in the group before, which is kept aside. Parameters and state stay those
     * of the last step. formed() follows, also after a failure: it frees what was kept aside if
     * the members stay in the new group, or goes back to it. It sends no message. */
    vb_status (*form)(struct vb_trainer *t);
    void (*formed)(struct vb_trainer *t, bool stays);

    /* Returns the number of windows of form() that take long to allocate, at most VB_WINDOWS_AHEAD,
     * in a group of about so many ranks, and fills in their lengths. NULL: 0. */
    int (*ahead)(struct vb_trainer *t, int world, size_t *lens_bytes);

    /* Forgets what was computed ahead of the next step. NULL: nothing is. */
    void (*forget)(struct vb_trainer *t);

    /* Runs the model on n test samples, beginning with sample first, and adds the result to sum. */
    vb_status (*evaluate)(struct vb_trainer *t, int first, int n, struct vb_eval_sum *sum);

    /* Returns the parameters after the last step, as one array; NULL if there is no memory. */
    const float *(*params)(struct vb_trainer *t, size_t *n_p);

    /* Returns the floating-point operations of a whole batch. NULL: the model is sparse. */
    double (*flops)(const struct vb_trainer *t);

    /* Returns the table of parameters; NULL: the model has one tensor. */
    const struct vb_param *(*tensors)(struct vb_trainer *t, int *n_p);

    /* After an evaluation: returns a gradient of the last batch, in the order of the parameters or,
     * for a sparse model, without those that are 0. It is that of all ranks if the step has summed
     * it here, otherwise of this rank, and computed again if the step has not kept it. Times
     * *scale_p it is a mean over samples. NULL: there is none. */
    const float *(*gradient)(struct vb_trainer *t, size_t *n_p, float *scale_p);

    /* After gradient(): returns the weights of the same features. NULL: the model is dense. */
    const float *(*weights)(struct vb_trainer *t, size_t *n_p);

    /* Counts the nonzeros of the first n test samples, and those whose feature training has never
     * seen. NULL: the model is dense. */
    vb_status (*unseen)(struct vb_trainer *t, int n, int64_t *nonzeros_p, int64_t *unseen_p);

    /* save() fills in the arrays of a checkpoint, which the checkpoint borrows until the next step.
     * After hold(cp), with what save() has filled in, it borrows them until hold(NULL), and steps
     * do not change what is written; hold() is NULL, or returns false, if that is not possible.
     * restore() checks the arrays of a checkpoint and copies them into the model. After it,
     * settle() says that their step is another one than the checkpoint's; NULL: that does not
     * matter. land() returns where the data of an array can be written before restore(), which then
     * need not copy it. It returns NULL, or is NULL, if there is no such place. */
    vb_status (*save)(struct vb_trainer *t, struct vb_checkpoint *cp);
    bool (*hold)(struct vb_trainer *t, struct vb_checkpoint *cp);
    vb_status (*restore)(struct vb_trainer *t, const struct vb_checkpoint *cp);
    void (*settle)(struct vb_trainer *t);
    void *(*land)(struct vb_trainer *t, const struct vb_checkpoint_array *a);

    /* Asynchronous training: returns the parameters that are evaluated and saved, and the state of
     * the update rule. *words_p: number of 32-bit words of state per parameter. *state_p is NULL if
     * the rule has no state. */
    float *(*memory)(struct vb_trainer *t, size_t *n_p, void **state_p, int *words_p);

    /* Asynchronous training: returns where the parameters in the memory of servers go that have
     * parameters which are not up to date. NULL, or returns NULL: they are. */
    struct vb_trainer_late *(*late)(struct vb_trainer *t);

    void (*close)(struct vb_trainer *t);   /* collective; called before the group is closed */
    void (*destroy)(struct vb_trainer *t); /* called after the group is closed */
};

/* The rows of the tables that describe a model. */
struct vb_trainer_model {
    const struct vb_train_model *row;
    const struct vb_train_net *net;
    const struct vb_layer_table *layers; /* NULL: the model is sparse */
};

struct vb_trainer_data {
    struct vb_dataset train, test;
    int n_test;         /* number of test samples that are used */
    uint64_t digest[2]; /* of the two sets */
};

/* What the ranks of a host share (train_copies.c). */
enum vb_copy { VB_COPY_DATA, VB_COPY_PIXELS, VB_COPY_PIXELS_TEST, VB_COPIES };

#define VB_KEEPER_TOKEN 16

/* A rank that keeps copies, as other ranks of its host find it. */
struct vb_keeper {
    uint64_t data;  /* the same on ranks of one host that open the same data; 0: nothing is kept */
    uint64_t reach; /* the same on ranks that can open each other's memory */
    struct vb_mem_id page;
    int32_t rank, thread;
    unsigned char token[VB_KEEPER_TOKEN];
};

struct vb_copies {
    bool keeps, reads;       /* this rank is a keeper; this rank reads the copies of keeper */
    struct vb_keeper keeper; /* if reads is set */
    struct vb_mem page, mem[VB_COPIES];
    struct vb_keeper *keepers; /* the keepers of all hosts, for joiners */
    int n_keepers;
};

/* Which kernel computes which layer. */
struct vb_trainer_kernels {
    struct vb_k_plan *asked; /* plan of --plan, a checkpoint or rank 0; NULL: none was given */
    char *text;              /* the plan in use; NULL: the model has no choice of kernels */
};

/* Results of evaluations, in memory that is allocated before training. */
struct vb_trainer_evals {
    double accuracy, loss; /* of the last evaluation; negative: there was no evaluation */
    struct vb_eval *list;  /* evaluations before the end of the run */
    int n, max;
    int64_t seen;          /* number of evaluations so far */
    int64_t gap;           /* one of `gap` evaluations is kept */
    int64_t every;         /* number of steps between evaluations; 0: only one at the end */
    int64_t kept_step;     /* the last step whose evaluation was kept; -1: none */
    int64_t recorded_step; /* synchronous training: the last one that was recorded; -1: none */
    /* The last evaluation that this rank has completed, for others that have not (train_result.c).
     */
    struct vb_eval_sum sum;
    int64_t sum_step; /* -1: none */
    uint32_t view;    /* the view in which it was completed */
};

/* What a checkpoint has of the conditions: the elements of an array. */
struct vb_until_saved {
    int64_t n_test, judged, worse, kept_step;
    double mark, accuracy, loss, kept_accuracy, kept_loss;
};

/* Whether the run is done (train_until.c). */
struct vb_trainer_until {
    bool met;  /* a condition holds, or has held: no more steps are made */
    bool told; /* asynchronous training: another worker has found that a condition holds */
    struct vb_until_result result;
    int64_t judged;     /* the last evaluation that was judged; -1: none */
    int64_t judged_now; /* the same, without those of the run that was resumed */
    double mark;        /* plateau: the loss that the next evaluations are compared with */
    int64_t worse;      /* plateau: number of evaluations since then */
    /* The best parameters so far, with the state of the update rule. */
    struct vb_mem mem;  /* len_bytes is 0: nothing is kept */
    size_t place_bytes; /* mem has one place, or two if checkpoints are written beside training */
    int places, place;  /* the place that has them now */
    int saved_place;    /* that of the last checkpoint; -1: it does not have them */
    struct vb_checkpoint kept;
    int64_t kept_step; /* -1: the result has the last parameters */
    double kept_accuracy, kept_loss;
    struct vb_checkpoint_array *all; /* the arrays of a checkpoint, and all of this */
    struct vb_until_saved saved[2];  /* of the last two checkpoints */
    int last_saved;
};

/* Signs that the model does not learn (train_health.c). Each is warned of once. */
enum vb_warning {
    VB_WARN_CHANCE,     /* training loss that is not better than guessing */
    VB_WARN_NOTHING,    /* nothing was learnt at all */
    VB_WARN_PREDICTION, /* all predictions are one class */
    VB_WARN_LABEL,      /* all test samples are of one class */
    VB_WARN_UNSEEN,     /* test data has features that training has never seen */
    VB_WARN_UNTIL,      /* the steps ended before a condition held */
    VB_WARNINGS,
};

struct vb_trainer_health {
    char said[VB_WARNINGS][VB_WARNING_TEXT]; /* "": it was not said */
    int64_t steps, look_at; /* of this rank; after look_at steps the mean loss is looked at */
    double loss;            /* sum over the steps of the second half of look_at */
    bool not_finite;        /* training failed with a number that is not finite */
    bool reports;           /* this rank reports the result */
};

/* Training losses of the last tenth of the steps, [1], and of the tenth before, [0]. */
struct vb_trainer_tenths {
    int64_t n[2];
    double sum[2], squares[2];
};

#define VB_SAVE_FAULTS 16

/* Checkpoints that this rank has written, or those of the job that it knows of as the lead. */
struct vb_trainer_saved {
    struct vb_checkpoint_writer *writer; /* NULL: not opened */
    char path[4096];                     /* path of the last checkpoint; "": none was written */
    double pause_s;  /* the longest time that training paused for a checkpoint */
    double write_s;  /* the longest time until a checkpoint was synced */
    double mb_s;     /* the highest rate of a checkpoint, with the time until it was synced */
    int64_t step;    /* the last step whose checkpoint was begun; -1: none */
    int64_t skipped; /* checkpoints that were left out, because another one was being written */
    int untold;      /* checkpoints that were begun, and whose end this thread has not seen */
    bool held;       /* the parameters of the last checkpoint are held */
    bool failing;    /* the last checkpoint could not be written */
    struct vb_fault faults[VB_SAVE_FAULTS]; /* the first failures, and the last one */
    int n_faults;
    unsigned char token[VB_JOB_TOKEN]; /* of this run, the same on all ranks */
    struct vb_checkpoint_view view;    /* synchronous training: what the next checkpoint is of */
    uint32_t views_before;             /* views of the run before this group was formed */
    bool locked;                       /* this rank may write to the folder */
    int lock_fd;                       /* -1: this rank holds no lock */
    int lock_tries; /* a lead that has no lock, because of the one before, tries again so often */
};

/* The facts that a worker has learnt from the running job that it joins. The texts are borrowed. */
struct vb_trainer_joiner {
    const unsigned char *token; /* of the run: vb_trainer_saved.token */
    int rank;                   /* rank of this worker in the job */
    int64_t begin;              /* number of steps of the run that the job has resumed */
    const char *settings;       /* settings of the job */
    const char *plan;           /* plan of the job; NULL: the job has no plan */
    const struct vb_keeper *keepers;
    int n_keepers;
    unsigned char job_token[VB_JOB_TOKEN];
    struct vb_caller *caller; /* synchronous jobs: the connection to the job; NULL otherwise */
    const char *cpu;          /* synchronous jobs: vb_k_cpu_kind() of the job */
};

/* What the lead does for the user of a running job. */
struct vb_trainer_ask {
    struct vb_train_ask what;
    bool begun;   /* the checkpoint is being written; the rank was told to leave */
    int64_t step; /* of the checkpoint */
};

struct vb_trainer {
    const struct vb_train_opts *o;
    const struct vb_trainer_joiner *joiner; /* borrowed; NULL: this rank is no joiner */
    struct vb_recipe recipe;
    struct vb_sample sample; /* measured if the recipe depends on it; its rows are not kept */
    char *settings;          /* text that vb_train_settings() returned */

    /* The role of this rank. When ranks of a synchronous job are lost, all of this changes, except
     * for its number and id and what was planned; when others join, the number changes, too. */
    int number; /* rank in the group: for functions of the group that take a rank */
    int id;     /* by which people know this rank: for messages, files and records. The rank of the
                   start; of a joiner, a number that no other rank of the job has had */
    int rank, world; /* place among the ranks that compute, and their number; dedicated servers have
                        the ranks from world on */
    bool leads;      /* this rank speaks, saves and reports for the job: the lowest member */
    uint32_t view;   /* number of the view; 0: that of the start */
    int shares;      /* ranks that share a batch: world, or 1 if each worker has its own batches */
    int share;       /* number of the share that this rank takes */
    int planned;     /* ranks that the run began with; its plan is for their shares */
    bool async;
    bool serves;    /* this rank is a dedicated server */
    bool shows;     /* this rank shows the progress of the job */
    bool eval_only; /* this trainer makes no step */
    cpu_set_t cpus; /* cpus that this process may use, before any thread was pinned */
    struct vb_place place;

    struct vb_trainer_model model;
    const struct vb_trainer_ops *ops;
    void *state; /* private data of the functions in ops */
    struct vb_trainer_kernels kernels;

    struct vb_copies copies;
    struct vb_trainer_data data;
    struct vb_loader *loader;
    const struct vb_batch *batch;
    int batch_n; /* asynchronous training: number of samples in the last step */

    float *grads_room; /* asynchronous training: room for a gradient; NULL: none */

    int64_t step;        /* number of complete steps */
    int64_t resumed;     /* number of steps of the run that this run resumes */
    int64_t samples;     /* number of samples trained on in this run */
    int64_t equal_step;  /* the last step after which all ranks had equal parameters */
    uint32_t equal_mark; /* and what was compared then */
    double loss;         /* loss per sample in this rank's last batch */
    bool all_know;       /* all ranks know of the failure, so no rank must be told */

    uint64_t opened_ns, shown_ns;
    int64_t shown_step; /* the first step of the job that this rank has shown; -1: none yet */
    uint64_t shown_first_ns;
    struct vb_laps laps;
    struct vb_trainer_slow slow;
    struct vb_trainer_replay replay;
    struct vb_trainer_sums sums;
    struct vb_trainer_evals evals;
    struct vb_trainer_until until;
    struct vb_trainer_health health;
    struct vb_trainer_tenths tenths;
    struct vb_trainer_saved saved;
    struct vb_trainer_record record;
    struct vb_trainer_noise noise;
    struct vb_trainer_ledger ledger;
    struct vb_trainer_trace trace;
    struct vb_trainer_recoveries recoveries;
    struct vb_trainer_form form;
    uint64_t few_ns; /* since when there are fewer ranks than --min-ranks; 0: there are enough */
    /* What the user wants (run_ask.c). removed: ranks of the present group that have said that they
     * leave; the handler of notes writes it. */
    _Atomic bool removed[VB_WORLD_MAX];
    bool leaves; /* this rank does */
    struct vb_trainer_ask ask;
    int stopped; /* the signal that ended the run early; 0: none */
};

/* Returns the largest number of samples that this rank takes from one global batch. */
int vb_trainer_share(const struct vb_trainer *t);

/* Returns the number of samples that the plan is for. A larger share is computed in pieces of it,
 * in the order of the samples, and the gradients of the pieces are added in this order. */
int vb_trainer_batch(const struct vb_trainer *t);

/* Between two steps: from now on this rank takes share number `share` of `shares` shares of each
 * global batch. The global batch and the order of samples stay the same. Allocates nothing. The
 * caller has changed the group, and has set t->rank, t->world and t->step, the step that all ranks
 * have completed. A barrier follows before one of the ranks makes a step. */
vb_status vb_trainer_repartition(struct vb_trainer *t, int share, int shares);

/* Asynchronous training: from now on this rank takes share number `rank` of `ranks` shares of each
 * batch. The number of samples per rank stays the same, so the global batch changes. */
vb_status vb_trainer_rebatch(struct vb_trainer *t, int rank, int ranks, int64_t step);

/* Returns whether the share of this rank is larger than what the plan is for. */
static inline bool vb_trainer_has_pieces(const struct vb_trainer *t)
{
    return vb_trainer_share(t) > vb_trainer_batch(t);
}

/* Returns whether this rank has come to a synchronous job that was running. */
static inline bool vb_trainer_comes(const struct vb_trainer *t)
{
    return t->joiner != NULL && !t->async;
}

/* Returns whether what happens every so many steps happens after this one; every 0: never. */
static inline bool vb_trainer_is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Collective: sets up everything that a step needs. joiner: NULL unless the worker joins a running
 * job. Borrows o and joiner. The caller closes the trainer even if this function failed. */
vb_status vb_trainer_open(struct vb_trainer *t, const struct vb_train_opts *o,
                          const struct vb_trainer_joiner *joiner);
vb_status vb_trainer_step(struct vb_trainer *t);
void vb_trainer_close(struct vb_trainer *t);

/* Tells the other ranks about a failure. Called before the trainer is closed. */
void vb_trainer_give_up(struct vb_trainer *t, vb_status st);

/* Returns whether progress is due to be shown. vb_trainer_show() shows it if it is due. */
bool vb_trainer_is_to_show(const struct vb_trainer *t, bool evaluated);
void vb_trainer_show(struct vb_trainer *t, int64_t step, bool evaluated);

/* Collective: checks that all ranks hold the same parameters, and logs the rank that differs and
 * the last step at which all were equal (train_check.c). */
vb_status vb_train_compare(struct vb_trainer *t);

/* ---- dense models (train_dense.c) ------------------------------------------------------------ */

/* Computes the sum of the gradients of all samples in t->batch. step: for messages. Fails if the
 * loss is not finite. */
vb_status vb_dense_gradient(struct vb_trainer *t, const float *params, float *grads, int64_t step);

/* ---- sparse rows (train_sparse.c) ------------------------------------------------------------ */

/* Returns a view of a batch, in the form that kernels take. */
struct vb_k_csr vb_train_csr(const struct vb_rows *rows);

/* ---- plans (train_plan.c) -------------------------------------------------------------------- */

#define VB_PLAN_BYTES_MAX 65536 /* maximum size of a plan as text, with its terminating zero */

/* ---- checkpoints (train_save.c) -------------------------------------------------------------- */

/* Begins a checkpoint of this step. All ranks call this function; the lead writes, because all
 * ranks have the same parameters. Asynchronous training: only one worker calls it, and it writes.
 * A lead that has begun this checkpoint already, before the members changed, goes on with it. The
 * thread of the writer writes while training goes on, if the model can hold its parameters;
 * otherwise this function waits for it. If the last checkpoint is still being written, this one is
 * left out. last: no step follows, so nothing is left out and nothing is waited for yet. */
vb_status vb_train_save(struct vb_trainer *t, int64_t step, bool last);

/* Called after each step: tells of checkpoints that were written, or could not be. The latter is an
 * error only with --checkpoint-strict, or if a parameter is not finite. */
vb_status vb_train_saves_look(struct vb_trainer *t);

/* Waits until this rank has written what it has begun. */
vb_status vb_train_saves_drain(struct vb_trainer *t);

/* After the last step, collective in synchronous training: waits until the lead has written what it
 * has begun. May be called again after VB_ERR_PEER. */
vb_status vb_train_saves_end(struct vb_trainer *t);

/* The new lead takes the folder over: its lock, and the last good checkpoint. What fails now is
 * tried again with the next checkpoint. */
void vb_train_saves_lead(struct vb_trainer *t);

/* The members agree on a view of their group, or go over to a new group: what they save from now on
 * is of a later view. */
void vb_train_saves_agreed(struct vb_trainer *t, const struct vb_agreed *agreed);
void vb_train_saves_formed(struct vb_trainer *t);

/* Finds the newest checkpoint of the folder by its name, for messages. Returns false if there is no
 * folder, or none in it. */
bool vb_train_last_checkpoint(const struct vb_trainer *t, char *path, size_t size);

/* Adds the checkpoints that this rank could not write to the faults of a result. */
vb_status vb_train_save_faults(const struct vb_trainer *t, struct vb_train_result *r);

/* Tells peers, through heartbeats, what this rank does from now on. */
void vb_train_does(const struct vb_trainer *t, enum vb_activity activity);

/* ---- results (train_result.c) ---------------------------------------------------------------- */

/* Collective: each rank evaluates its share of the test data; all ranks get the whole result. In a
 * new view, they get the result of a member that has completed this evaluation before, if there is
 * one: otherwise members might judge differently. */
vb_status vb_train_evaluate(struct vb_trainer *t);

/* Takes the sum over all test samples, of the parameters after this step, as the last evaluation.
 */
void vb_train_take_sum(struct vb_trainer *t, int64_t step, const struct vb_eval_sum *sum);

/* Stores the last evaluation for the result, in memory that is allocated before training. */
void vb_train_keep_eval(struct vb_trainer *t, int64_t step);

/* Synchronous training, collective: combines the figures of all members. Fails if they ended with
 * different parameters. The caller zeroes *result before the first call, and frees it even if this
 * function failed. After a failure with VB_ERR_PEER the members that are left may call it again. */
vb_status vb_train_collect(struct vb_trainer *t, struct vb_train_result *result);

/* The first fills in the number of parameters and their digest; the second the figures that are the
 * same on all ranks, the means over the workers, and the bottleneck. It also moves the plan and the
 * list of evaluations from the trainer to the result. */
vb_status vb_train_fill_params(struct vb_trainer *t, struct vb_train_result *r);
void vb_train_fill_run(struct vb_trainer *t, struct vb_train_result *r);

/* Fills in the figures of this rank as a worker. group: whose registered memory counts, or NULL. */
void vb_train_fill_rank(struct vb_trainer *t, struct vb_group *group, struct vb_rank_result *r);
/* Fills in the host name, the memory of the process, and what the sampler knows of a part of it.
 * r->train_s is set. */
void vb_train_fill_host(const struct vb_trainer *t, enum vb_sampler_part part,
                        struct vb_rank_result *r);
/* Makes peaks at least as high as averages, which are measured until a slightly different moment.
 */
void vb_train_raise_peaks(struct vb_rank_result *r);

/* ---- when the run is done (train_until.c) ---------------------------------------------------- */

static inline bool vb_until_asked(const struct vb_trainer *t)
{
    return t->o->until.n > 0;
}

/* Judges the last evaluation, of the parameters after this step: sets t->until.met if a condition
 * holds, and keeps the parameters if they are the result so far. In synchronous training all ranks
 * judge alike, because they have the same figures. */
vb_status vb_until_judge(struct vb_trainer *t, int64_t step);

/* Asynchronous training: another worker has found that a condition holds, but has gone without
 * telling which one. Called after vb_until_judge(). */
void vb_until_told(struct vb_trainer *t, int64_t step);

/* After the last step: replaces the last parameters by the best ones, if these were asked for, and
 * their figures in t->evals. */
vb_status vb_until_settle(struct vb_trainer *t);

/* Adds what was judged so far, and the best parameters, to a checkpoint of a run that is not at its
 * end. The checkpoint borrows them. */
void vb_until_save(struct vb_trainer *t, struct vb_checkpoint *cp);

/* Goes on with what a checkpoint says, if its evaluations can be compared with those to come. A
 * checkpoint of an earlier version has nothing of it. */
void vb_until_resume(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- signs that the model does not learn (train_health.c) ------------------------------------ */

/* Called after each step of this rank. */
void vb_health_step(struct vb_trainer *t);

/* Called after each evaluation of the parameters after this step. */
void vb_health_evaluated(struct vb_trainer *t, int64_t step, const struct vb_eval_sum *sum);

/* Logs that the loss of a step is not finite, and where a number that is not finite was found
 * first. Returns an error. */
vb_status vb_health_not_finite(struct vb_trainer *t, int64_t step, const char *where);

/* The same for sparse rows: looks for the first of these weights that is not finite. */
vb_status vb_health_weights(struct vb_trainer *t, int64_t step, const uint32_t *keys,
                            const float *w, size_t n);

/* Logs a warning on the rank that speaks for the job, unless it was said before. */
void vb_health_say(struct vb_trainer *t, enum vb_warning kind, const char *format, ...)
    VB_PRINTF(3, 4);

/* At the end: warns, on the rank that reports, if the model has learnt nothing, and lists all
 * warnings in the result. The data must still be open. */
vb_status vb_train_warn(struct vb_trainer *t, struct vb_train_result *r);

#endif
