/* SPDX-License-Identifier: MIT
 *
 * Provides batches, which a thread prepares in advance, in a ring of *slots*. The caller holds one
 * slot, and the thread fills the others. Batch b since the last seek is in slot b modulo their
 * number. Without a thread, vb_loader_next() or vb_loader_peek() makes the batch.
 *
 * A share that is larger than a slot becomes several batches, its *pieces*, in the order of its
 * samples.
 */
#include "base/trace.h"
#include "data/data_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AHEAD_MAX 8
#define TIMEOUT_MS 60000
#define IDLE_MS 1000 /* an idle thread wakes up after this time */
#define STREAM_BYTES ((uint64_t)8 << 30)
#define STREAM_WINDOW (1 << 20)

struct slot {
    struct vb_batch batch;
    struct vb_mem mem;
    int dirty; /* number of samples in the previous batch of this slot */
};

struct vb_loader {
    struct vb_loader_opts o;
    struct order order;
    int room;      /* number of samples in a slot */
    int most;      /* the maximum number of samples in a batch, with the present share */
    int64_t steps; /* number of steps in an epoch */
    int64_t epoch, step;
    int done; /* number of samples of this rank in pieces of this step that were made already */
    struct slot slots[AHEAD_MAX + 1];
    int n_slots;
    bool holding; /* the caller is using a batch */
    int asked;    /* number of rows of the next batch that are already prefetched */

    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t changed;
    int64_t made, used;
    bool making;     /* the thread is making a batch */
    bool held, stop; /* the thread must not begin another batch; it must end */
    vb_status failed;
};

/* ---- one batch ------------------------------------------------------------------------------- */

static void clear_images(const struct vb_loader *l, struct slot *slot)
{
    size_t row = (size_t)l->o.set->features;
    int n = slot->batch.n;

    if (slot->dirty > n) {
        if (slot->batch.x != NULL)
            memset(slot->batch.x + (size_t)n * row, 0,
                   (size_t)(slot->dirty - n) * row * sizeof(float));
        memset(slot->batch.y + n, 0, (size_t)(slot->dirty - n) * sizeof(*slot->batch.y));
    }
    slot->dirty = n;
}

/* Makes the unused rows of the slot empty. */
static void clear_rows(const struct vb_loader *l, struct slot *slot)
{
    struct vb_rows *rows = &slot->batch.rows;
    int i;

    for (i = rows->n; i < l->most; i++) {
        rows->at[i + 1] = rows->at[i];
        rows->y[i] = 0;
    }
}

/* Computes this rank's share of a step: the position of its first sample in the epoch, and its
 * number of samples. Returns the number of samples of all ranks. */
static int share_of(const struct vb_loader *l, int64_t step, int *position_p, int *n_p)
{
    int64_t position = step * l->o.global_batch, left = l->o.set->n - position;
    int n_global = left < l->o.global_batch ? (int)left : l->o.global_batch, first;

    vb_share(n_global, l->o.rank, l->o.world, &first, n_p);
    *position_p = (int)position + first;
    return n_global;
}

/* Finds the batch that follows this one. Returns false if there is none in this epoch. */
static bool find_next(const struct vb_loader *l, const struct vb_batch *batch, int *position_p,
                      int *n_p)
{
    if (batch->more) {
        (void)share_of(l, batch->step, position_p, n_p);
        *n_p += *position_p;
        *position_p = batch->position + batch->n;
        *n_p -= *position_p;
    } else if (batch->step + 1 < l->steps) {
        (void)share_of(l, batch->step + 1, position_p, n_p);
    } else {
        return false;
    }
    *n_p = *n_p < l->room ? *n_p : l->room;
    return true;
}

/* Sets batch->soon to the samples of the next batch. With a loader thread, batch->soon stays
 * NULL, because the thread would overwrite these samples. */
