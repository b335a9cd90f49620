/* SPDX-License-Identifier: MIT
 *
 * Declarations that only the files of this folder use. Other folders use trainer.h.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H
#define VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H

#include "engine/train/trainer.h"

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

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

/* Checks that the settings of a joiner are the same as the settings of the job. */
vb_status vb_train_fits_job(const char *settings, const char *of_job);

/* Collective: fails on all ranks if one of them was started with other options. */
vb_status vb_train_agree(const struct vb_train_opts *o, struct vb_group *group,
                         const char *settings);

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

/* ---- when the run is done (train_until.c) ---------------------------------------------------- */

/* Returns the number of steps between evaluations; chosen if conditions need them. */
int64_t vb_until_eval_every(const struct vb_train_opts *o, const struct vb_recipe *r, int n_test);

bool vb_until_keeps(const struct vb_train_opts *o); /* the best parameters are kept in memory */

/* Allocates the memory for the best parameters, because a step must not allocate. */
vb_status vb_until_open(struct vb_trainer *t);
void vb_until_close(struct vb_trainer *t);

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
