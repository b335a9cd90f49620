/* SPDX-License-Identifier: MIT
 *
 * The supervisor of the ranks of a job. One loop waits for their output and deaths, and for the
 * user's Ctrl-C. For ranks on other hosts its children are ssh processes; if it closes the standard
 * input of an ssh, the rank ends.
 *
 * A job ends in stages. The first Ctrl-C is passed on to the ranks, which finish their step, save
 * and report; the second kills them. When a rank has failed, the others get a *grace* time to
 * notice the failure and log it. Then they are asked to end (SIGTERM) and, if they do not, killed
 * (SIGKILL). The grace time is skipped after the loss of standard output, and if a job has gone on
 * without some ranks and all remaining ones are stopped (SIGSTOP). A rank leads a process group,
 * which is killed as a whole before the rank is reaped: until then no other group can get its
 * number.
 */
#include "launch/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS 2000
#define HELLO_MS 30000 /* time from the start of the last ssh to the hello of its rank */
#define SSH_AT_ONCE 8  /* an sshd refuses more than 10 connections that have not logged in yet */

#define STOP_MS 120000 /* time to finish a step, write a checkpoint and report after a Ctrl-C */

enum stage { RUNNING, STOPPING, GRACE, ASKED, KILLED }; /* a job ends in this order */

struct job {
    int ranks;
    pid_t *pids; /* 0: not started, or reaped */
    int *in_fds; /* write to the standard input of ranks; -1: none, or closed */
    int alive;
    int started;
    enum stage stage;
    uint64_t deadline_ns; /* end of the stage; 0: none */
    uint64_t grace_ns;
    uint64_t stopped_ns; /* time since which all remaining ranks are stopped; 0: not all are */
    uint64_t some_ns;    /* time since which some are stopped, but not all; 0: none is */
    bool said_some;      /* the supervisor has named them */
    int exit_code;
    struct vb_spawner spawner;
    struct vb_signals signals;
    struct vb_relay *relay;
    struct vb_remote *remote; /* NULL: the ranks are on this host */
    const struct vb_supervise_opts *o;
    bool ended_well; /* with o->outlive: a worker has ended with exit 0 */
    bool answered;   /* the remote ranks have got root and secret */
    uint64_t hello_deadline_ns;
    int begun_fd;       /* has a byte from a rank when training has begun; -1: ranks print a line */
    bool begun;         /* training has begun */
    struct pollfd *fds; /* the signal pipe, then the descriptors of the relay */
};

/* ---- ending ---------------------------------------------------------------------------------- */

static void signal_one(const struct job *job, int rank, int number)
{
    if (job->pids[rank] > 0 && kill(-job->pids[rank], number) != 0)
        kill(job->pids[rank], number); /* the rank has no process group of its own yet */
}

static void signal_all(const struct job *job, int number)
{
    int i;

    for (i = 0; i < job->ranks; i++)
        signal_one(job, i, number);
}

/* A rank on another host ends when its standard input is closed, and its ssh after it. If ssh were
 * ended first, ranks could outlive the supervisor for a moment. */
static void ask_all(struct job *job)
{
    int i;

    for (i = 0; i < job->ranks; i++) {
        if (job->remote == NULL || !job->remote->has_hello[i])
            signal_one(job, i, SIGTERM);
        vb_fd_close(&job->in_fds[i]);
    }
}

/* Enters a stage, unless the job is already in this stage or a later one. */
static void enter(struct job *job, enum stage stage)
{
    if (stage <= job->stage)
        return;
    job->stage = stage;
    job->deadline_ns = vb_clock_ns() + job->grace_ns;
    if (stage == STOPPING)
        job->deadline_ns = vb_clock_ns() + STOP_MS * UINT64_C(1000000);
    if (stage == KILLED)
        job->deadline_ns = 0;
    if (stage == ASKED)
        ask_all(job);
    if (stage == KILLED)
        signal_all(job, SIGKILL);
}

