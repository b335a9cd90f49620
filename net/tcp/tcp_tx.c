/* SPDX-License-Identifier: MIT
 *
 * Sends frames. If no frame waits, a new one is sent at once, directly from the window. The part
 * that the socket does not take waits in a ring, and all later frames wait behind it, so notes keep
 * their order. If the caller says that more puts follow, frames wait in the ring for each other.
 *
 * The ring has queue_depth entries for this rank's own puts and requests, and as many for replies
 * to the peer, which never has more gets under way. So receiving never waits for sending.
 */
#include "net/tcp/tcp_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define IOV_MAX_USED 64 /* maximum number of parts of frames sent with one call */

/* Frames are held back until they have this many bytes. Fewer and larger sends are faster. */
#define HOLD_BYTES ((size_t)240 * 1024)

/* A payload up to this size is copied behind its header: one buffer is sent faster than two. */
#define JOIN_BYTES 1024

/* Returns the number of bytes sent, 0 if the socket is full, -1 if it is broken. A broken socket is
 * shut down. The receiving code reads the data that has arrived, then the end of the stream, and
 * only then gives the peer up. */
static ssize_t try_send(struct tcp_ep *ep, struct iovec *iov, int n_iov)
{
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = (size_t)n_iov};
    ssize_t n;

    do {
        n = n_iov == 1 ? send(ep->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                       : sendmsg(ep->fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        vb_traffic_sent(ep->dev->opts.traffic, (uint64_t)n);
        return n;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
        return 0;
    VB_LOG_DEBUG("cannot send to rank %d: %s", ep->rank, strerror(errno));
    ep->tx.broken = true;
    (void)shutdown(ep->fd, SHUT_RDWR);
    return -1;
}

static ssize_t send_now(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    unsigned char joined[DATA_HEAD_BYTES + JOIN_BYTES];
    struct iovec iov[2] = {
        {.iov_base = (void *)frame->head, .iov_len = DATA_HEAD_BYTES},
        {.iov_base = (void *)frame->ptr, .iov_len = frame->len_bytes},
    };

    if (frame->len_bytes == 0)
        return try_send(ep, iov, 1);
    if (frame->len_bytes > JOIN_BYTES)
        return try_send(ep, iov, 2);
    memcpy(joined, frame->head, DATA_HEAD_BYTES);
    memcpy(joined + DATA_HEAD_BYTES, frame->ptr, frame->len_bytes);
    iov[0] = (struct iovec){.iov_base = joined, .iov_len = DATA_HEAD_BYTES + frame->len_bytes};
    return try_send(ep, iov, 1);
}

/* ---- the ring -------------------------------------------------------------------------------- */

static struct tcp_frame *frame_at(struct tcp_tx *tx, uint64_t number)
{
    return &tx->frames[number % tx->size];
}

static void ring_push(struct tcp_tx *tx, const struct tcp_frame *frame)
{
    VB_ASSERT(tx->end - tx->begin < tx->size);
    *frame_at(tx, tx->end++) = *frame;
    if (frame->reply)
        tx->n_replies++;
}

static void frame_done(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    if (frame->op != NULL)
        done_list_add(&ep->done, frame->op, VB_OK);
}

/* Collects the parts of the waiting frames that were not sent yet. */
static int gather(struct tcp_tx *tx, struct iovec *iov, size_t *len_p)
{
    uint64_t number = tx->begin;
    size_t skip = tx->sent;
    struct tcp_frame *frame;
    int n = 0;

    *len_p = 0;
    for (; number != tx->end && n + 2 <= IOV_MAX_USED; number++) {
        frame = frame_at(tx, number);
        if (skip < DATA_HEAD_BYTES) {
            iov[n++] = (struct iovec){frame->head + skip, DATA_HEAD_BYTES - skip};
            skip = 0;
        } else {
            skip -= DATA_HEAD_BYTES;
        }
        if (frame->len_bytes > skip)
            iov[n++] = (struct iovec){(char *)frame->ptr + skip, frame->len_bytes - skip};
        *len_p += DATA_HEAD_BYTES + frame->len_bytes;
        skip = 0;
    }
    *len_p -= tx->sent;
    return n;
}

static void advance(struct tcp_ep *ep, size_t n)
{
    struct tcp_tx *tx = &ep->tx;
    struct tcp_frame *frame;
    size_t whole;

    tx->sent += n;
    while (tcp_tx_waits(tx)) {
        frame = frame_at(tx, tx->begin);
        whole = DATA_HEAD_BYTES + frame->len_bytes;
        if (tx->sent < whole)
            return;
        tx->sent -= whole;
        tx->begin++;
        if (frame->reply)
            tx->n_replies--;
        frame_done(ep, frame);
    }
}

void vb_tcp_tx_flush(struct tcp_ep *ep)
{
    struct iovec iov[IOV_MAX_USED];
    size_t len;
    ssize_t n;
    int n_iov;

    ep->tx.held = 0;
    while (tcp_tx_waits(&ep->tx) && !ep->tx.broken) {
        n_iov = gather(&ep->tx, iov, &len);
        n = try_send(ep, iov, n_iov);
        if (n <= 0)
            return;
        advance(ep, (size_t)n);
        if ((size_t)n < len)
            return; /* the socket is full now, another call would send nothing */
    }
}

void vb_tcp_flush(struct vb_device *vdev)
{
    struct tcp_device *dev = (struct tcp_device *)vdev;
    int i;

    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i]->tx.held > 0)
            vb_tcp_tx_flush(dev->eps[i]);
}

