/* SPDX-License-Identifier: MIT
 *
 * Finds out what a machine has: network interfaces, RDMA devices, soft-RoCE, and counters of RDMA
 * ports. sysroot is put before every path that is read: "" is the running machine, a folder is a
 * recording of another. Any thread may call these functions. They change nothing and never wait.
 */
#ifndef VB_NET_PROBE_PROBE_H
#define VB_NET_PROBE_PROBE_H

#include "base/base.h"

/* Lengths of names and addresses in bytes, including the terminating zero. */
#define VB_IFACE_NAME 16 /* name of an interface; this is the kernel's limit */
#define VB_ADDR_TEXT 46  /* the longest IPv6 address in text */
#define VB_RDMA_NAME 64  /* name of an RDMA device; this is the kernel's limit */

#define VB_IFACE_ADDRS 8 /* maximum number of addresses that are listed for an interface */

/* ---- network interfaces ---------------------------------------------------------------------- */

enum vb_iface_kind {
    VB_IFACE_LOOPBACK,
    VB_IFACE_VIRTUAL, /* bridge, veth, tunnel, dummy ... without a physical interface */
    VB_IFACE_STACKED, /* VLAN, bond or bridge over a physical interface */
    VB_IFACE_PHYSICAL,
};

struct vb_iface {
    char name[VB_IFACE_NAME];
    enum vb_iface_kind kind;
    bool up;       /* the interface can send frames now */
    bool enslaved; /* the interface belongs to a bond or bridge, which has the addresses */
    bool control;  /* the CloudLab or Emulab control network, which must not carry a job's data */
    bool default_route; /* the kernel's default route for IPv4 or IPv6 uses this interface */
    int64_t speed_mbit; /* -1: the driver does not report the speed */
    int mtu_bytes;      /* 0: not known */
    char driver[32];    /* "": none */
    char addrs[VB_IFACE_ADDRS][VB_ADDR_TEXT]; /* empty in a recording */
    int n_addrs;
};

/* Lists all interfaces, ordered by name. The caller frees the list with vb_net_ifaces_free(). */
vb_status vb_net_ifaces_list(const char *sysroot, struct vb_iface **list_p, int *n_p);
void vb_net_ifaces_free(struct vb_iface *list);

/* Finds the CloudLab or Emulab control network. Returns false if there is none. */
bool vb_net_control_if(const char *sysroot, char *name, size_t size);

/* Returns the interface that a job's data should use, or NULL. It is physical or stacked, is up,
 * and is not the control network or part of a bond or bridge. One with an address is preferred,
 * then the fastest, then the first. The result points into the list. */
const struct vb_iface *vb_net_iface_for_data(const struct vb_iface *list, int n);

/* ---- RDMA devices ---------------------------------------------------------------------------- */

enum vb_rdma_transport { VB_RDMA_OTHER, VB_RDMA_INFINIBAND, VB_RDMA_ROCE, VB_RDMA_IWARP };
enum vb_gid_type { VB_GID_IB, VB_GID_ROCE_V1, VB_GID_ROCE_V2 };

struct vb_rdma_gid {
    int index;
    enum vb_gid_type type;
    char text[VB_ADDR_TEXT]; /* written like an IPv6 address, because RoCE GIDs are IP addresses */
    char netdev[VB_IFACE_NAME]; /* "" for InfiniBand */
};

struct vb_rdma_port {
    int num; /* the first port has number 1 */
    bool active;
    bool ethernet;            /* the link layer is Ethernet; false: InfiniBand */
    char state[16];           /* "ACTIVE", "INIT", "DOWN" ... */
    double speed_gbit;        /* 0: not known; without meaning for a software device */
    int mtu_bytes;            /* the MTU that is used now; 0: not known */
    int64_t max_msg_bytes;    /* 0: not known */
    struct vb_rdma_gid *gids; /* the GIDs that are not empty, ordered by index */
    int n_gids;
};

struct vb_rdma_dev {
    char name[VB_RDMA_NAME];
    char driver[32];            /* "mlx5_core", "rxe" ...; "": not known */
    char firmware[64];          /* "": not known */
    char netdev[VB_IFACE_NAME]; /* interface of the first port; "": not known or none */
    struct vb_rdma_port *ports;
    int n_ports;
    enum vb_rdma_transport transport;
    int verbs_err; /* 0: verbs can open it, or this is a recording; ENODEV: unknown to verbs */
    bool soft;     /* a software device (rxe or siw), which runs over any interface */
};

