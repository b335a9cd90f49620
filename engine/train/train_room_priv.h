/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of training only. trainer.h is what others use.
 */
#ifndef VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H
#define VB_ENGINE_TRAIN_TRAIN_ROOM_PRIV_H

#include "engine/train/trainer.h"

/* ---- where time goes (train_result.c) -------------------------------------------------------- */

/* Moves ns, or all there is, from one phase to another. */
void vb_lap_move(struct vb_laps *laps, enum vb_phase from, enum vb_phase to, uint64_t ns);

/* Charges the time since the last call to transfer, and to waiting as far as the group has waited
 * for stragglers. Does nothing if group is NULL. */
void vb_lap_comm(struct vb_laps *laps, struct vb_group *group);

/* ---- from options to numbers (train_recipe.c) ------------------------------------------------ */

/* n: number of samples to train on. */
vb_status vb_recipe_make(const struct vb_train_opts *o, int n, struct vb_recipe *recipe_p);

/* ---- checks (train_check.c) ------------------------------------------------------------------ */

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

/* ---- the trainer of one rank (train.c) ------------------------------------------------------- */

extern const struct vb_trainer_ops vb_trainer_dense;  /* train_dense.c */
extern const struct vb_trainer_ops vb_trainer_sparse; /* train_sparse.c */

/* Fills in model and ops. The model must exist. */
void vb_trainer_find_model(struct vb_trainer *t);

/* Whether the model computes on lists of the pixels that are not 0. */
static inline bool vb_trainer_has_pixels(const struct vb_trainer *t)
{
    return t->model.layers != NULL && t->model.layers->pixels;
}

/* The batch of the next step, while the current step runs. Returns NULL if the batch is not loaded
 * yet, or if an evaluation uses the model before that step. */
const struct vb_batch *vb_trainer_next_batch(const struct vb_trainer *t);

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

/* ---- updates that ranks of one host share (train_shared_update.c) ---------------------------- */

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

/* ---- plans (train_plan.c) -------------------------------------------------------------------- */

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

/* Collective: reads the newest checkpoint, which must be the same one on all ranks. The caller
 * passes it to vb_train_restore() after the model was created, and frees it. NULL: there is no
 * checkpoint. */
vb_status vb_train_find(struct vb_trainer *t, struct vb_checkpoint **read_p);
vb_status vb_train_restore(struct vb_trainer *t, const struct vb_checkpoint *cp);

/* ---- results (train_result.c, train_verdict.c) ----------------------------------------------- */

/* Allocates memory for the results of evaluations, because a step must not allocate. */
vb_status vb_train_make_room(struct vb_trainer *t);

/* Fills in r->bottleneck: what took the most time. */
void vb_train_find_bottleneck(struct vb_train_result *r);

#endif
