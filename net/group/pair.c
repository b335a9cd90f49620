/* SPDX-License-Identifier: MIT
 *
 * Chooses the transport of one pair of ranks and makes its data connection, at the start of the job
 * (pairs.c) or for a rank that joins (joiner.c).
 */
#include "net/group/group_priv.h"
#include "net/control/root_resolve.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUEUE_DEPTH 128

bool vb_pair_same_host(const struct vb_group *g, int rank)
{
    return vb_wire_info_same_host(&g->peers[rank].info, &g->peers[g->rank].info);
}

/* Rank 0 has the root address, which has worked before; it may listen on all addresses. */
vb_status vb_pair_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p)
{
    const struct wire_info *info = &g->peers[rank].info;

    if (rank == 0)
        return vb_root_resolve(g->opts.root, addr_p);
    if (!vb_sock_from_text(info->addr, (int)info->port, addr_p))
        return vb_err(VB_ERR_INPUT, "rank %d announced an invalid address: %s", rank, info->addr);
    return VB_OK;
}

vb_status vb_pair_device_open(struct vb_group *g, const struct vb_transport *transport,
                              struct vb_device **dev_p)
{
    struct vb_device_opts opts = {.rank = g->rank,
                                  .world = g->slots,
                                  .queue_depth = QUEUE_DEPTH,
                                  .crowded = g->opts.crowded,
                                  .any_interface = g->opts.any_interface,
                                  .heard = g->heard,
                                  .sense_ms = g->times.sense_ms,
                                  .qp_timeout = g->times.qp_timeout,
                                  .qp_retries = g->times.qp_retries,
                                  .traffic = &g->traffic,
                                  .device = g->opts.device,
                                  .bind = g->opts.bind,
                                  .near = g->peers[g->rank].info.addr,
                                  .no_immediate = g->opts.no_immediate};
    struct epoll_event ev = {.events = EPOLLIN};
    struct vb_device *dev;
    vb_status st = transport->open(&opts, &dev);

    if (st != VB_OK)
        return st;
    ev.data.fd = transport->wait_fd(dev);
    st = epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev) == 0
             ? vb_window_exchange_add_device(g, dev)
             : vb_err_sys("epoll_ctl");
    if (st != VB_OK) {
        (void)epoll_ctl(g->epoll_fd, EPOLL_CTL_DEL, ev.data.fd, NULL);
        transport->close(dev);
        return st;
    }
    g->devices[g->n_devices++] = dev;
    *dev_p = dev;
    return VB_OK;
}

struct vb_device *vb_pair_device(struct vb_group *g, const struct vb_transport *transport)
{
    int d;

    for (d = 0; d < g->n_devices; d++)
        if (vb_device_transport(g->devices[d]) == transport)
            return g->devices[d];
    return NULL;
}

enum pair_kind vb_pair_way(const struct vb_group *g, const struct wire_card *mine,
                           const struct wire_card *theirs, int rank)
{
    if (g->opts.transport == VB_TRANSPORT_VERBS)
        return WAY_VERBS;
    if (g->opts.transport != VB_TRANSPORT_AUTO || vb_pair_same_host(g, rank) ||
        mine->rdma == WIRE_RDMA_NONE || theirs->rdma == WIRE_RDMA_NONE)
        return WAY_STREAM;
    return mine->rdma == WIRE_RDMA_HARD && theirs->rdma == WIRE_RDMA_HARD ? WAY_VERBS : WAY_MEASURE;
}

/* verbs is our RDMA device or NULL. */
vb_status vb_pair_card(struct vb_group *g, struct vb_device *verbs, struct wire_card *card_p)
{
    memset(card_p, 0, sizeof(*card_p));
    card_p->choice = (uint32_t)g->opts.transport;
    if (verbs == NULL)
        return VB_OK;
    card_p->rdma = vb_verbs_is_soft(verbs) ? WIRE_RDMA_SOFT : WIRE_RDMA_HARD;
    return vb_device_transport(verbs)->address(verbs, &card_p->address);
}

static int family_of(int fd)
{
    struct sock_addr addr;

    return vb_sock_local(fd, &addr) == VB_OK ? addr.sa.ss_family : AF_UNSPEC;
}

