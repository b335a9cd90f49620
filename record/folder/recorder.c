/* SPDX-License-Identifier: MIT */
#include "record/folder/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "record/folder/files.h"

#define STREAMS_MAX 64
#define TICKS_MAX 8
#define CLOSE_MS 2000
#define LAST_MS 1500       /* how long the last rows are offered to a sink that is full */
#define WRITE_BYTES 65536u /* one write at most, so that a full disk takes what fits */

struct vb_stream {
    struct vb_recorder *rec;
    char file[96];
    const struct vb_series_kind *kind;
    bool has_head;
    uint32_t mask;               /* the number of rows of the ring, less one */
    _Atomic uint64_t put, taken; /* rows since the start */
    _Atomic uint64_t lost;
    struct vb_mem ring;
};

struct tick {
    vb_tick_fn fn;
    void *arg;
};

/* Something that the recorder frees. */
struct owned {
    void (*fn)(void *arg);
    void *arg;
};

struct vb_recorder {
    struct vb_record_sink sink;
    struct vb_stream *streams[STREAMS_MAX];
    struct tick ticks[TICKS_MAX];
    struct tick after[TICKS_MAX]; /* called after the rows were written */
    struct owned owned[TICKS_MAX];
    _Atomic int n_streams; /* grows after the streams are complete */
    int n_ticks, n_after, n_owned, rank;
    cpu_set_t cpus;
    bool has_cpus, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing, ended;    /* guarded by lock */
    _Atomic bool abandoned; /* the caller has not waited; what ticks use may be gone */
};

static void stream_free(struct vb_stream *s)
{
    if (s != NULL)
        vb_mem_unmap(&s->ring);
    free(s);
}

static void free_own(struct vb_recorder *rec)
{
    int i;

    for (i = 0; i < rec->n_streams; i++)
        stream_free(rec->streams[i]);
    pthread_cond_destroy(&rec->changed);
    pthread_mutex_destroy(&rec->lock);
    free(rec);
}

static void recorder_free(struct vb_recorder *rec)
{
    int i;

    if (rec->sink.close != NULL)
        rec->sink.close(rec->sink.arg);
    for (i = 0; i < rec->n_owned; i++)
        rec->owned[i].fn(rec->owned[i].arg);
    free_own(rec);
}

