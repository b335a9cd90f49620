/* SPDX-License-Identifier: MIT */
#ifndef VB_LAUNCH_SUPERVISE_PRIV_H
#define VB_LAUNCH_SUPERVISE_PRIV_H

#include "launch/launch.h"
#include "net/control/sock.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>

/* ---- signals (supervise_signal.c) ------------------------------------------------------------ */

struct vb_signals {
    int fd; /* readable when a signal has come */
    struct sigaction old[NSIG];
};

/* From now on SIGCHLD, SIGINT, SIGTERM and SIGHUP come through fd, and SIGPIPE is ignored. Signals
 * that the process ignored before stay ignored, except SIGCHLD. One struct vb_signals at a time. */
vb_status vb_signals_catch(struct vb_signals *s);
void vb_signals_release(struct vb_signals *s);

/* Restores the handlers that were there before. Safe in a child that was just forked. */
void vb_signals_restore(const struct vb_signals *s);

/* Returns the next signal; 0: none has come. */
int vb_signals_next(struct vb_signals *s);

/* ---- ranks on other hosts (remote.c) --------------------------------------------------------- */

#define VB_SSH_ARGS_MAX 32

struct vb_remote {
    const struct vb_hosts *hosts;
    const char *root; /* HOST:PORT that the user gave; NULL: rank 0 chooses */
    char *const *argv;
    char program[PATH_MAX], folder[PATH_MAX];
    char *ssh; /* the ssh command; ssh_args points to its parts */
    char *ssh_args[VB_SSH_ARGS_MAX];
    int n_ssh_args;
    struct vb_hello own;
    bool *has_hello; /* one entry for each rank */
    int n_hello;
    char found_root[VB_ROOT_TEXT]; /* of the hello of rank 0 */
    unsigned char *secret;
};

/* Makes the secret of the job, or copies the one in the options. */
vb_status vb_supervise_secret(const struct vb_supervise_opts *o, unsigned char **secret_p);

vb_status vb_remote_create(const struct vb_supervise_opts *o, struct vb_remote **remote_p);
void vb_remote_destroy(struct vb_remote *r);

const char *vb_remote_host(const struct vb_remote *r, int rank);

/* Returns the ssh command line for a rank on another host; NULL: no memory. */
char **vb_remote_command_create(const struct vb_remote *r, int rank);
void vb_remote_command_destroy(const struct vb_remote *r, char **argv);

/* Checks whether a line is a rank's hello. If it is of another program, explains that in why. */
enum vb_remote_line { VB_LINE_OTHER, VB_LINE_HELLO, VB_LINE_WRONG_PROGRAM };
enum vb_remote_line vb_remote_take_line(struct vb_remote *r, int rank, const char *line, char *why,
                                        size_t size);

/* Writes why the ssh of a rank ended. last_line is the last line that ssh printed. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_line, char *why, size_t size);

/* ---- spawning (supervise_spawn.c) ------------------------------------------------------------ */

struct vb_spawner {
    const char *program;
    char *const *argv;
    int ranks;
    int null_fd;   /* standard input of the ranks */
    int root_fd;   /* socket at which rank 0 will listen */
    int begun_fd;  /* writing end of the pipe through which a rank says that training has begun */
    bool terminal; /* ranks may show their progress on a terminal */
    char root[VB_ROOT_TEXT];
    unsigned char *secret;
    const struct vb_signals *signals; /* caught by the supervisor; restored in a rank */
    const struct vb_remote *remote;   /* NULL: the ranks are on this host */
};

/* The caller owns the descriptors. */
struct vb_child {
    pid_t pid;
    int in_fd; /* writes to the child's standard input; -1: that is empty */
    int out_fd, err_fd;
};

/* If the ranks are on this host, makes the secret, the socket, and the pipe through which a rank
 * says that training has begun. The caller has set all descriptors to -1, owns *begun_fd_p, the
 * non-blocking end of that pipe, and calls vb_spawner_fini() also after a failure. */
vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_remote *remote, const struct vb_signals *signals,
                          int *begun_fd_p);
void vb_spawner_fini(struct vb_spawner *s);

/* Starts one rank, or the ssh to it, as the leader of a process group. */
vb_status vb_spawner_start(const struct vb_spawner *s, int rank, struct vb_child *child_p);

/* ---- output (supervise_relay.c) -------------------------------------------------------------- */

struct vb_relay;

/* Gets each line on a rank's standard output until it returns true for the hello. */
typedef bool (*vb_hello_fn)(void *arg, int rank, const char *line);

struct vb_relay_opts {
    int ranks;
    bool all_out;     /* standard output of all ranks, not only of rank 0, is passed on unchanged */
    bool shows;       /* lines that begin with VB_WIPE_LINE are progress, for a terminal */
    const char *logs; /* folder of the logs, borrowed; NULL: no logs */

    /* Finds the hello with which the standard output of every rank begins. The hello is not passed
     * on; lines before it go to standard error. NULL: there is no hello. */
    vb_hello_fn hello_fn;
    void *hello_arg;

    /* A line on standard error that says that training has begun. It is not passed on. "": none. */
    char begun_line[VB_BEGUN_TEXT];
};

vb_status vb_relay_create(const struct vb_relay_opts *opts, struct vb_relay **relay_p);
void vb_relay_destroy(struct vb_relay *relay);

/* Takes ownership of the reading ends of a rank's output. The lines are prefixed with host and
 * rank, or only with the rank if host, which is borrowed, is NULL. */
void vb_relay_add(struct vb_relay *relay, int rank, const char *host, int out_fd, int err_fd);

bool vb_relay_has_begun(const struct vb_relay *relay); /* a rank has printed the line begun_line */

/* If there are logs, copies the output of a rank to rank-RANK.log, which is truncated first. */
vb_status vb_relay_log(struct vb_relay *relay, int rank);

/* Returns the last line that a rank wrote to standard error before it died; "": none. */
const char *vb_relay_last_line(struct vb_relay *relay, int rank);

/* Queues a line of the supervisor itself, in the format of the log, between lines of the ranks. */
void vb_relay_say(struct vb_relay *relay, const char *fmt, ...) VB_PRINTF(2, 3);

/* Writes the descriptors to wait for, two for each rank and two more. Returns their number. */
int vb_relay_prepare(struct vb_relay *relay, struct pollfd *fds);

/* Moves all output that can be moved without blocking. Fails once if standard output is gone. */
vb_status vb_relay_move(struct vb_relay *relay, const struct pollfd *fds, int n);

/* Called when all ranks are dead: reads the rest of the output and closes the pipes. */
void vb_relay_last_call(struct vb_relay *relay);
bool vb_relay_empty(const struct vb_relay *relay); /* nothing is left to read or to write */

#endif
