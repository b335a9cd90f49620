/* SPDX-License-Identifier: MIT
 *
 * Asks libibverbs about the RDMA devices that sysfs lists: whether this program may open a device,
 * the limits of its ports, and its GIDs.
 */
#include "net/probe/probe_priv.h"

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GIDS 1024 /* maximum number of GIDs of all ports of a device together */

static const char *state_str(enum ibv_port_state state)
{
    static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};

    return (unsigned)state < VB_COUNT(names) ? names[state] : "?";
}

static void query_port(struct ibv_context *ctx, struct vb_rdma_port *port)
{
    struct ibv_port_attr attr;

    if (ibv_query_port(ctx, (uint8_t)port->num, &attr) != 0)
        return; /* keep the values from sysfs */
    snprintf(port->state, sizeof(port->state), "%s", state_str(attr.state));
    port->active = attr.state == IBV_PORT_ACTIVE;
    if (attr.link_layer != IBV_LINK_LAYER_UNSPECIFIED)
        port->ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (attr.active_mtu >= IBV_MTU_256 && attr.active_mtu <= IBV_MTU_4096)
        port->mtu_bytes = 128 << attr.active_mtu;
    port->max_msg_bytes = attr.max_msg_sz;
}

static struct vb_rdma_port *find_port(struct vb_rdma_dev *dev, uint32_t num)
{
    int i;

    for (i = 0; i < dev->n_ports; i++)
        if ((uint32_t)dev->ports[i].num == num)
            return &dev->ports[i];
    return NULL;
}

static void add_gid(struct vb_rdma_dev *dev, const struct ibv_gid_entry *entry)
{
    struct vb_rdma_port *port = find_port(dev, entry->port_num);
    struct vb_rdma_gid gid = {.index = (int)entry->gid_index, .type = VB_GID_IB};

    if (port == NULL)
        return;
    if (entry->gid_type == IBV_GID_TYPE_ROCE_V2)
        gid.type = VB_GID_ROCE_V2;
    else if (entry->gid_type == IBV_GID_TYPE_ROCE_V1)
        gid.type = VB_GID_ROCE_V1;
    inet_ntop(AF_INET6, entry->gid.raw, gid.text, sizeof(gid.text));
    if (entry->ndev_ifindex != 0 && if_indextoname(entry->ndev_ifindex, gid.netdev) == NULL)
        gid.netdev[0] = '\0';
    vb_net_gid_add(port, &gid); /* if memory is short, this is logged and the list is shorter */
}

/* Old kernels cannot list all GIDs at once; in that case the GIDs from sysfs are kept. */
static void query_gids(struct ibv_context *ctx, struct vb_rdma_dev *dev)
{
    ssize_t i, n;
    struct ibv_gid_entry *entries = calloc(MAX_GIDS, sizeof(*entries));

    if (entries == NULL)
        return;
    n = ibv_query_gid_table(ctx, entries, MAX_GIDS, 0);
    if (n > 0)
        for (i = 0; i < dev->n_ports; i++)
            dev->ports[i].n_gids = 0;
    for (i = 0; i < n; i++)
        add_gid(dev, &entries[i]);
    free(entries);
}

static void query_dev(struct ibv_device *handle, struct vb_rdma_dev *dev)
{
    struct ibv_device_attr attr;
    struct ibv_context *ctx;
    int i;

    if (handle->transport_type == IBV_TRANSPORT_IWARP)
        dev->transport = VB_RDMA_IWARP;
    ctx = ibv_open_device(handle);
    if (ctx == NULL) {
        dev->verbs_err = errno != 0 ? errno : EIO;
        return;
    }
    dev->verbs_err = 0;
    if (ibv_query_device(ctx, &attr) == 0)
        snprintf(dev->firmware, sizeof(dev->firmware), "%.63s", attr.fw_ver);
    for (i = 0; i < dev->n_ports; i++)
        query_port(ctx, &dev->ports[i]);
    query_gids(ctx, dev);
    ibv_close_device(ctx);
}

void vb_net_rdma_query_verbs(struct vb_rdma_dev *list, int n)
{
    struct ibv_device **handles;
    int i, h, n_handles = 0;

    for (i = 0; i < n; i++)
        list[i].verbs_err = ENODEV;
    handles = ibv_get_device_list(&n_handles);
    if (handles == NULL) /* ENOSYS: the kernel has no RDMA, and sysfs listed no device */
        return;
    for (h = 0; h < n_handles; h++)
        for (i = 0; i < n; i++)
            if (strcmp(ibv_get_device_name(handles[h]), list[i].name) == 0)
                query_dev(handles[h], &list[i]);
    ibv_free_device_list(handles);
}

struct library {
    const char *stem; /* "/libibverbs.so" */
    char version[32];
};

static int match_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct library *lib = arg;
    char path[PATH_MAX];
    const char *at;

    (void)size;
    if (info->dlpi_name == NULL || strstr(info->dlpi_name, lib->stem) == NULL)
        return 0;
    if (realpath(info->dlpi_name, path) == NULL)
        return 0;
    at = strstr(path, lib->stem);
    if (at == NULL || strncmp(at + strlen(lib->stem), ".", 1) != 0)
        return 0;
    snprintf(lib->version, sizeof(lib->version), "%.31s", at + strlen(lib->stem) + 1);
    return 1;
}

/* The libraries have no function for their version, but the file that is loaded, libibverbs.so.1,
 * is a link to libibverbs.so.1.14.44.0. */
static void library_version(const char *name, const char *built_with, char *buf, size_t size)
{
    char stem[32];
    struct library lib = {.stem = stem};

    snprintf(stem, sizeof(stem), "/%s.so", name);
    if (dl_iterate_phdr(match_library, &lib) != 0)
        snprintf(buf, size, "%s %s", name, lib.version);
    else
        snprintf(buf, size, "%s %s (at compile time)", name, built_with);
}

void vb_net_verbs_version(char *buf, size_t size)
{
    library_version("libibverbs", VB_VERBS_BUILT_WITH, buf, size);
}

void vb_net_rdmacm_version(char *buf, size_t size)
{
    library_version("librdmacm", VB_RDMACM_BUILT_WITH, buf, size);
}
