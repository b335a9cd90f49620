/* SPDX-License-Identifier: MIT
 *
 * The supervisor, which starts ranks on this host or, over ssh, on others; and the list of hosts.
 */
#ifndef VB_LAUNCH_SUPERVISE_SUPERVISE_H
#define VB_LAUNCH_SUPERVISE_SUPERVISE_H

#include "base/base.h"
#include "launch/link.h"
#include "net/net.h"

/* ---- hosts ----------------------------------------------------------------------------------- */

#define VB_HOST_NAME 256 /* size of the name of a host, with the terminating zero */

struct vb_host {
    char name[VB_HOST_NAME]; /* name for ssh; may have a user; IPv6 has no brackets */
    int slots;               /* number of ranks on this host */
    int first_rank;
};

struct vb_hosts {
    struct vb_host *list;
    int n;
    int ranks; /* number of ranks on all hosts */
};

/* Parses "a,b:2,user@c", or a file with one host per line if the text has a / or names a file.
 * Refuses blanks, options of ssh and a host listed twice. The caller calls vb_hosts_fini(). */
vb_status vb_hosts_parse(const char *text, struct vb_hosts *hosts_p);
void vb_hosts_fini(struct vb_hosts *hosts);

/* Parses one of them, "a:2". */
vb_status vb_host_parse(const char *text, struct vb_host *host_p);
bool vb_host_is_name(const char *name); /* may become an argument of ssh */

const struct vb_host *vb_hosts_of_rank(const struct vb_hosts *hosts, int rank);

/* ---- the supervisor -------------------------------------------------------------------------- */

/* Wipes out the line at the cursor. If vb_launch.terminal is true for a rank, a line on its
 * standard error that begins with this text is progress: it is shown without the rank, until the
 * next output, and not logged. A line with this text alone wipes progress out. */
#define VB_WIPE_LINE "\r\033[K"

struct vb_supervise_opts {
    int ranks;
    const char *program; /* NULL: the program that is running */
    char *const *argv;   /* arguments of every rank: the program's name first, NULL last */
    int grace_ms;        /* time between the stages of ending a job; 0: 2 s */
    const char *logs; /* folder for rank-0.log and so on, created if it is missing; NULL: no logs */
    const char *run;  /* without logs: run folder for rank0/log.txt and so on; NULL: no logs */
    bool append;      /* the logs of an earlier run in the run folder are continued */
    char *why;        /* receives, cut to why_size bytes, why the job has failed; may be NULL */
    size_t why_size;

    const struct vb_link *link; /* each rank of this host gets a namespace; NULL: none does */

    const struct vb_hosts *hosts; /* program is then a path on these hosts; NULL: this host */
    const char *ssh;  /* command that starts a remote shell; NULL: ssh without prompts */
    const char *root; /* HOST:PORT where rank 0 listens; NULL: rank 0 chooses */

    /* If outlive is true, the job goes on when a rank dies, unless it is a rank from vital to
     * vital_end - 1. Ranks from `workers` on are not workers; they end before the workers do. */
    bool outlive;
    int vital, vital_end, workers;

    /* A synchronous job whose ranks go on without those that die. Excludes outlive. */
    bool elastic;

    /* With outlive or elastic: how many ranks that have died are started again, and the arguments
     * of a process that joins the job, up to that for the addresses (vb_launch_tell_doors()). */
    int restarts;
    char *const *joiner;
    const unsigned char *secret; /* secret of the job; NULL: a new one */
};

/* Returns the limit of memory of this process's cgroup, or the nearest one above it, in bytes; 0:
 * there is none. */
long long vb_launch_memory_limit(void);

/* Starts a program once for each rank and waits for all of them. Each process finds out its rank
 * with vb_launch_read(). On other hosts the program must be the same file, byte for byte; only then
 * do the ranks get the secret. Standard output of rank 0 (with outlive or elastic of all ranks,
 * because any of them may print the result) is passed on unchanged. All other output goes to
 * standard error, line by line, with the rank before each line. The first rank that fails is named
 * on standard error, and the others are ended. No rank is alive on return, and none outlives this
 * process. With outlive the job ends when a vital rank has failed, or soon after the first worker
 * has ended with exit 0. With elastic, when all ranks have begun to train, no death ends the job:
 * the other ranks are told of it (vb_launch_on_reaped()), and the job has failed if none of them
 * ends with exit 0, or if one fails that no other has lost. *exit_code_p becomes 0 if all ranks
 * (with outlive: a worker; with elastic: all that the others have not lost) ended with exit 0 and
 * the job did not fail, 2 if the rank that failed ended with exit 2, 128 plus the number of a
 * signal that ended the job, otherwise 1. The function itself fails only if the ranks could not be
 * run at all. It blocks and handles SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGPIPE meanwhile, so only
 * one call in a process may run at a time, in a thread that does not end: ranks die with the thread
 * that started them. */
vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p);

#endif
