/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of net/ alone.
 */
#ifndef VB_NET_PRIV_H
#define VB_NET_PRIV_H

#include "net/net.h"

/* ---- folders below a sysroot (folder.c) -------------------------------------------------------
 */

/* The names in a folder that are printable and shorter than size, in order, as an array of n_p
 * strings to be freed together with free(*names_p). A folder that is not there has none. */
vb_status vb_net_names_list(const char *sysroot, const char *path, size_t size, char ***names_p,
                            int *n_p);

/* The last part of what a link points to, as sysfs names a driver; "" if it is no link. */
void vb_net_link_base(char *buf, size_t size, const char *path_fmt, ...) VB_PRINTF(3, 4);

/* True if there is anything at path, a dangling link included. */
bool vb_net_exists(const char *path_fmt, ...) VB_PRINTF(1, 2);

/* ---- RDMA ------------------------------------------------------------------------------------ */

/* The devices as sysfs shows them (rdma_sysfs.c), and what verbs adds (verbs_probe.c). */
vb_status vb_net_rdma_from_sysfs(const char *sysroot, struct vb_rdma_dev **list_p, int *n_p);
void vb_net_rdma_ask_verbs(struct vb_rdma_dev *list, int n);

/* Appends a copy of gid to the port's. */
vb_status vb_net_gid_add(struct vb_rdma_port *port, const struct vb_rdma_gid *gid);

#endif
