/* SPDX-License-Identifier: MIT */
#ifndef VB_LAUNCH_SUPERVISE_SUPERVISE_PRIV_H
#define VB_LAUNCH_SUPERVISE_SUPERVISE_PRIV_H

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
    bool reaps;       /* a process beside each rank says how it has ended */
    char program[PATH_MAX], folder[PATH_MAX];
    char *ssh; /* the ssh command; ssh_args points to its parts */
    char *ssh_args[VB_SSH_ARGS_MAX];
    int n_ssh_args;
    struct vb_hello own;
    const char **names; /* of the hosts in the list, then of those that came later */
    int n_names;
    bool *has_hello; /* one entry for each rank */
    int *at;         /* for each rank, the number of the name of its host */
    int n_hello;
    char found_root[VB_ROOT_TEXT]; /* of the hello of rank 0 */
    unsigned char *secret;
};

/* Makes the secret of the job, or copies the one in the options. */
vb_status vb_supervise_secret(const struct vb_supervise_opts *o, unsigned char **secret_p);

vb_status vb_remote_create(const struct vb_supervise_opts *o, struct vb_remote **remote_p);
void vb_remote_destroy(struct vb_remote *r);

const char *vb_remote_host(const struct vb_remote *r, int rank);

/* The rank will be started on the next host of the list. */
void vb_remote_move(struct vb_remote *r, int rank);

/* Returns the number of a host, which may be a new one; -1: no memory. */
int vb_remote_find(struct vb_remote *r, const char *host);

/* A rank that was added will be started on the host of this number. */
void vb_remote_place(struct vb_remote *r, int rank, int at);

/* Returns the ssh command line for a rank on another host, with these arguments of the program;
 * NULL: no memory. */
char **vb_remote_command_create(const struct vb_remote *r, int rank, char *const *argv, bool joins);
void vb_remote_command_destroy(const struct vb_remote *r, char **argv);

/* Checks whether a line is a rank's hello. If it is of another program, explains that in why. */
enum vb_remote_line { VB_LINE_OTHER, VB_LINE_HELLO, VB_LINE_WRONG_PROGRAM };
enum vb_remote_line vb_remote_take_line(struct vb_remote *r, int rank, const char *line, char *why,
                                        size_t size);

#define VB_BEAT '.'     /* a byte that tells remote ranks that we are alive */
#define VB_BEAT_MS 2000 /* time between these bytes */

/* Sends a byte to each rank that has a standard input: VB_BEAT, or the number of a signal that the
 * rank is to take. fds: one for each of n ranks. */
void vb_remote_send(const int *fds, int n, char byte);

/* Writes why the ssh of a rank ended. last_line is the last line that ssh printed. */
void vb_remote_explain(const struct vb_remote *r, int rank, const siginfo_t *info,
                       const char *last_line, char *why, size_t size);

/* Writes the command that copies the program of this host to the host of a rank. */
void vb_remote_copy_command(const struct vb_remote *r, int rank, char *text, size_t size);

/* ---- what to type if a host cannot be used (remedy.c) ---------------------------------------- */

struct vb_remedy {
    const char *says; /* part of what ssh or the shell on the host says */
    const char *why;
    const char *fix[2]; /* for vb_remedy_fill(); NULL: no such line */
};

/* Returns the remedy for the last line that came from a host; NULL: none is known. */
const struct vb_remedy *vb_remedy_find(const char *said);

/* Writes a line of a remedy for a host ("NAME" or "USER@NAME") and a program. */
void vb_remedy_fill(const char *fix, const char *host, const char *program, char *text,
                    size_t size);

/* ---- spawning (supervise_spawn.c) ------------------------------------------------------------ */

struct vb_spawner {
    const char *program;
    char *const *argv;
    int ranks;
    int null_fd;  /* standard input of the ranks */
    int root_fd;  /* socket at which rank 0 will listen */
    int begun_fd; /* writing end of the pipe through which a rank says that training has begun */
    char *const *joiner; /* the arguments of one that joins, without the addresses; or NULL */
    bool tells;          /* ranks of this host are told which others have ended */
    bool terminal;       /* ranks may show their progress on a terminal */
    char root[VB_ROOT_TEXT];
    unsigned char *secret;
    const struct vb_signals *signals; /* caught by the supervisor; restored in a rank */
    const struct vb_remote *remote;   /* NULL: the ranks are on this host */
    struct vb_links
        *links; /* of --link, closed by the supervisor when the ranks have ended; or NULL */
};

/* The caller owns the descriptors. */
struct vb_child {
    pid_t pid;
    int in_fd; /* writes to the child's standard input, or tells it who has ended; -1: neither */
    int out_fd, err_fd;
};

