/* SPDX-License-Identifier: MIT
 *
 * On CloudLab the host name resolves to the control network, which the rules forbid for a job's
 * traffic. Elsewhere a name in /etc/hosts may resolve to loopback or to the bridge of a container.
 * Over each of the three a job may run, but slowly, and nothing shows why. So all three are
 * refused.
 */
#include "net/net.h"
#include "net/control/route.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/stat.h>

static bool same_address(const struct sock_addr *a, const struct sockaddr *b)
{
    if (b == NULL || a->sa.ss_family != b->sa_family)
        return false;
    if (b->sa_family == AF_INET)
        return memcmp(&((const struct sockaddr_in *)&a->sa)->sin_addr,
                      &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr)) == 0;
    return b->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)&a->sa)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static bool interface_of(const struct sock_addr *local, char name[VB_IFACE_NAME])
{
    struct ifaddrs *list, *at;
    bool found = false;

    if (getifaddrs(&list) != 0)
        return false;
    for (at = list; at != NULL && !found; at = at->ifa_next) {
        found = same_address(local, at->ifa_addr);
        if (found)
            snprintf(name, VB_IFACE_NAME, "%s", at->ifa_name);
    }
    freeifaddrs(list);
    return found;
}

static bool is_bridge(const char *name)
{
    struct stat sb;
    char path[64];

    snprintf(path, sizeof(path), "/sys/class/net/%s/bridge", name);
    return stat(path, &sb) == 0;
}

static vb_status refuse(const char *name, int peer_rank, const char *what)
{
    return vb_err(VB_ERR_ACCESS,
                  "the route to rank %d on another host goes over %s, %s: give --root a different "
                  "address of rank 0, or allow this route with --any-interface",
                  peer_rank, name, what);
}

vb_status vb_route_check(const struct sock_addr *local, int peer_rank, bool any)
{
    char name[VB_IFACE_NAME], control[VB_IFACE_NAME];

    if (any || !interface_of(local, name))
        return VB_OK;
    if (vb_sock_is_loopback(local))
        return refuse(name, peer_rank, "the loopback interface");
    if (is_bridge(name))
        return refuse(name, peer_rank, "a bridge");
    if (vb_net_control_if("", control, sizeof(control)) && strcmp(control, name) == 0)
        return refuse(name, peer_rank, "the control network, which jobs must not use");
    return VB_OK;
}
