/* SPDX-License-Identifier: MIT
 *
 * A server is one thread that processes the notes of workers in the order of their arrival. The
 * note handler only queues the notes; the server's thread does everything else.
 */
#include "engine/ps/ps.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define WAIT_NS 100000000u
#define LINGER_S 60 /* after the end: how long a server waits for the next worker to leave */
#define NO_TICKETS (INT64_MAX / 2) /* hogwild: more than any number of steps */

/* ---- the queue ------------------------------------------------------------------------------- */

void vb_ps_server_queue(struct ps_server *s, int worker, uint32_t value)
{
    unsigned end = s->queue.end;

    if (end - s->queue.first >= s->queue.size)
        return;
    s->queue.arrivals[end % s->queue.size] = (struct ps_arrival){worker, value};
    s->queue.end = end + 1;
}

/* A worker has only a few notes under way, so the queue has room for all of them. */
static void queue_worker(struct ps_server *s, int worker, uint32_t value)
{
    struct ps_client *client = &s->clients[worker];

    if ((int)PS_KIND(value) < PS_GONE && client->notes < PS_NOTES_MAX) {
        client->notes++;
        vb_ps_server_queue(s, worker, value);
        return;
    }
    client->stray = (int)PS_KIND(value) < PS_GONE ? PS_TOO_MANY : value;
    s->queue.strayed = true;
}

void vb_ps_server_note(void *arg, int rank, uint32_t value)
{
    struct ps_server *s = arg;
    int worker = vb_ps_worker_at(s->job, rank);

    if (worker >= 0)
        queue_worker(s, worker, value);
    else if (rank == s->partner.rank)
        vb_ps_server_queue(s, PS_PARTNER, value);
    else if (PS_KIND(value) == PS_EXPEL && (int)PS_ARG(value) < vb_ps_clients(s->job))
        vb_ps_server_queue(s, (int)PS_ARG(value), PS_VALUE(PS_EXPEL, 0));
}

/* ---- notes of workers ------------------------------------------------------------------------ */

static vb_status take_end(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];

    client->ended = true;
    if (s->job->hogwild)
        client->stale = *(const struct vb_stale *)(const void *)(vb_ps_push_in(s, worker, 0) + 1);
    s->done = vb_ps_first_worker(s) < 0;
    if (s->done)
        return VB_OK;
    if (vb_ps_round_is_complete(s))
        return vb_ps_close_round(s);
    return s->job->bound > 0 ? vb_ps_notify_all(s)
                             : VB_OK; /* another worker may be the slowest now */
}

static vb_status open_gate(struct ps_server *s)
{
    s->gate = -1;
    return vb_ps_notify_all(s);
}

/* Tells the reader, when its snapshot is complete. */
static vb_status look_at_snapshot(struct ps_server *s)
{
    if (!vb_ps_snap_step(s) || !s->snapping)
        return VB_OK;
    s->snapping = false;
    return s->reader >= 0 ? vb_ps_send_note(s, s->reader, PS_SNAPPED, 0) : VB_OK;
}

/* A snapshot that is made beside training has its version already. */
static vb_status snapshot_begun(struct ps_server *s, int worker)
{
    if (!vb_ps_snaps_beside(s->job))
        return look_at_snapshot(s);
    return s->gate >= 0 && s->gate_worker == worker ? open_gate(s) : VB_OK;
}

/* A server has space for one snapshot, which must stay unchanged until it was read. So workers get
 * their snapshots one after the other. */
static vb_status take_snapshot(struct ps_server *s)
{
    int w;

    for (w = 0; w < vb_ps_clients(s->job) && s->reader < 0; w++) {
        if (s->clients[w].wants_snap == 0)
            continue;
        if (!s->standby)
            vb_ps_snap_begin(s, s->clients[w].wants_snap == 2);
        s->clients[w].wants_snap = 0;
        s->reader = w;
        s->snapping = true;
        return snapshot_begun(s, w);
    }
    return VB_OK;
}

/* The worker has read its snapshot, or is gone. */
static vb_status snapshot_read(struct ps_server *s, int worker)
{
    bool opens = s->gate >= 0 && s->gate_worker == worker &&
                 (!vb_ps_snaps_beside(s->job) || !s->clients[worker].member);
    vb_status st;

    if (s->reader == worker)
        s->reader = -1;
    st = take_snapshot(s);
    if (st != VB_OK || !opens)
        return st;
    return open_gate(s);
}

/* A worker could not write a checkpoint, or its loss is not finite. The next worker would fail in
 * the same way. */
