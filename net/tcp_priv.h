/* SPDX-License-Identifier: MIT
 *
 * What the files of the TCP transport share: tcp.c has the device, tcp_window.c windows,
 * tcp_tx.c what goes out, tcp_rx.c what comes in.
 */
#ifndef VB_TCP_PRIV_H
#define VB_TCP_PRIV_H

#include "net/done_list.h"
#include "net/transport.h"
#include "net/wire_data.h"

/* Takes headers, and payloads that come in one piece with them. What is longer is received straight
 * into its place, so this is also what may be copied twice of a payload. */
#define TCP_STAGE_BYTES 4096

/* The longest sleep in a call that receives: SO_RCVTIMEO of the sockets. */
#define TCP_SLEEP_MS 100

/* A frame that waits for its turn. */
struct tcp_frame {
    unsigned char head[DATA_HEAD_BYTES];
    const char *ptr; /* payload: in a window, borrowed */
    size_t len_bytes;
    struct vb_op *op; /* a put's; else NULL */
    bool reply;
};

/* First in, first out; counters only grow, an entry's place is its number modulo the size. */
struct tcp_tx {
    struct tcp_frame *frames;
    uint64_t size;
    uint64_t begin, end;
    size_t sent;     /* bytes of the first frame that have gone */
    int n_replies;   /* of all frames waiting; the rest are puts and requests */
    size_t held;     /* bytes that wait for more to come, 0: all that waits does so for room */
    bool broken;     /* nothing goes any more; what has arrived is still read */
    bool want_write; /* the epoll looks for room to write */
};

/* A get that waits for its reply. Replies come in the order of the requests. */
struct tcp_get {
    struct vb_op *op;
    char *ptr;
    size_t len_bytes;
};

struct tcp_gets {
    struct tcp_get *gets;
    uint64_t depth;
    uint64_t begin, end; /* on the wire a get's number is the low half */
};

struct tcp_rx {
    unsigned char stage[TCP_STAGE_BYTES];
    size_t begin, end; /* bytes of the stage not looked at yet */
    struct data_head head;
    bool in_frame; /* head is valid, its payload is coming */
    char *to;      /* where the next byte of it goes */
    size_t left;
    bool readable; /* the socket may have more */
};

struct tcp_ep {
    struct tcp_device *dev;
    int rank;
    int fd;
    vb_status status;   /* not VB_OK: dead */
    bool lost_reported; /* that it is lost */
    struct tcp_tx tx;
    struct tcp_gets gets;
    struct done_list done;
    struct tcp_rx rx;
};

struct tcp_window {
    uint32_t id;
    char *ptr;
    size_t len_bytes;
    unsigned rights; /* of peers */
};

struct tcp_device {
    struct vb_device_head head;
    struct vb_device_opts opts;
    int epoll_fd;
    int first; /* whose turn it is in poll */
    struct tcp_window *windows;
    int n_windows;
    int n_eps;
    struct tcp_ep *eps[]; /* in the order of connecting, room for world */
};

/* ---- tcp.c ------------------------------------------------------------------------------------
 */

/* The endpoint is dead: all that is under way ends with that status. */
void tcp_fail(struct tcp_ep *ep, vb_status st);

/* ---- tcp_window.c -----------------------------------------------------------------------------
 */

const struct tcp_window *tcp_find_window(const struct tcp_device *dev, uint32_t id);
vb_status tcp_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                            unsigned rights, struct vb_blob *key_p);
vb_status tcp_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                           struct vb_blob *key_p);
void tcp_unexport_window(struct vb_device *vdev, uint32_t id);
vb_status tcp_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *key,
                            size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void tcp_release_window(struct vb_remote *rem);
void *tcp_remote_ptr(struct vb_remote *rem);

/* ---- tcp_tx.c ---------------------------------------------------------------------------------
 */

vb_status tcp_tx_init(struct tcp_ep *ep);
void tcp_tx_fini(struct tcp_ep *ep);

/* Sends what waits, as much as the socket takes. */
void tcp_tx_flush(struct tcp_ep *ep);

/* Answers a request. There is room: nobody asks for more at a time than was agreed. */
void tcp_tx_reply(struct tcp_ep *ep, const struct data_head *request, const char *from);

/* Of all endpoints, what was held back. */
void tcp_flush(struct vb_device *vdev);

vb_status tcp_put(struct vb_ep *vep, const struct vb_span *src, struct vb_target dst, uint32_t note,
                  struct vb_op *op);
vb_status tcp_get(struct vb_ep *vep, const struct vb_span *dst, struct vb_target src,
                  struct vb_op *op);

/* The oldest get that waits. */
static inline struct tcp_get *tcp_gets_first(const struct tcp_gets *gets)
{
    return &gets->gets[gets->begin % gets->depth];
}

static inline bool tcp_tx_waits(const struct tcp_tx *tx)
{
    return tx->begin != tx->end;
}

/* ---- tcp_rx.c ---------------------------------------------------------------------------------
 */

/* Takes in what has arrived; returns how many notes it wrote to ev. */
int tcp_rx_poll(struct tcp_ep *ep, struct vb_raw_event *ev, int max);

/* Receives once, in a call that sleeps up to TCP_SLEEP_MS; what came is for tcp_rx_poll(). */
void tcp_rx_sleep(struct tcp_ep *ep);

/* Whether poll has something to do although the socket is silent. */
static inline bool tcp_rx_waits(const struct tcp_rx *rx)
{
    return rx->begin != rx->end || (rx->in_frame && rx->left == 0);
}

/* ---- the table's types are ours in disguise ----------------------------------------------------
 */

struct tcp_remote {
    struct tcp_ep *ep;
    uint32_t id;
};

static inline struct tcp_device *tcp_device_of(struct vb_device *dev)
{
    return (struct tcp_device *)dev;
}

static inline struct tcp_ep *tcp_ep_of(struct vb_ep *ep)
{
    return (struct tcp_ep *)ep;
}

static inline struct tcp_remote *tcp_remote_of(struct vb_remote *rem)
{
    return (struct tcp_remote *)rem;
}

#endif
