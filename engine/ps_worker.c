/* SPDX-License-Identifier: MIT
 *
 * A worker's side of the parameter server: tickets, pushes, the end. ps_pull.c has the reading.
 *
 * Words of servers are counted by the handler of notes, which may run on the group's progress
 * thread; whoever waits looks at the counts.
 */
#include "engine/ps_priv.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_NS 100000000u

/* ---- words of servers ------------------------------------------------------------------------ */

static void take_word(struct ps_worker *w, struct ps_link *link, uint32_t word)
{
    if (word & PS_ACK)
        link->acked++;
    if (word & PS_REPLY)
        link->replies++;
    if (word & PS_ALONE)
        link->standby = -1;
    w->tickets += (word & 0xfffffu) / PS_TICKETS;
    if (word & PS_LAST)
        w->last = true;
    if (word & (PS_EVAL | PS_SAVE)) {
        w->due |= word & (PS_EVAL | PS_SAVE);
        w->evals += (word & PS_EVAL) != 0;
        w->saves += (word & PS_SAVE) != 0;
    }
}

/* What a server says: not before it serves, if it was a standby. */
static struct ps_link *link_at(struct ps_worker *w, int rank, uint32_t value)
{
    int k = ps_server_at(w->job, rank);
    struct ps_link *link = k >= 0 ? &w->links[k] : NULL;

    if (link == NULL || rank == ps_server_rank(w->job, k))
        return link; /* NULL: workers have nothing to say to each other */
    if (link->taken >= 0 || PS_KIND(value) == PS_TAKEN || PS_KIND(value) == PS_HELLO)
        return link;
    return NULL;
}

/* A vb_note_fn. */
static void note_came(void *arg, int rank, uint32_t value)
{
    struct ps_worker *w = arg;
    struct ps_link *link = link_at(w, rank, value);

    if (link == NULL)
        return;
    switch (PS_KIND(value)) {
    case PS_WORD:
        take_word(w, link, value);
        break;
    case PS_SNAPPED:
        link->snapped = true;
        break;
    case PS_FINAL:
        link->final = true;
        break;
    case PS_OVER:
        w->over = true;
        break;
    case PS_SHARES:
        w->shares = value & 0xfffffu;
        break;
    case PS_HELLO:
        link->welcome = true;
        break;
    case PS_TAKEN:
        link->taken = (int)(value & 0xfffffu);
        break;
    default:
        break;
    }
}

/* vb_member_fn, both. */
static void member_gone(void *arg, int rank)
{
    struct ps_worker *w = arg;
    int number = ps_worker_at(w->job, rank);

    if (number >= 0)
        w->below -= number < w->number;
    else if (!w->bye)
        ps_worker_gone(w, rank);
}

static void member_came(void *arg, int rank)
{
    struct ps_worker *w = arg;

    int number = ps_worker_at(w->job, rank);

    if (number >= 0 && number < w->number)
        w->below++;
}

struct awaited {
    const struct ps_worker *worker;
    vb_ready_fn ready;
    void *arg;
    uint64_t until_ns; /* of a slice */
};

static bool came_or_lost(void *arg)
{
    const struct awaited *a = arg;

    return a->ready(a->arg) || a->worker->lost >= 0;
}

static bool came_or_late(void *arg)
{
    return came_or_lost(arg) || vb_clock_ns() >= ((const struct awaited *)arg)->until_ns;
}

static vb_status lost_server(const struct ps_worker *w, const char *what)
{
    return vb_err(VB_ERR_PEER, "the server at rank %d (%s) is gone, %s: %s", w->lost,
                  vb_group_host(w->group, w->lost), vb_group_gone_why(w->group, w->lost), what);
}

vb_status ps_worker_wait(struct ps_worker *w, vb_ready_fn ready, void *arg, const char *what,
                         int from)
{
    struct awaited awaited = {w, ready, arg, 0};
    vb_status st;

    if (w->job->replicas > 1)
        return ps_await(w, ready, arg, what, false);
    st = ps_wait(w->group, came_or_lost, &awaited, what, from);
    return st == VB_OK && !ready(arg) ? lost_server(w, what) : st;
}

