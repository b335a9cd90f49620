/* SPDX-License-Identifier: MIT
 *
 * The root, the address of rank 0 as "HOST:PORT": resolves it on this host, finds an address that
 * other hosts can reach, opens the socket where rank 0 listens, and checks the route to a peer.
 */
#include "net/control/root_resolve.h"
#include "net/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAKEN "--root HOST:PORT chooses a different port"

/* ---- the address ----------------------------------------------------------------------------- */

/* Finds the first address that is not loopback. A Debian host's own name often has none. */
static bool address_by_name(const char *name, struct sock_addr *addr)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *at;
    bool ok = false;

    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    for (at = found; at != NULL && !ok; at = at->ai_next) {
        memset(addr, 0, sizeof(*addr));
        memcpy(&addr->sa, at->ai_addr, at->ai_addrlen);
        addr->len = at->ai_addrlen;
        ok = !vb_sock_is_loopback(addr);
    }
    freeaddrinfo(found);
    return ok;
}

static const struct vb_iface *any_iface(const struct vb_iface *list, int n)
{
    const struct vb_iface *best = NULL;
    int i;

    for (i = 0; i < n; i++)
        if (list[i].kind != VB_IFACE_LOOPBACK && list[i].up && !list[i].enslaved &&
            !list[i].control && list[i].n_addrs > 0 &&
            (best == NULL || (list[i].default_route && !best->default_route)))
            best = &list[i];
    return best;
}

/* The interface for data, or else any that is not loopback: in a container none has hardware. */
static bool address_of_iface(struct sock_addr *addr)
{
    const struct vb_iface *iface;
    struct vb_iface *list;
    bool found = false;
    int n;

    if (vb_net_ifaces_list("", &list, &n) != VB_OK)
        return false;
    iface = vb_net_iface_for_data(list, n);
    if (iface == NULL || iface->n_addrs == 0)
        iface = any_iface(list, n);
    if (iface != NULL)
        found = vb_sock_from_text(iface->addrs[0], 0, addr);
    vb_net_ifaces_free(list);
    return found;
}

static bool is_reachable(const char *address, struct sock_addr *addr)
{
    return address != NULL && vb_sock_from_text(address, 0, addr) && !vb_sock_is_loopback(addr);
}

/* ---- the socket ------------------------------------------------------------------------------ */

bool vb_root_wants_port(const char *root)
{
    const char *colon = strrchr(root, ':');
    int64_t port;

    return colon != NULL && vb_parse_int(colon + 1, &port) && port == 0;
}

/* Other names that resolve to loopback on this host may resolve to another address elsewhere. */
static bool is_loopback_text(const char *host)
{
    struct sock_addr addr;

    return strcmp(host, "localhost") == 0 ||
           (vb_sock_from_text(host, 0, &addr) && vb_sock_is_loopback(&addr));
}

static void set_port(struct sock_addr *addr, int port)
{
    char host[SOCK_TEXT];

    vb_sock_host_text(addr, host, sizeof(host));
    (void)vb_sock_from_text(host, port, addr);
}

/* *moved_p: the name means loopback on this host, and *addr_p is another address of it. */
static vb_status resolve(const char *root, struct sock_addr *addr_p, bool *moved_p)
{
    char name[VB_ROOT_TEXT];
    struct sock_addr other;
    vb_status st;
    int port = 0;

    *moved_p = false;
    st = vb_sock_resolve(root, addr_p);
    if (st != VB_OK || !vb_sock_is_loopback(addr_p))
        return st;
    st = vb_sock_split(root, name, sizeof(name), &port);
    if (st != VB_OK || is_loopback_text(name) ||
        !(address_by_name(name, &other) || address_of_iface(&other)))
        return st;
    set_port(&other, port);
    *addr_p = other;
    *moved_p = true;
    return VB_OK;
}

vb_status vb_root_resolve(const char *root, struct sock_addr *addr_p)
{
    bool moved;

    return resolve(root, addr_p, &moved);
}

