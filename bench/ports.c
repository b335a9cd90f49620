/* SPDX-License-Identifier: MIT
 *
 * Reads the counters of the RDMA ports before and after measurements: a retry that succeeded is
 * visible nowhere else. Counters belong to a host, so its lowest rank reads them.
 */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#define REPORT_PORTS 8 /* maximum number of ports per host in the message to the other ranks */

/* The message of one rank to the others. */
struct report {
    int n; /* number of ports; 0 if another rank of the host reads the counters */
    struct vb_port_counts before[REPORT_PORTS], after[REPORT_PORTS];
};

_Static_assert(sizeof(struct report) <= VB_RECORD_MAX, "a report is one record");

static bool speaks(const struct vb_group *group)
{
    int rank = vb_group_rank(group), i;

    for (i = 0; i < rank; i++)
        if (strcmp(vb_group_host(group, i), vb_group_host(group, rank)) == 0)
            return false;
    return true;
}

/* The port that this rank's data uses; NULL if several or none: then all active ports count. */
static const char *own_port(const struct vb_group *group)
{
    int world = vb_group_world(group), i;
    const char *port, *found = NULL;

    for (i = 0; i < world; i++) {
        port = vb_group_device(group, i);
        if (port[0] == '\0')
            continue;
        if (found != NULL && strcmp(port, found) != 0)
            return NULL;
        found = port;
    }
    return found;
}

vb_status vb_bench_ports_start(struct vb_group *group, struct vb_bench_ports *ports)
{
    int on = strstr(vb_group_transports(group), "verbs") != NULL;
    vb_status st;

    memset(ports, 0, sizeof(*ports));
    ports->group = group;
    st = vb_group_broadcast(group, 0, &on, sizeof(on));
    ports->on = on != 0;
    ports->speaks = ports->on && speaks(group);
    if (st == VB_OK && ports->speaks)
        st = vb_net_ports_read("", own_port(group), &ports->start);
    ports->last = ports->start;
    return st;
}

static vb_status gather_sum(struct vb_group *group, int64_t sum[VB_PORT_TROUBLES])
{
    int world = vb_group_world(group), i, k;
    int64_t(*all)[VB_PORT_TROUBLES] = calloc((size_t)world, sizeof(*all));
    vb_status st;

    if (all == NULL)
        return vb_err_sys("calloc");
    st = vb_group_gather(group, sum, sizeof(*all), all);
    memset(sum, 0, sizeof(*all));
    for (i = 0; i < world; i++)
        for (k = 0; k < VB_PORT_TROUBLES; k++)
            sum[k] += all[i][k];
    free(all);
    return st;
}

vb_status vb_bench_ports_next(struct vb_bench_ports *ports, int64_t moved[VB_PORT_TROUBLES])
{
    struct vb_port_list now = {0}, since;
    vb_status st = VB_OK;
    int i, k;

    for (k = 0; k < VB_PORT_TROUBLES; k++)
        moved[k] = ports->on ? 0 : -1;
    if (!ports->on)
        return VB_OK;
    if (ports->speaks)
        st = vb_net_ports_read("", own_port(ports->group), &now);
    if (st != VB_OK)
        return st;
    vb_net_ports_moved(&ports->last, &now, &since);
    for (i = 0; i < since.n; i++)
        for (k = 0; k < VB_PORT_TROUBLES; k++)
            moved[k] += since.ports[i].n[k];
    ports->last = now;
    return gather_sum(ports->group, moved);
}

static void fill_report(const struct vb_bench_ports *ports, struct report *report)
{
    const struct vb_port_counts *before;
    int i;

    memset(report, 0, sizeof(*report));
    for (i = 0; i < ports->last.n && i < REPORT_PORTS; i++) {
        report->after[i] = ports->last.ports[i];
        before = vb_net_ports_find(&ports->start, report->after[i].dev, report->after[i].port);
        report->before[i] = before != NULL ? *before : report->after[i];
        report->n++;
    }
}

/* Prints retries, out of sequence and RNR of a port, and other counts if they changed. */
static void print_port(const char *host, const struct vb_port_counts *before,
                       const struct vb_port_counts *after)
{
    const char *between = " ";
    int k;

    printf("%s %s/%d:", host, after->dev, after->port);
    for (k = 0; k < VB_PORT_TROUBLES; k++) {
        if (k > VB_PORT_RNR && after->n[k] == before->n[k])
            continue;
        if (after->known & 1u << k)
            printf("%s%s %lld -> %lld", between, vb_port_trouble_str((enum vb_port_trouble)k),
                   (long long)before->n[k], (long long)after->n[k]);
        else
            printf("%s%s not counted", between, vb_port_trouble_str((enum vb_port_trouble)k));
        between = ", ";
    }
    printf("\n");
}

vb_status vb_bench_ports_print(const struct vb_bench_ports *ports)
{
    int world = vb_group_world(ports->group), rank, i;
    struct report own, *all;
    vb_status st;

    if (!ports->on)
        return VB_OK;
    all = calloc((size_t)world, sizeof(*all));
    if (all == NULL)
        return vb_err_sys("calloc");
    fill_report(ports, &own);
    st = vb_group_gather(ports->group, &own, sizeof(own), all);
    if (st == VB_OK && vb_group_rank(ports->group) == 0) {
        printf("port counters, before -> after:\n");
        for (rank = 0; rank < world; rank++)
            for (i = 0; i < all[rank].n && i < REPORT_PORTS; i++)
                print_port(vb_group_host(ports->group, rank), &all[rank].before[i],
                           &all[rank].after[i]);
        fflush(stdout);
    }
    free(all);
    return st;
}
