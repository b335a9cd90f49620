/* SPDX-License-Identifier: MIT
 *
 * Makes connections with librdmacm. The higher rank of a pair calls, the lower one listens. All
 * events come through one channel. A request is kept until this rank waits for the rank that sent
 * it (verbs_requests.c). A caller whose request is refused calls again until its deadline.
 */
#include "net/verbs/verbs_priv.h"

#include "net/control/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#define RESOLVE_MS 2000
#define RNR_RETRIES 7 /* means no limit; credits prevent RNR, and the caller has a deadline */
#define FLUSH_NS UINT64_C(1000000000)
#define DRAIN_NS UINT64_C(500000000)
#define SLICE_MS 100
#define PAUSE_MS 100 /* before the second call; the pauses double */
#define PAUSE_MAX_MS 1600
#define CALLS_WITHOUT_HOPE 3 /* calls of a peer to which no route is known */
#define BACKLOG_MIN 64

vb_status vb_verbs_listen(struct verbs_dev *dev, const char *bind)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    int backlog = VERBS_PLACES * dev->opts.world; /* requests that the kernel keeps for us */
    struct sock_addr at;

    dev->events = rdma_create_event_channel();
    if (dev->events == NULL)
        return vb_err_sys("rdma_create_event_channel");
    if (fcntl(dev->events->fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(dev->epoll_fd, EPOLL_CTL_ADD, dev->events->fd, &ev) != 0)
        return vb_err_sys("cannot watch the RDMA event channel");
    if (rdma_create_id(dev->events, &dev->listener, NULL, RDMA_PS_TCP) != 0)
        return vb_err_sys("rdma_create_id");
    if (bind == NULL)
        (void)vb_sock_from_text(strchr(dev->address.addrs[0], ':') != NULL ? "::" : "0.0.0.0", 0,
                                &at);
    else if (!vb_sock_from_text(bind, 0, &at))
        return vb_err(VB_ERR_USAGE, "%s is not an IP address", bind);
    if (rdma_bind_addr(dev->listener, (struct sockaddr *)&at.sa) != 0)
        return vb_err_sys("rdma_bind_addr %s", bind != NULL ? bind : "");
    if (rdma_listen(dev->listener, backlog > BACKLOG_MIN ? backlog : BACKLOG_MIN) != 0)
        return vb_err_sys("rdma_listen");
    dev->address.port = ntohs(rdma_get_src_port(dev->listener));
    return vb_verbs_requests_open(dev);
}

void vb_verbs_stop_listening(struct verbs_dev *dev)
{
    vb_verbs_requests_close(dev);
    if (dev->listener != NULL)
        rdma_destroy_id(dev->listener);
    if (dev->events != NULL)
        rdma_destroy_event_channel(dev->events);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void ep_event(struct verbs_ep *ep, const struct rdma_cm_event *event)
{
    const struct rdma_conn_param *param = &event->param.conn;

    if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT || event->event == RDMA_CM_EVENT_ADDR_CHANGE)
        return;
    /* When the peer has closed or is gone, its last messages are still in the completion queue.
     * Behind them come the flushed receives, which end the endpoint. */
    if (event->event == RDMA_CM_EVENT_DISCONNECTED && ep->state == VERBS_OPEN) {
        ep->state = VERBS_CLOSING;
        (void)rdma_disconnect(ep->cm.id);
    }
    if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
        vb_verbs_ep_fail(ep, VB_ERR_IO, "the RDMA device was removed");
    if (event->event == RDMA_CM_EVENT_ESTABLISHED && param->private_data != NULL &&
        param->private_data_len >= VERBS_CALL_BYTES)
        memcpy(ep->cm.reply, param->private_data, VERBS_CALL_BYTES);
    ep->cm.event = event->event;
    ep->cm.event_status = event->status;
    ep->cm.has_event = true;
}

static void read_event(struct verbs_dev *dev, struct rdma_cm_event *event)
{
    bool requested = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    struct rdma_cm_id *unanswered = NULL; /* its caller gave up */
    struct verbs_request request;
    const char *bad = NULL;

    if (requested)
        bad = vb_verbs_request_read(dev, event, &request);
    else if (event->id->context != NULL)
        ep_event(event->id->context, event);
    else
        unanswered = event->id;
    (void)rdma_ack_cm_event(event);
    if (requested)
        vb_verbs_request_keep(dev, &request, bad);
    if (unanswered != NULL)
        vb_verbs_request_withdraw(dev, unanswered);
}

void vb_verbs_cm_events(struct verbs_dev *dev)
{
    struct rdma_cm_event *event;

    while (rdma_get_cm_event(dev->events, &event) == 0)
        read_event(dev, event);
}

