/* SPDX-License-Identifier: MIT
 *
 * What the files of the verbs transport share: verbs.c has the device and its polling, verbs_cm.c
 * connections, verbs_hello.c what is said when they begin, verbs_post.c what goes out, verbs_wc.c
 * what completions mean, verbs_mem.c registered memory, verbs_port.c an RDMA device in use.
 *
 * Words: a *port* is an RDMA device that is in use, with its completion queue; a *piece* the part
 * of a put or get that one work request moves; a *credit* the right to use one of the peer's
 * receives.
 */
#ifndef VB_VERBS_PRIV_H
#define VB_VERBS_PRIV_H

#include "net/transport.h"
#include "net/verbs_hello.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define RD_PORTS_MAX 4
#define RD_SQ 256                     /* work requests a peer, if the device has that many */
#define RD_SQ_RESERVE 4               /* of them kept for credits */
#define RD_SPARE_RECVS 8              /* receives beyond the credits: for messages that need none */
#define RD_PIECE (1u << 20)           /* bytes; the device's largest message may be smaller */
#define RD_READS 16                   /* reads under way, if both devices allow */
#define RD_SOFT_READ (64u << 10)      /* a piece of a get on soft-RoCE */
#define RD_SOFT_READ_WAY (256u << 10) /* ... and how much is asked for at a time */
#define RD_CHAIN 16                   /* work requests posted at once */
#define RD_INLINE 220                 /* bytes asked for; what is granted is read back */
#define RD_WHY 160

/* An RDMA device in use. */
struct rd_port {
    struct ibv_context *ctx; /* librdmacm's */
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool armed;
    bool has_event;   /* the channel has one, which is read before the next arming */
    unsigned unacked; /* events read, not yet acknowledged */
};

/* A window of this rank, or an endpoint's own small memory, as registered with every port. */
struct rd_memory {
    char *ptr;
    size_t len_bytes;
    struct ibv_mr *mrs[RD_PORTS_MAX];
};

struct rd_window {
    struct rd_window *next;
    uint32_t id;
    int access; /* of ports, those that are opened later too */
    struct rd_memory memory;
};

/* A put or get, as far as it was not posted yet. */
struct rd_send {
    struct vb_op *op;
    char *local;
    uint64_t remote;
    uint32_t lkey, rkey;
    size_t left;
    uint32_t note;
    bool begun; /* a first piece has gone */
};

/* First in, first out; counters only grow, an entry's place is its number modulo the size. */
struct rd_queue {
    struct rd_send *sends;
    uint64_t begin, end, size;
};

/* A work request that was posted and asks for a completion, or belongs to one that does. */
struct rd_flight {
    struct vb_op *op; /* done with this request; NULL: not yet, or there is none */
    uint64_t seq;     /* of the request */
    bool read;
    uint32_t len; /* of the read */
};

struct rd_flights {
    struct rd_flight *entries;
    uint64_t begin, end, size;
};

enum rd_state {
    RD_CONNECTING,
    RD_OPEN,
    RD_CLOSING, /* the peer has closed: what it said before is still to be read */
    RD_DEAD,
};

struct rd_ep {
    struct rd_device *dev;
    struct rd_port *port;
    int port_index;
    int peer_port; /* which of the peer's ports the connection ends at */
    int rank;
    uint64_t tag; /* of its work requests: rank, and which of the rank's connections it is */
    char host[64];
    enum rd_state state;
    bool told; /* that it is lost */
    vb_status status;
    char why[RD_WHY];
    char link[VB_LINK_TEXT]; /* device, GID, RoCE version and MTU */

    struct rdma_cm_id *id;
    enum rdma_cm_event_type event; /* the last one of the connection's making */
    int event_status;
    bool has_event;
    unsigned char reply[RD_CALL_BYTES]; /* came with the event */
    size_t reply_len;
    struct rd_hello hello; /* the peer's */
    bool has_hello, has_probe;
    bool write_imm;
    uint32_t inline_max;
    size_t piece;

