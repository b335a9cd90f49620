/* SPDX-License-Identifier: MIT
 *
 * Functions with which a process becomes a rank of a job, and a supervisor starts a rank.
 */
#ifndef VB_LAUNCH_RANK_H
#define VB_LAUNCH_RANK_H

#include "net/control/root.h"
#include "net/control/secret.h"

#define VB_BEGUN_TEXT 64 /* size of the line of vb_launch_begun_line(), with the zero */

struct vb_launch {
    bool supervised; /* a launcher made this process a rank; otherwise only the secret is known */
    bool has_secret;
    int rank, world;
    int local_rank, local_ranks; /* among the ranks with the same cpus; local_ranks 0: not known */
    int root_fd;                 /* listening socket of rank 0, which owns it; other ranks: -1 */
    int begun_fd;                /* for vb_launch_tell_begun(); -1: none */
    int reaped_fd;               /* has what vb_launch_on_reaped() tells; 0: none */
    bool over_ssh;               /* a supervisor started this rank over ssh */
    bool joins;                  /* this process joins a job that runs, in place of a rank */
    bool has_reaper;             /* over ssh: the job goes on without ranks that die */
    /* The supervisor shows this rank's standard error, with progress, on a terminal. */
    bool terminal;
    char root[VB_ROOT_TEXT];
    char run_id[VB_DERIVE_MAX + 1]; /* what makes the user's secret that of this run; "": nothing */
    unsigned char secret[VB_SECRET_BYTES]; /* from the supervisor, else from VB_SECRET */
    char begun_line[VB_BEGUN_TEXT];        /* over ssh: for vb_launch_tell_begun() */
    unsigned char *taken;                  /* the secret of the group of vb_launch_open() */
    struct vb_reaped *reaped;              /* for vb_launch_on_reaped(); NULL: nobody tells */
    struct vb_answers *answers;            /* of our supervisor; NULL: there is none */
};

/* Reads the launch from the environment, removes it there, and takes ownership of the descriptors,
 * so that processes started later get neither. Called once, before the process has threads. If a
 * supervisor started this process over ssh, the process ends when nothing has come from the
 * supervisor for silent_ms, but at least 10 s. */
vb_status vb_launch_read(int64_t silent_ms, struct vb_launch *launch_p);

/* Before vb_launch_read(): returns whether a supervisor has started this process to join a job. */
bool vb_launch_is_joiner(void);

/* The options that the user gives to ranks that another launcher starts. Zeros are fine. */
struct vb_launch_opts {
    const char *root;        /* HOST:PORT of rank 0; NULL, or port 0: rank 0 chooses */
    const char *secret_file; /* NULL: VB_SECRET, or none */
    const char *run_id;      /* NULL: the launcher's own name of this run */
    int64_t timeout_ms;      /* timeout for meeting the other ranks; 0: VB_GROUP_TIMEOUT_MS */
};

/* If torchrun, mpirun or srun has made this process a rank, adds its place to launch, which
 * vb_launch_read() has filled. Waits for the other ranks on this host and, with PMIx, for all.
 * Without a secret the ranks make one if they are on one host or use PMIx; otherwise the call
 * fails. Called once, before the process has threads. */
vb_status vb_launch_find(const struct vb_launch_opts *opts, struct vb_launch *launch);

/* Fills in rank, world and root of a group's options, if a launcher made this process a rank, and
 * lets the group tell the supervisor of losses. launch must stay until the group is closed. The
 * secret is moved by vb_launch_take_secret(). */
struct vb_group_opts;
void vb_launch_group(struct vb_launch *launch, struct vb_group_opts *group);

/* Opens the group of this process, however it was started: vb_launch_read(), vb_launch_find(),
 * vb_launch_take_secret(), vb_launch_group() and vb_group_open() in one call. If opts has a world
 * of several ranks, the user has started this one by hand, and only our supervisor overrides rank,
 * world and root. Called once, before the process has threads. launch must stay until
 * vb_launch_close(), which closes the group and wipes the secret. */
struct vb_group;
vb_status vb_launch_open(struct vb_launch *launch, const struct vb_group_opts *opts,
                         struct vb_group **group_p);
void vb_launch_close(struct vb_launch *launch, struct vb_group *group);

/* Returns the environment for a rank, as execve() takes it: that of this process with the variables
 * for launch. The rank reads the secret from secret_fd. NULL: no memory. The caller frees the
 * result with vb_launch_env_destroy(). */
char **vb_launch_env_create(const struct vb_launch *launch, int secret_fd);
void vb_launch_env_destroy(char **env);

/* Returns "NAME=VALUE" arguments for the command env that starts a rank on another host: the
 * variables for launch, and the options in this environment. The rank says hello on standard
 * output, gets root and secret through standard input, and ends when that ends. launch->root is
 * "NAME:PORT" of rank 0; with port 0 rank 0 chooses the port. With launch->has_reaper the rank has
 * a process beside it that says how it has ended. */
