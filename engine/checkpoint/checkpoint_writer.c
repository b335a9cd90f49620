/* SPDX-License-Identifier: MIT
 *
 * The thread that writes checkpoints. There are two places: for the checkpoint that is being
 * written, and for the last one of a run, which may wait for it. All memory is allocated when the
 * writer is opened, except for what writing a file needs.
 */
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/checkpoint_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PLACES 2
#define NICE 10 /* computing threads go first */
#define GIVE_UP_NS UINT64_C(10000000000)

struct place {
    struct vb_checkpoint cp;
    struct vb_checkpoint_array arrays[VB_CHECKPOINT_ARRAYS_MAX];
    struct vb_checkpoint_done done;
};

struct vb_checkpoint_writer {
    struct vb_checkpoint_writer_opts opts;
    char dir[PATH_MAX];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;

    /* Guarded by lock: numbers of checkpoints that were begun, written or failed, and told of. The
     * place of a checkpoint is its number modulo PLACES. */
    uint64_t begun, ended, told;
    bool closing;  /* the thread is to end */
    bool left;     /* nobody waits for the thread: it frees the writer */
    bool finished; /* the thread has ended */

    _Atomic uint64_t n_busy; /* begun - ended, to look at without the lock */
    struct cp_watch watch;
    struct place places[PLACES];
};

/* ---- the thread ------------------------------------------------------------------------------ */

static double bytes_of(const struct vb_checkpoint *cp)
{
    double bytes = 0;
    int i;

    for (i = 0; i < cp->n_arrays; i++)
        bytes += (double)sizeof(float) * (double)cp->arrays[i].rows * (double)cp->arrays[i].cols;
    return bytes;
}

static void write_one(struct vb_checkpoint_writer *w, struct place *p)
{
    struct vb_checkpoint_done *done = &p->done;
    char other[64]; /* errors of looking for the last checkpoint are of no use */

    *done = (struct vb_checkpoint_done){.step = p->cp.step, .bytes = bytes_of(&p->cp)};
    w->watch.bad[0] = '\0';
    vb_log_catch(done->why, sizeof(done->why));
    if (!vb_cp_path(done->path, w->dir, p->cp.step))
        done->path[0] = '\0';
    done->status = vb_cp_write(w->dir, &p->cp, w->opts.keep, &w->watch, &done->seconds);
    if (done->status != VB_OK) {
        memcpy(done->bad, w->watch.bad, sizeof(done->bad));
        vb_log_catch(other, sizeof(other));
        if (vb_checkpoint_latest(w->dir, done->last, sizeof(done->last)) != VB_OK)
            done->last[0] = '\0';
    }
    vb_log_catch(NULL, 0);
}

