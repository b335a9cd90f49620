/* SPDX-License-Identifier: MIT
 *
 * Types and functions that the files of the verbs transport share; docs/network.md lists the files.
 * A *port* is an RDMA device in use, with its completion queue. A *piece* is the part of a put or
 * get that one work request moves. A *credit* is the right to use one of the peer's receives.
 */
#ifndef VB_NET_VERBS_VERBS_PRIV_H
#define VB_NET_VERBS_VERBS_PRIV_H

#include "net/done_list.h"
#include "net/transport.h"
#include "net/verbs/verbs_hello.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define VERBS_PORTS_MAX 4
#define VERBS_SEND_QUEUE 256 /* number of work requests per peer; the device may allow fewer */
#define VERBS_SEND_RESERVE 4 /* number of work requests kept free for returning credits */
#define VERBS_SPARE_RECVS 8  /* number of extra receives, for messages that need no credit */
#define VERBS_PIECE_BYTES (1u << 20)       /* longest piece; the device may allow less */
#define VERBS_READS_MAX 16                 /* maximum of reads under way; devices may allow fewer */
#define VERBS_SOFT_READ_PIECE (64u << 10)  /* longest piece of a get on soft-RoCE */
#define VERBS_SOFT_READ_BYTES (256u << 10) /* soft-RoCE: no new read while so much is under way */
#define VERBS_CHAIN_MAX 16                 /* maximum of work requests posted with one call */
#define VERBS_INLINE_BYTES 220 /* inline data requested; the device may grant another size */
#define VERBS_WHY_TEXT 160

/* A rank is told how many bytes it has received unseen, in whole steps of this size. */
#define VERBS_TELL_BYTES (256u << 10)
#define VERBS_TOLD_AT (2 * VERBS_PROBE_BYTES) /* offset of the count in the probe's memory */

struct verbs_port {
    struct ibv_context *ctx; /* owned by librdmacm */
    struct ibv_device_attr attr;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    bool armed;
    bool has_event;   /* the channel has an event, which is read before the port is armed again */
    unsigned unacked; /* number of events read but not acknowledged yet */
};

/* Memory that is registered with each port: a window of this rank, or an endpoint's own buffers. */
struct verbs_memory {
    char *ptr;
    size_t len_bytes;
    struct ibv_mr *mrs[VERBS_PORTS_MAX];
};

struct verbs_window {
    struct verbs_window *next;
    uint32_t id;
    int access; /* IBV_ACCESS_ flags, also for ports that are opened later */
    bool lands; /* gets of this rank land in the window */
    struct verbs_memory memory;
};

/* The part of a put or get that is not posted yet. */
struct verbs_transfer {
    struct vb_op *op;
    char *local;
    uint64_t remote;
    uint32_t lkey, rkey;
    size_t left;
    uint32_t note;
    bool begun; /* the first piece was posted */
};

/* First in, first out. The counters only grow; entry i is at index i modulo size. */
struct verbs_queue {
    struct verbs_transfer *entries;
    uint64_t begin, end, size;
};

/* A posted work request that is the last one of an op, or that is an RDMA read. These requests are
 * always signalled, which means that they produce a completion. */
struct verbs_flight {
    struct vb_op *op; /* the op that ends with this request; NULL: none */
    uint64_t seq;     /* number of the work request */
    bool read;
    uint32_t len; /* number of bytes of the read; 0 for a write */
};

/* A queue like struct verbs_queue. */
struct verbs_flights {
    struct verbs_flight *entries;
    uint64_t begin, end, size;
};

enum verbs_state {
    VERBS_CONNECTING,
    VERBS_OPEN,
    VERBS_CLOSING, /* the peer has closed, but its last messages are not read yet */
    VERBS_DEAD,
};

/* The librdmacm side of an endpoint's connection. */
struct verbs_cm {
    struct rdma_cm_id *id;
    enum rdma_cm_event_type event; /* the last event; valid if has_event */
    int event_status;
    bool has_event;
    unsigned char reply[VERBS_CALL_BYTES]; /* the peer's reply to our request; zero: none */
};

