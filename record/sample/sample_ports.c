/* SPDX-License-Identifier: MIT
 *
 * Counters of network interfaces and RDMA ports, one file each. Interfaces may come and go while a
 * run goes on: one that comes gets a file then, and one that comes back goes on with its file.
 */
#include "net/probe/probe.h"
#include "record/sample/sample_priv.h"

#include <stdlib.h>

#define PORT_ROWS 1024
#define LOOK_TICKS 64 /* ticks between two looks for new RDMA devices */

/* A counter that has become smaller belongs to a new interface of the same name, which counts from
 * 0. The rows go on from the last one. */
static void put_row(struct vb_stream *rows, struct vb_port_row *begin, struct vb_port_row *last,
                    const struct vb_port_row *now)
{
    uint64_t now_ns = now->at_ns;
    struct vb_port_row row = {.at_ns = now_ns};

    if (now->sent_bytes < begin->sent_bytes + last->sent_bytes ||
        now->received_bytes < begin->received_bytes + last->received_bytes ||
        now->received_packets < begin->received_packets + last->received_packets) {
        begin->sent_bytes = -last->sent_bytes;
        begin->received_bytes = -last->received_bytes;
        begin->sent_packets = -last->sent_packets;
        begin->received_packets = -last->received_packets;
        begin->errors = -last->errors;
    }
    row.sent_bytes = now->sent_bytes - begin->sent_bytes;
    row.received_bytes = now->received_bytes - begin->received_bytes;
    row.sent_packets = now->sent_packets - begin->sent_packets;
    row.received_packets = now->received_packets - begin->received_packets;
    row.errors = now->errors - begin->errors;
    *last = row;
    vb_stream_put(rows, &row);
}

/* Opens the file rankR/KIND-NAME.bin; NULL: it cannot be recorded. */
static struct vb_stream *open_rows(struct sample_ports *ports, const char *kind, const char *name)
{
    struct vb_stream *rows = NULL;
    char text[72], file[96];

    if (!vb_sample_file_name(name, text, sizeof(text))) {
        VB_LOG_INFO("%s is not recorded: its name is too long", name);
        return NULL;
    }
    snprintf(file, sizeof(file), "rank%d/%s-%s.bin", ports->o->rank, kind, text);
    return vb_recorder_stream(ports->rec, file, &vb_kind_port, PORT_ROWS, &rows) == VB_OK ? rows
                                                                                          : NULL;
}