static bool has_event(const struct verbs_ep *ep)
{
    return ep->cm.has_event;
}

static const char *const event_meanings[] = {
    [RDMA_CM_EVENT_ADDR_ERROR] = "the route to the peer does not use an RDMA device",
    [RDMA_CM_EVENT_ROUTE_ERROR] = "there is no route to the peer",
    [RDMA_CM_EVENT_UNREACHABLE] = "the peer does not answer: is UDP port 4791 open?",
    [RDMA_CM_EVENT_REJECTED] = "the peer refused the connection",
};

/* Waits for the event that answers the last call of librdmacm. Stores the reason of a failure in
 * ep->why; the caller logs it. */
static vb_status wait_event(struct verbs_ep *ep, enum rdma_cm_event_type expected, const char *what,
                            uint64_t deadline)
{
    vb_status st = vb_verbs_ep_wait(ep, has_event, what, deadline);
    const char *name, *meaning;

    if (st != VB_OK)
        return st;
    ep->cm.has_event = false;
    if (ep->cm.event == expected)
        return VB_OK;
    name = meaning = rdma_event_str(ep->cm.event);
    if (ep->cm.event < VB_COUNT(event_meanings) && event_meanings[ep->cm.event] != NULL)
        meaning = event_meanings[ep->cm.event];
    snprintf(ep->why, sizeof(ep->why), "%s: %s (%s, status %d)", what, meaning, name,
             ep->cm.event_status);
    return VB_ERR_PEER;
}

/* ---- calling a peer -------------------------------------------------------------------------- */

/* The control plane notices a dead peer earlier (net/control/times.h). */
static void set_ack_timeout(const struct verbs_dev *dev, struct rdma_cm_id *id)
{
    uint8_t timeout = (uint8_t)dev->opts.qp_timeout;

    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                        sizeof(timeout)) != 0)
        VB_LOG_DEBUG("cannot set the ack timeout: %s", strerror(errno));
}

/* Returns the number of reads under way that the device and the peer allow. */
static uint8_t limit_reads(int device_max, int peer_max)
{
    int max = device_max < peer_max ? device_max : peer_max;

    return (uint8_t)(max < VERBS_READS_MAX ? max : VERBS_READS_MAX);
}

static void destroy_id(struct verbs_ep *ep)
{
    if (ep->cm.id == NULL)
        return;
    if (ep->cm.id->qp != NULL)
        rdma_destroy_qp(ep->cm.id);
    rdma_destroy_id(ep->cm.id);
    ep->cm.id = NULL;
}

/* Resolves an address and creates a queue pair on the device that reaches it. */
static vb_status prepare_call(struct verbs_ep *ep, const char *addr, int port, uint64_t deadline)
{
    const struct verbs_dev *dev = ep->dev;
    struct sockaddr *source = NULL; /* NULL: the route determines it */
    struct sock_addr to, from;
    struct rdma_cm_id *id;
    vb_status st;

    if (!vb_sock_from_text(addr, port, &to))
        return vb_err(VB_ERR_INPUT, "rank %d sent an invalid RDMA address: %s", ep->rank, addr);
    if (rdma_create_id(dev->events, &id, ep, RDMA_PS_TCP) != 0)
        return vb_err_sys("rdma_create_id");
    ep->cm.id = id;
    ep->cm.has_event = false;
    if ((dev->opts.bind != NULL || dev->opts.device != NULL) &&
        vb_sock_from_text(dev->address.addrs[0], 0, &from))
        source = (struct sockaddr *)&from.sa;
    if (rdma_resolve_addr(id, source, (struct sockaddr *)&to.sa, RESOLVE_MS) != 0) {
        snprintf(ep->why, sizeof(ep->why), "%s cannot be reached over RDMA: %s", addr,
                 strerror(errno));
        ep->cm.event = RDMA_CM_EVENT_ADDR_ERROR;
        return VB_ERR_PEER;
    }
    st = wait_event(ep, RDMA_CM_EVENT_ADDR_RESOLVED, addr, deadline);
    if (st != VB_OK)
        return st;
    set_ack_timeout(dev, id);
    if (rdma_resolve_route(id, RESOLVE_MS) != 0)
        return vb_err_sys("rdma_resolve_route");
    st = wait_event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED, addr, deadline);
    return st == VB_OK ? vb_verbs_ep_create_qp(ep) : st;
}

