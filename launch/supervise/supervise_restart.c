/* SPDX-License-Identifier: MIT
 *
 * Ranks that have died are started again, as long as the job goes on without them: as processes
 * that join the job, where its ranks have said that others can. They come after a pause, which
 * grows with every start of the same rank, so that a rank that cannot live does not use up all
 * starts at once.
 */
#include "launch/supervise/supervise_priv.h"

#include <string.h>

#define PAUSE_MS 1000
#define PAUSE_MAX_MS 60000
#define LOOK_NS UINT64_C(100000000)

/* Workers join an asynchronous job at rank 0. If that is gone, the others go on with its standby.
 */
static bool can_join(const struct job *job)
{
    return !job->o->outlive || job->pids[0] > 0;
}

static void drop(struct job *job, int rank)
{
    job->again[rank].at_ns = 0;
    if (!job->said_none)
        vb_relay_warn(job->relay, "rank %d is not started again: nobody can join without rank 0",
                      rank);
    job->said_none = true;
}

void vb_job_restart_later(struct job *job, int rank)
{
    struct vb_again *again = &job->again[rank];
    uint64_t pause_ms = PAUSE_MAX_MS;

    if (job->n_again >= job->o->restarts || job->stage != RUNNING || job->alive == 0)
        return;
    if (!can_join(job)) {
        drop(job, rank);
        return;
    }
    if (job->remote != NULL && !job->causes.ends[rank].reaped)
        vb_remote_move(job->remote, rank); /* its host may be gone */
    if (again->n < 6)
        pause_ms = (uint64_t)PAUSE_MS << again->n;
    again->n++;
    again->number = ++job->n_again;
    again->at_ns = vb_clock_ns() + pause_ms * 1000000;
}

/* What is known of the process before must not be taken for what this one does. */
static void forget(struct job *job, int rank)
{
    struct vb_causes *causes = &job->causes;
    int i;

    memset(&job->dead[rank], 0, sizeof(job->dead[rank]));
    memset(&job->lost[rank], 0, sizeof(job->lost[rank]));
    memset(&causes->ends[rank], 0, sizeof(causes->ends[rank]));
    for (i = 0; i < causes->ranks; i++) /* what it has said, and what others have said of it */
        if (i == rank || causes->blames[i].peer == rank)
            causes->blames[i].peer = -1;
    if (job->o->elastic)
        job->causes.numbers[rank] = -1; /* until it has joined */
    job->causes.trains[rank] = -1;
    if (job->remote != NULL) {
        job->remote->n_hello -= job->remote->has_hello[rank];
        job->remote->has_hello[rank] = false;
    }
}

vb_status vb_job_start_joiner(struct job *job, int rank)
{
    const char *host = job->remote != NULL ? vb_remote_host(job->remote, rank) : NULL;
    struct vb_child child;
    vb_status st = vb_spawner_start(&job->spawner, rank, job->causes.doors, &child);

    if (st != VB_OK)
        return st;
    forget(job, rank);
    vb_relay_add(job->relay, rank, host, child.out_fd, child.err_fd);
    job->pids[rank] = child.pid;
    job->in_fds[rank] = child.in_fd;
    job->alive++;
    return VB_OK;
}

static vb_status start(struct job *job, int rank)
{
    const char *host = job->remote != NULL ? vb_remote_host(job->remote, rank) : NULL;
    vb_status st = vb_job_start_joiner(job, rank);

    if (st != VB_OK)
        return st;
    job->again[rank].added = false;
    vb_relay_warn(job->relay, "rank %d is started again%s%s (%d of %d, --restart)", rank,
                  host != NULL ? " on host " : "", host != NULL ? host : "",
                  job->again[rank].number, job->o->restarts);
    return VB_OK;
}

/* Returns 0 if a rank can be started now; otherwise the time until the next look. The output of the
 * process before must be read to its end. */
static uint64_t pause_ns(struct job *job, int rank)
{
    if (!vb_relay_ended(job->relay, rank))
        return LOOK_NS;
    if (job->causes.doors[0] != '\0')
        return 0;
    if (!job->said_none)
        vb_relay_warn(
            job->relay,
            "rank %d is not started again yet: the job has not said where others can join", rank);
    job->said_none = true;
    return 10 * LOOK_NS;
}

vb_status vb_job_check_restarts(struct job *job)
{
    uint64_t now = vb_clock_ns(), wait_ns;
    vb_status st = VB_OK;
    int i;

    for (i = 0; i < job->ranks && st == VB_OK; i++) {
        if (job->again[i].at_ns == 0)
            continue;
        if (job->stage != RUNNING || job->alive == 0 || vb_job_is_done(job)) {
            job->again[i].at_ns = 0;
        } else if (!can_join(job)) {
            drop(job, i);
        } else if (now >= job->again[i].at_ns) {
            wait_ns = pause_ns(job, i);
            job->again[i].at_ns = wait_ns > 0 ? now + wait_ns : 0;
            if (wait_ns == 0)
                st = start(job, i);
        }
    }
    return st;
}