static void give_up(struct job *job)
{
    if (job->exit_code == 0)
        job->exit_code = 1;
    enter(job, ASKED);
}

/* Returns the timeout for poll(); -1: there is no deadline. */
static int time_left_ms(const struct job *job)
{
    uint64_t now = vb_clock_ns(), next = job->deadline_ns;

    if (next == 0 && job->remote != NULL && !job->answered && job->stage < ASKED)
        next = job->hello_deadline_ns;
    if (next == 0 && job->stopped_ns != 0)
        next = job->stopped_ns + job->grace_ns;
    if (next == 0 && job->some_ns != 0 && !job->said_some && job->stage == RUNNING)
        next = job->some_ns + job->grace_ns;
    if (next == 0)
        return -1;
    return now >= next ? 0 : (int)((next - now) / 1000000) + 1;
}

/* ---- deaths ---------------------------------------------------------------------------------- */

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

static void say_death(struct job *job, int rank, const siginfo_t *info, bool goes_on)
{
    const char *tail = goes_on ? "; training goes on" : "";
    char why[512];

    if (job->remote != NULL) {
        vb_remote_explain(job->remote, rank, info, vb_relay_last_line(job->relay, rank), why,
                          sizeof(why));
        vb_relay_say(job->relay, "%.460s%s", why, tail);
    } else if (info->si_code == CLD_EXITED)
        vb_relay_say(job->relay, "rank %d failed with exit code %d%s", rank, info->si_status, tail);
    else if (goes_on)
        vb_relay_say(job->relay, "rank %d was killed by signal %d%s", rank, info->si_status, tail);
    else
        vb_relay_say(job->relay, "rank %d died: signal %d (%s)%s", rank, info->si_status,
                     strsignal(info->si_status),
                     info->si_code == CLD_DUMPED ? ", core dumped" : "");
}

/* A rank may find bad usage that the supervisor could not find. */
static bool was_bad_usage(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED && info->si_status == 2;
}

static void say_failure(struct job *job, int rank, const siginfo_t *info)
{
    if (was_bad_usage(info))
        job->exit_code = 2;
    say_death(job, rank, info, false);
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
    int number = stopped_by(info);

    job->exit_code = number != 0 ? 128 + number : 1;
    if (number != 0)
        vb_relay_say(job->relay,
                     "the job has stopped early, because a rank received signal %d (%s)", number,
                     strsignal(number));
    else
        say_failure(job, rank, info);
    enter(job, GRACE);
}

/* Called when a rank has died: a byte that this rank wrote is in the pipe by then. */
static bool has_begun(struct job *job)
{
    char byte;

    if (job->begun_fd >= 0 && read(job->begun_fd, &byte, 1) == 1)
        job->begun = true;
    return job->begun || vb_relay_has_begun(job->relay);
}

/* Training must have begun. Bad usage concerns all ranks, so it always ends the job. */
static bool can_do_without(struct job *job, int rank, const siginfo_t *info)
{
    const struct vb_supervise_opts *o = job->o;

    return job->stage == RUNNING && o->outlive && (rank < o->vital || rank >= o->vital_end) &&
           job->alive > 0 && has_begun(job) && !was_bad_usage(info);
}

/* A rank has ended with exit 0. A worker that ends so has printed the result, or knows that another
 * has. The others will end soon too, unless they are stopped. */
static void note_end(struct job *job, int rank)
{
    if (!job->o->outlive || rank >= job->o->workers)
        return;
    job->ended_well = true;
    if (job->alive > 0)
        enter(job, GRACE);
}

/* Each host that cannot be used is reported, because none of them fails because of another. */
static void note_host(struct job *job, int rank, const siginfo_t *info)
{
    if (job->stage >= ASKED)
        return;
    if (job->stage == RUNNING)
        note_failure(job, rank, info);
    else
        say_death(job, rank, info, false);
}

