/* SPDX-License-Identifier: MIT
 *
 * How each pair of ranks gets its data connection. Every rank sends all others a card with the
 * transport that the user asked for and its address for RDMA. From the cards both ends of a pair
 * derive the same transport: shared memory on one host, verbs if both ends have RDMA hardware, TCP
 * otherwise; --transport overrides this. For shared memory and TCP, the lower rank sends a one-time
 * key and the higher rank dials; over RDMA the higher rank calls the lower one. Pairs with soft-
 * RoCE at one end connect over both TCP and verbs, and keep the faster one (pick_transport.c).
 */
#include "net/group/group_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

struct settling {
    struct vb_group *g;
    struct wire_card *cards;
    struct vb_device *verbs; /* our RDMA device; NULL: none */
    uint64_t deadline;
};

static bool device_used(const struct vb_group *g, const struct vb_device *dev)
{
    int i;

    for (i = 0; i < g->slots; i++)
        if (g->peers[i].dev == dev)
            return true;
    return false;
}

void vb_pairs_close_unused(struct vb_group *g)
{
    struct vb_device *dev;
    int d;

    for (d = g->n_devices - 1; d >= 0; d--) {
        dev = g->devices[d];
        if (device_used(g, dev))
            continue;
        (void)epoll_ctl(g->epoll_fd, EPOLL_CTL_DEL, vb_device_transport(dev)->wait_fd(dev), NULL);
        vb_device_transport(dev)->close(dev);
        g->devices[d] = g->devices[--g->n_devices];
    }
}

/* ---- hosts and cards ------------------------------------------------------------------------- */

static bool all_on_this_host(const struct vb_group *g)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (!vb_pair_same_host(g, i))
            return false;
    return true;
}

bool vb_pairs_all_local(const struct vb_group *g)
{
    return all_on_this_host(g) && strstr(g->transports, "verbs") == NULL;
}

/* Unless the user asks for RDMA, it is used only between hosts, and only if the device opens. */
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
    st = vb_pair_device_open(g, &vb_transport_verbs, &s->verbs);
    if (st == VB_OK || g->opts.transport == VB_TRANSPORT_VERBS)
        return st;
    VB_LOG_WARN("continuing without RDMA");
    return VB_OK;
}

static vb_status exchange_cards(struct settling *s)
{
    struct vb_group *g = s->g;
    struct wire_card mine;
    int i;
    vb_status st = vb_pair_card(g, s->verbs, &mine);

    if (st == VB_OK)
        st = vb_control_exchange(g->control, &mine, sizeof(mine), s->cards, "transports",
                                 s->deadline);
    for (i = 0; i < g->world && st == VB_OK; i++)
        if (s->cards[i].choice != mine.choice)
            st = vb_err(VB_ERR_USAGE,
                        "rank %d (%s) was started with a different --transport than this rank", i,
                        vb_group_host(g, i));
    return st;
}

static enum pair_kind way_to(const struct settling *s, int rank)
{
    return vb_pair_way(s->g, &s->cards[s->g->rank], &s->cards[rank], rank);
}

/* Every rank sends all its keys before it waits, so no two ranks wait for each other. */
static vb_status connect_streams(struct settling *s)
{
    struct vb_group *g = s->g;
    vb_status st = VB_OK;
    int i, fd;

    for (i = g->rank + 1; i < g->world && st == VB_OK; i++)
        if (way_to(s, i) != WAY_VERBS)
            st = vb_control_give_key(g->control, i);
    for (i = 0; i < g->rank && st == VB_OK; i++)
        if (way_to(s, i) != WAY_VERBS)
            st = vb_pair_dial(g, i, s->deadline);
    for (i = g->rank + 1; i < g->world && st == VB_OK; i++) {
        if (way_to(s, i) == WAY_VERBS)
            continue;
        st = vb_control_stream_wait(g->control, i, s->deadline, &fd);
        if (st == VB_OK)
            st = vb_pair_attach(g, i, fd, 0);
    }
    return st;
}

static vb_status connect_verbs(struct settling *s, int rank, struct vb_ep **ep_p)
{
    return vb_pair_connect_verbs(s->g, rank, s->verbs, &s->cards[rank].address, VB_LINK_BY_RANK,
                                 s->deadline, ep_p);
}

