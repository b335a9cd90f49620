/* SPDX-License-Identifier: MIT
 *
 * Jobs that go on without ranks that die. The supervisor does not decide who goes on: the ranks
 * agree on that. It tells them which ranks have ended for certain, kills a rank that is stopped and
 * that others have lost, so that it has ended for certain too, and finds out in the end whether the
 * job has failed.
 *
 * A rank that was killed is named at once. One that has ended by itself with an error is named a
 * moment later, if there are still others: an error of the whole job ends all of them.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define WHY_BYTES 320

/* ---- how ranks have ended -------------------------------------------------------------------- */

/* Returns true if a rank has not ended by itself, as far as is known. ssh ends with 255 if its
 * connection breaks and if its rank is killed. */
static bool was_killed(const struct job *job, int rank)
{
    const struct vb_ending *end = &job->causes.ends[rank];
    const siginfo_t *info = &job->dead[rank];

    if (job->remote == NULL)
        return info->si_code != CLD_EXITED;
    if (end->reaped)
        return end->by_signal;
    return info->si_code != CLD_EXITED || info->si_status == 255;
}

static void explain_here(struct job *job, int rank, char *why, size_t size)
{
    const siginfo_t *info = &job->dead[rank];
    int number = vb_causes_number(&job->causes, rank);
    char text[WHY_BYTES], name[16];

    vb_death_explain(number, info, false, &job->oom, text, sizeof(text));
    snprintf(name, sizeof(name), "rank %d", number);
    snprintf(why, size, "%s (pid %d)%s", name, (int)info->si_pid, text + strlen(name));
}

static void explain(struct job *job, int rank, char *why, size_t size)
{
    const struct vb_ending *end = &job->causes.ends[rank];

    if (job->remote == NULL)
        explain_here(job, rank, why, size);
    else if (end->reaped && end->by_signal)
        snprintf(why, size, "rank %d on host %s died: signal %d (%s)",
                 vb_causes_number(&job->causes, rank), vb_remote_host(job->remote, rank),
                 end->number, strsignal(end->number));
    else
        vb_remote_explain(job->remote, rank, &job->dead[rank], vb_relay_last_line(job->relay, rank),
                          why, size);
}

/* ---- while the job runs ---------------------------------------------------------------------- */

/* A pipe that is full belongs to a rank that does not read, which others lose soon. */
static void tell(struct job *job, int rank)
{
    char text[16];
    int number = job->causes.numbers[rank], i, n;

    job->lost[rank].told = true;
    if (number < 0)
        return; /* it had not joined */
    n = snprintf(text, sizeof(text), "%c%d\n", VB_REAPED, number);
    for (i = 0; i < job->ranks; i++)
        if (i != rank && job->in_fds[i] >= 0 && write(job->in_fds[i], text, (size_t)n) != n)
            VB_LOG_DEBUG("rank %d is not told that rank %d has ended: %s", i, rank,
                         strerror(errno));
}

static bool is_over(const struct job *job, int rank)
{
    const struct vb_ending *end = &job->causes.ends[rank];

    if (job->remote == NULL)
        return job->lost[rank].dead;
    return end->reaped && (end->by_signal || end->number != 0);
}

/* A rank that was stopped may be killed by another one, before kill_if_stopped() does it. Returns
 * who has lost it before that; -1: nobody. */
static int who_missed(const struct job *job, int rank)
{
    const struct vb_blame *blames = job->causes.blames;
    int i;

    for (i = 0; i < job->ranks; i++)
        if (blames[i].peer == rank && strncmp(blames[i].why, "silent ", 7) == 0)
            return i;
    return -1;
}

static void name(struct job *job, int rank)
{
    int by = who_missed(job, rank);
    char why[WHY_BYTES];

    job->lost[rank].said = true;
    explain(job, rank, why, sizeof(why));
    if (by >= 0)
        vb_relay_warn(job->relay, "%s, after rank %d had lost it: %s; training goes on without it",
                      why, vb_causes_number(&job->causes, by), job->causes.blames[by].why);
    else
        vb_relay_warn(job->relay, "%s; training goes on without it", why);
}

void vb_job_lose(struct job *job, int rank)
{
    job->lost[rank].dead = true;
    job->lost[rank].at_ns = vb_clock_ns();
    vb_job_restart_later(job, rank);
}

/* The rank cannot come back: others have dropped it, and it ends when it is continued. As long as
 * it is only stopped, the others do not know that it writes to no memory that it shares with them.
 */
static void kill_if_stopped(struct job *job, int rank)
{
    const struct vb_ending *end = &job->causes.ends[rank];

    if (job->remote != NULL || job->pids[rank] <= 0 || !end->lost || job->lost[rank].said ||
        job->alive < 2 || !vb_job_is_stopped(job, rank))
        return;
    job->lost[rank].said = true;
    vb_relay_warn(job->relay,
                  "rank %d (pid %d) is stopped (SIGSTOP) and is killed, because rank %d has lost "
                  "it: %s; training goes on without it",
                  vb_causes_number(&job->causes, rank), (int)job->pids[rank],
                  vb_causes_number(&job->causes, end->lost_by),
                  job->causes.blames[end->lost_by].why);
    kill(-job->pids[rank], SIGKILL);
}

