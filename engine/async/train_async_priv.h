/* SPDX-License-Identifier: MIT
 *
 * Declarations that the files of asynchronous training share.
 */
#ifndef VB_ENGINE_ASYNC_TRAIN_ASYNC_PRIV_H
#define VB_ENGINE_ASYNC_TRAIN_ASYNC_PRIV_H

#include "engine/ps/ps.h"
#include "engine/async/train_async.h"

#include <pthread.h>

/* A server. It is a thread in the process of a worker, or a separate rank. */
struct async_server {
    struct vb_async *async;
    struct async_board *board; /* of the server, while it serves */
    pthread_t thread;
    int number;         /* number of the server or standby; servers come first, then standbys */
    bool told_stop;     /* the workers were told that the user wants to stop */
    bool started;       /* the thread was started */
    _Atomic bool ready; /* the server has copied its first parameters, or failed */
    bool sampled;       /* host is filled in */
    struct vb_rank_result host;
    _Atomic uint64_t cpu_ns; /* cpu time of the thread, set when training has ended */
    vb_status status;
};

/* ---- the board (train_async_board.c) --------------------------------------------------------- */

/* The figures of a member. */
struct async_row {
    struct vb_rank_result result;
    int64_t samples; /* number of training samples; workers only */
    bool there;      /* the member has put this row */
};

/* Statistics of a worker, from server 0. All fields are zero if the rank is not a worker. */
struct async_worker_stats {
    bool member;     /* the worker took part to the end */
    bool was_member; /* the worker took part at some time */
    struct vb_stale stale;
    int64_t wait_n;            /* how often other workers waited for this worker */
    double wait_s, wait_max_s; /* how long they waited: in all, and at most */
};

/* Statistics of the run, from server 0. */
struct async_run_stats {
    int64_t samples; /* number of samples in all gradients; negative: only workers have counted
                        samples */
    int n_faults;
    struct vb_fault faults[PS_FAULTS_MAX];
};

/* A member's board. The pointers rows to join_info lead into the window. */
struct async_board {
    struct vb_group *group;
    struct vb_window *win;
    int slots;                          /* number of slots of the group */
    bool opened;                        /* the channel is open */
    struct async_row *rows;             /* (slots) */
    struct async_worker_stats *workers; /* (slots) */
    struct async_run_stats *run;
    void *join_info;
    size_t workers_at, join_info_at; /* offsets in the window */
    _Atomic bool *has_row;           /* (slots) */
    _Atomic bool done, failed;       /* the result was reported, or cannot be saved */
    _Atomic int stop;                /* the signal with which a server was asked to stop; 0: none */
    struct vb_op op;
};

/* Opens the board, which must be the first window of the group. Collective at the start.
 * join_info_bytes: space for the join information on this member's board. The caller frees *board_p
 * even after a failure. */
vb_status vb_async_board_open(struct vb_group *group, size_t join_info_bytes,
                              struct async_board **board_p);
void vb_async_board_leave(struct async_board *board); /* before the group is closed; NULL is fine */
void vb_async_board_free(struct async_board *board);  /* after the group is closed; NULL is fine */

/* Puts this member's row on the boards of all other workers. A worker calls this function after
 * PS_FINAL has come from all servers. */
vb_status vb_async_board_put_row(struct async_board *board, const struct async_row *row);

/* Server 0 puts the statistics of the workers and of the run on the boards of all workers. */
vb_status vb_async_board_put_run(struct async_board *board);

/* Waits until another worker has reported the result, or until this worker has to report it
 * (*reports_p). */
vb_status vb_async_board_wait(struct async_board *board, bool *reports_p);

/* Tells the other workers that this worker has reported the result. */
vb_status vb_async_board_done(struct async_board *board);

/* Tells the other workers that the last checkpoint cannot be written, so that they do not try. */
vb_status vb_async_board_failed(struct async_board *board);

/* A server that is a rank of its own tells the workers that it was asked to stop the job. */
vb_status vb_async_board_stop(struct async_board *board, const struct ps_job *job, int number);

