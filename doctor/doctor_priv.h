/* SPDX-License-Identifier: MIT */
#ifndef VB_DOCTOR_DOCTOR_PRIV_H
#define VB_DOCTOR_DOCTOR_PRIV_H

#include "doctor/doctor.h"
#include "topo/topo.h"

struct vb_checks {
    struct vb_check *list;
    int n;
};

/* Adds a check with the level OK and an empty text. */
struct vb_check *vb_check_begin(struct vb_checks *checks, const char *name);

/* Append to the text of a check or, vb_check_fix(), to the commands that fix the problem. Text that
 * does not fit is cut off. vb_check_warn() also sets the level to WARN. */
void vb_check_say(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_check_warn(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_check_fix(struct vb_check *check, const char *fmt, ...) VB_PRINTF(2, 3);

/* Returns whether a name of the machine is safe in a shell command without quotes. */
bool vb_check_plain(const char *name);

void vb_check_rdma(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_soft_roce(const struct vb_facts *facts, struct vb_checks *checks);
void vb_check_interfaces(const struct vb_facts *facts, struct vb_checks *checks);

/* Checks of the host's name, its kernel and the programs that jobs start. */
void vb_check_host(const struct vb_facts *facts, struct vb_checks *checks);

/* Copies the rest of the first line that begins with prefix to buf, without blanks around it and
 * with '?' for bytes that are not printable. Returns false and sets buf to "" if there is no such
 * line. */
bool vb_facts_field(const char *sysroot, const char *path, const char *prefix, char *buf,
                    size_t size);

void vb_facts_governors(const char *sysroot, struct vb_facts *facts);
void vb_facts_cpus(const char *sysroot, struct vb_facts *facts);
void vb_facts_host(const char *sysroot, struct vb_facts *facts);
int64_t vb_facts_memory_limit(const char *sysroot);

#endif