static void look_ahead(const struct vb_loader *l, struct vb_batch *batch)
{
    int position, n = 0;

    batch->soon = NULL;
    if (l->o.ahead == 0 && find_next(l, batch, &position, &n))
        batch->soon = vb_order_known(&l->order, position, n);
    batch->n_soon = batch->soon != NULL ? n : 0;
}

/* Sets p->behind to samples that follow this batch: with several ranks, this rank's next samples;
 * with one rank, the next ROWS_BEHIND samples of the epoch. */
static void look_behind(const struct vb_loader *l, const struct vb_batch *batch, struct picks *p)
{
    int position, n, left;

    if (!find_next(l, batch, &position, &n))
        return;
    left = l->o.set->n - position;
    if (l->o.world == 1)
        n = left < ROWS_BEHIND ? left : ROWS_BEHIND;
    p->behind = vb_order_known(&l->order, position, n);
    p->n_behind = p->behind != NULL ? n : 0;
}

static vb_status make_rows(struct vb_loader *l, struct slot *slot)
{
    struct picks p = {.which = slot->batch.which, .n = slot->batch.n, .asked = l->asked};
    vb_status st;

    l->asked = 0;
    look_behind(l, &slot->batch, &p);
    st = vb_dataset_pick_rows(l->o.set, &p, &slot->batch.rows);
    clear_rows(l, slot);
    return st;
}

/* Fills in which samples of the step the next batch has. */
static void number_batch(const struct vb_loader *l, struct vb_batch *batch)
{
    int first, left;

    batch->epoch = l->epoch;
    batch->step = l->step;
    batch->n_global = share_of(l, l->step, &first, &batch->n_share);
    left = batch->n_share - l->done;
    batch->n = left < l->room ? left : l->room;
    batch->more = batch->n < left;
    batch->position = first + l->done;
    batch->first = batch->position - (int)(l->step * l->o.global_batch);
}

static void advance(struct vb_loader *l, const struct vb_batch *batch)
{
    l->done = batch->more ? l->done + batch->n : 0;
    if (!batch->more && ++l->step == l->steps) {
        l->step = 0;
        l->epoch++;
    }
}

static vb_status make(struct vb_loader *l, struct slot *slot)
{
    struct vb_batch *batch = &slot->batch;
    vb_status st = VB_OK;

    number_batch(l, batch);
    vb_order_epoch(&l->order, l->epoch);
    vb_order_get(&l->order, batch->position, batch->n, batch->which);
    look_ahead(l, batch);
    if (l->o.set->kind == VB_DATA_IMAGES) {
        vb_dataset_pick(l->o.set, batch->which, batch->n, batch->x, batch->y);
        clear_images(l, slot);
    } else {
        st = make_rows(l, slot);
    }
    advance(l, batch);
    return st;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Waits until l->changed is signalled. Returns false if ms milliseconds have passed. */
static bool wait_change(struct vb_loader *l, int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return pthread_cond_timedwait(&l->changed, &l->lock, &until) != ETIMEDOUT;
}

/* Waits for a free slot. Returns the number of the next batch, or -1 to stop. */
static int64_t wait_for_slot(struct vb_loader *l)
{
    int64_t number;

    pthread_mutex_lock(&l->lock);
    while (!l->stop && (l->held || l->made - l->used == l->n_slots))
        (void)wait_change(l, IDLE_MS);
    number = l->stop ? -1 : l->made;
    l->making = number >= 0;
    pthread_mutex_unlock(&l->lock);
    return number;
}

static void *load(void *arg)
{
    struct vb_loader *l = arg;
    vb_status st = VB_OK;
    uint64_t begin_ns;
    int64_t number;

    pthread_mutex_lock(&l->lock); /* vb_loader_reshare() may be called before this thread runs */
    vb_log_set_rank(l->o.world > 1 ? l->o.rank : -1);
    pthread_mutex_unlock(&l->lock);
    if (l->o.on_start != NULL)
        l->o.on_start(l->o.on_start_arg);
    while (st == VB_OK && (number = wait_for_slot(l)) >= 0) {
        begin_ns = vb_trace_begin();
        st = make(l, &l->slots[number % l->n_slots]);
        vb_trace_end(begin_ns, VB_OP_LOAD, 0);
        pthread_mutex_lock(&l->lock);
        l->failed = st;
        l->made += st == VB_OK;
        l->making = false;
        pthread_cond_signal(&l->changed);
        pthread_mutex_unlock(&l->lock);
    }
    vb_trace_detach();
    return NULL;
}

static vb_status start(struct vb_loader *l)
{
    int err = pthread_create(&l->thread, NULL, load, l);

    if (err != 0) {
        errno = err;
        return vb_err_sys("pthread_create");
    }
    l->running = true;
    return VB_OK;
}

static void halt(struct vb_loader *l)
{
    if (!l->running)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL); /* the thread checks l->stop after every batch */
    l->running = l->stop = false;
}

