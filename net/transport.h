/* SPDX-License-Identifier: MIT
 *
 * The interface that every transport implements: one table of functions, private to net/. A
 * *device* is one rank's end of a transport, an *endpoint* its connection to one peer, a *remote*
 * the handle by which it reaches a peer's window through an endpoint. The caller holds the group's
 * lock in all calls; only the sleep on wait_fd, between arm and the next poll, is without it.
 */
#ifndef VB_NET_TRANSPORT_H
#define VB_NET_TRANSPORT_H

#include "net/net.h"
#include "net/traffic.h"

#include <stdatomic.h>
#include <string.h>

#define VB_BLOB_MAX 128
#define VB_LINK_TEXT 128

/* A few bytes that one rank sends another over the control connection. */
struct vb_blob {
    uint32_t len_bytes;
    unsigned char bytes[VB_BLOB_MAX];
};

/* A range of this rank's own part of a window. */
struct vb_span {
    void *ptr;
    size_t len_bytes;
};

struct vb_device_opts {
    int rank;
    int world;
    int queue_depth; /* maximum number of puts and gets under way to one peer */
    bool crowded;    /* this host has more threads than cpus, so waits must not spin for long */
    bool any_interface;

    /* For each rank, a count that grows while data comes from it, or a transfer to it moves. NULL:
     * nobody wants to know. */
    _Atomic unsigned *heard;
    int sense_ms; /* how often the transport asks the kernel whether a transfer moves */

    struct vb_traffic *traffic; /* counts the bytes that are moved; NULL: nobody counts */

    /* RDMA. The strings outlive the device. */
    const char *device; /* the only RDMA device to use; NULL: any device that reaches the peer */
    const char *bind;   /* the only address to use; NULL: any */
    const char *near;   /* the address by which peers know this rank; NULL: none */
    bool no_immediate;  /* send notes as messages, because the device has no immediate data */
    int qp_timeout;     /* a packet is sent again after 4.096 us * 2^qp_timeout ... */
    int qp_retries;     /* ... that many times */
};

/* Called by the one thread that polls the device. */
static inline void vb_device_heard(const struct vb_device_opts *o, int rank)
{
    unsigned n;

    if (o->heard == NULL)
        return;
    n = atomic_load_explicit(&o->heard[rank], memory_order_relaxed);
    atomic_store_explicit(&o->heard[rank], n + 1, memory_order_relaxed);
}

struct vb_device; /* each transport has its own struct, which begins with struct vb_device_head */
struct vb_ep;
struct vb_remote;

struct vb_device_head {
    const struct vb_transport *transport;
    int holds; /* > 0: more puts follow, so a put may wait for the next poll or flush */
};

/* Which end of a pair calls the other end, for a transport that makes its own connections. */
enum vb_link_role { VB_LINK_BY_RANK, VB_LINK_CALL, VB_LINK_ANSWER };

/* Returns true if a peer is gone, so that nobody need wait for it. */
typedef bool (*vb_gone_fn)(void *arg, int rank);

struct vb_link {
    int rank;         /* the peer's rank */
    const char *host; /* name of the peer's host, for messages */

    /* An authenticated stream socket to the peer, unix for shm, otherwise TCP. connect takes it
     * over, also if it fails. fd is -1 for a transport with VB_CAP_CALLS, which makes its own
     * connection: the higher rank of the pair calls the lower one, or the joiner the member, and
     * both prove that they have key. */
    int fd;
    enum vb_link_role role;
    bool same_process;
    const struct vb_blob *address;
    const unsigned char *key; /* a key that only this pair has, for this connection only */
    uint32_t epoch;
    uint64_t deadline;
    vb_gone_fn gone; /* for VB_CAP_CALLS: ends the wait for a peer; may be NULL */
    void *gone_arg;

    /* Where shm stores a pidfd of the peer's process, which the caller then owns; -1: none. NULL:
     * the caller needs none. */
    int *process_fd_p;
};

struct vb_target {
    struct vb_remote *remote;
    uint64_t offset;
};

enum vb_raw_type { VB_RAW_OP_DONE, VB_RAW_NOTE, VB_RAW_LOST };

struct vb_raw_event {
    enum vb_raw_type type;
    int rank;
    struct vb_op *op; /* VB_RAW_OP_DONE */
    uint32_t note;    /* VB_RAW_NOTE */
    vb_status status; /* VB_RAW_OP_DONE: VB_OK or the failure; VB_RAW_LOST: the failure */
    const char *why; /* VB_RAW_LOST: a text about the failure, valid until disconnect; NULL: none */
};

enum vb_transport_caps {
    VB_CAP_MAPPED = 1,     /* remote_ptr returns the peer's memory itself */
    VB_CAP_CALLS = 2,      /* the transport connects to the peer's address itself */
    VB_CAP_ANY_SOURCE = 4, /* the source of a put may lie in any memory */
};