static void free_writer(struct vb_checkpoint_writer *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Waits for the next checkpoint. Returns NULL if the thread is to end. The caller holds the lock.
 */
static struct place *next_place(struct vb_checkpoint_writer *w)
{
    while (w->begun == w->ended && !w->closing)
        pthread_cond_wait(&w->changed, &w->lock);
    return w->begun > w->ended && !w->closing ? &w->places[w->ended % PLACES] : NULL;
}

static void *writer_main(void *arg)
{
    struct vb_checkpoint_writer *w = arg;
    struct place *p;
    bool left;

    vb_log_set_rank(w->opts.rank);
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux, of this thread */
    pthread_mutex_lock(&w->lock);
    while ((p = next_place(w)) != NULL) {
        pthread_mutex_unlock(&w->lock);
        write_one(w, p);
        pthread_mutex_lock(&w->lock);
        w->ended++;
        /* pairs with the acquire in vb_checkpoint_writer_busy(): all memory has been read */
        atomic_fetch_sub_explicit(&w->n_busy, 1, memory_order_release);
        pthread_cond_broadcast(&w->changed);
    }
    w->finished = true;
    left = w->left;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (left)
        free_writer(w);
    return NULL;
}

/* ---- the other side -------------------------------------------------------------------------- */

static vb_status start_thread(struct vb_checkpoint_writer *w)
{
    pthread_attr_t attr;
    int err;

    pthread_attr_init(&attr);
    if (CPU_COUNT(&w->opts.cpus) > 0)
        pthread_attr_setaffinity_np(&attr, sizeof(w->opts.cpus), &w->opts.cpus);
    err = pthread_create(&w->thread, &attr, writer_main, w);
    pthread_attr_destroy(&attr);
    return err == 0 ? VB_OK
                    : vb_err(vb_status_from_errno(err),
                             "cannot start the thread that writes checkpoints: %s", strerror(err));
}

vb_status vb_checkpoint_writer_open(const struct vb_checkpoint_writer_opts *opts,
                                    struct vb_checkpoint_writer **writer_p)
{
    struct vb_checkpoint_writer *w = calloc(1, sizeof(*w));
    pthread_condattr_t attr;
    vb_status st;

    if (w == NULL)
        return vb_err_sys("calloc");
    w->opts = *opts;
    snprintf(w->dir, sizeof(w->dir), "%s", opts->dir);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    st = start_thread(w);
    if (st == VB_OK)
        *writer_p = w;
    else
        free_writer(w);
    return st;
}

bool vb_checkpoint_writer_busy(const struct vb_checkpoint_writer *w)
{
    /* pairs with the release in writer_main() */
    return atomic_load_explicit(&w->n_busy, memory_order_acquire) > 0;
}

bool vb_checkpoint_writer_begin(struct vb_checkpoint_writer *w, const struct vb_checkpoint *cp,
                                bool queues)
{
    struct place *p;
    bool fits;

    pthread_mutex_lock(&w->lock);
    fits = (queues || w->begun == w->ended) && w->begun - w->told < PLACES &&
           cp->n_arrays < VB_CHECKPOINT_ARRAYS_MAX;
    if (fits) {
        p = &w->places[w->begun++ % PLACES];
        p->cp = *cp;
        if (cp->n_arrays > 0)
            memcpy(p->arrays, cp->arrays, (size_t)cp->n_arrays * sizeof(*p->arrays));
        p->cp.arrays = p->arrays;
        if (p->cp.view.run > 0)
            p->arrays[p->cp.n_arrays++] = vb_cp_view_array(&p->cp.view);
        atomic_fetch_add_explicit(&w->n_busy, 1, memory_order_relaxed);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return fits;
}

bool vb_checkpoint_writer_take(struct vb_checkpoint_writer *w, struct vb_checkpoint_done *done_p)
{
    bool there;

    pthread_mutex_lock(&w->lock);
    there = w->told < w->ended;
    if (there)
        *done_p = w->places[w->told++ % PLACES].done;
    pthread_mutex_unlock(&w->lock);
    return there;
}

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

bool vb_checkpoint_writer_wait(struct vb_checkpoint_writer *w, uint64_t until_ns)
{
    struct timespec until = time_of(until_ns);
    bool idle;

    pthread_mutex_lock(&w->lock);
    while (w->begun > w->ended &&
           pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT)
        ;
    idle = w->begun == w->ended;
    pthread_mutex_unlock(&w->lock);
    return idle;
}

/* A thread that does not end hangs in a call of the kernel, with a disk that does not answer. The
 * kernel reads memory of this process at most, and tolerates that it is gone. */
void vb_checkpoint_writer_close(struct vb_checkpoint_writer *w)
{
    struct timespec until = time_of(vb_clock_ns() + GIVE_UP_NS);
    bool finished;

    if (w == NULL)
        return;
    atomic_store(&w->watch.cancel, true);
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    while (!w->finished && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT)
        ;
    finished = w->finished;
    w->left = !finished;
    pthread_mutex_unlock(&w->lock);
    if (finished) {
        pthread_join(w->thread, NULL);
        free_writer(w);
        return;
    }
    VB_LOG_WARN("the disk of %s does not answer; the checkpoint is given up", w->dir);
    pthread_detach(w->thread);
}