void vb_root_fix(const char *root)
{
    char name[VB_ROOT_TEXT];
    struct sock_addr addr;
    bool moved = false;
    int port;

    if (resolve(root, &addr, &moved) == VB_OK && moved &&
        vb_sock_split(root, name, sizeof(name), &port) == VB_OK)
        vb_log_fix("getent hosts %s   # a loopback address: on this host the name means the host "
                   "itself. Use --root ADDRESS:%d",
                   name, port);
}

/* Returns whether `at` is an address of this host. */
static bool is_own(const struct sock_addr *at)
{
    struct sock_addr free_port = *at;
    int fd = socket(at->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool own;

    if (fd < 0)
        return true; /* not known */
    set_port(&free_port, 0);
    own = bind(fd, (const struct sockaddr *)&free_port.sa, free_port.len) == 0 ||
          errno != EADDRNOTAVAIL;
    close(fd);
    return own;
}

/* The address may be that of a router that forwards the port, so this is no error. */
static void warn_foreign(const char *root, const struct sock_addr *at)
{
    struct sock_addr own;
    char text[SOCK_TEXT];

    if (is_own(at))
        return;
    VB_LOG_WARN("--root %s is not an address of this host, where rank 0 runs: the other ranks will "
                "not find it there",
                root);
    if (!address_of_iface(&own))
        return;
    set_port(&own, vb_sock_port(at));
    vb_sock_text(&own, text);
    vb_log_fix("--root %s on all ranks, or start rank 0 on the host with that address", text);
}

/* `at` is the address of the root. */
static vb_status listen_for(const struct sock_addr *at, int *fd_p)
{
    const char *all = at->sa.ss_family == AF_INET6 ? "::" : "0.0.0.0";
    struct sock_addr any;

    if (vb_sock_is_loopback(at))
        return vb_sock_listen(at, TAKEN, fd_p);
    if (!vb_sock_from_text(all, vb_sock_port(at), &any))
        return vb_err(VB_ERR_UNSUPPORTED, "this host has no address to listen at");
    return vb_sock_listen(&any, TAKEN, fd_p);
}

vb_status vb_root_listen(char root[VB_ROOT_TEXT], int *fd_p)
{
    char *colon = strrchr(root, ':'), text[SOCK_TEXT];
    struct sock_addr at, bound;
    bool moved = false;
    int fd = -1;
    vb_status st = resolve(root, &at, &moved);

    if (st == VB_OK) {
        warn_foreign(root, &at);
        st = listen_for(&at, &fd);
    }
    if (st == VB_OK)
        st = vb_sock_local(fd, &bound);
    if (st != VB_OK) {
        vb_fd_close(&fd);
        return st;
    }
    set_port(&at, vb_sock_port(&bound));
    vb_sock_text(&at, text);
    if (moved)
        snprintf(root, VB_ROOT_TEXT, "%s", text);
    else
        snprintf(colon, VB_ROOT_TEXT - (size_t)(colon - root), ":%d", vb_sock_port(&bound));
    *fd_p = fd;
    return VB_OK;
}

vb_status vb_root_listen_reachable(char root[VB_ROOT_TEXT], const char *reached, int *fd_p)
{
    char name[VB_ROOT_TEXT], text[SOCK_TEXT];
    struct sock_addr addr;
    int port = 0;
    vb_status st = vb_sock_split(root, name, sizeof(name), &port);

    if (st != VB_OK)
        return st;
    if (!address_by_name(name, &addr) && !is_reachable(reached, &addr) &&
        !address_of_iface(&addr) && !vb_sock_from_text("127.0.0.1", 0, &addr))
        return vb_err(VB_ERR_NO_FILE, "no address found for %s", name);
    set_port(&addr, port);
    vb_sock_text(&addr, text);
    snprintf(root, VB_ROOT_TEXT, "%s", text);
    return vb_root_listen(root, fd_p);
}

/* ---- the route ------------------------------------------------------------------------------- */

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

static vb_status refuse_route(const char *name, int peer_rank, const char *what)
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
        return refuse_route(name, peer_rank, "the loopback interface");
    if (is_bridge(name))
        return refuse_route(name, peer_rank, "a bridge");
    if (vb_net_control_if("", control, sizeof(control)) && strcmp(control, name) == 0)
        return refuse_route(name, peer_rank, "the control network, which jobs must not use");
    return VB_OK;
}
