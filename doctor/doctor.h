/* SPDX-License-Identifier: MIT
 *
 * The doctor finds out what would slow down or stop a job on a machine. One function gathers the
 * facts. Others judge them and read nothing else, so a test can make up any machine.
 */
#ifndef VB_DOCTOR_DOCTOR_H
#define VB_DOCTOR_DOCTOR_H

#include "base/base.h"
#include "kernels/kernels.h"
#include "net/net.h"

/* ---- facts ----------------------------------------------------------------------------------- */

#define VB_LIMIT_NONE INT64_MAX /* there is no limit */
#define VB_LIMIT_UNKNOWN (-1)   /* the limit is not known */

struct vb_limit {
    int64_t soft, hard;
};

struct vb_facts {
    struct vb_iface *ifaces;
    struct vb_rdma_dev *rdma;
    int n_ifaces, n_rdma;
    struct vb_rxe rxe;
    char distro[32]; /* "debian", "ubuntu" and so on; "": not known */

    bool recorded; /* of a recording, so what only a running process can find out is unknown */
    bool may_lock; /* the process has CAP_IPC_LOCK, so memlock does not apply */
    vb_status shm; /* result of allocating a small piece of shared memory */
    struct vb_limit memlock; /* limit of locked memory in bytes */
    struct vb_limit files;

    char thp[16];       /* transparent huge pages: "always", "madvise", "never"; "": unsupported */
    char shmem_thp[16]; /* the same for shared memory; also "advise" and others */
    int64_t huge_total, huge_free, huge_page_kib; /* number and size of reserved huge pages */
    int64_t memory_bytes;                         /* memory of the machine; 0: not known */
    int64_t memory_limit_bytes;                   /* memory limit of the cgroup; 0: no limit */

    double cpu_quota;           /* cpu time per second that the cgroup grants; 0: no limit */
    int n_cpus, n_allowed_cpus; /* number of hardware threads; 0: not known */
    int n_governed;             /* number of cpus whose frequency the kernel controls */
    int n_slow_governed; /* number of these cpus whose governor raises the frequency slowly */
    char governor[32];   /* governor of the first cpu with a slow governor, or of the first cpu */
    char clock[32];      /* clock source of the kernel, such as "tsc"; "": not known */
    char clocks[128];    /* all clock sources that the kernel can use */

    bool several_hosts;     /* the machine is one of several hosts of a job */
    char name[64];          /* name of the host; "": not known */
    char name_address[46];  /* address of the name on this host; "": it has none */
    bool name_is_loopback;  /* all addresses of the name are loopback */
    bool no_ssh;            /* the command ssh is missing */
    bool no_gnuplot;        /* the command gnuplot is missing */
    char missing_calls[64]; /* system calls that the kernel lacks, such as "pidfd_open" */
    char cpu[128];          /* kind of the first cpu; "": not known */

    struct vb_k_blas blas;
    struct vb_k_onednn onednn;
    vb_status onednn_status; /* result of the oneDNN probe */
};

/* Reads the facts of the running machine (sysroot "") or of a recorded one, in some milliseconds.
 * The caller frees them with vb_facts_fini(). */
vb_status vb_facts_gather(const char *sysroot, struct vb_facts *facts_p);
void vb_facts_fini(struct vb_facts *facts);

/* ---- doctor ---------------------------------------------------------------------------------- */

enum vb_check_level {
    VB_CHECK_OK,
    VB_CHECK_WARN, /* a job would run, but slower than it could */
    VB_CHECK_FAIL, /* a job would not run */
};

struct vb_check {
    const char *name; /* name of the check, unique in a list; never freed */
    enum vb_check_level level;
    char what[768]; /* a sentence with the finding */
    char fix[512];  /* shell commands that fix the problem; "": no command is known */
};

#define VB_CHECKS_MAX 20

/* Returns the number of checks. Ports and GIDs are checked only if there are RDMA devices. */
int vb_doctor_judge(const struct vb_facts *facts, struct vb_check checks[VB_CHECKS_MAX]);

const char *vb_check_level_str(enum vb_check_level level); /* "OK", "WARN", "FAIL" */

/* The measurements between two hosts over one transport. */
struct vb_pair {
    int a, b; /* the two ranks, a < b */
    char host_a[64], host_b[64];
    char transport[16];
    double put_us, get_us;           /* time for 8 bytes: a put one way, a get there and back */
    double put_gb_s, get_gb_s;       /* speed of many puts, or gets, that rank a starts */
    int64_t wrong;                   /* number of bytes that did not arrive as sent */
    int64_t moved[VB_PORT_TROUBLES]; /* increase of the RDMA port counters; negative: not read */
};

/* Judges all pairs of a job, over one or several transports, in the same way. */
int vb_doctor_judge_pairs(const struct vb_pair *pairs, int n,
                          struct vb_check checks[VB_CHECKS_MAX]);

/* What should be the same on all hosts of a job. */
struct vb_kind {
    char host[64];
    char program[65]; /* SHA-256 of the program's file */
    char cpu[128];
    int64_t clock_ns; /* time of day, read on all hosts at the same moment */
};

/* Compares the hosts of a job. */
int vb_doctor_judge_same(const struct vb_kind *kinds, int n, struct vb_check checks[VB_CHECKS_MAX]);

#endif
