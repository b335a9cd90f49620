/* SPDX-License-Identifier: MIT
 *
 * net/: how bytes move between ranks. So far: what there is to move them over.
 *
 * Everything here reads the machine and changes nothing. A sysroot is put before every path that
 * is read: "" stands for the running machine, a folder for the recording of another one. All
 * functions may be called from any thread; none blocks on the network.
 */
#ifndef VB_NET_H
#define VB_NET_H

#include "base/base.h"

#define VB_IFACE_NAME 16 /* bytes of an interface's name, with its end: the kernel's own limit */
#define VB_IFACE_ADDRS 8 /* addresses kept of one interface */
#define VB_ADDR_TEXT 46  /* bytes of the longest IPv6 address in text, with its end */
#define VB_RDMA_NAME 64  /* bytes of an RDMA device's name, with its end: the kernel's own limit */

/* ---- network interfaces ---------------------------------------------------------------------- */

enum vb_iface_kind {
    VB_IFACE_LOOPBACK,
    VB_IFACE_VIRTUAL, /* bridge, veth, tunnel, dummy ...: no hardware of its own or below it */
    VB_IFACE_STACKED, /* VLAN, bond or bridge over a physical interface */
    VB_IFACE_PHYSICAL,
};

struct vb_iface {
    char name[VB_IFACE_NAME];
    enum vb_iface_kind kind;
    bool up;            /* carries frames now */
    bool enslaved;      /* belongs to a bond or bridge, which has the addresses */
    bool control;       /* the CloudLab or Emulab control network: never for a job's data */
    bool default_route; /* the kernel's preferred way to the rest of the world, IPv4 or IPv6 */
    int64_t speed_mbit; /* -1: the driver does not say */
    int mtu_bytes;      /* 0: not known */
    char driver[32];    /* "" where there is none */
    char addrs[VB_IFACE_ADDRS][VB_ADDR_TEXT]; /* of the running machine only */
    int n_addrs;
};

/* All interfaces, ordered by name. A machine without any gives VB_OK and 0. The caller frees the
 * list with vb_net_ifaces_free(). */
vb_status vb_net_ifaces_list(const char *sysroot, struct vb_iface **list_p, int *n_p);
void vb_net_ifaces_free(struct vb_iface *list);

/* The interface of the CloudLab or Emulab control network; false on any other machine. */
bool vb_net_control_if(const char *sysroot, char *name, size_t size);

/* The interface a job's data should take: up, with hardware, not the control network; of these one
 * with an address where addresses are known, then the fastest, then the first. NULL if there is
 * none. Borrowed from the list. */
const struct vb_iface *vb_net_iface_for_data(const struct vb_iface *list, int n);

/* ---- RDMA devices ---------------------------------------------------------------------------- */

enum vb_rdma_transport {
    VB_RDMA_OTHER,
    VB_RDMA_INFINIBAND,
    VB_RDMA_ROCE,
    VB_RDMA_IWARP,
};

enum vb_gid_type { VB_GID_IB, VB_GID_ROCE_V1, VB_GID_ROCE_V2 };

struct vb_rdma_gid {
    int index;
    enum vb_gid_type type;
    char text[VB_ADDR_TEXT];    /* as an address: a RoCE GID is one */
    char netdev[VB_IFACE_NAME]; /* "" for InfiniBand */
};

struct vb_rdma_port {
    int num; /* from 1 */
    bool active;
    bool ethernet;            /* link layer: Ethernet, else InfiniBand */
    char state[16];           /* "ACTIVE", "INIT", "DOWN" ... */
    double speed_gbit;        /* 0: not known; a software device makes it up */
    int mtu_bytes;            /* in force; 0: not known */
    int64_t max_msg_bytes;    /* 0: not known */
    struct vb_rdma_gid *gids; /* those that are set, by index */
    int n_gids;
};

struct vb_rdma_dev {
    char name[VB_RDMA_NAME];
    char driver[32];            /* "mlx5_core", "rxe" ...; "" if not known */
    char firmware[64];          /* "" if not known */
    char netdev[VB_IFACE_NAME]; /* interface of the first port; "" if not known or none */
    struct vb_rdma_port *ports;
    int n_ports;
    enum vb_rdma_transport transport;
    int verbs_err; /* 0: verbs opens it (not tried in recordings); ENODEV: verbs does not see it */
    bool soft;     /* rxe or siw: RDMA done by the kernel over any interface */
};

/* All RDMA devices of the kernel, ordered by name: from sysfs and, on the running machine, asked
 * through libibverbs. A kernel without RDMA gives VB_OK and 0. The caller frees the list with
 * vb_net_rdma_free(). */
vb_status vb_net_rdma_list(const char *sysroot, struct vb_rdma_dev **list_p, int *n_p);
void vb_net_rdma_free(struct vb_rdma_dev *list, int n);

const char *vb_rdma_transport_str(enum vb_rdma_transport transport);
const char *vb_gid_type_str(enum vb_gid_type type);

/* What soft-RoCE needs, and whether it is there. */
struct vb_rxe {
    char release[65];        /* of the kernel: uname -r; "" if not known */
    bool loaded;             /* the kernel has rdma_rxe now */
    bool built_in;           /* ... and always has */
    bool present;            /* modprobe would find it */
    bool kernel_has_modules; /* false: nothing can be loaded at all */
    bool tool;               /* the command rdma is where sudo looks for commands */
};

void vb_net_rxe_probe(const char *sysroot, struct vb_rxe *rxe_p);

/* "libibverbs 1.14.44.0": from the name of the library's file, as it is loaded; where it cannot be
 * told, the version that was there at compile time, which is then said. */
void vb_net_verbs_version(char *buf, size_t size);
void vb_net_rdmacm_version(char *buf, size_t size);

#endif
