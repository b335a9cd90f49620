/* SPDX-License-Identifier: MIT */
#ifndef VB_NET_PROBE_PROBE_PRIV_H
#define VB_NET_PROBE_PROBE_PRIV_H

#include "net/net.h"

/* ---- folders below a sysroot (folder.c) ------------------------------------------------------ */

/* Lists the names in a folder, sorted, except those that are not printable or not shorter than
 * size. The caller frees *names_p, one block. A folder that does not exist has no names. */
vb_status vb_net_names_list(const char *sysroot, const char *path, size_t size, char ***names_p,
                            int *n_p);

/* Copies the last part of a link's target, in sysfs the name of a driver; "": no link. */
void vb_net_link_base(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* Returns whether the path exists. A dangling link counts as existing. */
bool vb_net_exists(const char *path_fmt, ...) VB_PRINTF(1, 2);

/* ---- RDMA ------------------------------------------------------------------------------------ */

#define VB_NET_SYS_IB "/sys/class/infiniband"
#define VB_NET_PORT_MAX 255 /* the highest port number in the interface of verbs */

/* Adds the data that only libibverbs has to each device (verbs_probe.c). */
void vb_net_rdma_query_verbs(struct vb_rdma_dev *list, int n);

vb_status vb_net_gid_add(struct vb_rdma_port *port, const struct vb_rdma_gid *gid);

#endif
