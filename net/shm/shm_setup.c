/* SPDX-License-Identifier: MIT
 *
 * Sets up the memory that two ranks share: inboxes when the ranks connect, windows when the windows
 * are created. Two processes send each other descriptors. Ranks that are threads of one process use
 * each other's memory directly, so that tools such as sanitizers see one address for each byte.
 */
#include "net/shm/shm_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONNECT_MS 10000 /* default timeout for the peer to connect */

struct shm_key {
    void *ptr;
    uint64_t len_bytes;
    struct shm_hold *hold; /* used only by ranks of this process */
};

_Static_assert(sizeof(struct shm_key) <= VB_BLOB_MAX, "the key does not fit");

/* ---- connecting ------------------------------------------------------------------------------ */

/* Ends this rank's use of an inbox. Ranks of one process use the same mapping, and the last one
 * unmaps it. */
static void inbox_drop(struct shm_ep *ep, struct shm_inbox *inbox, size_t len_bytes)
{
    struct vb_mem mem = {.ptr = inbox, .len_bytes = len_bytes, .fd = -1};

    /* Pairs with the same operation on the other rank: its last access happens before this
     * unmap. */
    if (ep->same_process && atomic_fetch_sub_explicit(&inbox->holders, 1, memory_order_acq_rel) > 1)
        return;
    vb_mem_unmap(&mem);
}

static vb_status inbox_create(struct shm_ep *ep)
{
    vb_status st = vb_mem_map_shared("verbena-inbox", sizeof(struct shm_inbox), &ep->in.mem);

    if (st != VB_OK)
        return st;
    st = vb_mem_populate(&ep->in.mem);
    if (st != VB_OK) {
        vb_mem_unmap(&ep->in.mem);
        return st;
    }
    ep->in.inbox = ep->in.mem.ptr;
    return VB_OK;
}

/* Sends this rank's inbox and eventfd to the peer. A peer in this process then holds the inbox
 * too. */
static vb_status hello_send(struct shm_ep *ep)
{
    struct shm_msg msg = {.kind = SHM_HELLO, .id = (uint32_t)ep->dev->opts.rank};
    int fds[SHM_FDS] = {ep->dev->wake_fd, ep->in.mem.fd};
    vb_status st;

    msg.n_fds = ep->same_process ? 1 : 2;
    msg.inbox = ep->same_process ? ep->in.inbox : NULL;
    atomic_store_explicit(&ep->in.inbox->holders, 2,
                          memory_order_relaxed); /* ordered by the send and receive on the socket */
    st = vb_shm_send(ep->fd, &msg, fds);
    if (st != VB_OK)
        atomic_store_explicit(&ep->in.inbox->holders, 1, memory_order_relaxed);
    return st;
}

static vb_status hello_receive(struct shm_ep *ep, uint64_t deadline)
{
    struct shm_msg msg = {.kind = SHM_HELLO, .id = (uint32_t)ep->rank};
    int fds[SHM_FDS];
    vb_status st;

    msg.n_fds = ep->same_process ? 1 : 2;
    st = vb_shm_receive(ep->fd, &msg, fds, deadline);
    if (st != VB_OK)
        return st;
    if (ep->same_process) {
        ep->out.inbox = msg.inbox;
        ep->out.mem.len_bytes = ep->in.mem.len_bytes;
    } else {
        st = vb_shm_map(fds[1], sizeof(struct shm_inbox), &ep->out.mem);
        if (st != VB_OK) {
            close(fds[0]);
            return st;
        }
        ep->out.inbox = ep->out.mem.ptr;
    }
    ep->out.wake_fd = fds[0];
    ep->out.end = SHM_SLOTS;
    return VB_OK;
}

/* Creates this rank's inbox, and receives the peer's inbox and eventfd. */
static vb_status ep_init(struct shm_ep *ep, uint64_t deadline)
{
    vb_status st = inbox_create(ep);

    if (st != VB_OK)
        return st;
    st = hello_send(ep);
    if (st != VB_OK)
        goto err_in;
    st = hello_receive(ep, deadline);
    if (st != VB_OK)
        goto err_in;
    close(ep->in.mem.fd); /* the mappings keep the memory alive */
    return VB_OK;

err_in:
    close(ep->in.mem.fd);
    inbox_drop(ep, ep->in.inbox, ep->in.mem.len_bytes);
    return st;
}

static void ep_fini(struct shm_ep *ep)
{
    close(ep->out.wake_fd);
    inbox_drop(ep, ep->out.inbox, ep->out.mem.len_bytes);
    inbox_drop(ep, ep->in.inbox, ep->in.mem.len_bytes);
}

vb_status vb_shm_connect(struct vb_device *vdev, const struct vb_link *link, struct vb_ep **ep_p)
{
    struct shm_device *dev = shm_device_of(vdev);
    uint64_t deadline = link->deadline;
    struct shm_ep *ep;
    int fd = link->fd;
    vb_status st;

    if (deadline == 0)
        deadline = vb_clock_ns() + CONNECT_MS * UINT64_C(1000000);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        st = vb_err_sys("fcntl");
        goto err_fd;
    }
    ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        st = vb_err_sys("calloc");
        goto err_fd;
    }
    ep->dev = dev;
    ep->rank = link->rank;
    ep->fd = fd;
    ep->same_process = link->same_process;
    done_list_init(&ep->done);
    st = ep_init(ep, deadline);
    if (st != VB_OK)
        goto err_ep;
    st = vb_shm_watch(dev, fd, EPOLLRDHUP, ep);
    if (st != VB_OK)
        goto err_init;
    dev->eps[dev->n_eps++] = ep;
    *ep_p = (struct vb_ep *)ep;
    return VB_OK;

