/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the frames of an authenticated peer on a control connection. The input has frames without
 * tags, which are added here: random bytes would hardly ever have the right ones.
 *
 * Covers: net/control/conn.c net/control/membership.c net/control/agree.c
 */
#include "net/control/control_priv.h"
#include "tests/fuzz/fuzz.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#define WORLD 3

/* Sends the next frame of the input, or as it is what is no frame. Returns the bytes used. */
static size_t send_next(int fd, struct auth_chain *chain, const uint8_t *data, size_t size)
{
    static unsigned char bytes[AUTH_FRAME_ROOM(VB_WORLD_MAX * WIRE_MEMBER_BYTES)];
    size_t used = size < 4096 ? size : 4096, n = used;
    const unsigned char *from = data;
    uint16_t type;
    uint32_t len;

    if (size >= WIRE_FRAME_HEAD && vb_wire_frame_decode(data, WORLD, &len, &type) &&
        len <= size - WIRE_FRAME_HEAD) {
        n = vb_auth_frame(chain, type, data + WIRE_FRAME_HEAD, len, bytes);
        used = WIRE_FRAME_HEAD + len;
        from = bytes;
    }
    return write(fd, from, n) == (ssize_t)n ? used : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char key[AUTH_KEY_BYTES];
    struct auth_session session, peer;
    struct conn conns[WORLD];
    struct control c = {
        .opts = {.world = WORLD, .slots = WORLD, .epoch = 1, .listen_fd = -1, .unix_fd = -1},
        .conns = conns,
        .joining = -1};
    int fds[2], i;

    if (size > 200000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        return 0;
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.changed, NULL);
    c.opts.rank = size > 0 && data[0] % 2 == 0 ? 0 : 1;
    c.opts.elastic = size > 0 && (data[size - 1] & 1) != 0;
    /* epoch 2: this rank has joined later */
    c.opts.epoch = size > 0 && (data[size - 1] & 2) != 0 ? 2 : 1;
    c.opts.agrees = c.opts.elastic && (data[size - 1] & 4) != 0;
    c.epoch = c.opts.epoch;
    c.complete = true;
    c.epoll_fd = -1;
    vb_times_of(0, 0, &c.opts.times);
    c.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c.wake_fd < 0 || !vb_agree_open(&c))
        return 0;
    for (i = 0; i < WORLD; i++)
        vb_conn_init(&conns[i]);
    i = c.opts.rank == 0 ? 1 : 0;
    vb_auth_session(&session, key, AUTH_LISTENER);
    vb_auth_session(&peer, key, AUTH_CALLER);
    vb_conn_up(&c, i, fds[0], &session);
    if (size > 3 && data[3] % 2 == 1 && c.opts.rank == 0)
        c.joining = i; /* the peer is a joiner; its info makes this rank admit it */
    while (size > 0 && conns[i].fd >= 0) {
        size_t n = send_next(fds[1], &peer.out, data, size);

        if (n == 0)
            break;
        data += n;
        size -= n;
        vb_conn_read(&c, i);
        (void)vb_agree_work(&c, vb_clock_ns() + size);
    }
    if (c.agreement != NULL &&
        !view_has(&vb_view_now(&c.agreement->machine)->members, c.opts.rank) &&
        vb_view_status(&c.agreement->machine) != VIEW_ENDED)
        abort();
    if (conns[i].join.offers.n > 64 || (!c.opts.elastic && conns[i].join.offers.first != NULL))
        abort();
    if (conns[i].blobs.n > 8 || (c.table != NULL && i != 0))
        abort();
    close(fds[1]);
    for (i = 0; i < WORLD; i++)
        vb_conn_fini(&conns[i]);
    free(c.table);
    vb_agree_free(&c);
    close(c.wake_fd);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    return 0;
}
