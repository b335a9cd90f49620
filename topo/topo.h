/* SPDX-License-Identifier: MIT
 *
 * topo/: the machine as the engine sees it, where the threads of each rank go, and putting them
 * there. It stands on hwloc, which no other folder sees.
 *
 * Words: a *cpu* is a hardware thread and has the operating system's number; a *core* has one or
 * more cpus and has hwloc's logical number, which is unique over the machine; a *node* is a NUMA
 * node.
 */
#ifndef VB_TOPO_H
#define VB_TOPO_H

#include "base/base.h"

/* ---- the machine ----------------------------------------------------------------------------- */

struct vb_topo;

struct vb_topo_source {
    const char *synthetic; /* a machine in hwloc's notation: "pack:2 numa:1 core:8 pu:2" */
    const char *xml;       /* a file that vb_topo_save() or lstopo wrote; neither: this machine */
    const char *cpus;      /* use for these only, "1,3,5-7"; NULL: all that are allowed */
    const char *avoid_if;  /* a network interface never to prefer, or NULL */
};

struct vb_topo_cache {
    int level;
    int n;
    int64_t bytes; /* of one */
};

/* A network card's port: an interface, an RDMA device, or both. */
struct vb_nic {
    const char *net;  /* NULL: none */
    const char *rdma; /* NULL: none */
    int package;      /* that it is near, -1: near none more than another */
    int node;         /* likewise */
    int active;       /* 1 yes, 0 no, -1 not known */
    int64_t mbit_s;   /* 0: not known */
    bool avoid;
};

#define VB_TOPO_CACHES_MAX 8

struct vb_topo_facts {
    const char *origin;    /* "this machine", "synthetic" or the file's name */
    const char *cpu_model; /* NULL: not known */
    int n_packages, n_nodes, n_cores, n_cpus;
    int n_allowed_cores, n_allowed_cpus; /* by cgroup, affinity and vb_topo_source.cpus */
    int64_t memory_bytes;
    double cpu_quota; /* cpus' worth of time the cgroup grants, 0: no limit */
    struct vb_topo_cache caches[VB_TOPO_CACHES_MAX];
    int n_caches;
    const struct vb_nic *nics;
    int n_nics;
};

/* Reads the machine. The affinity that counts is the calling thread's at this moment. */
vb_status vb_topo_open(const struct vb_topo_source *source, struct vb_topo **topo_p);
void vb_topo_close(struct vb_topo *topo);

/* Lives as long as the topology. */
const struct vb_topo_facts *vb_topo_facts(const struct vb_topo *topo);

/* Writes the machine as XML, for vb_topo_source.xml on another one. */
vb_status vb_topo_save(const struct vb_topo *topo, const char *path);

/* How many cpus' worth of time this process's cgroup grants; 0: no limit. Files are read below
 * sysroot, "" for the running system. */
double vb_topo_cpu_quota(const char *sysroot);

/* Name and version of the topology library in use. */
const char *vb_topo_library(void);

/* ---- the placement
 * -------------------------------------------------------------------------------- */

#define VB_PLACEMENT_RANKS_MAX 4096
#define VB_PLACEMENT_THREADS_MAX 4096
#define VB_PLACEMENT_TEXT 200

struct vb_ints {
    int n;
    int *v;
};

struct vb_placement_want {
    int ranks;     /* on this host */
    int threads;   /* compute threads a rank, 0: as the machine suggests */
    bool progress; /* each rank has a progress thread too */
};

struct vb_placement_rank {
    int rank;
    int package;            /* that all cores are on, -1: they are on several */
    struct vb_ints cores;   /* all cores of the rank, its progress core included */
    struct vb_ints cpus;    /* the allowed cpus of these cores */
    struct vb_ints compute; /* the cpu of each compute thread; empty: each may use all of cpus */
    struct vb_ints others;  /* cpus for the loader and sampler threads */
    struct vb_ints nodes;   /* where its memory belongs; empty: anywhere */
    int progress_core;      /* one of cores, -1: no progress thread */
    int progress_cpu;       /* -1: any of cpus */
    const struct vb_nic *nic;
    char nic_why[VB_PLACEMENT_TEXT];
};

struct vb_placement {
    int n_ranks;
    int threads;  /* compute threads a rank */
    bool overlap; /* ranks share cores, for there are too few */
    bool pinned;  /* each compute thread has a cpu to itself */
    bool own_progress_core;
    char note[VB_PLACEMENT_TEXT]; /* what a user must know about it, or "" */
    struct vb_placement_rank *ranks;
};

/* Borrows the NICs of topo: the placement goes first. */
vb_status vb_placement_create(const struct vb_topo *topo, const struct vb_placement_want *want,
                              struct vb_placement **placement_p);
void vb_placement_destroy(struct vb_placement *placement);

/* ---- applying it ----------------------------------------------------------------------------- */

/* All of these act on the calling thread and need a topology of this machine. A machine that
 * refuses (a container without the right to bind, say) costs speed but not the job: that is
 * logged as a warning and is VB_OK. */

enum vb_role { VB_ROLE_PROGRESS, VB_ROLE_LOADER, VB_ROLE_SAMPLER };

/* Threads that a thread starts inherit where it is pinned, so each calls this first. */
vb_status vb_placement_pin(const struct vb_topo *topo, const struct vb_placement *placement,
                           int rank, enum vb_role role);

/* Sets the size of the OpenMP team that this thread leads and pins every member, this thread
 * among them. The members stay the same as long as the size does. */
vb_status vb_placement_pin_team(const struct vb_topo *topo, const struct vb_placement *placement,
                                int rank);

/* Where nothing is pinned: only the size, 0 for one thread a cpu that this one may use. */
void vb_team_size(int threads);

/* A team of several loses its last member: a thread that is not in it needs the core. */
void vb_team_less_one(void);

/* Memory that this thread, and those it starts from now on, touches first comes from the rank's
 * nodes. */
vb_status vb_placement_bind_memory(const struct vb_topo *topo, const struct vb_placement *placement,
                                   int rank);

/* The same for one mapping, whoever touches it first. */
vb_status vb_placement_bind_range(const struct vb_topo *topo, const struct vb_placement *placement,
                                  int rank, const void *ptr, size_t len_bytes);

#endif
