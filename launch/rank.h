/* SPDX-License-Identifier: MIT
 *
 * How a process becomes a rank of a job, and how a supervisor starts one.
 */
#ifndef VB_LAUNCH_RANK_H
#define VB_LAUNCH_RANK_H

#include "net/control/root.h"
#include "net/control/secret.h"

/* What a process knows about its launch. */
struct vb_launch {
    bool supervised; /* a launcher made it a rank; if not, only the secret is known */
    bool has_secret;
    bool own_secret; /* of this job only: the user's secret cannot be used to join it */
    int rank, world;
    int local_rank, local_ranks; /* among the ranks with the same cpus; 0 ranks: not known */
    int root_fd;                 /* rank 0: its listening socket, which it owns; else -1 */
    int begun_fd;                /* for vb_launch_tell_begun(); -1: none */
    bool over_ssh;               /* a supervisor on another host started it */
    bool terminal; /* the supervisor shows its standard error, with progress, on a terminal */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES]; /* from the supervisor, else from VB_SECRET */
};

/* Reads the launch from the environment and takes ownership of the descriptors named there. Removes
 * the variables and marks the descriptors close-on-exec, so that processes started later get
 * neither. To be called once per process, before it has threads. */
vb_status vb_launch_read(struct vb_launch *launch_p);

/* What the user gives ranks that another launcher starts. */
struct vb_launch_opts {
    const char *root;        /* where rank 0 listens; NULL, or port 0: rank 0 chooses */
    const char *secret_file; /* NULL: VB_SECRET, or none */
    int64_t timeout_ms;      /* for meeting the other ranks */
};

/* Finds out whether torchrun, mpirun or srun has made this process a rank; if so, adds its place to
 * launch, which vb_launch_read() has filled. Waits for the other ranks on this host and, with PMIx,
 * for all ranks. If there is no secret, ranks make one if they are on one host or use PMIx;
 * otherwise the function fails. To be called once per process, before it has threads. */
vb_status vb_launch_find(const struct vb_launch_opts *opts, struct vb_launch *launch);

/* Used by a supervisor: the environment for a rank, as execve() takes it. It is the environment of
 * this process with the variables for launch. secret_fd is where the rank will read the secret,
 * which is not in the environment. Returns NULL if there is no memory. Freed with
 * vb_launch_env_destroy(). */
char **vb_launch_env_create(const struct vb_launch *launch, int secret_fd);
void vb_launch_env_destroy(char **env);

/* The same for a rank on another host, as "NAME=VALUE" arguments for the command env: only the
 * variables for launch, and the options in the environment of this process. The rank then says
 * hello on standard output, and gets the answer (root and secret) through standard input. It ends
 * when its standard input ends. launch->root is "NAME:PORT" with the name of rank 0's host; port 0:
 * rank 0 chooses. */
char **vb_launch_assignments_create(const struct vb_launch *launch);

/* Tells the supervisor that training has begun: from then on the job may go on without some of its
 * ranks. Does nothing if no supervisor of ours started this process. */
void vb_launch_tell_begun(const struct vb_launch *launch);

#define VB_BEGUN_TEXT 64 /* bytes of the line below, with its end */

/* The line on standard error by which a rank of the job with this secret tells so over ssh. */
vb_status vb_launch_begun_line(const unsigned char secret[VB_SECRET_BYTES],
                               char line[VB_BEGUN_TEXT]);

/* The first line of a rank: which program it is and, if it is rank 0, where it listens. */
struct vb_hello {
    char machine[32];        /* architecture: uname -m */
    char sha256[65];         /* of the file of the program */
    char root[VB_ROOT_TEXT]; /* "-": it is not rank 0 */
};

vb_status vb_hello_own(struct vb_hello *hello_p); /* of this process; root is empty */
bool vb_hello_parse(const char *line, struct vb_hello *hello_p);

/* Writes the answer to a hello, which is a line. secret NULL: the rank already has it. Returns the
 * length of the line; 512 bytes are enough. */
int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES]);

const char *vb_launch_pmix_library(void); /* name and version */

#endif
