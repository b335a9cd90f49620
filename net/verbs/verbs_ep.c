/* SPDX-License-Identifier: MIT
 *
 * One connection: its queue pair, its receives and its start. Both sides send a hello, the caller
 * first, because iWARP demands this order. Then each side tests a write into the memory of the
 * other side, so a connection that cannot carry a write fails before the training.
 */
#include "net/verbs/verbs_priv.h"

#include "net/control/sock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096
#define RNR_TIMER 12 /* means 0.64 ms; the default of librdmacm means 655 ms */
#define SLEEP_MS 50

struct verbs_ep *vb_verbs_ep_create(struct verbs_dev *dev, const struct vb_link *link)
{
    struct verbs_ep *ep = calloc(1, sizeof(*ep));
    size_t depth = (size_t)dev->opts.queue_depth;

    if (ep == NULL)
        goto err;
    ep->dev = dev;
    ep->rank = link->rank;
    ep->gone = link->gone;
    ep->gone_arg = link->gone_arg;
    ep->tag = vb_verbs_ep_tag(link->rank, link->epoch);
    snprintf(ep->host, sizeof(ep->host), "%s", link->host);
    ep->tx.puts.size = ep->tx.gets.size = depth;
    ep->tx.flights.size = VERBS_SEND_QUEUE;
    ep->tx.puts.entries = calloc(depth, sizeof(*ep->tx.puts.entries));
    ep->tx.gets.entries = calloc(depth, sizeof(*ep->tx.gets.entries));
    ep->tx.flights.entries = calloc(VERBS_SEND_QUEUE, sizeof(*ep->tx.flights.entries));
    ep->rx.n = (uint32_t)depth + VERBS_SPARE_RECVS;
    ep->rx.owed_max = (uint32_t)(depth + 1) / 2;
    ep->rx.wrs = calloc(ep->rx.n, sizeof(*ep->rx.wrs));
    ep->rx.sges = calloc(ep->rx.n, sizeof(*ep->rx.sges));
    ep->rx.memory.len_bytes = ((size_t)ep->rx.n * VERBS_MESSAGE_BYTES + PAGE - 1) / PAGE * PAGE;
    ep->rx.memory.ptr = aligned_alloc(PAGE, ep->rx.memory.len_bytes);
    ep->probe.len_bytes = PAGE;
    ep->probe.ptr = aligned_alloc(PAGE, PAGE);
    if (ep->tx.puts.entries == NULL || ep->tx.gets.entries == NULL ||
        ep->tx.flights.entries == NULL || ep->rx.wrs == NULL || ep->rx.sges == NULL ||
        ep->rx.memory.ptr == NULL || ep->probe.ptr == NULL)
        goto err;
    memset(ep->rx.memory.ptr, 0, ep->rx.memory.len_bytes);
    memset(ep->probe.ptr, 0, PAGE);
    return ep;

err:
    (void)vb_err_sys("calloc");
    vb_verbs_ep_destroy(ep);
    return NULL;
}

void vb_verbs_ep_destroy(struct verbs_ep *ep)
{
    if (ep == NULL)
        return;
    vb_traffic_remove(ep->dev->opts.traffic, &ep->traffic);
    vb_verbs_deregister(ep->dev, &ep->rx.memory);
    vb_verbs_deregister(ep->dev, &ep->probe);
    free(ep->rx.memory.ptr);
    free(ep->probe.ptr);
    free(ep->tx.puts.entries);
    free(ep->tx.gets.entries);
    free(ep->tx.flights.entries);
    free(ep->rx.wrs);
    free(ep->rx.sges);
    free(ep);
}

/* ---- the queue pair -------------------------------------------------------------------------- */

