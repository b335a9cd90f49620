/* SPDX-License-Identifier: MIT
 *
 * A worker takes tickets, pushes gradients, and handles the notes of servers.
 */
#include "engine/ps/ps.h"

#include <string.h>

/* Returns whether the next step is within the bound at all servers. For server 0 the ticket says
 * so. */
static bool is_within_bound(const struct ps_worker *w)
{
    int64_t clock = w->links[0].clock + w->used;
    int k;

    for (k = 1; k < w->job->servers && ps_has_clocks(w->job); k++)
        if (clock - w->links[k].clock > w->job->bound)
            return false;
    return true;
}

static bool has_ticket(void *arg)
{
    const struct ps_worker *w = arg;

    return (w->tickets > w->used && is_within_bound(w)) || w->last;
}

/* Returns whether fewer than n pushes are under way to each server. */
static bool under_way_below(const struct ps_worker *w, uint32_t n)
{
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (w->pushed - w->links[k].acked >= n)
            return false;
    return true;
}

static bool all_acked(void *arg)
{
    return under_way_below(arg, 1);
}

vb_status vb_ps_worker_settle(struct ps_worker *w)
{
    return vb_ps_await(w, all_acked, w, "an acknowledgement", 0, false);
}

static bool has_work(void *arg)
{
    const struct ps_worker *w = arg;

    return w->due != 0 || has_ticket(arg);
}

vb_status vb_ps_worker_await_work(struct ps_worker *w)
{
    return vb_ps_await(w, has_work, w, "a ticket", -1, true);
}

bool vb_ps_worker_has_ticket(struct ps_worker *w)
{
    return has_ticket(w);
}

vb_status vb_ps_worker_quit(struct ps_worker *w, uint64_t *version_p)
{
    /* With a bound of 0 an acknowledgement depends on the other workers. */
    vb_status st = vb_ps_await(w, all_acked, w, "an acknowledgement", -1, true);

    return st == VB_OK ? vb_ps_worker_fetch_version(w, version_p) : st;
}

vb_status vb_ps_worker_ticket(struct ps_worker *w, bool *go_p)
{
    vb_status st = vb_ps_await(w, has_ticket, w, "a ticket", -1, true);

    if (st == VB_OK && w->job->bound == 0) /* other servers may be slower than server 0 */
        st = vb_ps_worker_settle(w);
    *go_p = st == VB_OK && w->tickets > w->used;
    w->used += *go_p;
    return st;
}

