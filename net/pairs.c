/* SPDX-License-Identifier: MIT
 *
 * How a pair of ranks comes to its data connection.
 *
 *   1. Every rank tells all others over the control plane what it was asked for, and where it can
 *      be called over RDMA.
 *   2. From that every rank settles every pair in the same way: shared memory on one host, verbs
 *      where both ends have hardware for it, TCP otherwise; --transport overrides.
 *   3. Streams: the lower rank gives a one-time key, the higher dials with it, over a unix socket
 * on one host, over TCP otherwise. RDMA: the higher calls the lower by librdmacm.
 *   4. Pairs with soft-RoCE at an end have both, and keep what measures faster (trial.c).
 */
#include "net/group_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define QUEUE_DEPTH 128

enum way { WAY_STREAM, WAY_VERBS, WAY_TRIAL };

/* What a rank tells of itself. */
struct card {
    uint32_t choice; /* enum vb_transport_choice */
    uint32_t rdma;   /* enum rdma_kind */
    struct vb_blob address;
};

enum rdma_kind { RDMA_NONE, RDMA_SOFT, RDMA_HARD };

struct settling {
    struct vb_group *g;
    struct card *cards;
    struct vb_device *verbs; /* NULL: none */
    uint64_t deadline;
};

bool pairs_same_host(const struct vb_group *g, int rank)
{
    const struct wire_info *a = &g->peers[rank].info, *b = &g->peers[g->rank].info;

    return a->boot_id[0] != '\0' && strcmp(a->boot_id, b->boot_id) == 0 && a->netns != 0 &&
           a->netns == b->netns;
}

/* Rank 0 may listen on all addresses; what reached it once will again. */
vb_status pairs_address_of(struct vb_group *g, int rank, struct sock_addr *addr_p)
{
    const struct wire_info *info = &g->peers[rank].info;

    if (rank == 0)
        return sock_resolve(g->opts.root, addr_p);
    if (!sock_from_text(info->addr, (int)info->port, addr_p))
        return vb_err(VB_ERR_INPUT, "rank %d says it listens at %s", rank, info->addr);
    return VB_OK;
}

/* ---- devices --------------------------------------------------------------------------------- */

static vb_status device_open(struct vb_group *g, const struct vb_transport *transport,
                             struct vb_device **dev_p)
{
    struct vb_device_opts opts = {.rank = g->rank,
                                  .world = g->world,
                                  .queue_depth = QUEUE_DEPTH,
                                  .crowded = g->opts.crowded,
                                  .any_interface = g->opts.any_interface,
                                  .device = g->opts.device,
                                  .bind = g->opts.bind,
                                  .near = g->peers[g->rank].info.addr,
                                  .no_immediate = g->opts.no_immediate};
    struct epoll_event ev = {.events = EPOLLIN};
    struct vb_device *dev;
    vb_status st;

    st = transport->open(&opts, &dev);
    if (st != VB_OK)
        return st;
    ev.data.fd = transport->wait_fd(dev);
    if (epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev) != 0) {
        st = vb_err_sys("epoll_ctl");
        transport->close(dev);
        return st;
    }
    g->devices[g->n_devices++] = dev;
    *dev_p = dev;
    return VB_OK;
}

static vb_status device_for(struct vb_group *g, const struct vb_transport *transport,
                            struct vb_device **dev_p)
{
    int d;

    for (d = 0; d < g->n_devices; d++)
        if (ops_of(g->devices[d]) == transport) {
            *dev_p = g->devices[d];
            return VB_OK;
        }
    return device_open(g, transport, dev_p);
}

static bool device_used(const struct vb_group *g, const struct vb_device *dev)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (g->peers[i].dev == dev)
            return true;
    return false;
}

/* A device that the trial left without a peer. */
static void close_unused(struct vb_group *g)
{
    struct vb_device *dev;
    int d;

    for (d = g->n_devices - 1; d >= 0; d--) {
        dev = g->devices[d];
        if (device_used(g, dev))
            continue;
        (void)epoll_ctl(g->epoll_fd, EPOLL_CTL_DEL, ops_of(dev)->wait_fd(dev), NULL);
        ops_of(dev)->close(dev);
        g->devices[d] = g->devices[--g->n_devices];
    }
}