struct vb_transport {
    const char *name; /* "shm", "tcp", "verbs" */
    unsigned caps;
    vb_status (*open)(const struct vb_device_opts *o, struct vb_device **dev_p);
    void (*close)(struct vb_device *dev); /* all endpoints are already disconnected */

    /* The address at which peers can call the device; empty without VB_CAP_CALLS. */
    vb_status (*address)(struct vb_device *dev, struct vb_blob *address_p);
    vb_status (*connect)(struct vb_device *dev, const struct vb_link *link, struct vb_ep **ep_p);
    void (*disconnect)(struct vb_ep *ep);

    /* Cuts off a peer that is gone. From now on poll reports nothing about it, and all ops under
     * way to it end. Returns those that were not reported yet, each with its status. Until the
     * caller calls disconnect, the device may still use the memory of failed ops. */
    struct vb_op *(*sever)(struct vb_ep *ep);
    const char *(*link_text)(struct vb_ep *ep); /* a text with the device or address; "": unknown */

    /* Bytes registered with hardware now, and how long registering has taken so far. */
    void (*registered)(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p);

    /* Every rank exports its part to the device, the ranks exchange the keys, then every rank
     * imports the parts of its peers. id is the same on all ranks. rights are bits of enum
     * vb_window_rights. export_window may send data through the endpoints; import_window may wait
     * up to timeout_ms for it. */
    vb_status (*export_window)(struct vb_device *dev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p);
    /* Offers a window to one peer, also if the endpoint was connected after the export. Returns the
     * key that the peer needs to import it. */
    vb_status (*offer_window)(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p);
    /* May be NULL. Called instead of unexport_window if other ranks in this process may still use
     * mem. Returns true if the transport has taken over mem, which it then unmaps when the last of
     * them has released the window. */
    bool (*inherit_window)(struct vb_device *dev, uint32_t id, struct vb_mem *mem);
    void (*unexport_window)(struct vb_device *dev, uint32_t id);
    vb_status (*import_window)(struct vb_ep *ep, uint32_t id, const struct vb_blob *key,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
    void (*release_window)(struct vb_remote *rem);
    void *(*remote_ptr)(struct vb_remote *rem); /* NULL unless VB_CAP_MAPPED */

    /* VB_CAP_MAPPED only: counts bytes that the caller has read or written through remote_ptr. */
    void (*touched)(struct vb_ep *ep, uint64_t read_bytes, uint64_t written_bytes);

    /* VB_OK: the op was taken, and poll always reports its completion. VB_AGAIN: the queue is full
     * and the op was not taken. Negative: the endpoint is dead. The caller has checked the bounds
     * of both parts; the transport checks what it receives. A put may have 0 bytes. */
    vb_status (*put)(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst,
                     uint32_t note, struct vb_op *op);
    vb_status (*get)(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                     struct vb_op *op);
    void (*flush)(struct vb_device *dev); /* sends puts that were held back; NULL: none ever is */

    /* Makes progress without blocking and reports up to max events. */
    vb_status (*poll)(struct vb_device *dev, struct vb_raw_event *ev, int max, int *n_p);

    /* arm is called before a sleep: from now on an event makes wait_fd readable (level-triggered,
     * for epoll). The caller polls once more, sleeps, disarms and polls. */
    vb_status (*arm)(struct vb_device *dev);
    void (*disarm)(struct vb_device *dev);
    int (*wait_fd)(struct vb_device *dev); /* the same descriptor as long as the device is open */

    /* May be NULL, if it would not be better than arm and a sleep on wait_fd. A poll that sleeps
     * for at most ms milliseconds while there is nothing to report; it may return early without
     * events. The caller holds the group's lock during the sleep, and only a peer can end it, so
     * await is only for a group with one device and no progress thread. */
    vb_status (*await)(struct vb_device *dev, struct vb_raw_event *ev, int max, int ms, int *n_p);
};

static inline const struct vb_transport *vb_device_transport(struct vb_device *dev)
{
    return ((struct vb_device_head *)dev)->transport;
}

/* For transports that have no address, no link text or no registered memory. */
static inline vb_status vb_transport_no_address(struct vb_device *dev, struct vb_blob *address_p)
{
    (void)dev;
    memset(address_p, 0, sizeof(*address_p));
    return VB_OK;
}

static inline const char *vb_transport_no_link_text(struct vb_ep *ep)
{
    (void)ep;
    return "";
}

static inline void vb_transport_none_registered(struct vb_device *dev, uint64_t *bytes_p,
                                                uint64_t *ns_p)
{
    (void)dev;
    *bytes_p = 0;
    *ns_p = 0;
}

extern const struct vb_transport vb_transport_shm;
extern const struct vb_transport vb_transport_tcp;
extern const struct vb_transport vb_transport_verbs;

/* Returns whether the device at which peers call this rank is a software device (soft-RoCE). */
bool vb_verbs_is_soft(struct vb_device *dev);

#endif
