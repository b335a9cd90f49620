/* SPDX-License-Identifier: MIT
 *
 * A server removes a worker that has sent something invalid, or that holds up the others although
 * it is alive. The group drops the worker and tells it why. Then PS_GONE is queued, as if the
 * worker had died, and with replicas it is forwarded, so that the standby makes the same decision.
 */
#include "engine/ps/ps.h"

#define LOOK_NS 100000000u
#define LOOK_MAX_NS 1000000000u /* a longer pause is that of this process, and not of a worker */
#define BUSY_MS 3600000         /* how long a worker may evaluate or save while others wait */

/* ---- removing -------------------------------------------------------------------------------- */

/* With several servers each one waits for the worker, so each one must remove it. */
static vb_status tell_servers(struct ps_server *s, int worker)
{
    int i, rank = vb_group_rank(s->group), first = vb_ps_server_rank(s->job, 0);
    struct vb_op *op;
    vb_status st = VB_OK;

    for (i = first; i < first + vb_ps_server_ranks(s->job) && st == VB_OK; i++) {
        if (i == rank || vb_ps_server_at(s->job, i) == s->k || !vb_group_member(s->group, i))
            continue;
        st = vb_ps_ring_take(s->group, &s->expel_ops, "a note to another server", &op);
        if (st == VB_OK)
            st = vb_ps_put(s->slots, i, 0, 0, 0, PS_NOTE(PS_EXPEL, worker), op);
        st = st == VB_ERR_PEER ? VB_OK : st;
    }
    return st;
}

static vb_status drop(struct ps_server *s, int worker, const char *why)
{
    vb_status st = vb_group_retire(s->group, vb_ps_worker_rank(s->job, worker), why);

    return st == VB_ERR_USAGE ? VB_ERR_INPUT : st; /* the group is not elastic */
}

vb_status vb_ps_expel(struct ps_server *s, int worker, const char *why)
{
    vb_status st;

    if (s->clients[worker].expelled)
        return VB_OK;
    s->clients[worker].expelled = s->clients[worker].removed = true;
    st = tell_servers(s, worker);
    return st == VB_OK ? drop(s, worker, why) : st;
}

vb_status vb_ps_expel_invalid(struct ps_server *s, int worker, const char *what)
{
    char why[200];
    int rank = vb_ps_worker_rank(s->job, worker);

    snprintf(why, sizeof(why), "worker %d (%.40s) " PS_INVALID ": %s", worker,
             vb_group_host(s->group, rank), what);
    VB_LOG_WARN("server %d removes rank %d: %s", s->k, rank, why);
    return vb_ps_expel(s, worker, why);
}

vb_status vb_ps_expel_strays(struct ps_server *s)
{
    vb_status st = VB_OK;
    char what[64];
    uint32_t stray;
    int w;

    s->queue.strayed = false;
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++) {
        stray = atomic_exchange(&s->clients[w].stray, 0);
        if (stray == 0)
            continue;
        if (stray == PS_TOO_MANY)
            snprintf(what, sizeof(what), "more than %d notes at a time", PS_NOTES_MAX);
        else
            snprintf(what, sizeof(what), "an unknown note, %x", stray);
        st = vb_ps_expel_invalid(s, w, what);
    }
    return st;
}

/* ---- notes that come ------------------------------------------------------------------------- */

/* Returns whether a worker may send this kind of note to this server. Workers send only a hello or
 * a failover to a standby; without replicas there is no failover. Only a worker that was told to
 * save may stop the job because of a checkpoint. */
static bool may_come(const struct ps_server *s, const struct ps_client *client, uint32_t value)
{
    enum ps_kind kind = PS_KIND(value);

    if (kind == PS_INTERRUPT && (s->k != 0 || PS_ARG(value) >= PS_SIGNALS))
        return false;
    if (kind == PS_STOP && PS_ARG(value) >= PS_STOPS)
        return false;
    if (kind == PS_STOP && PS_ARG(value) == PS_UNSAVED && s->k == 0 && !s->job->hogwild &&
        client->saves == 0)
        return false;
    if (kind == PS_FAILOVER)
        return s->job->replicas > 1;
    return !s->standby || kind == PS_HELLO;
}