/* A rank that has ended well may also be one that the user has removed. */
bool vb_job_is_done(const struct job *job)
{
    return job->ended_well &&
           (vb_relay_printed(job->relay) || vb_causes_stranger(&job->causes) >= 0);
}

/* Others have printed the result and ended, and those that are left were dropped and do not know
 * it. */
static bool all_left_are_lost(const struct job *job)
{
    int i;

    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0 && !job->causes.ends[i].lost && !vb_job_is_stopped(job, i))
            return false;
    return vb_job_is_done(job) && job->alive > 0;
}

void vb_job_check_lost(struct job *job)
{
    uint64_t now = vb_clock_ns(), at;
    int i;

    if (!job->o->elastic || !vb_job_has_begun(job))
        return;
    job->say_ns = 0;
    for (i = 0; i < job->ranks; i++) {
        if (!job->lost[i].told && is_over(job, i))
            tell(job, i);
        if (job->stage <= STOPPING)
            kill_if_stopped(job, i);
        if (!job->lost[i].dead || job->lost[i].said || job->alive == 0)
            continue;
        at = job->lost[i].at_ns + job->grace_ns;
        if (was_killed(job, i) || now >= at)
            name(job, i);
        else if (job->say_ns == 0 || at < job->say_ns)
            job->say_ns = at;
    }
    if (all_left_are_lost(job))
        vb_job_enter(job, GRACE);
}

/* ---- when it has ended ----------------------------------------------------------------------- */

/* Returns whether a process was to join the job, and has died before it did. */
static bool never_came(const struct job *job, int rank)
{
    return job->causes.numbers[rank] < 0 || vb_job_comes(job, rank);
}

/* Returns the first rank that has ended by itself with an error and that nobody has lost; -1: there
 * is none. */
static int failed_alone(const struct job *job)
{
    int i, first = -1;

    for (i = 0; i < job->ranks; i++)
        if (job->lost[i].dead && !was_killed(job, i) && !job->causes.ends[i].lost &&
            !never_came(job, i) && (first < 0 || job->lost[i].at_ns < job->lost[first].at_ns))
            first = i;
    return first;
}

/* Returns the first or the last rank to die; -1: there is none. */
static int to_die(const struct job *job, bool last, bool killed)
{
    int i, found = -1;

    for (i = 0; i < job->ranks; i++)
        if (job->lost[i].dead && (!killed || was_killed(job, i)) &&
            (found < 0 || (job->lost[i].at_ns > job->lost[found].at_ns) == last))
            found = i;
    return found;
}

static void say_nobody_left(struct job *job)
{
    int last = to_die(job, true, false), first = to_die(job, false, true);
    char why[WHY_BYTES], cause[WHY_BYTES];

    if (first < 0) /* none was killed: all have failed, and the first one knows best why */
        last = to_die(job, false, false);
    if (last < 0)
        return;
    explain(job, last, why, sizeof(why));
    if (first < 0 || first == last) {
        vb_relay_say(job->relay, "%s, and no rank is left", why);
        return;
    }
    explain(job, first, cause, sizeof(cause));
    vb_relay_say(job->relay, "%.230s, and no rank is left; the first one lost: %.200s", why, cause);
}

/* The job has ended well. */
static void say_lost(struct job *job)
{
    int i;

    for (i = 0; i < job->ranks; i++)
        if (job->lost[i].dead && !job->lost[i].said && !never_came(job, i))
            name(job, i);
    if (!vb_relay_printed(job->relay))
        vb_relay_warn(
            job->relay,
            "the result was printed by rank %d, which has joined and was not started here",
            vb_causes_stranger(&job->causes));
}

static void judge(struct job *job)
{
    int alone = failed_alone(job);
    char why[WHY_BYTES];

    if (vb_job_is_done(job) && alone < 0) {
        say_lost(job);
        return;
    }
    job->exit_code = 1;
    if (!job->ended_well || (!vb_relay_printed(job->relay) && to_die(job, false, true) >= 0)) {
        say_nobody_left(job); /* who has ended well was removed */
    } else if (alone >= 0) {
        explain(job, alone, why, sizeof(why));
        vb_relay_say(job->relay, "%s", why);
    } else {
        vb_relay_say(job->relay, "the rank that had to print the result has died, when the others "
                                 "were about to end");
    }
}

void vb_job_judge(struct job *job)
{
    if (!job->judged && job->o->elastic && job->exit_code == 0 && vb_job_has_begun(job))
        judge(job);
    job->judged = true;
}
