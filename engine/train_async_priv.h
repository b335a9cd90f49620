/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of asynchronous training.
 */
#ifndef VB_TRAIN_ASYNC_PRIV_H
#define VB_TRAIN_ASYNC_PRIV_H

#include "engine/ps_priv.h"
#include "engine/train_priv.h"

#include <pthread.h>

/* A server, on a thread beside a worker or on a rank of its own. */
struct async_server {
    struct vb_async *async;
    pthread_t thread;
    int number;              /* servers first, then standbys */
    bool started;            /* as a thread */
    _Atomic bool ready;      /* it has copied the parameters that it starts with, or failed */
    _Atomic uint64_t cpu_ns; /* that it took, once it has served */
    vb_status status;
};

/* ---- the board (train_async_board.c) --------------------------------------------------------- */

/* A member's figures. */
struct async_row {
    struct vb_rank_result result;
    int64_t samples; /* of a worker */
};

/* What server 0 knows of a worker; 0 where the rank is none. */
struct async_worker_stats {
    bool member;     /* to the end */
    bool was_member; /* once */
    struct vb_stale stale;
    int64_t wait_n;
    double wait_s, wait_max_s;
};

/* ... and of the run. */
struct async_run_stats {
    int64_t samples; /* of all gradients; negative: nobody counted */
    int n_faults;
    struct vb_fault faults[PS_FAULTS_MAX];
};

struct async_board;

/* The first window of the group; join_info_bytes: of this member, for those who join. */
vb_status async_board_open(struct vb_group *group, size_t join_info_bytes,
                           struct async_board **board_p);
void async_board_leave(struct async_board *board); /* before the group is closed; NULL is fine */
void async_board_free(struct async_board *board);  /* after it, likewise */

void *async_board_join_info(const struct async_board *board); /* this member's */
struct vb_window *async_board_window(const struct async_board *board, size_t *join_info_at_p);

int async_board_slots(const struct async_board *board);
struct async_worker_stats *async_board_worker(const struct async_board *board, int rank);
struct async_run_stats *async_board_run(const struct async_board *board);
const struct async_row *async_board_row(const struct async_board *board, int rank,
                                        bool *server_p); /* NULL: it gave none */

/* A server's row, and of the first one what is known and the run, for all workers. */
vb_status async_board_put_server(struct async_board *board, const struct async_row *row,
                                 bool first);

/* A worker's row, when it has heard from all servers that all is final. */
vb_status async_board_put_worker(struct async_board *board, const struct async_row *row);

/* A later state of this member's row, here alone. */
void async_board_update_own(struct async_board *board, const struct async_row *row);

/* Waits until this worker is to report, or another has. */
vb_status async_board_wait(struct async_board *board, bool *reports_p);
vb_status async_board_done(struct async_board *board); /* the reporter has */

struct vb_async {
    struct vb_trainer *trainer;
    struct ps_job job;
    unsigned char secret[VB_SECRET_BYTES];
    char root[VB_ROOT_TEXT];
    int root_fd; /* worker 0: where it listens */
    struct vb_group *ps;
    struct async_board *board;
    struct ps_worker *worker;
    struct async_server server, standby; /* the latter as a thread only */
    float *params;                       /* the trainee's own, likewise below */
    void *state;
    uint32_t shares; /* bound 0: which share of the data this worker has, as it was told */
    bool reports;    /* this worker tells the result */
    double accuracy; /* at this worker's own end */
};

/* ---- where servers and workers meet (train_async_group.c) ------------------------------------ */

/* Collective: where worker 0 of the group of servers and workers listens. */
vb_status async_find_root(struct vb_async *a);

/* How a member opens it. rank: its number there. */
struct vb_group_opts async_group(const struct vb_async *a, int rank);

/* ---- those who join (train_join.c) ------------------------------------------------------------
 */

/* Rank 0 says where, if others can join. */
void async_announce(const struct vb_async *a);

/* What they need to know, on the board of server 0, which has room for it. 0: nobody can join. */
size_t async_join_info_bytes(const struct vb_async *a);
vb_status async_join_info_put(const struct vb_async *a, struct async_board *board);

/* This worker has joined: the group and the board are those it has found, and the job fits them. */
vb_status async_adopt_joined(struct vb_async *a);

/* ---- servers (train_async_server.c) -----------------------------------------------------------
 */

/* number: servers first, then standbys. To the end, and until nobody needs it any more. */
vb_status async_serve(struct async_server *srv, int number);

/* Those that are threads of this rank; the status of joining is theirs. */
vb_status async_start_servers(struct vb_async *a);
vb_status async_join_servers(struct vb_async *a);
void async_wait_until_ready(const struct async_server *srv);

/* ---- the worker (train_async_worker.c) --------------------------------------------------------
 */

/* From the group to the end, when a->reports is known; the group stays open unless it failed. */
vb_status async_work(struct vb_async *a);
void async_close_worker(struct vb_async *a);

vb_status async_evaluate(struct vb_trainer *t); /* all test samples, by this worker */
struct async_row async_worker_row(struct vb_async *a);

/* ---- its steps (train_async_dense.c, train_async_sparse.c) ---------------------------------- */

/* Makes steps until there are no more tickets. */
vb_status async_run_dense(struct vb_async *a);
vb_status async_run_sparse(struct vb_async *a);

/* Between a ticket and the step: what is due is done, on a snapshot. */
vb_status async_do_due(struct vb_async *a);

/* The ticket of the next step, giving its time to waiting or transfer. */
vb_status async_ticket(struct vb_async *a, bool *go_p);

/* Before a batch is taken: with a bound of 0 this worker's share of the data may be another now. */
vb_status async_repartition(struct vb_async *a);

static inline bool async_has_new_share(const struct vb_async *a)
{
    return atomic_load_explicit(&a->worker->shares, memory_order_relaxed) != a->shares;
}

/* After a step. computed_ns: before it. Now and then looks whether all others are there. */
vb_status async_step_done(struct vb_async *a, uint64_t computed_ns);

#endif
