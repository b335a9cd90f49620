/* SPDX-License-Identifier: MIT
 *
 * The deaths of ranks: which of them end the job, which one is the cause, and ranks that are
 * stopped. A rank that others lost and that is still there is the *suspect*.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

/* If a rank is dead, kills its process group, reaps it and returns true. */
static bool reap(struct job *job, int rank, siginfo_t *info)
{
    pid_t pid = job->pids[rank];

    info->si_pid = 0;
    if (pid <= 0 || waitid(P_PID, (id_t)pid, info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info->si_pid == 0)
        return false;
    kill(-pid, SIGKILL); /* processes that the rank may have started */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    vb_fd_close(&job->in_fds[rank]);
    job->pids[rank] = 0;
    job->alive--;
    return true;
}

static void say_fixes(struct job *job, int rank, const char *last_line)
{
    const struct vb_remedy *remedy = vb_remedy_find(last_line);
    char fix[400];
    size_t i;

    for (i = 0; remedy != NULL && i < VB_COUNT(remedy->fix) && remedy->fix[i] != NULL; i++) {
        vb_remedy_fill(remedy->fix[i], vb_remote_host(job->remote, rank), job->remote->program, fix,
                       sizeof(fix));
        vb_relay_fix(job->relay, fix);
    }
}

/* Of a host that cannot be used, each rank ends with the same words, which are said once. */
static void say_remote_death(struct job *job, int rank, const siginfo_t *info, bool goes_on)
{
    const char *last_line = vb_relay_last_line(job->relay, rank);
    char why[512];

    vb_remote_explain(job->remote, rank, info, last_line, why, sizeof(why));
    if (strcmp(why, vb_relay_said(job->relay)) == 0)
        return;
    vb_relay_say(job->relay, "%.460s%s", why, goes_on ? "; training goes on" : "");
    if (!job->remote->has_hello[rank])
        say_fixes(job, rank, last_line);
}

void vb_job_say_death(struct job *job, int rank, const siginfo_t *info, bool goes_on)
{
    char why[512];

    if (job->remote != NULL) {
        say_remote_death(job, rank, info, goes_on);
        return;
    }
    vb_death_explain(rank, info, goes_on, &job->oom, why, sizeof(why));
    vb_relay_say(job->relay, "%.460s%s", why, goes_on ? "; training goes on" : "");
}

/* A rank may find bad usage that the supervisor could not find. */
static bool was_bad_usage(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED && info->si_status == 2;
}

/* A rank that joins has arguments that the job has sent. */
static bool concerns_all(const struct job *job, int rank, const siginfo_t *info)
{
    return was_bad_usage(info) && job->again[rank].n == 0 && !job->again[rank].added;
}

static void say_failure(struct job *job, int rank, const siginfo_t *info)
{
    if (was_bad_usage(info))
        job->exit_code = 2;
    vb_job_say_death(job, rank, info, false);
}

/* Returns the signal for which a rank has stopped early, with all others; 0: it has not. */
static int stopped_by(const siginfo_t *info)
{
    int number = info->si_status - 128;
    bool stopped = number == SIGINT || number == SIGTERM || number == SIGHUP;

    return info->si_code == CLD_EXITED && stopped ? number : 0;
}

static void note_failure(struct job *job, int rank, const siginfo_t *info)
{
    job->exit_code = 1;
    if (job->suspect < 0)
        say_failure(job, rank, info);
    vb_job_enter(job, GRACE);
}

/* Called when a rank has died: what this rank wrote is in the pipe by then. */
bool vb_job_has_begun(struct job *job)
{
    int n;

    if (job->begun_fd >= 0)
        vb_causes_read(&job->causes, job->begun_fd);
    n = job->causes.n_begun + vb_relay_begun(job->relay);
    job->begun = job->begun || n >= (job->o->elastic ? job->ranks : 1);
    return job->begun;
}

/* In an elastic job any rank may be lost when all have begun to train. Whether those that are left
 * have gone on, or have failed as well, is known when all have ended. */
static bool may_lose(struct job *job, int rank, const siginfo_t *info)
{
    return (job->stage <= STOPPING || (job->stage == GRACE && job->ended_well)) &&
           job->o->elastic && vb_job_has_begun(job) && !concerns_all(job, rank, info) &&
           stopped_by(info) == 0;
}

/* Training must have begun. Bad usage concerns all ranks, so it always ends the job. */
static bool can_do_without(struct job *job, int rank, const siginfo_t *info)
{
    const struct vb_supervise_opts *o = job->o;

    return job->stage <= STOPPING && o->outlive && (rank < o->vital || rank >= o->vital_end) &&
           job->alive > 0 && vb_job_has_begun(job) && !concerns_all(job, rank, info) &&
           stopped_by(info) == 0;
}

/* A rank has ended with exit 0, or as the user has asked it to. A worker that ends so has printed
 * the result, or knows that another has. The others will end soon too, unless they are stopped. */
static void note_end(struct job *job, int rank)
{
    if (job->o->elastic)
        job->ended_well = true;
    if (!job->o->outlive || (rank >= job->o->workers && rank < job->ranks_before))
        return;
    job->ended_well = true;
    if (job->alive > 0)
        vb_job_enter(job, GRACE);
}

/* A rank has stopped early, and this process did not ask it to: the user has sent a signal to a
 * rank, or a command to the one that reports. All stop then. They have the time that they have
 * after a Ctrl-C, because one of them may still evaluate, save and report. */
static void note_early(struct job *job, int rank, const siginfo_t *info)
{
    int number = stopped_by(info);

    if (job->stage == RUNNING) {
        job->exit_code = 128 + number;
        vb_relay_warn(job->relay, "the job stops early: a rank was asked to, by signal %d (%s)%s",
                      number, strsignal(number), number == SIGINT ? " or by verbena ctl" : "");
        vb_job_enter(job, STOPPING);
    }
    note_end(job, rank);
}

/* Each host that cannot be used is reported, because none of them fails because of another. */
static void note_host(struct job *job, int rank, const siginfo_t *info)
{
    if (job->stage >= ASKED)
        return;
    if (job->stage == RUNNING)
        note_failure(job, rank, info);
    else
        vb_job_say_death(job, rank, info, false);
}

/* A rank could not be started again. The others go on as they do already. */
static void note_no_start(struct job *job, int rank, const siginfo_t *info)
{
    if (job->stage == RUNNING)
        vb_job_say_death(job, rank, info, true);
    vb_job_restart_later(job, rank);
}

/* Returns true for an end that the end of another rank cannot cause: a signal or bad usage. If a
 * rank on another host is killed, ssh exits with 255, as after a broken connection. */
static bool is_cause(const struct job *job, const siginfo_t *info)
{
    return info->si_code != CLD_EXITED || (job->remote != NULL && info->si_status == 255) ||
           was_bad_usage(info);
}

bool vb_job_is_stopped(const struct job *job, int rank)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)job->pids[rank], &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

