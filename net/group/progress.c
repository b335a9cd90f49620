/* SPDX-License-Identifier: MIT
 *
 * Polls the devices, delivers notes to the handlers of their channels, and waits. A wait spins
 * briefly, yields if there are more threads than cpus, then sleeps in the group's epoll until a
 * device or the control plane wakes it. With only one device, which has an await function, and no
 * progress thread, the wait sleeps in await instead, which saves system calls; since the control
 * plane cannot end that sleep, the wait checks it every GROUP_SLEEP_MS.
 */
#include "net/group/group_priv.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS 64
#define YIELDS_NS 50000u
#define SPIN_NS 100000u

/* ---- one round ------------------------------------------------------------------------------- */

/* A note on a closed channel is dropped; the first one of each peer is logged. */
static void deliver_note(struct vb_group *g, int rank, uint32_t note)
{
    const struct channel *channel = &g->channels[VB_NOTE_CHANNEL(note)];

    if (channel->of_view && g->view_news[rank].ready != g->view.number)
        return;
    if (channel->fn != NULL) {
        channel->fn(channel->arg, rank, VB_NOTE_VALUE(note));
        return;
    }
    if (!g->peers[rank].strayed)
        VB_LOG_WARN(
            "rank %d (%s) sent a note on channel %u, which is not open; the note was dropped", rank,
            g->peers[rank].info.host, VB_NOTE_CHANNEL(note));
    g->peers[rank].strayed = true;
}

static void take_note(struct vb_group *g, int rank, uint32_t note)
{
    uint64_t n = ++g->peers[rank].n_came;

    if (vb_trace_is_on())
        vb_trace_moment(VB_OP_NOTE, rank, vb_trace_message(rank, g->rank, n));
    deliver_note(g, rank, note);
}

void vb_group_finish(struct vb_op *op, vb_status st)
{
    op->status = st;
    op->done = true;
}

static void deliver_event(struct vb_group *g, const struct vb_raw_event *ev)
{
    switch (ev->type) {
    case VB_RAW_OP_DONE:
        vb_group_finish(ev->op, ev->status);
        break;
    case VB_RAW_NOTE:
        if (g->opts.elastic && !g->peers[ev->rank].member)
            vb_control_lose(g->control, ev->rank, "the rank sent a note before it had joined");
        else
            take_note(g, ev->rank, ev->note);
        break;
    case VB_RAW_LOST:
        vb_control_data_lost(g->control, ev->rank,
                             ev->why != NULL ? ev->why : "the data connection failed");
        break;
    }
}

/* Notes that a handler sends now wait for the next round. */
static int deliver_self(struct vb_group *g)
{
    struct vb_op *op = g->self.done, *next;
    unsigned n = g->self.n, i;
    int count = (int)n;

    g->self.done = NULL;
    for (; op != NULL; op = next, count++) {
        next = op->next;
        vb_group_finish(op, VB_OK);
    }
    for (i = 0; i < n; i++) {
        uint32_t note = g->self.notes[g->self.first % SELF_NOTES];

        g->self.first++;
        g->self.n--;
        deliver_note(g, g->rank, note);
    }
    return count;
}

static void set_hold(struct vb_device *dev, bool on)
{
    ((struct vb_device_head *)dev)->holds += on ? 1 : -1;
}

void vb_group_hold(struct vb_group *g, bool on)
{
    int d;

    for (d = 0; d < g->n_devices; d++)
        set_hold(g->devices[d], on);
}

static void flush(struct vb_device *dev)
{
    if (vb_device_transport(dev)->flush != NULL)
        vb_device_transport(dev)->flush(dev);
}

void vb_group_flush(struct vb_group *g)
{
    int d;

    for (d = 0; d < g->n_devices; d++)
        flush(g->devices[d]);
}

/* All puts that the handlers make are sent together. */
static int deliver_events(struct vb_group *g, struct vb_device *dev, const struct vb_raw_event *ev,
                          int n)
{
    int i;

    if (n > 1)
        set_hold(dev, true);
    for (i = 0; i < n; i++)
        deliver_event(g, &ev[i]);
    if (n > 1) {
        set_hold(dev, false);
        flush(dev);
    }
    return n;
}

static bool has_self(const struct vb_group *g)
{
    return g->self.n > 0 || g->self.done != NULL;
}

int vb_group_round(struct vb_group *g)
{
    struct vb_raw_event ev[EVENTS];
    int count = 0, d, n;

    if (atomic_load_explicit(&g->news, memory_order_relaxed)) /* elastic groups only */
        count += vb_member_work(g);
    if (has_self(g))
        count += deliver_self(g);
    for (d = 0; d < g->n_devices; d++) {
        n = 0;
        if (vb_device_transport(g->devices[d])->poll(g->devices[d], ev, EVENTS, &n) != VB_OK)
            continue; /* the device has logged this, and reports the affected ranks as lost */
        count += deliver_events(g, g->devices[d], ev, n);
    }
    return count;
}

