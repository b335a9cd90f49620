/* SPDX-License-Identifier: MIT
 *
 * The port, which is an RDMA device in use, with its protection domain, completion queue and
 * channel. A port is opened for the first connection through the device, so the route to a peer
 * decides which devices are used.
 */
#include "net/verbs/verbs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

/* Number of events acknowledged with one call, because each call takes a lock. */
#define ACK_BATCH 64

vb_status vb_verbs_err(int code, const char *call, struct ibv_context *ctx)
{
    if (code > 0) /* a few providers return -1 and set errno */
        errno = code;
    return vb_err_sys("%s on %s", call, ibv_get_device_name(ctx->device));
}

/* Adds fd to the epoll of the device. port is NULL unless fd is the channel of a port. */
static vb_status watch(struct verbs_dev *dev, int fd, struct verbs_port *port)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = port};

    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return vb_err_sys("fcntl");
    /* Ranks that are threads of one process share the device, but each rank has its own epoll. */
    if (epoll_ctl(dev->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 && errno != EEXIST)
        return vb_err_sys("epoll_ctl");
    return VB_OK;
}

/* Opens a port. Its completion queue has entries for all work requests of all peers, because an
 * overrun would break the queue. */
static vb_status port_open(struct verbs_dev *dev, struct verbs_port *port, struct ibv_context *ctx)
{
    const char *name = ibv_get_device_name(ctx->device);
    long a_peer = VERBS_SEND_QUEUE + dev->opts.queue_depth + VERBS_SPARE_RECVS;
    long size = a_peer * (dev->opts.world > 1 ? dev->opts.world - 1 : 1);
    vb_status st;
    int code;

    memset(port, 0, sizeof(*port));
    port->ctx = ctx;
    code = ibv_query_device(ctx, &port->attr);
    if (code != 0)
        return vb_verbs_err(code, "ibv_query_device", ctx);
    if (size > port->attr.max_cqe)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "the completion queues of %s have at most %d entries, too few for %d ranks",
                      name, port->attr.max_cqe, dev->opts.world);
    port->pd = ibv_alloc_pd(ctx);
    if (port->pd == NULL)
        return vb_err_sys("ibv_alloc_pd on %s", name);
    port->channel = ibv_create_comp_channel(ctx);
    if (port->channel == NULL)
        return vb_err_sys("ibv_create_comp_channel on %s", name);
    port->cq = ibv_create_cq(ctx, (int)size, port, port->channel, 0);
    if (port->cq == NULL)
        return vb_err_sys("ibv_create_cq of %ld on %s", size, name);
    st = watch(dev, port->channel->fd, port);
    return st == VB_OK ? watch(dev, ctx->async_fd, NULL) : st;
}

void vb_verbs_port_close(struct verbs_dev *dev, struct verbs_port *port)
{
    int code;

    if (port->cq != NULL) {
        vb_verbs_port_take_event(port);
        if (port->unacked > 0)
            ibv_ack_cq_events(port->cq, port->unacked); /* otherwise ibv_destroy_cq() would block */
        code = ibv_destroy_cq(port->cq);
        if (code != 0)
            (void)vb_verbs_err(code, "ibv_destroy_cq", port->ctx);
    }
    if (port->channel != NULL)
        ibv_destroy_comp_channel(port->channel);
    code = port->pd != NULL ? ibv_dealloc_pd(port->pd) : 0;
    if (code != 0)
        (void)vb_verbs_err(code, "ibv_dealloc_pd", port->ctx);
    /* The descriptor belongs to librdmacm and stays open. */
    (void)epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, port->ctx->async_fd, NULL);
    memset(port, 0, sizeof(*port));
}

/* A joiner may be reached through another device than the other peers. A port that cannot use all
 * windows is closed again, so that no later connection uses it. */
static vb_status register_windows(struct verbs_dev *dev, int index)
{
    struct verbs_window *win;
    vb_status st = VB_OK;

    for (win = dev->windows; win != NULL && st == VB_OK; win = win->next)
        st = vb_verbs_register_window(dev, win, index);
    for (win = dev->windows; win != NULL && st != VB_OK; win = win->next)
        vb_verbs_deregister_port(dev, &win->memory, index);
    return st;
}

vb_status vb_verbs_port_for(struct verbs_dev *dev, struct ibv_context *ctx, int *index_p)
{
    struct verbs_port *port = &dev->ports[dev->n_ports];
    vb_status st;
    int i;

    for (i = 0; i < dev->n_ports; i++)
        if (dev->ports[i].ctx == ctx) {
            *index_p = i;
            return VB_OK;
        }
    if (dev->n_ports == VERBS_PORTS_MAX)
        return vb_err(VB_ERR_UNSUPPORTED, "a job can use at most %d RDMA devices on one host",
                      VERBS_PORTS_MAX);
    st = port_open(dev, port, ctx);
    if (st == VB_OK)
        st = register_windows(dev, i);
    if (st != VB_OK) {
        vb_verbs_port_close(dev, port);
        return st;
    }
    dev->n_ports++;
    *index_p = i;
    return VB_OK;
}

void vb_verbs_port_arm(struct verbs_port *port)
{
    int code;

    if (port->has_event)
        vb_verbs_port_take_event(port);
    if (port->armed)
        return;
    code = ibv_req_notify_cq(port->cq, 0);
    port->armed = code == 0;
    if (code != 0)
        (void)vb_verbs_err(code, "ibv_req_notify_cq", port->ctx);
}

/* Reads one event, because each arming causes at most one. */
void vb_verbs_port_take_event(struct verbs_port *port)
{
    struct ibv_cq *cq;
    void *arg;

    port->has_event = false;
    if (ibv_get_cq_event(port->channel, &cq, &arg) != 0)
        return;
    port->armed = false;
    if (++port->unacked == ACK_BATCH) {
        ibv_ack_cq_events(port->cq, ACK_BATCH);
        port->unacked = 0;
    }
}

static struct verbs_ep *ep_of_qp(struct verbs_dev *dev, const struct ibv_qp *qp)
{
    int i;

    for (i = 0; i < dev->opts.world; i++)
        if (dev->eps[i] != NULL && dev->eps[i]->cm.id != NULL && dev->eps[i]->cm.id->qp == qp)
            return dev->eps[i];
    return NULL;
}

/* Fails the endpoint of a broken queue pair. Events of the whole device are only logged, because
 * their consequences arrive as completions. */
void vb_verbs_port_async_events(struct verbs_dev *dev, struct verbs_port *port)
{
    struct ibv_async_event event;
    struct verbs_ep *ep;
    const char *text;

    while (ibv_get_async_event(port->ctx, &event) == 0) {
        text = ibv_event_type_str(event.event_type);
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            ep = ep_of_qp(dev, event.element.qp);
            if (ep != NULL)
                vb_verbs_ep_fail(ep, VB_ERR_PEER, "the queue pair broke: %s", text);
            break;
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            break;
        default:
            VB_LOG_WARN("RDMA device %s: %s", ibv_get_device_name(port->ctx->device), text);
        }
        ibv_ack_async_event(&event);
    }
}
