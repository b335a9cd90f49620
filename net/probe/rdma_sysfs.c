/* SPDX-License-Identifier: MIT
 *
 * Lists the RDMA devices in /sys/class/infiniband. verbs_probe.c adds what only libibverbs knows.
 */
#include "net/probe/probe_priv.h"

#include <arpa/inet.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GIDS 1024 /* larger than the table of any adapter */

const char *vb_rdma_transport_str(enum vb_rdma_transport transport)
{
    static const char *const names[] = {"other", "InfiniBand", "RoCE", "iWARP"};

    return (unsigned)transport < VB_COUNT(names) ? names[transport] : "other";
}

const char *vb_gid_type_str(enum vb_gid_type type)
{
    static const char *const names[] = {"IB", "RoCE v1", "RoCE v2"};

    return (unsigned)type < VB_COUNT(names) ? names[type] : "IB";
}

vb_status vb_net_gid_add(struct vb_rdma_port *port, const struct vb_rdma_gid *gid)
{
    struct vb_rdma_gid *gids = realloc(port->gids, ((size_t)port->n_gids + 1) * sizeof(*gids));

    if (gids == NULL)
        return vb_err_sys("realloc");
    port->gids = gids;
    gids[port->n_gids++] = *gid;
    return VB_OK;
}

/* Identifies the folder of a device in /sys/class/infiniband. */
struct place {
    const char *sysroot;
    const char *dev;
};

static bool port_line(const struct place *at, int port, const char *file, char *buf, size_t size)
{
    return vb_probe_line(buf, size, "%s" VB_NET_SYS_IB "/%s/ports/%d/%s", at->sysroot, at->dev,
                         port, file);
}

/* Returns false for an empty entry, whose GID is zero and whose attributes cannot be read. */
static bool read_gid(const struct place *at, const struct vb_rdma_port *port, int index,
                     struct vb_rdma_gid *gid)
{
    static const struct in6_addr zero;
    char file[48], text[64], netdev[64];
    struct in6_addr addr;

    memset(gid, 0, sizeof(*gid));
    snprintf(file, sizeof(file), "gids/%d", index);
    if (!port_line(at, port->num, file, text, sizeof(text)) ||
        inet_pton(AF_INET6, text, &addr) != 1 || memcmp(&addr, &zero, sizeof(addr)) == 0)
        return false;
    gid->index = index;
    inet_ntop(AF_INET6, &addr, gid->text, sizeof(gid->text));

    snprintf(file, sizeof(file), "gid_attrs/types/%d", index);
    gid->type = port->ethernet ? VB_GID_ROCE_V1 : VB_GID_IB;
    if (port_line(at, port->num, file, text, sizeof(text)) && strcmp(text, "RoCE v2") == 0)
        gid->type = VB_GID_ROCE_V2;
    snprintf(file, sizeof(file), "gid_attrs/ndevs/%d", index);
    if (port_line(at, port->num, file, netdev, sizeof(netdev)) && strlen(netdev) < VB_IFACE_NAME)
        memcpy(gid->netdev, netdev, strlen(netdev) + 1);
    return true;
}

static vb_status read_gids(const struct place *at, struct vb_rdma_port *port)
{
    struct vb_rdma_gid gid;
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < MAX_GIDS && st == VB_OK; i++) {
        if (!vb_net_exists("%s" VB_NET_SYS_IB "/%s/ports/%d/gids/%d", at->sysroot, at->dev,
                           port->num, i))
            break;
        if (read_gid(at, port, i, &gid))
            st = vb_net_gid_add(port, &gid);
    }
    return st;
}

/* Reads a port. A state looks like "4: ACTIVE", a rate like "100 Gb/sec (4X EDR)". */
static vb_status read_port(const struct place *at, int num, struct vb_rdma_port *port)
{
    char line[64];

    port->num = num;
    if (port_line(at, num, "state", line, sizeof(line))) {
        const char *colon = strstr(line, ": ");

        snprintf(port->state, sizeof(port->state), "%.15s", colon != NULL ? colon + 2 : line);
        port->active = strcmp(port->state, "ACTIVE") == 0;
    }
    if (port_line(at, num, "link_layer", line, sizeof(line)))
        port->ethernet = strcmp(line, "Ethernet") == 0;
    if (port_line(at, num, "rate", line, sizeof(line))) {
        double rate = strtod(line, NULL);

        port->speed_gbit = rate > 0 && rate < 1e6 ? rate : 0;
    }
    return read_gids(at, port);
}

static vb_status read_ports(const struct place *at, struct vb_rdma_dev *dev)
{
    char path[PATH_MAX];
    vb_status st = VB_OK;
    char **names;
    int64_t num;
    int i, n;

    snprintf(path, sizeof(path), VB_NET_SYS_IB "/%s/ports", at->dev);
    st = vb_net_names_list(at->sysroot, path, sizeof("255"), &names, &n);
    if (st != VB_OK)
        return st;
    dev->ports = calloc((size_t)n + 1, sizeof(*dev->ports));
    if (dev->ports == NULL)
        st = vb_err_sys("calloc");
    for (i = 0; i < n && st == VB_OK; i++)
        if (vb_parse_int(names[i], &num) && num >= 1 && num <= VB_NET_PORT_MAX)
            st = read_port(at, (int)num, &dev->ports[dev->n_ports++]);
    free(names);
    return st;
}

