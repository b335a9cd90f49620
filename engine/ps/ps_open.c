/* SPDX-License-Identifier: MIT
 *
 * Opens and closes a server, with its windows, its parameters and their state, and its clients.
 */
#include "engine/ps/ps.h"

#include <stdlib.h>
#include <string.h>

static vb_status make_state(struct ps_server *s, const void *state)
{
    size_t first = s->lay.first[s->k], n = s->lay.n[s->k], word = (size_t)s->job->words * 4;
    vb_status st = VB_OK;

    if (n * word > 0 && !s->job->hogwild)
        st = vb_mem_map_private(n * word, &s->own_state);
    if (st != VB_OK)
        return st;
    s->state = s->job->hogwild ? (char *)s->head + s->lay.state[s->k] : s->own_state.ptr;
    if (word > 0 && state != NULL)
        memcpy(s->state, (const char *)state + first * word, n * word);
    return VB_OK;
}

/* Allocates the buffers for the sum of a round. Sparse: two lists, each as long as the lists of all
 * workers together. */
static vb_status make_sums(struct ps_server *s)
{
    size_t most = (size_t)vb_ps_clients(s->job) * s->job->max_keys, n = s->lay.n[s->k];
    int i;

    if (!s->job->sparse) {
        s->round.sum = vb_alloc_aligned(n * sizeof(float));
        return s->round.sum != NULL ? VB_OK : vb_err(VB_ERR_NO_MEMORY, "no memory for %zu sums", n);
    }
    for (i = 0; i < 2; i++) {
        s->round.keys[i] = vb_alloc_aligned(most * sizeof(uint32_t));
        s->round.values[i] = vb_alloc_aligned(most * sizeof(float));
        if (s->round.keys[i] == NULL || s->round.values[i] == NULL)
            return vb_err(VB_ERR_NO_MEMORY, "no memory for %zu sums", most);
    }
    return VB_OK;
}

/* Each worker has room for the keys of its pushes under way, and of the push before. */
static vb_status make_key_space(struct ps_server *s)
{
    size_t each = (PS_SLOTS_MAX + 1) * s->job->max_keys;
    int w;

    if (!s->job->sparse || s->job->hogwild)
        return VB_OK;
    s->key_space = vb_alloc_aligned((size_t)vb_ps_clients(s->job) * each * sizeof(uint32_t));
    if (s->key_space == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for the keys of %d workers",
                      vb_ps_clients(s->job));
    for (w = 0; w < vb_ps_clients(s->job); w++)
        s->clients[w].key_space = s->key_space + (size_t)w * each;
    return VB_OK;
}

/* The queue has room for all notes of workers, for PS_GONE and for PS_EXPEL of other servers. */
static vb_status make_clients(struct ps_server *s)
{
    int w;

    s->queue.size = (unsigned)(vb_ps_clients(s->job) * (PS_NOTES_MAX + 2 + s->job->servers));
    if (s->job->replicas > 1) /* the partner sends as many notes as all workers together */
        s->queue.size = 2 * s->queue.size + 8;
    s->queue.arrivals = calloc(s->queue.size, sizeof(*s->queue.arrivals));
    s->partner.log = calloc(s->queue.size, sizeof(*s->partner.log));
    s->clients = calloc((size_t)vb_ps_clients(s->job), sizeof(*s->clients));
    if (s->queue.arrivals == NULL || s->partner.log == NULL || s->clients == NULL)
        return vb_err_sys("calloc");
    for (w = 0; w < s->job->workers; w++) {
        s->clients[w].member = s->clients[w].was_member = true;
        s->clients[w].round.ticket = -1;
        s->clients[w].round.share = w;
        s->clients[w].round.shares = s->job->workers;
    }
    return make_key_space(s);
}

static vb_status ask_who_maps(struct ps_server *s)
{
    bool *maps = calloc((size_t)vb_group_world(s->group), sizeof(*maps));
    vb_status st;
    int w;

    if (maps == NULL)
        return vb_err_sys("calloc");
    st = vb_ps_who_maps(s->group, s->job, maps);
    for (w = 0; w < s->job->workers && st == VB_OK; w++) {
        s->clients[w].mapped = maps[w];
        s->mapped = s->mapped || maps[w];
    }
    free(maps);
    return st;
}

