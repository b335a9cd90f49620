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

#define VERBS_PORTS_MAX 4
#define VERBS_SEND_QUEUE 256         /* work requests a peer, if the device has that many */
#define VERBS_SEND_RESERVE 4         /* of them kept for credits */
#define VERBS_SPARE_RECVS 8          /* receives beyond the credits: for messages that need none */
#define VERBS_PIECE_BYTES (1u << 20) /* bytes; the device's largest message may be smaller */
#define VERBS_READS_MAX 16           /* reads under way, if both devices allow */
#define VERBS_SOFT_READ_PIECE (64u << 10)  /* a piece of a get on soft-RoCE */
#define VERBS_SOFT_READ_BYTES (256u << 10) /* ... and how much is asked for at a time */
#define VERBS_CHAIN_MAX 16                 /* work requests posted at once */
#define VERBS_INLINE_BYTES 220             /* bytes asked for; what is granted is read back */
#define VERBS_WHY_TEXT 160

/* An RDMA device in use. */
struct verbs_port {
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
struct verbs_memory {
    char *ptr;
    size_t len_bytes;
    struct ibv_mr *mrs[VERBS_PORTS_MAX];
};

struct verbs_window {
    struct verbs_window *next;
    uint32_t id;
    int access; /* of ports, those that are opened later too */
    struct verbs_memory memory;
};

/* A put or get, as far as it was not posted yet. */
struct verbs_transfer {
    struct vb_op *op;
    char *local;
    uint64_t remote;
    uint32_t lkey, rkey;
    size_t left;
    uint32_t note;
    bool begun; /* a first piece has gone */
};

/* First in, first out; counters only grow, an entry's place is its number modulo the size. */
struct verbs_queue {
    struct verbs_transfer *entries;
    uint64_t begin, end, size;
};

/* A work request that was posted and asks for a completion, or belongs to one that does. */
struct verbs_flight {
    struct vb_op *op; /* done with this request; NULL: not yet, or there is none */
    uint64_t seq;     /* of the request */
    bool read;
    uint32_t len; /* of the read */
};

struct verbs_flights {
    struct verbs_flight *entries;
    uint64_t begin, end, size;
};

enum verbs_state {
    VERBS_CONNECTING,
    VERBS_OPEN,
    VERBS_CLOSING, /* the peer has closed: what it said before is still to be read */
    VERBS_DEAD,
};

struct verbs_ep {
    struct verbs_dev *dev;
    struct verbs_port *port;
    int port_index;
    int peer_port; /* which of the peer's ports the connection ends at */
    int rank;
    uint64_t tag; /* of its work requests: rank, and which of the rank's connections it is */
    char host[64];
    enum verbs_state state;
    bool lost_reported; /* that it is lost */
    vb_status status;
    char why[VERBS_WHY_TEXT];
    char link[VB_LINK_TEXT]; /* device, GID, RoCE version and MTU */

    struct rdma_cm_id *id;
    enum rdma_cm_event_type event; /* the last one of the connection's making */
    int event_status;
    bool has_event;
    unsigned char reply[VERBS_CALL_BYTES]; /* came with the event */
    size_t reply_len;
    struct verbs_hello hello; /* the peer's */
    bool has_hello, has_probe;
    bool write_imm;
    uint32_t inline_max;
    size_t piece;

    struct verbs_queue puts, gets;
    struct verbs_flights flights;
    uint64_t posted, completed; /* work requests of the send queue */
    uint64_t signalled;         /* the last that asks for a completion */
    uint32_t sq;
    int reads, reads_max;
    size_t read_piece, read_bytes, read_bytes_max; /* bytes: that were asked for, not yet come */
    uint32_t credits;                              /* receives of the peer that we may use */
    uint32_t owed; /* receives that we used up and posted again, to be told to the peer */
    uint32_t owed_max;

