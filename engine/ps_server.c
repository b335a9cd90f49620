/* SPDX-License-Identifier: MIT
 *
 * A server: one thread that takes in pushes in the order of their arrival, applies them, and
 * tells the workers. Notes are queued by their handler; everything else happens between two looks
 * at the queue. What a worker is to the server is its client.
 */
#include "engine/ps_priv.h"

#include <string.h>
#include <time.h>

#define WAIT_NS 100000000u

/* ---- pushes ---------------------------------------------------------------------------------- */

/* Adds a gradient whose parameters were older by that many gradients of others. */
void ps_stale_add(struct vb_stale *stale, uint64_t by)
{
    int b = 0;

    stale->n++;
    stale->sum += by;
    stale->max = by > stale->max ? by : stale->max;
    for (; by > 0 && b < VB_STALE_BUCKETS - 1; by >>= 1)
        b++;
    stale->bucket[b]++;
}

/* Gradients of others between reading and applying: at most two of its own were not in what it has
 * read. */
static void note_staleness(struct ps_server *s, struct ps_client *client,
                           const struct ps_push *push)
{
    uint64_t base = push->base, now = ps_version_of(s), by;
    int i;

    if (push->flags & PS_BASE_REPLY)
        base = client->reply_version[base % 4];
    by = now > base ? now - base : 0;
    for (i = 0; i < 2; i++)
        by -= by > 0 && client->made[i] > base;
    client->made[client->n_made++ % 2] = now + 1;
    ps_stale_add(&client->stale, by);
}

static void lap(struct ps_server *s, uint64_t *ns)
{
    uint64_t now = vb_clock_ns();

    *ns += now - s->stats.mark_ns;
    s->stats.mark_ns = now;
}

static vb_status acknowledge(struct ps_server *s, int worker)
{
    s->clients[worker].clock++;
    return ps_notify(s, worker, PS_ACK);
}

static bool is_due(int64_t every, uint64_t version)
{
    return every > 0 && version % (uint64_t)every == 0;
}

static void count_step(struct ps_server *s)
{
    uint64_t now = atomic_fetch_add_explicit(&s->head->version, 1, memory_order_release) + 1;

    if (s->k == 0 && now < (uint64_t)s->job->steps)
        s->due |= (is_due(s->job->eval_every, now) ? PS_EVAL : 0u) |
                  (is_due(s->job->save_every, now) ? PS_SAVE : 0u);
    s->stats.applied++;
    vb_group_step(s->group);
}

/* The keys that came with a push are those of the next. How many is noted: the worker may write to
 * its slot again. */
static void note_keys(const struct ps_server *s, struct ps_client *client,
                      const struct ps_push *push, int slot)
{
    if (!s->job->sparse || (push->flags & PS_OWN_KEYS))
        return;
    client->keys.to_answer = client->keys.for_ticket = true;
    client->keys.slot = slot;
    client->keys.n_values = push->n_values;
    client->keys.n = push->n_keys;
    client->keys.reply_at = push->reply_at;
}

static void add_wait(struct ps_client *client, uint64_t by_ns)
{
    client->waits.n += by_ns >= 20000;
    client->waits.ns += by_ns;
    client->waits.max_ns = by_ns > client->waits.max_ns ? by_ns : client->waits.max_ns;
}

/* After a gradient that others may have waited for. */
static vb_status release_waiting(struct ps_server *s, struct ps_client *client)
{
    vb_status st;

    s->stalled_ns = 0;
    st = ps_notify_all(s);
    if (s->stalled_ns > 0)
        add_wait(client, s->stalled_ns);
    return st;
}

static vb_status apply_now(struct ps_server *s, int worker, int slot)
{
    const struct ps_push *push = ps_push_in(s, worker, slot);
    struct ps_client *client = &s->clients[worker];
    vb_status st;

    lap(s, &s->stats.notify_ns);
    st = ps_apply(s, worker, push);
    if (st != VB_OK)
        return st;
    note_keys(s, client, push, slot);
    note_staleness(s, client, push);
    s->stats.samples += push->samples;
    count_step(s);
    lap(s, &s->stats.apply_ns);
    st = acknowledge(s, worker);
    if (st == VB_OK && (s->job->bound > 0 || ps_version_of(s) == (uint64_t)s->job->steps))
        st = release_waiting(s, client);
    return st;
}