vb_status vb_recorder_open(const struct vb_recorder_opts *o, struct vb_recorder **rec_p)
{
    struct vb_recorder *rec = calloc(1, sizeof(*rec));
    pthread_condattr_t attr;
    vb_status st = VB_OK;

    if (rec == NULL)
        return vb_err_sys("calloc");
    rec->sink = o->sink;
    rec->rank = o->rank;
    if (o->cpus != NULL) {
        rec->cpus = *o->cpus;
        rec->has_cpus = true;
    }
    pthread_mutex_init(&rec->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&rec->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (rec->sink.append == NULL)
        st = vb_record_files(o->dir, o->append, &rec->sink);
    if (st == VB_OK)
        *rec_p = rec;
    else
        recorder_free(rec);
    return st;
}

/* Allocates all pages now: no step has a page fault here, and a long job needs no more memory. */
static vb_status ring_open(struct vb_stream *s, size_t len_bytes)
{
    vb_status st = vb_mem_map_private(len_bytes, &s->ring);

    return st == VB_OK ? vb_mem_populate(&s->ring) : st;
}

vb_status vb_recorder_stream(struct vb_recorder *rec, const char *file,
                             const struct vb_series_kind *kind, int ring_rows,
                             struct vb_stream **stream_p)
{
    uint32_t rows = 64;
    struct vb_stream *s;
    vb_status st;

    if (rec->n_streams == STREAMS_MAX)
        return vb_err(VB_ERR_USAGE, "%s: a recorder has %d files at most", file, STREAMS_MAX);
    while (rows < (uint32_t)ring_rows)
        rows *= 2;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err_sys("calloc");
    st = ring_open(s, rows * kind->row_bytes);
    if (st != VB_OK) {
        stream_free(s);
        return st;
    }
    snprintf(s->file, sizeof(s->file), "%s", file);
    s->rec = rec;
    s->kind = kind;
    s->mask = rows - 1;
    rec->streams[rec->n_streams] = s;
    rec->n_streams++;
    *stream_p = s;
    return VB_OK;
}

vb_status vb_recorder_tick(struct vb_recorder *rec, vb_tick_fn fn, void *arg)
{
    VB_ASSERT(!rec->started);
    if (rec->n_ticks == TICKS_MAX)
        return vb_err(VB_ERR_USAGE, "a recorder has %d ticks at most", TICKS_MAX);
    rec->ticks[rec->n_ticks++] = (struct tick){fn, arg};
    return VB_OK;
}

vb_status vb_recorder_own(struct vb_recorder *rec, void (*fn)(void *arg), void *arg)
{
    VB_ASSERT(!rec->started);
    if (rec->n_owned == TICKS_MAX)
        return vb_err(VB_ERR_USAGE, "a recorder owns %d things at most", TICKS_MAX);
    rec->owned[rec->n_owned++] = (struct owned){fn, arg};
    return VB_OK;
}

/* ---- recording ------------------------------------------------------------------------------- */

void vb_stream_put(struct vb_stream *s, const void *row)
{
    uint64_t put = atomic_load_explicit(&s->put, memory_order_relaxed);

    /* Pairs with the release in write_rows(): the row has been read before it is overwritten. */
    if (put - atomic_load_explicit(&s->taken, memory_order_acquire) > s->mask) {
        atomic_fetch_add_explicit(&s->lost, 1, memory_order_relaxed);
        return;
    }
    memcpy((char *)s->ring.ptr + (put & s->mask) * s->kind->row_bytes, row, s->kind->row_bytes);
    atomic_store_explicit(&s->put, put + 1, memory_order_release);
}

int vb_recorder_streams(const struct vb_recorder *rec)
{
    return rec->n_streams;
}

uint64_t vb_recorder_lost(const struct vb_recorder *rec)
{
    uint64_t lost = 0;
    int i;

    for (i = 0; i < rec->n_streams; i++)
        lost += atomic_load_explicit(&rec->streams[i]->lost, memory_order_relaxed);
    return lost;
}

/* ---- writing --------------------------------------------------------------------------------- */

vb_status vb_recorder_append(struct vb_recorder *rec, const char *file, const void *bytes,
                             size_t len_bytes)
{
    vb_status st = rec->sink.append(rec->sink.arg, file, bytes, len_bytes);

    if (atomic_load(&rec->abandoned)) { /* the disk has answered too late */
        free_own(rec);                  /* what others own may use something that is gone */
        pthread_exit(NULL);
    }
    return st;
}

static vb_status write_head(struct vb_stream *s)
{
    char head[VB_SERIES_HEAD_MAX];
    vb_status st = VB_OK;

    if (!s->has_head)
        st = vb_recorder_append(s->rec, s->file, head, vb_series_head(s->kind, head));
    s->has_head = st == VB_OK;
    return st;
}

void vb_recorder_heads(struct vb_recorder *rec)
{
    int i;

    for (i = 0; i < rec->n_streams; i++)
        rec->streams[i]->has_head = false;
}

/* Writes the rows of a ring, piece by piece. Returns false if the sink is full. */
static bool write_rows(struct vb_stream *s)
{
    size_t limit = s->rec->sink.max_bytes, most;
    uint64_t put = atomic_load_explicit(&s->put, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&s->taken, memory_order_relaxed), n, at;
    vb_status st;

    most = (limit > 0 && limit < WRITE_BYTES ? limit : WRITE_BYTES) / s->kind->row_bytes;
    while (taken < put) {
        at = taken & s->mask;
        n = put - taken < s->mask + 1 - at ? put - taken : s->mask + 1 - at;
        if (n > most)
            n = most;
        st = write_head(s);
        if (st == VB_OK)
            st = vb_recorder_append(s->rec, s->file, (char *)s->ring.ptr + at * s->kind->row_bytes,
                                    n * s->kind->row_bytes);
        if (st == VB_AGAIN)
            return false;
        if (st != VB_OK)
            atomic_fetch_add_explicit(&s->lost, n, memory_order_relaxed);
        taken += n;
        atomic_store_explicit(&s->taken, taken, memory_order_release);
    }
    return true;
}

/* Writes the rows of all streams; the last ones again and again while the sink is full. */
static void write_all(struct vb_recorder *rec, bool last)
{
    uint64_t until = vb_clock_ns() + LAST_MS * UINT64_C(1000000);
    const struct timespec nap = {.tv_nsec = 5000000};
    bool full;
    int i;

    for (;;) {
        for (i = 0, full = false; i < rec->n_streams; i++)
            full = !write_rows(rec->streams[i]) || full;
        if (!full || !last || vb_clock_ns() >= until)
            return;
        nanosleep(&nap, NULL);
    }
}

/* Waits until the next tick. Returns whether the recorder is to close. */
static bool wait_tick(struct vb_recorder *rec, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    bool closing;

    pthread_mutex_lock(&rec->lock);
    while (!rec->closing && pthread_cond_timedwait(&rec->changed, &rec->lock, &until) != ETIMEDOUT)
        ;
    closing = rec->closing;
    pthread_mutex_unlock(&rec->lock);
    return closing;
}

vb_status vb_recorder_after(struct vb_recorder *rec, vb_tick_fn fn, void *arg)
{
    VB_ASSERT(!rec->started);
    if (rec->n_after == TICKS_MAX)
        return vb_err(VB_ERR_USAGE, "a recorder has %d ticks at most", TICKS_MAX);
    rec->after[rec->n_after++] = (struct tick){fn, arg};
    return VB_OK;
}

static void *recorder_main(void *arg)
{
    struct vb_recorder *rec = arg;
    uint64_t next = vb_clock_ns(), now;
    bool last;
    int i;

    vb_log_set_rank(rec->rank);
    do {
        now = vb_clock_ns();
        next += VB_RECORD_TICK_MS * UINT64_C(1000000);
        if (next < now) /* the disk was slow, or the process was stopped */
            next = now;
        last = wait_tick(rec, next);
        for (i = 0; i < rec->n_ticks; i++)
            rec->ticks[i].fn(rec->ticks[i].arg, vb_record_clock_ns(), last);
        write_all(rec, last);
        for (i = 0; i < rec->n_after; i++)
            rec->after[i].fn(rec->after[i].arg, vb_record_clock_ns(), last);
    } while (!last);
    pthread_mutex_lock(&rec->lock);
    rec->ended = true;
    pthread_cond_broadcast(&rec->changed);
    pthread_mutex_unlock(&rec->lock);
    return NULL;
}

vb_status vb_recorder_start(struct vb_recorder *rec)
{
    pthread_attr_t attr;
    int err;

    pthread_attr_init(&attr);
    if (rec->has_cpus)
        pthread_attr_setaffinity_np(&attr, sizeof(rec->cpus), &rec->cpus);
    err = pthread_create(&rec->thread, &attr, recorder_main, rec);
    pthread_attr_destroy(&attr);
    if (err != 0)
        return vb_err(vb_status_from_errno(err), "cannot start the recorder: %s", strerror(err));
    rec->started = true;
    return VB_OK;
}

/* Returns whether the thread has ended in time. */
static bool stop_thread(struct vb_recorder *rec)
{
    uint64_t until_ns = vb_clock_ns() + CLOSE_MS * UINT64_C(1000000);
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    bool ended;

    pthread_mutex_lock(&rec->lock);
    rec->closing = true;
    pthread_cond_broadcast(&rec->changed);
    while (!rec->ended && pthread_cond_timedwait(&rec->changed, &rec->lock, &until) != ETIMEDOUT)
        ;
    ended = rec->ended;
    pthread_mutex_unlock(&rec->lock);
    return ended;
}

/* Returns the number of rows that no file has. */
static uint64_t not_written(const struct vb_recorder *rec)
{
    uint64_t lost = vb_recorder_lost(rec);
    int i;

    for (i = 0; i < rec->n_streams; i++)
        lost += atomic_load(&rec->streams[i]->put) - atomic_load(&rec->streams[i]->taken);
    return lost;
}

uint64_t vb_recorder_close(struct vb_recorder *rec)
{
    uint64_t lost;

    if (rec == NULL)
        return 0;
    if (rec->started && !stop_thread(rec)) {
        VB_LOG_WARN("the disk of the run folder has not taken the last records within %d s; they "
                    "are lost",
                    CLOSE_MS / 1000);
        lost = not_written(rec);
        pthread_detach(rec->thread);
        atomic_store(&rec->abandoned, true); /* from now on rec belongs to the thread */
        return lost;
    }
    if (rec->started)
        pthread_join(rec->thread, NULL);
    lost = not_written(rec);
    recorder_free(rec);
    return lost;
}
