/* SPDX-License-Identifier: MIT
 *
 * The progress thread: serves peers while the caller computes, and stays away while the caller
 * polls or sleeps by itself.
 */
#include "net/group_priv.h"

#include <errno.h>
#include <time.h>

#define NAP_NS 1000000L

static void nap(void)
{
    struct timespec ts = {.tv_nsec = NAP_NS};

    nanosleep(&ts, NULL);
}

/* Serves until the caller polls by itself again. */
static void take_over(struct vb_group *g, unsigned seen)
{
    group_lock(g);
    while (!atomic_load_explicit(&g->stopping, memory_order_relaxed) && !g->opening &&
           atomic_load_explicit(&g->app_polls, memory_order_relaxed) == seen) {
        if (group_round(g) > 0) {
            if (atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
                group_wake(g); /* what it waits for may have gone through our hands */
            continue;
        }
        if (atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
            break;
        group_arm(g);
        if (group_round(g) == 0)
            group_sleep(g, GROUP_SLEEP_MS);
        group_disarm(g);
    }
    group_unlock(g);
}

static void *progress_main(void *arg)
{
    struct vb_group *g = arg;
    unsigned seen = atomic_load_explicit(&g->app_polls, memory_order_relaxed), now;

    vb_log_set_rank(g->rank);
    while (!atomic_load_explicit(&g->stopping, memory_order_relaxed)) {
        nap();
        now = atomic_load_explicit(&g->app_polls, memory_order_relaxed);
        if (now == seen && !atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
            take_over(g, seen);
        seen = now;
    }
    return NULL;
}

vb_status progress_start(struct vb_group *g)
{
    int err;

    g->threaded = true;
    err = pthread_create(&g->progress_thread, NULL, progress_main, g);
    if (err == 0)
        return VB_OK;
    g->threaded = false;
    errno = err;
    return vb_err_sys("start the progress thread");
}

void progress_stop(struct vb_group *g)
{
    if (!g->threaded)
        return;
    atomic_store_explicit(&g->stopping, true, memory_order_relaxed);
    group_wake(g);
    pthread_join(g->progress_thread, NULL);
    g->threaded = false;
}
