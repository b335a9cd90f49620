/* SPDX-License-Identifier: MIT
 *
 * Types and functions that the files of the supervisor share.
 */
#ifndef VB_LAUNCH_SUPERVISE_PRIV_H
#define VB_LAUNCH_SUPERVISE_PRIV_H

#include "launch/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

/* ---- signals (supervise_signal.c) ------------------------------------------------------------ */

struct vb_signals {
    int fd; /* readable when a signal has come */
    struct sigaction old[NSIG];
};

/* From now on SIGCHLD, SIGINT, SIGTERM and SIGHUP come through fd, and SIGPIPE is ignored. Any of
 * these signals that the process ignored before stays ignored, except SIGCHLD. Signals belong to
 * the whole process, so only one struct vb_signals may be in use at a time. */
vb_status vb_signals_catch(struct vb_signals *s);
void vb_signals_release(struct vb_signals *s);

/* Restores the handlers that were there before. Safe in a child that was just forked. */
void vb_signals_restore(const struct vb_signals *s);

/* Returns the next signal; 0: none has come. */
int vb_signals_next(struct vb_signals *s);

/* ---- ranks on other hosts (remote.c) --------------------------------------------------------- */

struct vb_remote;

vb_status vb_remote_create(const struct vb_supervise_opts *o, struct vb_remote **remote_p);
void vb_remote_destroy(struct vb_remote *r);

const char *vb_remote_host(const struct vb_remote *r, int rank);

/* Returns the command that this host executes for a rank on another host: ssh, its options, the
 * host and the remote command line. NULL: no memory. */
char **vb_remote_command_create(const struct vb_remote *r, int rank);
void vb_remote_command_destroy(const struct vb_remote *r, char **argv);

/* Checks whether a line on a rank's standard output is its hello. If the hello comes from another
 * program, writes a sentence that says so to why. */
enum vb_remote_line { VB_LINE_OTHER, VB_LINE_HELLO, VB_LINE_WRONG_PROGRAM };
enum vb_remote_line vb_remote_take_line(struct vb_remote *r, int rank, const char *line, char *why,
                                        size_t size);
bool vb_remote_has_hello(const struct vb_remote *r, int rank);
bool vb_remote_all_have_hello(const struct vb_remote *r);

/* Returns how many of the n_started ranks have not said hello yet. */
int vb_remote_waiting(const struct vb_remote *r, int n_started);

/* Writes the line that lets every rank go on, and returns its length; 512 bytes are enough. Must be
 * called only when all ranks have said hello. */
int vb_remote_answer(const struct vb_remote *r, char *buf, size_t size);

/* Makes the line that a rank prints on standard error when training has begun. */
vb_status vb_remote_begun_line(const struct vb_remote *r, char line[VB_BEGUN_TEXT]);

/* Writes a sentence that says why the ssh of a rank ended. last_line is the last line that ssh
 * printed. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_line, char *why, size_t size);

/* ---- spawning (supervise_spawn.c) ------------------------------------------------------------ */

/* The data that all ranks of a job have in common when they are started. */
struct vb_spawner {
    const char *program;
    char *const *argv;
    int ranks;
    int null_fd;   /* standard input of the ranks */
    int root_fd;   /* socket at which rank 0 will listen */
    int begun_fd;  /* writing end of the pipe through which a rank says that training has begun */
    bool terminal; /* ranks may show their progress on a terminal */
    char root[VB_ROOT_TEXT];
    unsigned char secret[VB_SECRET_BYTES];
    const struct vb_signals *signals; /* caught by the supervisor; restored in a rank */
    const struct vb_remote *remote;   /* NULL: the ranks are on this host */
};

/* A process that was started. The caller owns the descriptors. */
struct vb_child {
    pid_t pid;
    int in_fd; /* writes to the child's standard input; -1: that is empty */
    int out_fd, err_fd;
};

/* If the ranks are on this host, makes the secret, the socket, and the pipe through which a rank
 * says that training has begun. *begun_fd_p is the reading end of that pipe, which does not block
 * and which the caller owns; -1: the ranks are on other hosts. */
vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_remote *remote, const struct vb_signals *signals,
                          int *begun_fd_p);
void vb_spawner_fini(struct vb_spawner *s);

/* Starts one rank, or the ssh to it, as the leader of a process group. */
vb_status vb_spawner_start(const struct vb_spawner *s, int rank, struct vb_child *child_p);

/* ---- output (supervise_relay.c) -------------------------------------------------------------- */

struct vb_relay;

/* If all_out is true, standard output of all ranks is passed on unchanged, otherwise only standard
 * output of rank 0. */
vb_status vb_relay_create(int ranks, bool all_out, struct vb_relay **relay_p);
void vb_relay_destroy(struct vb_relay *relay);

/* Takes ownership of the reading ends of a rank's standard output and standard error. The lines of
 * the rank are prefixed with host and rank, or only with the rank if host is NULL. host is
 * borrowed. */
void vb_relay_add(struct vb_relay *relay, int rank, const char *host, int out_fd, int err_fd);

/* Must be called if standard error is a terminal and the ranks know this. Then lines that begin
 * with VB_WIPE_LINE are shown as progress. */
void vb_relay_show(struct vb_relay *relay);

/* Sets the line that a rank prints on standard error for the supervisor. That line is not passed
 * on, and after it vb_relay_has_begun() returns true. Without this call there is no such line. */
void vb_relay_expect_begun(struct vb_relay *relay, const char line[VB_BEGUN_TEXT]);
bool vb_relay_has_begun(const struct vb_relay *relay);

/* Writes the output of a rank also to dir/rank-RANK.log, which is truncated first. */
vb_status vb_relay_log(struct vb_relay *relay, int rank, const char *dir);

/* Tells the relay that the standard output of every rank begins with a hello, which is not for the
 * user. fn gets each line until it returns true. Lines before the hello go to standard error. Must
 * be called before any rank is added. */
typedef bool (*vb_hello_fn)(void *arg, int rank, const char *line);
void vb_relay_expect_hello(struct vb_relay *relay, vb_hello_fn fn, void *arg);

/* Returns the last line that a rank wrote to standard error before it died; "": none. */
const char *vb_relay_last_line(struct vb_relay *relay, int rank);

/* Queues a line of the supervisor itself, in the format of the log, between lines of the ranks. */
void vb_relay_say(struct vb_relay *relay, const char *fmt, ...) VB_PRINTF(2, 3);

/* vb_relay_prepare() writes the descriptors to wait for to fds, which has vb_relay_fds_max()
 * entries, and returns their number. */
int vb_relay_fds_max(const struct vb_relay *relay);
int vb_relay_prepare(struct vb_relay *relay, struct pollfd *fds);

/* Moves all output that can be moved without blocking. Fails once if standard output is gone. */
vb_status vb_relay_move(struct vb_relay *relay, const struct pollfd *fds, int n);

/* Must be called when all ranks are dead. Reads the rest of the output from the pipes and closes
 * them. */
void vb_relay_last_call(struct vb_relay *relay);
bool vb_relay_empty(const struct vb_relay *relay); /* nothing is left to read or to write */

#endif