static vb_status stop_job(struct ps_server *s, int worker, uint32_t arg)
{
    static const char *const reasons[PS_STOPS] = {[PS_UNSAVED] = "cannot write checkpoints",
                                                  [PS_NOT_FINITE] =
                                                      "has a loss that is not a finite number"};
    int rank = vb_ps_worker_rank(s->job, worker);
    char why[128];

    snprintf(why, sizeof(why), "the job stops, because rank %d (%.30s) %s", rank,
             vb_group_host(s->group, rank), reasons[arg]);
    vb_group_abort(s->group, why);
    return s->standby ? VB_ERR_PEER : vb_err(VB_ERR_PEER, "%s", why);
}

/* The user wants to stop, or the model is good enough. The steps that have begun, or that workers
 * have tickets for, are the last ones; with a bound of 0 that is the present round. Several workers
 * may ask. */
static vb_status interrupt(struct ps_server *s, uint32_t arg)
{
    static const int signals[PS_SIGNALS] = {SIGHUP, SIGINT, SIGTERM, PS_STOPPED_DONE};
    int64_t last = s->job->begin + (s->job->bound == 0 ? s->round.number + 1 : s->granted);

    if (s->job->hogwild)
        last = atomic_exchange(&s->head->claimed, NO_TICKETS);
    if (last >= s->steps)
        return VB_OK;
    s->steps = last;
    atomic_store(&s->head->stopped, signals[arg]);
    return vb_ps_notify_all(s);
}

