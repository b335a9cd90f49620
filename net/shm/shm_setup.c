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
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 10000 /* default timeout for the peer to connect */

struct shm_key {
    void *ptr;
    uint64_t len_bytes;
    struct shm_hold *hold; /* used only by ranks of this process */
};

_Static_assert(sizeof(struct shm_key) <= VB_BLOB_MAX, "the key does not fit");

/* Ranks of one process use the same mapping, and the last one unmaps it. */
static void inbox_drop(const struct shm_ep *ep, struct vb_mem *mem)
{
    struct shm_inbox *inbox = mem->ptr;

    /* Pairs with the same operation on the other rank: its last access is before this unmap. */
    if (inbox != NULL && ep->same_process &&
        atomic_fetch_sub_explicit(&inbox->holders, 1, memory_order_acq_rel) > 1)
        return;
    vb_mem_unmap(mem);
}

/* Accepts an endpoint that is not complete. */
static void ep_free(struct shm_ep *ep)
{
    close(ep->fd);
    if (ep->out.wake_fd >= 0)
        close(ep->out.wake_fd);
    inbox_drop(ep, &ep->out.mem);
    inbox_drop(ep, &ep->in.mem);
    free(ep);
}

/* Sends this rank's eventfd, and to another process the inbox and the pidfd. A peer in this process
 * then holds the inbox too. */
static vb_status hello_send(struct shm_ep *ep)
{
    struct shm_msg msg = {.kind = SHM_HELLO, .id = (uint32_t)ep->dev->opts.rank};
    int fds[SHM_FDS] = {ep->dev->wake_fd, ep->in.mem.fd, ep->dev->process_fd};
    vb_status st;

    msg.n_fds = ep->same_process ? 1 : ep->dev->process_fd >= 0 ? 3 : 2;
    msg.inbox = ep->same_process ? ep->in.inbox : NULL;
    atomic_store_explicit(&ep->in.inbox->holders, 2,
                          memory_order_relaxed); /* ordered by the send and receive on the socket */
    st = vb_shm_send(ep->fd, &msg, fds);
    if (st != VB_OK)
        atomic_store_explicit(&ep->in.inbox->holders, 1, memory_order_relaxed);
    return st;
}

/* Stores the number of the peer's process as the kernel knows it; 0: this process cannot see the
 * peer, which is in another PID namespace. */
static vb_status peer_number(int sock, int *pid_p)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
        return vb_err_sys("SO_PEERCRED");
    *pid_p = (int)cred.pid;
    return VB_OK;
}

/* The peer of a rank that is said to be in this process passes pointers, so the kernel must confirm
 * this. */
static vb_status check_same_process(const struct shm_ep *ep)
{
    int pid = 0;
    vb_status st = ep->same_process ? peer_number(ep->fd, &pid) : VB_OK;

    if (st == VB_OK && ep->same_process && pid != (int)getpid())
        return vb_err(VB_ERR_INPUT, "rank %d claims to be a thread of this process, but is not",
                      ep->rank);
    return st;
}

/* Hands the pidfd of the peer to the caller of connect, or closes it. The peer could have passed
 * that of another process, which this rank would then kill instead of the peer. */
static vb_status take_process_fd(const struct shm_ep *ep, int fd, int *process_fd_p)
{
    int pid = 0;
    vb_status st = peer_number(ep->fd, &pid);

    if (st == VB_OK && !vb_process_fd_is(fd, pid))
        st = vb_err(VB_ERR_INPUT,
                    "rank %d passed a descriptor that is not a pidfd of its own process (number "
                    "%d); this check needs /proc",
                    ep->rank, pid);
    if (st == VB_OK && process_fd_p != NULL)
        *process_fd_p = fd;
    else
        close(fd);
    return st;
}

static vb_status hello_receive(struct shm_ep *ep, const struct vb_link *link, uint64_t deadline)
{
    struct shm_msg msg = {.kind = SHM_HELLO, .id = (uint32_t)ep->rank};
    int fds[SHM_FDS];
    vb_status st;

    msg.n_fds = ep->same_process ? 1 : 2;
    st = vb_shm_receive(ep->fd, &msg, ep->same_process ? 1 : 3, fds, deadline);
    if (st != VB_OK)
        return st;
    ep->out.wake_fd = fds[0];
    ep->out.end = SHM_SLOTS;
    if (ep->same_process)
        ep->out.mem =
            (struct vb_mem){.ptr = msg.inbox, .len_bytes = ep->in.mem.len_bytes, .fd = -1};
    else
        st = vb_shm_map(fds[1], sizeof(struct shm_inbox), &ep->out.mem);
    ep->out.inbox = ep->out.mem.ptr;
    if (msg.n_fds < 3)
        return st;
    if (st == VB_OK)
        return take_process_fd(ep, fds[2], link->process_fd_p);
    close(fds[2]);
    return st;
}