static void chain_recvs(struct verbs_ep *ep)
{
    uint32_t lkey = ep->rx.memory.mrs[ep->port_index]->lkey, i;

    ep->rx.to_post = NULL;
    ep->rx.n_posted = ep->rx.n;
    for (i = 0; i < ep->rx.n; i++) {
        ep->rx.sges[i] =
            (struct ibv_sge){(uintptr_t)(ep->rx.memory.ptr + (size_t)i * VERBS_MESSAGE_BYTES),
                             VERBS_MESSAGE_BYTES, lkey};
        ep->rx.wrs[i] = (struct ibv_recv_wr){.wr_id = vb_verbs_recv_tag(ep, i),
                                             .next = ep->rx.to_post,
                                             .sg_list = &ep->rx.sges[i],
                                             .num_sge = 1};
        ep->rx.to_post = &ep->rx.wrs[i];
    }
}

/* Creates the queue pair. The device may grant more or less inline data than requested. */
static vb_status create_qp(struct verbs_ep *ep)
{
    const struct ibv_device_attr *attr = &ep->port->attr;
    struct ibv_qp_init_attr init = {.send_cq = ep->port->cq,
                                    .recv_cq = ep->port->cq,
                                    .cap = {.max_send_wr = attr->max_qp_wr < VERBS_SEND_QUEUE
                                                               ? (uint32_t)attr->max_qp_wr
                                                               : VERBS_SEND_QUEUE,
                                            .max_recv_wr = ep->rx.n,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = VERBS_INLINE_BYTES},
                                    .qp_type = IBV_QPT_RC};

    ep->tx.size = init.cap.max_send_wr;
    if (rdma_create_qp(ep->cm.id, ep->port->pd, &init) != 0) {
        init.cap.max_inline_data = VERBS_MESSAGE_BYTES;
        if (rdma_create_qp(ep->cm.id, ep->port->pd, &init) != 0)
            return vb_err_sys("cannot create a queue pair for rank %d on %s", ep->rank,
                              ibv_get_device_name(ep->cm.id->verbs->device));
    }
    ep->tx.inline_max = init.cap.max_inline_data;
    return VB_OK;
}