vb_status ps_worker_wait_long(struct ps_worker *w, vb_ready_fn ready, void *arg, const char *what)
{
    struct awaited awaited = {w, ready, arg, 0};
    vb_status st = VB_OK;

    if (w->job->replicas > 1)
        return ps_await(w, ready, arg, what, true);
    while (st == VB_OK && !ready(arg)) {
        if (w->lost >= 0)
            return lost_server(w, what);
        awaited.until_ns = vb_clock_ns() + SLICE_NS;
        st = ps_wait(w->group, came_or_late, &awaited, what, -1);
    }
    return st;
}

/* ---- tickets --------------------------------------------------------------------------------- */

static bool has_ticket(void *arg)
{
    const struct ps_worker *w = arg;

    return w->tickets > w->used || w->last;
}

static bool all_acked(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (w->links[k].acked != w->pushed)
            return false;
    return true;
}

vb_status ps_worker_settle(struct ps_worker *w)
{
    return ps_worker_wait(w, all_acked, w, "an acknowledgement", w->links[0].rank);
}

vb_status ps_worker_ticket(struct ps_worker *w, bool *go_p)
{
    vb_status st = ps_worker_wait_long(w, has_ticket, w, "permission to go on");

    if (st == VB_OK && w->job->bound == 0) /* a ticket says nothing of the other servers */
        st = ps_worker_settle(w);
    *go_p = st == VB_OK && w->tickets > w->used;
    w->used += *go_p;
    return st;
}

bool ps_worker_claim(struct ps_worker *w)
{
    struct ps_head *head = (struct ps_head *)(void *)w->links[0].mapped_shards;

    return atomic_fetch_add_explicit(&head->claimed, 1, memory_order_relaxed) < w->job->steps;
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static bool slot_is_free(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (w->pushed - w->links[k].acked >= (uint32_t)w->lay.slots)
            return false;
    return true;
}

static int slot_of(const struct ps_worker *w)
{
    return (int)(w->pushed % (uint32_t)w->lay.slots);
}

/* All servers have taken in what was there, and it has left this rank. */
static vb_status wait_for_slot(struct ps_worker *w)
{
    vb_status st = ps_worker_wait(w, slot_is_free, w, "an acknowledgement", w->links[0].rank);
    int k, slot = slot_of(w);

    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        if (w->pushed >= (uint32_t)w->lay.slots && !w->links[k].push_ops[slot].done) {
            st = ps_op_await(w, &w->links[k].push_ops[slot], "a push", k);
            st = st == VB_AGAIN ? VB_OK : st; /* it was acknowledged, so whoever serves has it */
        }
    return st;
}

static bool is_direct(const struct ps_worker *w)
{
    return ps_is_direct(w->job, w->mapped);
}

/* Where a push to server k is written: into its memory, or from where it is sent. */
static struct ps_push *push_to(const struct ps_worker *w, int k)
{
    char *own = vb_window_ptr(w->slots);

    if (is_direct(w))
        return (void *)(w->links[k].mapped_slots + ps_slot_at(&w->lay, k, w->number, slot_of(w)));
    return (void *)(own + w->lay.push[k] + (size_t)slot_of(w) * w->lay.slot[k]);
}

static vb_status send_push(struct ps_worker *w, int k, size_t bytes)
{
    size_t from = w->lay.push[k] + (size_t)slot_of(w) * w->lay.slot[k];
    size_t at = ps_slot_at(&w->lay, k, w->number, slot_of(w));
    bool direct = is_direct(w);
    vb_status st;

    st = ps_put_to(w, k, direct ? 0 : from, direct ? 0 : at,
                   direct ? 0 : sizeof(struct ps_push) + bytes, PS_VALUE(PS_PUSH, slot_of(w)),
                   &w->links[k].push_ops[slot_of(w)]);
    w->links[k].sent = w->pushed + 1;
    return st;
}

vb_status ps_push_again(struct ps_worker *w, int k, uint32_t seq)
{
    uint32_t slot = seq % (uint32_t)w->lay.slots;
    size_t from = w->lay.push[k] + slot * w->lay.slot[k], bytes;
    const struct ps_push *push = (const void *)((const char *)vb_window_ptr(w->slots) + from);

    bytes = w->job->sparse ? ((size_t)push->n_values + push->n_keys) * sizeof(float)
                           : w->lay.n[k] * sizeof(float);
    return ps_put(w->group, w->slots, w->links[k].rank, from,
                  ps_slot_at(&w->lay, k, w->number, (int)slot), sizeof(*push) + bytes,
                  PS_VALUE(PS_PUSH, slot), &w->links[k].push_ops[slot]);
}

vb_status ps_worker_grads(struct ps_worker *w, float **grads_p)
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
                             .scale = scale};
}

