/* SPDX-License-Identifier: MIT
 *
 * engine/: puts machine, network, kernels and models together. First what on a machine would slow
 * or stop a job, then the supervisor of the ranks on one host, checkpoints, and training.
 *
 * Facts are gathered by one function, which reads the machine, and judged by another, which reads
 * nothing but the facts; so any machine can be made up in a test.
 */
#ifndef VB_ENGINE_H
#define VB_ENGINE_H

#include "base/base.h"
#include "data/data.h"
#include "kernels/kernels.h"
#include "models/models.h"
#include "net/net.h"
#include "topo/topo.h"

/* ---- facts ----------------------------------------------------------------------------------- */

#define VB_LIMIT_NONE INT64_MAX /* unlimited */
#define VB_LIMIT_UNKNOWN (-1)   /* in a recording that has no such file */

struct vb_limit {
    int64_t soft, hard;
};

struct vb_facts {
    struct vb_iface *ifaces;
    struct vb_rdma_dev *rdma;
    int n_ifaces, n_rdma;
    struct vb_rxe rxe;
    char distro[32]; /* "debian", "ubuntu"; "" if not known */

    bool recorded; /* of another machine: what only a running process can tell is not known */
    bool may_lock; /* CAP_IPC_LOCK: the limit of locked memory does not count */
    vb_status shm; /* what became of a small piece of shared memory */
    struct vb_limit memlock; /* bytes */
    struct vb_limit files;

    char thp[16];       /* transparent huge pages: "always", "madvise", "never"; "": has none */
    char shmem_thp[16]; /* the same for shared memory, with "advise", "within_size" ... */
    int64_t huge_total, huge_free, huge_page_kib; /* reserved huge pages */
    int64_t memory_bytes;                         /* of the machine; 0: not known */
    int64_t memory_limit_bytes;                   /* of the cgroup; 0: none */

    double cpu_quota;           /* cpus' worth of time that the cgroup grants, 0: no limit */
    int n_cpus, n_allowed_cpus; /* hardware threads; 0: not known */
    int n_governed;             /* cpus whose frequency the kernel governs */
    int n_slow_governed;        /* ... by a governor that is slow to raise it */
    char governor[32];          /* of the first of the slow ones, or of all */
    char clock[32];             /* "tsc"; "": not known */
    char clocks[128];           /* those the kernel could use instead */

    struct vb_k_blas blas;
    struct vb_k_onednn onednn;
    vb_status onednn_status; /* of the probe */
};

/* Reads the running machine (sysroot "") or a recording of one. Takes some milliseconds, changes
 * nothing. The caller gives the facts back with vb_facts_fini(), unless gathering failed. */
vb_status vb_facts_gather(const char *sysroot, struct vb_facts *facts_p);
void vb_facts_fini(struct vb_facts *facts);

/* ---- doctor ---------------------------------------------------------------------------------- */

enum vb_check_level {
    VB_CHECK_OK,
    VB_CHECK_WARN, /* a job would run, but slower than it could */
    VB_CHECK_FAIL, /* a job would be stopped */
};

struct vb_check {
    const char *name; /* unique in a list, never freed */
    enum vb_check_level level;
    char what[768]; /* one sentence */
    char fix[512];  /* shell commands that mend it; "": there are none */
};

#define VB_CHECKS_MAX 16

/* Fills checks and returns how many there are. Does no I/O. Ports and GIDs are judged only where
 * there are RDMA devices. */
int vb_doctor_judge(const struct vb_facts *facts, struct vb_check checks[VB_CHECKS_MAX]);

const char *vb_check_level_str(enum vb_check_level level); /* "OK", "WARN", "FAIL" */

/* What was measured between two hosts, over one transport. */
struct vb_pair {
    int a, b; /* the ranks, a < b */
    char host_a[64], host_b[64];
    char transport[16];
    double put_us, get_us;           /* of 8 bytes, one way and there and back */
    double put_gb_s, get_gb_s;       /* of streams that a drives */
    int64_t wrong;                   /* bytes that did not arrive as sent */
    int64_t moved[VB_PORT_TROUBLES]; /* what RDMA ports counted; negative: nothing was read */
};