vb_status vb_verbs_ep_create_qp(struct verbs_ep *ep)
{
    vb_status st = vb_verbs_port_for(ep->dev, ep->cm.id->verbs, &ep->port_index);

    if (st != VB_OK)
        return st;
    ep->port = &ep->dev->ports[ep->port_index];
    /* An earlier attempt may have registered the memory. */
    if (ep->rx.memory.mrs[ep->port_index] == NULL)
        st = vb_verbs_register(ep->dev, &ep->rx.memory, ep->port_index, IBV_ACCESS_LOCAL_WRITE);
    if (st == VB_OK && ep->probe.mrs[ep->port_index] == NULL)
        st = vb_verbs_register(ep->dev, &ep->probe, ep->port_index,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (st == VB_OK)
        st = create_qp(ep);
    if (st != VB_OK)
        return st;
    chain_recvs(ep);
    vb_verbs_post_recvs(ep);
    return ep->status;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Handles events and completions while a connection is made or closed. Notes of other peers, which
 * may arrive meanwhile in an elastic group, are kept for the next poll. */
static void collect_events(struct verbs_dev *dev)
{
    struct vb_raw_event ev[8];

    vb_verbs_cm_events(dev);
    vb_verbs_keep_notes(dev, ev, vb_verbs_poll_ports(dev, ev, VB_COUNT(ev)));
}

/* Sleeps until an event comes, but not past the deadline. */
static void sleep_until_event(struct verbs_ep *ep, verbs_ready_fn ready, uint64_t deadline)
{
    struct verbs_dev *dev = ep->dev;
    struct pollfd fd = {.fd = dev->epoll_fd, .events = POLLIN};
    int i;

    for (i = 0; i < dev->n_ports; i++)
        vb_verbs_port_arm(&dev->ports[i]);
    collect_events(dev);
    if (!ready(ep))
        (void)poll(&fd, 1, vb_sock_ms_left(deadline, SLEEP_MS));
    for (i = 0; i < dev->n_ports; i++)
        vb_verbs_port_take_event(&dev->ports[i]);
}

void vb_verbs_ep_try_wait(struct verbs_ep *ep, verbs_ready_fn ready, uint64_t deadline)
{
    for (collect_events(ep->dev); !ready(ep) && vb_clock_ns() < deadline; collect_events(ep->dev))
        sleep_until_event(ep, ready, deadline);
}

bool vb_verbs_ep_gone(const struct verbs_ep *ep)
{
    return ep->gone != NULL && ep->gone(ep->gone_arg, ep->rank);
}

vb_status vb_verbs_ep_wait(struct verbs_ep *ep, verbs_ready_fn ready, const char *what,
                           uint64_t deadline)
{
    for (collect_events(ep->dev); !ready(ep); collect_events(ep->dev)) {
        if (ep->status != VB_OK)
            return vb_err(ep->status, "rank %d (%s) failed while this rank waited for %s: %s",
                          ep->rank, ep->host, what, ep->why);
        if (vb_verbs_ep_gone(ep))
            return vb_err(VB_ERR_PEER, "rank %d (%s) was lost while this rank waited for %s",
                          ep->rank, ep->host, what);
        if (vb_clock_ns() >= deadline)
            return vb_err(VB_ERR_TIMEOUT,
                          "rank %d (%s) did not answer over RDMA in time: this rank waited for %s",
                          ep->rank, ep->host, what);
        sleep_until_event(ep, ready, deadline);
    }
    return VB_OK;
}

/* ---- start ----------------------------------------------------------------------------------- */

static const char *link_kind(const struct verbs_ep *ep, const struct ibv_qp_attr *attr)
{
    struct ibv_gid_entry entry;

    if (verbs_is_iwarp(ep->cm.id->verbs))
        return "iWARP";
    if (!attr->ah_attr.is_global)
        return "InfiniBand";
    if (ibv_query_gid_ex(ep->cm.id->verbs, attr->port_num, attr->ah_attr.grh.sgid_index, &entry,
                         0) != 0)
        return "a GID of unknown type";
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
        return "RoCE v2";
    return entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "InfiniBand with GRH";
}

static void describe_link(struct verbs_ep *ep, const struct ibv_qp_attr *attr)
{
    char gid[VB_ADDR_TEXT] = "?";

    (void)inet_ntop(AF_INET6, ep->cm.id->route.addr.addr.ibaddr.sgid.raw, gid, sizeof(gid));
    snprintf(ep->link, sizeof(ep->link), "%s/%d, GID %d %s, %s, MTU %d",
             ibv_get_device_name(ep->cm.id->verbs->device), attr->port_num,
             attr->ah_attr.grh.sgid_index, gid, link_kind(ep, attr), 128 << attr->path_mtu);
}

/* Reads the limits that librdmacm has negotiated with the peer. Sets the RNR timer. */
static vb_status read_limits(struct verbs_ep *ep)
{
    struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};
    struct ibv_qp_init_attr init;
    struct ibv_port_attr port;
    bool soft = ep->dev->address.soft;
    int err = ibv_modify_qp(ep->cm.id->qp, &attr, IBV_QP_MIN_RNR_TIMER);

    if (err != 0)
        VB_LOG_WARN("cannot set the RNR timer for rank %d (%s): %s", ep->rank, ep->host,
                    strerror(err));
    memset(&attr, 0, sizeof(attr));
    err = ibv_query_qp(
        ep->cm.id->qp, &attr,
        IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_PORT | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_CAP, &init);
    if (err != 0)
        return vb_verbs_err(err, "ibv_query_qp", ep->cm.id->verbs);
    err = ibv_query_port(ep->cm.id->verbs, ep->cm.id->port_num, &port);
    if (err != 0)
        return vb_verbs_err(err, "ibv_query_port", ep->cm.id->verbs);
    ep->tx.piece = port.max_msg_sz < VERBS_PIECE_BYTES ? port.max_msg_sz : VERBS_PIECE_BYTES;
    /* Soft-RoCE answers a read with all its packets at once, even on a slow link. Everything else
     * sent to this host waits behind them, heartbeats too. So this rank requests few bytes at a
     * time. */
    ep->reads.piece =
        soft && ep->tx.piece > VERBS_SOFT_READ_PIECE ? VERBS_SOFT_READ_PIECE : ep->tx.piece;
    ep->reads.bytes_max = soft ? VERBS_SOFT_READ_BYTES : SIZE_MAX;
    ep->reads.n_max = attr.max_rd_atomic < VERBS_READS_MAX ? attr.max_rd_atomic : VERBS_READS_MAX;
    if (ep->reads.n_max < 1)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "rank %d (%s) and this rank cannot use RDMA reads: one of the two devices "
                      "does not support them",
                      ep->rank, ep->host);
    describe_link(ep, &attr);
    return VB_OK;
}

