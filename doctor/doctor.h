/* SPDX-License-Identifier: MIT
 *
 * What on a machine would slow down or stop a job. One function reads the machine and gathers the
 * facts. Other functions judge the facts and read nothing else, so a test can make up any machine.
 */
#ifndef VB_DOCTOR_DOCTOR_H
#define VB_DOCTOR_DOCTOR_H

#include "base/base.h"
#include "kernels/kernels.h"
#include "net/net.h"

/* ---- facts ----------------------------------------------------------------------------------- */

#define VB_LIMIT_NONE INT64_MAX /* unlimited */
#define VB_LIMIT_UNKNOWN (-1)   /* the recording does not have the file */

struct vb_limit {
    int64_t soft, hard;
};

struct vb_facts {
    struct vb_iface *ifaces;
    struct vb_rdma_dev *rdma;
    int n_ifaces, n_rdma;
    struct vb_rxe rxe;
    char distro[32]; /* "debian", "ubuntu"; "": not known */

    bool recorded; /* of another machine: facts that only a running process can tell are unknown */
    bool may_lock; /* CAP_IPC_LOCK: the limit of locked memory does not apply */
    vb_status shm; /* result of allocating a small piece of shared memory */
    struct vb_limit memlock; /* bytes */
    struct vb_limit files;

    char thp[16];       /* transparent huge pages: "always", "madvise", "never"; "": unsupported */
    char shmem_thp[16]; /* the same for shared memory; also "advise", "within_size" and others */
    int64_t huge_total, huge_free, huge_page_kib; /* reserved huge pages */
    int64_t memory_bytes;                         /* of the machine; 0: not known */
    int64_t memory_limit_bytes;                   /* of the cgroup; 0: none */

    double cpu_quota;           /* cpu time per second that the cgroup grants; 0: no limit */
    int n_cpus, n_allowed_cpus; /* hardware threads; 0: not known */
    int n_governed;             /* cpus whose frequency the kernel controls */
    int n_slow_governed;        /* those of them whose governor raises the frequency slowly */
    char governor[32];          /* of the first cpu with a slow governor, else of all cpus */
    char clock[32];             /* clock source of the kernel, such as "tsc"; "": not known */
    char clocks[128];           /* clock sources that the kernel could use instead */

    struct vb_k_blas blas;
    struct vb_k_onednn onednn;
    vb_status onednn_status; /* result of the oneDNN probe */
};

/* Reads the running machine (sysroot "") or a recording of one. Takes some milliseconds and changes
 * nothing. If it succeeds, the caller frees the facts with vb_facts_fini(). */
vb_status vb_facts_gather(const char *sysroot, struct vb_facts *facts_p);
void vb_facts_fini(struct vb_facts *facts);

/* ---- doctor ---------------------------------------------------------------------------------- */

enum vb_check_level {
    VB_CHECK_OK,
    VB_CHECK_WARN, /* a job would run, but slower than it could */
    VB_CHECK_FAIL, /* a job would not run */
};

struct vb_check {
    const char *name; /* unique in a list, never freed */
    enum vb_check_level level;
    char what[768]; /* one sentence */
    char fix[512];  /* shell commands that fix it; "": none are known */
};

#define VB_CHECKS_MAX 16

/* Fills checks and returns their number. Does no I/O. Ports and GIDs are checked only if the
 * machine has RDMA devices. */
int vb_doctor_judge(const struct vb_facts *facts, struct vb_check checks[VB_CHECKS_MAX]);

const char *vb_check_level_str(enum vb_check_level level); /* "OK", "WARN", "FAIL" */

/* What was measured between two hosts over one transport. */
struct vb_pair {
    int a, b; /* the ranks, a < b */
    char host_a[64], host_b[64];
    char transport[16];
    double put_us, get_us;           /* of 8 bytes: a put one way, a get there and back */
    double put_gb_s, get_gb_s;       /* of streams that rank a drives */
    int64_t wrong;                   /* bytes that did not arrive as sent */
    int64_t moved[VB_PORT_TROUBLES]; /* increase of the RDMA port counters; negative: not read */
};

/* The same for all pairs of a job, over one or several transports. Does no I/O. */
int vb_doctor_judge_pairs(const struct vb_pair *pairs, int n,
                          struct vb_check checks[VB_CHECKS_MAX]);

#endif
