/* SPDX-License-Identifier: MIT
 *
 * The supervisor of the ranks of a job. One loop waits for their output and deaths, and for the
 * user's Ctrl-C. For ranks on other hosts its children are ssh processes; if it closes the standard
 * input of an ssh, the rank ends. supervise_deaths.c finds and reports the cause of a failure.
 *
 * A job ends in stages. The first Ctrl-C is passed on to the ranks, which finish their step, save
 * and report; the second ends them at once. When a rank has failed, the others get a *grace* time
 * to notice the failure and log it. Then they are asked to end (SIGTERM) and, if they do not,
 * killed (SIGKILL). The grace time is skipped after the loss of standard output, and if a job has
 * gone on without some ranks and all remaining ones are stopped (SIGSTOP). A rank leads a process
 * group, which is killed as a whole before the rank is reaped: until then no other group can get
 * its number.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_MS 30000 /* time from the start of the last ssh to the hello of its rank */
#define SSH_AT_ONCE 8  /* an sshd refuses more than 10 connections that have not logged in yet */

#define STOP_MS 120000 /* time to finish a step, write a checkpoint and report after a Ctrl-C */

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
        else if (job->remote->reaps)
            vb_remote_send(&job->in_fds[i], 1, VB_END_OF_JOB);
        vb_fd_close(&job->in_fds[i]);
    }
}

/* Enters a stage, unless the job is already in this stage or a later one. */
void vb_job_enter(struct job *job, enum stage stage)
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

void vb_job_give_up(struct job *job)
{
    if (job->exit_code == 0)
        job->exit_code = 1;
    vb_job_enter(job, ASKED);
}

/* Returns the timeout for poll(); -1: there is no deadline. */
static int time_left_ms(const struct job *job)
{
    uint64_t now = vb_clock_ns(), next = job->deadline_ns;
    int i;

    if (next == 0 && job->remote != NULL && !job->answered && job->stage < ASKED)
        next = job->hello_deadline_ns;
    if (next == 0 && job->stopped_ns != 0)
        next = job->stopped_ns + job->grace_ns;
    if (next == 0 && job->some_ns != 0 && !job->said_some && job->stage == RUNNING)
        next = job->some_ns + job->grace_ns;
    for (i = 0; i < job->ranks; i++)
        if (job->again[i].at_ns != 0 && (next == 0 || job->again[i].at_ns < next))
            next = job->again[i].at_ns;
    if (job->say_ns != 0 && (next == 0 || job->say_ns < next))
        next = job->say_ns;
    if (job->adding.under_way && (next == 0 || job->adding.deadline_ns < next))
        next = job->adding.deadline_ns;
    if (job->beat_ns != 0 && (next == 0 || job->beat_ns < next))
        next = job->beat_ns;
    if (next == 0)
        return -1;
    return now >= next ? 0 : (int)((next - now) / 1000000) + 1;
}

/* Passes a signal on to the ranks. A rank that is stopped (SIGSTOP) is continued, because the
 * others wait for it and cannot finish their step without it. */
static void pass_on(struct job *job, int number)
{
    if (job->remote != NULL) {
        vb_remote_send(job->in_fds, job->ranks, (char)number);
        return;
    }
    signal_all(job, number);
    signal_all(job, SIGCONT);
}

/* The first signal lets the ranks finish their step. A rank that has not begun to train ends at
 * once. If the job is ending already, the signal ends it at once: a rank on another host when its
 * standard input is closed. Ranks on other hosts that have not got root and secret do not read
 * signals yet. */
static void note_stop(struct job *job, int number)
{
    bool asks = job->remote != NULL && job->stage < ASKED;

    job->interrupted = true;
    if (job->stage < ASKED)
        job->exit_code = 128 + number;
    if (job->stage != RUNNING || job->alive == 0 || (asks && !job->answered)) {
        vb_job_enter(job, asks ? ASKED : KILLED);
        return;
    }
    vb_job_enter(job, STOPPING);
    pass_on(job, number);
}

static void take_signals(struct job *job)
{
    int number;

    while ((number = vb_signals_next(&job->signals)) != 0) {
        if (number == SIGCHLD)
            continue;
        note_stop(job, number);
    }
    vb_job_reap(job);
    vb_job_note_stopped(job);
}

/* ---- ranks on other hosts -------------------------------------------------------------------- */

/* The answer fits into the buffer of a pipe. A write fails only if the rank is gone. */
static void answer(struct job *job, int rank)
{
    char line[512];
    int n = vb_launch_answer(line, sizeof(line), job->remote->found_root, job->remote->secret);

    if (job->in_fds[rank] >= 0 && write(job->in_fds[rank], line, (size_t)n) != n)
        vb_fd_close(&job->in_fds[rank]);
    explicit_bzero(line, sizeof(line));
}

static void answer_all(struct job *job)
{
    int i;

    for (i = 0; i < job->ranks; i++)
        answer(job, i);
    job->answered = true;
    job->beat_ns = vb_clock_ns();
}

static void beat(struct job *job)
{
    uint64_t now = vb_clock_ns();

    if (job->beat_ns == 0 || now < job->beat_ns)
        return;
    vb_remote_send(job->in_fds, job->ranks, VB_BEAT);
    job->beat_ns = now + (uint64_t)VB_BEAT_MS * 1000000;
}