/* Holds the frame back if the caller says that more follow. Returns false if the frame must not be
 * held back; this is also so if earlier frames wait for the socket. */
static bool hold_back(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    struct tcp_tx *tx = &ep->tx;

    if (ep->dev->head.holds == 0 || (tcp_tx_waits(tx) && tx->held == 0))
        return false;
    ring_push(tx, frame);
    tx->held += DATA_HEAD_BYTES + frame->len_bytes;
    if (tx->held >= HOLD_BYTES)
        vb_tcp_tx_flush(ep);
    return true;
}

/* Sends or queues a frame. Negative: the endpoint is dead, and the frame was not taken. */
static vb_status frame_send(struct tcp_ep *ep, const struct tcp_frame *frame)
{
    ssize_t n = 0;

    if (hold_back(ep, frame))
        return VB_OK;
    if (ep->tx.held > 0) { /* the frame is sent together with the held frames */
        ring_push(&ep->tx, frame);
        vb_tcp_tx_flush(ep);
        return VB_OK;
    }
    if (!tcp_tx_waits(&ep->tx)) {
        n = send_now(ep, frame);
        if (n < 0)
            return VB_ERR_PEER;
        if ((size_t)n == DATA_HEAD_BYTES + frame->len_bytes) {
            frame_done(ep, frame);
            return VB_OK;
        }
        ep->tx.sent = (size_t)n;
    }
    ring_push(&ep->tx, frame);
    return VB_OK;
}

/* ---- put, get, reply ------------------------------------------------------------------------- */

/* Returns VB_OK if a put or request can be taken. */
static vb_status check_room(const struct tcp_ep *ep)
{
    const struct tcp_tx *tx = &ep->tx;

    if (ep->status != VB_OK)
        return ep->status;
    if (tx->broken)
        return VB_ERR_PEER;
    if ((int)(tx->end - tx->begin) - tx->n_replies >= ep->dev->opts.queue_depth)
        return VB_AGAIN;
    return VB_OK;
}

vb_status vb_tcp_put(struct vb_ep *vep, const struct vb_span *src, struct vb_target dst,
                     uint32_t note, struct vb_op *op)
{
    struct tcp_ep *ep = (struct tcp_ep *)vep;
    struct tcp_frame frame = {.ptr = src->ptr, .len_bytes = src->len_bytes, .op = op};
    struct data_head head = {.type = DATA_PUT,
                             .window = ((struct tcp_remote *)dst.remote)->id,
                             .note = note,
                             .offset = dst.offset,
                             .len_bytes = src->len_bytes};
    vb_status st = check_room(ep);

    if (st != VB_OK)
        return st;
    vb_data_head_encode(&head, frame.head);
    return frame_send(ep, &frame);
}

vb_status vb_tcp_get(struct vb_ep *vep, const struct vb_span *dst, struct vb_target src,
                     struct vb_op *op)
{
    struct tcp_ep *ep = (struct tcp_ep *)vep;
    struct tcp_gets *gets = &ep->gets;
    struct tcp_frame frame = {.op = NULL};
    struct data_head head = {.type = DATA_GET,
                             .window = ((struct tcp_remote *)src.remote)->id,
                             .get = (uint32_t)gets->end,
                             .offset = src.offset,
                             .len_bytes = dst->len_bytes};
    vb_status st = check_room(ep);

    if (st == VB_OK && gets->end - gets->begin >= gets->depth)
        st = VB_AGAIN;
    if (st != VB_OK)
        return st;
    vb_data_head_encode(&head, frame.head);
    st = frame_send(ep, &frame);
    if (st != VB_OK)
        return st;
    gets->gets[gets->end++ % gets->depth] = (struct vb_tcp_get){op, dst->ptr, dst->len_bytes};
    return VB_OK;
}

void vb_tcp_tx_reply(struct tcp_ep *ep, const struct data_head *request, const char *from)
{
    struct tcp_frame frame = {.ptr = from, .len_bytes = request->len_bytes, .reply = true};
    struct data_head head = {
        .type = DATA_REPLY, .get = request->get, .len_bytes = request->len_bytes};

    if (ep->tx.broken)
        return; /* the receiving code will reach the end of the stream */
    vb_data_head_encode(&head, frame.head);
    (void)frame_send(ep, &frame);
}
