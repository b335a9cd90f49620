/* SPDX-License-Identifier: MIT
 *
 * The layout of the memory that two ranks share, and the messages that set this memory up.
 */
#ifndef VB_NET_SHM_SHM_PRIV_H
#define VB_NET_SHM_SHM_PRIV_H

#include "net/done_list.h"
#include "net/transport.h"

#include <stdatomic.h>

/* ---- an inbox: the notes of one sender to one receiver --------------------------------------- */

#define SHM_SLOTS 1024 /* a power of two */

/* The receiver creates one inbox for each peer, so that a peer can corrupt only its own notes. */
struct shm_inbox {
    /* Three fields in one cache line, which the receiver rarely writes and the sender reads. */
    _Alignas(VB_CACHE_LINE) _Atomic uint32_t sleeping; /* the sender must write the eventfd */
    /* Number of ranks of one process that use the inbox; the last one unmaps it. */
    _Atomic uint32_t holders;
    _Atomic uint64_t taken; /* number of notes taken, updated once per quarter of the ring */

    /* The low half of a slot is the note, the high half is the lap: how often the ring was begun
     * when the note was written. The receiver polls the slot itself, so no shared head counter
     * moves between the two caches. 0: never used. */
    _Alignas(VB_CACHE_LINE) _Atomic uint64_t slots[SHM_SLOTS];

    /* Bytes that the sender has written to the receiver's memory (sent) and read from it. Only the
     * sender writes this cache line, and the receiver's recorder reads it now and then. */
    _Alignas(VB_CACHE_LINE) struct vb_flow flow;
};

/* Returns the lap of note n. Laps start at 1. */
static inline uint32_t shm_lap(uint64_t n)
{
    return (uint32_t)(n / SHM_SLOTS) + 1;
}

/* ---- device, endpoint, remote ---------------------------------------------------------------- */

struct shm_device {
    struct vb_device_head head;
    struct vb_device_opts opts;
    int wake_fd;    /* eventfd that a sender writes while this rank sleeps */
    int process_fd; /* pidfd of this process, for the peers; -1: the kernel has none */
    int epoll_fd;   /* watches wake_fd, and the sockets of peers, which close when a peer is gone */
    unsigned polls;
    int first; /* index of the endpoint that poll serves first */
    struct shm_hold *holds;
    int n_eps;
    struct shm_ep *eps[]; /* in the order of connecting; the array has `world` entries */
};

struct shm_in {
    struct shm_inbox *inbox; /* the inbox of this rank, which the peer writes */
    struct vb_mem mem;
    uint64_t n; /* number of notes taken */
};

struct shm_out {
    struct shm_inbox *inbox; /* the inbox of the peer, which this rank writes */
    struct vb_mem mem;
    uint64_t n;   /* number of notes sent */
    uint64_t end; /* value of n at which inbox->taken must be read again */
    int wake_fd;  /* the peer's eventfd */
};

struct shm_ep {
    struct shm_device *dev;
    int rank;
    int fd; /* unix socket */
    bool same_process;
    bool lost_reported;
    vb_status status;
    struct shm_in in;
    struct shm_out out;
    struct vb_traffic_link traffic;
    struct done_list done;
};

struct shm_remote {
    char *ptr;
    struct vb_mem mem;     /* the mapping; unused within one process */
    struct shm_hold *hold; /* used only within one process */
};

/* Adds fd to the epoll of the device. ep is NULL for the eventfd. */
vb_status vb_shm_watch(struct shm_device *dev, int fd, uint32_t events, struct shm_ep *ep);

/* ---- set-up (shm_setup.c): slots of the table ------------------------------------------------ */

vb_status vb_shm_connect(struct vb_device *vdev, const struct vb_link *link, struct vb_ep **ep_p);
void vb_shm_disconnect(struct vb_ep *vep);
struct vb_op *vb_shm_sever(struct vb_ep *vep);
vb_status vb_shm_export_window(struct vb_device *vdev, uint32_t id, const struct vb_mem *mem,
                               unsigned rights, struct vb_blob *key_p);
vb_status vb_shm_offer_window(struct vb_ep *vep, uint32_t id, const struct vb_mem *mem,
                              struct vb_blob *key_p);
vb_status vb_shm_import_window(struct vb_ep *vep, uint32_t id, const struct vb_blob *blob,
                               size_t len_bytes, int timeout_ms, struct vb_remote **rem_p);
void vb_shm_release_window(struct vb_remote *vrem);
bool vb_shm_inherit_window(struct vb_device *vdev, uint32_t id, struct vb_mem *mem);
void vb_shm_unexport_window(struct vb_device *vdev, uint32_t id);
void *vb_shm_remote_ptr(struct vb_remote *rem);

/* ---- messages on the unix socket (shm_pass.c) ------------------------------------------------ */

#define SHM_FDS 3 /* in a hello: eventfd, inbox, and where the kernel has it the pidfd */

enum shm_kind { SHM_HELLO = 1, SHM_WINDOW = 2 };

/* A message between processes of one host. It is sent as it lies in memory. */
struct shm_msg {
    uint32_t magic;
    uint32_t kind;
    uint32_t id; /* in a hello: the sender's rank; in a window message: the window's number */
    uint32_t n_fds;
    struct shm_inbox *inbox; /* in a hello within one process: the inbox; otherwise NULL */
};

/* Sends a message. The socket must be non-blocking. The caller keeps the descriptors. */
vb_status vb_shm_send(int sock, const struct shm_msg *msg, const int *fds);

/* Waits on a non-blocking socket until deadline (vb_clock_ns) for a message with the kind and id of
 * *want and at least its n_fds, at most max_fds descriptors, and stores the message in *want. The
 * caller owns the received descriptors. */
vb_status vb_shm_receive(int sock, struct shm_msg *want, uint32_t max_fds, int fds[SHM_FDS],
                         uint64_t deadline);

/* Maps a peer's shared memory, which must have at least len_bytes. Closes fd also on failure. */
vb_status vb_shm_map(int fd, size_t len_bytes, struct vb_mem *mem_p);

#endif
