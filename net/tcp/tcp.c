/* SPDX-License-Identifier: MIT
 *
 * The TCP transport: one socket per peer, on which both sides send frames (wire_data.h).
 *
 * A second socket, fixed buffer sizes and io_uring were not faster: see docs/performance.md. With
 * one or two peers, poll reads from the sockets directly. With more peers, it first asks the epoll
 * which sockets are readable.
 */
#include "net/tcp/tcp_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define FEW_PEERS 2

static vb_status tcp_open_device(const struct vb_device_opts *o, struct vb_device **dev_p)
{
    struct tcp_device *dev;
    vb_status st;

    if (o->queue_depth < 1 || o->queue_depth > 1 << 20)
        return vb_err(VB_ERR_USAGE, "queue depth %d is not possible: must be from 1 to 2^20",
                      o->queue_depth);
    dev = calloc(1, sizeof(*dev) + (size_t)o->world * sizeof(struct tcp_ep *));
    if (dev == NULL)
        return vb_err_sys("calloc");
    dev->head.transport = &vb_transport_tcp;
    dev->opts = *o;
    dev->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (dev->epoll_fd < 0) {
        st = vb_err_sys("epoll_create1");
        free(dev);
        return st;
    }
    *dev_p = (struct vb_device *)dev;
    return VB_OK;
}

static void tcp_close_device(struct vb_device *vdev)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;

    if (dev == NULL)
        return;
    close(dev->epoll_fd);
    free(dev->windows);
    free(dev);
}

/* ---- endpoints ------------------------------------------------------------------------------- */

/* Makes the socket blocking: the flags of each call say whether it may sleep. The tests use unix
 * sockets, which do not support TCP_NODELAY. */
static vb_status socket_set_up(int fd)
{
    struct timeval tv = {.tv_usec = TCP_SLEEP_MS * 1000};
    int one = 1;

    if (fcntl(fd, F_SETFL, 0) != 0)
        return vb_err_sys("fcntl");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) != 0)
        return vb_err_sys("SO_RCVTIMEO");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 && errno != EOPNOTSUPP)
        return vb_err_sys("TCP_NODELAY");
    return VB_OK;
}

/* Accepts an endpoint that is not complete. */
static void ep_free(struct tcp_ep *ep)
{
    close(ep->fd);
    free(ep->tx.frames);
    free(ep->gets.gets);
    free(ep);
}

static vb_status alloc_queues(struct tcp_ep *ep, size_t depth)
{
    ep->tx.size = 2 * depth;
    ep->gets.depth = depth;
    ep->tx.frames = calloc(2 * depth, sizeof(*ep->tx.frames));
    ep->gets.gets = calloc(depth, sizeof(*ep->gets.gets));
    if (ep->tx.frames == NULL || ep->gets.gets == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory for a queue of %zu transfers", depth);
    return VB_OK;
}

static vb_status tcp_connect(struct vb_device *vdev, const struct vb_link *link,
                             struct vb_ep **ep_p)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    struct tcp_ep *ep = calloc(1, sizeof(*ep));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ep};
    vb_status st;

    if (ep == NULL) {
        st = vb_err_sys("calloc");
        close(link->fd);
        return st;
    }
    ep->dev = dev;
    ep->rank = link->rank;
    ep->fd = link->fd;
    done_list_init(&ep->done);
    st = socket_set_up(ep->fd);
    if (st == VB_OK)
        st = alloc_queues(ep, (size_t)dev->opts.queue_depth);
    if (st == VB_OK && epoll_ctl(dev->epoll_fd, EPOLL_CTL_ADD, ep->fd, &ev) != 0)
        st = vb_err_sys("epoll_ctl");
    if (st != VB_OK) {
        ep_free(ep);
        return st;
    }
    dev->eps[dev->n_eps++] = ep;
    *ep_p = (struct vb_ep *)ep;
    return VB_OK;
}

static void tcp_disconnect(struct vb_ep *vep)
{
    struct tcp_ep *ep = (struct tcp_ep *)vep;
    struct tcp_device *dev;
    int i;

    if (ep == NULL)
        return;
    dev = ep->dev;
    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i] == ep)
            dev->eps[i--] = dev->eps[--dev->n_eps];
    dev->first = 0;
    /* Fails if the endpoint is dead, because vb_tcp_fail() has removed the socket already. */
    (void)epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
    ep_free(ep);
}

