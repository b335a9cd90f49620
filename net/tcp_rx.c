/* SPDX-License-Identifier: MIT
 *
 * What comes in. Headers, and payloads short enough to come with them, go through a small stage;
 * the rest of a payload is received straight into the window, the next header behind it into the
 * stage by the same call.
 *
 * Whatever a header asks for is checked before a byte of its payload is placed. A peer that sends
 * what cannot be is given up, for there is no telling where its next frame would begin.
 */
#include "net/tcp_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define ROUNDS 16 /* calls of recv in one poll, so that a fast sender does not hold up the rest */

static void refuse(struct tcp_ep *ep, const struct data_head *head, const char *what)
{
    tcp_fail(ep,
             vb_err(VB_ERR_INPUT, "rank %d sent %s (type %d, window %u, offset %llu, %llu bytes)",
                    ep->rank, what, (int)head->type, head->window, (unsigned long long)head->offset,
                    (unsigned long long)head->len_bytes));
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Where in our window, or NULL if the peer may not go there. */
static char *find_place(struct tcp_ep *ep, const struct data_head *head)
{
    const struct tcp_window *win = tcp_find_window(ep->dev, head->window);

    if (win == NULL) {
        refuse(ep, head, "a frame for a window that there is not");
        return NULL;
    }
    if ((win->rights & (head->type == DATA_PUT ? VB_WINDOW_PUT : VB_WINDOW_GET)) == 0) {
        refuse(ep, head, "a frame for a window that is not open for it");
        return NULL;
    }
    if (!data_in_bounds(head->offset, head->len_bytes, win->len_bytes)) {
        refuse(ep, head, "a frame that leaves the window");
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
        refuse(ep, head, "more gets than may be under way");
    else
        tcp_tx_reply(ep, head, from);
}

static void accept_reply(struct tcp_ep *ep, const struct data_head *head)
{
    const struct tcp_gets *gets = &ep->gets;
    const struct tcp_get *get;

    if (gets->begin == gets->end || head->get != (uint32_t)gets->begin) {
        refuse(ep, head, "a reply that nobody waits for");
        return;
    }
    get = tcp_gets_first(gets);
    if (head->len_bytes != get->len_bytes)
        refuse(ep, head, "a reply of another length than was asked for");
    else
        expect_payload(&ep->rx, head, get->ptr);
}

static void accept_head(struct tcp_ep *ep, const unsigned char *bytes)
{
    struct data_head head = {.type = (enum data_type)bytes[0]};
    const char *why = data_head_decode(bytes, &head);
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

/* ---- the stream ------------------------------------------------------------------------------ */

/* All of the payload is in place. Returns the number of notes: 0 or 1. */
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

/* Moves staged bytes of the payload to their place. */
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

/* Goes through the stage, up to max notes. */
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

/* Receives behind what the stage holds: at most a piece of a header. Returns what was asked for. */
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

/* Receives into the window, and what follows the payload into the stage, which is empty. */
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

/* False: nothing came. A short read means that the socket is empty now: no need to ask again. */
static bool receive(struct tcp_ep *ep, int flags)
{
    size_t asked;
    ssize_t n;

    asked = ep->rx.in_frame ? receive_payload(ep, flags, &n) : receive_heads(ep, flags, &n);
    if (n > 0) {
        ep->rx.readable = (size_t)n == asked;
        return true;
    }
    ep->rx.readable = n < 0 && errno == EINTR;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n < 0)
        VB_LOG_DEBUG("receive from rank %d: %s", ep->rank, strerror(errno));
    else if (ep->rx.in_frame || ep->rx.begin != ep->rx.end)
        VB_LOG_DEBUG("rank %d left in the middle of a frame", ep->rank);
    tcp_fail(ep, VB_ERR_PEER); /* no more is said: whether the peer was to leave, the group knows */
    return false;
}

int tcp_rx_poll(struct tcp_ep *ep, struct vb_raw_event *ev, int max)
{
    int round, n = parse(ep, ev, max);

    for (round = 0; round < ROUNDS && n < max; round++) {
        if (ep->status != VB_OK || !ep->rx.readable || !receive(ep, MSG_DONTWAIT))
            break;
        n += parse(ep, ev + n, max - n);
    }
    return n;
}

void tcp_rx_sleep(struct tcp_ep *ep)
{
    (void)receive(ep, 0);
}