bool vb_ps_worker_claim(struct ps_worker *w)
{
    struct ps_head *head = (struct ps_head *)(void *)w->links[0].mapped_shards;

    return atomic_fetch_add_explicit(&head->claimed, 1, memory_order_relaxed) < w->job->steps;
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static bool slot_is_free(void *arg)
{
    return under_way_below(arg, (uint32_t)((const struct ps_worker *)arg)->lay.slots);
}

static int slot_of(const struct ps_worker *w)
{
    return (int)(w->pushed % (uint32_t)w->lay.slots);
}

/* Waits until all servers have processed the previous push of the slot, and the put of that push is
 * done. */
static vb_status wait_for_slot(struct ps_worker *w)
{
    vb_status st = vb_ps_await(w, slot_is_free, w, "an acknowledgement", 0, false);
    int k, slot = slot_of(w);

    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        if (w->pushed >= (uint32_t)w->lay.slots && !w->links[k].push_ops[slot].done) {
            st = vb_ps_op_await(w, &w->links[k].push_ops[slot], "a push", k);
            st = st == VB_AGAIN ? VB_OK : st; /* the standby has the acknowledged push */
        }
    return st;
}

/* Returns where the worker writes a push to server k: in the server's memory, or in the buffer that
 * the worker sends from. */
static struct ps_push *push_to(const struct ps_worker *w, int k)
{
    char *own = vb_window_ptr(w->slots);

    if (w->lay.direct)
        return (void *)(w->links[k].mapped_slots +
                        vb_ps_slot_at(&w->lay, k, w->number, slot_of(w)));
    return (void *)(own + w->lay.push[k] + (size_t)slot_of(w) * w->lay.slot[k]);
}

vb_status vb_ps_put_push(struct ps_worker *w, int k, uint32_t seq)
{
    int slot = (int)(seq % (uint32_t)w->lay.slots);
    size_t from = w->lay.push[k] + (size_t)slot * w->lay.slot[k];
    size_t at = vb_ps_slot_at(&w->lay, k, w->number, slot);
    const struct ps_push *push = (const void *)((const char *)vb_window_ptr(w->slots) + from);
    size_t len = w->lay.direct ? 0 : vb_ps_push_bytes(w->job, &w->lay, k, push);

    return vb_ps_put(w->slots, w->links[k].rank, len > 0 ? from : 0, len > 0 ? at : 0, len,
                     PS_NOTE(PS_PUSH, slot), &w->links[k].push_ops[slot]);
}

/* Sends the push to server k, or to its standby if the server is gone. */
static vb_status send_push(struct ps_worker *w, int k)
{
    vb_status st;

    do {
        st = vb_ps_put_push(w, k, w->pushed);
        if (st != VB_ERR_PEER)
            break;
        st = vb_ps_failover(w, k);
    } while (st == VB_OK);
    w->links[k].sent = w->pushed + 1;
    return st;
}

vb_status vb_ps_worker_grads(struct ps_worker *w, float **grads_p)
{
    vb_status st = wait_for_slot(w);

    *grads_p = w->job->servers == 1 ? (float *)(void *)(push_to(w, 0) + 1) : NULL;
    return st;
}

static void fill_head(const struct ps_worker *w, uint32_t samples, float scale,
                      struct ps_push *push)
{
    *push = (struct ps_push){.seq = w->pushed,
                             .flags = w->base_flag,
                             .base = w->base,
                             .samples = samples,
                             .scale = scale,
                             .clock = w->links[0].clock + w->used - 1};
}

vb_status vb_ps_worker_push(struct ps_worker *w, const float *grads, uint32_t samples, float scale)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_push *push = push_to(w, k);

        fill_head(w, samples, scale, push);
        if (w->job->servers > 1)
            memcpy(push + 1, grads + w->lay.first[k], w->lay.n[k] * sizeof(float));
        st = send_push(w, k);
    }
    w->pushed++;
    return st;
}

/* ---- sparse ---------------------------------------------------------------------------------- */

/* Sets w->slice[k] to the index of the first key that belongs to server k. */
static void slice(struct ps_worker *w, const uint32_t *keys, size_t n)
{
    size_t low, high, mid;
    int k;

    w->slice[0] = 0;
    w->slice[w->job->servers] = n;
    for (k = 1; k < w->job->servers; k++) {
        for (low = w->slice[k - 1], high = n; low < high;) {
            mid = (low + high) / 2;
            if (keys[mid] < w->lay.first[k])
                low = mid + 1;
            else
                high = mid;
        }
        w->slice[k] = low;
    }
}

/* Writes the keys for server k into a push, after the values. In a push, keys are counted from the
 * beginning of the server's shard. */
static void put_keys(struct ps_worker *w, int k, const uint32_t *keys, struct ps_push *push)
{
    size_t i, first = w->slice[k], n = w->slice[k + 1] - first;
    uint32_t *to = (uint32_t *)(void *)(push + 1) + push->n_values;

    for (i = 0; i < n; i++)
        to[i] = keys[first + i] - (uint32_t)w->lay.first[k];
    push->n_keys = (uint32_t)n;
    push->reply_at = (uint32_t)first;
}