static vb_status call_address(struct verbs_ep *ep, const struct vb_link *link, const char *addr,
                              int port)
{
    struct verbs_call own = {.rank = ep->dev->opts.rank, .epoch = link->epoch}, theirs;
    unsigned char request[VERBS_CALL_BYTES], proof[WIRE_PROOF];
    struct rdma_conn_param param = {.private_data = request,
                                    .private_data_len = sizeof(request),
                                    .retry_count = (uint8_t)ep->dev->opts.qp_retries,
                                    .rnr_retry_count = RNR_RETRIES};
    vb_status st = prepare_call(ep, addr, port, link->deadline);

    if (st != VB_OK)
        return st;
    own.port = ep->port_index;
    vb_verbs_call_request(&own, link->rank, link->key, request);
    param.responder_resources = limit_reads(ep->port->attr.max_qp_rd_atom, VERBS_READS_MAX);
    param.initiator_depth = limit_reads(ep->port->attr.max_qp_init_rd_atom, VERBS_READS_MAX);
    if (rdma_connect(ep->cm.id, &param) != 0)
        return vb_err_sys("rdma_connect to rank %d at %s", ep->rank, addr);
    st = wait_event(ep, RDMA_CM_EVENT_ESTABLISHED, addr, link->deadline);
    if (st != VB_OK)
        return st;
    if (vb_verbs_call_read(ep->cm.reply, VERBS_CALL_BYTES, VERBS_CALL_REPLY, &theirs) != NULL ||
        theirs.rank != link->rank || theirs.port >= VERBS_PORTS_MAX ||
        !vb_verbs_call_reply_verify(request, ep->cm.reply, link->key))
        return vb_err(VB_ERR_ACCESS, "the process that answers at %s is not rank %d of this job",
                      addr, link->rank);
    ep->peer_port = theirs.port;
    vb_verbs_call_proof(request, ep->cm.reply, link->key, proof);
    return vb_verbs_ep_start(ep, proof, true, link->deadline);
}

/* A peer that has refused a request, or whose answer was lost, may accept the next one. */
static bool may_accept_later(const struct verbs_ep *ep)
{
    return ep->cm.event == RDMA_CM_EVENT_REJECTED || ep->cm.event == RDMA_CM_EVENT_UNREACHABLE;
}

/* Returns false if the peer need not be called again: it is gone, or the time is over. */
static bool pause_before(const struct verbs_ep *ep, int n_calls, uint64_t deadline)
{
    int ms = n_calls < 5 ? PAUSE_MS << (n_calls - 1) : PAUSE_MAX_MS;
    uint64_t now = vb_clock_ns(), until = now + (uint64_t)ms * 1000000u;

    if (until > deadline)
        until = deadline;
    for (; now < until && !vb_verbs_ep_gone(ep); now = vb_clock_ns())
        (void)poll(NULL, 0, vb_sock_ms_left(until, SLICE_MS));
    return now < deadline && !vb_verbs_ep_gone(ep);
}

/* Calls all addresses of the peer, again and again until the deadline. */
static vb_status call_addresses(struct verbs_ep *ep, const struct vb_link *link,
                                const struct verbs_address *address)
{
    int i, n_calls = 0;
    bool hope = true;
    vb_status st = VB_ERR_PEER;

    do {
        hope = false;
        for (i = 0; i < address->n_addrs; i++) {
            st = call_address(ep, link, address->addrs[i], address->port);
            if (st != VB_ERR_PEER || ep->status != VB_OK)
                return st;
            hope = hope || may_accept_later(ep);
            destroy_id(ep);
        }
        n_calls++;
    } while ((hope || n_calls < CALLS_WITHOUT_HOPE) && pause_before(ep, n_calls, link->deadline));
    return st;
}

static vb_status call_peer(struct verbs_ep *ep, const struct vb_link *link)
{
    struct verbs_address address;
    vb_status st;

    if (!vb_verbs_address_unpack(link->address, &address))
        return vb_err(VB_ERR_INPUT, "the RDMA address of rank %d (%s) is invalid", ep->rank,
                      ep->host);
    st = call_addresses(ep, link, &address);
    if (st == VB_ERR_PEER && ep->why[0] != '\0')
        return vb_err(st, "cannot connect to rank %d (%s) over RDMA: %s", ep->rank, ep->host,
                      ep->why);
    return st;
}

/* ---- answering a call ------------------------------------------------------------------------ */

/* Waits for the call of a peer, as long as the peer may still call. */
static vb_status wait_request(struct verbs_ep *ep, const struct vb_link *link,
                              struct verbs_request **request_p)
{
    struct verbs_dev *dev = ep->dev;
    struct pollfd fd = {.fd = dev->events->fd, .events = POLLIN};