static int round_size(const struct ps_server *s)
{
    int w, n = 0;

    for (w = 0; w < ps_clients(s->job); w++)
        n += s->clients[w].member && !s->clients[w].ended;
    return n - s->job->backup > 1 ? n - s->job->backup : 1;
}

/* The round is complete: all that took part are acknowledged, and the next one begins. */
static vb_status close_round(struct ps_server *s)
{
    vb_status st;
    int w;

    lap(s, &s->stats.notify_ns);
    st = ps_apply_round(s);
    if (st != VB_OK)
        return st;
    for (w = 0; w < ps_clients(s->job); w++)
        if (s->clients[w].round.held)
            note_staleness(s, &s->clients[w], s->clients[w].round.push);
    count_step(s);
    lap(s, &s->stats.apply_ns);
    s->round.n_held = 0;
    s->round.number++;
    for (w = 0; w < ps_clients(s->job) && st == VB_OK; w++) {
        bool held = s->clients[w].round.held;

        s->clients[w].round.held = false;
        if (held)
            st = acknowledge(s, w);
    }
    return st == VB_OK ? ps_notify_all(s) : st;
}

static void note_wait(struct ps_server *s, struct ps_client *client)
{
    uint64_t now = vb_clock_ns(), by = now - s->round.held_ns;

    s->round.held_ns = now;
    if (s->round.n_held == round_size(s) && s->round.n_held >= 2)
        add_wait(client, by);
}

/* Bound 0. With backups there is one server, which knows the round from the ticket. */
static vb_status hold(struct ps_server *s, int worker, int slot)
{
    const struct ps_push *push = ps_push_in(s, worker, slot);
    struct ps_client *client = &s->clients[worker];
    vb_status st;

    if (client->round.held)
        return vb_err(VB_ERR_INPUT, "worker %d pushed two gradients of one round", worker);
    st = ps_hold(s, worker, push);
    note_keys(s, client, push, slot);
    if (st == VB_OK && s->job->backup > 0 && client->round.ticket < s->round.number) {
        client->stale.dropped++;
        return acknowledge(s, worker);
    }
    if (st != VB_OK)
        return st;
    client->round.held = true;
    s->round.n_held++;
    note_wait(s, client);
    return s->round.n_held >= round_size(s) ? close_round(s) : VB_OK;
}

static vb_status take_push(struct ps_server *s, int worker, uint32_t slot)
{
    struct ps_client *client = &s->clients[worker];
    const struct ps_push *push;

    if (slot >= (uint32_t)s->lay.slots)
        return vb_err(VB_ERR_INPUT, "worker %d names slot %u", worker, slot);
    push = ps_push_in(s, worker, (int)slot);
    if (push->seq != client->pushes)
        return vb_err(VB_ERR_INPUT, "worker %d pushed number %u, not %u", worker, push->seq,
                      client->pushes);
    if (!ps_push_is_sane(s, push))
        return vb_err(VB_ERR_INPUT, "worker %d pushed numbers that cannot be", worker);
    client->pushes++;
    if (!(push->flags & PS_NO_GRADIENT))
        return s->job->bound == 0 ? hold(s, worker, (int)slot) : apply_now(s, worker, (int)slot);
    note_keys(s, client, push, (int)slot);
    return ps_notify(s, worker, PS_ACK);
}

/* ---- the queue ------------------------------------------------------------------------------- */

void ps_server_queue(struct ps_server *s, int worker, uint32_t value)
{
    unsigned end = s->queue.end;

    if (end - s->queue.first >= s->queue.size)
        return;
    s->queue.arrivals[end % s->queue.size] = (struct ps_arrival){worker, value};
    s->queue.end = end + 1;
}

/* A vb_note_fn. A worker has a few notes under way at most; two places each are kept for its end.
 */
void ps_server_note(void *arg, int rank, uint32_t value)
{
    struct ps_server *s = arg;
    unsigned room = s->queue.size - 2 * (unsigned)ps_clients(s->job);
    int worker = ps_worker_at(s->job, rank);

    if (worker < 0 && rank != s->partner.rank)
        return; /* it means nothing here */
    if (PS_KIND(value) == PS_GONE || s->queue.end - s->queue.first >= room)
        s->queue.flooded = true;
    else
        ps_server_queue(s, worker >= 0 ? worker : PS_PARTNER, value);
}