/* ---- what there is --------------------------------------------------------------------------- */

static bool all_on_this_host(const struct vb_group *g)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (!pairs_same_host(g, i))
            return false;
    return true;
}

bool pairs_all_local(const struct vb_group *g)
{
    return all_on_this_host(g) && strstr(g->transports, "verbs") == NULL;
}

/* By itself, RDMA is for other hosts, and not having it is no error. */
static vb_status open_verbs(struct settling *s)
{
    struct vb_group *g = s->g;
    vb_status st;

    if (g->world == 1 || g->opts.transport == VB_TRANSPORT_SHM ||
        g->opts.transport == VB_TRANSPORT_TCP)
        return VB_OK;
    if (g->opts.transport == VB_TRANSPORT_AUTO &&
        (all_on_this_host(g) || !vb_net_rdma_any_usable()))
        return VB_OK;
    st = device_open(g, &vb_transport_verbs, &s->verbs);
    if (st == VB_OK || g->opts.transport == VB_TRANSPORT_VERBS)
        return st;
    VB_LOG_WARN("going on without RDMA");
    return VB_OK;
}

static vb_status exchange_cards(struct settling *s)
{
    struct vb_group *g = s->g;
    struct card mine;
    vb_status st = VB_OK;
    int i;

    memset(&mine, 0, sizeof(mine));
    mine.choice = (uint32_t)g->opts.transport;
    if (s->verbs != NULL) {
        st = ops_of(s->verbs)->address(s->verbs, &mine.address);
        mine.rdma = vb_verbs_is_soft(s->verbs) ? RDMA_SOFT : RDMA_HARD;
    }
    if (st == VB_OK)
        st = control_exchange(g->control, &mine, sizeof(mine), s->cards, "transports", s->deadline);
    for (i = 0; i < g->world && st == VB_OK; i++)
        if (s->cards[i].choice != mine.choice)
            st = vb_err(VB_ERR_USAGE, "rank %d (%s) was started with another --transport", i,
                        vb_group_host(g, i));
    return st;
}

/* The same from both ends. */
static enum way way_to(const struct settling *s, int rank)
{
    const struct card *mine = &s->cards[s->g->rank], *theirs = &s->cards[rank];

    if (s->g->opts.transport == VB_TRANSPORT_VERBS)
        return WAY_VERBS;
    if (s->g->opts.transport != VB_TRANSPORT_AUTO || pairs_same_host(s->g, rank) ||
        mine->rdma == RDMA_NONE || theirs->rdma == RDMA_NONE)
        return WAY_STREAM;
    return mine->rdma == RDMA_HARD && theirs->rdma == RDMA_HARD ? WAY_VERBS : WAY_TRIAL;
}

/* ---- streams --------------------------------------------------------------------------------- */

static int family_of(int fd)
{
    struct sock_addr addr;

    return sock_local(fd, &addr) == VB_OK ? addr.sa.ss_family : AF_UNSPEC;
}

/* Gives a pair's stream to the transport that its kind stands for. */
static vb_status attach(struct vb_group *g, int rank, int fd)
{
    struct peer *peer = &g->peers[rank];
    struct vb_link link = {.rank = rank, .host = peer->info.host, .fd = fd, .epoch = GROUP_EPOCH};
    vb_status st;

    peer->transport = family_of(fd) == AF_UNIX ? &vb_transport_shm : &vb_transport_tcp;
    link.same_process =
        peer->transport == &vb_transport_shm && peer->info.pid == g->peers[g->rank].info.pid;
    st = device_for(g, peer->transport, &peer->dev);
    if (st != VB_OK) {
        close(fd);
        return st;
    }
    return peer->transport->connect(peer->dev, &link, &peer->ep);
}