void vb_tcp_fail(struct tcp_ep *ep, vb_status st)
{
    struct tcp_tx *tx = &ep->tx;
    struct tcp_gets *gets = &ep->gets;
    struct tcp_frame *frame;

    if (ep->status != VB_OK)
        return;
    ep->status = st;
    for (; tcp_tx_waits(tx); tx->begin++) {
        frame = &tx->frames[tx->begin % tx->size];
        if (frame->op != NULL)
            done_list_add(&ep->done, frame->op, st);
    }
    for (; gets->begin != gets->end; gets->begin++)
        done_list_add(&ep->done, tcp_gets_first(gets)->op, st);
    ep->rx.begin = ep->rx.end = 0;
    ep->rx.in_frame = false;
    (void)epoll_ctl(ep->dev->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
    (void)shutdown(ep->fd, SHUT_RDWR); /* so that the peer notices */
}

static struct vb_op *tcp_sever(struct vb_ep *vep)
{
    struct tcp_ep *ep = (struct tcp_ep *)vep;

    vb_tcp_fail(ep, VB_ERR_PEER);
    return done_list_take(&ep->done);
}

/* ---- windows: a peer needs only the number of a window, so the key is empty ------------------ */

struct tcp_window *vb_tcp_find_window(const struct tcp_device *dev, uint32_t id)
{
    int i;

    for (i = 0; i < dev->n_windows; i++) /* a linear search, because a job has few windows */
        if (dev->windows[i].id == id)
            return &dev->windows[i];
    return NULL;
}

static vb_status tcp_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                                   unsigned rights, struct vb_blob *key_p)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    struct tcp_window *windows;

    if (vb_tcp_find_window(dev, id) != NULL)
        return vb_err(VB_ERR_USAGE, "window %u exists already", id);
    windows = realloc(dev->windows, ((size_t)dev->n_windows + 1) * sizeof(*windows));
    if (windows == NULL)
        return vb_err_sys("realloc");
    dev->windows = windows;
    windows[dev->n_windows++] = (struct tcp_window){id, mem->ptr, mem->len_bytes, rights};
    key_p->len_bytes = 0;
    return VB_OK;
}

static vb_status tcp_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                                  struct vb_blob *key_p)
{
    (void)ep;
    (void)id;
    (void)mem;
    key_p->len_bytes = 0;
    return VB_OK;
}

static bool points_into(const struct tcp_window *win, const char *ptr)
{
    return ptr >= win->ptr && ptr < win->ptr + win->len_bytes;
}

/* Returns true if a transfer from or to the window is still under way. */
static bool ep_uses(struct tcp_ep *ep, const struct tcp_window *win)
{
    const struct tcp_tx *tx = &ep->tx;
    const struct tcp_gets *gets = &ep->gets;
    uint64_t i;

    for (i = tx->begin; i != tx->end; i++)
        if (points_into(win, tx->frames[i % tx->size].ptr))
            return true;
    for (i = gets->begin; i != gets->end; i++) /* their replies will be written there */
        if (points_into(win, gets->gets[i % gets->depth].ptr))
            return true;
    return ep->rx.in_frame && points_into(win, ep->rx.to);
}

static void tcp_unexport_window(struct vb_device *vdev, uint32_t id)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    struct tcp_window *win = vb_tcp_find_window(dev, id);
    int i;

    if (win == NULL)
        return;
    for (i = 0; i < dev->n_eps; i++)
        /* Ranks agree before they destroy a window, so this peer broke the protocol. */
        if (ep_uses(dev->eps[i], win))
            vb_tcp_fail(dev->eps[i],
                        vb_err(VB_ERR_PEER, "rank %d: window %u was destroyed during a transfer",
                               dev->eps[i]->rank, id));
    *win = dev->windows[--dev->n_windows];
}

static vb_status tcp_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *key,
                                   size_t len_bytes, int timeout_ms, struct vb_remote **rem_p)
{
    struct tcp_remote *rem;

    (void)len_bytes;
    (void)timeout_ms;
    if (key->len_bytes != 0)
        return vb_err(VB_ERR_INPUT, "window %u of rank %d: the key has a wrong length (%u bytes)",
                      id, ((struct tcp_ep *)vep)->rank, key->len_bytes);
    rem = calloc(1, sizeof(*rem));
    if (rem == NULL)
        return vb_err_sys("calloc");
    rem->id = id;
    *rem_p = (struct vb_remote *)rem;
    return VB_OK;
}

static void tcp_release_window(struct vb_remote *rem)
{
    free(rem);
}

static void *tcp_remote_ptr(struct vb_remote *rem)
{
    (void)rem;
    return NULL;
}

/* ---- poll ------------------------------------------------------------------------------------ */

static int ep_poll(struct tcp_ep *ep, struct vb_raw_event *ev, int max)
{
    int n = 0;

    if (ep->tx.held > 0)
        vb_tcp_tx_flush(ep);
    /* Ops are reported before the notes, because the handlers of notes may need these ops. */
    if (!done_list_empty(&ep->done))
        n = done_list_report(&ep->done, ep->rank, ev, max);
    if (n < max && (ep->rx.readable || tcp_rx_waits(&ep->rx)))
        n += vb_tcp_rx_poll(ep, ev + n, max - n);
    if (tcp_tx_waits(&ep->tx))
        vb_tcp_tx_flush(ep);
    if (!done_list_empty(&ep->done))
        n += done_list_report(&ep->done, ep->rank, ev + n, max - n);
    if (ep->status != VB_OK && !ep->lost_reported && done_list_empty(&ep->done) && n < max) {
        ep->lost_reported = true;
        ev[n++] =
            (struct vb_raw_event){.type = VB_RAW_LOST, .rank = ep->rank, .status = ep->status};
    }
    return n;
}

