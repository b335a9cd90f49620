/* SPDX-License-Identifier: MIT
 *
 * A server processes a push that it has accepted (ps_accept.c): it applies or holds the gradient
 * (ps_apply.c), updates its statistics, and acknowledges the push.
 */
#include "base/trace.h"
#include "engine/ps/ps.h"

#define WAIT_MIN_NS 20000 /* shorter waits add to the total time, but are not counted */

void vb_ps_stale_add(struct vb_stale *stale, uint64_t by)
{
    int b = 0;

    stale->n++;
    stale->sum += by;
    stale->max = by > stale->max ? by : stale->max;
    for (; by > 0 && b < VB_STALE_BUCKETS - 1; by >>= 1)
        b++;
    stale->bucket[b]++;
}

/* Counts the gradients of other workers that were applied after the worker had read its parameters.
 * The parameters may lack up to two of the worker's own gradients, which do not count. */
static void note_staleness(struct ps_server *s, struct ps_client *client,
                           const struct ps_push *push)
{
    uint64_t base = push->base, now = vb_ps_version_of(s), by;
    int i;

    if (push->flags & PS_BASE_REPLY)
        base = client->reply_version[base % 4];
    by = now > base ? now - base : 0;
    for (i = 0; i < 2; i++)
        by -= by > 0 && client->made[i] > base;
    client->made[client->n_made++ % 2] = now + 1;
    vb_ps_stale_add(&client->stale, by);
}

void vb_ps_lap(struct ps_server *s, uint64_t *ns)
{
    uint64_t now = vb_clock_ns();

    *ns += now - s->stats.mark_ns;
    s->stats.mark_ns = now;
}

static bool is_due(int64_t every, uint64_t version)
{
    return every > 0 && version % (uint64_t)every == 0;
}

static void count_step(struct ps_server *s)
{
    uint64_t now = atomic_fetch_add_explicit(&s->head->version, 1, memory_order_release) + 1;

    if (s->k == 0 && now < (uint64_t)s->steps)
        s->due |= (is_due(s->job->eval_every, now) ? PS_EVAL : 0u) |
                  (is_due(s->job->save_every, now) ? PS_SAVE : 0u);
    if (s->due != 0 && s->job->bound != 0 && s->gate < 0)
        s->gate = (int64_t)now;
    s->stats.applied++;
    vb_group_step(s->group);
}

static void add_wait(struct ps_client *client, uint64_t ns)
{
    client->waits.n += ns >= WAIT_MIN_NS;
    client->waits.ns += ns;
    client->waits.max_ns = ns > client->waits.max_ns ? ns : client->waits.max_ns;
}

/* Remembers the keys of the worker's next batch. */
static void note_keys(const struct ps_server *s, struct ps_client *client,
                      const struct ps_taken *push)
{
    if (!s->job->sparse || (push->head.flags & PS_OWN_KEYS))
        return;
    client->keys = (struct ps_client_keys){.to_answer = true,
                                           .for_ticket = true,
                                           .keys = push->keys,
                                           .n = push->head.n_keys,
                                           .reply_at = push->head.reply_at};
}

/* Only server 0 knows the base of a joiner's clock, so the others read the clock in the push. */
static void advance_clock(const struct ps_server *s, struct ps_client *client,
                          const struct ps_push *push)
{
    if (s->k > 0 && ps_has_clocks(s->job))
        client->clock = push->clock;
}

static vb_status acknowledge(struct ps_server *s, int worker)
{
    uint64_t begin_ns = vb_trace_begin();
    vb_status st;

    s->clients[worker].clock++;
    st = vb_ps_notify(s, worker, PS_ACK);
    vb_trace_end_with(begin_ns, VB_OP_REPLY, 0, worker, 0, VB_TRACE_SPAN);
    return st;
}

/* For experiments: idles after a gradient was applied, which began with the last lap. */
static void idle(const struct ps_server *s)
{
    uint64_t now = vb_clock_ns();

    if (s->slow > 1)
        (void)vb_sleep_until(now + (uint64_t)((double)(now - s->stats.mark_ns) * (s->slow - 1)));
}

/* ---- one gradient at a time ------------------------------------------------------------------ */

