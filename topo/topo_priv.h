/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of topo/ share.
 */
#ifndef VB_TOPO_TOPO_PRIV_H
#define VB_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

#include <hwloc.h>

/* The kinds of parts of a machine, from the smallest to the largest. */
enum level { LEVEL_L3, LEVEL_NODE, LEVEL_PACKAGE, LEVEL_MACHINE, N_LEVELS };

/* A core with at least one allowed cpu. */
struct core {
    int number; /* hwloc's logical number, unique in the machine */
    /* the part in each level that contains the core; the cores of a part are neighbours */
    int part[N_LEVELS];
    int n_cpus;
    int first_cpu; /* the allowed cpus of the core start at topo->cpus[first_cpu] */
};

struct vb_topo {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t allowed;
    bool this_machine;
    char *origin;
    struct core *cores; /* the cores in the order of their logical numbers */
    int n_cores;
    int *cpus;
    struct vb_nic *nics;
    struct vb_topo_facts facts;
};

/* machine.c: sets which parts of a machine hwloc loads, also in the child of load_in_child.c. */
int vb_topology_configure(hwloc_topology_t hwloc);

/* load_in_child.c: tests whether hwloc can load this XML. len includes the final zero. */
vb_status vb_xml_load_in_child(const char *text, int len, bool *good_p);

/* nic.c: finds the NICs in the topology and fills topo->nics, which the caller frees. */
vb_status vb_nics_find(struct vb_topo *topo, const char *avoid_if);

/* nic.c: chooses the NIC of a rank, and increments load[i], the number of ranks that use NIC i. */
void vb_nic_choose(const struct vb_topo *topo, struct vb_placement_rank *rank, int *load);

#endif
