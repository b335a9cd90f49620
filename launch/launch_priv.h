/* SPDX-License-Identifier: MIT
 *
 * Types and functions of the files that find out how this process was launched.
 */
#ifndef VB_LAUNCH_LAUNCH_PRIV_H
#define VB_LAUNCH_LAUNCH_PRIV_H

#include "launch/launch.h"

/* Talks with a supervisor on another host over standard input and output: says hello, reads root
 * and secret from the answer. launch already has the rank's place and root from the environment.
 * ssh_connection is the variable SSH_CONNECTION of sshd, NULL if it is not set. */
vb_status vb_launch_read_stdin(struct vb_launch *launch, const char *ssh_connection);

/* Reads root and secret from a line that vb_launch_answer() has made, without the line end. `whose`
 * names the line in messages. The line must have a secret if and only if launch has none; otherwise
 * only some of the ranks were given a secret, which is an error. */
vb_status vb_launch_take_answer(char *line, const char *whose, struct vb_launch *launch);

/* ---- other launchers ------------------------------------------------------------------------- */

enum launch_by { LAUNCH_BY_NOBODY, LAUNCH_BY_TORCHRUN, LAUNCH_BY_PMIX, LAUNCH_BY_SLURM };

/* The end of every message that refuses an environment. */
#define LAUNCH_ALONE "; --ranks 1 runs a single rank"

/* The place that another launcher has given this process. */
struct launch_found {
    enum launch_by by;
    int rank, world;
    int local_rank, local_ranks; /* counted on this host; local_ranks 0: not known */
    bool one_host;               /* all ranks are on this host */
    char host[256];              /* host of rank 0; not filled in for PMIx */
    int port;                    /* port where rank 0 must listen; not filled in for PMIx */
    char job[300];               /* a name that no other job of this user has at the same time. With
                                  * Slurm it is the same on all hosts and has at most VB_DERIVE_MAX
                                  * bytes */
};

/* These functions look for the variables of srun and torchrun. If this process is not a rank of
 * that launcher, found->by stays LAUNCH_BY_NOBODY. */
vb_status vb_launch_find_slurm(struct launch_found *found);
vb_status vb_launch_find_torch(struct launch_found *found);

/* Returns the value of an environment variable; NULL: it is not set, or empty. */
const char *vb_launch_variable(const char *name);

/* Reads a decimal number from an environment variable. If the variable is not set, or is not a
 * number from min to max, the error names it. */
vb_status vb_launch_number(const char *name, int64_t min, int64_t max, int64_t *value_p);

/* Returns a port for the job with this number. The port is outside the range from which the kernel
 * gives out ports, it is never the number itself, and jobs with neighbouring numbers get different
 * ports. */
int vb_launch_port(uint64_t number);

/* Parses a list such as "node[01-03,07],gpu1" into the name of the first host and the number of
 * hosts. Returns false if the text is not a list of hosts. */
bool vb_slurm_hosts_parse(const char *text, char *first, size_t size, int64_t *hosts_p);

/* Reads the number of tasks of a node from a list such as "2(x3),1". Returns false if the text is
 * not such a list, or if the list has no such node. */
bool vb_slurm_tasks_parse(const char *text, int64_t node, int64_t *tasks_p);

/* ---- ranks of one host meet (launch_meet.c) -------------------------------------------------- */

/* The ranks that a launcher has started on this host meet at an abstract unix socket. The kernel
 * tells which user owns each process, so processes of other users are neither answered nor
 * believed. All ranks get the root of local rank 0, and the secret of local rank 0 unless they
 * already have a secret. On return launch->local_rank and local_ranks count only the ranks that may
 * run on the same cpus as this rank. */
vb_status vb_launch_meet(const struct launch_found *found, uint64_t deadline,
                         struct vb_launch *launch);

/* ---- PMIx (pmix.c) --------------------------------------------------------------------------- */

/* Connects to the PMIx server on this host that started this process, and fills found. */
vb_status vb_pmix_join(uint64_t deadline, struct launch_found *found);

/* Sends a line of rank 0 to all ranks; all ranks call this. size is the size of the buffer `line`.
 * All ranks must call this before the deadline. */
vb_status vb_pmix_share(const struct launch_found *found, uint64_t deadline, char *line,
                        size_t size);

/* Disconnects from the PMIx server. Must not be called after vb_pmix_share() has failed, because
 * the server may not answer then. */
vb_status vb_pmix_leave(uint64_t deadline);

#endif
