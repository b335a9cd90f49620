/* SPDX-License-Identifier: MIT
 *
 * What the files of doctor share.
 */
#ifndef VB_DOCTOR_DOCTOR_PRIV_H
#define VB_DOCTOR_DOCTOR_PRIV_H

#include "doctor/doctor.h"

/* The list that is being filled. */
struct vb_checks {
    struct vb_check *list;
    int n;
};

/* Adds a check, which is OK and has an empty text. */
struct vb_check *vb_check_begin(struct vb_checks *checks, const char *name);

/* Append to the text of a check, and to the commands that fix it. Text that does not fit is cut
 * off. vb_check_warn() also makes it a WARN. */
void vb_check_say(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_check_warn(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_check_fix(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);

/* True if a name is safe in a shell command without quotes. Names come from the machine: a
 * semicolon in one must not begin a second command. */
bool vb_check_plain(const char *name);

/* doctor_net.c: RDMA devices, their ports and GIDs, soft-RoCE, interfaces. */
void vb_check_rdma(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_soft_roce(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_interfaces(const struct vb_facts *facts, struct vb_checks *checks);

#endif
