/* SPDX-License-Identifier: MIT
 *
 * An Ethernet switch for qemu's "-netdev socket,fd=". On such a socket, each frame follows its
 * length, which has four bytes in big-endian order. No frame is lost while a node reads its frames.
 * If a node stops reading, frames to it are dropped, so that it cannot block the other nodes.
 */
#include "lab/lab.h"

#include <arpa/inet.h>
#include <string.h>

#define MAX_FRAME_BYTES 70000U
#define MAX_QUEUED_BYTES (8U << 20)

static const uint8_t mac_prefix[4] = {0x52, 0x54, 0x00, 0x4d};

void lab_switch_mac(int node, uint8_t mac_p[6])
{
    memcpy(mac_p, mac_prefix, sizeof(mac_prefix));
    mac_p[4] = (uint8_t)(node >> 8);
    mac_p[5] = (uint8_t)node;
}

static void port_put(struct lab_port *port, const uint8_t *wire, size_t len_bytes)
{
    if (port->fd < 0 || port->cut)
        return;
    if (port->out.len_bytes + len_bytes > MAX_QUEUED_BYTES) {
        port->n_dropped++;
        return;
    }
    lab_queue_push(&port->out, wire, len_bytes);
    port->n_forwarded++;
}

/* Sends a frame to its destination. wire: the length in four bytes, then the frame, which begins
 * with the destination address. */
static void forward(struct lab_port *ports, int n_ports, int from, const uint8_t *wire,
                    size_t len_bytes)
{
    const uint8_t *mac = wire + 4;
    int to;

    if (memcmp(mac, mac_prefix, sizeof(mac_prefix)) == 0) {
        to = mac[4] << 8 | mac[5];
        if (to < n_ports && to != from)
            port_put(&ports[to], wire, len_bytes);
        return;
    }
    for (to = 0; to < n_ports; to++)
        if (to != from)
            port_put(&ports[to], wire, len_bytes);
}

bool lab_switch_read(struct lab_port *ports, int n_ports, int i)
{
    struct lab_port *port = &ports[i];
    uint32_t len_bytes;

    if (!lab_queue_fill(&port->in, port->fd))
        return false;
    while (port->in.len_bytes >= sizeof(len_bytes)) {
        memcpy(&len_bytes, lab_queue_head(&port->in), sizeof(len_bytes));
        len_bytes = ntohl(len_bytes);
        if (len_bytes < 14 || len_bytes > MAX_FRAME_BYTES)
            lab_die("node%d sent a frame of %u bytes", i, len_bytes);
        if (port->in.len_bytes < sizeof(len_bytes) + len_bytes)
            break;
        if (!port->cut)
            forward(ports, n_ports, i, lab_queue_head(&port->in), sizeof(len_bytes) + len_bytes);
        lab_queue_drop(&port->in, sizeof(len_bytes) + len_bytes);
    }
    return true;
}
