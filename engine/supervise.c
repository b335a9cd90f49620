/* SPDX-License-Identifier: MIT
 *
 * The supervisor of the ranks on one host, itself no rank: one loop that waits for their output,
 * their deaths and the user's Ctrl-C.
 *
 * A job *ends* in stages. When a rank has failed, the others get a *grace* to notice by themselves
 * and say what they saw; then they are asked to end (SIGTERM) and, if that does not help, made to
 * (SIGKILL). A Ctrl-C, or the loss of standard output, skips the grace. A rank is the leader of a
 * process group, which is killed as a whole before the rank is reaped: as long as the leader has
 * not been, no other group can have its number.
 */
#include "engine/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 2000

enum stage { RUNNING, GRACE, ASKED, KILLED };

struct job {
    int ranks;
    pid_t *pids; /* 0: not started, or reaped */
    int alive;
    enum stage stage;
    uint64_t deadline_ns; /* of the stage, 0: none */
    uint64_t grace_ns;
    int exit_code;
    struct vb_spawner spawner;
    struct vb_signals signals;
    struct vb_relay *relay;
    struct pollfd *fds; /* the signals, then the relay's */
};

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_all(const struct job *job, int number)
{
    int i;

    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0 && kill(-job->pids[i], number) != 0)
            kill(job->pids[i], number); /* it has no group of its own yet */
}

/* Goes to a later stage; never back. */
static void enter(struct job *job, enum stage stage)
{
    if (stage <= job->stage)
        return;
    job->stage = stage;
    job->deadline_ns = stage == KILLED ? 0 : vb_clock_ns() + job->grace_ns;
    if (stage == ASKED)
        signal_all(job, SIGTERM);
    if (stage == KILLED)
        signal_all(job, SIGKILL);
}

static void check_deadline(struct job *job)
{
    if (job->deadline_ns != 0 && vb_clock_ns() >= job->deadline_ns)
        enter(job, (enum stage)(job->stage + 1));
}