static void say_too_many(struct sample_ports *ports, const char *name)
{
    if (!ports->said && !ports->o->quiet)
        VB_LOG_INFO("this host has many network interfaces or RDMA ports; %s and others are not "
                    "recorded",
                    name);
    ports->said = true;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* Returns NULL if there are too many. */
static struct sample_iface *find_iface(struct sample_ports *ports, const char *name,
                                       const struct vb_port_row *now)
{
    struct sample_iface *iface;
    int i;

    for (i = 0; i < ports->n_ifaces; i++)
        if (strcmp(ports->ifaces[i].name, name) == 0)
            return &ports->ifaces[i];
    if (ports->n_ifaces == SAMPLE_IFACES_MAX) {
        say_too_many(ports, name);
        return NULL;
    }
    iface = &ports->ifaces[ports->n_ifaces++];
    snprintf(iface->name, sizeof(iface->name), "%s", name);
    if (ports->opening)
        iface->begin = *now;
    iface->rows = open_rows(ports, "net", name);
    return iface;
}

/* "name: bytes packets errs drop fifo frame compressed multicast bytes packets errs drop ...". The
 * kernel allows any character in a name except blanks, '/' and ':'. */
static void take_line(struct sample_ports *ports, char *line, uint64_t now_ns)
{
    char *colon = strrchr(line, ':'), *name = line;
    struct vb_port_row now = {.at_ns = now_ns};
    struct sample_iface *iface;
    uint64_t n[12];

    if (colon == NULL || vb_sample_numbers(colon + 1, n, 12) != 12)
        return;
    *colon = '\0';
    while (*name == ' ')
        name++;
    now.received_bytes = n[0];
    now.received_packets = n[1];
    now.sent_bytes = n[8];
    now.sent_packets = n[9];
    now.errors = n[2] + n[3] + n[10] + n[11];
    iface = find_iface(ports, name, &now);
    if (iface != NULL && iface->rows != NULL && !ports->opening)
        put_row(iface->rows, &iface->begin, &iface->last, &now);
}

static void sample_ifaces(struct sample_ports *ports, uint64_t now_ns)
{
    char *rest = ports->text, *line;

    if (vb_sample_read(ports->dev_fd, ports->text, sizeof(ports->text), false) == 0)
        return;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (rest != NULL) /* a line that was cut has wrong numbers */
            take_line(ports, line, now_ns);
}

/* ---- RDMA ports ------------------------------------------------------------------------------ */

static struct vb_port_row port_now(struct vb_port_reader *reader, uint64_t now_ns)
{
    struct vb_port_traffic t;

    vb_net_port_read(reader, &t);
    return (struct vb_port_row){.at_ns = now_ns,
                                .sent_bytes = t.sent_bytes,
                                .received_bytes = t.received_bytes,
                                .sent_packets = t.sent_packets,
                                .received_packets = t.received_packets,
                                .errors = t.errors};
}

static void add_port(struct sample_ports *ports, const char *dev, int num)
{
    struct sample_rdma *port;
    char name[96];
    int i;

    snprintf(name, sizeof(name), "%s-%d", dev, num);
    for (i = 0; i < ports->n_rdma; i++)
        if (strcmp(ports->rdma[i].name, name) == 0)
            return;
    if (ports->n_rdma == SAMPLE_RDMA_MAX) {
        say_too_many(ports, name);
        return;
    }
    port = &ports->rdma[ports->n_rdma++];
    memcpy(port->name, name, sizeof(name));
    if (vb_net_port_open(ports->o->root, dev, num, &port->reader) != VB_OK)
        return;
    port->rows = open_rows(ports, "rdma", name);
    if (ports->opening)
        port->begin = port_now(port->reader, 0);
}

static void look_for_ports(struct sample_ports *ports)
{
    struct vb_port_list list = {.n = 0};
    int i;

    if (vb_net_ports_read(ports->o->root, NULL, &list) != VB_OK)
        return;
    for (i = 0; i < list.n; i++)
        add_port(ports, list.ports[i].dev, list.ports[i].port);
}

/* ---- both ------------------------------------------------------------------------------------ */

void vb_sample_ports(struct sample_ports *ports, uint64_t now_ns)
{
    struct vb_port_row now;
    int i;

    sample_ifaces(ports, now_ns);
    if (++ports->ticks % LOOK_TICKS == 0)
        look_for_ports(ports);
    for (i = 0; i < ports->n_rdma; i++) {
        struct sample_rdma *port = &ports->rdma[i];

        if (port->reader == NULL || port->rows == NULL)
            continue;
        now = port_now(port->reader, now_ns);
        put_row(port->rows, &port->begin, &port->last, &now);
    }
}

vb_status vb_sample_ports_open(struct sample_ports *ports, struct vb_recorder *rec,
                               const struct vb_sampler_opts *o)
{
    ports->rec = rec;
    ports->o = o;
    ports->dev_fd = vb_sample_open(o, "/proc/net/dev");
    ports->opening = true;
    sample_ifaces(ports, 0);
    look_for_ports(ports);
    ports->opening = false;
    return VB_OK;
}

int vb_sample_rdma_fds(const struct sample_rdma *port)
{
    return port->reader != NULL ? vb_net_port_fds(port->reader) : 0;
}

void vb_sample_ports_close(struct sample_ports *ports)
{
    int i;

    vb_sample_close(&ports->dev_fd);
    for (i = 0; i < ports->n_rdma; i++)
        vb_net_port_close(ports->rdma[i].reader);
}