static vb_status push_list(struct ps_worker *w, const uint32_t *keys, const float *values, size_t n,
                           uint32_t samples, float scale, const uint32_t *next, size_t n_next,
                           uint32_t flags)
{
    size_t cut[PS_SERVERS_MAX + 1];
    vb_status st = wait_for_slot(w);
    int k;

    slice(w, keys, n);
    memcpy(cut, w->slice, sizeof(cut));
    if (!(flags & PS_OWN_KEYS))
        slice(w, next, n_next);
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_push *push = push_to(w, k);
        size_t n_values = cut[k + 1] - cut[k];

        fill_head(w, samples, scale, push);
        push->flags |= flags;
        push->n_values = (uint32_t)n_values;
        if (n_values > 0)
            memcpy(push + 1, values + cut[k], n_values * sizeof(float));
        put_keys(w, k, flags & PS_OWN_KEYS ? keys : next, push);
        st = send_push(w, k);
    }
    w->pushed++;
    return st;
}

vb_status vb_ps_worker_ask(struct ps_worker *w, const uint32_t *keys, size_t n)
{
    if (!w->lay.replies)
        return VB_OK;
    return push_list(w, keys, NULL, 0, 0, 0, keys, n, PS_NO_GRADIENT);
}

vb_status vb_ps_worker_push_sparse(struct ps_worker *w, const uint32_t *keys, const float *values,
                                   size_t n, uint32_t samples, float scale, const uint32_t *next,
                                   size_t n_next)
{
    return push_list(w, keys, values, n, samples, scale, next, n_next,
                     w->lay.replies && next != NULL ? 0 : PS_OWN_KEYS);
}

/* ---- notes of servers ------------------------------------------------------------------------ */

static void take_notice(struct ps_worker *w, struct ps_link *link, uint32_t notice)
{
    if (notice & PS_ACK)
        link->acked++;
    if (notice & PS_REPLY)
        link->replies++;
    if (notice & PS_ALONE)
        link->standby = -1;
    w->tickets += PS_ARG(notice) / PS_TICKETS;
    if (notice & PS_LAST)
        w->last = true;
    if (notice & (PS_EVAL | PS_SAVE)) {
        w->due |= notice & (PS_EVAL | PS_SAVE);
        w->evals += (notice & PS_EVAL) != 0;
        w->saves += (notice & PS_SAVE) != 0;
    }
}

/* Returns the link that a note belongs to. NULL: the note is ignored, because it comes from another
 * worker or from a standby that does not serve yet. */
static struct ps_link *link_at(struct ps_worker *w, int rank, uint32_t value)
{
    int k = vb_ps_server_at(w->job, rank);
    struct ps_link *link = k >= 0 ? &w->links[k] : NULL;

    if (link == NULL || rank == vb_ps_server_rank(w->job, k))
        return link;
    if (link->serving >= 0 || PS_KIND(value) == PS_FAILOVER_DONE || PS_KIND(value) == PS_WELCOME)
        return link;
    return NULL;
}

void vb_ps_worker_note(void *arg, int rank, uint32_t value)
{
    struct ps_worker *w = arg;
    struct ps_link *link = link_at(w, rank, value);
    enum ps_kind kind = PS_KIND(value);

    if (link == NULL)
        return;
    if (kind == PS_NOTICE)
        take_notice(w, link, value);
    else if (kind == PS_SNAPPED)
        link->snapped = true;
    else if (kind == PS_FINAL)
        link->final = true;
    else if (kind == PS_JOB_DONE)
        w->job_done = true;
    else if (kind == PS_SHARE_COUNT)
        w->share_count = PS_ARG(value);
    else if (kind == PS_SHARE)
        w->shares = PS_SHARE_PACK(PS_ARG(value), w->share_count);
    else if (kind == PS_WELCOME)
        link->welcome = true;
    else if (kind == PS_FAILOVER_DONE)
        link->serving = (int)PS_ARG(value);
    else if (kind == PS_CLOCK_HIGH)
        link->high = (int64_t)PS_ARG(value) << PS_ARG_BITS;
    else if (kind == PS_CLOCK)
        link->clock = link->high | PS_ARG(value);
}