vb_status ps_worker_push(struct ps_worker *w, const float *grads, uint32_t samples, float scale)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_push *push = push_to(w, k);
        size_t bytes = w->lay.n[k] * sizeof(float);

        fill_head(w, samples, scale, push);
        if (w->job->servers > 1)
            memcpy(push + 1, grads + w->lay.first[k], bytes);
        st = send_push(w, k, bytes);
    }
    w->pushed++;
    return st;
}

/* ---- sparse ---------------------------------------------------------------------------------- */

/* Where the keys of each server begin. */
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

/* A server counts keys from the beginning of its shard. They come right behind the values. */
static size_t put_keys(struct ps_worker *w, int k, const uint32_t *keys, struct ps_push *push)
{
    size_t i, first = w->slice[k], n = w->slice[k + 1] - first;
    uint32_t *to = (uint32_t *)(void *)(push + 1) + push->n_values;

    for (i = 0; i < n; i++)
        to[i] = keys[first + i] - (uint32_t)w->lay.first[k];
    push->n_keys = (uint32_t)n;
    push->reply_at = (uint32_t)first;
    return (push->n_values + n) * sizeof(*to);
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
        st = send_push(w, k, put_keys(w, k, flags & PS_OWN_KEYS ? keys : next, push));
    }
    w->pushed++;
    return st;
}

vb_status ps_worker_ask(struct ps_worker *w, const uint32_t *keys, size_t n)
{
    if (!w->lay.replies)
        return VB_OK;
    return push_list(w, keys, NULL, 0, 0, 0, keys, n, PS_NO_GRADIENT);
}

vb_status ps_worker_push_sparse(struct ps_worker *w, const uint32_t *keys, const float *values,
                                size_t n, uint32_t samples, float scale, const uint32_t *next,
                                size_t n_next)
{
    return push_list(w, keys, values, n, samples, scale, next, n_next,
                     w->lay.replies && next != NULL ? 0 : PS_OWN_KEYS);
}

/* ---- snapshots and the end ------------------------------------------------------------------- */

static bool has_snapped(void *arg)
{
    return ((const struct ps_link *)arg)->snapped;
}

static bool all_final(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    for (k = 0; k < w->job->servers; k++)
        if (!w->links[k].final)
            return false;
    return true;
}

static vb_status tell(struct ps_worker *w, int k, enum ps_kind kind, uint32_t value)
{
    struct vb_op *op = &w->links[k].word_op;
    vb_status st;

    do {
        st = ps_put_to(w, k, 0, 0, 0, PS_VALUE(kind, value), op);
        if (st == VB_OK)
            st = ps_op_await(w, op, "a word to the server", k);
    } while (st == VB_AGAIN);
    return st;
}

static vb_status tell_all(struct ps_worker *w, enum ps_kind kind)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        st = tell(w, k, kind, 0);
    return st;
}

/* A server has one reader at a time, so all ask the servers in the same order: nobody can wait for
 * one who waits for him. */
static vb_status ask_for_snapshot(struct ps_worker *w, bool with_state)
{
    vb_status st = VB_OK;
    int k;

    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        link->snapped = false;
        st = tell(w, k, PS_SNAP, with_state);
        if (st == VB_OK)
            st = ps_worker_wait_long(w, has_snapped, link, "a snapshot");
    }
    return st;
}

