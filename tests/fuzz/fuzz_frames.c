/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the frames of an authenticated peer on a control connection.
 *
 * Covers: net/control/conn.c net/control/membership.c
 */
#include "net/control/control_priv.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>

#define WORLD 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned char session[AUTH_KEY_BYTES];
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
    c.epoch = c.opts.epoch;
    for (i = 0; i < WORLD; i++)
        vb_conn_init(&conns[i]);
    i = c.opts.rank == 0 ? 1 : 0;
    vb_conn_up(&c, i, fds[0], session);
    if (size > 3 && data[3] % 2 == 1 && c.opts.rank == 0)
        c.joining = i; /* the peer is a joiner; its info makes this rank admit it */
    /* the input is sent in pieces that fit into the socket */
    while (size > 0 && conns[i].fd >= 0) {
        ssize_t n = write(fds[1], data, size < 4096 ? size : 4096);

        if (n <= 0)
            break;
        data += n;
        size -= (size_t)n;
        vb_conn_read(&c, i);
    }
    if (conns[i].join.offers.n > 64 || (!c.opts.elastic && conns[i].join.offers.first != NULL))
        abort();
    if (conns[i].blobs.n > 8 || (c.table != NULL && i != 0))
        abort();
    close(fds[1]);
    for (i = 0; i < WORLD; i++)
        vb_conn_fini(&conns[i]);
    free(c.table);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    return 0;
}