static vb_status connect_hardware(struct settling *s)
{
    vb_status st = VB_OK;
    struct vb_ep *ep;
    int i;

    for (i = 0; i < s->g->world && st == VB_OK; i++) {
        if (i == s->g->rank || way_to(s, i) != WAY_VERBS)
            continue;
        st = connect_verbs(s, i, &ep);
        if (st == VB_OK)
            vb_pair_take_verbs(s->g, i, s->verbs, ep);
    }
    return st;
}

/* ---- TCP or soft-RoCE ------------------------------------------------------------------------ */

/* If any pair of the job must be measured, all ranks take part. */
static bool needs_pick(const struct settling *s)
{
    bool soft = false;
    int i, able = 0;

    for (i = 0; i < s->g->world; i++) {
        able += s->cards[i].rdma != WIRE_RDMA_NONE;
        soft = soft || s->cards[i].rdma == WIRE_RDMA_SOFT;
    }
    return s->g->opts.transport == VB_TRANSPORT_AUTO && able >= 2 && soft;
}

static void keep_faster(struct settling *s, const struct pick_pair *pairs, int n, bool verbs)
{
    int i;

    for (i = 0; i < n; i++) {
        vb_device_transport(pairs[i].devs[!verbs])->disconnect(pairs[i].eps[!verbs]);
        if (verbs)
            vb_pair_take_verbs(s->g, pairs[i].rank, s->verbs, pairs[i].eps[1]);
    }
    vb_pairs_close_unused(s->g);
}

static vb_status pick_faster(struct settling *s, double seconds[2])
{
    struct vb_group *g = s->g;
    struct pick_pair *pairs = calloc((size_t)g->world, sizeof(*pairs));
    vb_status st = VB_OK;
    int i, n = 0;

    if (pairs == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < g->world && st == VB_OK; i++) {
        if (i == g->rank || way_to(s, i) != WAY_MEASURE)
            continue;
        pairs[n] = (struct pick_pair){
            .rank = i, .devs = {g->peers[i].dev, s->verbs}, .eps = {g->peers[i].ep, NULL}};
        st = connect_verbs(s, i, &pairs[n].eps[1]);
        if (st == VB_OK)
            n++;
    }
    if (st == VB_OK)
        st = vb_pick_transport(g, pairs, n, s->deadline, seconds);
    keep_faster(s, pairs, n, st == VB_OK && seconds[1] < seconds[0]);
    free(pairs);
    return st;
}

static int first_remote(const struct vb_group *g)
{
    int i;

    for (i = 0; i < g->world; i++)
        if (g->peers[i].ep != NULL && g->peers[i].transport != &vb_transport_shm)
            return i;
    return -1;
}

static const char *reason(const struct settling *s)
{
    if (s->g->opts.transport != VB_TRANSPORT_AUTO)
        return "chosen with --transport";
    return s->verbs == NULL ? "this host uses no RDMA device" : "not all hosts have an RDMA device";
}

static void explain(struct settling *s, bool tried, const double seconds[2])
{
    struct vb_group *g = s->g;
    int rank = first_remote(g);
    size_t size = sizeof(g->why);

    if (rank < 0)
        snprintf(g->why, size, "%s",
                 g->world == 1 ? "there is only one rank" : "shm: all ranks are on one host");
    else if (tried)
        snprintf(
            g->why, size,
            "%s between hosts: the same transfers took %.1f ms over soft-RoCE and %.1f ms over TCP",
            g->peers[rank].transport->name, seconds[1] * 1e3, seconds[0] * 1e3);
    else if (g->peers[rank].transport == &vb_transport_verbs)
        snprintf(g->why, size, "verbs over %s: %s", vb_transport_verbs.link_text(g->peers[rank].ep),
                 g->opts.transport == VB_TRANSPORT_VERBS ? "chosen with --transport"
                                                         : "both hosts have an RDMA device");
    else
        snprintf(g->why, size, "%s: %s", g->peers[rank].transport->name, reason(s));
}

static vb_status settle(struct settling *s)
{
    double seconds[2] = {0, 0};
    bool tried = false;
    vb_status st = open_verbs(s);

    if (st == VB_OK)
        st = exchange_cards(s);
    if (st == VB_OK)
        st = connect_streams(s);
    if (st == VB_OK)
        st = connect_hardware(s);
    if (st == VB_OK && needs_pick(s)) {
        st = pick_faster(s, seconds);
        tried = true;
    }
    if (st != VB_OK)
        return st;
    vb_pairs_close_unused(s->g);
    explain(s, tried, seconds);
    return VB_OK;
}

vb_status vb_pairs_connect(struct vb_group *g, uint64_t deadline)
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
