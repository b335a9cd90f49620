/* SPDX-License-Identifier: MIT
 *
 * RDMA: one reliable queue pair a peer, one completion queue a device in use. A put is a write with
 * immediate data (or a write and a message), a get is a read. Connections are librdmacm's.
 *
 * A rank does not have to poll: what has come waits in the completion queue, and a sleeper is woken
 * by its channel. Connections and the devices' own events are looked at after every sleep and now
 * and then while polling.
 */
#include "net/verbs_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define POLL_BATCH 16
#define LOOK_EVERY 512 /* polls */

/* ---- device ---------------------------------------------------------------------------------- */

static void rd_close_device(struct vb_device *vdev)
{
    struct rd_device *dev = rd_device_of(vdev);
    int i;

    if (dev == NULL)
        return;
    for (i = 0; i < dev->n_ports; i++)
        rd_port_close(&dev->ports[i]);
    rd_stop_listening(dev);
    if (dev->epoll_fd >= 0)
        close(dev->epoll_fd);
    free(dev->kept);
    free(dev);
}

static vb_status rd_open_device(const struct vb_device_opts *o, struct vb_device **dev_p)
{
    struct rd_device *dev;
    vb_status st;

    if (o->queue_depth < 1 || o->queue_depth > 1 << 14)
        return vb_err(VB_ERR_USAGE, "a queue of %d", o->queue_depth);
    dev = calloc(1, sizeof(*dev) + (size_t)o->world * sizeof(struct rd_ep *));
    if (dev == NULL)
        return vb_err_sys("calloc");
    dev->head.transport = &vb_transport_verbs;
    dev->opts = *o;
    dev->imm = !o->no_immediate;
    dev->done_end = &dev->done;
    dev->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (dev->epoll_fd < 0)
        st = vb_err_sys("epoll_create1");
    else
        st = rd_address_find(o, &dev->address);
    if (st == VB_OK)
        st = rd_listen(dev, o->bind);
    if (st != VB_OK) {
        rd_close_device((struct vb_device *)dev);
        return st;
    }
    *dev_p = (struct vb_device *)dev;
    return VB_OK;
}

bool vb_verbs_is_soft(struct vb_device *dev)
{
    return rd_device_of(dev)->address.soft;
}

static vb_status rd_address(struct vb_device *vdev, struct vb_blob *blob_p)
{
    return rd_address_pack(&rd_device_of(vdev)->address, blob_p);
}

/* ---- ends of ops and endpoints --------------------------------------------------------------- */

void rd_op_done(struct rd_device *dev, struct vb_op *op, vb_status st)
{
    op->status = st;
    op->next = NULL;
    *dev->done_end = op;
    dev->done_end = &op->next;
}

static void queue_fail(struct rd_ep *ep, struct rd_queue *q)
{
    for (; q->begin != q->end; q->begin++)
        rd_op_done(ep->dev, q->sends[q->begin % q->size].op, ep->status);
}

void rd_fail(struct rd_ep *ep, vb_status st, const char *fmt, ...)
{
    struct rd_flights *f = &ep->flights;
    va_list ap;

    if (ep->status != VB_OK)
        return;
    ep->status = st;
    ep->state = RD_DEAD;
    ep->dev->n_untold++;
    va_start(ap, fmt);
    vsnprintf(ep->why, sizeof(ep->why), fmt, ap);
    va_end(ap);
    for (; f->begin != f->end; f->begin++)
        if (f->entries[f->begin % f->size].op != NULL)
            rd_op_done(ep->dev, f->entries[f->begin % f->size].op, st);
    queue_fail(ep, &ep->puts);
    queue_fail(ep, &ep->gets);
    if (ep->id != NULL && ep->id->qp != NULL)
        (void)rdma_disconnect(ep->id); /* the peer shall know */
}

/* Ops of other endpoints that are in the list are done as well. */
static struct vb_op *rd_sever(struct vb_ep *vep)
{
    struct rd_ep *ep = rd_ep_of(vep);
    struct vb_op *ops;

