/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the supervisor.
 */
#ifndef VB_SUPERVISE_PRIV_H
#define VB_SUPERVISE_PRIV_H

#include "engine/engine.h"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

/* ---- signals (supervise_signal.c) ------------------------------------------------------------ */

struct vb_signals {
    int fd; /* readable when there are some */
    struct sigaction old[NSIG];
};

/* From here on SIGCHLD, SIGINT, SIGTERM and SIGHUP come through fd, and SIGPIPE not at all; those
 * that were ignored stay so. One at a time in a process: signals are the process's. */
vb_status vb_signals_catch(struct vb_signals *s);
void vb_signals_release(struct vb_signals *s);

/* Puts back what the process did with them before. Safe in a child that was just forked. */
void vb_signals_restore(const struct vb_signals *s);

/* The next one, 0 if there is none. */
int vb_signals_next(struct vb_signals *s);

/* ---- spawning (supervise_spawn.c) ------------------------------------------------------------ */

/* What all ranks of a job have in common when they are started. */
struct vb_spawner {
    const char *program;
    char *const *argv;
    int ranks;
    int null_fd; /* their standard input */
    int root_fd; /* where rank 0 will listen */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES];
    const struct vb_signals *signals; /* that the supervisor catches and a rank must not */
};

/* Makes the secret and the socket. */
vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_signals *signals);
void vb_spawner_fini(struct vb_spawner *s);

/* Starts one rank, as the leader of a process group. The caller owns the pid and the two ends. */
vb_status vb_spawner_start(const struct vb_spawner *s, int rank, pid_t *pid_p, int *out_fd_p,
                           int *err_fd_p);

/* ---- output (supervise_relay.c) -------------------------------------------------------------- */

struct vb_relay;

vb_status vb_relay_create(int ranks, struct vb_relay **relay_p);
void vb_relay_destroy(struct vb_relay *relay);

/* Takes over the reading ends of a rank's standard output and standard error. */
void vb_relay_add(struct vb_relay *relay, int rank, int out_fd, int err_fd);

/* Queues a line of the supervisor's own, in the log's format, so that it cuts no other in two. */
void vb_relay_say(struct vb_relay *relay, const char *fmt, ...) VB_PRINTF(2, 3);

/* What to wait for: fills fds, which has room for vb_relay_fds_max(), and returns how many. */
int vb_relay_fds_max(const struct vb_relay *relay);
int vb_relay_prepare(struct vb_relay *relay, struct pollfd *fds);

/* Moves what can be moved without waiting. Fails once if standard output is gone. */
vb_status vb_relay_move(struct vb_relay *relay, const struct pollfd *fds, int n);

/* All ranks are gone: what is in the pipes now is all that will be. */
void vb_relay_last_call(struct vb_relay *relay);
bool vb_relay_empty(const struct vb_relay *relay); /* nothing left to read or to write */

#endif