/* If the ranks are on this host, makes the secret, the socket, and the pipe through which a rank
 * says that training has begun. The caller has set all descriptors to -1, owns *begun_fd_p, the
 * non-blocking end of that pipe, and calls vb_spawner_fini() also after a failure. */
vb_status vb_spawner_init(struct vb_spawner *s, const struct vb_supervise_opts *o,
                          const struct vb_remote *remote, const struct vb_signals *signals,
                          int *begun_fd_p);
void vb_spawner_fini(struct vb_spawner *s);

/* Starts one rank, or the ssh to it, as the leader of a process group. doors: NULL, or where the
 * process can join the job in place of the rank. */
vb_status vb_spawner_start(const struct vb_spawner *s, int rank, const char *doors,
                           struct vb_child *child_p);

/* ---- why a job ends (supervise_cause.c) ------------------------------------------------------ */

/* What a rank has said of the last peer that it lost. */
struct vb_blame {
    int peer; /* -1: it has lost none */
    char why[VB_NEWS_WHY];
};

/* What others say of a rank. */
struct vb_ending {
    bool lost;      /* a rank has lost it */
    int lost_by;    /* the last one that has */
    bool reaped;    /* the reaper on its host says how it has ended: */
    bool by_signal; /* by a signal, not by an exit */
    int number;     /* the signal or the exit code */
};

/* More ranks that a rank asks for: n of them on a host; "-": on the host of the others. */
struct vb_add_request {
    int by, number, n; /* n 0: there is no request */
    char host[VB_HOST_NAME];
};

struct vb_causes {
    int ranks;
    struct vb_blame *blames; /* one for each rank */
    struct vb_ending *ends;  /* one for each rank */
    int *numbers;            /* by which others know the ranks; -1: started again, not known yet */
    int *trains;             /* numbers of processes that have joined and train; -1: not yet */
    int n_begun;             /* number of ranks that have said so */
    int reporter;            /* number of the rank that has reported the result; -1: not told */
    struct vb_add_request ask; /* the last one that was not taken */
    char doors[VB_NEWS_DOORS]; /* where others can join, as a rank said last; "": nobody did */
    char buf[4096];            /* news that have not ended with a line end */
    size_t len;
};

/* room: so many ranks there may be. */
vb_status vb_causes_init(struct vb_causes *c, int ranks, int room);
void vb_causes_fini(struct vb_causes *c);
void vb_causes_grow(struct vb_causes *c); /* one more rank will join */

/* Returns the number by which others know a rank: a process that was started again has another one
 * than the process before. */
int vb_causes_number(const struct vb_causes *c, int rank);

/* Takes what a rank has said: " lost PEER WHY", " doors ADDRESSES", " number NUMBER", " trains
 * NUMBER", " over REPORTER", " add REQUEST N HOST"; or what its reaper has: " reaped signal NUMBER"
 * or " reaped exit CODE". Ignores other lines. */
void vb_causes_take(struct vb_causes *c, int rank, const char *line);

/* Reads the lines that ranks of this host have written to their pipe: "begun" and "RANK lost PEER
 * WHY". Returns true if training has begun. */
bool vb_causes_read(struct vb_causes *c, int fd);

/* Finds the rank because of which a rank has ended: the peer that it lost, or the one that this
 * peer lost, and so on. *by_p: the rank that says so. Returns NULL if the rank has lost nobody. */
const struct vb_blame *vb_causes_find(const struct vb_causes *c, int rank, int *by_p);

/* Returns the number of the rank that has reported the result, if somebody else has started it; -1:
 * it is one of ours, or the job is not over. */
int vb_causes_stranger(const struct vb_causes *c);

/* ---- memory that ran out (oom.c) ------------------------------------------------------------- */

/* The kernel's count of processes that it has killed for memory, in the cgroup of this process. */
struct vb_oom {
    char file[PATH_MAX];   /* file with the count; "": there is none */
    char limit[96];        /* "512 MB of cgroup /job", or "the memory of this host" */
    long long limit_bytes; /* 0: there is no limit */
    long long kills;
};

/* Finds the files below sysroot, which is "" outside of tests, and reads the count. */
void vb_oom_init(struct vb_oom *oom, const char *sysroot);

/* Returns true if the kernel has killed a process for which this has not returned true yet. */
bool vb_oom_killed(struct vb_oom *oom);

/* Writes how a rank on this host ended, with a hint if memory ran out. goes_on: the job does.
 */
void vb_death_explain(int rank, const siginfo_t *info, bool goes_on, struct vb_oom *oom, char *why,
                      size_t size);

/* ---- output (supervise_relay.c) -------------------------------------------------------------- */

struct vb_relay;

/* Gets each line on a rank's standard output until it returns true for the hello. */
typedef bool (*vb_hello_fn)(void *arg, int rank, const char *line);

