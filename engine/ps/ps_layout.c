/* SPDX-License-Identifier: MIT
 *
 * The layout of the two windows of the parameter server, and the numbers of its ranks. Peers read
 * from the window of shards, and write to the window of slots.
 */
#include "engine/ps/ps.h"

#include <stdlib.h>
#include <string.h>

#define LINE ((size_t)64)
#define UNIT 16              /* number of floats in a cache line; shards begin at a cache line */
#define ONE_SLOT (64u << 20) /* bytes; if gradients are larger, a worker has only one slot */
#define STREAM_MAX (4u << 20)

static size_t pad(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

size_t vb_ps_reserve(size_t *end, size_t bytes)
{
    size_t offset = *end;

    *end += pad(bytes);
    return offset;
}

int vb_ps_clients(const struct ps_job *job)
{
    return job->workers + job->join_slots;
}

int vb_ps_server_ranks(const struct ps_job *job)
{
    return job->replicas > 1 ? 2 * job->servers : job->servers;
}

int vb_ps_worker_rank(const struct ps_job *job, int worker)
{
    return worker < job->workers ? worker : worker + vb_ps_server_ranks(job);
}

int vb_ps_worker_at(const struct ps_job *job, int rank)
{
    if (vb_ps_server_at(job, rank) >= 0)
        return -1;
    return rank < job->workers ? rank : rank - vb_ps_server_ranks(job);
}

int vb_ps_server_rank(const struct ps_job *job, int k)
{
    return job->workers + k;
}

int vb_ps_standby_rank(const struct ps_job *job, int k)
{
    return job->replicas > 1 ? job->workers + job->servers + k : -1;
}

int vb_ps_server_at(const struct ps_job *job, int rank)
{
    if (rank < job->workers || rank >= job->workers + vb_ps_server_ranks(job))
        return -1;
    return (rank - job->workers) % job->servers;
}

/* Each shard is a range of parameters in whole cache lines, except for the last one. */
static void cut_shards(const struct ps_job *job, struct ps_layout *lay)
{
    size_t units = (job->n + UNIT - 1) / UNIT, first, end;
    int k;

    for (k = 0; k < job->servers; k++) {
        first = units * (size_t)k / (size_t)job->servers * UNIT;
        end = units * (size_t)(k + 1) / (size_t)job->servers * UNIT;
        lay->first[k] = first < job->n ? first : job->n;
        lay->n[k] = (end < job->n ? end : job->n) - lay->first[k];
        lay->n_most = lay->n[k] > lay->n_most ? lay->n[k] : lay->n_most;
    }
}

/* Returns whether servers send replies. With a bound, a dense reply comes with the ticket. Only
 * server 0 gives tickets, so other servers could send their shards too early. */
static bool has_replies(const struct ps_job *job, bool mapped, const struct ps_layout *lay)
{
    if (mapped || job->hogwild)
        return false;
    if (job->sparse)
        return true;
    if (job->no_reply || (job->bound >= 0 && job->servers > 1))
        return false;
    return lay->n_most * sizeof(float) <= PS_REPLY_MAX;
}

/* Returns whether shards may be streamed in this job. They are not streamed with several servers,
 * because the acknowledgements of different servers come at different times; nor with replicas,
 * because the standby may be reached by another transport; nor with backups, because a reply to a
 * worker whose gradient was dropped must not contain parts of the next round. */
static bool may_stream(const struct ps_job *job)
{
    return !job->sparse && !job->hogwild && !job->no_reply && job->servers == 1 &&
           job->replicas < 2 && job->backup == 0 && job->n * sizeof(float) > PS_REPLY_MAX &&
           job->n * sizeof(float) <= STREAM_MAX;
}

bool vb_ps_saves_late(const struct ps_job *job)
{
    return job->sparse && job->bound == 0 && vb_k_sparse_is_lazy(&job->rule);
}

static void lay_server(const struct ps_job *job, int k, struct ps_layout *lay)
{
    size_t state = lay->n[k] * (size_t)job->words * sizeof(float), at = 0;

    (void)vb_ps_reserve(&at, sizeof(struct ps_head)); /* replies rely on it: head, parameters */
    lay->params = at;
    (void)vb_ps_reserve(&at, lay->n[k] * sizeof(float));
    lay->state[k] = vb_ps_reserve(&at, job->hogwild ? state : 0);
    lay->snap[k] = vb_ps_reserve(&at, lay->n[k] * sizeof(float));
    lay->snap_state[k] = vb_ps_reserve(&at, state);
    lay->snap_late[k] = vb_ps_reserve(&at, vb_ps_saves_late(job) ? lay->n[k] * sizeof(float) : 0);
    lay->shard_bytes[k] = at;
    lay->slot[k] = sizeof(struct ps_push) +
                   (job->sparse ? 2 * pad(job->max_keys * 4) : pad(lay->n[k] * sizeof(float)));
    /* Both workers and servers use client_states. Only servers use replies_from. */
    lay->client_states[k] = (size_t)vb_ps_clients(job) * (size_t)lay->slots * lay->slot[k];
    lay->replies_from[k] =
        lay->client_states[k] +
        (job->replicas > 1 ? (size_t)vb_ps_clients(job) * sizeof(struct ps_client_state) : 0);
    lay->slots_bytes[k] =
        lay->replies_from[k] + (lay->replies ? (size_t)vb_ps_clients(job) * 2 * lay->reply : 0);
    if (lay->slots_bytes[k] == 0)
        lay->slots_bytes[k] = LINE;
}

/* Returns the size of a reply at a worker: the head of server 0's shard, and the values of all
 * servers. */
static size_t reply_room(const struct ps_job *job)
{
    return sizeof(struct ps_head) + pad((job->sparse ? job->max_keys : job->n) * sizeof(float));
}

static void lay_worker(const struct ps_job *job, bool mapped, struct ps_layout *lay)
{
    size_t params = job->n * sizeof(float), at = 0;
    bool replies = lay->replies || (!mapped && may_stream(job));
    int k;

    /* With replicas a push must stay in the worker's memory until the standby has it. */
    lay->direct = mapped && job->servers == 1 && job->replicas < 2;
    lay->area[0] = vb_ps_reserve(&at, params);
    lay->area[1] = vb_ps_reserve(&at, job->sparse ? 0 : params);
    lay->area_state = vb_ps_reserve(&at, params * (size_t)job->words);
    lay->area_late = vb_ps_reserve(&at, vb_ps_saves_late(job) ? params : 0);
    lay->area_heads = vb_ps_reserve(&at, (size_t)job->servers * sizeof(struct ps_head));
    lay->worker_shard_bytes = at;
    at = 0;
    for (k = 0; k < job->servers; k++)
        lay->push[k] = vb_ps_reserve(&at, lay->direct ? 0 : (size_t)lay->slots * lay->slot[k]);
    lay->replies_at = vb_ps_reserve(&at, replies ? 2 * reply_room(job) : 0);
    lay->client_state = vb_ps_reserve(
        &at, job->replicas > 1 ? (size_t)job->servers * sizeof(struct ps_client_state) : 0);
    lay->worker_slots_bytes = at > 0 ? at : LINE;
}

void vb_ps_layout_make(const struct ps_job *job, bool mapped, struct ps_layout *lay)
{
    int k;

    memset(lay, 0, sizeof(*lay));
    cut_shards(job, lay);
    lay->replies = has_replies(job, mapped, lay);
    lay->slots = job->n * sizeof(float) > ONE_SLOT && !job->sparse ? 1 : PS_SLOTS_MAX;
    lay->reply =
        sizeof(struct ps_head) + pad((job->sparse ? job->max_keys : lay->n_most) * sizeof(float));
    for (k = 0; k < job->servers; k++)
        lay_server(job, k, lay);
    lay_worker(job, mapped, lay);
}

size_t vb_ps_slot_at(const struct ps_layout *lay, int k, int worker, int slot)
{
    return ((size_t)worker * (size_t)lay->slots + (size_t)slot) * lay->slot[k];
}

size_t vb_ps_push_bytes(const struct ps_job *job, const struct ps_layout *lay, int k,
                        const struct ps_push *push)
{
    size_t n = job->sparse ? (size_t)push->n_values + push->n_keys : lay->n[k];

    return sizeof(*push) + n * sizeof(float);
}

size_t vb_ps_reply_to(const struct ps_job *job, const struct ps_layout *lay, int parity)
{
    return lay->replies_at + (size_t)parity * reply_room(job) + sizeof(struct ps_head);
}

bool vb_ps_mapped(const struct vb_group *group, int rank)
{
    return strcmp(vb_group_transport(group, rank), "shm") == 0;
}

bool vb_ps_streams(const struct vb_group *group, const struct ps_job *job, int peer)
{
    return may_stream(job) && strcmp(vb_group_transport(group, peer), "tcp") == 0;
}

/* With a lazy update rule the result is false: the weights in memory are not up to date, so only
 * the server can read them. */
bool vb_ps_maps_all(const struct vb_group *group, const struct ps_job *job)
{
    bool all = !(job->sparse && vb_k_sparse_is_lazy(&job->rule));
    int k;

    for (k = 0; k < vb_ps_server_ranks(job); k++)
        all = all && vb_ps_mapped(group, vb_ps_server_rank(job, k));
    return all;
}

/* What each rank tells all others at the start. The sizes decide the layout of the windows. */
struct card {
    uint64_t n, max_keys;
    int64_t words;
    bool maps;
};

static vb_status check_card(struct vb_group *group, const struct card *all, int rank)
{
    const struct card *first = &all[0], *other = &all[rank];

    if (first->n == other->n && first->max_keys == other->max_keys && first->words == other->words)
        return VB_OK;
    return vb_err(VB_ERR_INPUT,
                  "rank %d (%s) has %llu parameters and batches of at most %llu keys, but rank 0 "
                  "(%s) has %llu and %llu; all ranks must read the same data with the same options",
                  rank, vb_group_host(group, rank), (unsigned long long)other->n,
                  (unsigned long long)other->max_keys, vb_group_host(group, 0),
                  (unsigned long long)first->n, (unsigned long long)first->max_keys);
}

vb_status vb_ps_who_maps(struct vb_group *group, const struct ps_job *job, bool *maps)
{
    struct card own = {.n = job->n,
                       .max_keys = job->max_keys,
                       .words = job->words,
                       .maps = vb_group_rank(group) < job->workers && vb_ps_maps_all(group, job)};
    int r, world = vb_group_world(group);
    struct card *all = calloc((size_t)world, sizeof(*all));
    vb_status st =
        all != NULL ? vb_group_gather(group, &own, sizeof(own), all) : vb_err_sys("calloc");

    for (r = 0; r < world && st == VB_OK; r++) {
        maps[r] = all[r].maps;
        st = check_card(group, all, r);
    }
    free(all);
    return st;
}
