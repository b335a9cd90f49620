/* SPDX-License-Identifier: MIT
 *
 * The checkpoints of sparse logistic regression. While one is being written, updates keep aside
 * what they overwrite (kernels/sparse/aside.c).
 */
#include "engine/train/train_sparse_priv.h"

#include <string.h>

/* Arrays that only a lazy update rule needs: the weights in memory, which are out of date, and the
 * number of steps since they were not. A run that resumes begins with them, so it makes the steps
 * that it would have made without a checkpoint. */
#define LATE "late"
#define LATE_STEPS "late.steps"

/* What the writer reads of a model that steps do not change meanwhile... */
static bool fetch_weights(const void *weights, size_t at, size_t len, void *to)
{
    vb_k_sparse_read(weights, at / sizeof(float), len / sizeof(float), to);
    return true;
}

/* ... and of one that they do. */
static bool fetch_held_weights(const void *weights, size_t at, size_t len, void *to)
{
    return vb_k_sparse_held(weights, VB_K_SAVED_WEIGHTS, at / 4, len / 4, to);
}

static bool fetch_held_state(const void *weights, size_t at, size_t len, void *to)
{
    return vb_k_sparse_held(weights, VB_K_SAVED_STATE, at / 4, len / 4, to);
}

static bool fetch_held_memory(const void *weights, size_t at, size_t len, void *to)
{
    return vb_k_sparse_held(weights, VB_K_SAVED_MEMORY, at / 4, len / 4, to);
}

static bool fetch_number(const void *number, size_t at, size_t len, void *to)
{
    memcpy(to, (const char *)number + at, len);
    return true;
}

/* With a lazy rule the weights in memory go into a checkpoint, too: steps go on with them. */
static int save_late(const struct vb_trainer *t, struct vb_checkpoint_array *arrays, int n)
{
    struct sparse *s = sparse_of(t);

    s->late_now = (uint32_t)(t->async ? s->late.steps : vb_k_sparse_late(s->weights));
    if (!t->async) /* otherwise the weights are a copy that is up to date */
        arrays[0].fetch = fetch_weights;
    arrays[n] = (struct vb_checkpoint_array){
        .name = LATE, .rows = arrays[0].rows, .cols = 1, .state = true};
    arrays[n++].data = t->async ? s->late.params : arrays[0].data;
    arrays[n++] = (struct vb_checkpoint_array){.name = LATE_STEPS,
                                               .type = VB_ARRAY_U32,
                                               .rows = 1,
                                               .cols = 1,
                                               .state = true,
                                               .fetch = fetch_number,
                                               .from = &s->late_now};
    return n;
}

/* Only servers that apply all gradients of a round at once make the same steps when a job resumes.
 */
static bool saves_late(const struct vb_trainer *t)
{
    return t->o->async.bounded && t->o->async.staleness == 0 && sparse_of(t)->late.params != NULL;
}

struct vb_trainer_late *vb_sparse_late(struct vb_trainer *t)
{
    return saves_late(t) ? &sparse_of(t)->late : NULL;
}

vb_status vb_sparse_save(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct sparse *s = sparse_of(t);
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];
    int i, n = vb_k_sparse_parts(s->weights, parts);

    for (i = 0; i < n; i++) {
        s->arrays[i] =
            (struct vb_checkpoint_array){.type = parts[i].whole ? VB_ARRAY_U32 : VB_ARRAY_F32,
                                         .rows = (int64_t)parts[0].n,
                                         .cols = (int64_t)(parts[i].n / parts[0].n),
                                         .state = i > 0,
                                         .data = parts[i].data,
                                         .from = s->weights};
        snprintf(s->arrays[i].name, sizeof(s->arrays[i].name), "%s", parts[i].name);
    }
    cp->arrays = s->arrays;
    cp->n_arrays = n;
    if (vb_k_sparse_is_lazy(&t->recipe.rule) && (!t->async || saves_late(t)))
        cp->n_arrays = save_late(t, s->arrays, n);
    return VB_OK;
}