/* iWARP has no immediate data. */
static bool wants_imm(const struct verbs_ep *ep)
{
    return ep->dev->imm && !verbs_is_iwarp(ep->cm.id->verbs);
}

static vb_status say_hello(struct verbs_ep *ep, const unsigned char *proof)
{
    struct verbs_hello hello = {.probe_addr = (uint64_t)(uintptr_t)ep->probe.ptr,
                                .probe_rkey = ep->probe.mrs[ep->port_index]->rkey,
                                .credits = (uint32_t)ep->dev->opts.queue_depth,
                                .imm = wants_imm(ep)};
    unsigned char bytes[VERBS_MESSAGE_BYTES];

    if (proof != NULL)
        memcpy(hello.proof, proof, WIRE_PROOF);
    return vb_verbs_send_message(ep, bytes, vb_verbs_hello_pack(&hello, bytes));
}

static bool has_hello(const struct verbs_ep *ep)
{
    return ep->has_hello;
}

static bool is_probed(const struct verbs_ep *ep)
{
    return ep->has_probe && ep->tx.completed >= ep->tx.signalled;
}

static void fill_probe(char *at, int from, int to)
{
    int i;

    for (i = 0; i < VERBS_PROBE_BYTES; i++)
        at[i] = (char)(i * 7 + from * 31 + to * 17 + 1);
}

/* Tests a real write in each direction and checks the received bytes. */
static vb_status probe(struct verbs_ep *ep, uint64_t deadline)
{
    int me = ep->dev->opts.rank;
    char expected[VERBS_PROBE_BYTES];
    vb_status st;

    fill_probe(ep->probe.ptr + VERBS_PROBE_BYTES, me, ep->rank);
    st = vb_verbs_send_probe(ep);
    if (st == VB_OK)
        st = vb_verbs_ep_wait(ep, is_probed, "the first RDMA write", deadline);
    if (st != VB_OK)
        return st;
    fill_probe(expected, ep->rank, me);
    if (memcmp(ep->probe.ptr, expected, VERBS_PROBE_BYTES) != 0)
        return vb_err(VB_ERR_IO, "the test write of rank %d (%s) over %s arrived corrupted",
                      ep->rank, ep->host, ep->link);
    ep->traffic.theirs = (const void *)(ep->probe.ptr + VERBS_TOLD_AT);
    vb_traffic_add(ep->dev->opts.traffic, &ep->traffic);
    return VB_OK;
}

static vb_status exchange_hellos(struct verbs_ep *ep, const unsigned char proof[WIRE_PROOF],
                                 bool caller, uint64_t deadline)
{
    vb_status st = VB_OK;

    if (caller)
        st = say_hello(ep, proof);
    if (st == VB_OK)
        st = vb_verbs_ep_wait(ep, has_hello, "its hello", deadline);
    if (st != VB_OK || caller)
        return st;
    if (!vb_auth_equal(ep->hello.proof, proof))
        return vb_err(VB_ERR_ACCESS,
                      "the RDMA request of rank %d (%s) is a replay of an old request", ep->rank,
                      ep->host);
    return say_hello(ep, NULL);
}

vb_status vb_verbs_ep_start(struct verbs_ep *ep, const unsigned char proof[WIRE_PROOF], bool caller,
                            uint64_t deadline)
{
    vb_status st = read_limits(ep);

    if (st == VB_OK)
        st = exchange_hellos(ep, proof, caller, deadline);
    if (st == VB_OK)
        st = probe(ep, deadline);
    if (st != VB_OK)
        return st;
    ep->tx.write_imm = wants_imm(ep) && ep->hello.imm;
    ep->state = VERBS_OPEN;
    return VB_OK;
}
