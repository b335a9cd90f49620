/* SPDX-License-Identifier: MIT
 *
 * The RDMA transport: one reliable queue pair per peer, one completion queue per RDMA device in
 * use. A put is a write with immediate data, or a write and a message. A get is a read. librdmacm
 * makes the connections.
 *
 * The channel of a completion queue wakes a sleeping rank. Events of connections and devices are
 * checked after every sleep, and once in CHECK_EVERY polls.
 */
#include "net/verbs/verbs_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define POLL_BATCH 16
#define CHECK_EVERY 512 /* polls between two checks of connection and device events */

static void verbs_close(struct vb_device *vdev)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    int i;

    if (dev == NULL)
        return;
    for (i = 0; i < dev->n_ports; i++)
        vb_verbs_port_close(dev, &dev->ports[i]);
    vb_verbs_stop_listening(dev);
    if (dev->epoll_fd >= 0)
        close(dev->epoll_fd);
    free(dev->kept.notes);
    free(dev);
}

static vb_status verbs_open(const struct vb_device_opts *o, struct vb_device **dev_p)
{
    struct verbs_dev *dev;
    vb_status st;

    if (o->queue_depth < 1 || o->queue_depth > 1 << 14)
        return vb_err(VB_ERR_USAGE, "queue depth %d is not possible: must be from 1 to 2^14",
                      o->queue_depth);
    dev = calloc(1, sizeof(*dev) + (size_t)o->world * sizeof(struct verbs_ep *));
    if (dev == NULL)
        return vb_err_sys("calloc");
    dev->head.transport = &vb_transport_verbs;
    dev->opts = *o;
    dev->imm = !o->no_immediate;
    done_list_init(&dev->done);
    dev->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (dev->epoll_fd < 0)
        st = vb_err_sys("epoll_create1");
    else
        st = vb_verbs_address_find(o, &dev->address);
    if (st == VB_OK)
        st = vb_verbs_listen(dev, o->bind);
    if (st != VB_OK) {
        verbs_close((struct vb_device *)dev);
        return st;
    }
    *dev_p = (struct vb_device *)dev;
    return VB_OK;
}

bool vb_verbs_is_soft(struct vb_device *dev)
{
    return ((struct verbs_dev *)dev)->address.soft;
}

static vb_status verbs_own_address(struct vb_device *vdev, struct vb_blob *blob_p)
{
    return vb_verbs_address_pack(&((struct verbs_dev *)vdev)->address, blob_p);
}

static void queue_fail(struct verbs_ep *ep, struct verbs_queue *q)
{
    for (; q->begin != q->end; q->begin++)
        done_list_add(&ep->dev->done, q->entries[q->begin % q->size].op, ep->status);
}

void vb_verbs_ep_fail(struct verbs_ep *ep, vb_status st, const char *fmt, ...)
{
    struct verbs_flights *f = &ep->tx.flights;
    va_list ap;

    if (ep->status != VB_OK)
        return;
    ep->status = st;
    ep->state = VERBS_DEAD;
    ep->dev->n_unreported++;
    va_start(ap, fmt);
    vsnprintf(ep->why, sizeof(ep->why), fmt, ap);
    va_end(ap);
    for (; f->begin != f->end; f->begin++)
        if (f->entries[f->begin % f->size].op != NULL)
            done_list_add(&ep->dev->done, f->entries[f->begin % f->size].op, st);
    queue_fail(ep, &ep->tx.puts);
    queue_fail(ep, &ep->tx.gets);
    if (ep->cm.id != NULL && ep->cm.id->qp != NULL)
        (void)rdma_disconnect(ep->cm.id); /* so that the peer notices */
}

/* The returned list may also contain ops of other endpoints, which have ended too. */
static struct vb_op *verbs_sever(struct vb_ep *vep)
{
    struct verbs_ep *ep = (struct verbs_ep *)vep;

    vb_verbs_ep_fail(ep, VB_ERR_PEER, "the peer is gone");
    return done_list_take(&ep->dev->done);
}

void vb_verbs_keep_notes(struct verbs_dev *dev, const struct vb_raw_event *ev, int n)
{
    struct vb_raw_event *kept;
    int room = 2 * (dev->kept.n + n), i;

    if (dev->kept.n + n > dev->kept.size) {
        kept = realloc(dev->kept.notes, (size_t)room * sizeof(*kept));
        if (kept == NULL) { /* the notes are lost, so the peers that sent them are given up */
            for (i = 0; i < n; i++)
                if (dev->eps[ev[i].rank] != NULL)
                    vb_verbs_ep_fail(dev->eps[ev[i].rank], VB_ERR_NO_MEMORY,
                                     "out of memory for its notes");
            return;
        }
        dev->kept.notes = kept;
        dev->kept.size = room;
    }
    for (i = 0; i < n; i++)
        dev->kept.notes[dev->kept.n++] = ev[i];
}

void vb_verbs_forget_notes(struct verbs_dev *dev, int rank)
{
    int i, n = 0;

    for (i = 0; i < dev->kept.n; i++)
        if (dev->kept.notes[i].rank != rank)
            dev->kept.notes[n++] = dev->kept.notes[i];
    dev->kept.n = n;
}

static int report_kept(struct verbs_dev *dev, struct vb_raw_event *ev, int max)
{
    int n = dev->kept.n < max ? dev->kept.n : max;

    memcpy(ev, dev->kept.notes, (size_t)n * sizeof(*ev));
    dev->kept.n -= n;
    memmove(dev->kept.notes, dev->kept.notes + n, (size_t)dev->kept.n * sizeof(*ev));
    return n;
}

