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
    bool started;       /* as a thread */
    bool served;        /* what is below is known */
    _Atomic bool ready; /* it has copied the parameters that it starts with, or failed */
    vb_status status;
    struct ps_server_stats stats;
    struct vb_stale *stale;      /* (workers) */
    struct vb_rank_result *late; /* (workers): only how the others waited for them */
};

struct vb_async {
    struct vb_trainer *trainer;
    struct ps_job job;
    struct vb_group_opts group; /* of the group that the servers are in */
    char root[VB_ROOT_TEXT];
    int root_fd; /* worker 0: where it listens */
    struct vb_group *ps;
    struct ps_worker *worker;
    struct async_server server;
    float *params; /* the trainee's own, likewise below */
    void *state;
    int words;
    double accuracy; /* at this worker's own end */
};

/* ---- where servers and workers meet (train_async_group.c) ------------------------------------ */

/* Collective: where worker 0 of the group of servers and workers listens. */
vb_status async_find_root(struct vb_async *a);

/* How a member opens it. rank: its number there. */
struct vb_group_opts async_group(const struct vb_async *a, int rank);

/* ---- one worker (train_async_dense.c, train_async_sparse.c) ---------------------------------- */

/* Makes steps until there are no more tickets. */
vb_status async_run_dense(struct vb_async *a);
vb_status async_run_sparse(struct vb_async *a);

/* Between a ticket and the step: what is due is done, on a snapshot. */
vb_status async_do_due(struct vb_async *a);

/* The ticket of the next step, giving its time to waiting or transfer. */
vb_status async_ticket(struct vb_async *a, bool *go_p);

/* After a step. computed_ns: before it. Now and then looks whether all others are there. */
vb_status async_step_done(struct vb_async *a, uint64_t computed_ns);

#endif