/* The server ignores the notes of a worker that does not take part. */
vb_status vb_ps_process(struct ps_server *s, struct ps_arrival a)
{
    struct ps_client *client = &s->clients[a.worker];
    enum ps_kind kind = PS_KIND(a.value);

    if (!client->member && kind != PS_HELLO && kind != PS_GONE && kind != PS_FAILOVER)
        return VB_OK;
    switch (kind) {
    case PS_PUSH:
        return vb_ps_take_push(s, a.worker, PS_ARG(a.value));
    case PS_SNAP:
        client->wants_snap = 1 + (int)(a.value & 1);
        return take_snapshot(s);
    case PS_READ:
        return snapshot_read(s, a.worker);
    case PS_END:
        return take_end(s, a.worker);
    case PS_HELLO:
        return vb_ps_member_hello(s, a.worker, PS_ARG(a.value));
    case PS_GONE:
        return vb_ps_member_gone(s, a.worker);
    case PS_BYE:
        client->bye = true;
        return VB_OK;
    case PS_STOP:
        return stop_job(s, a.worker, PS_ARG(a.value));
    case PS_INTERRUPT:
        return interrupt(s, PS_ARG(a.value));
    case PS_FAILOVER: /* this server took over without waiting for this worker */
        client->failover.called = true;
        return vb_ps_confirm_failover(s, a.worker);
    default:
        return VB_OK; /* vb_ps_receive() lets no other kinds through */
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool something_to_do(void *arg)
{
    const struct ps_server *s = arg;

    return s->queue.end != s->queue.first || vb_clock_ns() >= s->stats.mark_ns + WAIT_NS;
}

static vb_status handle(struct ps_server *s, struct ps_arrival a)
{
    bool take = true;
    vb_status st = VB_OK;

    if (a.worker != PS_PARTNER) {
        st = vb_ps_receive(s, a, &take);
        if (!take || s->standby || s->partner.rank < 0) /* otherwise it goes into the log */
            ps_note_done(s, a);
    }
    if (st != VB_OK || !take)
        return st;
    return s->partner.rank < 0 ? vb_ps_process(s, a) : vb_ps_replicate(s, a);
}

vb_status vb_ps_server_round(struct ps_server *s)
{
    vb_status st;

    vb_ps_lap(s, &s->stats.notify_ns);
    st = s->snapping ? vb_progress(s->group)
                     : vb_ps_wait(s->group, something_to_do, s, "a gradient", -1);
    vb_ps_lap(s, &s->stats.idle_ns);
    if (st == VB_OK && s->queue.strayed)
        st = vb_ps_expel_strays(s);
    if (st == VB_OK)
        st = vb_ps_expel_stuck(s);
    if (st == VB_OK)
        st = vb_ps_without_partner(s);
    while (st == VB_OK && s->queue.first != s->queue.end) {
        struct ps_arrival a = s->queue.arrivals[s->queue.first % s->queue.size];

        s->queue.first++;
        st = handle(s, a);
    }
    return st == VB_OK && s->snapping ? look_at_snapshot(s) : st;
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

vb_status vb_ps_server_begin(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    s->stats.begin_ns = s->stats.mark_ns = s->looked_ns = vb_clock_ns();
    s->stats.cpu_ns = cpu_ns();
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member)
            st = vb_ps_notify_first(s, w);
    return st;
}

void vb_ps_server_conclude(struct ps_server *s)
{
    s->final = true;
    s->stats.total_ns = vb_clock_ns() - s->stats.begin_ns;
    s->stats.cpu_ns = cpu_ns() - s->stats.cpu_ns;
    if (s->job->hogwild)
        s->stats.applied = (int64_t)vb_ps_version_of(s) - s->job->begin;
    vb_ps_snapshot(s, true);
}

vb_status vb_ps_server_finish(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    if (!s->final)
        vb_ps_server_conclude(s);
    if (!s->standby && s->on_final != NULL)
        st = s->on_final(s, s->final_arg);
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member)
            st = vb_ps_send_note(s, w, PS_FINAL, 0);
    return st;
}

/* Returns the number of workers that have not sent PS_BYE. */
static int n_left(const struct ps_server *s)
{
    int w, n = 0;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        n += s->clients[w].member && !s->clients[w].bye;
    return n;
}

/* The deadline begins anew with each worker that leaves, because workers may read a large snapshot
 * one after the other. */
vb_status vb_ps_server_linger(struct ps_server *s)
{
    uint64_t deadline = vb_clock_ns() + LINGER_S * UINT64_C(1000000000);
    int left = n_left(s);
    vb_status st = VB_OK;

    while (st == VB_OK && (s->standby || left > 0)) {
        /* The server of a standby leaves the group when all workers have sent PS_BYE. */
        if (s->standby && s->partner.gone && vb_group_end(s->group, s->partner.rank) == VB_END_LEFT)
            return VB_OK;
        st = vb_ps_server_round(s);
        if (n_left(s) < left)
            deadline = vb_clock_ns() + LINGER_S * UINT64_C(1000000000);
        left = n_left(s);
        if (vb_clock_ns() > deadline && s->standby)
            return VB_OK; /* no worker has needed the standby */
        if (vb_clock_ns() > deadline)
            return vb_err(VB_ERR_TIMEOUT, "%d workers had not left the job %d s after its end",
                          left, LINGER_S);
    }
    return st;
}

vb_status vb_ps_server_run(struct ps_server *s)
{
    vb_status st = vb_ps_server_begin(s);

    while (st == VB_OK && !s->done)
        st = vb_ps_server_round(s);
    return st == VB_OK ? vb_ps_server_finish(s) : st;
}

/* ---- workers that go and join ---------------------------------------------------------------- */

vb_status vb_ps_server_retire(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];
    vb_status st;

    if (!client->member)
        return VB_OK;
    if (s->job->bound != 0)
        s->granted -= client->granted - client->clock; /* other workers get these tickets */
    s->round.n_held -= client->round.held;
    client->member = client->round.held = false;
    client->wants_snap = 0;
    if (s->final)
        return VB_OK;
    s->done = vb_ps_first_worker(s) < 0;
    if (s->done)
        return VB_OK;
    st = snapshot_read(s, worker);
    if (st == VB_OK)
        st = vb_ps_member_shares(s); /* the shares are sent before the tickets of the next round */
    if (st != VB_OK)
        return st;
    return vb_ps_round_is_complete(s) ? vb_ps_close_round(s) : vb_ps_notify_all(s);
}

vb_status vb_ps_server_admit(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];
    int64_t clock = vb_ps_slowest(s);
    bool mapped = client->mapped;
    vb_status st = VB_OK;

    if (client->member)
        return VB_OK;
    memset(client, 0, offsetof(struct ps_client, waits));
    client->member = client->was_member = true;
    client->mapped = mapped;
    client->base = client->clock = client->granted = clock == INT64_MAX ? 0 : clock;
    client->next_clock = s->k > 0 ? -1 : client->base;
    client->round.ticket = s->round.number - 1;
    s->mapped = s->mapped || mapped;
    s->done = false;
    if (s->job->replicas > 1 && s->partner.rank < 0)
        st = vb_ps_send_note(s, worker, PS_NOTICE, PS_ALONE);
    if (st == VB_OK)
        st = vb_ps_send_clock(s, worker);
    if (st == VB_OK)
        st = vb_ps_member_shares(s);
    return st == VB_OK ? vb_ps_notify_first(s, worker) : st;
}
