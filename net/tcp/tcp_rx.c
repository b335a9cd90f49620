/* SPDX-License-Identifier: MIT
 *
 * Receives frames. Headers, and payloads short enough to arrive with their headers, go through a
 * small buffer, the stage. The rest of a payload is received directly into the window; the same
 * call receives the next header into the stage.
 *
 * Every header is checked before a byte of its payload is stored. A peer that sends an invalid
 * header is given up, because the start of its next frame is unknown.
 */
#include "net/tcp/tcp_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Maximum number of receive calls in one poll, so that a fast sender does not delay other peers. */
#define ROUNDS 16

static void refuse(struct tcp_ep *ep, const struct data_head *head, const char *what)
{
    vb_tcp_fail(ep, vb_err(VB_ERR_INPUT,
                           "rank %d sent %s (type %d, window %u, offset %llu, %llu bytes)",
                           ep->rank, what, (int)head->type, head->window,
                           (unsigned long long)head->offset, (unsigned long long)head->len_bytes));
}

/* Returns the address in this rank's window, or NULL if the peer may not access it. */
static char *find_place(struct tcp_ep *ep, const struct data_head *head)
{
    const struct tcp_window *win = vb_tcp_find_window(ep->dev, head->window);

    if (win == NULL) {
        refuse(ep, head, "a frame for a window that does not exist");
        return NULL;
    }
    if ((win->rights & (head->type == DATA_PUT ? VB_WINDOW_PUT : VB_WINDOW_GET)) == 0) {
        refuse(ep, head, "a frame for a window that does not allow this access");
        return NULL;
    }
    if (!vb_data_in_bounds(head->offset, head->len_bytes, win->len_bytes)) {
        refuse(ep, head, "a frame that exceeds the window");
        return NULL;
    }
    return win->ptr + head->offset;
}

static void expect_payload(struct tcp_rx *rx, const struct data_head *head, char *to)
{
    rx->head = *head;
    rx->to = to;
    rx->left = (size_t)head->len_bytes;
    rx->in_frame = true;
}

static void accept_request(struct tcp_ep *ep, const struct data_head *head)
{
    char *from = find_place(ep, head);

    if (from == NULL)
        return;
    if (ep->tx.n_replies >= ep->dev->opts.queue_depth)
        refuse(ep, head, "more gets than allowed at a time");
    else
        vb_tcp_tx_reply(ep, head, from);
}

static void accept_reply(struct tcp_ep *ep, const struct data_head *head)
{
    const struct tcp_gets *gets = &ep->gets;
    const struct vb_tcp_get *get;

    if (gets->begin == gets->end || head->get != (uint32_t)gets->begin) {
        refuse(ep, head, "a reply that no get waits for");
        return;
    }
    get = tcp_gets_first(gets);
    if (head->len_bytes != get->len_bytes)
        refuse(ep, head, "a reply of a wrong length");
    else
        expect_payload(&ep->rx, head, get->ptr);
}

static void accept_head(struct tcp_ep *ep, const unsigned char *bytes)
{
    struct data_head head = {.type = (enum data_type)bytes[0]};
    const char *why = vb_data_head_decode(bytes, &head);
    char *to;

    if (why != NULL) {
        refuse(ep, &head, why);
        return;
    }
    switch (head.type) {
    case DATA_PUT:
        to = find_place(ep, &head);
        if (to != NULL)
            expect_payload(&ep->rx, &head, to);
        break;
    case DATA_GET:
        accept_request(ep, &head);
        break;
    case DATA_REPLY:
        accept_reply(ep, &head);
        break;
    }
}

/* Called when the whole payload is in place. Returns the number of notes, 0 or 1. */
static int frame_end(struct tcp_ep *ep, struct vb_raw_event *ev)
{
    struct tcp_gets *gets = &ep->gets;

    ep->rx.in_frame = false;
    if (ep->rx.head.type == DATA_REPLY) {
        done_list_add(&ep->done, tcp_gets_first(gets)->op, VB_OK);
        gets->begin++;
        return 0;
    }
    *ev = (struct vb_raw_event){
        .type = VB_RAW_NOTE, .rank = ep->rank, .note = ep->rx.head.note, .status = VB_OK};
    return 1;
}

