/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of the supervisor.
 */
#ifndef VB_SUPERVISE_PRIV_H
#define VB_SUPERVISE_PRIV_H

#include "engine/pub_launch.h"

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

/* ---- ranks on other hosts (remote.c) --------------------------------------------------------- */

struct vb_remote;

vb_status vb_remote_create(const struct vb_supervise_opts *o, struct vb_remote **remote_p);
void vb_remote_destroy(struct vb_remote *r);

const char *vb_remote_host(const struct vb_remote *r, int rank);

/* What to execute here for a rank over there: ssh, its options, the host and the command line. */
char **vb_remote_command_create(const struct vb_remote *r, int rank); /* NULL: no memory */
void vb_remote_command_destroy(const struct vb_remote *r, char **argv);

/* Judges a line that a rank said. On VB_HEARD_WRONG why has the sentence. */
enum vb_heard { VB_HEARD_NOTHING, VB_HEARD_HELLO, VB_HEARD_WRONG };
enum vb_heard vb_remote_hear(struct vb_remote *r, int rank, const char *line, char *why,
                             size_t size);
bool vb_remote_heard(const struct vb_remote *r, int rank);
bool vb_remote_all_heard(const struct vb_remote *r);
int vb_remote_waiting(const struct vb_remote *r, int n_started); /* of those, not heard yet */

/* The line that lets every rank go on; 512 bytes are enough. Only when all were heard. */
int vb_remote_answer(const struct vb_remote *r, char *buf, size_t size);

/* What a rank prints on standard error when training has begun. */
vb_status vb_remote_begun_line(const struct vb_remote *r, char line[VB_BEGUN_TEXT]);

/* Why a rank's ssh ended as it did, in a sentence; last_words is the last line it said. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_words, char *why, size_t size);

/* ---- spawning (supervise_spawn.c) ------------------------------------------------------------ */

/* What all ranks of a job have in common when they are started. */
struct vb_spawner {
    const char *program;
    char *const *argv;
    int ranks;
    int null_fd;   /* their standard input */
    int root_fd;   /* where rank 0 will listen */
    int begun_fd;  /* writing end of a pipe: ranks tell there that training has begun */
    bool terminal; /* that progress of ranks can be shown on */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES];
    const struct vb_signals *signals; /* that the supervisor catches and a rank must not */
    const struct vb_remote *remote;   /* NULL: the ranks are on this host */
};

/* A process that was started: the caller's. */
struct vb_child {
    pid_t pid;
    int in_fd; /* to its standard input; -1: that is empty */
    int out_fd, err_fd;
};

/* If the ranks are on this host, makes the secret, the socket, and the pipe through which ranks
 * tell that training has begun. begun_fd_p is its reading end, which does not block and is the
 * caller's; -1: the ranks are on other hosts. */
vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_remote *remote, const struct vb_signals *signals,
                          int *begun_fd_p);
void vb_spawner_fini(struct vb_spawner *s);

/* Starts one rank, or the ssh to it, as the leader of a process group. */
vb_status vb_spawner_start(const struct vb_spawner *s, int rank, struct vb_child *child_p);

/* ---- output (supervise_relay.c) -------------------------------------------------------------- */

struct vb_relay;

/* all_out: standard output of all ranks is passed on as it is, not that of rank 0 alone. */
vb_status vb_relay_create(int ranks, bool all_out, struct vb_relay **relay_p);
void vb_relay_destroy(struct vb_relay *relay);

/* Takes over the reading ends of a rank's standard output and standard error. host: what to name
 * before its lines, beside the rank; NULL: nothing. Borrowed. */
void vb_relay_add(struct vb_relay *relay, int rank, const char *host, int out_fd, int err_fd);

/* Standard error is a terminal, and the ranks know it: lines that begin with VB_WIPE_LINE are shown
 * as progress. */
void vb_relay_show(struct vb_relay *relay);

/* A line on standard error that is for the supervisor: it is not passed on, and from then on
 * vb_relay_has_begun() is true. Without this call no line is. */
void vb_relay_expect_begun(struct vb_relay *relay, const char line[VB_BEGUN_TEXT]);
bool vb_relay_has_begun(const struct vb_relay *relay);

/* What the rank says goes to dir/rank-RANK.log, too, which is begun anew. */
vb_status vb_relay_log(struct vb_relay *relay, int rank, const char *dir);

/* Every rank's standard output begins with a line that is not for the user: each line is handed to
 * fn until it returns true, and those before go to standard error. Before any rank is added. */
typedef bool (*vb_hear_fn)(void *arg, int rank, const char *line);
void vb_relay_hear(struct vb_relay *relay, vb_hear_fn fn, void *arg);

/* The last line that a rank, which is dead, wrote to standard error; "": none. */
const char *vb_relay_last_words(struct vb_relay *relay, int rank);

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