/* A rank has ended by itself. If it did so because it lost a peer, the peer is the cause: returns
 * the peer if it is dead too; otherwise remembers it as the suspect, and returns the rank. */
static int find_cause(struct job *job, int rank, const siginfo_t *dead)
{
    int by = rank;
    const struct vb_blame *blame = vb_causes_find(&job->causes, rank, &by);
    int peer = blame != NULL ? blame->peer : -1;

    if (blame == NULL || (job->o->outlive && (peer < job->o->vital || peer >= job->o->vital_end)))
        return rank;
    if (dead[peer].si_pid != 0 && (dead[peer].si_code != CLD_EXITED || dead[peer].si_status != 0))
        return peer;
    job->suspect = peer;
    job->suspect_by = by;
    return rank;
}

/* Names the suspect when no other rank can tell more: all others have ended, or the grace time is
 * over. A suspect that ends before is reported like any rank. */
void vb_job_check_suspect(struct job *job)
{
    int rank = job->suspect;
    bool stopped =
        rank >= 0 && job->remote == NULL && job->pids[rank] > 0 && vb_job_is_stopped(job, rank);
    bool alone = job->alive == 0 || (stopped && job->alive == 1);
    bool over = job->stage > GRACE || (job->deadline_ns != 0 && vb_clock_ns() >= job->deadline_ns);
    char where[VB_HOST_NAME + 16] = "";

    if (rank < 0 || (!alone && !over))
        return;
    if (job->remote != NULL)
        snprintf(where, sizeof(where), " on host %s", vb_remote_host(job->remote, rank));
    else if (job->pids[rank] > 0)
        snprintf(where, sizeof(where), " (pid %d)", (int)job->pids[rank]);
    vb_relay_say(job->relay, "rank %d%s is %s: %s, says rank %d", rank, where,
                 stopped ? "stopped" : "lost", job->causes.blames[job->suspect_by].why,
                 job->suspect_by);
    job->suspect = -1;
}

/* A rank that is dead. Returns false if the death needs nothing more: the job can do without the
 * rank, or ends anyway. */
