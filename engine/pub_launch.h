/* SPDX-License-Identifier: MIT
 *
 * The supervisor, which starts the ranks of a job on this host or, over ssh, on others; and the
 * list of hosts.
 */
#ifndef VB_PUB_LAUNCH_H
#define VB_PUB_LAUNCH_H

#include "base/base.h"
#include "net/net.h"

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

#endif