/* Only rxe has the file parent, with the name of the interface. siw has its own node_desc, but an
 * administrator may overwrite it, so iWARP without a hardware driver also counts as siw. */
static void read_driver(const struct place *at, struct vb_rdma_dev *dev)
{
    char line[64];

    if (vb_probe_line(line, sizeof(line), "%s" VB_NET_SYS_IB "/%s/parent", at->sysroot, at->dev)) {
        dev->soft = true;
        snprintf(dev->driver, sizeof(dev->driver), "rxe");
        if (strlen(line) < VB_IFACE_NAME)
            memcpy(dev->netdev, line, strlen(line) + 1);
        return;
    }
    vb_net_link_base(dev->driver, sizeof(dev->driver), "%s" VB_NET_SYS_IB "/%s/device/driver",
                     at->sysroot, at->dev);
    if (dev->driver[0] != '\0')
        return;
    vb_probe_line(line, sizeof(line), "%s" VB_NET_SYS_IB "/%s/node_desc", at->sysroot, at->dev);
    if (strcmp(line, "rxe") == 0) {
        dev->soft = true;
        snprintf(dev->driver, sizeof(dev->driver), "rxe");
    } else if (strncmp(line, "Software iWARP", 14) == 0 || dev->transport == VB_RDMA_IWARP) {
        dev->soft = true;
        snprintf(dev->driver, sizeof(dev->driver), "siw");
    }
}

static enum vb_rdma_transport transport_of(const struct place *at, const struct vb_rdma_dev *dev)
{
    char type[32];

    vb_probe_line(type, sizeof(type), "%s" VB_NET_SYS_IB "/%s/node_type", at->sysroot, at->dev);
    if (strcmp(type, "4: RNIC") == 0)
        return VB_RDMA_IWARP;
    if (strcmp(type, "1: CA") != 0 || dev->n_ports == 0)
        return VB_RDMA_OTHER;
    return dev->ports[0].ethernet ? VB_RDMA_ROCE : VB_RDMA_INFINIBAND;
}

static vb_status read_dev(const struct place *at, struct vb_rdma_dev *dev)
{
    vb_status st;

    snprintf(dev->name, sizeof(dev->name), "%s", at->dev);
    st = read_ports(at, dev);
    if (st != VB_OK)
        return st;
    dev->transport = transport_of(at, dev);
    read_driver(at, dev);
    vb_probe_line(dev->firmware, sizeof(dev->firmware), "%s" VB_NET_SYS_IB "/%s/fw_ver",
                  at->sysroot, at->dev);
    if (dev->netdev[0] == '\0' && dev->n_ports > 0 && dev->ports[0].n_gids > 0)
        memcpy(dev->netdev, dev->ports[0].gids[0].netdev, sizeof(dev->netdev));
    return VB_OK;
}

void vb_net_rdma_free(struct vb_rdma_dev *list, int n)
{
    int i, p;

    for (i = 0; i < n; i++) {
        for (p = 0; p < list[i].n_ports; p++)
            free(list[i].ports[p].gids);
        free(list[i].ports);
    }
    free(list);
}

vb_status vb_net_rdma_list(const char *sysroot, struct vb_rdma_dev **list_p, int *n_p)
{
    struct vb_rdma_dev *list;
    char **names;
    int i, n;
    vb_status st = vb_net_names_list(sysroot, VB_NET_SYS_IB, VB_RDMA_NAME, &names, &n);

    if (st != VB_OK)
        return st;
    list = calloc((size_t)n + 1, sizeof(*list));
    if (list == NULL)
        st = vb_err_sys("calloc");
    for (i = 0; i < n && st == VB_OK; i++)
        st = read_dev(&(struct place){.sysroot = sysroot, .dev = names[i]}, &list[i]);
    free(names);
    if (st != VB_OK) {
        vb_net_rdma_free(list, list != NULL ? n : 0);
        return st;
    }
    if (sysroot[0] == '\0')
        vb_net_rdma_query_verbs(list, n);
    *list_p = list;
    *n_p = n;
    return VB_OK;
}

const struct vb_rdma_port *vb_net_rdma_active_port(const struct vb_rdma_dev *dev)
{
    int i;

    for (i = 0; i < dev->n_ports && dev->verbs_err == 0; i++)
        if (dev->ports[i].active)
            return &dev->ports[i];
    return NULL;
}

bool vb_net_rdma_usable(const struct vb_rdma_dev *dev)
{
    return vb_net_rdma_active_port(dev) != NULL;
}

bool vb_net_rdma_any_usable(void)
{
    struct vb_rdma_dev *list;
    bool usable = false;
    int i, n;

    if (vb_net_rdma_list("", &list, &n) != VB_OK)
        return false;
    for (i = 0; i < n; i++)
        usable = usable || vb_net_rdma_usable(&list[i]);
    vb_net_rdma_free(list, n);
    return usable;
}