/* For poll(): milliseconds to the deadline, -1 if there is none. */
static int time_left_ms(const struct job *job)
{
    uint64_t now = vb_clock_ns();

    if (job->deadline_ns == 0)
        return -1;
    return now >= job->deadline_ns ? 0 : (int)((job->deadline_ns - now) / 1000000) + 1;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Fences and reaps a rank if it is dead; true if so. */
static bool reap(struct job *job, int rank, siginfo_t *info)
{
    pid_t pid = job->pids[rank];

    info->si_pid = 0;
    if (pid <= 0 || waitid(P_PID, (id_t)pid, info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info->si_pid == 0)
        return false;
    kill(-pid, SIGKILL); /* what it may have started itself */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    job->pids[rank] = 0;
    job->alive--;
    return true;
}

static void say_death(struct job *job, int rank, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        vb_relay_say(job->relay, "rank %d failed: exit %d", rank, info->si_status);
    else
        vb_relay_say(job->relay, "rank %d died: signal %d (%s)%s", rank, info->si_status,
                     strsignal(info->si_status),
                     info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

static void note_failure(struct job *job, int rank, const siginfo_t *info)
{
    /* 2 is bad usage, which a rank may find where the supervisor could not. */
    job->exit_code = info->si_code == CLD_EXITED && info->si_status == 2 ? 2 : 1;
    say_death(job, rank, info);
    enter(job, GRACE);
}

/* Several may have died by the time we look. One that was killed is then the cause, and one that
 * ended by itself has noticed; it may even have ended before, for connections close first when a
 * process dies, so one that was killed is named in the grace too. Once the job is being ended on
 * purpose, deaths are no news. */
static void reap_all(struct job *job)
{
    siginfo_t info, first = {0};
    int i, first_rank = -1;

    for (i = 0; i < job->ranks; i++) {
        if (!reap(job, i, &info) || (info.si_code == CLD_EXITED && info.si_status == 0))
            continue;
        if (first_rank < 0 || (first.si_code == CLD_EXITED && info.si_code != CLD_EXITED)) {
            first = info;
            first_rank = i;
        }
    }
    if (first_rank >= 0 && job->stage == RUNNING)
        note_failure(job, first_rank, &first);
    else if (first_rank >= 0 && job->stage == GRACE && first.si_code != CLD_EXITED)
        say_death(job, first_rank, &first);
}

static void take_signals(struct job *job)
{
    int number;

    while ((number = vb_signals_next(&job->signals)) != 0) {
        if (number == SIGCHLD)
            continue;
        if (job->stage < ASKED)
            job->exit_code = 128 + number;
        enter(job, job->stage < ASKED && job->alive > 0 ? ASKED : KILLED);
    }
    reap_all(job);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Also with nobody left alive there may be output to pass on; a signal then ends it. */
static bool goes_on(const struct job *job)
{
    if (job->alive > 0)
        return true;
    return job->stage != KILLED && !vb_relay_empty(job->relay);
}

static vb_status turn(struct job *job)
{
    int n = 1 + vb_relay_prepare(job->relay, job->fds + 1);

    job->fds[0] = (struct pollfd){.fd = job->signals.fd, .events = POLLIN};
    if (poll(job->fds, (nfds_t)n, job->alive > 0 ? time_left_ms(job) : -1) < 0) {
        if (errno == EINTR)
            return VB_OK;
        return vb_err_sys("poll");
    }
    if (job->fds[0].revents != 0)
        take_signals(job);
    if (vb_relay_move(job->relay, job->fds + 1, n - 1) != VB_OK) {
        if (job->exit_code == 0)
            job->exit_code = 1;
        enter(job, ASKED);
    }
    if (job->alive > 0)
        check_deadline(job);
    return VB_OK;
}

static vb_status run(struct job *job)
{
    vb_status st = VB_OK;

    while (st == VB_OK && goes_on(job)) {
        if (job->alive == 0)
            vb_relay_last_call(job->relay);
        if (goes_on(job))
            st = turn(job);
    }
    return st;
}

static vb_status start_ranks(struct job *job)
{
    int i, out_fd, err_fd;
    vb_status st;

    for (i = 0; i < job->ranks; i++) {
        st = vb_spawner_start(&job->spawner, i, &job->pids[i], &out_fd, &err_fd);
        if (st != VB_OK)
            return st;
        vb_relay_add(job->relay, i, out_fd, err_fd);
        job->alive++;
    }
    return VB_OK;
}

/* The fence: whatever happened, no rank is left when the supervisor is. */
static void kill_the_rest(struct job *job)
{
    int i;

    signal_all(job, SIGKILL);
    for (i = 0; i < job->ranks; i++) {
        if (job->pids[i] <= 0)
            continue;
        while (waitpid(job->pids[i], NULL, 0) < 0 && errno == EINTR)
            ;
    }
}

/* A process may be started without standard input, output or error; pipes must not take their
 * numbers. They stay as useless as they were: not readable, or not writable. */
static vb_status fill_standard_fds(void)
{
    static const int flags[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    int fd;

    for (fd = 0; fd < (int)VB_COUNT(flags); fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags[fd]) != fd)
            return vb_err_sys("open /dev/null");
    return VB_OK;
}

static vb_status job_init(struct job *job, const struct vb_supervise_opts *o)
{
    vb_status st;

    memset(job, 0, sizeof(*job));
    job->ranks = o->ranks;
    job->grace_ns = (uint64_t)(o->grace_ms > 0 ? o->grace_ms : GRACE_MS) * 1000000;
    st = fill_standard_fds();
    if (st == VB_OK)
        st = vb_relay_create(o->ranks, &job->relay);
    if (st != VB_OK)
        return st;
    job->pids = calloc((size_t)o->ranks, sizeof(*job->pids));
    job->fds = calloc((size_t)vb_relay_fds_max(job->relay) + 1, sizeof(*job->fds));
    if (job->pids != NULL && job->fds != NULL)
        return VB_OK;
    return vb_err(VB_ERR_NO_MEMORY, "no memory for %d ranks", o->ranks);
}

static void job_fini(struct job *job)
{
    vb_relay_destroy(job->relay);
    free(job->pids);
    free(job->fds);
}

vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p)
{
    struct job job;
    vb_status st;

    st = job_init(&job, o);
    if (st != VB_OK)
        goto err_job;
    st = vb_spawner_init(&job.spawner, o, &job.signals);
    if (st != VB_OK)
        goto err_job;
    st = vb_signals_catch(&job.signals);
    if (st != VB_OK)
        goto err_spawner;
    st = start_ranks(&job);
    vb_spawner_fini(&job.spawner); /* rank 0 alone listens: its death must refuse the others */
    if (st == VB_OK)
        st = run(&job);
    kill_the_rest(&job);
    vb_signals_release(&job.signals);
    if (st == VB_OK)
        *exit_code_p = job.exit_code;
    job_fini(&job);
    return st;

err_spawner:
    vb_spawner_fini(&job.spawner);
err_job:
    job_fini(&job);
    return st;
}