    uint32_t n_recvs;
    uint32_t recvs_out;              /* of them posted */
    struct verbs_memory recv_memory; /* room for a message a receive */
    struct verbs_memory probe; /* what the peer writes to begin with, then what we write to it */
    struct ibv_recv_wr *recv_wrs;
    struct ibv_sge *recv_sges;
    struct ibv_recv_wr *to_post; /* receives used up, to be posted again together */
};

/* A request to connect that nobody has looked at yet. */
struct verbs_request {
    struct rdma_cm_id *id; /* NULL: free */
    unsigned char call[VERBS_CALL_BYTES];
    uint8_t responder_resources, initiator_depth;
    const char *bad; /* why it will be refused; NULL: not known yet */
    uint64_t age;
};

#define VERBS_REQUESTS_MAX 16
#define VERBS_REFUSALS_LOGGED 16

struct verbs_dev {
    struct vb_device_head head;
    struct vb_device_opts opts;
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct verbs_address address; /* our own */
    int epoll_fd;
    struct verbs_port ports[VERBS_PORTS_MAX];
    int n_ports;
    struct verbs_request requests[VERBS_REQUESTS_MAX];
    uint64_t n_requests;
    int n_refused;
    struct verbs_window *windows;
    struct vb_op *done, **done_end; /* finished, not yet reported */
    int n_unreported;               /* endpoints that died and were not reported yet */
    struct vb_raw_event *kept;      /* notes that came while a connection was made or closed */
    int n_kept, room_kept;
    unsigned polls;
    bool look;           /* at connections and events of the devices with the next poll */
    bool imm;            /* write with immediate is wanted */
    uint64_t registered; /* bytes */
    uint64_t registered_ns;
    int n_eps;
    struct verbs_ep *eps[]; /* by rank; NULL: none */
};

struct verbs_remote {
    struct verbs_ep *ep;
    const struct verbs_window *local; /* the same window, this rank's part */
    uint64_t addr;
    uint32_t rkey;
};

static inline struct verbs_dev *verbs_dev_of(struct vb_device *dev)
{
    return (struct verbs_dev *)dev;
}

static inline struct verbs_ep *verbs_ep_of(struct vb_ep *ep)
{
    return (struct verbs_ep *)ep;
}

/* ---- verbs.c ----------------------------------------------------------------------------------
 */

/* Hands an op to the next poll. */
void verbs_op_done(struct verbs_dev *dev, struct vb_op *op, vb_status st);

/* The endpoint is dead: all that is under way ends with it, and poll says so once. The first reason
 * stays. */
void verbs_ep_fail(struct verbs_ep *ep, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);

/* Takes completions from all ports; how many events that made. */
int verbs_poll_ports(struct verbs_dev *dev, struct vb_raw_event *ev, int max);

/* Keeps notes for the next poll; forgets those of a rank that is gone. */
void verbs_keep_notes(struct verbs_dev *dev, const struct vb_raw_event *ev, int n);
void verbs_forget_notes(struct verbs_dev *dev, int rank);

/* ---- verbs_addr.c -----------------------------------------------------------------------------
 */

vb_status verbs_address_find(const struct vb_device_opts *o, struct verbs_address *address_p);

/* ---- verbs_port.c -----------------------------------------------------------------------------
 */

/* The port of a device, opened when it is used for the first time. */
vb_status verbs_port_for(struct verbs_dev *dev, struct ibv_context *ctx, int *index_p);
void verbs_port_close(struct verbs_port *port);
void verbs_port_arm(struct verbs_port *port);
void verbs_port_take_event(struct verbs_port *port);
void verbs_port_async_events(struct verbs_dev *dev, struct verbs_port *port);

/* ---- verbs_mem.c ------------------------------------------------------------------------------
 */

vb_status verbs_register(struct verbs_dev *dev, struct verbs_memory *memory, int port_index,
                         int access);
void verbs_deregister(struct verbs_dev *dev, struct verbs_memory *memory);

vb_status verbs_export_window(struct vb_device *dev, uint32_t id, const struct vb_mem *mem,
                              unsigned rights, struct vb_blob *key_p);
vb_status verbs_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                             struct vb_blob *key_p);
void verbs_unexport_window(struct vb_device *dev, uint32_t id);

/* A port was opened after windows were made. */
vb_status verbs_register_windows(struct verbs_dev *dev, int port_index);
vb_status verbs_import_window(struct vb_ep *ep, uint32_t id, const struct vb_blob *key,
                              size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void verbs_release_window(struct vb_remote *rem);

/* ---- verbs_cm.c -------------------------------------------------------------------------------
 */

vb_status verbs_listen(struct verbs_dev *dev, const char *bind);
void verbs_stop_listening(struct verbs_dev *dev);
vb_status verbs_connect(struct vb_device *dev, const struct vb_link *link, struct vb_ep **ep_p);
void verbs_disconnect(struct vb_ep *ep);

/* Takes what has happened to connections, without blocking. */
void verbs_cm_events(struct verbs_dev *dev);

/* ---- verbs_ep.c -------------------------------------------------------------------------------
 */

struct verbs_ep *verbs_ep_create(struct verbs_dev *dev, const struct vb_link *link);
void verbs_ep_destroy(struct verbs_ep *ep); /* its queue pair is gone */

/* Gives the connection a queue pair, with receives posted. */
vb_status verbs_ep_create_qp(struct verbs_ep *ep, struct rdma_cm_id *id);

/* Once the connection is up: takes over what was negotiated, then hellos and a real write, both
 * ways. proof: what the caller sends and the called expects. */
vb_status verbs_ep_start(struct verbs_ep *ep, const unsigned char proof[WIRE_PROOF], bool caller,
                         uint64_t deadline);

/* Waits until ready(ep), taking completions and events of connections meanwhile. */
typedef bool (*verbs_ready_fn)(const struct verbs_ep *ep);
vb_status verbs_ep_wait(struct verbs_ep *ep, verbs_ready_fn ready, const char *what,
                        uint64_t deadline);

/* The same, but gives up in silence. */
void verbs_ep_try_wait(struct verbs_ep *ep, verbs_ready_fn ready, uint64_t deadline);

/* ---- verbs_post.c -----------------------------------------------------------------------------
 */

vb_status verbs_put(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst,
                    uint32_t note, struct vb_op *op);
vb_status verbs_get(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                    struct vb_op *op);
void verbs_post_queued(struct verbs_ep *ep); /* posts what waits, as much as there is room for */
void verbs_return_credits(struct verbs_ep *ep);
void verbs_post_recvs(struct verbs_ep *ep); /* posts again what was used up */

/* A message that takes no credit. */
vb_status verbs_send_message(struct verbs_ep *ep, const void *message, size_t len_bytes);

/* Writes the second half of the probe here to the first half of the peer's, and says so. */
vb_status verbs_send_probe(struct verbs_ep *ep);

/* A message that means nothing: when it is complete, so is all that was posted before. */
vb_status verbs_send_marker(struct verbs_ep *ep);

/* ---- verbs_wc.c -------------------------------------------------------------------------------
 */

/* The tag of a rank's connection: an old one's completions may come when a new one is there. */
uint64_t verbs_ep_tag(int rank, uint32_t epoch);
uint64_t verbs_send_tag(const struct verbs_ep *ep, uint64_t seq);
uint64_t verbs_recv_tag(const struct verbs_ep *ep, uint32_t slot);

/* What a completion means; true if it made an event. */
bool verbs_completed(struct verbs_dev *dev, const struct ibv_wc *wc, struct vb_raw_event *ev);

#endif