vb_status vb_pair_attach(struct vb_group *g, int rank, int fd, uint64_t deadline)
{
    const struct vb_transport *transport =
        family_of(fd) == AF_UNIX ? &vb_transport_shm : &vb_transport_tcp;
    struct peer *peer = &g->peers[rank];
    struct vb_link link = {.rank = rank,
                           .host = peer->info.host,
                           .fd = fd,
                           .epoch = peer->epoch,
                           .deadline = deadline,
                           .process_fd_p = g->opts.elastic ? &peer->process_fd : NULL};
    struct vb_device *dev = vb_pair_device(g, transport);
    vb_status st;

    link.same_process = transport == &vb_transport_shm &&
                        vb_wire_info_same_process(&peer->info, &g->peers[g->rank].info);
    st = dev != NULL ? VB_OK : vb_pair_device_open(g, transport, &dev);
    if (st != VB_OK) {
        close(fd);
        return st;
    }
    st = transport->connect(dev, &link, &peer->ep);
    if (st == VB_OK) {
        peer->transport = transport;
        peer->dev = dev;
    }
    return st;
}

struct dialled {
    struct vb_group *g;
    int rank;
};

/* A control_connect_fn. The stream is a unix socket, for shared memory, if both ranks run under the
 * same boot and in the same network namespace and the socket answers; otherwise a TCP socket. */
static vb_status dial_stream(void *arg, uint64_t deadline, int *fd_p)
{
    const struct dialled *to = arg;
    struct vb_group *g = to->g;
    int rank = to->rank;
    const struct wire_info *info = &g->peers[rank].info;
    struct sock_addr addr;
    vb_status st;

    if (vb_pair_same_host(g, rank) && g->opts.transport != VB_TRANSPORT_TCP &&
        vb_sock_connect_unix(info->unix_name, deadline, fd_p) == VB_OK)
        return VB_OK;
    if (g->opts.transport == VB_TRANSPORT_SHM)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "rank %d (%s) cannot be reached through shared memory from this host (%s)",
                      rank, info->host, g->peers[g->rank].info.host);
    st = vb_pair_address_of(g, rank, &addr);
    return st == VB_OK ? vb_sock_connect(&addr, deadline, fd_p) : st;
}

vb_status vb_pair_dial(struct vb_group *g, int rank, uint64_t deadline)
{
    struct dialled to = {.g = g, .rank = rank};
    unsigned char key[AUTH_KEY_BYTES];
    int fd = -1;
    vb_status st = vb_control_take_key(g->control, rank, deadline, key);

    if (st != VB_OK)
        return st;
    st = vb_control_stream_dial(g->control, rank, dial_stream, &to, key, deadline, &fd);
    explicit_bzero(key, sizeof(key));
    return st == VB_OK ? vb_pair_attach(g, rank, fd, 0) : st;
}

static bool is_gone(void *arg, int rank)
{
    return vb_control_is_gone(((struct vb_group *)arg)->control, rank);
}

vb_status vb_pair_connect_verbs(struct vb_group *g, int rank, struct vb_device *verbs,
                                const struct vb_blob *address, enum vb_link_role role,
                                uint64_t deadline, struct vb_ep **ep_p)
{
    unsigned char key[AUTH_KEY_BYTES];
    struct vb_link link = {.rank = rank,
                           .host = g->peers[rank].info.host,
                           .fd = -1,
                           .role = role,
                           .address = address,
                           .key = key,
                           .epoch = g->peers[rank].epoch,
                           .deadline = deadline,
                           .gone = is_gone,
                           .gone_arg = g};
    vb_status st;

    vb_control_pair_key(g->control, rank, key);
    st = vb_transport_verbs.connect(verbs, &link, ep_p);
    explicit_bzero(key, sizeof(key));
    return st;
}

void vb_pair_take_verbs(struct vb_group *g, int rank, struct vb_device *verbs, struct vb_ep *ep)
{
    struct peer *peer = &g->peers[rank];
    const char *text = vb_transport_verbs.link_text(ep);

    peer->transport = &vb_transport_verbs;
    peer->dev = verbs;
    peer->ep = ep;
    snprintf(peer->device, sizeof(peer->device), "%.*s", (int)strcspn(text, ","), text);
}
