/* SPDX-License-Identifier: MIT
 *
 * A transport is one table. Private to net/: group.c opens devices and connects endpoints,
 * window.c exports and imports memory, progress.c polls.
 *
 * Words: a *device* is one rank's end of a transport, an *endpoint* its connection to one peer, a
 * *remote* a peer's window as this rank reaches it through an endpoint.
 *
 * Threads: all calls on a device, its endpoints and remotes are made under the group's lock, except
 * for the sleep between arm and the next poll.
 */
#ifndef VB_TRANSPORT_H
#define VB_TRANSPORT_H

#include "net/net.h"

#define VB_BLOB_MAX 128
#define VB_LINK_TEXT 128

/* A few bytes that one rank hands another over the control connection. */
struct vb_blob {
    uint32_t len_bytes;
    unsigned char bytes[VB_BLOB_MAX];
};

/* This rank's side of a window, as a transport sees it. */
struct vb_span {
    void *ptr;
    size_t len_bytes;
};

struct vb_device_opts {
    int rank;
    int world;
    int queue_depth; /* puts and gets that may be under way to one peer */
    bool crowded;    /* more threads than cpus on this host: never spin for long */
    bool any_interface;

    /* RDMA; texts outlive the device. */
    const char *device; /* the only one to use; NULL: whichever leads to the peer */
    const char *bind;   /* the only address to use; NULL: any */
    const char *near;   /* the address that this rank is known by; NULL: none */
    bool no_immediate;  /* send notes as messages, as devices need that have no immediate data */
};

struct vb_device; /* each transport has its own struct that begins with these */
struct vb_ep;
struct vb_remote;

struct vb_device_head {
    const struct vb_transport *ops;
    int holds; /* not 0: more puts follow; they may wait for the next poll or flush, to leave
                * together */
};

/* Who calls whom, where a transport makes its own connection. */
enum vb_link_role { VB_LINK_BY_RANK, VB_LINK_CALL, VB_LINK_ANSWER };

/* What connect is told of a pair. */
struct vb_link {
    int rank;         /* the peer's */
    const char *host; /* its name, for messages */

    /* An authenticated stream socket to the peer (TCP, or unix for shm). The endpoint owns it from
     * now on, also when connect fails. -1 with VB_CAP_CALLS: such a transport makes its own
     * connection: the higher rank of the pair calls the lower, or a newcomer the member, and both
     * prove key. */
    int fd;
    enum vb_link_role role;
    bool same_process;
    const struct vb_blob *address;
    const unsigned char *key; /* that only this pair has, for this connection alone */
    uint32_t epoch;
    uint64_t deadline;
};

/* Where in a peer's window. */
struct vb_target {
    struct vb_remote *remote;
    uint64_t offset;
};

enum vb_raw_type { VB_RAW_OP_DONE, VB_RAW_NOTE, VB_RAW_LOST };

/* What poll reports. */
struct vb_raw_event {
    enum vb_raw_type type;
    int rank;
    struct vb_op *op; /* VB_RAW_OP_DONE */
    uint32_t note;    /* VB_RAW_NOTE */
    vb_status status; /* VB_RAW_OP_DONE, VB_RAW_LOST: VB_OK or why not */
    const char *why;  /* VB_RAW_LOST: the same in words, borrowed until disconnect; NULL: none */
};

enum vb_transport_caps {
    VB_CAP_MAPPED = 1,     /* vb_remote_ptr gives the peer's memory itself */
    VB_CAP_CALLS = 2,      /* connects by itself, by address */
    VB_CAP_ANY_SOURCE = 4, /* what is put may lie in any window */
};

struct vb_transport {
    const char *name; /* "shm", "tcp", "verbs" */
    unsigned caps;
    vb_status (*open)(const struct vb_device_opts *o, struct vb_device **dev_p);
    void (*close)(struct vb_device *dev); /* its endpoints are gone by then */