/* The number that belongs to these weights stays, too: save() is called again meanwhile. */
static void hold_late_steps(struct sparse *s, struct vb_checkpoint_array *a)
{
    s->late_held = s->late_now;
    a->from = &s->late_held;
}

/* The next snapshot of an asynchronous job goes into the other model. */
static bool hold_snapshot(struct sparse *s, struct vb_checkpoint *cp)
{
    struct vb_k_sparse *held = s->weights;
    struct vb_trainer_late late = s->late;
    int i;

    if (s->other == NULL || cp == NULL)
        return s->other != NULL;
    for (i = 0; i < cp->n_arrays; i++)
        if (strcmp(cp->arrays[i].name, LATE_STEPS) == 0)
            hold_late_steps(s, &cp->arrays[i]);
    s->weights = s->other;
    s->other = held;
    s->late = s->other_late;
    s->other_late = late;
    return true;
}

/* From now on steps keep aside what they overwrite. */
bool vb_sparse_hold(struct vb_trainer *t, struct vb_checkpoint *cp)
{
    struct sparse *s = sparse_of(t);
    struct vb_checkpoint_array *a;
    int i;

    if (t->async)
        return hold_snapshot(s, cp);
    if (!vb_k_sparse_hold(s->weights, cp != NULL))
        return false;
    for (i = 0; cp != NULL && i < cp->n_arrays; i++) {
        a = &cp->arrays[i];
        if (strcmp(a->name, LATE_STEPS) == 0) {
            hold_late_steps(s, a);
            continue;
        }
        a->from = s->weights;
        a->fetch = i == 0                       ? fetch_held_weights
                   : strcmp(a->name, LATE) == 0 ? fetch_held_memory
                                                : fetch_held_state;
    }
    return true;
}

/* Copies the parts of a model. With a lazy rule, a checkpoint of an earlier version has weights
 * that are up to date. */
static vb_status restore_parts(struct vb_trainer *t, const struct vb_checkpoint *cp, bool late)
{
    struct vb_k_sparse_part parts[VB_K_SPARSE_PARTS];
    int i, n = vb_k_sparse_parts(sparse_of(t)->weights, parts);

    for (i = 0; i < n; i++) {
        const char *name = i == 0 && late ? LATE : parts[i].name;
        const struct vb_checkpoint_array *a = vb_checkpoint_find(cp, name);
        /* the elements of both types have 32 bits */
        const void *data =
            vb_checkpoint_data(cp, name, a != NULL ? a->type : VB_ARRAY_F32, parts[i].n);

        if (data == NULL)
            return VB_ERR_INPUT;
        memcpy(parts[i].data, data, parts[i].n * 4);
    }
    return VB_OK;
}

vb_status vb_sparse_restore(struct vb_trainer *t, const struct vb_checkpoint *cp)
{
    struct sparse *s = sparse_of(t);
    bool late = vb_k_sparse_is_lazy(&t->recipe.rule) && vb_checkpoint_find(cp, LATE) != NULL;
    const uint32_t *steps = late ? vb_checkpoint_data(cp, LATE_STEPS, VB_ARRAY_U32, 1) : NULL;
    vb_status st;

    if (late && steps == NULL)
        return VB_ERR_INPUT;
    vb_k_sparse_touch_all(s->weights);
    st = restore_parts(t, cp, late);
    if (st == VB_OK &&
        !vb_k_sparse_resume(s->weights, &t->recipe.schedule, cp->step, late ? *steps : 0))
        return vb_err(VB_ERR_INPUT, "the checkpoint of step %lld has an impossible number in %s",
                      (long long)cp->step, LATE_STEPS);
    s->late.steps = vb_k_sparse_late(s->weights);
    return st;
}

void vb_sparse_settle(struct vb_trainer *t)
{
    struct sparse *s = sparse_of(t);

    vb_k_sparse_settle(s->weights);
    s->late.steps = 0;
    if (s->late.params != NULL)
        vb_k_sparse_read(s->weights, 0, s->features + 1, s->late.params);
}
