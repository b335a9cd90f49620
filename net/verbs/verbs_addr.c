/* SPDX-License-Identifier: MIT
 *
 * Finds the addresses at which peers can call this rank over RDMA. They belong to the interfaces of
 * its active RDMA devices. The caller's route decides which address a pair uses.
 */
#include "net/verbs/verbs_priv.h"

#include <string.h>

#define CANDIDATES 32

/* One address of an interface with an RDMA device. */
struct candidate {
    const char *addr;
    const struct vb_rdma_dev *dev;
    const struct vb_rdma_port *port;
    const struct vb_iface *iface;
};

/* Returns the score of an address; -1: it must not be used. The address over which the ranks found
 * each other has the highest score; then hardware counts, then speed. A link-local address is
 * excluded because it is valid only on its own link. */
static double rate(const struct candidate *c, const struct vb_device_opts *o)
{
    double score = c->port->speed_gbit < 10000 ? c->port->speed_gbit : 10000;

    if (o->bind != NULL)
        return strcmp(c->addr, o->bind) == 0 ? 1 : -1;
    if (strncasecmp(c->addr, "fe80:", 5) == 0 || (c->iface->control && !o->any_interface) ||
        c->iface->kind == VB_IFACE_LOOPBACK)
        return -1;
    if (o->near != NULL && strcmp(c->addr, o->near) == 0)
        score += 1e6;
    return score + (c->dev->soft ? 0 : 1e5);
}

static const struct vb_iface *iface_named(const struct vb_iface *list, int n, const char *name)
{
    int i;

    for (i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

static int collect(const struct vb_rdma_dev *devs, int n_devs, const struct vb_iface *ifaces,
                   int n_ifaces, const struct vb_device_opts *o, struct candidate *out)
{
    struct candidate c;
    int i, k, n = 0;

    for (i = 0; i < n_devs; i++) {
        c.dev = &devs[i];
        c.port = vb_net_rdma_active_port(c.dev);
        c.iface = iface_named(ifaces, n_ifaces, c.dev->netdev);
        if (c.port == NULL || c.iface == NULL ||
            (o->device != NULL && strcmp(o->device, c.dev->name) != 0))
            continue;
        for (k = 0; k < c.iface->n_addrs && n < CANDIDATES; k++) {
            c.addr = c.iface->addrs[k];
            if (rate(&c, o) >= 0)
                out[n++] = c;
        }
    }
    return n;
}

/* Chooses the best addresses. All have the family of the first: one listener serves them all. */
static void choose(const struct candidate *all, int n, const struct vb_device_opts *o,
                   struct verbs_address *address)
{
    bool taken[CANDIDATES] = {false}, v6 = false;
    int i, best;

    do {
        best = -1;
        for (i = 0; i < n; i++)
            if (!taken[i] && (address->n_addrs == 0 || v6 == (strchr(all[i].addr, ':') != NULL)) &&
                (best < 0 || rate(&all[i], o) > rate(&all[best], o)))
                best = i;
        if (best < 0)
            return;
        taken[best] = true;
        if (address->n_addrs == 0) {
            v6 = strchr(all[best].addr, ':') != NULL;
            address->soft = all[best].dev->soft;
            snprintf(address->device, sizeof(address->device), "%.15s", all[best].dev->name);
        }
        snprintf(address->addrs[address->n_addrs++], VB_ADDR_TEXT, "%s", all[best].addr);
    } while (address->n_addrs < VERBS_ADDRS_MAX);
}

static vb_status nothing_found(const struct vb_device_opts *o, int n_devs)
{
    vb_status st;

    if (n_devs == 0) {
        st = vb_err(VB_ERR_UNSUPPORTED, "this host has no RDMA device, which --transport verbs "
                                        "needs");
        vb_log_fix("--transport tcp   # or auto, which takes the best transport that works");
        vb_log_fix("verbena doctor   # shows how to create an RDMA device on any Ethernet "
                   "interface (soft-RoCE)");
        return st;
    }
    if (o->bind != NULL)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "%s is not an address of an interface with an active RDMA device", o->bind);
    if (o->device != NULL)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "%s is not an RDMA device with an active port and an address; verbena doctor "
                      "lists them",
                      o->device);
    return vb_err(VB_ERR_UNSUPPORTED, "no RDMA device of this host has an active port and an "
                                      "address; verbena doctor shows why");
}

vb_status vb_verbs_address_find(const struct vb_device_opts *o, struct verbs_address *address_p)
{
    struct candidate all[CANDIDATES];
    struct vb_rdma_dev *devs = NULL;
    struct vb_iface *ifaces = NULL;
    int n_devs = 0, n_ifaces = 0, n = 0;
    vb_status st;

    memset(address_p, 0, sizeof(*address_p));
    st = vb_net_rdma_list("", &devs, &n_devs);
    if (st == VB_OK)
        st = vb_net_ifaces_list("", &ifaces, &n_ifaces);
    if (st == VB_OK) {
        n = collect(devs, n_devs, ifaces, n_ifaces, o, all);
        choose(all, n, o, address_p);
        if (n == 0)
            st = nothing_found(o, n_devs);
    }
    vb_net_ifaces_free(ifaces);
    vb_net_rdma_free(devs, n_devs);
    return st;
}
