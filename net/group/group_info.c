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

/* Two containers may have one name, and one machine may have several. */
bool vb_group_same_machine(const struct vb_group *g, int rank)
{
    const struct wire_info *own = &g->peers[g->rank].info, *other = &g->peers[rank].info;

    if (own->boot_id[0] != '\0' && other->boot_id[0] != '\0')
        return strcmp(own->boot_id, other->boot_id) == 0;
    return strcmp(own->host, other->host) == 0;
}

bool vb_group_same_net(const struct vb_group *g, int rank)
{
    return vb_group_same_machine(g, rank) &&
           g->peers[g->rank].info.netns == g->peers[rank].info.netns;
}

void vb_group_bytes(struct vb_group *g, uint64_t *sent_p, uint64_t *received_p)
{
    vb_traffic_read(&g->traffic, sent_p, received_p);
}

void vb_group_touched(struct vb_group *g, int rank, uint64_t read_bytes, uint64_t written_bytes)
{
    struct peer *peer = &g->peers[rank];

    if (rank == g->rank)
        return;
    group_lock(g);
    if (peer->ep != NULL && peer->transport->touched != NULL)
        peer->transport->touched(peer->ep, read_bytes, written_bytes);
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

void vb_group_begin_at(struct vb_group *g, int64_t step)
{
    vb_control_begin_at(g->control, (uint64_t)step);
}

void vb_group_does(struct vb_group *g, enum vb_activity activity)
{
    vb_control_does(g->control, (uint32_t)activity);
}

struct vb_times vb_group_times(const struct vb_group *g)
{
    return g->times;
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