    /* Where the device can be called; empty without VB_CAP_CALLS. */
    vb_status (*address)(struct vb_device *dev, struct vb_blob *address_p);
    vb_status (*connect)(struct vb_device *dev, const struct vb_link *link, struct vb_ep **ep_p);
    void (*disconnect)(struct vb_ep *ep);

    /* The peer is gone, whatever it still does: nothing of it comes up any more. All that is under
     * way ends. Returns the ops that have ended and were not reported yet, each with its status;
     * the memory of those that failed is free only after disconnect, which follows. */
    struct vb_op *(*sever)(struct vb_ep *ep);
    const char *(*link_text)(struct vb_ep *ep); /* what it goes over, for people; "": unknown */

    /* Memory registered with hardware now, and the time that all registering has taken. */
    void (*registered)(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p);

    /* Collective over all endpoints of the device: every rank exports, the keys are exchanged, then
     * every rank imports those of its peers. id is the window's number, the same on all ranks;
     * rights are those of enum vb_window_rights. export may send through the endpoints, import may
     * wait for that for at most timeout_ms. */
    vb_status (*export_window)(struct vb_device *dev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p);
    /* For an endpoint that was connected after the export: what its peer needs to import it. */
    vb_status (*offer_window)(struct vb_ep *ep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p);
    /* Optional, NULL where it cannot be: ranks of this process use the memory itself, and may still
     * do. True: mem is taken over, and unmapped when the last of them has released the window. */
    bool (*inherit_window)(struct vb_device *dev, uint32_t id, struct vb_mem *mem);
    void (*unexport_window)(struct vb_device *dev, uint32_t id);
    vb_status (*import_window)(struct vb_ep *ep, uint32_t id, const struct vb_blob *key,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
    void (*release_window)(struct vb_remote *rem);
    void *(*remote_ptr)(struct vb_remote *rem); /* NULL unless VB_CAP_MAPPED */

    /* VB_OK: taken; completion comes through poll, always. VB_AGAIN: queue full, nothing taken.
     * Negative: the endpoint is dead. The caller has checked all bounds against the sizes that
     * were exchanged; what comes from the wire is checked by the transport. len 0 is a bare note.
     */
    vb_status (*put)(struct vb_ep *ep, const struct vb_span *src, struct vb_target dst,
                     uint32_t note, struct vb_op *op);
    vb_status (*get)(struct vb_ep *ep, const struct vb_span *dst, struct vb_target src,
                     struct vb_op *op);
    void (*flush)(struct vb_device *dev); /* sends what was held back; NULL: nothing ever is */

    /* Makes progress without blocking and reports up to max events. */
    vb_status (*poll)(struct vb_device *dev, struct vb_raw_event *ev, int max, int *n_p);

    /* Before a sleep: from now on an event makes wait_fd readable (level-triggered, for epoll). The
     * caller polls once more before it sleeps. disarm ends it; poll after that reports the event.
     */
    vb_status (*arm)(struct vb_device *dev);
    void (*disarm)(struct vb_device *dev);
    int (*wait_fd)(struct vb_device *dev); /* the same descriptor all the device's life */

    /* Optional, NULL where arm and wait_fd are as good: a poll that sleeps, at most ms, while there
     * is nothing to report. It may come back early with nothing. Only the peers end the sleep, and
     * the lock is held: for a group with one device and no progress thread. */
    vb_status (*await)(struct vb_device *dev, struct vb_raw_event *ev, int max, int ms, int *n_p);
};

/* For transports that have none of it. */
vb_status vb_transport_no_address(struct vb_device *dev, struct vb_blob *address_p);
const char *vb_transport_no_link_text(struct vb_ep *ep);
void vb_transport_none_registered(struct vb_device *dev, uint64_t *bytes_p, uint64_t *ns_p);

extern const struct vb_transport vb_transport_shm;
extern const struct vb_transport vb_transport_tcp;
extern const struct vb_transport vb_transport_verbs;

/* Of a peer that is not there: a name and nothing else, for no window is shared with it. */
extern const struct vb_transport vb_transport_nobody;

/* Whether the device that such a rank is called at is software. */
bool vb_verbs_is_soft(struct vb_device *dev);

#endif
