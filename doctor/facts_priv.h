/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files that gather facts share.
 */
#ifndef VB_DOCTOR_FACTS_PRIV_H
#define VB_DOCTOR_FACTS_PRIV_H

#include "doctor/doctor.h"
#include "topo/topo.h"

/* Finds the first line of a file that begins with prefix, and copies the rest of the line, without
 * leading and trailing blanks, to buf. Returns false and sets buf to "" if there is no such line.
 * Bytes that are not printable become '?'. */
bool vb_facts_field(const char *sysroot, const char *path, const char *prefix, char *buf,
                    size_t size);

/* facts_cpu.c: these functions gather the facts about governors and cpus, and return the memory
 * limit of the cgroup. */
void vb_facts_governors(const char *sysroot, struct vb_facts *facts);
void vb_facts_cpus(const char *sysroot, struct vb_facts *facts);
int64_t vb_facts_memory_limit(const char *sysroot);

#endif
