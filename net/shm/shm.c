/* SPDX-License-Identifier: MIT
 *
 * The shared memory transport. Each rank maps the windows of its peers. A put is a copy and a note,
 * a get is a copy. Notes go through an inbox, a ring with one writer and one reader: the sender
 * writes note and lap into a slot with one store, the receiver polls the next slot and sees by the
 * lap whether it was written. A receiver sets a flag in the inbox before it sleeps. The next note
 * then also writes the receiver's eventfd.
 *
 * The peer may have corrupted the shared memory. An impossible lap or count ends the connection to
 * the peer. Neither is ever used as an index.
 */
#include "net/shm/shm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Polls between two checks of the sockets. A check is a system call. */
#define POLLS_PER_CHECK 1024u

vb_status vb_shm_watch(struct shm_device *dev, int fd, uint32_t events, struct shm_ep *ep)
{
    struct epoll_event ev = {.events = events, .data.ptr = ep};

    if (epoll_ctl(dev->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0)
        return vb_err_sys("epoll_ctl");
    return VB_OK;
}

static void shm_close_device(struct vb_device *vdev)
{
    struct shm_device *dev = (struct shm_device *)vdev;

    if (dev == NULL)
        return;
    close(dev->epoll_fd);
    close(dev->wake_fd);
    if (dev->process_fd >= 0)
        close(dev->process_fd);
    free(dev);
}

static vb_status shm_open_device(const struct vb_device_opts *o, struct vb_device **dev_p)
{
    vb_status st;
    struct shm_device *dev = calloc(1, sizeof(*dev) + (size_t)o->world * sizeof(struct shm_ep *));

    if (dev == NULL)
        return vb_err_sys("calloc");
    dev->head.transport = &vb_transport_shm;
    dev->opts = *o;
    dev->epoll_fd = -1;
    dev->process_fd = vb_process_fd();
    if (dev->process_fd < 0)
        VB_LOG_INFO("peers cannot kill this rank if it stops: pidfd_open: %s", strerror(errno));
    dev->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (dev->wake_fd < 0)
        st = vb_err_sys("eventfd");
    else if ((dev->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        st = vb_err_sys("epoll_create1");
    else
        st = vb_shm_watch(dev, dev->wake_fd, EPOLLIN, NULL);
    if (st == VB_OK)
        *dev_p = (struct vb_device *)dev;
    else
        shm_close_device((struct vb_device *)dev);
    return st;
}

/* ---- put and get ----------------------------------------------------------------------------- */

static vb_status give_up(struct shm_ep *ep, const char *what)
{
    ep->status =
        vb_err(VB_ERR_INPUT, "rank %d has corrupted the shared memory: %s", ep->rank, what);
    return ep->status;
}

/* Returns VB_OK if the ring has a free slot, and VB_AGAIN if the peer must take notes first. */
static vb_status ring_room(struct shm_ep *ep)
{
    uint64_t taken;

    if (ep->out.n != ep->out.end)
        return VB_OK;
    /* Pairs with the release in note_next(): the peer has read a slot before it is overwritten. */
    taken = atomic_load_explicit(&ep->out.inbox->taken, memory_order_acquire);
    if (taken > ep->out.n || taken + SHM_SLOTS < ep->out.end)
        return give_up(ep, "the count of received notes is impossible");
    ep->out.end = taken + SHM_SLOTS;
    return ep->out.n != ep->out.end ? VB_OK : VB_AGAIN;
}

/* Clears the receiver's flag first, so that a burst of notes causes only one write. If the receiver
 * falls asleep again before the write, the write wakes it, and it sets the flag again. */
static void wake_peer(struct shm_ep *ep)
{
    uint64_t one = 1;

    atomic_store_explicit(&ep->out.inbox->sleeping, 0, memory_order_relaxed);
    while (write(ep->out.wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    /* EAGAIN means that the counter is full, so the peer wakes anyway. */
}

static void ring_push(struct shm_ep *ep, uint32_t note)
{
    uint64_t slot = (uint64_t)shm_lap(ep->out.n) << 32 | note;

    /* As a release, this store pairs with the acquire in note_next(): the receiver sees the bytes
     * before the note. As sequentially consistent, the store and the load below pair with the fence
     * in shm_arm(): either this rank sees the flag, or the receiver sees the slot when it polls
     * after the fence. */
    atomic_store_explicit(&ep->out.inbox->slots[ep->out.n % SHM_SLOTS], slot, memory_order_seq_cst);
    ep->out.n++;
    if (atomic_load_explicit(&ep->out.inbox->sleeping, memory_order_seq_cst) != 0)
        wake_peer(ep);
}

static vb_status shm_put(struct vb_ep *vep, const struct vb_span *src, struct vb_target dst,
                         uint32_t note, struct vb_op *op)
{
    struct shm_ep *ep = (struct shm_ep *)vep;
    vb_status st;

    if (ep->status != VB_OK)
        return ep->status;
    st = ring_room(ep);
    if (st != VB_OK)
        return st;
    if (src->len_bytes > 0)
        memcpy(((struct shm_remote *)dst.remote)->ptr + dst.offset, src->ptr, src->len_bytes);
    ring_push(ep, note);
    vb_flow_add(&ep->out.inbox->flow.sent,
                src->len_bytes); /* last: the note must not wait for it */
    done_list_add(&ep->done, op, VB_OK);
    return VB_OK;
}

static vb_status shm_get(struct vb_ep *vep, const struct vb_span *dst, struct vb_target src,
                         struct vb_op *op)
{
    struct shm_ep *ep = (struct shm_ep *)vep;

    if (ep->status != VB_OK)
        return ep->status;
    if (dst->len_bytes > 0)
        memcpy(dst->ptr, ((struct shm_remote *)src.remote)->ptr + src.offset, dst->len_bytes);
    vb_flow_add(&ep->out.inbox->flow.received, dst->len_bytes);
    done_list_add(&ep->done, op, VB_OK);
    return VB_OK;
}

static void shm_touched(struct vb_ep *vep, uint64_t read_bytes, uint64_t written_bytes)
{
    struct vb_flow *flow = &((struct shm_ep *)vep)->out.inbox->flow;

    vb_flow_add(&flow->received, read_bytes);
    vb_flow_add(&flow->sent, written_bytes);
}

/* ---- poll ------------------------------------------------------------------------------------ */

/* Takes the next note; false: there is none. Publishes the number of notes taken once per quarter
 * of the ring, so that the sender's cached copy of that cache line stays valid in between. */
static bool note_next(struct shm_ep *ep, uint32_t *note_p)
{
    uint32_t lap = shm_lap(ep->in.n);
    uint64_t slot;

    /* Pairs with the store in ring_push(). */
    slot = atomic_load_explicit(&ep->in.inbox->slots[ep->in.n % SHM_SLOTS], memory_order_acquire);
    if (slot >> 32 == lap) {
        *note_p = (uint32_t)slot;
        ep->in.n++;
        if (ep->in.n % (SHM_SLOTS / 4) == 0) /* pairs with the acquire in ring_room() */
            atomic_store_explicit(&ep->in.inbox->taken, ep->in.n, memory_order_release);
        return true;
    }
    if (slot >> 32 != lap - 1)
        give_up(ep, "a note has an impossible sequence number");
    return false;
}

/* The last notes of a peer that left are still reported. Notes of a peer that corrupted its inbox
 * (VB_ERR_INPUT) are ignored. */
static int ep_poll(struct shm_ep *ep, struct vb_raw_event *ev, int max)
{
    uint32_t note;
    int n = 0;

    if (!done_list_empty(&ep->done))
        n = done_list_report(&ep->done, ep->rank, ev, max);
    while (n < max && ep->status != VB_ERR_INPUT && note_next(ep, &note))
        ev[n++] = (struct vb_raw_event){.type = VB_RAW_NOTE, .rank = ep->rank, .note = note};
    if (n < max && ep->status != VB_OK && !ep->lost_reported) {
        ep->lost_reported = true;
        ev[n++] =
            (struct vb_raw_event){.type = VB_RAW_LOST, .rank = ep->rank, .status = ep->status};
    }
    return n;
}

/* Marks peers that closed their socket as lost. Returns true if a sender wrote our eventfd. */
static bool check_sockets(struct shm_device *dev)
{
    struct epoll_event evs[16];
    bool woken = false;
    struct shm_ep *ep;
    int i, n;

    n = epoll_wait(dev->epoll_fd, evs, VB_COUNT(evs), 0);
    for (i = 0; i < n; i++) {
        ep = evs[i].data.ptr;
        if (ep == NULL) {
            woken = true;
            continue;
        }
        if (ep->status == VB_OK)
            ep->status = VB_ERR_PEER;
        (void)epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, ep->fd, NULL);
    }
    return woken;
}

static vb_status shm_poll(struct vb_device *vdev, struct vb_raw_event *ev, int max, int *n_p)
{
    struct shm_device *dev = (struct shm_device *)vdev;
    int i, n = 0, at = dev->first;

    if (++dev->polls % POLLS_PER_CHECK == 0)
        (void)check_sockets(dev);
    for (i = 0; i < dev->n_eps && n < max; i++) {
        n += ep_poll(dev->eps[at], ev + n, max - n);
        at = at + 1 < dev->n_eps ? at + 1 : 0;
    }
    if (n == max) /* the next poll starts with the endpoints that had no turn */
        dev->first = at;
    *n_p = n;
    return VB_OK;
}

/* ---- sleep ----------------------------------------------------------------------------------- */

static void set_sleeping(struct shm_device *dev, uint32_t value)
{
    int i;

    for (i = 0; i < dev->n_eps; i++)
        atomic_store_explicit(&dev->eps[i]->in.inbox->sleeping, value, memory_order_relaxed);
}

static vb_status shm_arm(struct vb_device *vdev)
{
    struct shm_device *dev = (struct shm_device *)vdev;

    (void)check_sockets(dev);
    set_sleeping(dev, 1);
    /* Pairs with the store and the load in ring_push(). */
    atomic_thread_fence(memory_order_seq_cst);
    return VB_OK;
}

static void shm_disarm(struct vb_device *vdev)
{
    struct shm_device *dev = (struct shm_device *)vdev;
    uint64_t count;

    set_sleeping(dev, 0);
    if (check_sockets(dev))
        (void)!read(dev->wake_fd, &count, sizeof(count)); /* resets the counter; does not block */
}

static int shm_wait_fd(struct vb_device *dev)
{
    return ((struct shm_device *)dev)->epoll_fd;
}

const struct vb_transport vb_transport_shm = {
    .name = "shm",
    .caps = VB_CAP_MAPPED,
    .open = shm_open_device,
    .close = shm_close_device,
    .address = vb_transport_no_address,
    .connect = vb_shm_connect,
    .disconnect = vb_shm_disconnect,
    .sever = vb_shm_sever,
    .link_text = vb_transport_no_link_text,
    .registered = vb_transport_none_registered,
    .export_window = vb_shm_export_window,
    .offer_window = vb_shm_offer_window,
    .inherit_window = vb_shm_inherit_window,
    .unexport_window = vb_shm_unexport_window,
    .import_window = vb_shm_import_window,
    .release_window = vb_shm_release_window,
    .remote_ptr = vb_shm_remote_ptr,
    .touched = shm_touched,
    .put = shm_put,
    .get = shm_get,
    .poll = shm_poll,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .wait_fd = shm_wait_fd,
};