    struct rd_queue puts, gets;
    struct rd_flights flights;
    uint64_t posted, completed; /* work requests of the send queue */
    uint64_t signalled;         /* the last that asks for a completion */
    uint32_t sq;
    int reads, reads_max;
    size_t read_piece, read_bytes, read_bytes_max; /* bytes: that were asked for, not yet come */
    uint32_t credits;                              /* receives of the peer that we may use */
    uint32_t owed; /* receives that we used up and posted again, to be told to the peer */
    uint32_t owed_max;

    uint32_t n_recvs;
    uint32_t recvs_out;           /* of them posted */
    struct rd_memory recv_memory; /* room for a message a receive */
    struct rd_memory probe;       /* what the peer writes to begin with, then what we write to it */
    struct ibv_recv_wr *recv_wrs;
    struct ibv_sge *recv_sges;
    struct ibv_recv_wr *to_post; /* receives used up, to be posted again together */
};

/* A request to connect that nobody has looked at yet. */
struct rd_request {
    struct rdma_cm_id *id; /* NULL: free */
    unsigned char call[RD_CALL_BYTES];
    uint8_t responder_resources, initiator_depth;
    const char *bad; /* why it will be refused; NULL: not known yet */
    uint64_t age;
};

#define RD_REQUESTS 16
#define REFUSALS_LOGGED 16

struct rd_device {
    struct vb_device_head head;
    struct vb_device_opts opts;
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct rd_address address; /* our own */
    int epoll_fd;
    struct rd_port ports[RD_PORTS_MAX];
    int n_ports;
    struct rd_request requests[RD_REQUESTS];
    uint64_t n_requests;
    int n_refused;
    struct rd_window *windows;
    struct vb_op *done, **done_end; /* finished, not yet reported */
    int n_untold;                   /* endpoints that died and were not reported yet */
    struct vb_raw_event *kept;      /* notes that came while a connection was made or closed */
    int n_kept, room_kept;
    unsigned polls;
    bool look;           /* at connections and events of the devices with the next poll */
    bool imm;            /* write with immediate is wanted */
    uint64_t registered; /* bytes */
    uint64_t registered_ns;
    int n_eps;
    struct rd_ep *eps[]; /* by rank; NULL: none */
};

struct rd_remote {
    struct rd_ep *ep;
    const struct rd_window *local; /* the same window, this rank's part */
    uint64_t addr;
    uint32_t rkey;
};

static inline struct rd_device *rd_device_of(struct vb_device *dev)
{
    return (struct rd_device *)dev;
}

static inline struct rd_ep *rd_ep_of(struct vb_ep *ep)
{
    return (struct rd_ep *)ep;
}

/* ---- verbs.c ----------------------------------------------------------------------------------
 */

/* Hands an op to the next poll. */
void rd_op_done(struct rd_device *dev, struct vb_op *op, vb_status st);

/* The endpoint is dead: all that is under way ends with it, and poll says so once. The first reason
 * stays. */
void rd_fail(struct rd_ep *ep, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);

/* Takes completions from all ports; how many events that made. */
int rd_poll_ports(struct rd_device *dev, struct vb_raw_event *ev, int max);

/* Keeps notes for the next poll; forgets those of a rank that is gone. */
void rd_keep(struct rd_device *dev, const struct vb_raw_event *ev, int n);
void rd_forget(struct rd_device *dev, int rank);

/* ---- verbs_addr.c -----------------------------------------------------------------------------
 */

vb_status rd_address_find(const struct vb_device_opts *o, struct rd_address *address_p);

/* ---- verbs_port.c -----------------------------------------------------------------------------
 */

/* The port of a device, opened when it is used for the first time. */
vb_status rd_port_for(struct rd_device *dev, struct ibv_context *ctx, int *index_p);
void rd_port_close(struct rd_port *port);
void rd_port_arm(struct rd_port *port);
void rd_port_take_event(struct rd_port *port);
void rd_port_async(struct rd_device *dev, struct rd_port *port);

