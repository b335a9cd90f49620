/* SPDX-License-Identifier: MIT */
#ifndef VB_LAUNCH_LAUNCH_PRIV_H
#define VB_LAUNCH_LAUNCH_PRIV_H

#include "launch/launch.h"

/* Talks with a supervisor on another host over standard input and output: says hello, and reads
 * root and secret. launch has the rank's place. ssh_connection: sshd's SSH_CONNECTION or NULL. A
 * thread then ends this process when the supervisor is gone, or silent for silent_ms. */
vb_status vb_launch_read_stdin(struct vb_launch *launch, const char *ssh_connection,
                               int64_t silent_ms);

/* ---- answers of the supervisor (launch_ask.c) ------------------------------------------------ */

struct vb_answers;
struct vb_answers *vb_answers_create(void); /* NULL: no memory */

/* Takes bytes from the supervisor. Those that do not belong to an answer are ignored. */
void vb_answers_take(struct vb_answers *a, const char *bytes, size_t n);

/* ---- ranks that have ended (launch_reaped.c, launch_reaper.c) -------------------------------- */

/* What the supervisor has said of ranks whose processes have ended. answers: gets the bytes that
 * the thread of vb_launch_hears() reads. */
struct vb_reaped;
struct vb_reaped *vb_reaped_create(struct vb_answers *answers); /* NULL: no memory */

/* Takes bytes from the supervisor: VB_REAPED, the digits of a rank and a line end. Other bytes
 * outside of such a text are ignored. */
void vb_reaped_take(struct vb_reaped *r, const char *bytes, size_t n);

/* Makes sure that the bytes of the supervisor are read. Returns false if there is none. */
bool vb_launch_hears(const struct vb_launch *launch);

/* Tells the supervisor, in a line that begins with this rank. Returns false if it has no place. */
bool vb_launch_tell(const struct vb_launch *launch, const char *line, int n);

/* Returns in a child of this process, which is the rank from now on. This process becomes its
 * reaper: it waits for the end of the rank, prints after launch->begun_line on standard error how
 * it has ended, and ends in the same way. Fails if there can be no child. */
vb_status vb_launch_reaper_start(struct vb_launch *launch);

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
    char job[300];               /* name of the job; the same on all ranks of a host */
    char run[VB_DERIVE_MAX + 1]; /* name of the run; the same on all ranks, another in each run */
};

/* If this process is not a rank of that launcher, found->by stays LAUNCH_BY_NOBODY. */
vb_status vb_launch_find_slurm(struct launch_found *found);
vb_status vb_launch_find_torch(struct launch_found *found);

/* Returns the value of an environment variable; NULL: it is not set, or empty. */
const char *vb_launch_variable(const char *name);

/* Fails, naming the variable, if it is not set or not a number from min to max. */
vb_status vb_launch_number(const char *name, int64_t min, int64_t max, int64_t *value_p);

/* Reads a number of ranks, at most max, and which of them this process is. */
vb_status vb_launch_place(const char *ranks, const char *rank, int64_t max, int *ranks_p,
                          int *rank_p);

/* Returns a port outside the range from which the kernel gives out ports, and never the number
 * itself. Jobs with neighbouring numbers get different ports. */
int vb_launch_port(uint64_t number);

/* Parses a list such as "node[01-03,07],gpu1" into its first host and the number of hosts. */
bool vb_slurm_hosts_parse(const char *text, char *first, size_t size, int64_t *hosts_p);

/* Reads the tasks of a node from a list such as "2(x3),1". False: no such list, or no such node. */
bool vb_slurm_tasks_parse(const char *text, int64_t node, int64_t *tasks_p);

/* ---- ranks of one host meet (launch_meet.c) -------------------------------------------------- */

/* All ranks of this host get the root of local rank 0, and its secret unless they have one. On
 * return launch->local_rank and local_ranks count only the ranks that may run on the same cpus. */
vb_status vb_launch_meet(const struct launch_found *found, uint64_t deadline,
                         struct vb_launch *launch);

/* ---- PMIx (pmix.c, pmix_share.c) ------------------------------------------------------------- */

/* Connects to the PMIx server that started this process, and fills found. */
vb_status vb_pmix_join(uint64_t deadline, struct launch_found *found);

/* What a rank puts, all ranks can get after the next fence, in which all take part. The server, and
 * whoever can read its memory, can read it. */
vb_status vb_pmix_put(const char *key, const char *text, uint64_t deadline);
vb_status vb_pmix_fence(uint64_t deadline);
vb_status vb_pmix_get(const struct launch_found *found, int rank, const char *key,
                      uint64_t deadline, char *text, size_t size);

/* Gives all ranks, which all call this, the root and the secret of rank 0. The secret is sealed for
 * each of them; a rank that has a secret from the user keeps it, if rank 0 has one, too. */
vb_status vb_pmix_share(const struct launch_found *found, uint64_t deadline,
                        struct vb_launch *launch);

/* Must not be called after one of these has failed, because the server may not answer then. */
vb_status vb_pmix_leave(uint64_t deadline);

#endif
