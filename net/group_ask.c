/* SPDX-License-Identifier: MIT
 *
 * What can be asked and told of a group that is open.
 */
#include "net/group_priv.h"

int vb_group_rank(const struct vb_group *g)
{
    return g->rank;
}

int vb_group_world(const struct vb_group *g)
{
    return g->world;
}

const char *vb_group_host(const struct vb_group *g, int rank)
{
    return g->peers[rank].info.host;
}

const char *vb_group_transport(const struct vb_group *g, int rank)
{
    return g->peers[rank].transport != NULL ? g->peers[rank].transport->name : "self";
}

const char *vb_group_transports(const struct vb_group *g)
{
    return g->transports;
}

const char *vb_group_device(const struct vb_group *g, int rank)
{
    return g->peers[rank].device;
}

const char *vb_group_why(const struct vb_group *g)
{
    return g->why;
}

void vb_group_registered(struct vb_group *g, uint64_t *bytes_p, double *seconds_p)
{
    uint64_t bytes, ns;
    int d;

    *bytes_p = 0;
    *seconds_p = 0;
    group_lock(g);
    for (d = 0; d < g->n_devices; d++) {
        ops_of(g->devices[d])->registered(g->devices[d], &bytes, &ns);
        *bytes_p += bytes;
        *seconds_p += (double)ns / 1e9;
    }
    group_unlock(g);
}

void vb_group_abort(struct vb_group *g, const char *why)
{
    control_abort(g->control, why);
}

void vb_group_step(struct vb_group *g)
{
    control_step(g->control);
}