/* Same boot, same network, and the unix socket answers: then it is shared memory. */
static vb_status dial_stream(struct vb_group *g, int rank, uint64_t deadline, int *fd_p)
{
    const struct wire_info *info = &g->peers[rank].info;
    struct sock_addr addr;
    vb_status st;

    if (pairs_same_host(g, rank) && g->opts.transport != VB_TRANSPORT_TCP &&
        sock_connect_unix(info->unix_name, deadline, fd_p) == VB_OK)
        return VB_OK;
    if (g->opts.transport == VB_TRANSPORT_SHM)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "rank %d (%s) cannot be reached through shared memory from here (%s)", rank,
                      info->host, g->peers[g->rank].info.host);
    st = pairs_address_of(g, rank, &addr);
    return st == VB_OK ? sock_connect(&addr, deadline, fd_p) : st;
}

static vb_status dial_data(struct vb_group *g, int rank, uint64_t deadline)
{
    unsigned char key[AUTH_KEY_BYTES];
    vb_status st;
    int fd = -1;

    st = control_take_key(g->control, rank, deadline, key);
    if (st != VB_OK)
        return st;
    st = dial_stream(g, rank, deadline, &fd);
    if (st != VB_OK)
        return st;
    st = control_stream_dial(g->control, rank, fd, key, deadline);
    auth_wipe(key, sizeof(key));
    if (st != VB_OK) {
        close(fd);
        return st;
    }
    return attach(g, rank, fd);
}

/* Every key is given before anything is waited for, so no two ranks wait for each other. */
static vb_status connect_streams(struct settling *s)
{
    struct vb_group *g = s->g;
    vb_status st = VB_OK;
    int i, fd;

    for (i = g->rank + 1; i < g->world && st == VB_OK; i++)
        if (way_to(s, i) != WAY_VERBS)
            st = control_give_key(g->control, i);
    for (i = 0; i < g->rank && st == VB_OK; i++)
        if (way_to(s, i) != WAY_VERBS)
            st = dial_data(g, i, s->deadline);
    for (i = g->rank + 1; i < g->world && st == VB_OK; i++) {
        if (way_to(s, i) == WAY_VERBS)
            continue;
        st = control_stream_wait(g->control, i, s->deadline, &fd);
        if (st == VB_OK)
            st = attach(g, i, fd);
    }
    return st;
}

/* ---- RDMA ------------------------------------------------------------------------------------ */

static vb_status connect_verbs(struct settling *s, int rank, struct vb_ep **ep_p)
{
    struct vb_group *g = s->g;
    unsigned char key[AUTH_KEY_BYTES];
    struct vb_link link = {.rank = rank,
                           .host = g->peers[rank].info.host,
                           .fd = -1,
                           .address = &s->cards[rank].address,
                           .key = key,
                           .epoch = GROUP_EPOCH,
                           .deadline = s->deadline};
    vb_status st;

    control_pair_key(g->control, rank, key);
    st = vb_transport_verbs.connect(s->verbs, &link, ep_p);
    auth_wipe(key, sizeof(key));
    return st;
}

static void take_verbs(struct settling *s, int rank, struct vb_ep *ep)
{
    struct peer *peer = &s->g->peers[rank];
    const char *text = vb_transport_verbs.link_text(ep);

    peer->transport = &vb_transport_verbs;
    peer->dev = s->verbs;
    peer->ep = ep;
    snprintf(peer->device, sizeof(peer->device), "%.*s", (int)strcspn(text, ","), text);
}

static vb_status connect_sure(struct settling *s)
{
    vb_status st = VB_OK;
    struct vb_ep *ep;
    int i;

    for (i = 0; i < s->g->world && st == VB_OK; i++) {
        if (i == s->g->rank || way_to(s, i) != WAY_VERBS)
            continue;
        st = connect_verbs(s, i, &ep);
        if (st == VB_OK)
            take_verbs(s, i, ep);
    }
    return st;
}

/* ---- the trial ------------------------------------------------------------------------------- */

/* Whether any pair of the job needs one: all ranks take part in it then. */
static bool needs_trial(const struct settling *s)
{
    bool soft = false;
    int i, able = 0;

    for (i = 0; i < s->g->world; i++) {
        able += s->cards[i].rdma != RDMA_NONE;
        soft = soft || s->cards[i].rdma == RDMA_SOFT;
    }
    return s->g->opts.transport == VB_TRANSPORT_AUTO && able >= 2 && soft;
}