/* Lists all RDMA devices of the kernel, ordered by name, from sysfs and, on the running machine,
 * also from libibverbs. The caller frees the list with vb_net_rdma_free(). */
vb_status vb_net_rdma_list(const char *sysroot, struct vb_rdma_dev **list_p, int *n_p);
void vb_net_rdma_free(struct vb_rdma_dev *list, int n);

/* Returns the first active port of a device that verbs can open, or NULL. */
const struct vb_rdma_port *vb_net_rdma_active_port(const struct vb_rdma_dev *dev);

/* Verbs can open the device and one of its ports is active. */
bool vb_net_rdma_usable(const struct vb_rdma_dev *dev);
bool vb_net_rdma_any_usable(void); /* of the running machine */

const char *vb_rdma_transport_str(enum vb_rdma_transport transport);
const char *vb_gid_type_str(enum vb_gid_type type);

/* Whether the machine has what soft-RoCE needs. */
struct vb_rxe {
    char release[65];        /* release of the kernel (uname -r); "": not known */
    bool loaded;             /* rdma_rxe is loaded or built in */
    bool built_in;           /* rdma_rxe is built into the kernel */
    bool present;            /* modprobe would find the module rdma_rxe */
    bool kernel_has_modules; /* false: the kernel cannot load any module */
    bool tool;               /* the command rdma is in a folder that sudo searches */
};

void vb_net_rxe_probe(const char *sysroot, struct vb_rxe *rxe_p);

/* Write a text such as "libibverbs 1.14.44.0". If the version of the loaded library is not known,
 * it has the version at compile time and says so. */
void vb_net_verbs_version(char *buf, size_t size);
void vb_net_rdmacm_version(char *buf, size_t size);

/* ---- counters of RDMA ports ------------------------------------------------------------------ */

/* The kinds of trouble that a port counts. Both ends of a connection count the same event, so the
 * counts of two hosts must not be added up. */
enum vb_port_trouble {
    VB_PORT_RETRIES,    /* packets sent again after a timeout or a NAK */
    VB_PORT_OUT_OF_SEQ, /* packets out of order, mostly because an earlier packet was lost */
    VB_PORT_RNR,        /* the receiver was not ready, because it had not posted a receive */
    VB_PORT_DUPLICATES, /* requests that came twice, because an answer was lost or delayed */
    VB_PORT_LOST,       /* packets dropped or damaged at this port */
    VB_PORT_GIVEN_UP,   /* all retries failed, and the connection ended */
    VB_PORT_LINK,       /* the link failed or had to recover */
    VB_PORT_TROUBLES,
};

struct vb_port_counts {
    char dev[VB_RDMA_NAME];
    int port;
    unsigned known; /* bit k is set if the driver counts the kind of trouble k */
    int64_t n[VB_PORT_TROUBLES];
};

#define VB_PORTS_MAX 32

struct vb_port_list {
    int n;
    struct vb_port_counts ports[VB_PORTS_MAX];
};

/* Reads the counters of one port ("rxe0/1"), of all ports of a device ("rxe0") or of all active
 * ports (NULL), at most VB_PORTS_MAX. A counter that cannot be read is 0. */
vb_status vb_net_ports_read(const char *sysroot, const char *which, struct vb_port_list *list_p);

/* Returns the counts of a port, or NULL if the port is not in the list. */
const struct vb_port_counts *vb_net_ports_find(const struct vb_port_list *list, const char *dev,
                                               int port);

/* How much each counter in after has grown since before. moved_p may be the same list as after. */
void vb_net_ports_moved(const struct vb_port_list *before, const struct vb_port_list *after,
                        struct vb_port_list *moved_p);

/* What a port has moved since its driver was loaded. Values that the driver does not count are 0.
 */
struct vb_port_traffic {
    uint64_t sent_bytes, received_bytes, sent_packets, received_packets, errors;
};

/* Keeps the files of one port open, to read them often. */
struct vb_port_reader;

vb_status vb_net_port_open(const char *sysroot, const char *dev, int port,
                           struct vb_port_reader **reader_p);
void vb_net_port_read(struct vb_port_reader *reader, struct vb_port_traffic *traffic_p);
void vb_net_port_close(struct vb_port_reader *reader);
int vb_net_port_fds(
    const struct vb_port_reader *reader); /* number of descriptors that it has open */

const char *vb_port_trouble_str(enum vb_port_trouble kind); /* "retries", "out of sequence" ... */

#endif
