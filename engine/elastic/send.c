/* SPDX-License-Identifier: MIT
 *
 * The state of a model goes to joiners as the arrays of a checkpoint, so a joiner begins as a run
 * does that is resumed from this step. The bits are the same: nothing is rounded on the way.
 *
 * The rank at place 0 puts chunks into slots of the joiners' windows, and a joiner confirms each
 * chunk that it has copied out of its slot. So one chunk is copied while another one is on its way.
 * Over TCP the sender needs no copy: it puts from the model's memory, which nothing changes
 * meanwhile. The other members are not needed. They meet the sender after each part, because no
 * rank waits longer than its timeout.
 */
#include "engine/train/trainer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)1 << 20)
#define PART ((size_t)256 << 20)
#define SLOTS VB_FORM_SLOTS
#define ARRAYS_MAX 1024

/* How an array is told, before its bytes follow. */
struct array_head {
    char name[VB_CHECKPOINT_NAME];
    uint32_t type, state;
    int64_t rows, cols;
};

/* Chunks on their way to joiners. */
struct stream {
    struct vb_trainer *t;
    struct vb_window *win;
    int channel;                         /* -1: not open */
    int first, end;                      /* the joiners: places from first to end - 1 */
    uint32_t n;                          /* number of chunks that this rank has sent or taken */
    _Atomic uint32_t came[VB_WORLD_MAX]; /* number of notes of each rank */
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

/* ---- chunks ---------------------------------------------------------------------------------- */

static void note_came(void *arg, int rank, uint32_t value)
{
    struct stream *s = arg;

    (void)value;
    atomic_fetch_add(&s->came[rank], 1);
}

static bool is_joiner(const struct stream *s)
{
    return s->t->rank >= s->first;
}

/* Only the sender and the joiners have slots. *s_p is set also after a failure. */
static vb_status stream_open(struct vb_trainer *t, struct stream **s_p)
{
    struct stream *s = calloc(1, sizeof(*s));
    struct vb_op *ops = &t->form.ops[0][0];
    size_t i, len;
    vb_status st;

    *s_p = s;
    if (s == NULL)
        return vb_err_sys("calloc");
    s->t = t;
    s->first = t->form.old_world;
    s->end = t->world;
    s->channel = -1;
    if (s->end - s->first > VB_CALLERS_MAX)
        return vb_err(VB_ERR_USAGE, "%d ranks cannot join at once", s->end - s->first);
    for (i = 0; i < sizeof(t->form.ops) / sizeof(*ops); i++)
        ops[i].done = true;
    st = vb_channel_alloc(t->place.group, note_came, s, &s->channel);
    len = t->rank == 0 || is_joiner(s) ? SLOTS * CHUNK : 0;
    return st == VB_OK ? vb_window_create_for(t->place.group, len, VB_WINDOW_PUT, &s->win) : st;
}

/* After a failure ops may be under way: they and the window stay until the group is closed. */
static void stream_close(struct stream *s)
{
    if (s == NULL)
        return;
    vb_window_destroy(s->win);
    if (s->channel >= 0)
        vb_channel_close(s->t->place.group, s->channel);
    free(s);
}

/* What is waited for: `n` notes of a rank. */
struct notes {
    struct stream *s;
    int rank;
    uint32_t n;
};

static bool have_come(void *arg)
{
    const struct notes *w = arg;

    return atomic_load(&w->s->came[w->rank]) >= w->n;
}

static vb_status wait_for_notes(struct stream *s, int rank, uint32_t n)
{
    struct notes w = {.s = s, .rank = rank, .n = n};

    return vb_group_wait(s->t->place.group, have_come, &w, "the state of the job", rank);
}

/* Puts to a slot of another rank, once the last put to it is done. from: NULL: from the same slot
 * of this rank. */
static vb_status put(struct stream *s, int rank, const void *from, size_t len, struct vb_op *op)
{
    size_t at = s->n % SLOTS * CHUNK;
    vb_status st = vb_op_wait(s->t->place.group, op, "the state of the job", rank);

    if (st != VB_OK)
        return st;
    *op = (struct vb_op){.done = false};
    return vb_put_wait(s->win, rank, from, from != NULL ? 0 : at, at, len, VB_NOTE(s->channel, 0),
                       op, 0);
}

static struct vb_op *op_of(struct stream *s, int i)
{
    return &s->t->form.ops[s->n % SLOTS][i];
}

static void *slot(struct stream *s)
{
    return (char *)vb_window_ptr(s->win) + s->n % SLOTS * CHUNK;
}

static bool takes_any_memory(const struct stream *s, int rank)
{
    return strcmp(vb_group_transport(s->t->place.group, rank), "tcp") == 0;
}

static vb_status fill_slot(struct stream *s, const struct vb_checkpoint_array *a, size_t at,
                           size_t n)
{
    if (a->fetch == NULL)
        memcpy(slot(s), (const char *)a->data + at, n);
    else if (!a->fetch(a->from, at, n, slot(s)))
        return vb_err(VB_ERR_INPUT, "%s of the model cannot be read any more", a->name);
    return VB_OK;
}

static vb_status send_chunk(struct stream *s, const struct vb_checkpoint_array *a, size_t at,
                            size_t n)
{
    const void *from = a->fetch == NULL ? (const char *)a->data + at : NULL;
    bool direct, filled = false;
    vb_status st = VB_OK;
    int r;

    for (r = s->first; r < s->end && st == VB_OK; r++) {
        if (s->n >= SLOTS)
            st = wait_for_notes(s, r, s->n - SLOTS + 1);
        if (st == VB_OK)
            st = vb_op_wait(s->t->place.group, op_of(s, r - s->first), "the state of the job", r);
    }
    for (r = s->first; r < s->end && st == VB_OK; r++) {
        direct = from != NULL && takes_any_memory(s, r);
        if (!direct && !filled) {
            st = fill_slot(s, a, at, n);
            filled = true;
        }
        if (st == VB_OK)
            st = put(s, r, direct ? from : NULL, n, op_of(s, r - s->first));
    }
    s->n++;
    return st;
}

static vb_status take_chunk(struct stream *s, char *to, size_t n)
{
    vb_status st = wait_for_notes(s, 0, s->n + 1);

    if (st != VB_OK)
        return st;
    memcpy(to, slot(s), n);
    st = put(s, 0, NULL, 0, op_of(s, 0));
    s->n++;
    return st;
}

/* to: where a joiner wants the array. */
static vb_status pass(struct stream *s, const struct vb_checkpoint_array *a, char *to)
{
    size_t at, n, len = bytes_of(a);
    vb_status st = VB_OK;

    for (at = 0; at < len && st == VB_OK; at += n) {
        n = len - at < CHUNK ? len - at : CHUNK;
        if (s->t->rank == 0)
            st = send_chunk(s, a, at, n);
        else if (is_joiner(s))
            st = take_chunk(s, to + at, n);
        if (st == VB_OK && (at + n) % PART == 0)
            st = vb_group_barrier(s->t->place.group);
    }
    return st;
}

/* Waits until all puts are done, and all notes have come. */
static vb_status drain(struct stream *s)
{
    int i, k, n = is_joiner(s) ? 1 : s->end - s->first;
    vb_status st = VB_OK;

    for (i = 0; i < n && st == VB_OK && (s->t->rank == 0 || is_joiner(s)); i++) {
        if (s->t->rank == 0)
            st = wait_for_notes(s, s->first + i, s->n);
        for (k = 0; k < SLOTS && st == VB_OK; k++)
            st = vb_op_wait(s->t->place.group, &s->t->form.ops[k][i], "the state of the job",
                            s->t->rank == 0 ? s->first + i : 0);
    }
    return st;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* A joiner gets the array where its model wants it, or in memory that is freed afterwards. */
static vb_status find_room(struct vb_trainer *t, struct vb_checkpoint_array *a, char **to_p,
                           char **memory_p)
{
    size_t len = bytes_of(a);

    *to_p = t->ops->land != NULL ? t->ops->land(t, a) : NULL;
    if (*to_p == NULL)
        *to_p = *memory_p = vb_alloc_aligned(len > 0 ? len : 1);
    a->data = *to_p;
    return *to_p != NULL ? VB_OK : vb_err(VB_ERR_NO_MEMORY, "no memory for the state of the job");
}

/* memory: of the arrays that a joiner takes; NULL: this rank is a member. */
static vb_status pass_arrays(struct stream *s, struct vb_checkpoint *cp, char **memory)
{
    struct vb_trainer *t = s->t;
    struct vb_checkpoint_array told = {.rows = 0}, *a;
    char *to = NULL;
    vb_status st = VB_OK;
    int i;

    t->form.state_bytes = 0;
    for (i = 0; i < cp->n_arrays && st == VB_OK; i++) {
        a = t->rank == 0 || memory != NULL ? &cp->arrays[i] : &told;
        st = tell_array(t, a);
        if (st == VB_OK && memory != NULL)
            st = find_room(t, a, &to, &memory[i]);
        if (st == VB_OK)
            st = pass(s, a, to);
        t->form.state_bytes += bytes_of(a);
    }
    return st == VB_OK ? drain(s) : st;
}

/* cp: the checkpoint of the rank at place 0, or an empty one to fill in. memory_p: NULL, or where a
 * joiner gets the memory of the arrays, which it frees. */
static vb_status pass_all(struct vb_trainer *t, struct vb_checkpoint *cp, char ***memory_p)
{
    bool takes = memory_p != NULL;
    struct stream *s = NULL;
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
        st = stream_open(t, &s);
    if (st == VB_OK)
        st = pass_arrays(s, cp, takes ? *memory_p : NULL);
    stream_close(s);
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