/* Creates this rank's inbox, and receives the peer's inbox and eventfd. */
static vb_status exchange_inboxes(struct shm_ep *ep, const struct vb_link *link, uint64_t deadline)
{
    vb_status st = vb_mem_map_shared("verbena-inbox", sizeof(struct shm_inbox), &ep->in.mem);

    if (st == VB_OK)
        st = vb_mem_populate(&ep->in.mem);
    if (st != VB_OK)
        return st;
    ep->in.inbox = ep->in.mem.ptr;
    st = hello_send(ep);
    if (st == VB_OK)
        st = hello_receive(ep, link, deadline);
    close(ep->in.mem.fd); /* the mappings keep the memory alive */
    ep->in.mem.fd = -1;
    return st;
}

vb_status vb_shm_connect(struct vb_device *vdev, const struct vb_link *link, struct vb_ep **ep_p)
{
    struct shm_device *dev = (struct shm_device *)vdev;
    uint64_t deadline = link->deadline;
    struct shm_ep *ep = calloc(1, sizeof(*ep));
    vb_status st;

    if (ep == NULL) {
        st = vb_err_sys("calloc");
        close(link->fd);
        return st;
    }
    ep->dev = dev;
    ep->rank = link->rank;
    ep->fd = link->fd;
    ep->same_process = link->same_process;
    ep->out.wake_fd = -1;
    done_list_init(&ep->done);
    if (deadline == 0)
        deadline = vb_clock_ns() + CONNECT_MS * UINT64_C(1000000);
    if (fcntl(ep->fd, F_SETFL, O_NONBLOCK) != 0)
        st = vb_err_sys("fcntl");
    else
        st = check_same_process(ep);
    if (st == VB_OK)
        st = exchange_inboxes(ep, link, deadline);
    if (st == VB_OK)
        st = vb_shm_watch(dev, ep->fd, EPOLLRDHUP, ep);
    if (st != VB_OK) {
        ep_free(ep);
        return st;
    }
    ep->traffic =
        (struct vb_traffic_link){.ours = &ep->out.inbox->flow, .theirs = &ep->in.inbox->flow};
    vb_traffic_add(dev->opts.traffic, &ep->traffic);
    dev->eps[dev->n_eps++] = ep;
    *ep_p = (struct vb_ep *)ep;
    return VB_OK;
}

void vb_shm_disconnect(struct vb_ep *vep)
{
    struct shm_ep *ep = (struct shm_ep *)vep;
    struct shm_device *dev;
    int i;

    if (ep == NULL)
        return;
    dev = ep->dev;
    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i] == ep)
            dev->eps[i--] = dev->eps[--dev->n_eps];
    dev->first = 0;
    /* If the peer has a copy of the descriptor, close() does not remove it from the epoll. */
    (void)epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
    vb_traffic_remove(dev->opts.traffic, &ep->traffic);
    ep_free(ep);
}

/* The peer may still write into the ring, but nobody reads the ring until disconnect unmaps it. */
struct vb_op *vb_shm_sever(struct vb_ep *vep)
{
    struct shm_ep *ep = (struct shm_ep *)vep;

    ep->status = VB_ERR_INPUT;        /* from now on poll ignores notes from this endpoint */
    return done_list_take(&ep->done); /* all ops are VB_OK: a copy is done when it is posted */
}

/* ---- windows of ranks that are threads of one process ---------------------------------------- */

/* The peers use the owner's memory directly. After a failure, and in elastic groups, the owner does
 * not wait for its peers before it closes, and the peers may still read or write the memory. So all
 * of these ranks *hold* the memory, and it is unmapped when the last rank lets go. */
