/* SPDX-License-Identifier: MIT
 *
 * Opens and closes a worker of the parameter server, and watches the members of the group.
 */
#include "engine/ps/ps.h"

#include <stdlib.h>

/* on_gone() and on_join() have the type vb_member_fn, and may run on the group's progress thread.
 */
static void on_gone(void *arg, int rank)
{
    struct ps_worker *w = arg;
    int number = vb_ps_worker_at(w->job, rank);

    if (number >= 0)
        w->below -= number < w->number;
    else if (!w->bye)
        vb_ps_worker_gone(w, rank);
}

static void on_join(void *arg, int rank)
{
    struct ps_worker *w = arg;
    int number = vb_ps_worker_at(w->job, rank);

    if (number >= 0 && number < w->number)
        w->below++;
}

/* Sets up the links to all servers. When a joiner calls this function, a server may already be
 * gone; then the link leads to the standby. */
static void make_links(struct ps_worker *w)
{
    const struct ps_job *job = w->job;
    int k;

    w->lost_rank = -1;
    for (k = 0; k < job->servers; k++) {
        struct ps_link *link = &w->links[k];
        int standby = vb_ps_standby_rank(job, k);

        link->rank = vb_ps_server_rank(job, k);
        link->standby = standby >= 0 && vb_group_member(w->group, standby) ? standby : -1;
        link->serving = -1;
        if (vb_group_member(w->group, link->rank))
            continue;
        if (link->standby < 0) {
            w->lost_rank = link->rank;
            link->lost = true;
        }
        link->rank = link->standby >= 0 ? link->standby : link->rank;
        link->standby = -1;
        link->failed_over = true;
        link->serving = 0;
    }
}

/* Finds the servers that were gone before on_gone() was set, because the group of a joiner has
 * already been open for a while. on_gone() reports the servers that are gone later. A server may be
 * reported twice. */
static void find_gone_servers(struct ps_worker *w)
{
    int k;

    for (k = 0; k < w->job->servers; k++) {
        int standby = w->links[k].standby;

        if (!vb_group_member(w->group, w->links[k].rank))
            vb_ps_worker_gone(w, w->links[k].rank);
        if (standby >= 0 && !vb_group_member(w->group, standby))
            vb_ps_worker_gone(w, standby);
    }
}

static vb_status begin(struct vb_group *group, const struct ps_job *job,
                       struct ps_worker **worker_p)
{
    struct ps_worker *w = calloc(1, sizeof(*w));
    vb_status st;
    int i;

    if (w == NULL)
        return vb_err_sys("calloc");
    w->job = job;
    w->group = group;
    w->number = vb_ps_worker_at(job, vb_group_rank(group));
    if (w->number < 0) {
        free(w);
        return vb_err(VB_ERR_ACCESS,
                      "cannot join: the only free slot is that of a server that is gone");
    }
    w->seen = (uint64_t)job->begin;
    make_links(w);
    for (i = 0; i < w->number; i++)
        w->below += vb_group_member(group, vb_ps_worker_rank(job, i));
    *worker_p = w; /* set now, because the caller closes *worker_p even after a failure */
    vb_group_on_gone(group, on_gone, w);
    vb_group_on_join(group, on_join, w);
    find_gone_servers(w);
    st = vb_channel_open(group, PS_CHANNEL, vb_ps_worker_note, w);
    w->opened = st == VB_OK;
    return st;
}

/* A joiner may have another opinion about the size of the job. A worker reads mapped windows
 * without further checks. */
static vb_status check_windows(const struct ps_worker *w, int k)
{
    int rank = w->links[k].rank;
    size_t shard = vb_window_len(w->shards, rank), slots = vb_window_len(w->slots, rank);

    if (!vb_group_member(w->group, rank) ||
        (shard >= w->lay.shard_bytes[k] && slots >= w->lay.slots_bytes[k]))
        return VB_OK;
    return vb_err(VB_ERR_INPUT,
                  "server %d (rank %d, %s) has windows of %zu and %zu bytes, but this worker needs "
                  "%zu and %zu; "
                  "all ranks must read the same data with the same options",
                  k, rank, vb_group_host(w->group, rank), shard, slots, w->lay.shard_bytes[k],
                  w->lay.slots_bytes[k]);
}

static vb_status open_windows(struct ps_worker *w, bool mapped)
{
    vb_status st;
    int k;

    w->mapped = mapped;
    vb_ps_layout_make(w->job, w->mapped, &w->lay);
    if (!mapped && vb_ps_streams(w->group, w->job, w->links[0].rank))
        w->lay.replies = true;
    w->never_spun = vb_ps_sleep_at_once(w->group, w->job, mapped);
    w->overlapped = !w->mapped && !w->lay.replies && w->job->bound < 0;
    st = vb_window_create_for(w->group, w->lay.worker_shard_bytes, VB_WINDOW_GET | VB_WINDOW_LAND,
                              &w->shards);
    if (st == VB_OK)
        st = vb_window_create_for(w->group, w->lay.worker_slots_bytes, VB_WINDOW_PUT, &w->slots);
    for (k = 0; k < w->job->servers && st == VB_OK; k++) {
        struct ps_link *link = &w->links[k];

        link->mapped_shards = vb_window_peer(w->shards, link->rank);
        link->mapped_slots = vb_window_peer(w->slots, link->rank);
        if (link->standby >= 0)
            link->standby_shards = vb_window_peer(w->shards, link->standby);
        st = check_windows(w, k);
    }
    return st;
}

static vb_status check_in_place(const struct ps_job *job, bool mapped)
{
    if (!job->hogwild || mapped)
        return VB_OK;
    return vb_err(VB_ERR_USAGE,
                  "--hogwild needs all ranks on one host, connected by shared memory (shm)");
}

vb_status vb_ps_worker_create(struct vb_group *group, const struct ps_job *job,
                              struct ps_worker **worker_p)
{
    bool *maps = calloc((size_t)vb_group_world(group), sizeof(*maps));
    vb_status st = maps != NULL ? begin(group, job, worker_p) : vb_err_sys("calloc");
    int i;

    if (st == VB_OK)
        st = vb_ps_who_maps(group, job, maps);
    for (i = 0; i < job->workers && st == VB_OK; i++)
        st = check_in_place(job, maps[i]);
    if (st == VB_OK)
        st = open_windows(*worker_p, maps[vb_group_rank(group)]);
    free(maps);
    if (st == VB_OK)
        st = vb_group_barrier(group);
    if (st == VB_OK)
        vb_group_welcome(group); /* all members have opened all windows */
    return st;
}

vb_status vb_ps_worker_join(struct vb_group *group, const struct ps_job *job,
                            struct ps_worker **worker_p)
{
    bool mapped = vb_ps_maps_all(group, job);
    vb_status st = check_in_place(job, mapped);

    if (st == VB_OK)
        st = begin(group, job, worker_p);
    return st == VB_OK ? open_windows(*worker_p, mapped) : st;
}

void vb_ps_worker_leave(struct ps_worker *w)
{
    if (w == NULL || w->group == NULL)
        return;
    vb_group_set_never_spin(w->group, w->never_spun);
    vb_group_on_gone(w->group, NULL, NULL);
    vb_group_on_join(w->group, NULL, NULL);
    vb_window_destroy(w->slots);
    vb_window_destroy(w->shards);
    if (w->opened)
        vb_channel_close(w->group, PS_CHANNEL);
    w->group = NULL;
}

void vb_ps_worker_close(struct ps_worker *w)
{
    vb_ps_worker_leave(w);
    free(w);
}