static void keep_faster(struct settling *s, const struct trial_pair *pairs, int n, bool verbs)
{
    int i;

    for (i = 0; i < n; i++) {
        ops_of(pairs[i].devs[!verbs])->disconnect(pairs[i].eps[!verbs]);
        if (verbs)
            take_verbs(s, pairs[i].rank, pairs[i].eps[1]);
    }
    close_unused(s->g);
}

static vb_status try_pairs(struct settling *s, struct trial_pair *pairs, double seconds[2])
{
    struct vb_group *g = s->g;
    vb_status st = VB_OK;
    int i, n = 0;

    for (i = 0; i < g->world && st == VB_OK; i++) {
        if (i == g->rank || way_to(s, i) != WAY_TRIAL)
            continue;
        pairs[n] = (struct trial_pair){
            .rank = i, .devs = {g->peers[i].dev, s->verbs}, .eps = {g->peers[i].ep, NULL}};
        st = connect_verbs(s, i, &pairs[n].eps[1]);
        if (st == VB_OK)
            n++;
    }
    if (st == VB_OK)
        st = trial_run(g, pairs, n, s->deadline, seconds);
    keep_faster(s, pairs, n, st == VB_OK && seconds[1] < seconds[0]);
    return st;
}

static vb_status hold_trial(struct settling *s, double seconds[2])
{
    struct trial_pair *pairs = calloc((size_t)s->g->world, sizeof(*pairs));
    vb_status st;

    if (pairs == NULL)
        return vb_err_sys("calloc");
    st = try_pairs(s, pairs, seconds);
    free(pairs);
    return st;
}

/* ---- what was chosen, and why ---------------------------------------------------------------- */

static int first_remote(const struct vb_group *g)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (g->peers[i].transport != NULL && g->peers[i].transport != &vb_transport_shm)
            return i;
    return -1;
}

static const char *reason(const struct settling *s)
{
    if (s->g->opts.transport != VB_TRANSPORT_AUTO)
        return "asked for";
    return s->verbs == NULL ? "no RDMA device in use here" : "not all hosts have an RDMA device";
}

static void explain(struct settling *s, bool tried, const double seconds[2])
{
    struct vb_group *g = s->g;
    int rank = first_remote(g);
    size_t size = sizeof(g->why);

    if (rank < 0)
        snprintf(g->why, size, "%s", g->world == 1 ? "one rank alone" : "shm: all on one host");
    else if (tried)
        snprintf(g->why, size, "%s between hosts: soft-RoCE took %.1f ms for what took TCP %.1f ms",
                 g->peers[rank].transport->name, seconds[1] * 1e3, seconds[0] * 1e3);
    else if (g->peers[rank].transport == &vb_transport_verbs)
        snprintf(g->why, size, "verbs over %s: %s", vb_transport_verbs.link_text(g->peers[rank].ep),
                 g->opts.transport == VB_TRANSPORT_VERBS ? "asked for" : "both ends have it");
    else
        snprintf(g->why, size, "tcp: %s", reason(s));
}

/* ---- all together ---------------------------------------------------------------------------- */

static vb_status settle(struct settling *s)
{
    double seconds[2] = {0, 0};
    bool tried = false;
    vb_status st;

    st = open_verbs(s);
    if (st == VB_OK)
        st = exchange_cards(s);
    if (st == VB_OK)
        st = connect_streams(s);
    if (st == VB_OK)
        st = connect_sure(s);
    if (st == VB_OK && needs_trial(s)) {
        st = hold_trial(s, seconds);
        tried = true;
    }
    if (st != VB_OK)
        return st;
    close_unused(s->g);
    explain(s, tried, seconds);
    return VB_OK;
}

vb_status pairs_connect(struct vb_group *g, uint64_t deadline)
{
    struct settling s = {.g = g, .deadline = deadline};
    vb_status st;

    s.cards = calloc((size_t)g->world, sizeof(*s.cards));
    if (s.cards == NULL)
        return vb_err_sys("calloc");
    st = settle(&s);
    free(s.cards);
    return st;
}