/* Returns true for an end that the end of another rank cannot cause: a signal or bad usage. If a
 * rank on another host is killed, ssh exits with 255, as after a broken connection. */
static bool is_cause(const struct job *job, const siginfo_t *info)
{
    return info->si_code != CLD_EXITED || (job->remote != NULL && info->si_status == 255) ||
           was_bad_usage(info);
}

/* A rank that was killed or found bad usage is the cause of the failure; a rank that exited by
 * itself has only noticed it. The latter may even have ended first, because the connections of a
 * process close before it is dead. So a cause is reported in the grace time too. Once the job is
 * being ended on purpose, deaths are not reported. */
static void reap_all(struct job *job)
{
    siginfo_t info, first = {0};
    int i, first_rank = -1;

    for (i = 0; i < job->ranks; i++) {
        if (!reap(job, i, &info))
            continue;
        if (job->remote != NULL && !job->remote->has_hello[i]) {
            note_host(job, i, &info);
            continue;
        }
        if (info.si_code == CLD_EXITED && info.si_status == 0) {
            note_end(job, i);
            continue;
        }
        if (can_do_without(job, i, &info)) {
            say_death(job, i, &info, true);
            continue;
        }
        if (first_rank < 0 || (!is_cause(job, &first) && is_cause(job, &info))) {
            first = info;
            first_rank = i;
        }
    }
    if (first_rank >= 0 && job->stage == RUNNING)
        note_failure(job, first_rank, &first);
    else if (first_rank >= 0 && job->stage == GRACE && is_cause(job, &first))
        say_failure(job, first_rank, &first);
}

static bool is_stopped(const struct job *job, int rank)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)job->pids[rank], &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

/* While no rank is gone, the user may have paused the job. */
static bool all_stopped(const struct job *job)
{
    int i;

    if (job->stage != RUNNING || job->started < job->ranks || job->alive == job->ranks)
        return false;
    for (i = 0; i < job->ranks; i++)
        if (job->pids[i] > 0 && !is_stopped(job, i))
            return false;
    return job->alive > 0;
}

/* The others wait for a rank that is stopped, and cannot know why it does not answer. */
static void note_some_stopped(struct job *job)
{
    int i, n = 0;

    for (i = 0; i < job->ranks && job->remote == NULL; i++)
        n += job->pids[i] > 0 && is_stopped(job, i);
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
        if (job->pids[i] > 0 && is_stopped(job, i))
            vb_relay_say(job->relay,
                         "rank %d (process %d) is stopped (SIGSTOP): kill -CONT %d continues it", i,
                         (int)job->pids[i], (int)job->pids[i]);
}

static void note_stopped(struct job *job)
{
    note_some_stopped(job);
    if (!all_stopped(job))
        job->stopped_ns = 0;
    else if (job->stopped_ns == 0)
        job->stopped_ns = vb_clock_ns();
}

/* A batch system may stop the whole job for a while and continue the supervisor first. Then this
 * check runs much too late, so it waits once more. */
static void check_stopped(struct job *job)
{
    uint64_t now = vb_clock_ns();
    int i;

    if (job->stopped_ns == 0 || now < job->stopped_ns + job->grace_ns)
        return;
    note_stopped(job);
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
    give_up(job);
}

/* The first signal lets the ranks finish their step. A rank that has not begun to train ends at
 * once. If the job is ending already, the signal kills it. */
static void note_stop(struct job *job, int number)
{
    if (job->stage < ASKED)
        job->exit_code = 128 + number;
    if (job->stage != RUNNING || job->alive == 0) {
        enter(job, KILLED);
        return;
    }
    enter(job, STOPPING);
    if (job->remote == NULL)
        signal_all(job, number);
    else
        enter(job, ASKED);
}

static void take_signals(struct job *job)
{
    int number;

    while ((number = vb_signals_next(&job->signals)) != 0) {
        if (number == SIGCHLD)
            continue;
        note_stop(job, number);
    }
    reap_all(job);
    note_stopped(job);
}