/* Copies payload bytes from the stage to their destination. */
static void unstage(struct tcp_rx *rx)
{
    size_t n = rx->end - rx->begin;

    if (n > rx->left)
        n = rx->left;
    if (n == 0)
        return;
    memcpy(rx->to, rx->stage + rx->begin, n);
    rx->begin += n;
    rx->to += n;
    rx->left -= n;
}

/* Parses the stage until it has written max notes. Returns the number of notes. */
static int parse(struct tcp_ep *ep, struct vb_raw_event *ev, int max)
{
    struct tcp_rx *rx = &ep->rx;
    int n = 0;

    while (ep->status == VB_OK && n < max) {
        if (rx->in_frame) {
            unstage(rx);
            if (rx->left > 0)
                break;
            n += frame_end(ep, &ev[n]);
        } else {
            if (rx->end - rx->begin < DATA_HEAD_BYTES)
                break;
            rx->begin += DATA_HEAD_BYTES;
            accept_head(ep, rx->stage + rx->begin - DATA_HEAD_BYTES);
        }
    }
    return n;
}

/* Receives into the stage, after the bytes of an incomplete header that the stage may hold. Returns
 * the number of bytes requested from the socket. */
static size_t receive_heads(struct tcp_ep *ep, int flags, ssize_t *n_p)
{
    struct tcp_rx *rx = &ep->rx;
    size_t kept = rx->end - rx->begin, room = sizeof(rx->stage) - kept;

    if (kept > 0 && rx->begin > 0)
        memmove(rx->stage, rx->stage + rx->begin, kept);
    rx->begin = 0;
    rx->end = kept;
    *n_p = recv(ep->fd, rx->stage + kept, room, flags);
    if (*n_p > 0)
        rx->end += (size_t)*n_p;
    return room;
}

/* Receives the payload into the window, and the bytes after it into the stage, which is empty.
 * Returns the number of bytes requested from the socket. */
static size_t receive_payload(struct tcp_ep *ep, int flags, ssize_t *n_p)
{
    struct tcp_rx *rx = &ep->rx;
    struct iovec iov[2] = {{rx->to, rx->left}, {rx->stage, sizeof(rx->stage)}};
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = 2};
    size_t asked = rx->left + sizeof(rx->stage), placed;

    *n_p = recvmsg(ep->fd, &mh, flags);
    if (*n_p > 0) {
        placed = (size_t)*n_p < rx->left ? (size_t)*n_p : rx->left;
        rx->to += placed;
        rx->left -= placed;
        rx->begin = 0;
        rx->end = (size_t)*n_p - placed;
    }
    return asked;
}

/* Receives once. Returns false if nothing was received. A short read means that the socket is empty
 * now, so poll need not read again. */
static bool receive(struct tcp_ep *ep, int flags)
{
    ssize_t n;
    size_t asked = ep->rx.in_frame ? receive_payload(ep, flags, &n) : receive_heads(ep, flags, &n);

    if (n > 0) {
        vb_device_heard(&ep->dev->opts, ep->rank);
        vb_traffic_received(ep->dev->opts.traffic, (uint64_t)n);
        ep->rx.readable = (size_t)n == asked;
        return true;
    }
    ep->rx.readable = n < 0 && errno == EINTR;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n < 0)
        VB_LOG_DEBUG("cannot receive from rank %d: %s", ep->rank, strerror(errno));
    else if (ep->rx.in_frame || ep->rx.begin != ep->rx.end)
        VB_LOG_DEBUG("rank %d left in the middle of a frame", ep->rank);
    /* Not logged as an error: only the group knows whether the peer was expected to leave. */
    vb_tcp_fail(ep, VB_ERR_PEER);
    return false;
}

int vb_tcp_rx_poll(struct tcp_ep *ep, struct vb_raw_event *ev, int max)
{
    int round, n = parse(ep, ev, max);

    for (round = 0; round < ROUNDS && n < max; round++) {
        if (ep->status != VB_OK || !ep->rx.readable || !receive(ep, MSG_DONTWAIT))
            break;
        n += parse(ep, ev + n, max - n);
    }
    return n;
}

void vb_tcp_rx_sleep(struct tcp_ep *ep)
{
    (void)receive(ep, 0);
}