struct verbs_tx {
    struct verbs_queue puts, gets;
    struct verbs_flights flights;
    uint64_t posted, completed; /* numbers of work requests so far */
    uint64_t signalled;         /* number of the last work request that asks for a completion */
    uint32_t size;              /* number of work requests that fit into the send queue */
    uint32_t credits;           /* number of the peer's receives that this rank may still use */
    uint32_t inline_max;        /* number of bytes that fit into a work request */
    size_t piece;
    uint64_t unseen, told; /* bytes whose arrival the peer cannot see; how many it was told of */
    bool write_imm;        /* notes go as immediate data, not as messages */
};

/* The reads under way, in number and bytes, and the limits on both. */
struct verbs_reads {
    int n, n_max;
    size_t bytes, bytes_max;
    size_t piece;
};

struct verbs_rx {
    uint32_t n;                 /* number of receives */
    uint32_t n_posted;          /* number of receives posted to the queue pair now */
    struct verbs_memory memory; /* one message buffer for each receive */
    struct ibv_recv_wr *wrs;
    struct ibv_sge *sges;
    struct ibv_recv_wr *to_post; /* chain of used receives, posted again with one call */
    uint32_t owed;               /* number of credits not returned to the peer yet */
    uint32_t owed_max;           /* credits are returned when `owed` reaches this number */
};

struct verbs_ep {
    struct verbs_dev *dev;
    struct verbs_port *port;
    int port_index;
    int peer_port; /* index of the peer's port at the other end */
    int rank;
    uint64_t tag; /* part of the ID of every work request: the rank and the connection's epoch */
    char host[64];
    enum verbs_state state;
    vb_status status; /* not VB_OK: the endpoint is dead */
    bool lost_reported;
    char why[VERBS_WHY_TEXT];
    char link[VB_LINK_TEXT]; /* device, GID, RoCE version and MTU */

    vb_gone_fn gone; /* see struct vb_link */
    void *gone_arg;
    struct verbs_cm cm;
    struct verbs_hello hello; /* the peer's hello; valid if has_hello */
    bool has_hello;
    bool has_probe; /* the peer has written its probe */
    /* First part: the peer writes its probe here; second part: this rank's own probe; third part:
     * the peer writes how many bytes it has put whose arrival this rank cannot see. */
    struct verbs_memory probe;
    struct vb_traffic_link traffic;
    struct verbs_tx tx;
    struct verbs_reads reads;
    struct verbs_rx rx;
};

/* A request to connect that this rank has not answered yet. */
struct verbs_request {
    struct rdma_cm_id *id; /* NULL: the place is free */
    unsigned char call[VERBS_CALL_BYTES];
    struct verbs_call from; /* the decoded call */
    uint8_t responder_resources, initiator_depth;
    uint64_t number; /* running number, in the order of arrival */
};

#define VERBS_PLACES                                                                               \
    2 /* places for requests that claim to be of one rank: one may be a stranger                   \
       */

struct verbs_dev {
    struct vb_device_head head;
    struct vb_device_opts opts;
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    struct verbs_address address; /* address of this rank */
    int epoll_fd;
    struct verbs_port ports[VERBS_PORTS_MAX];
    int n_ports;
    struct {
        struct verbs_request *list; /* VERBS_PLACES for each rank */
        uint64_t n_seen;
        int n_refused;
    } requests;
    struct verbs_window *windows;
    struct done_list done;
    int n_unreported; /* number of dead endpoints that poll has not reported yet */
    struct { /* notes that came while a connection was made or closed; the next poll reports them */
        struct vb_raw_event *notes;
        int n, size;
    } kept;
    unsigned polls;
    bool has_events; /* the next poll must read events of connections and devices */
    bool imm;        /* this rank wants to write with immediate data */
    struct {
        uint64_t bytes; /* number of bytes registered now */
        uint64_t ns;    /* time spent on registering */
    } registered;
    struct verbs_ep *eps[]; /* by rank; NULL: not connected */
};

