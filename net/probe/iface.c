/* SPDX-License-Identifier: MIT
 *
 * Lists the network interfaces of the machine, from /sys/class/net and /proc/net. An interface with
 * a hardware device is *physical*. A VLAN, bond or bridge is *stacked* if one of its parts is
 * physical. All others are *virtual*, except loopback. A job uses physical and stacked interfaces,
 * but never the control network of a CloudLab node: the rules of CloudLab forbid it.
 */
#include "net/probe/probe_priv.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SYS_NET "/sys/class/net"
#define SPEED_MAX_MBIT 10000000 /* 10 Tbit/s; drivers report more for an unknown speed */

/* From linux/route.h, which cannot always be included together with net/if.h. */
#define ROUTE_UP 0x1
#define ROUTE_REJECT 0x200

bool vb_net_control_if(const char *sysroot, char *name, size_t size)
{
    char line[64];
    size_t len;

    if (!vb_probe_line(line, sizeof(line), "%s/var/emulab/boot/controlif", sysroot))
        return false;
    len = strcspn(line, " ");
    line[len] = '\0';
    if (len == 0 || len >= VB_IFACE_NAME || len >= size || strchr(line, '?') != NULL)
        return false;
    memcpy(name, line, len + 1);
    return true;
}

static bool is_up(const char *sysroot, const char *name)
{
    int64_t carrier;
    char state[32];

    /* Loopback and simple drivers report "unknown"; then the file carrier says it. */
    if (vb_probe_line(state, sizeof(state), "%s" SYS_NET "/%s/operstate", sysroot, name) &&
        strcmp(state, "unknown") != 0)
        return strcmp(state, "up") == 0;
    return vb_probe_int(&carrier, "%s" SYS_NET "/%s/carrier", sysroot, name) && carrier == 1;
}

static bool over_physical(const char *sysroot, const char *name)
{
    char path[sizeof(SYS_NET) + VB_IFACE_NAME];
    bool found = false;
    char **names;
    int i, n;

    snprintf(path, sizeof(path), SYS_NET "/%s", name);
    if (vb_net_names_list(sysroot, path, sizeof("lower_") + VB_IFACE_NAME, &names, &n) != VB_OK)
        return false;
    for (i = 0; i < n; i++)
        if (strncmp(names[i], "lower_", 6) == 0 &&
            vb_net_exists("%s" SYS_NET "/%s/device", sysroot, names[i] + 6))
            found = true;
    free(names);
    return found;
}

static enum vb_iface_kind kind_of(const char *sysroot, const char *name)
{
    int64_t type; /* ARPHRD_ number of the kernel; 772 is loopback, whatever its name */

    if (vb_probe_int(&type, "%s" SYS_NET "/%s/type", sysroot, name) ? type == 772
                                                                    : strcmp(name, "lo") == 0)
        return VB_IFACE_LOOPBACK;
    if (vb_net_exists("%s" SYS_NET "/%s/device", sysroot, name))
        return VB_IFACE_PHYSICAL;
    return over_physical(sysroot, name) ? VB_IFACE_STACKED : VB_IFACE_VIRTUAL;
}

static void fill_iface(const char *sysroot, const char *name, struct vb_iface *iface)
{
    char control[VB_IFACE_NAME];
    int64_t value;

    snprintf(iface->name, sizeof(iface->name), "%s", name);
    iface->kind = kind_of(sysroot, name);
    iface->up = is_up(sysroot, name);
    iface->enslaved = vb_net_exists("%s" SYS_NET "/%s/master", sysroot, name);
    iface->control =
        vb_net_control_if(sysroot, control, sizeof(control)) && strcmp(control, name) == 0;
    iface->speed_mbit = -1;
    if (vb_probe_int(&value, "%s" SYS_NET "/%s/speed", sysroot, name) && value > 0 &&
        value <= SPEED_MAX_MBIT)
        iface->speed_mbit = value;
    if (vb_probe_int(&value, "%s" SYS_NET "/%s/mtu", sysroot, name) && value > 0 &&
        value <= INT_MAX)
        iface->mtu_bytes = (int)value;
    vb_net_link_base(iface->driver, sizeof(iface->driver), "%s" SYS_NET "/%s/device/driver",
                     sysroot, name);
}

/* The best default route so far: the kernel uses the one with the lowest metric. */
struct best_route {
    char name[VB_IFACE_NAME]; /* the interface of the route; "": none found yet */
    unsigned metric;
};

static void offer_route(struct best_route *best, const char *name, unsigned metric, unsigned flags)
{
    if ((flags & ROUTE_UP) == 0 || (flags & ROUTE_REJECT) != 0)
        return;
    if (best->name[0] != '\0' && best->metric <= metric)
        return;
    snprintf(best->name, sizeof(best->name), "%s", name);
    best->metric = metric;
}