struct vb_relay_opts {
    int ranks;
    int room;         /* so many ranks there may be; 0: no more than at the start */
    bool all_out;     /* standard output of all ranks, not only of rank 0, is passed on unchanged */
    bool shows;       /* lines that begin with VB_WIPE_LINE are progress, for a terminal */
    const char *logs; /* folder of the logs, borrowed; NULL: no logs */
    const char *run;  /* run folder, for logs if there is no folder of logs, borrowed; or NULL */
    bool append;      /* logs in the run folder are continued */

    /* Finds the hello with which the standard output of every rank begins. The hello is not passed
     * on; lines before it go to standard error. NULL: there is no hello. */
    vb_hello_fn hello_fn;
    void *hello_arg;

    /* A line on standard error that says that training has begun, and with which lines begin that
     * tell of lost ranks. None of them is passed on. "": there are no such lines. */
    char begun_line[VB_BEGUN_TEXT];
    struct vb_causes *causes; /* gets the lines of lost ranks */
};

vb_status vb_relay_create(const struct vb_relay_opts *opts, struct vb_relay **relay_p);
void vb_relay_destroy(struct vb_relay *relay);

/* Takes ownership of the reading ends of a rank's output. The lines are prefixed with host and
 * rank, or only with the rank if host, which is borrowed, is NULL. */
void vb_relay_add(struct vb_relay *relay, int rank, const char *host, int out_fd, int err_fd);

/* One more rank will join. Its lines have "joiner" before them, and no log, until its number is
 * known; then its log is that of this number, and is continued. */
void vb_relay_grow(struct vb_relay *relay);
void vb_relay_number(struct vb_relay *relay, int rank, int number);

int vb_relay_begun(const struct vb_relay *relay); /* number of ranks that have printed begun_line */
bool vb_relay_ended(const struct vb_relay *relay, int rank); /* all output of a rank is passed on */
bool vb_relay_printed(const struct vb_relay *relay);         /* something went to standard output */

/* If there are logs, copies the output of a rank to rank-RANK.log, which is truncated first. */
vb_status vb_relay_log(struct vb_relay *relay, int rank);

/* Returns the last line that a rank wrote to standard error before it died; "": none. */
const char *vb_relay_last_line(struct vb_relay *relay, int rank);

/* Returns the last line with an error that the log of a rank has; "": none. */
const char *vb_relay_last_error(struct vb_relay *relay, int rank);

/* Queues a line of the supervisor itself, in the format of the log, between lines of the ranks. */
void vb_relay_say(struct vb_relay *relay, const char *fmt, ...) VB_PRINTF(2, 3);
void vb_relay_warn(struct vb_relay *relay, const char *fmt, ...) VB_PRINTF(2, 3); /* goes on */
void vb_relay_fix(struct vb_relay *relay, const char *command); /* "  fix: COMMAND" below it */
const char *vb_relay_said(const struct vb_relay *relay); /* returns its last message, or "" */

/* Writes the descriptors to wait for, two for each rank and two more. Returns their number. */
int vb_relay_prepare(struct vb_relay *relay, struct pollfd *fds);

/* Moves all output that can be moved without blocking. Fails once if standard output is gone. */
vb_status vb_relay_move(struct vb_relay *relay, const struct pollfd *fds, int n);

/* Called when all ranks are dead: reads the rest of the output and closes the pipes. */
void vb_relay_last_call(struct vb_relay *relay);
bool vb_relay_empty(const struct vb_relay *relay); /* nothing is left to read or to write */

/* ---- the job (supervise.c) ------------------------------------------------------------------- */

enum stage { RUNNING, STOPPING, GRACE, ASKED, KILLED }; /* a job ends in this order */

/* A rank that an elastic job has to do without. */
struct vb_lost {
    bool dead;      /* it has ended, but not with exit 0 */
    bool said;      /* the user knows of it */
    bool told;      /* the other ranks know of it */
    uint64_t at_ns; /* time of its death */
};

/* A rank that is started again, or was added. */
struct vb_again {
    bool added;     /* the user has added it, and it was not started again since */
    uint64_t at_ns; /* time of the start; 0: not now */
    int n;          /* how often it was started again */
    int number;     /* of this start, among all of the job */
};

/* Ranks that the user adds. */
struct vb_adding {
    bool under_way;
    struct vb_add_request ask;
    int at;             /* number of the host in the list of the remote ranks; -1: this host */
    int first, started; /* the first place, and number of those that were started */
    uint64_t deadline_ns;
    char why[640]; /* why the first one that could not join could not; "": all can, so far */
};