/* Likewise for all pairs of a job, over one transport or several. Does no I/O. */
int vb_doctor_judge_pairs(const struct vb_pair *pairs, int n,
                          struct vb_check checks[VB_CHECKS_MAX]);

/* ---- hosts ----------------------------------------------------------------------------------- */

#define VB_HOST_NAME 256 /* bytes of a host's name, with its end */

struct vb_host {
    char name[VB_HOST_NAME]; /* as ssh takes it: perhaps with a user, IPv6 without brackets */
    int slots;               /* ranks on it */
    int first_rank;
};

struct vb_hosts {
    struct vb_host *list;
    int n;
    int ranks; /* on all of them */
};

/* "a,b:2,user@c" or, where the text has a / or names a file, one a line of it. Blanks, options of
 * ssh and a host that is there twice are refused. Given back with vb_hosts_fini(). */
vb_status vb_hosts_parse(const char *text, struct vb_hosts *hosts_p);
void vb_hosts_fini(struct vb_hosts *hosts);

const struct vb_host *vb_hosts_of_rank(const struct vb_hosts *hosts, int rank);

/* ---- the supervisor -------------------------------------------------------------------------- */

/* Wipes out the line that the cursor is in. Where a rank's launch has a terminal, a line on its
 * standard error that begins so says how far it is: the supervisor shows it until there is another
 * to show, without the rank's number, and keeps it in no log. With nothing behind, it shows none.
 */
#define VB_WIPE_LINE "\r\033[K"

/* A line on a rank's standard error that tells the supervisor, and nobody else, that training has
 * begun: until then no job outlives a rank. */
#define VB_BEGUN_LINE "\033[mtraining has begun"

struct vb_supervise_opts {
    int ranks;
    const char *program; /* NULL: the one that is running */
    char *const *argv;   /* for every rank, its name first; ends with NULL */
    int grace_ms;        /* between the stages of ending a job; 0: 2 s */
    const char *logs;    /* folder for rank-0.log and so on, made if need be; NULL: none */

    const struct vb_hosts *hosts; /* NULL: this one. Else the ranks are theirs, and program is a
                                     path over there */
    const char *ssh;              /* words that start a remote shell; NULL: ssh, never asking */
    const char *root;             /* HOST:PORT for rank 0 to listen at; NULL: it is found out */

    /* The job goes on without ranks that die, but for those from vital to vital_end - 1; ranks from
     * workers on end before the others. */
    bool outlive;
    int vital, vital_end, workers;
    const unsigned char *secret; /* the job's; NULL: a new one */
};

/* Runs a program once a rank and waits for all of them. Each finds out which rank it is with
 * vb_launch_read(). On other hosts it must be the same file, byte for byte: a rank gets the secret,
 * through its standard input, only when all have shown that. A host that cannot be reached, or
 * cannot run the program, is named. Standard output of rank 0 is passed on as it is, everything
 * else goes to standard error, line by line, with the rank before it. The logs have both. The first
 * rank that fails is named there, and the others are ended. No rank is alive on return, and none
 * outlives this process. A job that outlives its ranks is ended when a vital one has failed, or
 * soon after the first has ended well; standard output of all is passed on then, for any may
 * report.
 *
 * exit_code: 0 if all ranks had that, or those that count, else 1, or 2 if it was 2; 128 and the
 * signal's number if one ended the job. A failure is returned only if the ranks could not be run at
 * all. Blocks; takes over SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGPIPE meanwhile, so one at a time
 * in a process, and from a thread that stays: ranks die with the thread that started them. */
vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p);

/* ---- checkpoints, training, benchmarks, evaluation ------------------------------------------- */

#include "engine/pub_bench.h"
#include "engine/pub_checkpoint.h"
#include "engine/pub_eval.h"
#include "engine/pub_train.h"

#endif