/* ---- ranks on other hosts -------------------------------------------------------------------- */

/* The answer fits into the buffer of a pipe. A write fails only if the rank is gone. */
static void answer_all(struct job *job)
{
    char line[512];
    int n = vb_launch_answer(line, sizeof(line), job->remote->found_root, job->remote->secret), i;

    for (i = 0; i < job->ranks; i++)
        if (job->in_fds[i] >= 0 && write(job->in_fds[i], line, (size_t)n) != n)
            vb_fd_close(&job->in_fds[i]);
    explicit_bzero(line, sizeof(line));
    job->answered = true;
}

static bool take_hello(void *arg, int rank, const char *line)
{
    struct job *job = arg;
    char why[512];
    enum vb_remote_line what = vb_remote_take_line(job->remote, rank, line, why, sizeof(why));

    if (what == VB_LINE_WRONG_PROGRAM) {
        vb_relay_say(job->relay, "%s", why);
        give_up(job);
    } else if (what == VB_LINE_HELLO && job->remote->n_hello == job->ranks &&
               job->stage == RUNNING) {
        answer_all(job);
    }
    return what != VB_LINE_OTHER;
}

static void check_hello(struct job *job)
{
    int i;

    if (job->remote == NULL || job->answered || job->stage >= ASKED ||
        vb_clock_ns() < job->hello_deadline_ns)
        return;
    for (i = 0; i < job->started; i++)
        if (job->pids[i] > 0 && !job->remote->has_hello[i])
            vb_relay_say(job->relay, "host %s has not answered within %d s",
                         vb_remote_host(job->remote, i), HELLO_MS / 1000);
    give_up(job);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* When no rank is alive, there may still be output to pass on; a signal then ends the loop. */
static bool goes_on(const struct job *job)
{
    return job->alive > 0 || (job->stage != KILLED && !vb_relay_empty(job->relay));
}

/* Starts all ranks of this host at once, and ranks of other hosts a few at a time. */
static vb_status start_ranks(struct job *job)
{
    struct vb_child child;
    vb_status st;
    int i;

    while (job->started < job->ranks && job->stage == RUNNING &&
           (job->remote == NULL || job->started - job->remote->n_hello < SSH_AT_ONCE)) {
        i = job->started;
        st = vb_relay_log(job->relay, i);
        if (st == VB_OK)
            st = vb_spawner_start(&job->spawner, i, &child);
        if (st != VB_OK)
            return st;
        vb_relay_add(job->relay, i, job->remote != NULL ? vb_remote_host(job->remote, i) : NULL,
                     child.out_fd, child.err_fd);
        job->pids[i] = child.pid;
        job->in_fds[i] = child.in_fd;
        job->alive++;
        job->started++;
        job->hello_deadline_ns = vb_clock_ns() + (uint64_t)HELLO_MS * 1000000;
    }
    return VB_OK;
}

static vb_status poll_once(struct job *job)
{
    int n = 1 + vb_relay_prepare(job->relay, job->fds + 1);

    job->fds[0] = (struct pollfd){.fd = job->signals.fd, .events = POLLIN};
    if (poll(job->fds, (nfds_t)n, job->alive > 0 ? time_left_ms(job) : -1) < 0) {
        if (errno == EINTR)
            return VB_OK;
        return vb_err_sys("poll");
    }
    if (vb_relay_move(job->relay, job->fds + 1, n - 1) != VB_OK)
        give_up(job);
    if (job->fds[0].revents != 0) /* after the output, so that all lines of a dead rank are known */
        take_signals(job);
    if (job->alive > 0) {
        if (job->deadline_ns != 0 && vb_clock_ns() >= job->deadline_ns)
            enter(job, (enum stage)(job->stage + 1));
        check_stopped(job);
        say_some_stopped(job);
        check_hello(job);
    }
    return start_ranks(job);
}

static vb_status run(struct job *job)
{
    vb_status st = VB_OK;

    while (st == VB_OK && goes_on(job)) {
        if (job->alive == 0)
            vb_relay_last_call(job->relay);
        if (goes_on(job))
            st = poll_once(job);
    }
    return st;
}

/* Makes sure that no rank outlives the supervisor, whatever has happened. */
static void kill_the_rest(struct job *job)
{
    int i;

    signal_all(job, SIGKILL);
    for (i = 0; i < job->ranks; i++) {
        vb_fd_close(&job->in_fds[i]);
        while (job->pids[i] > 0 && waitpid(job->pids[i], NULL, 0) < 0 && errno == EINTR)
            ;
    }
}

/* Pipes must not get the numbers of standard streams that are missing, so /dev/null takes these, in
 * a way that reads from standard input and writes to the other two still fail. */
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
    struct vb_relay_opts relay = {
        .all_out = o->outlive,
        .shows = o->hosts == NULL && isatty(STDERR_FILENO) == 1,
        .logs = o->logs,
        .hello_fn = o->hosts != NULL ? take_hello : NULL,
        .hello_arg = job,
    };
    vb_status st;

    memset(job, 0, sizeof(*job));
    job->spawner.null_fd = job->spawner.root_fd = job->spawner.begun_fd = job->begun_fd = -1;
    job->o = o;
    job->ranks = o->hosts != NULL ? o->hosts->ranks : o->ranks;
    job->grace_ns = (uint64_t)(o->grace_ms > 0 ? o->grace_ms : GRACE_MS) * 1000000;
    st = fill_standard_fds();
    if (st == VB_OK && o->logs != NULL)
        st = vb_dir_make(o->logs);
    if (st == VB_OK && o->hosts != NULL)
        st = vb_remote_create(o, &job->remote);
    if (st == VB_OK && o->hosts != NULL)
        st = vb_launch_begun_line(job->remote->secret, relay.begun_line);
    relay.ranks = job->ranks;
    if (st == VB_OK)
        st = vb_relay_create(&relay, &job->relay);
    if (st != VB_OK)
        return st;
    job->pids = calloc((size_t)job->ranks, sizeof(*job->pids));
    job->in_fds = malloc((size_t)job->ranks * sizeof(*job->in_fds));
    job->fds = calloc(2 * (size_t)job->ranks + 3, sizeof(*job->fds));
    if (job->pids == NULL || job->in_fds == NULL || job->fds == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory to supervise %d ranks", job->ranks);
    memset(job->in_fds, -1, (size_t)job->ranks * sizeof(*job->in_fds));
    return VB_OK;
}

static void job_fini(struct job *job)
{
    vb_spawner_fini(&job->spawner);
    vb_relay_destroy(job->relay);
    vb_remote_destroy(job->remote);
    vb_fd_close(&job->begun_fd);
    free(job->in_fds);
    free(job->pids);
    free(job->fds);
}

vb_status vb_supervise(const struct vb_supervise_opts *o, int *exit_code_p)
{
    struct job job;
    vb_status st = job_init(&job, o);

    if (st == VB_OK)
        st = vb_spawner_init(&job.spawner, o, job.remote, &job.signals, &job.begun_fd);
    if (st == VB_OK)
        st = vb_signals_catch(&job.signals);
    if (st != VB_OK) {
        job_fini(&job);
        return st;
    }
    st = start_ranks(&job);
    /* Only rank 0 keeps the socket: if it dies, other ranks must be refused. */
    vb_spawner_fini(&job.spawner);
    if (st == VB_OK)
        st = run(&job);
    kill_the_rest(&job);
    vb_signals_release(&job.signals);
    if (st == VB_OK && o->outlive && job.exit_code == 0 && !job.ended_well)
        job.exit_code = 1; /* no worker is left that could have printed the result */
    if (st == VB_OK)
        *exit_code_p = job.exit_code;
    job_fini(&job);
    return st;
}