/* ---- verbs_mem.c ------------------------------------------------------------------------------
 */

vb_status rd_register(struct rd_device *dev, struct rd_memory *memory, int port_index, int access);
void rd_deregister(struct rd_device *dev, struct rd_memory *memory);

vb_status rd_export_window(struct vb_device *dev, uint32_t id, const struct vb_mem *mem,
                           unsigned rights, struct vb_blob *key_p);
vb_status rd_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                          struct vb_blob *key_p);
void rd_unexport_window(struct vb_device *dev, uint32_t id);

/* A port was opened after windows were made. */
vb_status rd_register_windows(struct rd_device *dev, int port_index);
vb_status rd_import_window(struct vb_ep *ep, uint32_t id, const struct vb_blob *key,
                           size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void rd_release_window(struct vb_remote *rem);

/* ---- verbs_cm.c -------------------------------------------------------------------------------
 */

vb_status rd_listen(struct rd_device *dev, const char *bind);
void rd_stop_listening(struct rd_device *dev);
vb_status rd_connect(struct vb_device *dev, const struct vb_link *link, struct vb_ep **ep_p);
void rd_disconnect(struct vb_ep *ep);

/* Takes what has happened to connections, without blocking. */
void rd_cm_events(struct rd_device *dev);

/* ---- verbs_ep.c -------------------------------------------------------------------------------
 */

struct rd_ep *rd_ep_create(struct rd_device *dev, const struct vb_link *link);
void rd_ep_destroy(struct rd_ep *ep); /* its queue pair is gone */

/* Gives the connection a queue pair, with receives posted. */
vb_status rd_ep_make_qp(struct rd_ep *ep, struct rdma_cm_id *id);

/* Once the connection is up: takes over what was negotiated, then hellos and a real write, both
 * ways. proof: what the caller sends and the called expects. */
vb_status rd_ep_begin(struct rd_ep *ep, const unsigned char proof[WIRE_PROOF], bool caller,
                      uint64_t deadline);

/* Waits until ready(ep), taking completions and events of connections meanwhile. */
typedef bool (*rd_ready_fn)(const struct rd_ep *ep);
vb_status rd_ep_wait(struct rd_ep *ep, rd_ready_fn ready, const char *what, uint64_t deadline);

/* The same, but gives up in silence. */
void rd_ep_settle(struct rd_ep *ep, rd_ready_fn ready, uint64_t deadline);

/* ---- verbs_post.c -----------------------------------------------------------------------------
 */

vb_status rd_put(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst, uint32_t note,
                 struct vb_op *op);
vb_status rd_get(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                 struct vb_op *op);
void rd_push(struct rd_ep *ep); /* posts what waits, as much as there is room for */
void rd_give_credits(struct rd_ep *ep);
void rd_post_recvs(struct rd_ep *ep); /* posts again what was used up */

/* A message that takes no credit. */
vb_status rd_send_message(struct rd_ep *ep, const void *message, size_t len_bytes);

/* Writes the second half of the probe here to the first half of the peer's, and says so. */
vb_status rd_send_probe(struct rd_ep *ep);

/* A message that means nothing: when it is complete, so is all that was posted before. */
vb_status rd_send_last(struct rd_ep *ep);

/* ---- verbs_wc.c -------------------------------------------------------------------------------
 */

/* The tag of a rank's connection: an old one's completions may come when a new one is there. */
uint64_t rd_ep_tag(int rank, uint32_t epoch);
uint64_t rd_send_tag(const struct rd_ep *ep, uint64_t seq);
uint64_t rd_recv_tag(const struct rd_ep *ep, uint32_t slot);

/* What a completion means; true if it made an event. */
bool rd_completed(struct rd_device *dev, const struct ibv_wc *wc, struct vb_raw_event *ev);

#endif
