/* SPDX-License-Identifier: MIT
 *
 * The state of a model goes to joiners as the arrays of a checkpoint, so a joiner begins as a run
 * does that is resumed from this step. The bits are the same: nothing is rounded on the way.
 */
#include "engine/train/trainer.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)4 << 20)
#define ARRAYS_MAX 1024

/* How an array is told, before its bytes follow. */
struct array_head {
    char name[VB_CHECKPOINT_NAME];
    uint32_t type, state;
    int64_t rows, cols;
};

static size_t bytes_of(const struct vb_checkpoint_array *a)
{
    return (size_t)a->rows * (size_t)a->cols * 4; /* elements of all types have 32 bits */
}

static vb_status tell_array(struct vb_trainer *t, struct vb_checkpoint_array *a)
{
    struct array_head head = {
        .type = (uint32_t)a->type, .state = a->state, .rows = a->rows, .cols = a->cols};
    vb_status st;

    snprintf(head.name, sizeof(head.name), "%s", a->name);
    st = vb_group_broadcast(t->place.group, 0, &head, sizeof(head));
    if (st != VB_OK || t->rank == 0)
        return st;
    if (memchr(head.name, 0, sizeof(head.name)) == NULL || head.rows < 0 || head.cols < 0 ||
        head.rows > INT64_MAX / 64 || (head.cols > 0 && head.rows > INT64_MAX / 64 / head.cols))
        return vb_err(VB_ERR_INPUT, "the state of the job has an array that makes no sense");
    *a = (struct vb_checkpoint_array){.type = (enum vb_array_type)head.type,
                                      .state = head.state != 0,
                                      .rows = head.rows,
                                      .cols = head.cols};
    snprintf(a->name, sizeof(a->name), "%s", head.name);
    return VB_OK;
}

/* The members know what they would get; they take part because the chain may lead through them. */
static vb_status pass(struct vb_trainer *t, struct vb_coll *coll,
                      const struct vb_checkpoint_array *a, char *to)
{
    size_t at, n, len = bytes_of(a);
    char *window = vb_coll_data(coll);
    const char *from = a->data;
    struct vb_req req;
    vb_status st = VB_OK;

    for (at = 0; at < len && st == VB_OK; at += n) {
        n = len - at < CHUNK ? len - at : CHUNK;
        if (t->rank == 0 && a->fetch == NULL)
            memcpy(window, from + at, n);
        else if (t->rank == 0 && !a->fetch(a->from, at, n, window))
            return vb_err(VB_ERR_INPUT, "%s of the model cannot be read any more", a->name);
        st = vb_broadcast_start(coll, 0, 0, n, &req);
        if (st == VB_OK)
            st = vb_wait(coll, &req);
        if (st == VB_OK && to != NULL)
            memcpy(to + at, window, n);
    }
    return st;
}

/* memory: of the arrays that a joiner takes; NULL: this rank is a member. */
static vb_status pass_arrays(struct vb_trainer *t, struct vb_coll *coll, struct vb_checkpoint *cp,
                             char **memory)
{
    struct vb_checkpoint_array told = {.rows = 0}, *a;
    char *to = NULL;
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < cp->n_arrays && st == VB_OK; i++) {
        a = t->rank == 0 || memory != NULL ? &cp->arrays[i] : &told;
        st = tell_array(t, a);
        if (st == VB_OK && memory != NULL) {
            a->data = memory[i] = to = vb_alloc_aligned(bytes_of(a) > 0 ? bytes_of(a) : 1);
            if (to == NULL)
                return vb_err(VB_ERR_NO_MEMORY, "no memory for the state of the job");
        }
        if (st == VB_OK)
            st = pass(t, coll, a, to);
    }
    return st;
}

/* cp: the checkpoint of the rank at place 0, or an empty one to fill in. memory_p: NULL, or where a
 * joiner gets the memory of the arrays, which it frees. */
static vb_status pass_all(struct vb_trainer *t, struct vb_checkpoint *cp, char ***memory_p)
{
    bool takes = memory_p != NULL;
    struct vb_coll *coll = NULL;
    int32_t n = cp->n_arrays;
    vb_status st = vb_group_broadcast(t->place.group, 0, &n, sizeof(n));

    if (st == VB_OK && (n < 1 || n > ARRAYS_MAX))
        return vb_err(VB_ERR_INPUT, "the state of the job has %d arrays", (int)n);
    cp->n_arrays = n;
    if (st == VB_OK && takes) {
        cp->arrays = calloc((size_t)n, sizeof(*cp->arrays));
        *memory_p = calloc((size_t)n, sizeof(**memory_p));
        if (cp->arrays == NULL || *memory_p == NULL)
            return vb_err_sys("calloc");
    }
    if (st == VB_OK)
        st = vb_coll_open(t->place.group, CHUNK, NULL, &coll);
    if (st == VB_OK)
        st = pass_arrays(t, coll, cp, takes ? *memory_p : NULL);
    if (coll != NULL)
        vb_coll_close(coll);
    return st;
}

vb_status vb_train_send_state(struct vb_trainer *t)
{
    struct vb_checkpoint cp = {.n_arrays = 0};
    vb_status st = VB_OK;

    if (t->rank == 0) {
        st = t->ops->save(t, &cp);
        if (st != VB_OK)
            return st;
        vb_until_save(t, &cp);
    }
    return pass_all(t, &cp, NULL);
}

vb_status vb_train_take_state(struct vb_trainer *t)
{
    struct vb_checkpoint cp = {.step = t->step, .options = t->settings};
    char **memory = NULL;
    vb_status st = pass_all(t, &cp, &memory);
    int i;

    if (st == VB_OK)
        st = t->ops->restore(t, &cp);
    if (st == VB_OK) {
        vb_until_resume(t, &cp);
        t->until.judged_now = t->until.judged; /* by this job: a recovery may evaluate it again */
    }
    for (i = 0; memory != NULL && i < cp.n_arrays; i++)
        free(memory[i]);
    free(memory);
    free(cp.arrays);
    return st;
}