    rd_fail(ep, VB_ERR_PEER, "it is gone");
    ops = ep->dev->done;
    ep->dev->done = NULL;
    ep->dev->done_end = &ep->dev->done;
    return ops;
}

/* ---- notes that had to wait ------------------------------------------------------------------ */

void rd_keep(struct rd_device *dev, const struct vb_raw_event *ev, int n)
{
    struct vb_raw_event *kept;
    int room = 2 * (dev->n_kept + n), i;

    if (dev->n_kept + n > dev->room_kept) {
        kept = realloc(dev->kept, (size_t)room * sizeof(*kept));
        if (kept == NULL) { /* a note lost is a peer lost */
            for (i = 0; i < n; i++)
                if (dev->eps[ev[i].rank] != NULL)
                    rd_fail(dev->eps[ev[i].rank], VB_ERR_NO_MEMORY, "no memory for its notes");
            return;
        }
        dev->kept = kept;
        dev->room_kept = room;
    }
    for (i = 0; i < n; i++)
        dev->kept[dev->n_kept++] = ev[i];
}

void rd_forget(struct rd_device *dev, int rank)
{
    int i, n = 0;

    for (i = 0; i < dev->n_kept; i++)
        if (dev->kept[i].rank != rank)
            dev->kept[n++] = dev->kept[i];
    dev->n_kept = n;
}

static int report_kept(struct rd_device *dev, struct vb_raw_event *ev, int max)
{
    int n = dev->n_kept < max ? dev->n_kept : max;

    memcpy(ev, dev->kept, (size_t)n * sizeof(*ev));
    dev->n_kept -= n;
    memmove(dev->kept, dev->kept + n, (size_t)dev->n_kept * sizeof(*ev));
    return n;
}

/* ---- poll ------------------------------------------------------------------------------------ */

/* After completions there may be room, credits, and receives to post again. */
static void go_on(struct rd_device *dev)
{
    struct rd_ep *ep;
    int i;

    for (i = 0; i < dev->opts.world; i++) {
        ep = dev->eps[i];
        if (ep == NULL || ep->state == RD_DEAD)
            continue;
        rd_post_recvs(ep);
        rd_give_credits(ep);
        rd_push(ep);
    }
}

int rd_poll_ports(struct rd_device *dev, struct vb_raw_event *ev, int max)
{
    struct ibv_wc wcs[POLL_BATCH];
    int i, k, n, events = 0, total = 0;

    for (i = 0; i < dev->n_ports && events < max; i++) {
        n = ibv_poll_cq(dev->ports[i].cq, max - events < POLL_BATCH ? max - events : POLL_BATCH,
                        wcs);
        if (n < 0) {
            VB_LOG_ERROR("ibv_poll_cq failed on %s",
                         ibv_get_device_name(dev->ports[i].ctx->device));
            continue;
        }
        for (k = 0; k < n; k++)
            events += rd_completed(dev, &wcs[k], &ev[events]);
        total += n;
    }
    if (total > 0)
        go_on(dev);
    return events;
}

static int report_done(struct rd_device *dev, struct vb_raw_event *ev, int max)
{
    int n = 0;

    for (; n < max && dev->done != NULL; dev->done = dev->done->next)
        ev[n++] = (struct vb_raw_event){
            .type = VB_RAW_OP_DONE, .op = dev->done, .status = dev->done->status};
    if (dev->done == NULL)
        dev->done_end = &dev->done;
    return n;
}

/* An endpoint that died is reported once, after all that came from it and its ops. */
static int report_lost(struct rd_device *dev, struct vb_raw_event *ev, int max)
{
    struct rd_ep *ep;
    int i, n = 0;

    for (i = 0; i < dev->opts.world && n < max; i++) {
        ep = dev->eps[i];
        if (ep == NULL || ep->status == VB_OK || ep->told)
            continue;
        ep->told = true;
        dev->n_untold--;
        ev[n++] = (struct vb_raw_event){
            .type = VB_RAW_LOST, .rank = ep->rank, .status = ep->status, .why = ep->why};
    }
    return n;
}

static void look_around(struct rd_device *dev)
{
    int i;

    dev->look = false;
    rd_cm_events(dev);
    for (i = 0; i < dev->n_ports; i++)
        rd_port_async(dev, &dev->ports[i]);
}

