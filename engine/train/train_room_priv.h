/* SPDX-License-Identifier: MIT
 *
 * Declarations that only the files of this folder use. Other folders use trainer.h.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H
#define VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H

#include "engine/train/trainer.h"

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

/* Moves time from one phase to another, at most the whole time of the phase. */
void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns);

/* Charges the time since the last call to transfer. The part in which the group waited for
 * stragglers is charged to waiting instead. Does nothing if group is NULL. */
void vb_lap_comm(struct vb_laps *laps, struct vb_group *group);

/* ---- from options to numbers (train_recipe.c) ------------------------------------------------ */

/* Computes the numbers of a run from its options. n: number of samples to train on. sample, trial:
 * what is known of the data; may be NULL. */
vb_status vb_recipe_make(const struct vb_train_opts *o, int n, const struct vb_sample *sample,
                         const struct vb_trial *trial, struct vb_recipe *recipe_p);

/* Returns whether the rates depend on the data, and whether trials may choose the recipe. */
bool vb_recipe_wants_sample(const struct vb_train_opts *o);
bool vb_recipe_wants_trial(const struct vb_train_opts *o, int n, const struct vb_sample *sample);

/* Takes the numbers of a running job, which a joiner must train with. */
void vb_recipe_of_job(const char *settings, struct vb_recipe *recipe);

/* ---- checks (train_check.c) ------------------------------------------------------------------ */

/* Returns all settings that decide the result, as lines "name=value". The settings must be the same
 * on all ranks, and in a checkpoint that a run resumes from. The last lines are data, the text of
 * vb_train_describe_data(). The caller frees the text. Returns NULL if there is no memory. */
char *vb_train_settings(const struct vb_train_opts *o, const struct vb_recipe *recipe,
                        const char *data);

/* Returns whether the settings differ, except for the description of the data. name: receives the
 * name of the first line that differs. other_data: the name of the data may differ, too. */
bool vb_train_settings_differ(const char *a, const char *b, bool other_data, char name[64]);

/* Returns whether two settings name the same data. If so, any difference is one of contents. */
bool vb_train_same_data_options(const char *a, const char *b);

/* Returns the number of ranks of a synchronous run with these settings; 0: it is not known. */
int vb_train_ranks_of(const char *settings);

/* Checks that the settings of a joiner are the same as the settings of the job. */
vb_status vb_train_fits_job(const char *settings, const char *of_job);

/* Collective: fails on all ranks if one of them was started with other options. */
vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings);

/* ---- recovery (train_recover.c) -------------------------------------------------------------- */

/* The last moment at which a step may fail and leave everything as it was before: the step is what
 * the members agree on from now on (vb_group_commit()). */
vb_status vb_train_commit(struct vb_trainer *t, int64_t step);

/* ---- data (train_data.c) --------------------------------------------------------------------- */

#define VB_DATA_TEXT 1200
#define VB_DATA_WHY 1600

/* Collective: opens the data, once a host. */
vb_status vb_train_open_data(struct vb_trainer *t);

/* Describes the data in lines "name=value": numbers, digests of the contents, files. */
void vb_train_describe_data(const struct vb_trainer *t, char text[VB_DATA_TEXT]);

/* Returns the description of the data at the end of settings; NULL: an earlier version wrote them.
 */
const char *vb_train_data_part(const char *settings);

/* Returns whether two descriptions differ; files may differ. training: compares only the training
 * data. why: receives what differs, with the files of both. */
bool vb_train_data_differ(const char *a, const char *b, bool training, char why[VB_DATA_WHY]);

/* ---- one copy a host (train_copies.c) ----------------------------------------------------------
 */

/* Collective: finds the ranks of this host that share copies. data_key: the key of the data; 0:
 * this rank shares nothing. */
vb_status vb_copies_open(struct vb_trainer *t, uint64_t data_key);
void vb_copies_close(struct vb_copies *copies);

