/* SPDX-License-Identifier: MIT
 *
 * Questions about an open group: its ranks, transports, registered memory and wait statistics.
 */
#include "net/group/group_priv.h"

#include <string.h>

int vb_group_rank(const struct vb_group *g)
{
    return g->rank;
}

int vb_group_world(const struct vb_group *g)
{
    return g->world;
}

int vb_group_slots(const struct vb_group *g)
{
    return g->slots;
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

void vb_group_registered(struct vb_group *g, uint64_t *bytes_p, double *seconds_p)
{
    uint64_t bytes, ns;
    int d;

    *bytes_p = 0;
    *seconds_p = 0;
    group_lock(g);
    for (d = 0; d < g->n_devices; d++) {
        vb_device_transport(g->devices[d])->registered(g->devices[d], &bytes, &ns);
        *bytes_p += bytes;
        *seconds_p += (double)ns / 1e9;
    }
    group_unlock(g);
}

const struct vb_group_opts *vb_group_options(const struct vb_group *g)
{
    return &g->opts;
}

vb_status vb_group_status(struct vb_group *g)
{
    return vb_control_status(g->control, NULL, 0);
}

void vb_group_lose(struct vb_group *g, int rank, const char *why)
{
    vb_control_lose(g->control, rank, why);
}

void vb_group_abort(struct vb_group *g, const char *why)
{
    vb_control_abort(g->control, why);
}

void vb_group_step(struct vb_group *g)
{
    vb_control_step(g->control);
}

const char *vb_group_why(const struct vb_group *g)
{
    return g->why;
}

void vb_group_wait_add(struct vb_group *g, int rank, uint64_t ns)
{
    struct vb_wait_stats *waits = &g->waits[rank];

    group_lock(g);
    waits->ns += ns;
    waits->n += ns >= WAIT_COUNTED_NS;
    waits->max_ns = ns > waits->max_ns ? ns : waits->max_ns;
    g->waits_ns += ns;
    group_unlock(g);
}

uint64_t vb_group_wait_total_ns(struct vb_group *g)
{
    uint64_t ns;

    group_lock(g);
    ns = g->waits_ns;
    group_unlock(g);
    return ns;
}

struct vb_wait_stats vb_group_wait_stats(struct vb_group *g, int rank)
{
    struct vb_wait_stats waits;

    group_lock(g);
    waits = g->waits[rank];
    group_unlock(g);
    return waits;
}

int vb_group_wait_longest(struct vb_group *g, uint64_t *before, uint64_t *ns_p)
{
    int rank, longest = -1;
    uint64_t ns, most_ns = 0;

    group_lock(g);
    for (rank = 0; rank < g->world; rank++) {
        ns = g->waits[rank].ns - before[rank];
        before[rank] = g->waits[rank].ns;
        if (ns > most_ns) {
            most_ns = ns;
            longest = rank;
        }
    }
    group_unlock(g);
    *ns_p = most_ns;
    return longest;
}

void vb_group_wait_stats_reset(struct vb_group *g)
{
    group_lock(g);
    memset(g->waits, 0, (size_t)g->world * sizeof(*g->waits));
    g->waits_ns = 0;
    group_unlock(g);
}