/* what is the operation that was under way, or NULL. */
static vb_status log_failure(struct vb_group *g, vb_status st, const char *what)
{
    char text[256];

    vb_control_status(g->control, text, sizeof(text));
    return what != NULL ? vb_err(st, "%s: %s", what, text) : vb_err(st, "%s", text);
}

vb_status vb_progress(struct vb_group *g)
{
    vb_status st;

    atomic_fetch_add_explicit(&g->app_polls, 1, memory_order_relaxed);
    group_lock(g);
    vb_group_round(g);
    group_unlock(g);
    st = vb_control_status(g->control, NULL, 0);
    return st == VB_OK ? VB_OK : log_failure(g, st, NULL);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

void vb_group_wake(void *arg)
{
    struct vb_group *g = arg;
    uint64_t one = 1;

    if (write(g->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        VB_LOG_WARN("cannot write an eventfd: %s", strerror(errno));
}

/* Caller and progress thread may both be asleep. The last one to wake up disarms the devices. */
void vb_group_arm(struct vb_group *g)
{
    int d;

    g->armed++;
    for (d = 0; d < g->n_devices; d++)
        vb_device_transport(g->devices[d])->arm(g->devices[d]);
}

void vb_group_disarm(struct vb_group *g)
{
    int d;

    if (--g->armed > 0)
        return;
    for (d = 0; d < g->n_devices; d++)
        vb_device_transport(g->devices[d])->disarm(g->devices[d]);
}

/* The caller holds the lock, which is released during the sleep. */
void vb_group_sleep(struct vb_group *g, int ms)
{
    struct epoll_event ev[DEVICES_MAX + 1];
    uint64_t count;
    int i, n;

    group_unlock(g);
    n = epoll_wait(g->epoll_fd, ev, DEVICES_MAX + 1, ms);
    for (i = 0; i < n; i++)
        if (ev[i].data.fd == g->wake_fd && read(g->wake_fd, &count, sizeof(count)) < 0 &&
            errno != EAGAIN)
            VB_LOG_WARN("cannot read an eventfd: %s", strerror(errno));
    group_lock(g);
}

/* The caller holds the lock, which is released during the sleep. */
static void sleep_in_epoll(struct vb_group *g, vb_ready_fn ready, void *arg, int ms)
{
    atomic_store_explicit(&g->app_sleeping, true, memory_order_relaxed);
    vb_group_arm(g);
    if (vb_group_round(g) == 0 && !ready(arg))
        vb_group_sleep(g, ms);
    vb_group_disarm(g);
    atomic_store_explicit(&g->app_sleeping, false, memory_order_relaxed);
}

static int sleep_in_device(struct vb_group *g, int ms)
{
    struct vb_raw_event ev[EVENTS];
    int n = 0;

    if (has_self(g))
        return deliver_self(g);
    if (vb_device_transport(g->devices[0])->await(g->devices[0], ev, EVENTS, ms, &n) != VB_OK)
        return 0;
    return deliver_events(g, g->devices[0], ev, n);
}

/* ---- waiting --------------------------------------------------------------------------------- */

void vb_group_set_never_spin(struct vb_group *g, bool never_spin)
{
    group_lock(g);
    g->opts.never_spin = never_spin;
    group_unlock(g);
}

bool vb_group_never_spins(struct vb_group *g)
{
    bool never;

    group_lock(g);
    never = g->opts.never_spin;
    group_unlock(g);
    return never;
}

/* How long a wait has found no events. */
struct idle {
    uint64_t since_ns; /* the time of the first round without events; 0: the last round had some */
    int rounds;
};

static bool keep_spinning(struct vb_group *g, struct idle *p)
{
    uint64_t now;

    if (g->opts.never_spin)
        return false;
    p->rounds++;
    if (!g->opts.crowded && p->rounds % 16 != 0) {
        vb_cpu_relax();
        return true;
    }
    now = vb_clock_ns();
    if (p->since_ns == 0)
        p->since_ns = now;
    if (now - p->since_ns >= (g->opts.crowded ? YIELDS_NS : SPIN_NS))
        return false;
    if (g->opts.crowded) { /* yield, because the rank that this one waits for may need this cpu */
        group_unlock(g);
        sched_yield();
        group_lock(g);
    }
    return true;
}

static vb_status timed_out(struct vb_group *g, const char *what, int from)
{
    char doing[WIRE_BEAT_TEXT];
    struct wire_beat beat;
    double silence;

    if (from < 0)
        return vb_err(VB_ERR_TIMEOUT, "timeout: waited %.1f s for %s", g->opts.timeout_ms / 1000.0,
                      what);
    silence = vb_control_silence_s(g->control, from, &beat);
    vb_wire_beat_text(&beat, doing);
    return vb_err(
        VB_ERR_TIMEOUT,
        "timeout: waited %.1f s for rank %d (%s) to complete %s; that rank last answered %.1f s "
        "ago%s%s",
        g->opts.timeout_ms / 1000.0, from, vb_group_host(g, from), what, silence,
        doing[0] != '\0' ? ", " : "", doing);
}

/* Returns VB_OK if a wait can continue; otherwise logs why it cannot. */
static vb_status wait_failure(struct vb_group *g, const char *what, int from, uint64_t deadline)
{
    vb_status st = vb_control_status(g->control, NULL, 0);

    if (st != VB_OK)
        return log_failure(g, st, what);
    if (g->opts.elastic && from >= 0 && g->peers[from].gone)
        return vb_err(VB_ERR_PEER, "rank %d (%s) is gone (%s); this rank waited for %s", from,
                      vb_group_host(g, from), g->peers[from].why, what);
    if (!g->opts.elastic && from >= 0 && from != g->rank && vb_control_has_left(g->control, from))
        return vb_err(VB_ERR_PEER, "rank %d (%s) has left; this rank waited for %s", from,
                      vb_group_host(g, from), what);
    return vb_clock_ns() >= deadline ? timed_out(g, what, from) : VB_OK;
}

bool vb_group_try(struct vb_group *g, vb_ready_fn ready, void *arg)
{
    bool is_ready;

    group_lock(g);
    do {
        is_ready = ready(arg);
    } while (!is_ready && vb_group_round(g) > 0);
    atomic_fetch_add_explicit(&g->app_polls, 1, memory_order_relaxed);
    group_unlock(g);
    return is_ready;
}

/* A wait has a deadline, which moves on while data of the awaited rank arrives: a slow link is no
 * failure. */
struct patience {
    uint64_t deadline; /* 0: not set yet */
    unsigned heard;
};

static uint64_t deadline_of(struct vb_group *g, struct patience *p, int from)
{
    unsigned heard = from < 0 ? 0 : atomic_load_explicit(&g->heard[from], memory_order_relaxed);

    if (p->deadline == 0 || heard != p->heard)
        p->deadline = group_deadline(g);
    p->heard = heard;
    return p->deadline;
}

vb_status vb_group_wait_for(struct vb_group *g, vb_ready_fn ready, void *arg, const char *what,
                            const int *from_p)
{
    struct patience patience = {0};
    struct idle idle = {0};
    vb_status st = VB_OK;
    uint64_t deadline;
    bool sleeps = false;

    group_lock(g);
    while (!ready(arg)) {
        if (vb_group_round(g) > 0) {
            memset(&idle, 0, sizeof(idle));
            continue;
        }
        if (keep_spinning(g, &idle))
            continue;
        deadline = deadline_of(g, &patience, *from_p);
        st = wait_failure(g, what, *from_p, deadline);
        if (st != VB_OK)
            break;
        vb_control_waits(g->control, sleeps = true, *from_p);
        if (g->n_devices == 1 && !g->front.threaded &&
            vb_device_transport(g->devices[0])->await != NULL)
            sleep_in_device(g, vb_sock_ms_left(deadline, GROUP_SLEEP_MS));
        else
            sleep_in_epoll(g, ready, arg, vb_sock_ms_left(deadline, GROUP_SLEEP_MS));
        memset(&idle, 0, sizeof(idle));
    }
    if (sleeps)
        vb_control_waits(g->control, false, -1);
    atomic_fetch_add_explicit(&g->app_polls, 1, memory_order_relaxed);
    group_unlock(g);
    return st;
}

vb_status vb_group_wait(struct vb_group *g, vb_ready_fn ready, void *arg, const char *what,
                        int from)
{
    uint64_t begin_ns = vb_trace_begin();
    vb_status st = vb_group_wait_for(g, ready, arg, what, &from);

    vb_trace_end_with(begin_ns, from >= 0 ? VB_OP_WAIT : VB_OP_IDLE, 0, from, 0, VB_TRACE_SPAN);
    return st;
}

static bool op_done(void *arg)
{
    return ((const struct vb_op *)arg)->done;
}

vb_status vb_op_wait(struct vb_group *g, struct vb_op *op, const char *what, int from)
{
    vb_status st = vb_group_wait(g, op_done, op, what, from);

    if (st != VB_OK || op->status == VB_OK)
        return st;
    if (from < 0)
        return vb_err(op->status, "%s failed: %s", what, vb_status_str(op->status));
    return vb_err(op->status, "%s failed with rank %d (%s): %s", what, from, vb_group_host(g, from),
                  vb_status_str(op->status));
}