static bool take_hello(void *arg, int rank, const char *line)
{
    struct job *job = arg;
    char why[512];
    enum vb_remote_line what = vb_remote_take_line(job->remote, rank, line, why, sizeof(why));

    if (what == VB_LINE_WRONG_PROGRAM) {
        vb_relay_say(job->relay, "%s", why);
        if (vb_job_comes(job, rank))
            vb_job_wrong_program(job, rank, why);
        vb_remote_copy_command(job->remote, rank, why, sizeof(why));
        vb_relay_fix(job->relay, why);
        if (!vb_job_comes(job, rank))
            vb_job_give_up(job);
    } else if (what == VB_LINE_HELLO && job->answered) {
        answer(job, rank); /* it was started again */
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
    vb_job_give_up(job);
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
            st = vb_spawner_start(&job->spawner, i, NULL, &child);
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
    int n = 2 + vb_relay_prepare(job->relay, job->fds + 2);

    bool hears = job->o->elastic || vb_job_takes_more(job->o);

    job->fds[1] = (struct pollfd){.fd = hears ? job->begun_fd : -1, .events = POLLIN};
    job->fds[0] = (struct pollfd){.fd = job->signals.fd, .events = POLLIN};
    if (poll(job->fds, (nfds_t)n, job->alive > 0 ? time_left_ms(job) : -1) < 0) {
        if (errno == EINTR)
            return VB_OK;
        return vb_err_sys("poll");
    }
    if (vb_relay_move(job->relay, job->fds + 2, n - 2) != VB_OK)
        vb_job_give_up(job);
    if (job->fds[0].revents != 0) /* after the output, so that all lines of a dead rank are known */
        take_signals(job);
    vb_job_check_suspect(job);
    vb_job_check_lost(job);
    vb_job_check_add(job);
    if (job->alive > 0) {
        if (job->deadline_ns != 0 && vb_clock_ns() >= job->deadline_ns)
            vb_job_enter(job, (enum stage)(job->stage + 1));
        vb_job_check_stopped(job);
        check_hello(job);
        beat(job);
    }
    if (job->started < job->ranks)
        return start_ranks(job);
    return vb_job_check_restarts(job);
}

static vb_status run(struct job *job)
{
    vb_status st = VB_OK;

    while (st == VB_OK && (goes_on(job) || !job->judged)) {
        if (job->alive == 0) {
            vb_relay_last_call(job->relay);
            vb_job_judge(job);
        }
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
        .all_out = o->outlive || o->elastic,
        .shows = o->hosts == NULL && isatty(STDERR_FILENO) == 1,
        .logs = o->logs,
        .run = o->run,
        .append = o->append,
        .hello_fn = o->hosts != NULL ? take_hello : NULL,
        .hello_arg = job,
    };
    struct vb_times times;
    size_t room;
    vb_status st;

    memset(job, 0, sizeof(*job));
    job->spawner.null_fd = job->spawner.root_fd = job->spawner.begun_fd = job->begun_fd = -1;
    job->suspect = -1;
    vb_oom_init(&job->oom, "");
    job->o = o;
    job->ranks = job->ranks_before = o->hosts != NULL ? o->hosts->ranks : o->ranks;
    room = vb_job_takes_more(o) ? VB_WORLD_MAX : (size_t)job->ranks;
    vb_times_of(0, 0, &times);
    job->grace_ns = (uint64_t)(o->grace_ms > 0 ? o->grace_ms : times.grace_ms) * 1000000;
    st = fill_standard_fds();
    if (st == VB_OK && o->logs != NULL)
        st = vb_dir_make(o->logs);
    if (st == VB_OK && o->hosts != NULL)
        st = vb_remote_create(o, &job->remote);
    if (st == VB_OK && o->hosts != NULL)
        st = vb_launch_begun_line(job->remote->secret, relay.begun_line);
    relay.ranks = job->ranks;
    relay.room = (int)room;
    relay.causes = &job->causes;
    if (st == VB_OK)
        st = vb_causes_init(&job->causes, job->ranks, (int)room);
    if (st == VB_OK)
        st = vb_relay_create(&relay, &job->relay);
    if (st != VB_OK)
        return st;
    job->pids = calloc(room, sizeof(*job->pids));
    job->in_fds = malloc(room * sizeof(*job->in_fds));
    job->fds = calloc(2 * room + 4, sizeof(*job->fds));
    job->dead = calloc(room, sizeof(*job->dead));
    job->lost = calloc(room, sizeof(*job->lost));
    job->again = calloc(room, sizeof(*job->again));
    if (job->pids == NULL || job->in_fds == NULL || job->fds == NULL || job->dead == NULL ||
        job->lost == NULL || job->again == NULL)
        return vb_err(VB_ERR_NO_MEMORY, "no memory to supervise %d ranks", job->ranks);
    memset(job->in_fds, -1, room * sizeof(*job->in_fds));
    return VB_OK;
}

static void job_fini(struct job *job)
{
    vb_spawner_fini(&job->spawner);
    vb_links_close(job->spawner.links); /* the bridge vanishes with the last descriptor */
    vb_relay_destroy(job->relay);
    vb_remote_destroy(job->remote);
    vb_fd_close(&job->begun_fd);
    vb_causes_fini(&job->causes);
    free(job->in_fds);
    free(job->dead);
    free(job->lost);
    free(job->again);
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
    vb_fd_close(&job.spawner.root_fd);
    if (o->restarts == 0 && !vb_job_takes_more(o))
        vb_spawner_fini(&job.spawner);
    if (st == VB_OK)
        st = run(&job);
    kill_the_rest(&job);
    vb_signals_release(&job.signals);
    if (st == VB_OK && o->outlive && job.exit_code == 0 && !job.ended_well)
        job.exit_code = 1; /* no worker is left that could have printed the result */
    if (st == VB_OK)
        *exit_code_p = job.exit_code;
    if (st == VB_OK && o->why != NULL)
        snprintf(o->why, o->why_size, "%s", vb_relay_said(job.relay));
    job_fini(&job);
    return st;
}
