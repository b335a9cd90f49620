/* SPDX-License-Identifier: MIT
 *
 * Opens and closes the context of a sparse allreduce.
 */
#include "net/sparse/sparse_priv.h"

#include <stdlib.h>

#define SAMPLES_MIN 64u
#define SAMPLES_MAX 1024u
#define SAMPLES_A_RANK 8u
#define ALONG_MAX ((size_t)4096)      /* maximum number of words of a list sent with its head */
#define ALONG_TOTAL ((size_t)4 << 20) /* maximum number of bytes in the window for such lists */

/* The options that a rank sends to all others when it opens a context. */
struct open_terms {
    uint64_t features;
    uint64_t max_nnz;
    uint32_t path;
    int32_t channel;
};

static vb_status check_opts(const struct vb_sparse_opts *o)
{
    if (o->features < 1 || o->features > (uint64_t)UINT32_MAX + 1)
        return vb_err(VB_ERR_USAGE,
                      "a sparse allreduce of %llu features is not possible: the number must be "
                      "from 1 to 2^32",
                      (unsigned long long)o->features);
    if (o->max_nnz > UINT32_MAX)
        return vb_err(
            VB_ERR_USAGE,
            "a sparse allreduce of lists of %zu elements is not possible: the maximum is %u",
            o->max_nnz, UINT32_MAX);
    return VB_OK;
}

static vb_status take_terms(struct vb_sparse *s, int rank, const struct open_terms *mine,
                            const struct open_terms *theirs)
{
    const char *host = vb_group_host(s->group, rank);

    if (theirs->features != mine->features)
        return vb_err(VB_ERR_INPUT, "%s: rank %d (%s) has %llu features, but this rank has %llu",
                      s->what, rank, host, (unsigned long long)theirs->features,
                      (unsigned long long)mine->features);
    if (theirs->path != mine->path || theirs->channel != mine->channel)
        return vb_err(VB_ERR_INPUT, "%s: rank %d (%s) has different options than this rank",
                      s->what, rank, host);
    if (theirs->max_nnz > UINT32_MAX)
        return vb_err(VB_ERR_INPUT,
                      "%s: rank %d (%s) has lists of %llu elements, which is too many", s->what,
                      rank, host, (unsigned long long)theirs->max_nnz);
    s->peers[rank].max_nnz = theirs->max_nnz;
    return VB_OK;
}