    vb_verbs_cm_events(dev);
    while ((*request_p = vb_verbs_request_of(dev, link)) == NULL) {
        if (vb_verbs_ep_gone(ep))
            return vb_err(VB_ERR_PEER, "rank %d (%s) was lost before it connected over RDMA",
                          ep->rank, ep->host);
        if (vb_clock_ns() >= link->deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d (%s) did not connect over RDMA in time",
                          ep->rank, ep->host);
        (void)poll(&fd, 1, vb_sock_ms_left(link->deadline, SLICE_MS));
        vb_verbs_cm_events(dev);
    }
    return VB_OK;
}

static vb_status accept_request(struct verbs_ep *ep, const struct vb_link *link,
                                struct verbs_request *request)
{
    struct verbs_call own = {.rank = ep->dev->opts.rank, .epoch = link->epoch};
    unsigned char reply[VERBS_CALL_BYTES], proof[WIRE_PROOF];
    struct rdma_conn_param param = {
        .private_data = reply, .private_data_len = sizeof(reply), .rnr_retry_count = RNR_RETRIES};
    struct rdma_cm_id *id = request->id;
    vb_status st;

    request->id = NULL;
    ep->cm.id = id;
    id->context = ep;
    set_ack_timeout(ep->dev, id);
    st = vb_verbs_ep_create_qp(ep);
    if (st != VB_OK)
        return st;
    ep->peer_port = request->from.port;
    own.port = ep->port_index;
    vb_verbs_call_reply(&own, request->call, link->key, reply);
    vb_verbs_call_proof(request->call, reply, link->key, proof);
    param.responder_resources =
        limit_reads(ep->port->attr.max_qp_rd_atom, request->responder_resources);
    param.initiator_depth =
        limit_reads(ep->port->attr.max_qp_init_rd_atom, request->initiator_depth);
    ep->cm.has_event = false;
    if (rdma_accept(id, &param) != 0)
        return vb_err_sys("rdma_accept rank %d", ep->rank);
    st = wait_event(ep, RDMA_CM_EVENT_ESTABLISHED, "the connection", link->deadline);
    if (st == VB_ERR_PEER && ep->status == VB_OK)
        return vb_err(st, "cannot accept the RDMA connection of rank %d (%s): %s", ep->rank,
                      ep->host, ep->why);
    return st == VB_OK ? vb_verbs_ep_start(ep, proof, false, link->deadline) : st;
}

/* ---- connect and disconnect ------------------------------------------------------------------ */

vb_status vb_verbs_connect(struct vb_device *vdev, const struct vb_link *link, struct vb_ep **ep_p)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    struct verbs_request *request;
    vb_status st;
    struct verbs_ep *ep = vb_verbs_ep_create(dev, link);

    if (ep == NULL)
        return VB_ERR_NO_MEMORY;
    dev->eps[link->rank] = ep;
    if (link->role == VB_LINK_BY_RANK ? link->rank < dev->opts.rank : link->role == VB_LINK_CALL) {
        st = call_peer(ep, link);
    } else {
        st = wait_request(ep, link, &request);
        if (st == VB_OK)
            st = accept_request(ep, link, request);
    }
    if (st != VB_OK) {
        ep->state = VERBS_DEAD;
        vb_verbs_disconnect((struct vb_ep *)ep);
        return st;
    }
    *ep_p = (struct vb_ep *)ep;
    return VB_OK;
}

static bool all_flushed(const struct verbs_ep *ep)
{
    return ep->rx.n_posted == 0;
}

static bool all_sent(const struct verbs_ep *ep)
{
    return ep->tx.completed == ep->tx.posted || ep->state != VERBS_OPEN;
}

/* Waits briefly until all posted work requests are complete, if the peer still accepts them. */
void vb_verbs_disconnect(struct vb_ep *vep)
{
    struct verbs_ep *ep = (struct verbs_ep *)vep;
    struct verbs_dev *dev;

    if (ep == NULL)
        return;
    dev = ep->dev;
    if (ep->state == VERBS_OPEN && ep->tx.completed < ep->tx.posted &&
        vb_verbs_send_marker(ep) == VB_OK)
        vb_verbs_ep_try_wait(ep, all_sent, vb_clock_ns() + FLUSH_NS);
    if (ep->cm.id != NULL && ep->cm.id->qp != NULL) {
        (void)rdma_disconnect(ep->cm.id); /* the queue pair goes into the error state */
        ep->state = VERBS_DEAD;
        vb_verbs_ep_try_wait(ep, all_flushed, vb_clock_ns() + DRAIN_NS);
    }
    destroy_id(ep);
    dev->n_unreported -= ep->status != VB_OK && !ep->lost_reported;
    dev->eps[ep->rank] = NULL;
    vb_verbs_forget_notes(dev, ep->rank);
    vb_verbs_ep_destroy(ep);
}