/* Waits for at most ms and marks the endpoints whose sockets are readable. */
static void check_epoll(struct tcp_device *dev, int ms)
{
    struct epoll_event evs[64];
    struct tcp_ep *ep;
    int i, n;

    n = epoll_wait(dev->epoll_fd, evs, VB_COUNT(evs), ms);
    for (i = 0; i < n; i++) {
        ep = evs[i].data.ptr;
        ep->rx.readable = (evs[i].events & ~(uint32_t)EPOLLOUT) != 0;
    }
}

/* Polls every endpoint. Reads only from sockets that are marked as readable. */
static int poll_endpoints(struct tcp_device *dev, struct vb_raw_event *ev, int max)
{
    int i, n = 0, at = dev->first;

    for (i = 0; i < dev->n_eps && n < max; i++) {
        n += ep_poll(dev->eps[at], ev + n, max - n);
        at = at + 1 < dev->n_eps ? at + 1 : 0;
    }
    if (n == max) /* the next poll starts with the endpoints that had no turn */
        dev->first = at;
    return n;
}

static vb_status tcp_poll(struct vb_device *vdev, struct vb_raw_event *ev, int max, int *n_p)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    int i;

    if (dev->n_eps > FEW_PEERS)
        check_epoll(dev, 0);
    for (i = 0; i < dev->n_eps && dev->n_eps <= FEW_PEERS; i++)
        dev->eps[i]->rx.readable = dev->eps[i]->status == VB_OK;
    *n_p = poll_endpoints(dev, ev, max);
    return VB_OK;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* Watches a socket for writing only while frames wait to be sent. */
static vb_status tcp_arm(struct vb_device *vdev)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    struct epoll_event ev;
    struct tcp_ep *ep;
    bool want;
    int i;

    vb_tcp_sense(dev);
    for (i = 0; i < dev->n_eps; i++) {
        ep = dev->eps[i];
        want = tcp_tx_waits(&ep->tx) && !ep->tx.broken;
        if (ep->status != VB_OK || want == ep->tx.want_write)
            continue;
        ev = (struct epoll_event){.events = EPOLLIN | (want ? EPOLLOUT : 0), .data.ptr = ep};
        if (epoll_ctl(dev->epoll_fd, EPOLL_CTL_MOD, ep->fd, &ev) != 0)
            return vb_err_sys("epoll_ctl");
        ep->tx.want_write = want;
    }
    return VB_OK;
}

/* There is nothing to undo, because the epoll is level-triggered and poll checks the sockets. */
static void tcp_disarm(struct vb_device *dev)
{
    (void)dev;
}

static int tcp_wait_fd(struct vb_device *dev)
{
    return ((struct tcp_device *)dev)->epoll_fd;
}

static bool any_readable(const struct tcp_device *dev)
{
    int i;

    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i]->rx.readable)
            return true;
    return false;
}

/* With one peer a message costs the receiver one system call, with more peers two. A receive sleeps
 * for TCP_SLEEP_MS, so shorter sleeps use the epoll. */
static vb_status tcp_await(struct vb_device *vdev, struct vb_raw_event *ev, int max, int ms,
                           int *n_p)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    vb_status st;

    if (any_readable(dev)) /* so that a peer that sends all the time does not starve the others */
        check_epoll(dev, 0);
    *n_p = poll_endpoints(dev, ev, max);
    if (*n_p > 0)
        return VB_OK;
    if (dev->n_eps == 1 && dev->eps[0]->status == VB_OK && !tcp_tx_waits(&dev->eps[0]->tx) &&
        ms >= TCP_SLEEP_MS) { /* the only possible event is that data arrives */
        vb_tcp_sense(dev);
        vb_tcp_rx_sleep(dev->eps[0]);
    } else {
        st = tcp_arm(vdev);
        if (st != VB_OK)
            return st;
        check_epoll(dev, ms);
    }
    *n_p = poll_endpoints(dev, ev, max);
    return VB_OK;
}

const struct vb_transport vb_transport_tcp = {
    .name = "tcp",
    .caps = VB_CAP_ANY_SOURCE,
    .open = tcp_open_device,
    .close = tcp_close_device,
    .address = vb_transport_no_address,
    .connect = tcp_connect,
    .disconnect = tcp_disconnect,
    .sever = tcp_sever,
    .link_text = vb_transport_no_link_text,
    .registered = vb_transport_none_registered,
    .export_window = tcp_export_window,
    .offer_window = tcp_offer_window,
    .unexport_window = tcp_unexport_window,
    .import_window = tcp_import_window,
    .release_window = tcp_release_window,
    .remote_ptr = tcp_remote_ptr,
    .put = vb_tcp_put,
    .get = vb_tcp_get,
    .flush = vb_tcp_flush,
    .poll = tcp_poll,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .wait_fd = tcp_wait_fd,
    .await = tcp_await,
};
