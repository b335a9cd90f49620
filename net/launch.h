/* SPDX-License-Identifier: MIT
 *
 * Shared by the files that find out how this process was launched.
 */
#ifndef VB_LAUNCH_H
#define VB_LAUNCH_H

#include "net/net.h"

/* The rest of the way into a job whose launcher is at the other end of standard input and output:
 * place and root of launch are those of the environment. ssh_connection is what sshd says of the
 * connection, NULL if it does not. */
vb_status launch_read_stdin(struct vb_launch *launch, const char *ssh_connection);

/* Takes root and secret out of a line that vb_launch_answer() has made, without its end; whose is
 * the line. A secret is there if and only if launch has none, else the ranks do not agree. */
vb_status launch_take_answer(char *line, const char *whose, struct vb_launch *launch);

/* ---- other launchers ------------------------------------------------------------------------- */

enum launch_by { LAUNCH_BY_NOBODY, LAUNCH_BY_TORCHRUN, LAUNCH_BY_PMIX, LAUNCH_BY_SLURM };

/* At the end of what refuses an environment. */
#define LAUNCH_ALONE "; --ranks 1 runs without others"

/* Where another launcher has put this process. */
struct launch_found {
    enum launch_by by;
    int rank, world;
    int local_rank, local_ranks; /* on this host; 0 ranks: not known */
    bool one_host;               /* all ranks are on this one */
    char host[256];              /* of rank 0; not by PMIx */
    int port;                    /* for rank 0 to listen at; likewise */
    char job[300];               /* what no other job of this user is called meanwhile; by Slurm
                                  * the same on all hosts, and of at most VB_DERIVE_MAX bytes */
};

/* They look for what srun and torchrun have put into the environment. by stays LAUNCH_BY_NOBODY if
 * this process is no rank of theirs. */
vb_status launch_find_slurm(struct launch_found *found);
vb_status launch_find_torch(struct launch_found *found);

/* Of the environment; NULL: it is not set, or empty. */
const char *launch_variable(const char *name);

/* A number of the environment, in the decimal system. The variable is named if it is no number
 * from min to max; one that is not set is that, too. */
vb_status launch_number(const char *name, int64_t min, int64_t max, int64_t *value_p);

/* A port for a job with this number: none of those that the kernel hands out, never the number
 * itself, and different for numbers that are near each other. */
int launch_port(uint64_t number);

/* "node[01-03,07],gpu1": the first host and how many there are. False: that is no list of hosts. */
bool slurm_hosts_parse(const char *text, char *first, size_t size, int64_t *hosts_p);

/* "2(x3),1": how many tasks a node has. False: that is no such list, or has no such node. */
bool slurm_tasks_parse(const char *text, int64_t node, int64_t *tasks_p);

/* ---- ranks of one host meet (launch_meet.c) -------------------------------------------------- */

/* The ranks that a launcher has started on this host meet, at a socket without a file, which the
 * kernel tells the users of: another user's processes are neither answered nor believed. All get
 * local rank 0's root, and its secret unless they have one. From then on launch->local_rank and
 * local_ranks count those alone that may run on the same cpus as this rank. */
vb_status launch_meet(const struct launch_found *found, uint64_t deadline,
                      struct vb_launch *launch);

/* ---- PMIx (pmix.c) --------------------------------------------------------------------------- */

/* Calls the PMIx server that started this process, which is on this host, and fills found. */
vb_status pmix_join(uint64_t deadline, struct launch_found *found);

/* Hands a line of rank 0's to all ranks, who all call this; size is that of the buffer. The
 * deadline is for the other ranks. */
vb_status pmix_share(const struct launch_found *found, uint64_t deadline, char *line, size_t size);

/* Not after pmix_share() has failed, for then the server may not answer. */
vb_status pmix_leave(uint64_t deadline);

#endif
