/* SPDX-License-Identifier: MIT
 *
 * Types and functions that the files of the TCP transport share: tcp.c has devices, endpoints and
 * windows, tcp_tx.c sends frames, tcp_rx.c receives frames.
 */
#ifndef VB_NET_TCP_TCP_PRIV_H
#define VB_NET_TCP_TCP_PRIV_H

#include "net/done_list.h"
#include "net/transport.h"
#include "net/wire/wire_data.h"

/* Size of the buffer that receives headers, and payloads short enough to arrive with them. At most
 * this many bytes of a payload are copied twice. */
#define TCP_STAGE_BYTES 4096

/* The longest sleep of a receiving call: SO_RCVTIMEO of the sockets. */
#define TCP_SLEEP_MS 100

/* A frame that waits to be sent. */
struct tcp_frame {
    unsigned char head[DATA_HEAD_BYTES];
    const char *ptr; /* the payload, borrowed from a window */
    size_t len_bytes;
    struct vb_op *op; /* the op of a put; otherwise NULL */
    bool reply;
};

/* First in, first out. The counters only grow; frame i is at index i modulo size. */
struct tcp_tx {
    struct tcp_frame *frames;
    uint64_t size;
    uint64_t begin, end;
    size_t sent;     /* number of bytes of the first frame already sent */
    int n_replies;   /* number of replies in the ring; the other frames are puts and requests */
    size_t held;     /* number of bytes held back until more frames follow; 0: none */
    bool broken;     /* sending has failed; data that has arrived is still read */
    bool want_write; /* the epoll watches the socket for writing */
};

/* A get that waits for its reply. Replies arrive in the order of the requests. */
struct vb_tcp_get {
    struct vb_op *op;
    char *ptr;
    size_t len_bytes;
};

struct tcp_gets {
    struct vb_tcp_get *gets;
    uint64_t depth;
    uint64_t begin, end; /* frames carry the low 32 bits of a get's number */
};

struct tcp_rx {
    unsigned char stage[TCP_STAGE_BYTES];
    size_t begin, end; /* range of the stage that is not parsed yet */
    struct data_head head;
    bool in_frame; /* head is valid, and its payload is being received */
    char *to;      /* address of the next payload byte */
    size_t left;
    bool readable; /* the socket may have more data */
};

struct tcp_ep {
    struct tcp_device *dev;
    int rank;
    int fd;
    vb_status status; /* not VB_OK: the endpoint is dead */
    bool lost_reported;
    struct tcp_tx tx;
    struct tcp_gets gets;
    struct done_list done;
    struct tcp_rx rx;
    struct {
        uint64_t in, out;
    } moved; /* what vb_tcp_sense() has seen */
};

struct tcp_window {
    uint32_t id;
    char *ptr;
    size_t len_bytes;
    unsigned rights; /* the rights that peers have */
};

struct tcp_device {
    struct vb_device_head head;
    struct vb_device_opts opts;
    int epoll_fd;
    int first;         /* index of the endpoint that poll serves first */
    uint64_t sense_ns; /* when vb_tcp_sense() looks next */
    struct tcp_window *windows;
    int n_windows;
    int n_eps;
    struct tcp_ep *eps[]; /* in the order of connecting; the array has `world` entries */
};

struct tcp_remote {
    uint32_t id; /* number of the window */
};

/* ---- tcp.c ----------------------------------------------------------------------------------- */

/* Marks the endpoint as dead. All its ops end with st. */
void vb_tcp_fail(struct tcp_ep *ep, vb_status st);

/* Returns NULL if this rank has no such window. */
struct tcp_window *vb_tcp_find_window(const struct tcp_device *dev, uint32_t id);

/* ---- tcp_sense.c ----------------------------------------------------------------------------- */

/* Called before a sleep. Counts the peers with which data moves as heard. */
void vb_tcp_sense(struct tcp_device *dev);

/* ---- tcp_tx.c -------------------------------------------------------------------------------- */

/* Sends waiting frames until the socket is full. */
void vb_tcp_tx_flush(struct tcp_ep *ep);

/* Sends the reply to a get. Fewer than queue_depth replies wait in the ring. */
void vb_tcp_tx_reply(struct tcp_ep *ep, const struct data_head *request, const char *from);

/* Sends the held frames of all endpoints. */
void vb_tcp_flush(struct vb_device *vdev);

vb_status vb_tcp_put(struct vb_ep *vep, const struct vb_span *src, struct vb_target dst,
                     uint32_t note, struct vb_op *op);
vb_status vb_tcp_get(struct vb_ep *vep, const struct vb_span *dst, struct vb_target src,
                     struct vb_op *op);

/* Returns the oldest get that waits for its reply. */
static inline struct vb_tcp_get *tcp_gets_first(const struct tcp_gets *gets)
{
    return &gets->gets[gets->begin % gets->depth];
}

static inline bool tcp_tx_waits(const struct tcp_tx *tx)
{
    return tx->begin != tx->end;
}

/* ---- tcp_rx.c -------------------------------------------------------------------------------- */

/* Handles the frames that have arrived. Writes up to max notes to ev and returns their number. */
int vb_tcp_rx_poll(struct tcp_ep *ep, struct vb_raw_event *ev, int max);

/* Receives once, sleeping for up to TCP_SLEEP_MS. vb_tcp_rx_poll() handles the data. */
void vb_tcp_rx_sleep(struct tcp_ep *ep);

/* Returns true if poll has work even if the socket is empty. */
static inline bool tcp_rx_waits(const struct tcp_rx *rx)
{
    return rx->begin != rx->end || (rx->in_frame && rx->left == 0);
}

#endif