struct job {
    int ranks;        /* with those that were added */
    int ranks_before; /* without them */
    pid_t *pids;      /* 0: not started, or reaped */
    int *in_fds;      /* write to the standard input of ranks; -1: none, or closed */
    int alive;
    int started;
    enum stage stage;
    uint64_t deadline_ns; /* end of the stage; 0: none */
    uint64_t grace_ns;
    bool interrupted;    /* the user has asked the job to stop */
    uint64_t stopped_ns; /* time since which all remaining ranks are stopped; 0: not all are */
    uint64_t some_ns;    /* time since which some are stopped, but not all; 0: none is */
    bool said_some;      /* the supervisor has named them */
    int exit_code;
    struct vb_spawner spawner;
    struct vb_signals signals;
    struct vb_relay *relay;
    struct vb_remote *remote; /* NULL: the ranks are on this host */
    const struct vb_supervise_opts *o;
    bool ended_well; /* with o->outlive: a worker has ended with exit 0; with o->elastic: a rank has
                      */
    bool answered;   /* the remote ranks have got root and secret */
    uint64_t hello_deadline_ns;
    uint64_t beat_ns;        /* time of the next byte to remote ranks; 0: they get none yet */
    siginfo_t *dead;         /* how each rank ended; si_pid 0: it has not */
    struct vb_causes causes; /* which peers ranks have lost */
    struct vb_oom oom;
    int suspect;    /* the rank because of which others ended; -1: none */
    int suspect_by; /* the rank that says so */
    int begun_fd; /* has news of ranks: training has begun, a peer is lost; -1: ranks print lines */
    bool begun;   /* training has begun */
    struct vb_lost *lost;   /* one for each rank */
    uint64_t say_ns;        /* time to name ranks that were lost; 0: none is waiting for that */
    struct vb_again *again; /* one for each rank */
    int n_again;            /* number of starts so far, and of those that are planned */
    bool said_none;         /* the user knows that no rank can be started again now */
    struct vb_adding adding;
    bool judged;        /* vb_job_judge() was called, after all ranks have ended */
    struct pollfd *fds; /* the signal pipe, begun_fd, then the descriptors of the relay */
};

/* Enters a stage, unless the job is already in this stage or a later one. */
void vb_job_enter(struct job *job, enum stage stage);

/* Ends the job at once, with exit code 1 unless it has another one. */
void vb_job_give_up(struct job *job);

/* ---- deaths (supervise_deaths.c) ------------------------------------------------------------- */

/* Reaps all ranks that are dead, and reports the one that is the cause of a failure. */
void vb_job_reap(struct job *job);

/* Names the rank that others lost, when no rank can tell more. */
void vb_job_check_suspect(struct job *job);

/* Reads the news of ranks, and returns whether the job may go on without one of them. */
bool vb_job_has_begun(struct job *job);

/* Says how a rank has died. */
void vb_job_say_death(struct job *job, int rank, const siginfo_t *info, bool goes_on);

bool vb_job_is_stopped(const struct job *job, int rank); /* by SIGSTOP; on this host only */

/* Notes whether all remaining ranks are stopped, and ends the job if they are for too long. */
void vb_job_note_stopped(struct job *job);
void vb_job_check_stopped(struct job *job);

/* ---- elastic jobs (supervise_elastic.c) ------------------------------------------------------ */

/* A rank of an elastic job has ended, not with exit 0, and others are left that may go on. */
void vb_job_lose(struct job *job, int rank);

/* Tells ranks which others have ended, names those that were lost, kills a rank that is stopped and
 * that others have lost, and ends ranks that are left over when others have ended well. */
void vb_job_check_lost(struct job *job);

/* When all ranks have ended, finds out whether the job has failed, and says why. */
void vb_job_judge(struct job *job);

/* Returns whether a rank has ended well, and the result was printed. */
bool vb_job_is_done(const struct job *job);

/* ---- ranks that are started again (supervise_restart.c) ---------------------------------------
 */

/* A rank has died, and the job goes on: it is started again after a pause, if --restart allows it.
 */
void vb_job_restart_later(struct job *job, int rank);

/* Starts the ranks whose pause is over. */
vb_status vb_job_check_restarts(struct job *job);

/* Starts a process that joins the job, in the place of a rank. */
vb_status vb_job_start_joiner(struct job *job, int rank);

/* ---- ranks that the user adds (supervise_add.c) ---------------------------------------------- */

/* Returns whether more ranks than those of the start can join the job. */
bool vb_job_takes_more(const struct vb_supervise_opts *o);

/* Takes requests of ranks, starts what they ask for, and answers. */
void vb_job_check_add(struct job *job);

/* Returns whether a rank was added and does not train yet. */
bool vb_job_comes(const struct job *job, int rank);

/* Such a rank has ended, or its program is not the one of this host. The job goes on. */
void vb_job_end_of_newcomer(struct job *job, int rank, const siginfo_t *info);
void vb_job_wrong_program(struct job *job, int rank, const char *why);

#endif
