/* SPDX-License-Identifier: MIT
 *
 * Servers and workers form a second group, besides the group of the job. A process with a worker
 * and a server is in this group twice, so that neither thread ever waits for a lock of the other.
 * The members find each other as the ranks of a job do: worker 0 listens at a second port, and
 * announces this port to the group of the job.
 */
#include "engine/async/train_async_priv.h"

#include <string.h>

/* Listens at another port of the address at which the job's ranks have found rank 0. */
static vb_status listen_for_members(struct vb_async *a)
{
    const char *root = a->trainer->o->group.root, *colon = root != NULL ? strrchr(root, ':') : NULL;

    if (colon != NULL && colon - root < VB_ROOT_TEXT - 7)
        snprintf(a->root, sizeof(a->root), "%.*s:0", (int)(colon - root), root);
    else
        snprintf(a->root, sizeof(a->root), "127.0.0.1:0");
    return vb_root_listen(a->root, &a->root_fd);
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    unsigned char any = 0;

    while (n > 0)
        any |= bytes[--n];
    return any == 0;
}

vb_status vb_async_find_root(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = VB_OK;

    memcpy(a->secret, t->o->group.secret, sizeof(a->secret));
    if (t->o->group.world == 1 && is_zero(a->secret, sizeof(a->secret)))
        st = vb_secret_make(a->secret); /* a single process has no secret yet */
    if (st == VB_OK && t->rank == 0)
        st = listen_for_members(a);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, a->root, sizeof(a->root));
    return st;
}

struct vb_group_opts vb_async_group(const struct vb_async *a, int rank)
{
    const struct vb_trainer *t = a->trainer;
    struct vb_group_opts o = t->o->group;

    o.rank = rank;
    o.world = a->job.workers + vb_ps_server_ranks(&a->job);
    o.elastic = true;
    o.slots = o.world + a->job.join_slots;
    memcpy(o.secret, a->secret, sizeof(o.secret));
    o.root = a->root;
    o.root_fd = rank == 0 ? a->root_fd : -1;
    o.announce = NULL;
    o.progress =
        t->model.row->progress && rank < a->job.workers; /* a server polls the network itself */
    o.crowded = vb_place_is_crowded(t->o, &t->cpus);
    if (o.timeout_ms == 0)
        o.timeout_ms = 60000;
    if (t->place.placement != NULL) {
        o.topo = t->place.topo;
        o.placement = t->place.placement;
        o.placement_rank = t->place.local_rank;
    }
    return o;
}
