/* SPDX-License-Identifier: MIT
 *
 * How a process becomes a rank of a job, and how a supervisor starts one.
 */
#ifndef VB_PUB_LAUNCH_H
#define VB_PUB_LAUNCH_H

#include "net/pub_secret.h"

#define VB_ROOT_TEXT 272 /* bytes of "HOST:PORT", with its end */

/* Where rank 0 of a group listens, or will. root is "HOST:PORT", by which others find this host.
 * The socket is at all addresses, for here HOST may stand for another one than elsewhere, or for
 * none; but loopback, by number or as localhost, is for ranks on this host alone. Root becomes what
 * others must be told: port 0 is any that is free, and a name that stands for loopback on its own
 * host (Debian has 127.0.1.1 there) becomes an address. */
vb_status vb_root_listen(char root[VB_ROOT_TEXT], int *fd_p);
bool vb_root_wants_port(const char *root); /* "HOST:0" */

/* How this process became a rank, as far as its environment tells. */
struct vb_launch {
    bool supervised; /* a launcher made it one; all but the secret is unknown otherwise */
    bool has_secret;
    bool own_secret; /* of this job alone: who has the user's does not know it */
    int rank, world;
    int local_rank, local_ranks; /* among those that share its cpus; 0 ranks: unknown */
    int root_fd;                 /* rank 0: the socket to listen at, its owner now; else -1 */
    bool terminal; /* who started it passes its standard error on to one, progress included */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES]; /* a supervisor's, else that of VB_SECRET */
};

/* Reads the environment, takes over the descriptors named there, and forgets both: processes that
 * are started from now on see none of it. Once a process, before it has threads. */
vb_status vb_launch_read(struct vb_launch *launch_p);

/* What the user has to say to ranks that others start. */
struct vb_launch_opts {
    const char *root;        /* where rank 0 listens; NULL, or port 0: it is found out */
    const char *secret_file; /* NULL: VB_SECRET, or none */
    int64_t timeout_ms;      /* for meeting the other ranks */
};

/* Whether torchrun, mpirun or srun has made this process a rank: if so, launch, which
 * vb_launch_read() has filled, says which. Waits for the other ranks on this host, and with PMIx
 * for all. Where there is no secret, ranks on one host or with PMIx make one, and others are
 * refused. Likewise once, and before there are threads. */
vb_status vb_launch_find(const struct vb_launch_opts *opts, struct vb_launch *launch);

/* The other side: the environment for a rank, as execve() takes it. It is this process's own with
 * what launch says put in place; secret_fd is where the rank will read the secret, which is not
 * copied. NULL when there is no memory. Freed with vb_launch_env_destroy(). */
char **vb_launch_env_create(const struct vb_launch *launch, int secret_fd);
void vb_launch_env_destroy(char **env);

/* The same for a rank on another host, as words for the command env: only what launch says, and the
 * options that this process has in its environment. The rank then says hello on its standard
 * output, and gets the answer (root and secret) through its standard input, whose end ends it.
 * launch->root is "NAME:PORT", as this rank's host is known; port 0: rank 0 chooses. */
char **vb_launch_words_create(const struct vb_launch *launch);

/* A rank's first line: which program it is, and where rank 0 listens ("-": is not rank 0). */
struct vb_hello {
    char machine[32]; /* of the kernel: uname -m */
    char sha256[65];  /* of the program's file */
    char root[VB_ROOT_TEXT];
};

vb_status vb_hello_own(struct vb_hello *hello_p); /* of this process, without a root */
bool vb_hello_parse(const char *line, struct vb_hello *hello_p);

/* What a rank is told then, a line. secret NULL: the rank has it. Returns its length; 512 bytes are
 * enough. */
int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES]);

const char *vb_net_pmix_library(void); /* name and version */

#endif
