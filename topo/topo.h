/* SPDX-License-Identifier: MIT
 *
 * topo/ describes the machine, chooses the placement of each rank on the machine, and pins threads
 * as the placement says. It is the only folder that uses hwloc.
 *
 * A *cpu* is a hardware thread with the number that the operating system gives it. A *core* has one
 * or more cpus, and its number is hwloc's logical number, which is unique in the machine. A *node*
 * is a NUMA node.
 */
#ifndef VB_TOPO_TOPO_H
#define VB_TOPO_TOPO_H

#include "base/base.h"

/* ---- the machine ----------------------------------------------------------------------------- */

struct vb_topo;

struct vb_topo_source {
    const char *synthetic; /* a machine in hwloc's notation, such as "pack:2 numa:1 core:8 pu:2" */
    const char *xml;  /* a file of vb_topo_save() or lstopo; if both are NULL, this host is used */
    const char *cpus; /* the only cpus to use, such as "1,3,5-7"; NULL: all allowed cpus */
    const char *avoid_if; /* the name of a network interface to avoid, or NULL */
};

struct vb_topo_cache {
    int level;
    int n;
    int64_t bytes; /* the size of one cache */
};

/* A port of a network card. A port has a network interface, an RDMA device, or both. */
struct vb_nic {
    const char *net;  /* the name of the interface; NULL: none */
    const char *rdma; /* the name of the RDMA device; NULL: none */
    int package;      /* the nearest package; -1: no package is nearer than the others */
    int node;         /* the nearest NUMA node; -1: no node is nearer than the others */
    int active;       /* 1: active, 0: not active, -1: not known */
    int64_t mbit_s;   /* speed in Mbit/s; 0: not known */
    bool avoid;
};

#define VB_TOPO_CACHES_MAX 8

struct vb_topo_facts {
    const char *origin;    /* "this machine", "synthetic" or the name of the file */
    const char *cpu_model; /* the name of the processor; NULL: not known */
    int n_packages, n_nodes, n_cores, n_cpus;
    /* numbers of cores and cpus that the cgroup, the affinity and vb_topo_source.cpus allow */
    int n_allowed_cores, n_allowed_cpus;
    int64_t memory_bytes;
    double cpu_quota; /* CPU time that the cgroup grants, as a number of cpus; 0: no limit */
    struct vb_topo_cache caches[VB_TOPO_CACHES_MAX];
    int n_caches;
    const struct vb_nic *nics;
    int n_nics;
};

/* Reads the topology of a machine. On this host, a cpu is allowed only if the calling thread may
 * use it at this moment. */
vb_status vb_topo_open(const struct vb_topo_source *source, struct vb_topo **topo_p);
void vb_topo_close(struct vb_topo *topo);

/* Returns facts about the machine. They are valid until vb_topo_close(). */
const struct vb_topo_facts *vb_topo_facts(const struct vb_topo *topo);

/* Writes the topology of the machine as an XML file, for use as vb_topo_source.xml on another
 * host. */
vb_status vb_topo_save(const struct vb_topo *topo, const char *path);

/* Returns the CPU time that the cgroup of this process grants, as a number of cpus, or 0 if
 * there is no limit. The paths of all files that are read start with sysroot, which is "" for
 * the running system. */
double vb_topo_cpu_quota(const char *sysroot);

/* Returns the name and version of the topology library in use. */
const char *vb_topo_library(void);

/* ---- the placement --------------------------------------------------------------------------- */

#define VB_PLACEMENT_RANKS_MAX 4096
#define VB_PLACEMENT_THREADS_MAX 4096
#define VB_PLACEMENT_TEXT 200

struct vb_ints {
    int n;
    int *v;
};

struct vb_placement_want {
    int ranks;     /* the number of ranks on this host */
    int threads;   /* number of compute threads per rank; 0: chosen for the machine */
    bool progress; /* each rank also has a progress thread */
};

struct vb_placement_rank {
    int rank;
    int package; /* the package that has all cores; -1: the cores are on several packages */
    struct vb_ints cores;   /* all cores of the rank, including the progress core */
    struct vb_ints cpus;    /* the allowed cpus of these cores */
    struct vb_ints compute; /* the cpu of each compute thread; empty: each may use all of cpus */
    struct vb_ints others;  /* cpus for the loader thread */
    struct vb_ints nodes;   /* NUMA nodes for the memory of the rank; empty: any node */
    int progress_core;      /* the core of the progress thread; -1: no progress thread */
    int progress_cpu;       /* the cpu of the progress thread; -1: any of cpus */
    const struct vb_nic *nic;
    char nic_why[VB_PLACEMENT_TEXT];
};

struct vb_placement {
    int n_ranks;
    int threads;  /* number of compute threads per rank */
    bool overlap; /* ranks share cores because there are fewer cores than ranks */
    bool pinned;  /* each compute thread is pinned to a cpu of its own */
    bool own_progress_core;
    char note[VB_PLACEMENT_TEXT]; /* a note for the user about the placement, or "" */
    struct vb_placement_rank *ranks;
};

/* Chooses the placement of the ranks. The placement borrows the NICs of topo, so the caller
 * destroys the placement before closing topo. */
vb_status vb_placement_create(const struct vb_topo *topo, const struct vb_placement_want *want,
                              struct vb_placement **placement_p);
void vb_placement_destroy(struct vb_placement *placement);

/* ---- applying a placement -------------------------------------------------------------------- */

/* The functions below act on the calling thread and need the topology of this host. If the
 * operating system refuses to pin a thread or to bind memory (for example in a container without
 * the right to do so), the job only gets slower. The functions then log a warning and return
 * VB_OK. */

enum vb_role { VB_ROLE_PROGRESS, VB_ROLE_LOADER };

/* Pins the calling thread to the cpus for its role. A new thread calls this first, because it
 * has inherited the pinning of the thread that started it. */
vb_status vb_placement_pin(const struct vb_topo *topo, const struct vb_placement *placement,
                           int rank, enum vb_role role);

/* Sets the size of the OpenMP team that this thread leads, and pins all threads of the team
 * including this thread. The threads stay the same as long as the size of the team does not
 * change. */
vb_status vb_placement_pin_team(const struct vb_topo *topo, const struct vb_placement *placement,
                                int rank);

/* Sets only the size of the team. If threads is 0, the team has one thread per cpu that this
 * thread may use. */
void vb_team_size(int threads);

/* Removes the last thread of a team that has several threads, because another thread needs the
 * core. */
void vb_team_less_one(void);

/* Binds memory to the NUMA nodes of the rank: all memory that is first touched by this thread,
 * or by a thread that it starts later. */
vb_status vb_placement_bind_memory(const struct vb_topo *topo, const struct vb_placement *placement,
                                   int rank);

/* Binds one mapping to the NUMA nodes of the rank, no matter which thread touches the mapping
 * first. */
vb_status vb_placement_bind_range(const struct vb_topo *topo, const struct vb_placement *placement,
                                  int rank, const void *ptr, size_t len_bytes);

#endif
