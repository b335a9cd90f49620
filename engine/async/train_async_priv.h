/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of asynchronous training.
 */
#ifndef VB_ENGINE_ASYNC_TRAIN_ASYNC_PRIV_H
#define VB_ENGINE_ASYNC_TRAIN_ASYNC_PRIV_H

#include "engine/ps/ps.h"
#include "engine/async/train_async.h"

#include <pthread.h>

/* A server: a thread beside a worker, or a rank of its own. */
struct async_server {
    struct vb_async *async;
    pthread_t thread;
    int number;              /* servers come first, then standbys */
    bool started;            /* as a thread */
    _Atomic bool ready;      /* the server has copied its first parameters, or failed */
    _Atomic uint64_t cpu_ns; /* cpu time of the server, set when it has served */
    vb_status status;
};

/* ---- the board (train_async_board.c) --------------------------------------------------------- */

/* The figures of a member. */
struct async_row {
    struct vb_rank_result result;
    int64_t samples; /* workers only */
};

/* What server 0 knows of a worker. All zero if the rank is not a worker. */
struct async_worker_stats {
    bool member;     /* the worker took part to the end */
    bool was_member; /* the worker took part at some time */
    struct vb_stale stale;
    int64_t wait_n;            /* how often others waited for it */
    double wait_s, wait_max_s; /* how long: in all, and at most */
};

/* What server 0 knows of the run. */
struct async_run_stats {
    int64_t samples; /* samples of all gradients; negative: only workers have counted them */
    int n_faults;
    struct vb_fault faults[PS_FAULTS_MAX];
};

struct async_board;

/* Collective at the start, as the first window of the group. join_info_bytes: this member's room
 * for what joiners must know. The caller frees *board_p even after a failure. */
vb_status vb_async_board_open(struct vb_group *group, size_t join_info_bytes,
                              struct async_board **board_p);
void vb_async_board_leave(struct async_board *board); /* before the group is closed; NULL is fine */
void vb_async_board_free(struct async_board *board);  /* after the group is closed; NULL is fine */

void *vb_async_board_join_info(const struct async_board *board); /* this member's */
struct vb_window *vb_async_board_window(const struct async_board *board, size_t *join_info_at_p);

int vb_async_board_slots(const struct async_board *board); /* slots of the group */
struct async_worker_stats *vb_async_board_worker(const struct async_board *board, int rank);
struct async_run_stats *vb_async_board_run(const struct async_board *board);

/* The row of a member. NULL: the member has put none. */
const struct async_row *vb_async_board_row(const struct async_board *board, int rank);

/* Puts this member's row on the boards of all other workers. A worker does that after PS_FINAL has
 * come from all servers. */
vb_status vb_async_board_put_row(struct async_board *board, const struct async_row *row);

/* Server 0 also puts what it knows of the workers and of the run. */
vb_status vb_async_board_put_run(struct async_board *board);

/* Updates this member's row, on its own board only. */
void vb_async_board_update_own(struct async_board *board, const struct async_row *row);

/* Waits until this worker has to report (*reports_p), or another worker has reported. */
vb_status vb_async_board_wait(struct async_board *board, bool *reports_p);
vb_status vb_async_board_done(struct async_board *board); /* this worker has reported */

struct vb_async {
    struct vb_trainer *trainer;
    struct ps_job job;
    unsigned char secret[VB_SECRET_BYTES];
    char root[VB_ROOT_TEXT];
    int root_fd; /* worker 0: the socket that it listens at; -1: none, or the group owns it */
    struct vb_group *ps;
    struct async_board *board;
    struct ps_worker *worker;
    struct async_server server, standby; /* standby: only as a thread */
    float *params;                       /* borrowed from the trainer */
    void *state;                         /* borrowed from the trainer */
    uint32_t shares;                     /* bound 0: the last value of worker->shares */
    bool reports;                        /* this worker reports the result */
    double accuracy;                     /* at this worker's own end */
};

/* ---- the group of workers and servers (train_async_group.c) ---------------------------------- */

/* Collective: worker 0 listens, and all ranks learn where. */
vb_status vb_async_find_root(struct vb_async *a);

/* The options with which a member opens the group. rank: its rank there. */
struct vb_group_opts vb_async_group(const struct vb_async *a, int rank);

/* ---- joiners (train_join.c) ------------------------------------------------------------------ */

/* Rank 0 says where others can join, if they can. */
void vb_async_announce(const struct vb_async *a);

/* Server 0 puts what joiners must know on its board. 0 bytes: nobody can join. */
size_t vb_async_join_info_bytes(const struct vb_async *a);
vb_status vb_async_join_info_put(const struct vb_async *a, struct async_board *board);

/* For a worker that has joined: takes over the group and the board that were opened to read the
 * information, and checks that the job fits. */
vb_status vb_async_adopt_joined(struct vb_async *a);

/* ---- servers (train_async_server.c) ---------------------------------------------------------- */

/* Serves to the end, and until no worker needs the server. number: servers come first, then
 * standbys. */
vb_status vb_async_serve(struct async_server *srv, int number);

/* Starts and joins the servers that are threads of this rank. Joining returns their status. */
vb_status vb_async_start_servers(struct vb_async *a);
vb_status vb_async_join_servers(struct vb_async *a);
void vb_async_wait_until_ready(const struct async_server *srv);

/* ---- the worker (train_async_worker.c) ------------------------------------------------------- */

/* Works from the opening of the group to the end, when a->reports is known. The group stays open
 * unless the worker has failed. */
vb_status vb_async_work(struct vb_async *a);
void vb_async_close_worker(struct vb_async *a);

vb_status vb_async_evaluate(struct vb_trainer *t); /* on all test samples, by this worker alone */
struct async_row vb_async_worker_row(struct vb_async *a);

/* ---- its steps (train_async_dense.c, train_async_sparse.c) ----------------------------------- */

/* Makes steps until there are no more tickets. */
vb_status vb_async_run_dense(struct vb_async *a);
vb_status vb_async_run_sparse(struct vb_async *a);

/* Between a ticket and the step: evaluates and saves, if either is due, on a snapshot. */
vb_status vb_async_do_due(struct vb_async *a);

/* Waits for the ticket of the next step, and counts the time as waiting or transfer. */
vb_status vb_async_ticket(struct vb_async *a, bool *go_p);

/* Before a batch is taken, with a bound of 0: changes to the worker's new share of the data, if
 * there is one. */
vb_status vb_async_repartition(struct vb_async *a);

/* After a step. computed_ns: vb_trainer_computed_ns() before the step. Makes progress every few
 * steps, so that a worker that never waits learns of members that are gone. */
vb_status vb_async_step_done(struct vb_async *a, uint64_t computed_ns);

#endif