/* If a server is gone meanwhile: again, from its standby. */
vb_status ps_worker_snapshot(struct ps_worker *w, float *params, void *state, uint64_t *version_p)
{
    uint32_t overs;
    vb_status st;

    do {
        overs = w->overs;
        st = ask_for_snapshot(w, state != NULL);
        if (st == VB_OK && w->overs == overs)
            st = ps_read_snapshot(w, params, state, version_p);
        if (st == VB_OK)
            st = tell_all(w, PS_READ);
    } while (st == VB_OK && w->overs != overs);
    return st;
}

/* In place nobody else counts what a worker did. */
static void leave_figures(struct ps_worker *w)
{
    struct ps_push *push =
        (void *)(w->links[0].mapped_slots + ps_slot_at(&w->lay, 0, w->number, 0));

    memcpy(push + 1, &w->stale, sizeof(w->stale));
}

vb_status ps_worker_end(struct ps_worker *w, float *params, void *state, uint64_t *version_p)
{
    uint32_t overs;
    vb_status st;

    if (w->job->hogwild)
        leave_figures(w);
    w->ended = true;
    st = tell_all(w, PS_END);
    do {
        overs = w->overs;
        if (st == VB_OK)
            st = ps_worker_wait_long(w, all_final, w, "the others to end");
        if (st == VB_OK)
            st = ps_read_snapshot(w, params, state, version_p);
    } while (st == VB_OK && w->overs != overs);
    return st;
}

static bool op_is_done(void *arg)
{
    return ((const struct vb_op *)arg)->done;
}

/* A server that has heard it from all is gone at once, which is no fault any more. */
vb_status ps_worker_bye(struct ps_worker *w)
{
    vb_status st = VB_OK;
    int k;

    w->bye = true;
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        st = ps_put(w->group, w->slots, link->rank, 0, 0, 0, PS_VALUE(PS_BYE, 0), &link->word_op);
        if (st == VB_OK)
            st = vb_group_wait(w->group, op_is_done, &link->word_op, "a goodbye", -1);
        else if (st == VB_ERR_PEER)
            st = vb_progress(w->group);
    }
    return st;
}

static bool was_answered(void *arg)
{
    const struct ps_worker *w = arg;
    int k;

    if (w->over)
        return true;
    for (k = 0; k < w->job->servers; k++)
        if (!w->links[k].welcome)
            return false;
    return true;
}

vb_status ps_worker_hello(struct ps_worker *w, bool again)
{
    vb_status st = VB_OK;
    int k;

    w->hello = (w->mapped ? PS_MAPS : 0u) | (again ? PS_AGAIN : 0u) | PS_CAME;
    for (k = 0; k < w->job->servers && st == VB_OK; k++)
        st = tell(w, k, PS_HELLO, w->hello);
    if (st == VB_OK)
        st = ps_worker_wait(w, was_answered, w, "a welcome", w->links[0].rank);
    if (st == VB_OK && w->over)
        st = vb_err(VB_ERR_ACCESS, "this job is nearly over: there is nothing left to do");
    return st;
}

/* ---- open and close -------------------------------------------------------------------------- */

static vb_status make_windows(struct ps_worker *w)
{
    vb_status st =
        vb_window_create_for(w->group, w->lay.worker_shard_bytes, VB_WINDOW_GET, &w->shards);
    int k;

    if (st == VB_OK)
        st = vb_window_create_for(w->group, w->lay.worker_slots_bytes, VB_WINDOW_PUT, &w->slots);
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        w->links[k].mapped_shards = vb_window_peer(w->shards, w->links[k].rank);
        w->links[k].mapped_slots = vb_window_peer(w->slots, w->links[k].rank);
        if (w->links[k].standby >= 0)
            w->links[k].standby_shards = vb_window_peer(w->shards, w->links[k].standby);
    }
    return st;
}

static int count_below(const struct ps_worker *w)
{
    int i, n = 0;

    for (i = 0; i < w->number; i++)
        n += vb_group_member(w->group, ps_worker_rank(w->job, i));
    return n;
}

