/* SPDX-License-Identifier: MIT
 *
 * Finds out whether a slow transfer still moves, also while this rank receives nothing: the kernel
 * holds data back that came behind a lost packet, and a peer that receives from this rank may have
 * nothing to send. On a slow link with long queues either can take many seconds.
 */
#include "net/tcp/tcp_priv.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* Data that the peer's kernel has taken counts only while more is under way. Otherwise notes that
 * nobody reads would count for a peer that was stopped. */
static bool has_moved(struct tcp_ep *ep)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    uint64_t in, out;
    bool moved;

    if (getsockopt(ep->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return false; /* the tests use unix sockets */
    in = info.tcpi_bytes_received + info.tcpi_rcv_ooopack;
    out = info.tcpi_delivered;
    moved = in != ep->moved.in || (out != ep->moved.out && info.tcpi_unacked > 0);
    ep->moved.in = in;
    ep->moved.out = out;
    return moved;
}

void vb_tcp_sense(struct tcp_device *dev)
{
    uint64_t now = vb_clock_ns();
    int i;

    if (now < dev->sense_ns)
        return;
    dev->sense_ns = now + (uint64_t)dev->opts.sense_ms * 1000000u;
    for (i = 0; i < dev->n_eps; i++)
        if (dev->eps[i]->status == VB_OK && has_moved(dev->eps[i]))
            vb_device_heard(&dev->opts, dev->eps[i]->rank);
}