struct verbs_remote {
    const struct verbs_window *local; /* this rank's part of the same window */
    uint64_t addr;
    uint32_t rkey;
};

static inline bool verbs_is_iwarp(const struct ibv_context *ctx)
{
    return ctx->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* ---- verbs.c --------------------------------------------------------------------------------- */

/* Marks the endpoint as dead. All its ops end with st, and poll reports the endpoint as lost once.
 * Only the first call for an endpoint counts. */
void vb_verbs_ep_fail(struct verbs_ep *ep, vb_status st, const char *fmt, ...) VB_PRINTF(3, 4);

/* Handles completions of all ports. Writes at most max events and returns their number. */
int vb_verbs_poll_ports(struct verbs_dev *dev, struct vb_raw_event *ev, int max);

/* Keeps notes for the next poll; drops the kept notes of a rank that is gone. */
void vb_verbs_keep_notes(struct verbs_dev *dev, const struct vb_raw_event *ev, int n);
void vb_verbs_forget_notes(struct verbs_dev *dev, int rank);

/* ---- verbs_addr.c ---------------------------------------------------------------------------- */

vb_status vb_verbs_address_find(const struct vb_device_opts *o, struct verbs_address *address_p);

/* ---- verbs_port.c ---------------------------------------------------------------------------- */

/* Returns the index of the port for a device. Opens the port if it is used for the first time. */
vb_status vb_verbs_port_for(struct verbs_dev *dev, struct ibv_context *ctx, int *index_p);
void vb_verbs_port_close(struct verbs_dev *dev, struct verbs_port *port);

/* Logs a failed call of libibverbs, most of which return the code and do not set errno. */
vb_status vb_verbs_err(int code, const char *call, struct ibv_context *ctx);

/* Asks for an event with the next completion; reads that event, if it has come. */
void vb_verbs_port_arm(struct verbs_port *port);
void vb_verbs_port_take_event(struct verbs_port *port);

/* Handles events of the device itself, such as a broken queue pair. Does not block. */
void vb_verbs_port_async_events(struct verbs_dev *dev, struct verbs_port *port);

/* ---- verbs_mem.c ----------------------------------------------------------------------------- */

vb_status vb_verbs_register(struct verbs_dev *dev, struct verbs_memory *memory, int port_index,
                            int access);
vb_status vb_verbs_register_window(struct verbs_dev *dev, struct verbs_window *win, int port_index);
void vb_verbs_deregister(struct verbs_dev *dev, struct verbs_memory *memory);
void vb_verbs_deregister_port(struct verbs_dev *dev, struct verbs_memory *memory, int port_index);

vb_status vb_verbs_export_window(struct vb_device *dev, uint32_t id, const struct vb_mem *mem,
                                 unsigned rights, struct vb_blob *key_p);
vb_status vb_verbs_offer_window(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                                struct vb_blob *key_p);
void vb_verbs_unexport_window(struct vb_device *dev, uint32_t id);
vb_status vb_verbs_import_window(struct vb_ep *ep, uint32_t id, const struct vb_blob *key,
                                 size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void vb_verbs_release_window(struct vb_remote *rem);

/* ---- verbs_cm.c ------------------------------------------------------------------------------ */

vb_status vb_verbs_listen(struct verbs_dev *dev, const char *bind);
void vb_verbs_stop_listening(struct verbs_dev *dev);
vb_status vb_verbs_connect(struct vb_device *dev, const struct vb_link *link, struct vb_ep **ep_p);
void vb_verbs_disconnect(struct vb_ep *ep);

/* Handles the events of all connections. Does not block. */
void vb_verbs_cm_events(struct verbs_dev *dev);

/* ---- verbs_requests.c ------------------------------------------------------------------------ */

vb_status vb_verbs_requests_open(struct verbs_dev *dev);
void vb_verbs_requests_close(struct verbs_dev *dev);

/* Returns a place for a request of the rank: a free one, or the one of its oldest request. */
struct verbs_request *vb_verbs_request_place(struct verbs_request *list, int rank);

/* Reads a request from its event. Returns why it must be refused; NULL: it can be kept. */
const char *vb_verbs_request_read(const struct verbs_dev *dev, const struct rdma_cm_event *event,
                                  struct verbs_request *request_p);

/* Keep the request, or refuse it if bad is not NULL; forget the request of a caller that gave up.
 * The event must be acknowledged before. */
void vb_verbs_request_keep(struct verbs_dev *dev, struct verbs_request *request, const char *bad);
void vb_verbs_request_withdraw(struct verbs_dev *dev, const struct rdma_cm_id *id);

/* Returns the request of the rank in link, if its sender has proved that it has the key. Refuses
 * requests that only claim to come from that rank. NULL: there is none. */
struct verbs_request *vb_verbs_request_of(struct verbs_dev *dev, const struct vb_link *link);

/* ---- verbs_ep.c ------------------------------------------------------------------------------ */

struct verbs_ep *vb_verbs_ep_create(struct verbs_dev *dev, const struct vb_link *link);
void vb_verbs_ep_destroy(struct verbs_ep *ep); /* its queue pair must be destroyed before */

/* Creates the queue pair of a connection and posts its receives. */
vb_status vb_verbs_ep_create_qp(struct verbs_ep *ep);

/* Starts an endpoint whose connection is established: reads the negotiated limits, exchanges
 * hellos, then tests a real write in both directions. The caller of the connection sends proof; the
 * other side expects it. */
vb_status vb_verbs_ep_start(struct verbs_ep *ep, const unsigned char proof[WIRE_PROOF], bool caller,
                            uint64_t deadline);

/* Waits until ready(ep) is true. Handles completions and events of connections in the meantime.
 * After a failure, logs `what` as the thing that it waited for. */
typedef bool (*verbs_ready_fn)(const struct verbs_ep *ep);
vb_status vb_verbs_ep_wait(struct verbs_ep *ep, verbs_ready_fn ready, const char *what,
                           uint64_t deadline);

/* Waits in the same way, but neither fails nor logs at the deadline. */
void vb_verbs_ep_try_wait(struct verbs_ep *ep, verbs_ready_fn ready, uint64_t deadline);

/* Returns whether the caller of connect knows that the peer is gone. */
bool vb_verbs_ep_gone(const struct verbs_ep *ep);

/* ---- verbs_post.c ---------------------------------------------------------------------------- */

vb_status vb_verbs_put(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst,
                       uint32_t note, struct vb_op *op);
vb_status vb_verbs_get(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                       struct vb_op *op);
void vb_verbs_post_queued(struct verbs_ep *ep); /* posts queued puts and gets that fit */
void vb_verbs_return_credits(struct verbs_ep *ep);
void vb_verbs_post_recvs(struct verbs_ep *ep); /* posts used receives again */

/* Sends a message that needs no credit. VB_AGAIN: the send queue is full. */
vb_status vb_verbs_send_message(struct verbs_ep *ep, const void *message, size_t len_bytes);

/* Writes the second half of our probe into the first half of the peer's. Sends VERBS_PROBED. */
vb_status vb_verbs_send_probe(struct verbs_ep *ep);

/* Sends a message without effect. When it completes, everything posted before is complete too. */
vb_status vb_verbs_send_marker(struct verbs_ep *ep);

/* ---- verbs_wc.c ------------------------------------------------------------------------------ */

/* Return the tag of a rank's connection, and the IDs of a send and of a receive, which contain it.
 * The tag tells late completions of an old connection from those of a new one. */
uint64_t vb_verbs_ep_tag(int rank, uint32_t epoch);
uint64_t vb_verbs_send_tag(const struct verbs_ep *ep, uint64_t seq);
uint64_t vb_verbs_recv_tag(const struct verbs_ep *ep, uint32_t slot);

/* Handles one completion. Returns true if it wrote an event to ev. */
bool vb_verbs_completed(struct verbs_dev *dev, const struct ibv_wc *wc, struct vb_raw_event *ev);

#endif
