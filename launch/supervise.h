/* SPDX-License-Identifier: MIT
 *
 * The supervisor, which starts the ranks of a job on this host or, over ssh, on others; and the
 * list of hosts.
 */
#ifndef VB_LAUNCH_SUPERVISE_H
#define VB_LAUNCH_SUPERVISE_H

#include "base/base.h"
#include "net/net.h"

/* ---- hosts ----------------------------------------------------------------------------------- */

#define VB_HOST_NAME 256 /* bytes of the name of a host, with its end */

struct vb_host {
    char name[VB_HOST_NAME]; /* as ssh takes it: may have a user; IPv6 is without brackets */
    int slots;               /* number of ranks on it */
    int first_rank;
};

struct vb_hosts {
    struct vb_host *list;
    int n;
    int ranks; /* on all hosts */
};

/* Parses "a,b:2,user@c". If the text has a / or names a file, reads one host per line from that
 * file. Refuses blanks, options of ssh and a host that is listed twice. The caller frees the list
 * with vb_hosts_fini(). */
vb_status vb_hosts_parse(const char *text, struct vb_hosts *hosts_p);
void vb_hosts_fini(struct vb_hosts *hosts);

const struct vb_host *vb_hosts_of_rank(const struct vb_hosts *hosts, int rank);

/* ---- the supervisor -------------------------------------------------------------------------- */

/* Wipes out the line at the cursor. If the launch of a rank has a terminal, a line on its standard
 * error that begins with this is progress. The supervisor shows progress without the number of the
 * rank, until the next output, and does not write it to logs. The mark alone wipes progress out. */
#define VB_WIPE_LINE "\r\033[K"

struct vb_supervise_opts {
    int ranks;
    const char *program; /* NULL: the program that is running */
    char *const *argv;   /* of every rank, beginning with its name; ends with NULL */
    int grace_ms;        /* time between the stages of ending a job; 0: 2 s */
    const char *logs; /* folder for rank-0.log and so on, created if it is missing; NULL: no logs */

    const struct vb_hosts
        *hosts;       /* where the ranks run; program is a path there. NULL: this host */
    const char *ssh;  /* command that starts a remote shell; NULL: ssh without prompts */
    const char *root; /* HOST:PORT where rank 0 listens; NULL: rank 0 chooses */

    /* The job goes on if a rank dies, except a rank from vital to vital_end - 1. Ranks from
     * `workers` on are not workers; they end before the workers do. */
    bool outlive;
    int vital, vital_end, workers;
    const unsigned char *secret; /* of the job; NULL: a new one */
};

/* Starts a program once for each rank and waits for all of them. Each finds out its rank with
 * vb_launch_read(). On other hosts the program must be the same file, byte for byte: ranks get the
 * secret through standard input only when all have shown that. A host that cannot be reached, or
 * cannot run the program, is named. Standard output of rank 0 is passed on unchanged. Everything
 * else goes to standard error, line by line, with the rank before each line. The logs have both.
 * The first rank that fails is named on standard error, and the others are ended. No rank is alive
 * on return, and none outlives this process. If o->outlive is set, the job ends when a vital rank
 * has failed, or soon after the first worker has ended with exit 0; then standard output of all
 * ranks is passed on, because any worker may print the result.
 *
 * exit_code is 0 if all ranks ended with 0 or, with outlive, those that count. Else it is 1, or 2
 * if that was the exit code of a rank. If a signal ended the job, it is 128 and the number of the
 * signal. The function itself fails only if the ranks could not be run at all. It blocks. It
 * handles SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGPIPE meanwhile, so a process may call it once at
 * a time, and only from a thread that does not end meanwhile: ranks die with the thread that
 * started them. */
vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p);

#endif