/* Waits until the thread is idle. It stays idle until release(). */
static vb_status hold(struct vb_loader *l)
{
    vb_status st = VB_OK;

    pthread_mutex_lock(&l->lock);
    l->held = true;
    while (st == VB_OK && l->making)
        if (!wait_change(l, l->o.timeout_ms) && l->making)
            st = vb_err(VB_ERR_TIMEOUT, "the loader did not finish a batch within %d ms",
                        l->o.timeout_ms);
    pthread_mutex_unlock(&l->lock);
    return st;
}

/* Begins to make batches, from the epoch and step that are set. The thread goes on: starting one
 * allocates. */
static vb_status release(struct vb_loader *l)
{
    if (l->failed != VB_OK)
        halt(l); /* the thread has ended by itself */
    pthread_mutex_lock(&l->lock);
    l->made = l->used = 0;
    l->done = l->asked = 0;
    l->holding = l->held = false;
    l->failed = VB_OK;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return l->o.ahead > 0 && !l->running ? start(l) : VB_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static vb_status check(const struct vb_loader_opts *o)
{
    if (o->set->n < 1 || o->global_batch < 1 || o->world < 1 || o->rank < 0 ||
        o->rank >= o->world || o->batch_max < 0 || o->ahead < 0 || o->ahead > AHEAD_MAX ||
        o->window < 0)
        return vb_err(VB_ERR_USAGE,
                      "the loader cannot start with %d samples, a batch of %d, rank %d of %d ranks "
                      "and %d batches ahead",
                      o->set->n, o->global_batch, o->rank, o->world, o->ahead);
    return VB_OK;
}

static size_t aligned(size_t bytes)
{
    return (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
}

static vb_status make_image_slot(const struct vb_loader *l, struct slot *slot)
{
    size_t row = l->o.no_x ? 0 : (size_t)l->o.set->features;
    size_t x = aligned((size_t)l->room * row * sizeof(float));
    vb_status st = vb_mem_map_private(x + (size_t)l->room * sizeof(uint16_t), &slot->mem);

    if (st != VB_OK)
        return st;
    slot->batch.x = l->o.no_x ? NULL : slot->mem.ptr;
    slot->batch.y = (uint16_t *)(void *)((char *)slot->mem.ptr + x);
    return VB_OK;
}

/* Maps room for rows that are all as long as the longest. Untouched pages take no memory. */
static vb_status make_row_slot(const struct vb_loader *l, struct slot *slot)
{
    size_t entries = (size_t)l->room * (size_t)(l->o.set->row_max > 0 ? l->o.set->row_max : 1);
    size_t at = aligned(((size_t)l->room + 1) * sizeof(int64_t)), y = aligned((size_t)l->room);
    size_t index = aligned(entries * sizeof(uint32_t));
    vb_status st = vb_mem_map_private(at + y + index + entries * sizeof(float), &slot->mem);
    char *from = slot->mem.ptr;

    if (st != VB_OK)
        return st;
    slot->batch.rows = (struct vb_rows){.at = (int64_t *)(void *)from,
                                        .y = (uint8_t *)from + at,
                                        .index = (uint32_t *)(void *)(from + at + y),
                                        .value = (float *)(void *)(from + at + y + index),
                                        .room = (int64_t)entries};
    return VB_OK;
}

static vb_status make_slots(struct vb_loader *l)
{
    vb_status st = VB_OK;
    int i;

    l->n_slots = l->o.ahead > 0 ? l->o.ahead + 1 : 2;
    for (i = 0; st == VB_OK && i < l->n_slots; i++) {
        l->slots[i].batch.which = malloc((size_t)l->room * sizeof(uint32_t));
        if (l->slots[i].batch.which == NULL)
            return vb_err_sys("malloc");
        st = l->o.set->kind == VB_DATA_IMAGES ? make_image_slot(l, &l->slots[i])
                                              : make_row_slot(l, &l->slots[i]);
    }
    return st;
}

/* Tells the store whether a chunk will be read soon. If the set is only a part of the file, the
 * samples of a chunk may not be adjacent in the file, and the range contains other samples too. */
static void advise(void *arg, int chunk, bool wanted)
{
    const struct vb_dataset *set = ((struct vb_loader *)arg)->o.set;
    int64_t end = ((int64_t)chunk + 1) * ORDER_CHUNK;
    int last = (int)(end < set->n ? end : set->n) - 1;
    int first = stored(set, (uint32_t)chunk * ORDER_CHUNK);

    if (set->store->ops->advise != NULL)
        set->store->ops->advise(set->store, first, stored(set, (uint32_t)last) - first + 1, wanted);
}

static vb_status set_up(struct vb_loader *l)
{
    int window = l->o.window;
    vb_status st;

    /* The file has the same size on every host, so all ranks use the same window. */
    if (window == 0 && l->o.set->store->file_bytes > STREAM_BYTES)
        window = STREAM_WINDOW;
    st = vb_order_init(&l->order, l->o.seed, l->o.set->n, window, l->o.in_order);
    if (st != VB_OK)
        return st;
    l->order.entered = advise;
    l->order.entered_arg = l;
    return make_slots(l);
}

/* Takes the share of a rank. Returns the number of its samples in a whole step. */
static int take_share(struct vb_loader *l, int rank, int world)
{
    int share = (int)(((int64_t)l->o.global_batch + world - 1) / world);

    l->o.rank = rank;
    l->o.world = world;
    share = share < l->o.set->n ? share : l->o.set->n;
    l->most = share < l->room ? share : l->room;
    return share;
}

vb_status vb_loader_open(const struct vb_loader_opts *opts, struct vb_loader **loader_p)
{
    pthread_condattr_t attr;
    struct vb_loader *l;
    vb_status st = check(opts);

    if (st != VB_OK)
        return st;
    l = calloc(1, sizeof(*l));
    if (l == NULL)
        return vb_err_sys("calloc");
    l->o = *opts;
    l->o.timeout_ms = opts->timeout_ms > 0 ? opts->timeout_ms : TIMEOUT_MS;
    l->room = opts->batch_max > 0 ? opts->batch_max : take_share(l, opts->rank, opts->world);
    l->room = l->room < opts->set->n ? l->room : opts->set->n;
    (void)take_share(l, opts->rank, opts->world);
    l->steps = ((int64_t)opts->set->n + opts->global_batch - 1) / opts->global_batch;
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    st = set_up(l);
    if (st == VB_OK)
        st = release(l);
    if (st != VB_OK) {
        vb_loader_close(l);
        return st;
    }
    *loader_p = l;
    return VB_OK;
}

void vb_loader_close(struct vb_loader *l)
{
    int i;

    if (l == NULL)
        return;
    halt(l);
    for (i = 0; i < l->n_slots; i++) {
        vb_mem_unmap(&l->slots[i].mem);
        free(l->slots[i].batch.which);
    }
    vb_order_fini(&l->order);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int64_t vb_loader_steps(const struct vb_loader *l)
{
    return l->steps;
}

vb_status vb_loader_seek(struct vb_loader *l, int64_t epoch, int64_t step)
{
    return vb_loader_reshare(l, l->o.rank, l->o.world, epoch, step);
}

vb_status vb_loader_reshare(struct vb_loader *l, int rank, int world, int64_t epoch, int64_t step)
{
    vb_status st;

    if (world < 1 || rank < 0 || rank >= world)
        return vb_err(VB_ERR_USAGE, "the loader cannot take share %d of %d", rank, world);
    if (epoch < 0 || step < 0 || step >= l->steps)
        return vb_err(VB_ERR_USAGE,
                      "the loader cannot start at epoch %lld, step %lld: an epoch has %lld steps",
                      (long long)epoch, (long long)step, (long long)l->steps);
    st = hold(l);
    if (st != VB_OK)
        return st;
    pthread_mutex_lock(&l->lock);
    (void)take_share(l, rank, world);
    l->epoch = epoch;
    l->step = step;
    pthread_mutex_unlock(&l->lock);
    return release(l);
}

/* ---- handing out ----------------------------------------------------------------------------- */

/* Makes the next batch in the calling thread, if there is no loader thread. */
static vb_status make_here(struct vb_loader *l)
{
    if (l->failed == VB_OK)
        l->failed = make(l, &l->slots[l->made % l->n_slots]);
    l->made += l->failed == VB_OK;
    return l->failed;
}

static vb_status next_here(struct vb_loader *l, const struct vb_batch **batch_p)
{
    vb_status st = VB_OK;

    l->used += l->holding;
    l->holding = false;
    if (l->made == l->used)
        st = make_here(l);
    if (st != VB_OK)
        return st;
    *batch_p = &l->slots[l->used % l->n_slots].batch;
    l->holding = true;
    return VB_OK;
}

static const struct vb_batch *peek_here(struct vb_loader *l)
{
    if (!l->holding || (l->made == l->used + 1 && make_here(l) != VB_OK))
        return NULL;
    return &l->slots[(l->used + 1) % l->n_slots].batch;
}

void vb_loader_soon(struct vb_loader *l, int i)
{
    const struct vb_batch *b = &l->slots[l->used % l->n_slots].batch;
    struct picks p = {.which = b->soon, .n = b->n_soon};

    if (l->o.ahead > 0 || l->o.set->kind == VB_DATA_IMAGES || l->made > l->used + 1 || i >= p.n)
        return; /* vb_loader_peek() may already have made the next batch */
    vb_dataset_soon(l->o.set, &p, i);
    l->asked = i + 1;
}

vb_status vb_loader_next(struct vb_loader *l, const struct vb_batch **batch_p)
{
    vb_status st = VB_OK;

    if (l->o.ahead == 0)
        return next_here(l, batch_p);
    pthread_mutex_lock(&l->lock);
    if (l->holding) {
        l->used++;
        l->holding = false;
        pthread_cond_signal(&l->changed);
    }
    while (st == VB_OK && l->made == l->used) {
        if (l->failed != VB_OK)
            st = l->failed;
        else if (!wait_change(l, l->o.timeout_ms) && l->made == l->used)
            st = vb_err(VB_ERR_TIMEOUT, "the loader had no batch ready within %d ms",
                        l->o.timeout_ms);
    }
    if (st == VB_OK) {
        *batch_p = &l->slots[l->used % l->n_slots].batch;
        l->holding = true;
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

const struct vb_batch *vb_loader_peek(struct vb_loader *l)
{
    const struct vb_batch *batch = NULL;

    if (l->o.ahead == 0)
        return peek_here(l);
    pthread_mutex_lock(&l->lock);
    if (l->holding && l->made > l->used + 1)
        batch = &l->slots[(l->used + 1) % l->n_slots].batch;
    pthread_mutex_unlock(&l->lock);
    return batch;
}
