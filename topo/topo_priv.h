/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of topo/ share.
 */
#ifndef VB_TOPO_TOPO_PRIV_H
#define VB_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

#include <hwloc.h>

/* Parts of a machine whose cores are near each other, from the smallest. */
enum level { LEVEL_L3, LEVEL_NODE, LEVEL_PACKAGE, LEVEL_MACHINE, N_LEVELS };

/* A core with at least one allowed cpu. */
struct core {
    int number;         /* the logical number, unique in the machine */
    int part[N_LEVELS]; /* its part in each level; cores of a part are neighbours */
    int n_cpus;
    int first_cpu; /* its allowed cpus are topo->cpus[first_cpu ...] */
};

struct vb_topo {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t allowed;
    bool this_machine;
    char *origin;
    struct core *cores; /* in the order of their logical numbers */
    int n_cores;
    int *cpus;
    struct vb_nic *nics;
    struct vb_topo_facts facts;
};

/* machine.c: sets which parts of a machine hwloc loads, here and in the child process. */
int vb_topology_configure(hwloc_topology_t hwloc);

/* load_in_child.c: whether hwloc can load this XML without crashing. len: with the final zero. */
vb_status vb_xml_load_in_child(const char *text, int len, bool *good_p);

/* nic.c: fills topo->nics, which the caller frees, from the topology. */
vb_status vb_nics_find(struct vb_topo *topo, const char *avoid_if);

/* nic.c: chooses the NIC of a rank. load[i]: ranks that have NIC i; incremented. */
void vb_nic_choose(const struct vb_topo *topo, struct vb_placement_rank *rank, int *load);

#endif