/* ---- poll ------------------------------------------------------------------------------------ */

/* Called after completions, which may have freed space in the send queue, brought credits or used
 * receives. The used receives are posted again. */
static void post_all(struct verbs_dev *dev)
{
    struct verbs_ep *ep;
    int i;

    for (i = 0; i < dev->opts.world; i++) {
        ep = dev->eps[i];
        if (ep == NULL || ep->state == VERBS_DEAD)
            continue;
        vb_verbs_post_recvs(ep);
        vb_verbs_return_credits(ep);
        vb_verbs_post_queued(ep);
    }
}

int vb_verbs_poll_ports(struct verbs_dev *dev, struct vb_raw_event *ev, int max)
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
            events += vb_verbs_completed(dev, &wcs[k], &ev[events]);
        total += n;
    }
    if (total > 0)
        post_all(dev);
    return events;
}

/* Reports each dead endpoint once, after its notes and its ops. */
static int report_lost(struct verbs_dev *dev, struct vb_raw_event *ev, int max)
{
    struct verbs_ep *ep;
    int i, n = 0;

    for (i = 0; i < dev->opts.world && n < max; i++) {
        ep = dev->eps[i];
        if (ep == NULL || ep->status == VB_OK || ep->lost_reported)
            continue;
        ep->lost_reported = true;
        dev->n_unreported--;
        ev[n++] = (struct vb_raw_event){
            .type = VB_RAW_LOST, .rank = ep->rank, .status = ep->status, .why = ep->why};
    }
    return n;
}

static vb_status verbs_poll(struct vb_device *vdev, struct vb_raw_event *ev, int max, int *n_p)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    int i, n = 0;

    if (dev->has_events || ++dev->polls % CHECK_EVERY == 0) {
        dev->has_events = false;
        vb_verbs_cm_events(dev);
        for (i = 0; i < dev->n_ports; i++)
            vb_verbs_port_async_events(dev, &dev->ports[i]);
    }
    if (dev->kept.n > 0) /* older notes first */
        n = report_kept(dev, ev, max);
    n += vb_verbs_poll_ports(dev, ev + n, max - n);
    if (!done_list_empty(&dev->done))
        n += done_list_report(&dev->done, 0, ev + n, max - n);
    if (dev->n_unreported > 0 && done_list_empty(&dev->done))
        n += report_lost(dev, ev + n, max - n);
    *n_p = n;
    return VB_OK;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static vb_status verbs_arm(struct vb_device *vdev)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    int i;

    for (i = 0; i < dev->n_ports; i++)
        vb_verbs_port_arm(&dev->ports[i]);
    return VB_OK;
}

/* Sleeps for up to ms and marks which descriptors are readable. */
static void check_epoll(struct verbs_dev *dev, int ms)
{
    struct epoll_event evs[2 * VERBS_PORTS_MAX + 1];
    struct verbs_port *port;
    int i, n;

    n = epoll_wait(dev->epoll_fd, evs, VB_COUNT(evs), ms);
    for (i = 0; i < n; i++) {
        port = evs[i].data.ptr; /* NULL: an event of a connection or a device */
        if (port != NULL)
            port->has_event = true;
        else
            dev->has_events = true;
    }
}

static void verbs_disarm(struct vb_device *vdev)
{
    struct verbs_dev *dev = (struct verbs_dev *)vdev;
    int i;

    check_epoll(dev, 0);
    for (i = 0; i < dev->n_ports; i++)
        if (dev->ports[i].has_event)
            vb_verbs_port_take_event(&dev->ports[i]);
}

/* Reports completions as soon as the rank wakes. The event of the channel is read only before the
 * next sleep, when transfers are under way again and the rank has time. */
static vb_status verbs_await(struct vb_device *vdev, struct vb_raw_event *ev, int max, int ms,
                             int *n_p)
{
    (void)verbs_arm(vdev);
    (void)verbs_poll(vdev, ev, max, n_p);
    if (*n_p > 0)
        return VB_OK;
    check_epoll((struct verbs_dev *)vdev, ms);
    return verbs_poll(vdev, ev, max, n_p);
}

static int verbs_wait_fd(struct vb_device *dev)
{
    return ((struct verbs_dev *)dev)->epoll_fd;
}

static void *verbs_remote_ptr(struct vb_remote *rem)
{
    (void)rem;
    return NULL;
}

static const char *verbs_link_text(struct vb_ep *ep)
{
    return ((struct verbs_ep *)ep)->link;
}

static void verbs_registered(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p)
{
    *bytes_p = ((struct verbs_dev *)dev)->registered.bytes;
    *ns_p = ((struct verbs_dev *)dev)->registered.ns;
}

const struct vb_transport vb_transport_verbs = {
    .name = "verbs",
    .caps = VB_CAP_CALLS,
    .open = verbs_open,
    .close = verbs_close,
    .address = verbs_own_address,
    .connect = vb_verbs_connect,
    .disconnect = vb_verbs_disconnect,
    .sever = verbs_sever,
    .link_text = verbs_link_text,
    .registered = verbs_registered,
    .export_window = vb_verbs_export_window,
    .offer_window = vb_verbs_offer_window,
    .unexport_window = vb_verbs_unexport_window,
    .import_window = vb_verbs_import_window,
    .release_window = vb_verbs_release_window,
    .remote_ptr = verbs_remote_ptr,
    .put = vb_verbs_put,
    .get = vb_verbs_get,
    .poll = verbs_poll,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .wait_fd = verbs_wait_fd,
    .await = verbs_await,
};
