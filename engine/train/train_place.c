/* SPDX-License-Identifier: MIT
 *
 * Opens the group of a rank and places the rank on the machine.
 *
 * The placement is computed before the group is opened, if possible, because the group must know
 * whether ranks share cores. But only a rank with a supervisor knows the number of ranks on its
 * host in advance; others learn it from the group. Pinning comes last, because threads inherit it
 * and the threads of the group may use all cpus of the rank.
 */
#include "engine/train/trainer.h"

#include <string.h>

static vb_status make_plan(const struct vb_train_opts *o, int local_ranks, struct vb_place *place)
{
    struct vb_placement_want want = {
        .ranks = local_ranks, .threads = o->place.threads, .progress = true};
    struct vb_topo_source this_machine = {0};
    char control[VB_IFACE_NAME];
    vb_status st;

    if (vb_net_control_if("", control, sizeof(control)))
        this_machine.avoid_if = control;
    st = vb_topo_open(&this_machine, &place->topo);
    if (st == VB_OK)
        st = vb_placement_create(place->topo, &want, &place->placement);
    if (st == VB_OK && place->placement->note[0] != '\0')
        VB_LOG_INFO("%s", place->placement->note);
    return st;
}

/* A joiner is already a member of the group of workers and servers, or is invited to the group of a
 * synchronous job later. */
static bool is_joiner(const struct vb_train_opts *o)
{
    return o->join.joined != NULL || o->join.caller != NULL;
}

static vb_status open_with(const struct vb_train_opts *o, struct vb_group_opts *opts,
                           struct vb_place *place)
{
    vb_status st;

    /* A progress thread sends large gradients while the backward pass computes lower layers. For
     * small gradients the thread costs more time than it saves. Asynchronous training sends
     * gradients in another group. */
    opts->progress = vb_train_model_find(o->model)->progress && o->mode != VB_MODE_ASYNC;
    opts->elastic = opts->agrees = vb_train_is_elastic(o);
    st = vb_group_open(opts, &place->group);
    if (st == VB_OK && !is_joiner(o) && o->hooks.grouped != NULL && o->mode == VB_MODE_SYNC) {
        o->hooks.grouped(o->hooks.grouped_arg, place->group);
        place->grouped = o->hooks.grouped;
        place->grouped_arg = o->hooks.grouped_arg;
    }
    return st;
}

vb_status vb_place_meet(const struct vb_train_opts *o, struct vb_place *place,
                        const struct vb_meeting *meeting)
{
    struct vb_group_opts opts = o->group;

    opts.rank = meeting->rank;
    opts.world = meeting->world;
    opts.root = meeting->root;
    opts.root_fd = -1;
    opts.open_ms = meeting->open_ms;
    opts.keeps_losses = true; /* until vb_train_form_done() */
    opts.topo = NULL;
    return open_with(o, &opts, place);
}

static vb_status open_group(const struct vb_train_opts *o, int local_rank, struct vb_place *place)
{
    struct vb_group_opts opts = o->group;

    if (opts.world == 1 || is_joiner(o))
        return VB_OK;
    if (o->open_group != NULL) {
        place->group = o->open_group;
        place->borrowed = true;
        return VB_OK;
    }
    if (place->placement != NULL) {
        opts.crowded = place->placement->overlap;
        opts.topo = place->topo;
        opts.placement = place->placement;
        opts.placement_rank = local_rank;
    }
    return open_with(o, &opts, place);
}

/* Finds the number of this rank among the ranks on its host, and the number of ranks on this
 * host. */
static void find_neighbours(const struct vb_group *group, int *local_rank_p, int *local_ranks_p)
{
    int r, own = vb_group_rank(group);

    *local_rank_p = *local_ranks_p = 0;
    for (r = 0; r < vb_group_world(group); r++)
        if (strcmp(vb_group_host(group, r), vb_group_host(group, own)) == 0) {
            *local_rank_p += r < own;
            *local_ranks_p += 1;
        }
}

bool vb_place_is_crowded(const struct vb_train_opts *o, const cpu_set_t *cpus)
{
    int ranks = o->place.local_ranks > 0 ? o->place.local_ranks : o->group.world;
    int threads = o->place.threads > 0 ? o->place.threads : 1;
    int servers = o->async.dedicated ? 0 : vb_train_servers(&o->async);

    return CPU_COUNT(cpus) > 0 && ranks * threads + servers > CPU_COUNT(cpus);
}

vb_status vb_place_open(const struct vb_train_opts *o, struct vb_place *place_p)
{
    cpu_set_t cpus;
    /* If a server's thread runs beside workers that already occupy all cores, no worker is pinned:
     * one of them would wait for the core that the server runs on, while other cores are idle. */
    bool crowded = o->mode == VB_MODE_ASYNC && sched_getaffinity(0, sizeof(cpus), &cpus) == 0 &&
                   vb_place_is_crowded(o, &cpus);
    bool pinned =
        o->place.pin && !crowded && !is_joiner(o); /* a joiner's cores may belong to other ranks */
    int local_rank = o->place.local_rank;
    int local_ranks = o->group.world == 1 ? 1 : o->place.local_ranks;
    struct vb_place place = {0};
    vb_status st = VB_OK;

    if (local_ranks > 0 && (o->place.pin || o->group.world > 1) && !is_joiner(o))
        st = make_plan(o, local_ranks, &place);
    if (st == VB_OK)
        st = open_group(o, local_rank, &place);
    if (st == VB_OK && local_ranks == 0 && o->place.pin && !is_joiner(o)) {
        find_neighbours(place.group, &local_rank, &local_ranks);
        st = make_plan(o, local_ranks, &place);
    }
    if (st == VB_OK && pinned)
        st = vb_placement_bind_memory(place.topo, place.placement, local_rank);
    if (st == VB_OK && pinned)
        st = vb_placement_pin_team(place.topo, place.placement, local_rank);
    if (!pinned)
        vb_team_size(o->place.threads);
    if (st != VB_OK)
        vb_place_close(&place);
    place.local_rank = local_rank;
    place.pinned = pinned;
    if (st == VB_OK)
        *place_p = place;
    return st;
}

void vb_place_leave(struct vb_place *place)
{
    if (place->grouped != NULL)
        place->grouped(place->grouped_arg, NULL);
    place->grouped = NULL;
    if (place->group != NULL && !place->borrowed)
        vb_group_close(place->group);
    place->group = NULL;
}

void vb_place_close(struct vb_place *place)
{
    vb_place_leave(place);
    vb_placement_destroy(place->placement);
    vb_topo_close(place->topo);
}
