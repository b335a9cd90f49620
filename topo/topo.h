/* SPDX-License-Identifier: MIT
 *
 * topo/: the machine as the engine sees it, the placement of each rank on it, and pinning threads
 * as the placement says. It is the only folder that uses hwloc.
 *
 * Words: a *cpu* is a hardware thread, numbered by the operating system. A *core* has one or more
 * cpus and is numbered by hwloc's logical number, which is unique in the machine. A *node* is a
 * NUMA node.
 */
#ifndef VB_TOPO_TOPO_H
#define VB_TOPO_TOPO_H

#include "base/base.h"

/* ---- the machine ----------------------------------------------------------------------------- */

struct vb_topo;

struct vb_topo_source {
    const char *synthetic; /* a machine in hwloc's notation: "pack:2 numa:1 core:8 pu:2" */
    const char *xml;  /* a file written by vb_topo_save() or lstopo; this host if both are NULL */
    const char *cpus; /* use these cpus only, "1,3,5-7"; NULL: all allowed cpus */
    const char *avoid_if; /* a network interface to avoid, or NULL */
};

struct vb_topo_cache {
    int level;
    int n;
    int64_t bytes; /* the size of one cache */
};

/* A port of a network card: an interface, an RDMA device, or both. */
struct vb_nic {
    const char *net;  /* the interface; NULL: none */
    const char *rdma; /* the RDMA device; NULL: none */
    int package;      /* the nearest package; -1: none is nearer than the others */
    int node;         /* the nearest NUMA node; -1: none is nearer than the others */
    int active;       /* 1: yes, 0: no, -1: not known */
    int64_t mbit_s;   /* 0: not known */
    bool avoid;
};

#define VB_TOPO_CACHES_MAX 8

struct vb_topo_facts {
    const char *origin;    /* "this machine", "synthetic" or the name of the file */
    const char *cpu_model; /* NULL: not known */
    int n_packages, n_nodes, n_cores, n_cpus;
    int n_allowed_cores, n_allowed_cpus; /* allowed by cgroup, affinity and vb_topo_source.cpus */
    int64_t memory_bytes;
    double cpu_quota; /* CPU time that the cgroup grants, in cpus; 0: no limit */
    struct vb_topo_cache caches[VB_TOPO_CACHES_MAX];
    int n_caches;
    const struct vb_nic *nics;
    int n_nics;
};

/* Reads the machine. Uses the affinity that the calling thread has at this moment. */
vb_status vb_topo_open(const struct vb_topo_source *source, struct vb_topo **topo_p);
void vb_topo_close(struct vb_topo *topo);

/* The result is valid until vb_topo_close(). */
const struct vb_topo_facts *vb_topo_facts(const struct vb_topo *topo);

/* Writes the machine as XML, for use as vb_topo_source.xml on another host. */
vb_status vb_topo_save(const struct vb_topo *topo, const char *path);

/* Returns the CPU time that the cgroup of this process grants, in cpus; 0 if there is no limit.
 * Files are read below sysroot, which is "" for the running system. */
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
    int threads;   /* compute threads per rank; 0: chosen from the machine */
    bool progress; /* each rank also has a progress thread */
};

struct vb_placement_rank {
    int rank;
    int package;            /* the package of all its cores; -1: the cores are on several */
    struct vb_ints cores;   /* all cores of the rank, including its progress core */
    struct vb_ints cpus;    /* the allowed cpus of these cores */
    struct vb_ints compute; /* the cpu of each compute thread; empty: each may use all of cpus */
    struct vb_ints others;  /* cpus for the loader thread */
    struct vb_ints nodes;   /* NUMA nodes for its memory; empty: any */
    int progress_core;      /* one of cores; -1: no progress thread */
    int progress_cpu;       /* -1: any of cpus */
    const struct vb_nic *nic;
    char nic_why[VB_PLACEMENT_TEXT];
};

struct vb_placement {
    int n_ranks;
    int threads;  /* compute threads per rank */
    bool overlap; /* ranks share cores because there are too few */
    bool pinned;  /* each compute thread has a cpu to itself */
    bool own_progress_core;
    char note[VB_PLACEMENT_TEXT]; /* a note for the user about the placement, or "" */
    struct vb_placement_rank *ranks;
};

/* The placement borrows the NICs of topo: destroy it before topo is closed. */
vb_status vb_placement_create(const struct vb_topo *topo, const struct vb_placement_want *want,
                              struct vb_placement **placement_p);
void vb_placement_destroy(struct vb_placement *placement);

/* ---- applying a placement -------------------------------------------------------------------- */

/* These functions act on the calling thread and need a topology of this host. If the machine
 * refuses to pin or bind (for example in a container without the right to do so), the job only gets
 * slower. So they log a warning and return VB_OK. */

enum vb_role { VB_ROLE_PROGRESS, VB_ROLE_LOADER };

/* Pins the calling thread for its role. Call it first: pinning is inherited from the starter. */
vb_status vb_placement_pin(const struct vb_topo *topo, const struct vb_placement *placement,
                           int rank, enum vb_role role);

/* Sets the size of the OpenMP team that this thread leads, and pins every member including this
 * thread. The members stay the same as long as the size does not change. */
vb_status vb_placement_pin_team(const struct vb_topo *topo, const struct vb_placement *placement,
                                int rank);

/* Sets only the size of the team. 0: one thread per cpu that this thread may use. */
void vb_team_size(int threads);

/* Removes the last member of a team that has several, because another thread needs its core. */
void vb_team_less_one(void);

/* Memory that this thread, or one that it starts later, touches first is on the rank's nodes. */
vb_status vb_placement_bind_memory(const struct vb_topo *topo, const struct vb_placement *placement,
                                   int rank);

/* Binds one mapping in the same way, no matter which thread touches it first. */
vb_status vb_placement_bind_range(const struct vb_topo *topo, const struct vb_placement *placement,
                                  int rank, const void *ptr, size_t len_bytes);

#endif
