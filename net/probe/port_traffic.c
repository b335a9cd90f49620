/* SPDX-License-Identifier: MIT
 *
 * Reads how much an RDMA port has moved. The files stay open, because they are read ten times a
 * second. Traffic that a card moves by RDMA does not show in the counters of its interface.
 */
#include "net/probe/probe_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SENT, RECEIVED, SENT_PACKETS, RECEIVED_PACKETS, ERRORS, COUNTS };

struct source {
    const char *file; /* path below the folder of the port */
    int count;
    unsigned unit; /* bytes of one unit */
};

/* Of several files for one count the first that exists is read, except of errors, which add up. rxe
 * counts packets only; its bytes show in the counters of its interface. */
static const struct source sources[] = {
    {"counters/port_xmit_data", SENT, 4}, /* in units of 4 bytes, whatever the width of the link */
    {"counters/port_rcv_data", RECEIVED, 4},
    {"hw_counters/tx_bytes", SENT, 1}, /* bnxt_re, mana, efa */
    {"hw_counters/rx_bytes", RECEIVED, 1},
    {"counters/port_xmit_packets", SENT_PACKETS, 1},
    {"counters/port_rcv_packets", RECEIVED_PACKETS, 1},
    {"hw_counters/sent_pkts", SENT_PACKETS, 1}, /* rxe */
    {"hw_counters/rcvd_pkts", RECEIVED_PACKETS, 1},
    {"counters/port_rcv_errors", ERRORS, 1},
    {"counters/port_xmit_discards", ERRORS, 1},
    {"hw_counters/send_err", ERRORS, 1},
};

struct vb_port_reader {
    int fds[VB_COUNT(sources)]; /* -1: not read */
};

static int open_source(const char *sysroot, const char *dev, int port, const char *file)
{
    char path[512];

    if (snprintf(path, sizeof(path), "%s" VB_NET_SYS_IB "/%s/ports/%d/%s", sysroot, dev, port,
                 file) >= (int)sizeof(path))
        return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Returns false if the file has no number ("N/A (no PMA)"). */
static bool read_source(int fd, uint64_t *value_p)
{
    char text[64], *end;
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof(text) - 1, 0) : -1;

    if (n <= 0)
        return false;
    text[n] = '\0';
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value_p = strtoull(text, &end, 10);
    return errno == 0;
}

vb_status vb_net_port_open(const char *sysroot, const char *dev, int port,
                           struct vb_port_reader **reader_p)
{
    struct vb_port_reader *reader = calloc(1, sizeof(*reader));
    bool has[COUNTS] = {false};
    uint64_t value;
    size_t i;

    if (reader == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < VB_COUNT(sources); i++) {
        const struct source *s = &sources[i];

        reader->fds[i] = has[s->count] ? -1 : open_source(sysroot, dev, port, s->file);
        if (reader->fds[i] >= 0 && !read_source(reader->fds[i], &value)) {
            close(reader->fds[i]);
            reader->fds[i] = -1;
        }
        has[s->count] = has[s->count] || (reader->fds[i] >= 0 && s->count != ERRORS);
    }
    *reader_p = reader;
    return VB_OK;
}

void vb_net_port_read(struct vb_port_reader *reader, struct vb_port_traffic *traffic_p)
{
    uint64_t n[COUNTS] = {0}, value;
    size_t i;

    for (i = 0; i < VB_COUNT(sources); i++)
        if (read_source(reader->fds[i], &value))
            n[sources[i].count] += value * sources[i].unit;
    *traffic_p = (struct vb_port_traffic){n[SENT], n[RECEIVED], n[SENT_PACKETS],
                                          n[RECEIVED_PACKETS], n[ERRORS]};
}

void vb_net_port_close(struct vb_port_reader *reader)
{
    size_t i;

    if (reader == NULL)
        return;
    for (i = 0; i < VB_COUNT(sources); i++)
        if (reader->fds[i] >= 0)
            close(reader->fds[i]);
    free(reader);
}

int vb_net_port_fds(const struct vb_port_reader *reader)
{
    size_t i;
    int n = 0;

    for (i = 0; i < VB_COUNT(sources); i++)
        n += reader->fds[i] >= 0;
    return n;
}