static vb_status make_shard(struct ps_server *s, const float *params, const void *state)
{
    size_t first = s->lay.first[s->k], n = s->lay.n[s->k];
    vb_status st =
        vb_window_create_for(s->group, s->lay.shard_bytes[s->k], VB_WINDOW_GET, &s->shards);

    if (st == VB_OK)
        st = vb_window_create_for(s->group, s->lay.slots_bytes[s->k], VB_WINDOW_PUT, &s->slots);
    if (st != VB_OK)
        return st;
    s->head = vb_window_ptr(s->shards);
    s->params = (float *)(void *)((char *)vb_window_ptr(s->shards) + s->lay.params);
    memcpy(s->params, params + first, n * sizeof(float));
    atomic_store(&s->head->version, (uint64_t)s->job->begin);
    atomic_store(&s->head->claimed, s->job->begin);
    st = make_state(s, state);
    if (st == VB_OK)
        st = vb_ps_snap_open(s);
    if (st == VB_OK && s->job->bound == 0)
        st = make_sums(s);
    if (st == VB_OK && s->job->sparse && !s->job->hogwild && n > 0)
        st = vb_k_sparse_create_at(&s->job->rule, n, s->params, s->state, &s->sparse);
    if (st == VB_OK && s->sparse != NULL &&
        !vb_k_sparse_resume(s->sparse, &s->job->schedule, s->job->begin, s->job->late))
        return vb_err(VB_ERR_USAGE, "a job cannot begin with %u steps that are not applied",
                      s->job->late);
    return st;
}

vb_status vb_ps_server_create(struct vb_group *group, const struct ps_job *job, const float *params,
                              const void *state, struct ps_server **server_p)
{
    struct ps_server *s = calloc(1, sizeof(*s));
    vb_status st;

    if (s == NULL)
        return vb_err_sys("calloc");
    s->job = job;
    s->steps = job->steps;
    s->group = group;
    s->k = vb_ps_server_at(job, vb_group_rank(group));
    s->standby = vb_group_rank(group) == vb_ps_standby_rank(job, s->k);
    s->partner.rank = s->standby ? vb_ps_server_rank(job, s->k) : vb_ps_standby_rank(job, s->k);
    s->partner.shares_memory = s->partner.rank >= 0 && vb_ps_mapped(group, s->partner.rank);
    s->reader = s->gate_worker = -1;
    s->gate = -1;
    *server_p = s; /* set now, because the caller closes *server_p even after a failure */
    st = make_clients(s);
    if (st == VB_OK)
        st = vb_channel_open(group, PS_CHANNEL, vb_ps_server_note, s);
    s->opened = st == VB_OK;
    if (st == VB_OK) {
        vb_group_on_gone(group, vb_ps_server_on_gone, s);
        st = ask_who_maps(s);
    }
    if (st == VB_OK) {
        s->never_spun = vb_ps_sleep_at_once(group, job, s->mapped);
        vb_ps_layout_make(job, false, &s->lay); /* false: the layout has buffers for replies */
        st = make_shard(s, params, state);
    }
    return st == VB_OK ? vb_group_barrier(group) : st;
}

void vb_ps_server_leave(struct ps_server *s)
{
    if (s == NULL || s->group == NULL)
        return;
    vb_group_set_never_spin(s->group, s->never_spun);
    vb_group_on_gone(s->group, NULL, NULL);
    vb_window_destroy(s->slots);
    vb_window_destroy(s->shards);
    if (s->opened)
        vb_channel_close(s->group, PS_CHANNEL);
    s->group = NULL;
}

void vb_ps_server_close(struct ps_server *s)
{
    int i;

    if (s == NULL)
        return;
    vb_ps_server_leave(s);
    vb_k_sparse_destroy(s->sparse);
    vb_mem_unmap(&s->own_state);
    for (i = 0; i < 2; i++) {
        free(s->round.keys[i]);
        free(s->round.values[i]);
    }
    free(s->round.sum);
    free(s->snap.copied);
    free(s->key_space);
    free(s->clients);
    free(s->partner.log);
    free(s->queue.arrivals);
    free(s);
}