/* One that joins may find a server gone, and its standby in its place. */
static void make_links(struct ps_worker *w)
{
    const struct ps_job *job = w->job;
    int k, standby;

    w->lost = -1;
    for (k = 0; k < job->servers; k++) {
        struct ps_link *link = &w->links[k];

        standby = ps_standby_rank(job, k);
        link->rank = ps_server_rank(job, k);
        link->standby = standby >= 0 && vb_group_member(w->group, standby) ? standby : -1;
        link->taken = -1;
        if (vb_group_member(w->group, link->rank))
            continue;
        if (link->standby < 0) {
            w->lost = link->rank;
            link->lost = true;
        }
        link->rank = link->standby >= 0 ? link->standby : link->rank;
        link->standby = -1;
        link->over = true;
        link->taken = 0;
    }
}

static vb_status begin(struct vb_group *group, const struct ps_job *job,
                       struct ps_worker **worker_p)
{
    struct ps_worker *w = calloc(1, sizeof(*w));
    vb_status st;

    if (w == NULL)
        return vb_err_sys("calloc");
    w->job = job;
    w->group = group;
    w->number = ps_worker_at(job, vb_group_rank(group));
    if (w->number < 0) {
        free(w);
        return vb_err(VB_ERR_ACCESS, "no seat is empty but that of a server that is gone");
    }
    w->seen = (uint64_t)job->begin;
    make_links(w);
    w->below = count_below(w);
    *worker_p = w; /* to be closed, whatever came of it */
    vb_group_on_gone(group, member_gone, w);
    vb_group_on_join(group, member_came, w);
    st = vb_channel_open(group, PS_CHANNEL, note_came, w);
    w->opened = st == VB_OK;
    return st;
}

static vb_status open_windows(struct ps_worker *w, bool mapped)
{
    w->mapped = mapped;
    ps_layout_make(w->job, w->mapped, &w->lay);
    w->overlapped = !w->mapped && !w->lay.replies && w->job->bound < 0;
    return make_windows(w);
}

static vb_status check_in_place(const struct ps_job *job, bool mapped)
{
    if (!job->hogwild || mapped)
        return VB_OK;
    return vb_err(VB_ERR_USAGE, "updates in place need all ranks on one host, over shm");
}

vb_status ps_worker_create(struct vb_group *group, const struct ps_job *job,
                           struct ps_worker **worker_p)
{
    bool *maps = calloc((size_t)job->workers, sizeof(*maps));
    vb_status st = maps != NULL ? begin(group, job, worker_p) : vb_err_sys("calloc");
    int i;

    if (st == VB_OK)
        st = ps_who_maps(group, job, maps);
    for (i = 0; i < job->workers && st == VB_OK; i++)
        st = check_in_place(job, maps[i]);
    if (st == VB_OK)
        st = open_windows(*worker_p, maps[vb_group_rank(group)]);
    free(maps);
    return st == VB_OK ? vb_group_barrier(group) : st;
}

vb_status ps_worker_join(struct vb_group *group, const struct ps_job *job,
                         struct ps_worker **worker_p)
{
    bool mapped = ps_maps_all(group, job);
    vb_status st = check_in_place(job, mapped);

    if (st == VB_OK)
        st = begin(group, job, worker_p);
    return st == VB_OK ? open_windows(*worker_p, mapped) : st;
}

void ps_worker_restart(struct ps_worker *w)
{
    int k;

    for (k = 0; k < w->job->servers; k++)
        w->links[k].acked = w->links[k].replies = w->links[k].sent = 0;
    w->tickets = w->used = 0;
    w->pushed = 0;
    w->last = w->getting = false;
}

void ps_worker_leave(struct ps_worker *w)
{
    if (w == NULL || w->group == NULL)
        return;
    vb_group_on_gone(w->group, NULL, NULL);
    vb_group_on_join(w->group, NULL, NULL);
    vb_window_destroy(w->slots);
    vb_window_destroy(w->shards);
    if (w->opened)
        vb_channel_close(w->group, PS_CHANNEL);
    w->group = NULL;
}

void ps_worker_close(struct ps_worker *w)
{
    ps_worker_leave(w);
    free(w);
}