struct vb_async {
    struct vb_trainer *trainer;
    struct ps_job job;
    const unsigned char *secret; /* borrowed from the options, or own_secret */
    unsigned char *own_secret;   /* a single process has none from a launcher; NULL: not needed */
    char root[VB_ROOT_TEXT];
    int root_fd; /* worker 0: the listening socket; -1: there is none, or the group owns it */
    struct vb_group *ps;
    struct async_board *board;
    struct ps_worker *worker;
    struct async_server server, standby; /* standby is used only if it is a thread */
    float *params;                       /* borrowed from the trainer */
    void *state;                         /* borrowed from the trainer */
    uint32_t shares;                     /* bound 0: the value of worker->shares that is in use */
    _Atomic bool hopeless; /* the worker or a server of this process could not open the group */
    bool reports;          /* this worker reports the result */
    bool leaves;           /* this worker, a joiner, leaves before the end */
    bool unsaved;          /* this worker could not write the last checkpoint */
    double accuracy;       /* accuracy at this worker's end; -1: not evaluated */
    double servers_cpu_s;  /* cpu time of the server threads when this worker began */
};

/* Returns the options with which a member opens the group of workers and servers. rank: the
 * member's rank in this group. */
struct vb_group_opts vb_async_group(const struct vb_async *a, int rank);

void vb_async_tell_begun(const struct vb_async *a); /* calls the hook begun() */

/* ---- joiners (train_join.c) ------------------------------------------------------------------ */

/* Called on rank 0: tells the user at which address others can join, if they can. */
void vb_async_announce(const struct vb_async *a);

size_t vb_async_join_info_bytes(const struct vb_async *a); /* 0: nobody can join */
vb_status vb_async_join_info_put(const struct vb_async *a, struct async_board *board);

/* For a joiner: checks that this worker's options and data fit the job, and takes over the group
 * and the board that were opened to read the join information. */
vb_status vb_async_adopt_joined(struct vb_async *a);

/* ---- servers (train_async_server.c) ---------------------------------------------------------- */

/* Runs a server until training has ended and no worker needs the server any more. */
vb_status vb_async_serve(struct async_server *srv, int number);

/* Starts, and joins, the server threads of this rank. */
vb_status vb_async_start_servers(struct vb_async *a);
vb_status vb_async_join_servers(struct vb_async *a);
void vb_async_wait_until_ready(const struct async_server *srv);
double vb_async_servers_cpu_s(const struct vb_async *a); /* cpu time of these threads so far */

/* ---- the worker (train_async_worker.c) ------------------------------------------------------- */

/* Runs a worker: opens the group, trains to the end, and sets a->reports. The group stays open
 * unless the worker has failed. */
vb_status vb_async_work(struct vb_async *a);
void vb_async_close_worker(struct vb_async *a);

/* Evaluates the model on all test samples, by this worker alone. step: of its parameters. */
vb_status vb_async_evaluate(struct vb_trainer *t, int64_t step);

struct async_row vb_async_worker_row(struct vb_async *a);

/* ---- its steps (train_async_dense.c, train_async_sparse.c) ----------------------------------- */

/* Makes steps until there are no more tickets, or until the user of a joiner wants to stop. */
vb_status vb_async_run_dense(struct vb_async *a);
vb_status vb_async_run_sparse(struct vb_async *a);

/* Evaluates or saves a snapshot, if either is due. Called before a ticket; with
 * hogwild after a step. */
vb_status vb_async_do_due(struct vb_async *a);

/* Waits for the ticket of the next step, and counts the time as waiting or transfer. Then evaluates
 * or saves, if either is due. */
vb_status vb_async_ticket(struct vb_async *a, bool *go_p);
vb_status vb_async_claim(struct vb_async *a, bool *go_p); /* the same with hogwild */

/* With a bound of 0: changes to the worker's new share of the data, if there is a new one. Called
 * before a batch is taken. */
vb_status vb_async_repartition(struct vb_async *a);

/* Counts a step that was made. Polls the network every few steps, so that a worker that never waits
 * learns of members that are gone. */
vb_status vb_async_step_done(struct vb_async *a);

#endif