/* A keeper gives a copy to its neighbours; the copy takes over the memory, which must be sealable.
 * n: number of samples; 0: all. */
vb_status vb_copies_give(struct vb_trainer *t, enum vb_copy copy, int n, struct vb_mem *mem);

/* Waits for a copy of the keeper, as long as the keeper works on it. The memory lives as long as
 * the trainer. Returns VB_AGAIN if there is no such copy: this rank makes its own. */
vb_status vb_copies_take(struct vb_trainer *t, enum vb_copy copy, int n,
                         const struct vb_mem **mem_p);

/* ---- the trainer of one rank (train.c) ------------------------------------------------------- */

extern const struct vb_trainer_ops vb_trainer_dense;  /* train_dense.c */
extern const struct vb_trainer_ops vb_trainer_sparse; /* train_sparse.c */

/* Fills in t->model and t->ops. The model of the options must exist. */
void vb_trainer_find_model(struct vb_trainer *t);

/* Returns whether the model computes on lists of the pixels that are not 0. */
static inline bool vb_trainer_has_pixels(const struct vb_trainer *t)
{
    return t->model.layers != NULL && t->model.layers->pixels;
}

/* Loads the next batch, or the next piece of the step, into t->batch. */
vb_status vb_trainer_load(struct vb_trainer *t);

/* Returns the batch of the next step, while the current step runs. Returns NULL if the batch is not
 * loaded yet, or if an evaluation uses the model before the next step. */
const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t);

/* ---- sums of gradients (train_buckets.c) ----------------------------------------------------- */

#define VB_BUCKET_REQUESTS 36 /* number of sums that may be under way at once */

/* Sums gradients in buckets. The sum of a bucket is started as soon as the backward pass has filled
 * the bucket. */
struct vb_buckets;

/* Collective. If there is no group, nothing is summed. front: number of parameters of the first
 * layers, which the forward pass needs first. The caller destroys the buckets even if this function
 * failed. */
vb_status vb_buckets_create(struct vb_trainer *t, size_t n_params, size_t front,
                            struct vb_buckets **buckets_p);
void vb_buckets_close(struct vb_buckets *b); /* collective */
void vb_buckets_destroy(struct vb_buckets *b);

/* Returns the buffer that the backward pass writes gradients to. */
float *vb_buckets_grads(struct vb_buckets *b);
/* Returns a number of gradients; the link takes more time per byte for fewer gradients. */
size_t vb_buckets_least(const struct vb_buckets *b);
void vb_buckets_begin(struct vb_buckets *b);            /* called before the backward pass */
void vb_buckets_ready(void *b, size_t first, size_t n); /* a vb_grads_fn */

/* Waits until the next bucket is summed and returns its range. *n_p is 0 after the last bucket. */
vb_status vb_buckets_next(struct vb_buckets *b, size_t *first_p, size_t *n_p);
/* Returns the number of started buckets that vb_buckets_next() has not yet returned. */
int vb_buckets_left(const struct vb_buckets *b);

/* Polls running allreduces. The time before the call is charged to this phase. */
void vb_buckets_poll(struct vb_buckets *b, enum vb_phase phase);

/* Sums the buckets of the last step once more, in the same order, whatever they contain. */
vb_status vb_buckets_again(struct vb_buckets *b);

/* Returns the algorithm that sums the largest bucket, or NULL if nothing is summed. */
const char *vb_buckets_algo(const struct vb_buckets *b);

/* Predicts the time of the sums of a step; 0 if nothing is summed. */
struct vb_coll_forecast vb_buckets_forecast(const struct vb_buckets *b);

/* Ranks that have mapped each other's gradients can sum them without the network. After
 * vb_buckets_barriers_only() a bucket is only a barrier: when vb_buckets_next() returns a bucket,
 * all ranks have filled it. */