err_init:
    ep_fini(ep);
err_ep:
    free(ep);
err_fd:
    close(fd);
    return st;
}

void vb_shm_disconnect(struct vb_ep *vep)
{
    struct shm_ep *ep = shm_ep_of(vep);
    struct shm_device *dev;
    int i;

    if (ep == NULL)
        return;
    dev = ep->dev;
    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i] == ep)
            dev->eps[i--] = dev->eps[--dev->n_eps];
    dev->first = 0;
    /* The peer may hold a copy of the descriptor. Then close() alone would not remove the socket
     * from the epoll. */
    (void)epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
    close(ep->fd);
    ep_fini(ep);
    free(ep);
}

/* The peer may still write into the ring, but nobody reads the ring any more, and disconnect unmaps
 * it. */
struct vb_op *vb_shm_sever(struct vb_ep *vep)
{
    struct shm_ep *ep = shm_ep_of(vep);

    ep->status = VB_ERR_INPUT;        /* from now on poll ignores notes from this endpoint */
    return done_list_take(&ep->done); /* all ops are VB_OK: a copy is done when it is posted */
}

/* ---- windows --------------------------------------------------------------------------------- */

/* A peer in another process cannot use the pointer in the key and gets the descriptor instead. */
vb_status vb_shm_offer_window(struct vb_ep *vep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p)
{
    struct shm_msg msg = {.kind = SHM_WINDOW, .id = id, .n_fds = 1};
    struct shm_key key = {.ptr = mem->ptr, .len_bytes = mem->len_bytes};
    struct shm_ep *ep = shm_ep_of(vep);
    vb_status st =
        ep->same_process ? vb_shm_hold_add(ep->dev, id) : vb_shm_send(ep->fd, &msg, &mem->fd);

    key.hold = vb_shm_hold_of(ep->dev, id);
    key_p->len_bytes = sizeof(key);
    memcpy(key_p->bytes, &key, sizeof(key));
    return st;
}

/* A peer that maps a window can read and write it, whatever the rights. That is acceptable because
 * the ranks on one host are processes of the same user. */
vb_status vb_shm_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p)
{
    struct shm_device *dev = shm_device_of(vdev);
    vb_status st = VB_OK;
    int i;

    (void)rights;
    key_p->len_bytes = 0;
    for (i = 0; i < dev->n_eps && st == VB_OK; i++)
        st = vb_shm_offer_window((struct vb_ep *)dev->eps[i], id, mem, key_p);
    return st;
}

static vb_status remote_map(struct shm_remote *rem, uint32_t id, size_t len_bytes, int timeout_ms)
{
    uint64_t deadline = vb_clock_ns() + (uint64_t)timeout_ms * 1000000;
    struct shm_msg msg = {.kind = SHM_WINDOW, .id = id, .n_fds = 1};
    int fds[SHM_FDS];
    vb_status st = vb_shm_receive(rem->ep->fd, &msg, fds, deadline);

    if (st != VB_OK)
        return st;
    st = vb_shm_map(fds[0], len_bytes, &rem->mem);
    if (st == VB_OK)
        rem->ptr = rem->mem.ptr;
    return st;
}

vb_status vb_shm_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *blob,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p)
{
    struct shm_ep *ep = shm_ep_of(vep);
    struct shm_remote *rem;
    struct shm_key key;
    vb_status st;

    if (blob->len_bytes != sizeof(key))
        return vb_err(VB_ERR_INPUT, "window %u of rank %d: the key has a wrong length (%u bytes)",
                      id, ep->rank, blob->len_bytes);
    memcpy(&key, blob->bytes, sizeof(key));
    if (key.len_bytes < len_bytes || (ep->same_process && (key.ptr == NULL || key.hold == NULL)))
        return vb_err(VB_ERR_INPUT, "window %u of rank %d: the key does not match the window", id,
                      ep->rank);
    rem = calloc(1, sizeof(*rem));
    if (rem == NULL)
        return vb_err_sys("calloc");
    rem->ep = ep;
    rem->mem.fd = -1;
    if (ep->same_process) {
        rem->ptr = key.ptr;
        rem->hold = key.hold;
    } else {
        st = remote_map(rem, id, len_bytes, timeout_ms);
        if (st != VB_OK) {
            free(rem);
            return st;
        }
    }
    *rem_p = (struct vb_remote *)rem;
    return VB_OK;
}

void vb_shm_release_window(struct vb_remote *vrem)
{
    struct shm_remote *rem = shm_remote_of(vrem);

    if (rem == NULL)
        return;
    vb_mem_unmap(&rem->mem);
    vb_shm_hold_drop(rem->hold);
    free(rem);
}

void *vb_shm_remote_ptr(struct vb_remote *rem)
{
    return shm_remote_of(rem)->ptr;
}
