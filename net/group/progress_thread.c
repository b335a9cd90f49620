/* SPDX-License-Identifier: MIT
 *
 * The progress thread serves peers while the caller computes. It is idle while the caller polls or
 * sleeps in a wait. Without a cpu of its own it takes cpu time from the computing threads; it then
 * rests after it has served peers, and serves all that has arrived meanwhile at once
 * (docs/performance.md).
 */
#include "net/group/group_priv.h"
#include "topo/topo.h"

#include <errno.h>
#include <time.h>

#define NAP_NS 1000000L /* pause between two checks whether the caller polls */
#define REST_NS 600000L /* pause after the thread has served peers */

static void nap(long ns)
{
    struct timespec ts = {.tv_nsec = ns};

    nanosleep(&ts, NULL);
}

/* Returns whether the progress thread has a cpu on which no thread computes. */
static bool has_cpu(const struct vb_group *g)
{
    const struct vb_placement *placement = g->opts.placement;

    return placement != NULL && placement->ranks[g->opts.placement_rank].progress_cpu >= 0;
}

static void take_over(struct vb_group *g, unsigned seen)
{
    bool rests = !has_cpu(g), served = false; /* served: there were events since the last rest */

    group_lock(g);
    while (!atomic_load_explicit(&g->stopping, memory_order_relaxed) && !g->opening &&
           atomic_load_explicit(&g->app_polls, memory_order_relaxed) == seen) {
        if (vb_group_round(g) > 0) {
            served = true;
            if (atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
                vb_group_wake(g); /* the caller may be waiting for this event */
            continue;
        }
        if (atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
            break;
        if (served && rests) {
            group_unlock(g);
            nap(REST_NS);
            group_lock(g);
        } else {
            vb_group_arm(g);
            if (vb_group_round(g) == 0)
                vb_group_sleep(g, GROUP_SLEEP_MS);
            vb_group_disarm(g);
        }
        served = false;
    }
    group_unlock(g);
}

static void *progress_main(void *arg)
{
    struct vb_group *g = arg;
    unsigned seen = atomic_load_explicit(&g->app_polls, memory_order_relaxed), now;

    vb_log_set_rank(g->rank);
    while (!atomic_load_explicit(&g->stopping, memory_order_relaxed)) {
        if (vb_trace_self == NULL)
            vb_trace_attach(atomic_load_explicit(&g->trace, memory_order_acquire), "progress");
        nap(NAP_NS);
        now = atomic_load_explicit(&g->app_polls, memory_order_relaxed);
        if (now == seen && !atomic_load_explicit(&g->app_sleeping, memory_order_relaxed))
            take_over(g, seen);
        seen = now;
    }
    vb_trace_detach();
    return NULL;
}

void vb_group_trace(struct vb_group *g, struct vb_trace *trace)
{
    atomic_store_explicit(&g->trace, trace, memory_order_release); /* pairs with progress_main() */
}

vb_status vb_progress_start(struct vb_group *g)
{
    int err;

    g->front.threaded = true;
    err = pthread_create(&g->progress_thread, NULL, progress_main, g);
    if (err == 0)
        return VB_OK;
    g->front.threaded = false;
    errno = err;
    return vb_err_sys("cannot start the progress thread");
}

void vb_progress_stop(struct vb_group *g)
{
    if (!g->front.threaded)
        return;
    atomic_store_explicit(&g->stopping, true, memory_order_relaxed);
    vb_group_wake(g);
    pthread_join(g->progress_thread, NULL);
    g->front.threaded = false;
}