static vb_status apply_now(struct ps_server *s, int worker, const struct ps_taken *push)
{
    struct ps_client *client = &s->clients[worker];
    uint64_t begin_ns;
    vb_status st;

    vb_ps_lap(s, &s->stats.notify_ns);
    begin_ns = vb_trace_begin();
    st = vb_ps_apply(s, push);
    vb_trace_end(begin_ns, VB_OP_APPLY, (uint64_t)push->head.n_values * sizeof(float));
    if (st != VB_OK)
        return st;
    note_keys(s, client, push);
    advance_clock(s, client, &push->head);
    note_staleness(s, client, &push->head);
    s->stats.samples += push->head.samples;
    idle(s);
    count_step(s);
    vb_ps_lap(s, &s->stats.apply_ns);
    st = acknowledge(s, worker);
    if (st != VB_OK ||
        (s->job->bound <= 0 && s->due == 0 && vb_ps_version_of(s) != (uint64_t)s->steps))
        return st;
    /* The workers that waited for this one get tickets. The longest of their waits is counted. */
    s->stalled_ns = 0;
    st = vb_ps_notify_all(s);
    if (s->stalled_ns > 0)
        add_wait(client, s->stalled_ns);
    return st;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Returns the number of gradients that a round waits for. */
static int round_size(const struct ps_server *s)
{
    int w, n = 0;

    for (w = 0; w < vb_ps_clients(s->job); w++)
        n += ps_is_working(&s->clients[w]);
    return n - s->job->backup > 1 ? n - s->job->backup : 1;
}

bool vb_ps_round_is_complete(const struct ps_server *s)
{
    return s->job->bound == 0 && s->round.n_held > 0 && s->round.n_held >= round_size(s);
}

vb_status vb_ps_close_round(struct ps_server *s)
{
    uint64_t begin_ns;
    vb_status st;
    int w;

    vb_ps_lap(s, &s->stats.notify_ns);
    begin_ns = vb_trace_begin();
    st = vb_ps_apply_round(s);
    vb_trace_end(begin_ns, VB_OP_APPLY, s->lay.n[s->k] * sizeof(float));
    if (st != VB_OK)
        return st;
    for (w = 0; w < vb_ps_clients(s->job); w++)
        if (s->clients[w].round.held)
            note_staleness(s, &s->clients[w], &s->clients[w].round.push->head);
    idle(s);
    count_step(s);
    vb_ps_lap(s, &s->stats.apply_ns);
    s->round.n_held = 0;
    s->round.number++;
    for (w = 0; w < vb_ps_clients(s->job) && st == VB_OK; w++) {
        bool held = s->clients[w].round.held;

        s->clients[w].round.held = false;
        if (held)
            st = acknowledge(s, w);
    }
    return st == VB_OK ? vb_ps_notify_all(s) : st;
}

/* Holds a gradient until its round is complete. A gradient of an earlier round is dropped, which
 * happens only with backups. A job with backups has one server, which knows the round of a gradient
 * from the worker's ticket. */
static vb_status hold(struct ps_server *s, int worker, const struct ps_taken *push)
{
    struct ps_client *client = &s->clients[worker];
    uint64_t before_ns = s->round.held_ns;

    client->round.push = push;
    note_keys(s, client, push);
    if (s->job->backup > 0 && client->round.ticket < s->round.number) {
        client->stale.dropped++;
        return acknowledge(s, worker);
    }
    client->round.held = true;
    s->round.n_held++;
    s->round.held_ns = vb_clock_ns();
    if (s->round.n_held == round_size(s) && s->round.n_held >= 2) /* the others waited for it */
        add_wait(client, s->round.held_ns - before_ns);
    return vb_ps_round_is_complete(s) ? vb_ps_close_round(s) : VB_OK;
}

vb_status vb_ps_take_push(struct ps_server *s, int worker, uint32_t slot)
{
    struct ps_client *client = &s->clients[worker];
    const struct ps_taken *push = &client->taken[slot];

    client->under_way--;
    client->busy = false;
    client->waited_ns = 0;
    if (!(push->head.flags & PS_NO_GRADIENT))
        return s->job->bound == 0 ? hold(s, worker, push) : apply_now(s, worker, push);
    note_keys(s, client, push);
    return vb_ps_notify(s, worker, PS_ACK);
}