static vb_status exchange_terms(struct vb_sparse *s)
{
    struct open_terms mine = {.features = s->opts.features,
                              .max_nnz = s->opts.max_nnz,
                              .path = (uint32_t)s->opts.path,
                              .channel = s->channel};
    struct open_terms *terms = calloc((size_t)s->world, sizeof(*terms));
    vb_status st;
    int r;

    if (terms == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(s->group, &mine, sizeof(mine), terms);
    for (r = 0; r < s->world && st == VB_OK; r++)
        st = take_terms(s, r, &mine, &terms[r]);
    free(terms);
    return st;
}

static size_t lines(size_t bytes)
{
    return (bytes + VB_CACHE_LINE - 1) / VB_CACHE_LINE * VB_CACHE_LINE;
}

/* Returns the number of words for which the window has space behind each head. It is not larger
 * than the longest list that any rank may have. */
static size_t along_room(const struct vb_sparse *s)
{
    size_t slots = 2 + 2 * (size_t)s->world, most = 0, fit = ALONG_TOTAL / slots / sizeof(uint64_t);
    int r;

    for (r = 0; r < s->world; r++)
        most = s->peers[r].max_nnz > most ? (size_t)s->peers[r].max_nnz : most;
    most = most < ALONG_MAX ? most : ALONG_MAX;
    return most < fit ? most : fit;
}

/* Chooses the layout of the window. There are enough samples to make parts equal to within an
 * eighth, even with many ranks. */
static void lay_out(struct vb_sparse *s)
{
    uint32_t samples = (uint32_t)s->world * SAMPLES_A_RANK;
    struct sparse_layout *at = &s->at;
    size_t words = 0, area;
    int r;

    samples = samples < SAMPLES_MIN ? SAMPLES_MIN : samples;
    samples = samples > SAMPLES_MAX ? SAMPLES_MAX : samples;
    s->limits = (struct sparse_limits){
        .features = s->opts.features, .max_samples = samples, .max_along = along_room(s)};
    for (r = 0; r < s->world; r++) {
        words += vb_sparse_room(s->peers[r].max_nnz, samples, s->world);
        s->room += s->peers[r].max_nnz;
    }
    area = lines(words * sizeof(uint64_t));
    area = area < SPARSE_PROBE_BYTES ? SPARSE_PROBE_BYTES : area;
    at->head_bytes = lines(vb_sparse_head_bytes(samples));
    at->slot_bytes = at->head_bytes + lines(s->limits.max_along * sizeof(uint64_t));
    at->parts = at->heads + (2 + 2 * (size_t)s->world) * at->slot_bytes;
    at->sums = at->parts + area;
    at->list = at->sums + area;
    at->len_bytes = at->list + lines(s->opts.max_nnz * sizeof(uint64_t)) + VB_CACHE_LINE;
    s->room = s->room < s->opts.features ? s->room : (size_t)s->opts.features;
}

static vb_status map_private(size_t len, struct vb_mem *mem)
{
    vb_status st = vb_mem_map_private(len, mem);

    return st == VB_OK ? vb_mem_populate(mem) : st;
}

/* Allocates all memory that a call needs, so that calls allocate nothing. */
static vb_status allocate(struct vb_sparse *s)
{
    size_t area = s->at.list - s->at.sums;
    int r;
    vb_status st = vb_sparse_plan_init(&s->plan, s->world, s->limits.max_samples);

    if (st == VB_OK)
        st = map_private((size_t)s->world * s->at.head_bytes, &s->heads_mem);
    if (st == VB_OK)
        st = map_private(2 * area, &s->scratch_mem);
    if (st == VB_OK)
        st = map_private(2 * lines(s->room * sizeof(float)) + VB_CACHE_LINE, &s->result_mem);
    if (st != VB_OK)
        return st;
    s->a = s->scratch_mem.ptr;
    s->b = s->a + area / sizeof(uint64_t);
    s->index = s->result_mem.ptr;
    s->value = (void *)((char *)s->result_mem.ptr + lines(s->room * sizeof(float)));
    for (r = 0; r < s->world; r++)
        s->heads[r] = (void *)((char *)s->heads_mem.ptr + (size_t)r * s->at.head_bytes);
    return VB_OK;
}

static vb_status open_window(struct vb_sparse *s)
{
    int r;
    vb_status st = vb_window_create(s->group, s->at.len_bytes, &s->win);

    if (st != VB_OK)
        return st;
    s->base = vb_window_ptr(s->win);
    group_lock(s->group);
    for (r = 0; r < s->world; r++) {
        struct sparse_peer *peer = &s->peers[r];

        peer->mapped = vb_window_peer(s->win, r);
        peer->begun_op.done = peer->head_op.done = true;
        peer->part_op.done = peer->sum_op.done = true;
    }
    group_unlock(s->group);
    return VB_OK;
}

vb_status vb_sparse_open(struct vb_group *g, const struct vb_sparse_opts *opts,
                         struct vb_sparse **sparse_p)
{
    size_t world = (size_t)vb_group_world(g);
    struct vb_sparse *s;
    int r;
    vb_status st = vb_group_check_fixed(g, "a sparse allreduce");

    if (st == VB_OK)
        st = check_opts(opts);
    if (st != VB_OK)
        return st;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "calloc");
    s->group = g;
    s->rank = vb_group_rank(g);
    s->world = s->n_peers = (int)world;
    s->opts = *opts;
    s->heads_mem.fd = s->scratch_mem.fd = s->result_mem.fd = -1;
    s->peers = calloc(world, sizeof(*s->peers));
    s->heads = calloc(world, sizeof(void *));
    s->runs = calloc(world, sizeof(*s->runs));
    snprintf(s->what, sizeof(s->what), "opening a sparse allreduce");
    if (s->peers == NULL || s->heads == NULL || s->runs == NULL) {
        vb_sparse_close(s);
        return vb_err(VB_ERR_NO_MEMORY, "calloc");
    }
    for (r = 0; r < s->world; r++)
        s->peers[r].rank = r;
    /* Opens the channel before the window, because a peer that has the window may send notes. */
    st = vb_channel_alloc(g, vb_sparse_note_came, s, &s->channel);
    if (st == VB_OK)
        st = exchange_terms(s);
    if (st == VB_OK) {
        lay_out(s);
        st = allocate(s);
    }
    if (st == VB_OK)
        st = open_window(s);
    if (st == VB_OK)
        st = vb_sparse_measure(s);
    if (st == VB_OK)
        st = vb_sparse_open_dense(s);
    if (st != VB_OK) {
        vb_sparse_close(s);
        return st;
    }
    vb_sparse_follow(s);
    *sparse_p = s;
    return VB_OK;
}

/* After a failure some puts may still be under way, so their ops are kept in the group. */
static void release_peers(struct vb_sparse *s)
{
    bool sent = true;
    int r;

    for (r = 0; s->base != NULL && r < s->n_peers; r++)
        sent = sent && vb_sparse_is_sent(&s->peers[r]);
    if (sent)
        free(s->peers);
    else
        vb_group_keep(s->group, s->peers);
}

void vb_sparse_close(struct vb_sparse *s)
{
    if (s == NULL)
        return;
    vb_coll_close(s->dense);
    vb_group_unfollow(s->group, &s->follower, s->failed == VB_OK);
    vb_window_destroy(s->win);
    if (s->channel != 0)
        vb_channel_close(s->group, s->channel);
    vb_sparse_plan_fini(&s->plan);
    vb_mem_unmap(&s->heads_mem);
    vb_mem_unmap(&s->scratch_mem);
    vb_mem_unmap(&s->result_mem);
    release_peers(s);
    free(s->heads);
    free(s->runs);
    free(s);
}