static bool is_failure(struct job *job, int rank, const siginfo_t *info)
{
    if (vb_job_comes(job, rank)) {
        vb_job_end_of_newcomer(job, rank, info);
    } else if (job->remote != NULL && !job->remote->has_hello[rank]) {
        if (job->again[rank].n == 0)
            note_host(job, rank, info);
        else
            note_no_start(job, rank, info);
    } else if (info->si_code == CLD_EXITED && info->si_status == 0) {
        note_end(job, rank);
    } else if (job->stage <= STOPPING && stopped_by(info) != 0) {
        note_early(job, rank, info);
    } else if (may_lose(job, rank, info)) {
        vb_job_lose(job, rank);
    } else if (can_do_without(job, rank, info)) {
        if (job->stage == RUNNING)
            vb_job_say_death(job, rank, info, true);
        vb_job_restart_later(job, rank);
    } else {
        return true;
    }
    return false;
}

/* A cause is reported in the grace time too. Once the job is being ended on purpose, deaths are not
 * reported. */
static void act_on_failure(struct job *job, int rank)
{
    const siginfo_t *info = &job->dead[rank];

    if (job->stage == RUNNING) {
        if (!is_cause(job, info))
            rank = find_cause(job, rank, job->dead);
        note_failure(job, rank, &job->dead[rank]);
    } else if (job->stage == STOPPING) {
        vb_job_enter(job, GRACE); /* the others cannot finish their step without this rank */
    } else if (job->stage == GRACE && !job->interrupted &&
               (is_cause(job, info) || rank == job->suspect)) {
        job->suspect = -1;
        say_failure(job, rank, info);
    }
}

/* A rank that was killed or found bad usage is the cause of the failure; a rank that exited by
 * itself has only noticed it. The latter may even have ended first, because the connections of a
 * process close before it is dead. */
void vb_job_reap(struct job *job)
{
    siginfo_t info;
    int i, first = -1;

    (void)vb_job_has_begun(job); /* reads the news */
    for (i = 0; i < job->ranks; i++) {
        if (!reap(job, i, &info))
            continue;
        job->dead[i] = info;
        if (is_failure(job, i, &info) &&
            (first < 0 || (!is_cause(job, &job->dead[first]) && is_cause(job, &info))))
            first = i;
    }
    if (first >= 0)
        act_on_failure(job, first);
}

/* While no rank is gone, the user may have paused the job. */
static bool all_stopped(const struct job *job)
{
    int i;

    if (job->stage != RUNNING || job->started < job->ranks || job->alive == job->ranks)
        return false;
    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0 && !vb_job_is_stopped(job, i))
            return false;
    return job->alive > 0;
}

/* The others wait for a rank that is stopped, and cannot know why it does not answer. */
static void note_some_stopped(struct job *job)
{
    int i, n = 0;

    for (i = 0; i < job->ranks && job->remote == NULL; i++)
        n += job->pids[i] > 0 && vb_job_is_stopped(job, i);
    if (n == 0 || n == job->alive) {
        job->some_ns = 0;
        job->said_some = false;
    } else if (job->some_ns == 0) {
        job->some_ns = vb_clock_ns();
    }
}

static void say_some_stopped(struct job *job)
{
    int i;

    if (job->some_ns == 0 || job->said_some || job->stage != RUNNING ||
        vb_clock_ns() < job->some_ns + job->grace_ns)
        return;
    job->said_some = true;
    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0 && vb_job_is_stopped(job, i))
            vb_relay_say(job->relay,
                         "rank %d (pid %d) is stopped (SIGSTOP): kill -CONT %d continues it", i,
                         (int)job->pids[i], (int)job->pids[i]);
}

void vb_job_note_stopped(struct job *job)
{
    note_some_stopped(job);
    if (!all_stopped(job))
        job->stopped_ns = 0;
    else if (job->stopped_ns == 0)
        job->stopped_ns = vb_clock_ns();
}

/* A batch system may stop the whole job for a while and continue the supervisor first. Then this
 * check runs much too late, so it waits once more. */
void vb_job_check_stopped(struct job *job)
{
    uint64_t now = vb_clock_ns();
    int i;

    say_some_stopped(job);
    if (job->stopped_ns == 0 || now < job->stopped_ns + job->grace_ns)
        return;
    vb_job_note_stopped(job);
    if (job->stopped_ns == 0)
        return;
    if (now - job->stopped_ns >= 2 * job->grace_ns) {
        job->stopped_ns = now;
        return;
    }
    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0)
            vb_relay_say(job->relay, "rank %d is stopped, and no other rank is left to go on", i);
    job->stopped_ns = 0;
    vb_job_give_up(job);
}
