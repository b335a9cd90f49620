/* SPDX-License-Identifier: MIT
 *
 * What the files of the shm transport share: the memory that a pair of ranks has in common, and the
 * messages by which they come to have it.
 */
#ifndef VB_SHM_PRIV_H
#define VB_SHM_PRIV_H

#include "net/done_list.h"
#include "net/transport.h"

#include <stdatomic.h>

/* ---- an inbox: the notes of one sender to one receiver ----------------------------------------
 */

#define SHM_SLOTS 1024 /* a power of two */

/* Made by the receiver, one a peer, so that a peer can garble nobody's notes but its own. */
struct shm_inbox {
    /* Written by the receiver now and then, read by the sender: one line. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t sleeping; /* a note must write the eventfd */
    _Atomic uint32_t holders; /* ranks of one process: who is last takes the inbox down */
    _Atomic uint64_t taken;   /* notes taken out, brought up to date every quarter ring */

    /* A note in the low half, the lap that it belongs to in the high one: the receiver polls the
     * slot itself, and no head that both sides write goes to and fro. 0: never used. */
    _Alignas(VB_CACHE_LINE) _Atomic uint64_t slots[SHM_SLOTS];
};

/* The lap of the n-th note, from 1. */
static inline uint32_t shm_lap(uint64_t n)
{
    return (uint32_t)(n / SHM_SLOTS) + 1;
}

/* ---- device, endpoint, remote ------------------------------------------------------------------
 */

struct shm_device {
    struct vb_device_head head;
    struct vb_device_opts opts;
    int wake_fd;  /* eventfd: a note came while this rank slept */
    int epoll_fd; /* wake_fd, and the sockets for when a peer goes away */
    unsigned polls;
    int first; /* whose turn it is in poll */
    struct shm_hold *holds;
    int n_eps;
    struct shm_ep *eps[]; /* in the order of connecting, room for world */
};

/* Notes from the peer. */
struct shm_in {
    struct shm_inbox *inbox; /* this rank's; the peer writes it */
    struct vb_mem mem;
    uint64_t n; /* notes taken */
};

/* Notes to the peer. */
struct shm_out {
    struct shm_inbox *inbox; /* the peer's; this rank writes it */
    struct vb_mem mem;
    uint64_t n;   /* notes sent */
    uint64_t end; /* notes that may be sent before inbox->taken must be read again */
    int wake_fd;  /* the peer's eventfd */
};

struct shm_ep {
    struct shm_device *dev;
    int rank;
    int fd; /* unix socket */
    bool same_process;
    bool lost_reported; /* that it is lost */
    vb_status status;
    struct shm_in in;
    struct shm_out out;
    struct done_list done;
};

struct shm_remote {
    struct shm_ep *ep;
    char *ptr;
    struct vb_mem mem;     /* nothing within one process */
    struct shm_hold *hold; /* within one process alone */
};

/* The table's types are ours in disguise. */
static inline struct shm_device *shm_device_of(struct vb_device *dev)
{
    return (struct shm_device *)dev;
}

static inline struct shm_ep *shm_ep_of(struct vb_ep *ep)
{
    return (struct shm_ep *)ep;
}

static inline struct shm_remote *shm_remote_of(struct vb_remote *rem)
{
    return (struct shm_remote *)rem;
}

/* Adds fd to the device's epoll; ep is NULL for the eventfd. */
vb_status shm_watch(struct shm_device *dev, int fd, uint32_t events, struct shm_ep *ep);

/* ---- set-up (shm_setup.c): slots of the table --------------------------------------------------
 */

vb_status shm_connect(struct vb_device *vdev, const struct vb_link *link, struct vb_ep **ep_p);
void shm_disconnect(struct vb_ep *vep);
struct vb_op *shm_sever(struct vb_ep *vep);
vb_status shm_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                            unsigned rights, struct vb_blob *key_p);
vb_status shm_offer_window(struct vb_ep *vep, uint32_t id, const struct vb_mem *mem,
                           struct vb_blob *key_p);
vb_status shm_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *blob,
                            size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void shm_release_window(struct vb_remote *vrem);
void *shm_remote_ptr(struct vb_remote *rem);

/* ---- memory that ranks of one process share (shm_hold.c) ---------------------------------------
 */

/* One more rank is told of the window, and holds it from then on. */
vb_status shm_hold_add(struct shm_device *dev, uint32_t id);
struct shm_hold *shm_hold_of(struct shm_device *dev, uint32_t id); /* NULL: nobody was told */
void shm_hold_drop(struct shm_hold *hold);                         /* NULL is fine */

/* Slots of the table. */
bool shm_inherit_window(struct vb_device *vdev, uint32_t id, struct vb_mem *mem);
void shm_unexport_window(struct vb_device *vdev, uint32_t id);

/* ---- messages on the unix socket (shm_pass.c) --------------------------------------------------
 */

#define SHM_FDS 2

enum shm_kind { SHM_HELLO = 1, SHM_WINDOW = 2 };

/* Between two processes of one machine: as it lies in memory. */
struct shm_msg {
    uint32_t magic;
    uint32_t kind;
    uint32_t id; /* hello: the sender's rank; window: its number */
    uint32_t n_fds;
    struct shm_inbox *inbox; /* hello within one process: itself; else NULL */
};

/* Both take a non-blocking socket and log what fails. The descriptors stay the caller's. */
vb_status shm_send(int sock, const struct shm_msg *msg, const int *fds);

/* Waits until deadline (vb_clock_ns) for a message of that kind and id, with n_fds descriptors,
 * which are the caller's from then on. */
vb_status shm_receive(int sock, struct shm_msg *want, int fds[SHM_FDS], uint64_t deadline);

/* Maps a peer's shared memory of at least len bytes; the descriptor is closed in any case. */
vb_status shm_map(int fd, size_t len_bytes, struct vb_mem *mem_p);

#endif