struct waiting {
    struct ps_server *server;
    uint64_t until_ns;
};

static bool something_to_do(void *arg)
{
    const struct waiting *w = arg;

    return w->server->queue.end != w->server->queue.first || vb_clock_ns() >= w->until_ns;
}

static bool all_ended(const struct ps_server *s)
{
    int w;

    for (w = 0; w < ps_clients(s->job); w++)
        if (s->clients[w].member && !s->clients[w].ended)
            return false;
    return true;
}

static vb_status take_end(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];

    client->ended = true;
    if (s->job->hogwild)
        client->stale = *(const struct vb_stale *)(const void *)(ps_push_in(s, worker, 0) + 1);
    s->done = all_ended(s);
    if (s->done)
        return VB_OK;
    if (s->job->bound == 0 && s->round.n_held > 0 && s->round.n_held >= round_size(s))
        return close_round(s);
    return s->job->bound > 0 ? ps_notify_all(s) : VB_OK; /* the slowest may be another now */
}

/* There is room for one, which must stay until it was read: one worker at a time. */
static vb_status take_snapshot(struct ps_server *s)
{
    int w;

    for (w = 0; w < ps_clients(s->job) && s->reader < 0; w++) {
        if (s->clients[w].wants_snap == 0)
            continue;
        if (!s->standby)
            ps_snapshot(s, s->clients[w].wants_snap == 2);
        else if (s->sparse != NULL && s->clients[w].wants_snap == 2)
            vb_k_sparse_settle(s->sparse); /* which the server's snapshot does */
        s->clients[w].wants_snap = 0;
        s->reader = w;
        return ps_send_note(s, w, PS_SNAPPED, 0);
    }
    return VB_OK;
}

static vb_status snapshot_read(struct ps_server *s, int worker)
{
    if (s->reader == worker)
        s->reader = -1;
    return take_snapshot(s);
}

/* Nothing that a worker has sent counts once it is retired. */
vb_status ps_process(struct ps_server *s, struct ps_arrival a)
{
    if (!s->clients[a.worker].member && PS_KIND(a.value) != PS_HELLO &&
        PS_KIND(a.value) != PS_GONE && PS_KIND(a.value) != PS_FAILOVER)
        return VB_OK;
    switch (PS_KIND(a.value)) {
    case PS_PUSH:
        return take_push(s, a.worker, PS_ARG(a.value));
    case PS_SNAP:
        s->clients[a.worker].wants_snap = 1 + (int)(a.value & 1);
        return take_snapshot(s);
    case PS_READ:
        return snapshot_read(s, a.worker);
    case PS_END:
        return take_end(s, a.worker);
    case PS_HELLO:
        return ps_member_hello(s, a.worker, PS_ARG(a.value));
    case PS_GONE:
        return ps_member_gone(s, a.worker);
    case PS_BYE:
        s->clients[a.worker].bye = true;
        return VB_OK;
    case PS_FAILOVER: /* of one that this server has not waited for */
        s->clients[a.worker].failover.called = true;
        return ps_confirm_failover(s, a.worker);
    default:
        break;
    }
    return vb_err(VB_ERR_INPUT, "worker %d sent a note that is none: %x", a.worker, a.value);
}

static vb_status dispatch(struct ps_server *s, struct ps_arrival a)
{
    return s->partner.rank < 0 ? ps_process(s, a) : ps_replicate(s, a);
}

vb_status ps_server_round(struct ps_server *s)
{
    struct waiting waiting = {s, 0};
    vb_status st;

    lap(s, &s->stats.notify_ns);
    waiting.until_ns = s->stats.mark_ns + WAIT_NS;
    st = ps_wait(s->group, something_to_do, &waiting, "a gradient", -1);
    lap(s, &s->stats.idle_ns);
    if (st == VB_OK && s->queue.flooded)
        return vb_err(VB_ERR_INPUT, "a worker has sent more notes than there can be");
    while (st == VB_OK && s->queue.first != s->queue.end) {
        struct ps_arrival a = s->queue.arrivals[s->queue.first % s->queue.size];

        s->queue.first++;
        st = dispatch(s, a);
    }
    return st;
}