/* Columns: Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask ... */
static bool route4_line(char *line, void *arg)
{
    unsigned dest, flags, metric, mask;
    char name[VB_IFACE_NAME];

    if (sscanf(line, "%15s %8x %*8s %8x %*s %*s %9u %8x", name, &dest, &flags, &metric, &mask) ==
            5 &&
        dest == 0 && mask == 0)
        offer_route(arg, name, metric, flags);
    return true;
}

/* Hexadecimal: destination, length, source, length, next hop, metric, references, use, flags */
static bool route6_line(char *line, void *arg)
{
    char dest[33], name[VB_IFACE_NAME];
    unsigned len, flags, metric;

    if (sscanf(line, "%32s %2x %*32s %*2s %*32s %8x %*8s %*8s %8x %15s", dest, &len, &metric,
               &flags, name) == 5 &&
        len == 0 && strspn(dest, "0") == strlen(dest))
        offer_route(arg, name, metric, flags);
    return true;
}

static void mark_routes(const char *sysroot, struct vb_iface *list, int n)
{
    struct best_route best4 = {.name = ""}, best6 = {.name = ""};
    int i;

    vb_probe_lines(route4_line, &best4, "%s/proc/net/route", sysroot);
    vb_probe_lines(route6_line, &best6, "%s/proc/net/ipv6_route", sysroot);
    for (i = 0; i < n; i++)
        list[i].default_route =
            strcmp(list[i].name, best4.name) == 0 || strcmp(list[i].name, best6.name) == 0;
}

static void add_address(struct vb_iface *list, int n, const struct ifaddrs *ifa)
{
    socklen_t len;
    int i;

    if (ifa->ifa_addr == NULL)
        return;
    if (ifa->ifa_addr->sa_family == AF_INET)
        len = sizeof(struct sockaddr_in);
    else if (ifa->ifa_addr->sa_family == AF_INET6)
        len = sizeof(struct sockaddr_in6);
    else
        return;
    for (i = 0; i < n; i++) {
        struct vb_iface *iface = &list[i];
        char text[NI_MAXHOST];

        if (strcmp(iface->name, ifa->ifa_name) != 0 || iface->n_addrs == VB_IFACE_ADDRS ||
            getnameinfo(ifa->ifa_addr, len, text, sizeof(text), NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        text[strcspn(text, "%")] = '\0'; /* a link-local address ends with %INTERFACE */
        snprintf(iface->addrs[iface->n_addrs++], VB_ADDR_TEXT, "%.45s", text);
    }
}

static void add_addresses(struct vb_iface *list, int n)
{
    struct ifaddrs *all;
    const struct ifaddrs *ifa;

    if (getifaddrs(&all) != 0) {
        VB_LOG_WARN("getifaddrs failed: the addresses of the interfaces are unknown");
        return;
    }
    for (ifa = all; ifa != NULL; ifa = ifa->ifa_next)
        add_address(list, n, ifa);
    freeifaddrs(all);
}

vb_status vb_net_ifaces_list(const char *sysroot, struct vb_iface **list_p, int *n_p)
{
    struct vb_iface *list;
    char **names;
    int i, n_names, n = 0;
    vb_status st = vb_net_names_list(sysroot, SYS_NET, VB_IFACE_NAME, &names, &n_names);

    if (st != VB_OK)
        return st;
    list = calloc((size_t)n_names + 1, sizeof(*list)); /* + 1, because calloc(0) may return NULL */
    if (list == NULL) {
        st = vb_err_sys("calloc");
        free(names);
        return st;
    }
    for (i = 0; i < n_names; i++) /* the folder also has files, such as bonding_masters */
        if (vb_net_exists("%s" SYS_NET "/%s/.", sysroot, names[i]))
            fill_iface(sysroot, names[i], &list[n++]);
    mark_routes(sysroot, list, n);
    if (sysroot[0] == '\0')
        add_addresses(list, n);
    free(names);
    *list_p = list;
    *n_p = n;
    return VB_OK;
}

void vb_net_ifaces_free(struct vb_iface *list)
{
    free(list);
}

static bool carries_data(const struct vb_iface *iface)
{
    return (iface->kind == VB_IFACE_PHYSICAL || iface->kind == VB_IFACE_STACKED) && iface->up &&
           !iface->enslaved && !iface->control;
}

/* Without an address even a fast interface reaches no peer. */
static bool better(const struct vb_iface *a, const struct vb_iface *b)
{
    if ((a->n_addrs > 0) != (b->n_addrs > 0))
        return a->n_addrs > 0;
    return a->speed_mbit > b->speed_mbit;
}

const struct vb_iface *vb_net_iface_for_data(const struct vb_iface *list, int n)
{
    const struct vb_iface *best = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (carries_data(&list[i]) && (best == NULL || better(&list[i], best)))
            best = &list[i];
    return best;
}
