/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of doctor.
 */
#ifndef VB_DOCTOR_PRIV_H
#define VB_DOCTOR_PRIV_H

#include "engine/pub_doctor.h"

/* The list that is being made. */
struct vb_checks {
    struct vb_check *list;
    int n;
};

/* Opens a new check, OK and with nothing said yet. */
struct vb_check *vb_check_begin(struct vb_checks *checks, const char *name);

/* Appends to what is said of it, and to what mends it; too much is cut off. */
void vb_check_say(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_check_mend(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);

/* True if a name may stand in a shell command as it is. Names come from the machine: one with a
 * semicolon in it must not become a second command. */
bool vb_check_plain(const char *name);

/* doctor_net.c: RDMA devices, their ports and GIDs, soft-RoCE, interfaces. */
void vb_check_rdma(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_soft_roce(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_interfaces(const struct vb_facts *facts, struct vb_checks *checks);

#endif
