/* SPDX-License-Identifier: MIT
 *
 * Functions with which a process becomes a rank of a job, and a supervisor starts a rank.
 */
#ifndef VB_LAUNCH_RANK_H
#define VB_LAUNCH_RANK_H

#include "net/control/root.h"
#include "net/control/secret.h"

/* The data that a process has about its launch. */
struct vb_launch {
    bool supervised; /* a launcher made this process a rank; otherwise only the secret is known */
    bool has_secret;
    bool own_secret; /* the secret is for this job only: the user's secret does not open it */
    int rank, world;
    int local_rank, local_ranks; /* among the ranks with the same cpus; local_ranks 0: not known */
    int root_fd;                 /* listening socket of rank 0, which owns it; other ranks: -1 */
    int begun_fd;                /* for vb_launch_tell_begun(); -1: none */
    bool over_ssh;               /* a supervisor started this rank over ssh */
    /* The supervisor shows this rank's standard error, with progress, on a terminal. */
    bool terminal;
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES]; /* from the supervisor, else from VB_SECRET */
};

/* Reads the launch from the environment and takes ownership of the descriptors named there. Removes
 * the variables and marks the descriptors close-on-exec, so that processes started later get
 * neither. Must be called once per process, before the process has threads. */
vb_status vb_launch_read(struct vb_launch *launch_p);

/* The options that the user gives to ranks that another launcher starts. */
struct vb_launch_opts {
    const char *root;        /* HOST:PORT of rank 0; NULL, or port 0: rank 0 chooses */
    const char *secret_file; /* NULL: VB_SECRET, or none */
    int64_t timeout_ms;      /* timeout for meeting the other ranks */
};

/* Finds out whether torchrun, mpirun or srun has made this process a rank; if so, adds the rank's
 * place to launch, which vb_launch_read() has filled. Waits for the other ranks on this host and,
 * with PMIx, for all ranks. If there is no secret, the ranks make one if they are on one host or
 * use PMIx; otherwise the function fails. Must be called once per process, before the process has
 * threads. */
vb_status vb_launch_find(const struct vb_launch_opts *opts, struct vb_launch *launch);

/* Called by a supervisor. Returns the environment for a rank, as execve() takes it: the environment
 * of this process with the variables for launch. secret_fd is the descriptor from which the rank
 * will read the secret, which is not in the environment. Returns NULL if there is no memory. The
 * caller frees the result with vb_launch_env_destroy(). */
char **vb_launch_env_create(const struct vb_launch *launch, int secret_fd);
void vb_launch_env_destroy(char **env);

/* Returns "NAME=VALUE" arguments for the command env that starts a rank on another host: the
 * variables for launch, and the options in the environment of this process. The rank then says
 * hello on standard output, and gets the answer (root and secret) through standard input. It ends
 * when its standard input ends. launch->root is "NAME:PORT" with the name of rank 0's host; port 0:
 * rank 0 chooses the port. */
char **vb_launch_assignments_create(const struct vb_launch *launch);

/* Tells the supervisor that training has begun: from then on the job may go on without some of its
 * ranks. Does nothing if vb_supervise() did not start this process. */
void vb_launch_tell_begun(const struct vb_launch *launch);

#define VB_BEGUN_TEXT 64 /* size of the line below, with the terminating zero */

/* Makes the line that a rank over ssh prints on standard error when training has begun. It belongs
 * to the job with this secret. */
vb_status vb_launch_begun_line(const unsigned char secret[VB_SECRET_BYTES],
                               char line[VB_BEGUN_TEXT]);

/* The first line of a rank. It identifies the program of the rank and, for rank 0, has the address
 * where rank 0 listens. */
struct vb_hello {
    char machine[32];        /* architecture: uname -m */
    char sha256[65];         /* SHA-256 of the program's file */
    char root[VB_ROOT_TEXT]; /* "-": the rank is not rank 0 */
};

vb_status vb_hello_own(struct vb_hello *hello_p); /* hello of this process; root is empty */
bool vb_hello_parse(const char *line, struct vb_hello *hello_p);

/* Writes the line that answers a hello. If secret is NULL, the rank already has the secret. Returns
 * the length of the line; 512 bytes are enough. */
int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES]);

const char *vb_launch_pmix_library(void); /* returns name and version of the library */

#endif
