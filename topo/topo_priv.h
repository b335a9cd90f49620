/* SPDX-License-Identifier: MIT
 *
 * What the files of topo/ know of each other.
 */
#ifndef VB_TOPO_PRIV_H
#define VB_TOPO_PRIV_H

#include "topo/topo.h"

#include <hwloc.h>

/* Parts of a machine within which cores are near each other, from the smallest. */
enum level { LEVEL_L3, LEVEL_NODE, LEVEL_PACKAGE, LEVEL_MACHINE, N_LEVELS };

/* A core with at least one allowed cpu. */
struct core {
    int number;         /* logical, over the whole machine */
    int part[N_LEVELS]; /* the part of each level it is in; cores of a part are neighbours */
    int n_cpus;
    int first_cpu; /* its allowed cpus are topo->cpus[first_cpu ...] */
};

struct vb_topo {
    hwloc_topology_t hwloc;
    hwloc_bitmap_t allowed;
    bool this_machine;
    char *origin;
    struct core *cores; /* in logical order */
    int n_cores;
    int *cpus;
    struct vb_nic *nics;
    struct vb_topo_facts facts;
};

/* machine.c: what of a machine to load, the same on trial and in earnest. */
int topology_configure(hwloc_topology_t hwloc);

/* trial.c: whether hwloc can load this XML without harm. len counts the final zero. */
vb_status xml_load_in_child(const char *text, int len, bool *good_p);

/* nic.c: fills topo->nics from the topology. */
vb_status nics_find(struct vb_topo *topo, const char *avoid_if);
void nics_free(struct vb_topo *topo);

/* nic.c: the NIC for a rank. load[i] says how many ranks have NIC i; it is brought up to date. */
void nic_choose(const struct vb_topo *topo, struct vb_placement_rank *rank, int *load);

#endif
