/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the bytes that a peer sends to a TCP endpoint. The first byte says how many gets the
 * endpoint has under way and how the rest of the input is cut into pieces. The endpoint must not
 * write outside the window.
 *
 * Then decodes the same bytes as a header. If they are valid, encoding the header must give the
 * same bytes.
 *
 * Covers: net/tcp/tcp_rx.c net/wire/wire_data.c
 */
#include "net/transport.h"
#include "net/wire/wire_data.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>

#define WINDOW 1u
#define WINDOW_LEN 4096
#define GUARD 4096
/* an input of this size fits into the socket, so that sending never blocks */
#define INPUT_MAX 65536
#define GETS_MAX 3
#define GUARD_BYTE 0xa5

static unsigned char room[GUARD + WINDOW_LEN + GUARD];

struct peer {
    struct vb_device *dev;
    struct vb_ep *ep;
    struct vb_remote *rem;
    struct vb_op ops[GETS_MAX];
    int n_gets, n_done, n_lost;
    int fd;
};

static const struct vb_transport *const tcp = &vb_transport_tcp;

static void peer_open(struct peer *p)
{
    struct vb_device_opts opts = {.rank = 0, .world = 2, .queue_depth = GETS_MAX};
    struct vb_mem mem = {.ptr = room + GUARD, .len_bytes = WINDOW_LEN, .fd = -1};
    struct vb_link link = {.rank = 1, .host = "here"};
    struct vb_blob key = {0};
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0 || tcp->open(&opts, &p->dev) != VB_OK)
        abort();
    link.fd = fds[0];
    if (tcp->connect(p->dev, &link, &p->ep) != VB_OK ||
        tcp->export_window(p->dev, WINDOW, &mem, VB_WINDOW_PUT | VB_WINDOW_GET, &key) != VB_OK ||
        tcp->import_window(p->ep, WINDOW, &key, WINDOW_LEN, 0, &p->rem) != VB_OK)
        abort();
    p->fd = fds[1];
}

static void peer_close(struct peer *p)
{
    tcp->release_window(p->rem);
    tcp->disconnect(p->ep);
    tcp->unexport_window(p->dev, WINDOW);
    tcp->close(p->dev);
}

/* Polls until nothing more arrives. This takes few rounds, because the peer answers nothing. */
static void peer_poll(struct peer *p, int max)
{
    struct vb_raw_event ev[8];
    int i, n;

    do {
        n = -1;
        if (tcp->poll(p->dev, ev, max, &n) != VB_OK || n < 0 || n > max)
            abort();
        for (i = 0; i < n; i++) {
            p->n_done += ev[i].type == VB_RAW_OP_DONE;
            p->n_lost += ev[i].type == VB_RAW_LOST;
            if (ev[i].rank != 1 || p->n_done > p->n_gets || p->n_lost > 1)
                abort();
        }
    } while (n > 0);
}

/* Reads and discards the requests and replies of the endpoint. */
static void swallow(int fd)
{
    char bytes[4096];

    while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void start_gets(struct peer *p, int n)
{
    struct vb_target src = {p->rem, 0};
    struct vb_span dst = {room + GUARD, 64};

    for (; p->n_gets < n; p->n_gets++) {
        dst.len_bytes = 64u * (unsigned)p->n_gets;
        if (tcp->get(p->ep, &dst, src, &p->ops[p->n_gets]) != VB_OK)
            abort();
    }
}

static void check_guards(void)
{
    size_t i;

    for (i = 0; i < GUARD; i++)
        if (room[i] != GUARD_BYTE || room[GUARD + WINDOW_LEN + i] != GUARD_BYTE)
            abort();
}

static void check_codec(const uint8_t *data, size_t size)
{
    unsigned char bytes[DATA_HEAD_BYTES];
    struct data_head head;

    if (size < sizeof(bytes) || vb_data_head_decode(data, &head) != NULL)
        return;
    vb_data_head_encode(&head, bytes);
    if (memcmp(bytes, data, sizeof(bytes)) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct peer p = {0};
    size_t at, piece, step;

    if (size < 1 || size > INPUT_MAX)
        return 0;
    memset(room, GUARD_BYTE, sizeof(room));
    peer_open(&p);
    start_gets(&p, data[0] % (GETS_MAX + 1));
    step = data[0] < 128 ? INPUT_MAX : 1u + (data[0] & 0x3fu);
    for (at = 1; at < size; at += piece) {
        piece = size - at < step ? size - at : step;
        if (send(p.fd, data + at, piece, MSG_NOSIGNAL) < 0)
            break; /* the endpoint has already closed the connection */
        peer_poll(&p, 1 + data[0] % 8);
        swallow(p.fd);
    }
    close(p.fd);
    peer_poll(&p, 8);
    if (p.n_lost != 1 || p.n_done != p.n_gets)
        abort(); /* the loss of the peer must be reported once, and all ops must have ended */
    check_guards();
    peer_close(&p);
    check_codec(data + 1, size - 1);
    return 0;
}