bool vb_buckets_are_mapped(const struct vb_buckets *b);
const float *vb_buckets_grads_of(const struct vb_buckets *b, int rank);
void vb_buckets_barriers_only(struct vb_buckets *b);
vb_status vb_buckets_barrier(struct vb_buckets *b); /* waits until all ranks call it */

/* Collective, between steps: sends n floats at the beginning of the gradients of the rank at place
 * `from` to the others. */
vb_status vb_buckets_broadcast(struct vb_buckets *b, int from, size_t n);

/* The ranks have regrouped: what one of them may know about the link, and others not, is forgotten.
 */
void vb_buckets_regrouped(struct vb_buckets *b);

/* ---- updates that ranks of one host share (train_shared_update.c) ---------------------------- */

struct vb_shared_update;

/* Collective: allocates zeroed memory for the copies of this rank, mapped by all ranks; the number
 * of copies may differ. From now on buckets are barriers only. The caller destroys *shared_p even
 * if this function failed. */
vb_status vb_shared_update_create(struct vb_trainer *t, struct vb_buckets *buckets, size_t n_params,
                                  size_t copy_bytes, int copies,
                                  struct vb_shared_update **shared_p);

/* The ranks have regrouped: the next update is shared by the members. */
void vb_shared_update_regrouped(struct vb_shared_update *shared, const struct vb_buckets *buckets);
void vb_shared_update_close(struct vb_shared_update *shared); /* collective */
void vb_shared_update_destroy(struct vb_shared_update *shared);
/* Returns this rank's memory. */
void *vb_shared_update_memory(const struct vb_shared_update *shared);

/* Says which copy of this rank the ranks are to write in this step. Called before the step fills
 * its first bucket. */
void vb_shared_update_aim(struct vb_shared_update *shared, int copy);

/* An update that reads this rank's memory and writes to the memory of all ranks. */
struct vb_shared_args {
    const float *params, *state; /* in this rank's memory; state is NULL if the rule has none */
    size_t state_ahead; /* in a copy, the state begins so many floats after the parameters; 0: the
                           rule has no state */
    float scale, rate;
    bool norm;      /* also compute this rank's parts of the norm */
    bool norm_only; /* compute only these parts of the norm, and update nothing */
};

/* Updates this rank's part of the parameters from first to first + n - 1. All ranks must have
 * filled the gradients of these parameters. The caller passes buckets from the end of the
 * parameters to the beginning. After a barrier the parts of the other ranks are updated, too. */
void vb_shared_update_run(struct vb_shared_update *shared, const struct vb_shared_args *args,
                          size_t first, size_t n);
/* Returns the norm of the gradient. Called after a barrier. */
double vb_shared_update_norm(struct vb_shared_update *shared);

/* ---- lists of gradients (train_list.c) ------------------------------------------------------- */

/* A list of (key, value) with ascending keys, and room for its sum with another one. */
struct vb_list {
    struct vb_mem mem; /* pages are touched only where a list reaches them */
    uint32_t *keys, *spare_keys;
    float *values, *spare_values;
};

vb_status vb_list_open(struct vb_list *list, size_t room);
void vb_list_close(struct vb_list *list);

/* Adds m entries to the first n ones of the list: list + entries, for each key. Returns the number
 * of entries of the sum, which the list must have room for. Allocates nothing. */
size_t vb_list_add(struct vb_list *list, size_t n, const uint32_t *keys, const float *values,
                   size_t m);

/* ---- plans (train_plan.c) -------------------------------------------------------------------- */

/* Reads the file of --plan into t->kernels.asked. */
vb_status vb_train_read_plan(struct vb_trainer *t);

/* Parses a plan into t->kernels.asked. from: the source of the plan, for messages. */
vb_status vb_train_parse_plan(struct vb_trainer *t, const char *from, const char *text);

/* Collective: rank 0 chooses kernels, and all ranks compile the model with these kernels. */
vb_status vb_train_compile(struct vb_trainer *t);

