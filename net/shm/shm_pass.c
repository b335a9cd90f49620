/* SPDX-License-Identifier: MIT
 *
 * Passes shared memory from one process to another: the descriptor of the memory travels with a
 * message on a unix socket. This file is used at set-up only.
 */
#include "net/shm/shm_priv.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; missing in the headers of Ubuntu 22.04 */
#endif

#define SHM_MAGIC 0x32734256u /* "VBs2": the last digit is the version */
#define HUGE_PAGE ((size_t)2 << 20)

/* Buffer for descriptors, aligned as the kernel requires. */
union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(SHM_FDS * sizeof(int))];
};

vb_status vb_shm_send(int sock, const struct shm_msg *msg, const int *fds)
{
    struct shm_msg out = *msg;
    struct iovec iov = {.iov_base = &out, .iov_len = sizeof(out)};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    union control control = {.room = {0}};
    size_t fd_bytes = msg->n_fds * sizeof(int);
    ssize_t n;

    out.magic = SHM_MAGIC;
    if (msg->n_fds > 0) {
        mh.msg_control = control.room;
        mh.msg_controllen = CMSG_SPACE(fd_bytes);
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(&control.align), fds, fd_bytes);
    }
    do {
        n = sendmsg(sock, &mh, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return vb_err_sys("cannot pass shared memory to a peer");
    return VB_OK; /* a unix socket never splits so short a message */
}

/* Closes what exceeds max, so that a peer cannot fill this rank's table of open files. */
static int collect_fds(struct msghdr *mh, int *fds, int max)
{
    struct cmsghdr *cm;
    size_t i, count;
    int fd, n = 0;

    for (cm = CMSG_FIRSTHDR(mh); cm != NULL; cm = CMSG_NXTHDR(mh, cm)) {
        if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
            continue;
        count = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (i = 0; i < count; i++) {
            memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof(fd));
            if (n < max)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

static vb_status wait_readable(int sock, uint64_t deadline)
{
    struct pollfd pfd = {.fd = sock, .events = POLLIN};
    uint64_t now;
    int n;

    do {
        now = vb_clock_ns();
        n = poll(&pfd, 1, now < deadline ? (int)((deadline - now + 999999) / 1000000) : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return vb_err_sys("poll");
    return n > 0 ? VB_OK : VB_ERR_TIMEOUT;
}

static bool as_wanted(const struct shm_msg *msg, const struct shm_msg *want, uint32_t max_fds,
                      int n_fds)
{
    return msg->magic == SHM_MAGIC && msg->kind == want->kind && msg->id == want->id &&
           msg->n_fds >= want->n_fds && msg->n_fds <= max_fds && (uint32_t)n_fds == msg->n_fds;
}

vb_status vb_shm_receive(int sock, struct shm_msg *want, uint32_t max_fds, int fds[SHM_FDS],
                         uint64_t deadline)
{
    struct shm_msg msg = {0};
    struct iovec iov = {.iov_base = &msg, .iov_len = sizeof(msg)};
    union control control;
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.room,
                        .msg_controllen = sizeof(control.room)};
    int n_fds, i;
    ssize_t n;
    vb_status st = wait_readable(sock, deadline);

    if (st == VB_ERR_TIMEOUT)
        return vb_err(st, "a peer did not pass its shared memory in time (kind %u, number %u)",
                      want->kind, want->id);
    if (st != VB_OK)
        return st;
    do {
        n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return vb_err_sys("cannot receive shared memory");
    if (n == 0)
        return vb_err(VB_ERR_PEER, "cannot receive shared memory: the peer is gone");
    n_fds = collect_fds(&mh, fds, SHM_FDS);
    if (n == (ssize_t)sizeof(msg) && as_wanted(&msg, want, max_fds, n_fds)) {
        *want = msg;
        return VB_OK;
    }
    for (i = 0; i < n_fds; i++)
        close(fds[i]);
    if ((mh.msg_flags & MSG_CTRUNC) != 0)
        return vb_err(
            VB_ERR_IO,
            "cannot receive shared memory: too many open files (ulimit -n raises the limit)");
    return vb_err(
        VB_ERR_INPUT,
        "cannot receive shared memory: expected kind %u, number %u, found kind %u, number %u",
        want->kind, want->id, msg.kind, msg.id);
}

/* At an address that is not a multiple of HUGE_PAGE the kernel would map huge pages as small ones.
 */
static void *map_at_huge_page(int fd, size_t len)
{
    char *room, *start;
    void *ptr;

    room =
        mmap(NULL, len + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    start = room + (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE) % HUGE_PAGE;
    ptr = mmap(start, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (ptr == MAP_FAILED) {
        munmap(room, len + HUGE_PAGE);
        return MAP_FAILED;
    }
    if (start > room)
        munmap(room, (size_t)(start - room));
    munmap(start + len, (size_t)(room + HUGE_PAGE - start));
    (void)madvise(ptr, len, MADV_HUGEPAGE); /* if it fails, small pages work too */
    return ptr;
}

vb_status vb_shm_map(int fd, size_t len_bytes, struct vb_mem *mem_p)
{
    struct vb_mem mem = {.fd = -1, .pages = VB_PAGES_SMALL};
    vb_status st = VB_OK;
    struct stat sb;

    if (fstat(fd, &sb) != 0) {
        st = vb_err_sys("cannot fstat a peer's shared memory");
        goto out;
    }
    if (!S_ISREG(sb.st_mode) || sb.st_size <= 0 || (uint64_t)sb.st_size < len_bytes) {
        st = vb_err(VB_ERR_INPUT, "a peer's shared memory has %lld bytes, expected %zu",
                    (long long)sb.st_size, len_bytes);
        goto out;
    }
    mem.len_bytes = (size_t)sb.st_size;
    if (mem.len_bytes % HUGE_PAGE == 0)
        mem.ptr = map_at_huge_page(fd, mem.len_bytes);
    else
        mem.ptr = mmap(NULL, mem.len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mem.ptr == MAP_FAILED) {
        st = vb_err_sys("cannot map %zu bytes of a peer's memory", mem.len_bytes);
        goto out;
    }
    /* Avoids page faults in the first put. A failure does no harm. */
    (void)madvise(mem.ptr, mem.len_bytes, MADV_POPULATE_WRITE);
    *mem_p = mem;
out:
    close(fd);
    return st;
}