static uint64_t cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

vb_status ps_server_begin(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    s->stats.begin_ns = s->stats.mark_ns = vb_clock_ns();
    s->stats.cpu_ns = cpu_ns();
    for (w = 0; w < ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member)
            st = ps_notify_first(s, w);
    return st;
}

void ps_server_conclude(struct ps_server *s)
{
    s->final = true;
    s->stats.total_ns = vb_clock_ns() - s->stats.begin_ns;
    s->stats.cpu_ns = cpu_ns() - s->stats.cpu_ns;
    if (s->job->hogwild)
        s->stats.applied = (int64_t)ps_version_of(s) - s->job->begin;
    ps_snapshot(s, true);
}

vb_status ps_server_finish(struct ps_server *s)
{
    vb_status st = VB_OK;
    int w;

    if (!s->final)
        ps_server_conclude(s);
    if (!s->standby && s->on_final != NULL)
        st = s->on_final(s, s->final_arg);
    for (w = 0; w < ps_clients(s->job) && st == VB_OK; w++)
        if (s->clients[w].member)
            st = ps_send_note(s, w, PS_FINAL, 0);
    return st;
}

/* Workers that have not said goodbye. */
static int n_left(const struct ps_server *s)
{
    int w, n = 0;

    for (w = 0; w < ps_clients(s->job); w++)
        n += s->clients[w].member && !s->clients[w].bye;
    return n;
}

/* One worker after the other may read a large snapshot, so there is time for each. */
vb_status ps_server_linger(struct ps_server *s)
{
    uint64_t until = vb_clock_ns() + PS_PUT_NS;
    int left = n_left(s);
    vb_status st = VB_OK;

    while (st == VB_OK && !(s->standby ? ps_standby_is_done(s) : left == 0)) {
        st = ps_server_round(s);
        if (n_left(s) < left)
            until = vb_clock_ns() + PS_PUT_NS;
        left = n_left(s);
        if (vb_clock_ns() > until && s->standby)
            return VB_OK; /* nobody has missed it */
        if (vb_clock_ns() > until)
            return vb_err(VB_ERR_TIMEOUT, "workers do not leave");
    }
    return st;
}

vb_status ps_server_run(struct ps_server *s)
{
    vb_status st = ps_server_begin(s);

    while (st == VB_OK && !s->done)
        st = ps_server_round(s);
    return st == VB_OK ? ps_server_finish(s) : st;
}

/* ---- who takes part
 * -------------------------------------------------------------------------- */

vb_status ps_server_retire(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];
    vb_status st;

    if (!client->member)
        return VB_OK;
    if (s->job->bound != 0)
        s->granted -= client->granted - client->clock; /* for others to use */
    s->round.n_held -= client->round.held;
    client->member = client->round.held = false;
    client->wants_snap = 0;
    if (s->final)
        return VB_OK;
    s->done = all_ended(s);
    if (s->done)
        return VB_OK;
    st = snapshot_read(s, worker);
    if (st == VB_OK)
        st = ps_member_shares(s); /* before the tickets of the next round */
    if (st != VB_OK)
        return st;
    if (s->job->bound == 0 && s->round.n_held > 0 && s->round.n_held >= round_size(s))
        return close_round(s);
    return ps_notify_all(s);
}

vb_status ps_server_admit(struct ps_server *s, int worker)
{
    struct ps_client *client = &s->clients[worker];
    int64_t clock = ps_slowest(s);
    bool mapped = client->mapped;
    vb_status st = VB_OK;

    if (client->member)
        return VB_OK;
    memset(client, 0, offsetof(struct ps_client, waits)); /* ops may be under way */
    client->member = client->was_member = true;
    client->mapped = mapped;
    client->base = client->clock = client->granted = clock == INT64_MAX ? 0 : clock;
    client->round.ticket = s->round.number - 1;
    s->mapped = s->mapped || mapped;
    s->done = false;
    if (s->job->replicas > 1 && s->partner.rank < 0)
        st = ps_send_note(s, worker, PS_NOTICE, PS_ALONE);
    if (st == VB_OK)
        st = ps_member_shares(s);
    return st == VB_OK ? ps_notify_first(s, worker) : st;
}