/* Collective: sends the plan of rank 0 to all ranks. text: the plan, used on rank 0 only; NULL
 * means "". *told_p: a copy that the caller frees. Returns VB_ERR_USAGE on all ranks if the text is
 * too long. */
vb_status vb_train_tell_plan(struct vb_group *group, const char *text, char **told_p);

/* ---- checkpoints (train_save.c) -------------------------------------------------------------- */

/* Rank 0 makes sure that the folder for checkpoints exists and is writable. */
vb_status vb_train_prepare_save(struct vb_trainer *t);

/* Returns whether this rank writes checkpoints while it trains, so that parameters must be held, or
 * may have to (vb_train_may_lead()). */
bool vb_train_saves_beside(const struct vb_trainer *t);

/* The new lead takes the folder over: its lock, and the last good checkpoint. What fails now is
 * tried again with the next checkpoint. */
void vb_train_saves_lead(struct vb_trainer *t);

/* Starts the thread that writes checkpoints, unless this rank writes none. */
vb_status vb_train_saves_open(struct vb_trainer *t);

/* Waits a while for a checkpoint that is being written, and ends the thread. */
void vb_train_saves_close(struct vb_trainer *t);

/* Collective, with --resume and without: reads the newest checkpoint, which must be the same one on
 * all ranks, and takes the number of ranks that the run began with. The caller passes the
 * checkpoint to vb_train_check_resumed() when the settings are known, to vb_train_restore() after
 * the model was created, and frees it. *read_p is NULL if there is no checkpoint. */
vb_status vb_train_find(struct vb_trainer *t, struct vb_checkpoint **read_p);

/* Checks that the settings and the data are those of the run that the checkpoint belongs to. */
vb_status vb_train_check_resumed(const struct vb_trainer *t, const struct vb_checkpoint *cp);
vb_status vb_train_restore(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- another lead (train_lead.c) ------------------------------------------------------------- */

/* Returns whether this rank is the lead, or becomes it if those below it are lost. */
bool vb_train_may_lead(const struct vb_trainer *t);

/* ---- when the run is done (train_until.c) ---------------------------------------------------- */

/* Returns the number of steps between evaluations; chosen if conditions need them. */
int64_t vb_until_eval_every(const struct vb_train_opts *o, const struct vb_recipe *r, int n_test);

bool vb_until_keeps(const struct vb_train_opts *o); /* the best parameters are kept in memory */

/* Allocates the memory for the best parameters, because a step must not allocate. */
vb_status vb_until_open(struct vb_trainer *t);
void vb_until_close(struct vb_trainer *t);

/* Adds what was judged so far, and the best parameters, to a checkpoint of a run that is not at its
 * end. The checkpoint borrows them. */
void vb_until_save(struct vb_trainer *t, struct vb_checkpoint *cp);

/* Goes on with what a checkpoint says, if its evaluations can be compared with those to come. A
 * checkpoint of an earlier version has nothing of it. */
void vb_until_resume(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- signs that the model does not learn (train_health.c) ------------------------------------ */

void vb_health_begin(struct vb_trainer *t); /* before the first step */

/* Like vb_health_not_finite(): looks for the first layer, after a forward pass on this batch. */
vb_status vb_health_layers(struct vb_trainer *t, int64_t step, const struct vb_model *model,
                           const float *params, const struct vb_model_batch *batch);

/* ---- results (train_result.c, train_verdict.c) ----------------------------------------------- */

/* Allocates memory for the results of evaluations, because a step must not allocate. */
vb_status vb_train_make_room(struct vb_trainer *t);

/* Returns whether the training loss still fell at the end. */
struct vb_improving vb_train_improving(const struct vb_trainer_tenths *tenths);

/* Fills in r->bottleneck. bounded: asynchronous workers wait for the slowest one. */
void vb_train_find_bottleneck(struct vb_train_result *r, bool bounded);

#endif
