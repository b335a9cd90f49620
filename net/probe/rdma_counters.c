/* SPDX-License-Identifier: MIT
 *
 * Reads the error counters of RDMA ports, which have other names in each driver. A retry that
 * succeeds is visible only here, because it only makes the transfer slower. Two counters are left
 * out on purpose: ack_deferred of rxe, which grows without errors, and rx_icrc_encapsulated of
 * mlx5, which also counts other traffic than RDMA.
 */
#include "net/probe/probe_priv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct source {
    const char *file; /* path below the folder of the port */
    enum vb_port_trouble kind;
};

static const struct source sources[] = {
    /* rxe */
    {"hw_counters/completer_retry_err", VB_PORT_RETRIES},
    {"hw_counters/out_of_seq_request", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/rcvd_seq_err", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/rcvd_rnr_err", VB_PORT_RNR},
    {"hw_counters/send_rnr_err", VB_PORT_RNR},
    {"hw_counters/duplicate_request", VB_PORT_DUPLICATES}, /* mlx5 has this counter, too */
    {"hw_counters/send_err", VB_PORT_LOST},
    {"hw_counters/retry_exceeded_err", VB_PORT_GIVEN_UP},
    {"hw_counters/retry_rnr_exceeded_err", VB_PORT_GIVEN_UP},
    {"hw_counters/link_downed", VB_PORT_LINK},
    /* mlx5 */
    {"hw_counters/local_ack_timeout_err", VB_PORT_RETRIES},
    {"hw_counters/roce_adp_retrans", VB_PORT_RETRIES},
    {"hw_counters/out_of_sequence", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/packet_seq_err", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/implied_nak_seq_err", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/rnr_nak_retry_err", VB_PORT_RNR},
    {"hw_counters/out_of_buffer", VB_PORT_RNR},
    {"hw_counters/req_transport_retries_exceeded", VB_PORT_GIVEN_UP},
    {"hw_counters/req_rnr_retries_exceeded", VB_PORT_GIVEN_UP},
    /* mlx4: requester (sq) and responder (rq) */
    {"hw_counters/sq_num_to", VB_PORT_RETRIES},
    {"hw_counters/sq_num_oos", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/rq_num_oos", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/sq_num_rnr", VB_PORT_RNR},
    {"hw_counters/rq_num_rnr", VB_PORT_RNR},
    {"hw_counters/rq_num_dup", VB_PORT_DUPLICATES},
    {"hw_counters/sq_num_tree", VB_PORT_GIVEN_UP},
    {"hw_counters/sq_num_rree", VB_PORT_GIVEN_UP},
    /* bnxt_re */
    {"hw_counters/to_retransmits", VB_PORT_RETRIES},
    {"hw_counters/missing_resp", VB_PORT_RETRIES},
    {"hw_counters/seq_err_naks_rcvd", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/oos_drop_count", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/rnr_naks_rcvd", VB_PORT_RNR},
    {"hw_counters/dup_req", VB_PORT_DUPLICATES},
    {"hw_counters/rx_roce_discards", VB_PORT_LOST},
    {"hw_counters/tx_roce_discards", VB_PORT_LOST},
    {"hw_counters/max_retry_exceeded", VB_PORT_GIVEN_UP},
    /* mana */
    {"hw_counters/requester_timeout", VB_PORT_RETRIES},
    {"hw_counters/requester_oos_nak", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/requester_implicit_nak", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/responder_oos", VB_PORT_OUT_OF_SEQ},
    {"hw_counters/requester_rnr_nak", VB_PORT_RNR},
    {"hw_counters/responder_rnr_nak", VB_PORT_RNR},
    {"hw_counters/responder_dup_request", VB_PORT_DUPLICATES},
    {"hw_counters/requester_retries_exceeded", VB_PORT_GIVEN_UP},
    {"hw_counters/requester_rnr_nak_retries_exceeded", VB_PORT_GIVEN_UP},
    /* every InfiniBand port has these; other ports have some of them */
    {"counters/port_rcv_errors", VB_PORT_LOST},
    {"counters/port_xmit_discards", VB_PORT_LOST},
    {"counters/excessive_buffer_overrun_errors", VB_PORT_LOST},
    {"counters/link_error_recovery", VB_PORT_LINK},
    {"counters/link_downed", VB_PORT_LINK},
};

static const char *const words[VB_PORT_TROUBLES] = {
    [VB_PORT_RETRIES] = "retries",
    [VB_PORT_OUT_OF_SEQ] = "out of sequence",
    [VB_PORT_RNR] = "RNR",
    [VB_PORT_DUPLICATES] = "duplicates",
    [VB_PORT_LOST] = "lost packets",
    [VB_PORT_GIVEN_UP] = "transfers given up",
    [VB_PORT_LINK] = "link failures",
};

const char *vb_port_trouble_str(enum vb_port_trouble kind)
{
    return (unsigned)kind < VB_PORT_TROUBLES ? words[kind] : "other";
}

/* A file that does not exist, cannot be read or has no number ("N/A (no PMA)") is ignored. */
static void read_port(const char *sysroot, struct vb_port_counts *port)
{
    int64_t value;
    size_t i;

    for (i = 0; i < VB_COUNT(sources); i++) {
        if (!vb_probe_int(&value, "%s" VB_NET_SYS_IB "/%s/ports/%d/%s", sysroot, port->dev,
                          port->port, sources[i].file) ||
            value < 0)
            continue;
        port->known |= 1u << sources[i].kind;
        if (__builtin_add_overflow(port->n[sources[i].kind], value, &port->n[sources[i].kind]))
            port->n[sources[i].kind] = INT64_MAX;
    }
}

/* "rxe0/1" selects one port, "rxe0" all ports of a device, NULL all active ports. */
static bool wanted(const char *sysroot, const char *which, const char *dev, int port)
{
    char name[VB_RDMA_NAME + 8], state[64];

    if (which == NULL)
        return vb_probe_line(state, sizeof(state), "%s" VB_NET_SYS_IB "/%s/ports/%d/state", sysroot,
                             dev, port) &&
               strstr(state, "ACTIVE") != NULL;
    snprintf(name, sizeof(name), "%s/%d", dev, port);
    return strcmp(which, dev) == 0 || strcmp(which, name) == 0;
}

static void add_port(const char *sysroot, const char *dev, int num, struct vb_port_list *list)
{
    struct vb_port_counts *port = &list->ports[list->n++];

    memset(port, 0, sizeof(*port));
    snprintf(port->dev, sizeof(port->dev), "%s", dev);
    port->port = num;
    read_port(sysroot, port);
}

static vb_status read_dev(const char *sysroot, const char *which, const char *dev,
                          struct vb_port_list *list)
{
    char path[PATH_MAX];
    vb_status st;
    char **names;
    int64_t num;
    int i, n;

    snprintf(path, sizeof(path), VB_NET_SYS_IB "/%s/ports", dev);
    st = vb_net_names_list(sysroot, path, sizeof("255"), &names, &n);
    if (st != VB_OK)
        return st;
    for (i = 0; i < n && list->n < VB_PORTS_MAX; i++)
        if (vb_parse_int(names[i], &num) && num >= 1 && num <= VB_NET_PORT_MAX &&
            wanted(sysroot, which, dev, (int)num))
            add_port(sysroot, dev, (int)num, list);
    free(names);
    return VB_OK;
}

vb_status vb_net_ports_read(const char *sysroot, const char *which, struct vb_port_list *list_p)
{
    vb_status st;
    char **names;
    int i, n;

    list_p->n = 0;
    st = vb_net_names_list(sysroot, VB_NET_SYS_IB, VB_RDMA_NAME, &names, &n);
    if (st != VB_OK)
        return st;
    for (i = 0; st == VB_OK && i < n; i++)
        st = read_dev(sysroot, which, names[i], list_p);
    free(names);
    return st;
}

const struct vb_port_counts *vb_net_ports_find(const struct vb_port_list *list, const char *dev,
                                               int port)
{
    int i;

    for (i = 0; i < list->n; i++)
        if (list->ports[i].port == port && strcmp(list->ports[i].dev, dev) == 0)
            return &list->ports[i];
    return NULL;
}

/* A counter that is smaller than before was reset, and its new value is kept. */
static void subtract(struct vb_port_counts *port, const struct vb_port_counts *before)
{
    int k;

    port->known &= before->known;
    for (k = 0; k < VB_PORT_TROUBLES; k++) {
        if (!(port->known & 1u << k))
            port->n[k] = 0;
        else if (port->n[k] >= before->n[k])
            port->n[k] -= before->n[k];
    }
}

void vb_net_ports_moved(const struct vb_port_list *before, const struct vb_port_list *after,
                        struct vb_port_list *moved_p)
{
    static const struct vb_port_counts nothing = {.known = ~0u};
    const struct vb_port_counts *old;
    int i;

    moved_p->n = after->n;
    for (i = 0; i < after->n; i++) {
        moved_p->ports[i] = after->ports[i];
        old = vb_net_ports_find(before, after->ports[i].dev, after->ports[i].port);
        subtract(&moved_p->ports[i], old != NULL ? old : &nothing);
    }
}