struct shm_hold {
    _Atomic int holders;   /* number of holders: the owner and every rank that has the key */
    uint32_t id;           /* number of the window */
    struct shm_hold *next; /* next in the list of the owner's device, until the owner lets go */
    struct vb_mem mem;     /* valid after the owner has let go */
};

static struct shm_hold **find_hold(struct shm_device *dev, uint32_t id)
{
    struct shm_hold **at = &dev->holds;

    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

/* Adds a holder, for a rank of this process that gets the key of the window. */
static vb_status hold_add(struct shm_device *dev, uint32_t id)
{
    struct shm_hold **at = find_hold(dev, id);

    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
        if (*at == NULL)
            return vb_err_sys("calloc");
        (*at)->id = id;
        atomic_init(&(*at)->holders, 1);
    }
    atomic_fetch_add_explicit(&(*at)->holders, 1, memory_order_relaxed);
    return VB_OK;
}

static void hold_drop(struct shm_hold *hold)
{
    /* Pairs with the same operation on other ranks: their last access is before this unmap. */
    if (hold == NULL || atomic_fetch_sub_explicit(&hold->holders, 1, memory_order_acq_rel) > 1)
        return;
    vb_mem_unmap(&hold->mem);
    free(hold);
}

bool vb_shm_inherit_window(struct vb_device *vdev, uint32_t id, struct vb_mem *mem)
{
    struct shm_hold **at = find_hold((struct shm_device *)vdev, id), *hold = *at;

    if (hold == NULL)
        return false;
    *at = hold->next;
    hold->mem = *mem;
    hold_drop(hold);
    return true;
}

/* The caller keeps the memory. */
void vb_shm_unexport_window(struct vb_device *vdev, uint32_t id)
{
    struct vb_mem none = {.fd = -1};

    (void)vb_shm_inherit_window(vdev, id, &none);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* A peer in another process cannot use the pointer in the key and gets the descriptor instead. */
vb_status vb_shm_offer_window(struct vb_ep *vep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p)
{
    struct shm_msg msg = {.kind = SHM_WINDOW, .id = id, .n_fds = 1};
    struct shm_key key = {.ptr = mem->ptr, .len_bytes = mem->len_bytes};
    struct shm_ep *ep = (struct shm_ep *)vep;
    vb_status st = ep->same_process ? hold_add(ep->dev, id) : vb_shm_send(ep->fd, &msg, &mem->fd);

    key.hold = *find_hold(ep->dev, id);
    key_p->len_bytes = sizeof(key);
    memcpy(key_p->bytes, &key, sizeof(key));
    return st;
}

/* A peer that maps a window can read and write it, whatever the rights. That is acceptable because
 * the ranks on one host are processes of the same user. */
vb_status vb_shm_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p)
{
    struct shm_device *dev = (struct shm_device *)vdev;
    vb_status st = VB_OK;
    int i;

    (void)rights;
    key_p->len_bytes = 0;
    for (i = 0; i < dev->n_eps && st == VB_OK; i++)
        st = vb_shm_offer_window((struct vb_ep *)dev->eps[i], id, mem, key_p);
    return st;
}

vb_status vb_shm_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *blob,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p)
{
    struct shm_ep *ep = (struct shm_ep *)vep;
    struct shm_msg msg = {.kind = SHM_WINDOW, .id = id, .n_fds = 1};
    struct shm_remote *rem;
    struct shm_key key;
    int fds[SHM_FDS];
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
    rem->mem.fd = -1;
    if (ep->same_process) {
        rem->ptr = key.ptr;
        rem->hold = key.hold;
    } else {
        st = vb_shm_receive(ep->fd, &msg, 1, fds, vb_clock_ns() + (uint64_t)timeout_ms * 1000000);
        if (st == VB_OK)
            st = vb_shm_map(fds[0], len_bytes, &rem->mem);
        if (st != VB_OK) {
            free(rem);
            return st;
        }
        rem->ptr = rem->mem.ptr;
    }
    *rem_p = (struct vb_remote *)rem;
    return VB_OK;
}

void vb_shm_release_window(struct vb_remote *vrem)
{
    struct shm_remote *rem = (struct shm_remote *)vrem;

    if (rem == NULL)
        return;
    vb_mem_unmap(&rem->mem);
    hold_drop(rem->hold);
    free(rem);
}

void *vb_shm_remote_ptr(struct vb_remote *rem)
{
    return ((struct shm_remote *)rem)->ptr;
}
