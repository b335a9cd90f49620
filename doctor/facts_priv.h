/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files that gather facts share.
 */
#ifndef VB_DOCTOR_FACTS_PRIV_H
#define VB_DOCTOR_FACTS_PRIV_H

#include "doctor/doctor.h"
#include "topo/topo.h"

/* Copies the rest of the first line that begins with prefix to buf, without blanks around it and
 * with '?' for bytes that are not printable. Returns false and sets buf to "" if there is no such
 * line. */
bool vb_facts_field(const char *sysroot, const char *path, const char *prefix, char *buf,
                    size_t size);

/* facts_cpu.c */
void vb_facts_governors(const char *sysroot, struct vb_facts *facts);
void vb_facts_cpus(const char *sysroot, struct vb_facts *facts);
int64_t vb_facts_memory_limit(const char *sysroot);

#endif