static vb_status rd_poll(struct vb_device *vdev, struct vb_raw_event *ev, int max, int *n_p)
{
    struct rd_device *dev = rd_device_of(vdev);
    int n = 0;

    if (dev->look || ++dev->polls % LOOK_EVERY == 0)
        look_around(dev);
    if (dev->n_kept > 0) /* before those that came after them */
        n = report_kept(dev, ev, max);
    n += rd_poll_ports(dev, ev + n, max - n);
    if (dev->done != NULL)
        n += report_done(dev, ev + n, max - n);
    if (dev->n_untold > 0 && dev->done == NULL)
        n += report_lost(dev, ev + n, max - n);
    *n_p = n;
    return VB_OK;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static vb_status rd_arm(struct vb_device *vdev)
{
    struct rd_device *dev = rd_device_of(vdev);
    int i;

    for (i = 0; i < dev->n_ports; i++)
        rd_port_arm(&dev->ports[i]);
    return VB_OK;
}

static struct rd_port *port_of_channel(struct rd_device *dev, int fd)
{
    int i;

    for (i = 0; i < dev->n_ports; i++)
        if (dev->ports[i].channel->fd == fd)
            return &dev->ports[i];
    return NULL;
}

/* Sleeps for up to ms, and notes which descriptors have something, so that none is read in vain. */
static void ask_epoll(struct rd_device *dev, int ms)
{
    struct epoll_event evs[2 * RD_PORTS_MAX + 1];
    struct rd_port *port;
    int i, n;

    n = epoll_wait(dev->epoll_fd, evs, VB_COUNT(evs), ms);
    for (i = 0; i < n; i++) {
        port = port_of_channel(dev, evs[i].data.fd);
        if (port != NULL)
            port->has_event = true;
        else
            dev->look = true;
    }
}

static void rd_disarm(struct vb_device *vdev)
{
    struct rd_device *dev = rd_device_of(vdev);
    int i;

    ask_epoll(dev, 0);
    for (i = 0; i < dev->n_ports; i++)
        if (dev->ports[i].has_event)
            rd_port_take_event(&dev->ports[i]);
}

/* What has come is handed out at once; the event that told of it is read before the next sleep,
 * when something is under way again and there is time. */
static vb_status rd_await(struct vb_device *vdev, struct vb_raw_event *ev, int max, int ms,
                          int *n_p)
{
    vb_status st = rd_arm(vdev);

    *n_p = 0;
    if (st == VB_OK)
        st = rd_poll(vdev, ev, max, n_p);
    if (st != VB_OK || *n_p > 0)
        return st;
    ask_epoll(rd_device_of(vdev), ms);
    return rd_poll(vdev, ev, max, n_p);
}

static int rd_wait_fd(struct vb_device *dev)
{
    return rd_device_of(dev)->epoll_fd;
}

static void *rd_remote_ptr(struct vb_remote *rem)
{
    (void)rem;
    return NULL;
}

static const char *rd_link_text(struct vb_ep *ep)
{
    return rd_ep_of(ep)->link;
}

static void rd_registered(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p)
{
    *bytes_p = rd_device_of(dev)->registered;
    *ns_p = rd_device_of(dev)->registered_ns;
}

const struct vb_transport vb_transport_verbs = {
    .name = "verbs",
    .caps = VB_CAP_CALLS,
    .open = rd_open_device,
    .close = rd_close_device,
    .address = rd_address,
    .connect = rd_connect,
    .disconnect = rd_disconnect,
    .sever = rd_sever,
    .link_text = rd_link_text,
    .registered = rd_registered,
    .export_window = rd_export_window,
    .offer_window = rd_offer_window,
    .unexport_window = rd_unexport_window,
    .import_window = rd_import_window,
    .release_window = rd_release_window,
    .remote_ptr = rd_remote_ptr,
    .put = rd_put,
    .get = rd_get,
    .poll = rd_poll,
    .arm = rd_arm,
    .disarm = rd_disarm,
    .wait_fd = rd_wait_fd,
    .await = rd_await,
};