vb_status vb_ps_receive(struct ps_server *s, struct ps_arrival a, bool *take_p)
{
    struct ps_client *client = &s->clients[a.worker];
    enum ps_kind kind = PS_KIND(a.value);
    char what[160];

    *take_p = kind == PS_GONE;
    if (kind == PS_GONE)
        client->expelled = false; /* from now on the slot may have another worker */
    if (kind == PS_EXPEL && client->member && !client->expelled && !s->standby) {
        client->expelled = client->removed = true;
        return drop(s, a.worker, "another server has removed this worker");
    }
    if (kind == PS_GONE || kind == PS_EXPEL || client->expelled)
        return VB_OK;
    snprintf(what, sizeof(what), "note %x, which is not allowed now", a.value);
    if (!may_come(s, client, a.value))
        return vb_ps_expel_invalid(s, a.worker, what);
    if (kind == PS_PUSH && client->member &&
        !vb_ps_accept(s, a.worker, PS_ARG(a.value), what, sizeof(what)))
        return vb_ps_expel_invalid(s, a.worker, what);
    *take_p = kind != PS_PUSH || client->member;
    return VB_OK;
}

/* ---- workers that are stuck ------------------------------------------------------------------ */

/* Which waits of workers are under way. */
struct waiting {
    bool round;    /* bound 0: the round has gradients, but not all of them */
    bool bound;    /* a worker waits for the slowest */
    bool tickets;  /* all tickets are given, and a worker without one waits for the last steps */
    bool snapshot; /* a worker waits until another one has read the snapshot */
    bool end;      /* a worker has ended and waits for the others */
    int64_t slowest;
};

static struct waiting who_waits(const struct ps_server *s)
{
    bool last = s->k == 0 && s->job->bound != 0 && !s->job->hogwild && vb_ps_no_steps_left(s);
    struct waiting waits = {.round = s->job->bound == 0 && s->round.n_held > 0,
                            .slowest = vb_ps_slowest(s)};
    int w;

    for (w = 0; w < vb_ps_clients(s->job); w++) {
        const struct ps_client *client = &s->clients[w];

        waits.bound |= client->member && client->stalled_ns != 0;
        waits.tickets |= last && ps_is_working(client) && client->granted == client->clock;
        waits.snapshot |= client->member && client->wants_snap != 0;
        waits.end |= client->member && client->ended;
    }
    return waits;
}

/* Returns how long others may wait for this worker, which has done nothing; 0: nobody waits. */
static int64_t limit_ms(const struct ps_server *s, int worker, const struct waiting *waits)
{
    const struct ps_client *client = &s->clients[worker];
    int64_t ms = client->busy ? BUSY_MS : s->job->stuck_ms;

    if (!ps_is_working(client) || client->expelled)
        return 0;
    if ((waits->round && !client->round.held) ||
        (waits->bound && client->clock == waits->slowest) ||
        (waits->tickets && client->granted > client->clock))
        return ms;
    if (waits->snapshot && s->reader == worker)
        return s->job->stuck_ms;
    return waits->end ? BUSY_MS : 0;
}

static vb_status expel_stuck(struct ps_server *s, int worker)
{
    int rank = vb_ps_worker_rank(s->job, worker);
    char why[160];

    snprintf(why, sizeof(why),
             "worker %d (%.40s) has made no progress for %.0f s while others waited", worker,
             vb_group_host(s->group, rank), (double)s->clients[worker].waited_ns / 1e9);
    return vb_ps_expel(s, worker, why);
}

/* A push over a slow link may take longer than any limit. */
static bool moves_data(const struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];
    unsigned before = client->moved;

    client->moved = vb_group_moved(s->group, vb_ps_worker_rank(s->job, worker));
    return client->moved != before;
}

/* The time is added up in small parts, so that a pause of this process does not count. */
vb_status vb_ps_expel_stuck(struct ps_server *s)
{
    uint64_t ns = s->stats.mark_ns - s->looked_ns;
    struct waiting waits;
    vb_status st = VB_OK;
    int w;

    if (s->job->stuck_ms == 0 || ns < LOOK_NS || s->standby || s->final)
        return VB_OK;
    s->looked_ns = s->stats.mark_ns;
    waits = who_waits(s);
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++) {
        struct ps_client *client = &s->clients[w];
        int64_t ms = limit_ms(s, w, &waits);

        client->waited_ns = !moves_data(s, w) && ms > 0
                                ? client->waited_ns + (ns < LOOK_MAX_NS ? ns : LOOK_MAX_NS)
                                : 0;
        if (ms > 0 && client->waited_ns > (uint64_t)ms * 1000000u)
            st = expel_stuck(s, w);
    }
    return st;
}