char **vb_launch_assignments_create(const struct vb_launch *launch);

/* Moves the secret, if there is one, to memory that core dumps leave out, and wipes it in launch.
 * The caller frees it with vb_secret_free(). */
vb_status vb_launch_take_secret(struct vb_launch *launch, unsigned char **secret_p);

/* Tells vb_supervise(), if it started this process, that training has begun: from then on the job
 * may go on without some of its ranks. */
void vb_launch_tell_begun(const struct vb_launch *launch);

/* Tells vb_supervise(), if it started this process, that a peer is lost and why, so that it can
 * name the rank that ends the job. Does not wait. arg: a struct vb_launch; the type is that of
 * `lost` in struct vb_group_opts. */
void vb_launch_tell_lost(void *arg, int peer, const char *why);

/* From now on a thread calls fn once for each other rank whose process has ended for certain,
 * because it was reaped on its host; for those that are known already, the call itself does so. fn
 * must not call this. NULL: on return fn is not running and is never called again. */
typedef void (*vb_reaped_fn)(void *arg, int rank);
void vb_launch_on_reaped(const struct vb_launch *launch, vb_reaped_fn fn, void *arg);

/* Tells vb_supervise(), if it started this process, where others can join the job: addresses
 * "HOST:PORT" separated by commas, less than VB_NEWS_DOORS bytes. Does not wait. */
#define VB_NEWS_DOORS 1024
void vb_launch_tell_doors(const struct vb_launch *launch, const char *doors);

/* Tells vb_supervise(), if it started this process again, which number it has in the job now: the
 * others name it by that. Does not wait. */
void vb_launch_tell_number(const struct vb_launch *launch, int number);

/* Tells vb_supervise(), if it started this process to join the job, that it makes steps now, with
 * this number. Does not wait. */
void vb_launch_tell_trains(const struct vb_launch *launch, int number);

/* Tells vb_supervise() that the job is over, and the number of the rank that has reported. */
void vb_launch_tell_over(const struct vb_launch *launch, int reporter);

/* What became of ranks that our supervisor was asked to add. */
#define VB_ADD_MAX 64      /* ranks in one request */
#define VB_ADDED_TEXT 1024 /* size of a text, with the terminating zero */
struct vb_added {
    bool done; /* all of them train */
    int n;     /* number of those that train */
    int ranks[VB_ADD_MAX];
    char text[VB_ADDED_TEXT]; /* what has happened */
};

/* Asks vb_supervise() to start n more processes on a host, which join the job; "-": on the host of
 * the others. Returns false if it has not started this process and cannot be asked. Does not wait.
 * One request at a time; a new one ends the wait for the one before. */
bool vb_launch_ask_to_add(const struct vb_launch *launch, const char *host, int n);

/* Waits for the answer. Returns false if none has come yet. */
bool vb_launch_wait_added(const struct vb_launch *launch, int timeout_ms, struct vb_added *added_p);

#define VB_NEWS_WHY 200  /* size of a reason, with the terminating zero */
#define VB_NEWS_TEXT 256 /* size of the line that tells a loss */

/* Makes the line that a rank over ssh prints on standard error when training has begun. */
vb_status vb_launch_begun_line(const unsigned char secret[VB_SECRET_BYTES],
                               char line[VB_BEGUN_TEXT]);

/* The first line of a rank: its program and, for rank 0, the address where it listens. */
struct vb_hello {
    char machine[32];        /* architecture: uname -m */
    char sha256[65];         /* SHA-256 of the program's file */
    char root[VB_ROOT_TEXT]; /* "-": the rank is not rank 0 */
};

vb_status vb_hello_own(struct vb_hello *hello_p); /* hello of this process; root is empty */
bool vb_hello_parse(const char *line, struct vb_hello *hello_p);

/* What a supervisor writes for a rank beside beats and signals: VB_REAPED, the digits of another
 * rank, whose process has ended, and a line end; VB_END_OF_JOB before it closes the pipe to end all
 * ranks; VB_ANSWER and the line that vb_added_line() makes of an answer. */
#define VB_REAPED 'R'
#define VB_END_OF_JOB 'E'
#define VB_ANSWER 'A'

/* Writes the answer to a request of vb_launch_ask_to_add(), less than PIPE_BUF bytes. Returns the
 * length. number: that of the request. */
#define VB_ADDED_LINE 3200
int vb_added_line(const struct vb_added *added, int number, char line[VB_ADDED_LINE]);

/* Answers a hello. Returns the length; 512 bytes are enough. */
int vb_launch_answer(char *buf, size_t size, const char *root,
                     const unsigned char secret[VB_SECRET_BYTES]);

const char *vb_launch_pmix_library(void); /* returns name and version of the library */

#endif
