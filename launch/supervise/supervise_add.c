/* SPDX-License-Identifier: MIT
 *
 * Ranks that the user adds to a running job (verbena ctl). The rank that reports asks for them.
 * They are started as processes that join the job, in places behind those of the ranks before. The
 * rank that asked gets the answer when each of them trains or has ended. The job goes on in any
 * case.
 */
#include "launch/supervise/supervise_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define JOIN_NS UINT64_C(180000000000) /* time to start, to read the data and to join */
#define AT_ONCE 8 /* an sshd refuses more than 10 connections that have not logged in yet */

bool vb_job_takes_more(const struct vb_supervise_opts *o)
{
    return (o->elastic || o->outlive) && o->joiner != NULL;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* A pipe that is full belongs to a rank that does not read, which others lose soon. */
static void answer(const struct job *job, const struct vb_add_request *ask,
                   const struct vb_added *added)
{
    char line[VB_ADDED_LINE];
    int n = vb_added_line(added, ask->number, line);

    if (job->in_fds[ask->by] >= 0 && write(job->in_fds[ask->by], line, (size_t)n) != n)
        VB_LOG_DEBUG("rank %d gets no answer: %s", ask->by, strerror(errno));
}

static void refuse(const struct job *job, const struct vb_add_request *ask, const char *fmt, ...)
    VB_PRINTF(3, 4);

static void refuse(const struct job *job, const struct vb_add_request *ask, const char *fmt, ...)
{
    struct vb_added added = {.done = false};
    va_list args;

    va_start(args, fmt);
    vsnprintf(added.text, sizeof(added.text), fmt, args);
    va_end(args);
    answer(job, ask, &added);
}

/* In ascending order. */
static void add_rank(struct vb_added *added, int rank)
{
    int i;

    for (i = added->n++; i > 0 && added->ranks[i - 1] > rank; i--)
        added->ranks[i] = added->ranks[i - 1];
    added->ranks[i] = rank;
}

/* Writes "rank 3", "ranks 3 and 4" or "ranks 3, 4 and 5". */
static size_t list_ranks(const struct vb_added *added, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "rank%s", added->n == 1 ? "" : "s");
    int i;

    for (i = 0; i < added->n && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s %d",
                                i == 0              ? ""
                                : i == added->n - 1 ? " and"
                                                    : ",",
                                added->ranks[i]);
    return len < size ? len : size - 1;
}

static void fill_text(const struct vb_adding *a, struct vb_added *added)
{
    size_t size = sizeof(added->text), len = 0;
    int missing = a->ask.n - added->n;

    if (added->n > 0) {
        len = list_ranks(added, added->text, size);
        len += (size_t)snprintf(added->text + len, size - len, " %s joined",
                                added->n == 1 ? "has" : "have");
        if (a->ask.host[0] != '-' && len < size)
            len += (size_t)snprintf(added->text + len, size - len, " on host %s", a->ask.host);
    }
    if (missing > 0 && len < size)
        snprintf(added->text + len, size - len, "%s%s", len > 0 ? "; not all could: " : "", a->why);
}

static void end_one(struct job *job, int rank)
{
    struct vb_adding *a = &job->adding;

    if (a->why[0] == '\0')
        snprintf(a->why, sizeof(a->why),
                 "a process that was to join has not trained within %d s, and was ended",
                 (int)(JOIN_NS / 1000000000));
    kill(-job->pids[rank], SIGKILL);
}

static void finish(struct job *job)
{
    struct vb_adding *a = &job->adding;
    struct vb_added added = {.done = false};
    int i;

    a->under_way = false;
    for (i = a->first; i < a->first + a->started; i++) {
        if (job->causes.trains[i] >= 0)
            add_rank(&added, job->causes.trains[i]);
        else if (job->pids[i] > 0)
            end_one(job, i);
    }
    added.done = added.n == a->ask.n;
    fill_text(a, &added);
    answer(job, &a->ask, &added);
    if (added.n > 0)
        vb_relay_warn(job->relay, "the user has added ranks (verbena ctl): %.400s", added.text);
}

/* ---- a process that was to join has ended ---------------------------------------------------- */

bool vb_job_comes(const struct job *job, int rank)
{
    return job->again[rank].added && job->causes.trains[rank] < 0;
}

/* Its host has not started it, which ssh or the shell there has explained. */
static void explain_no_start(struct job *job, int rank, const siginfo_t *info)
{
    struct vb_adding *a = &job->adding;
    const char *said = vb_relay_last_line(job->relay, rank);
    const struct vb_remedy *remedy = vb_remedy_find(said);
    char fix[400];
    size_t len;

    if (a->why[0] != '\0') /* of a wrong program, or of another rank of this host */
        return;
    vb_remote_explain(job->remote, rank, info, said, a->why, sizeof(a->why));
    len = strlen(a->why);
    if (remedy == NULL || remedy->fix[0] == NULL)
        return;
    vb_remedy_fill(remedy->fix[0], vb_remote_host(job->remote, rank), job->remote->program, fix,
                   sizeof(fix));
    snprintf(a->why + len, sizeof(a->why) - len, "; fix: %s", fix);
}

static void explain_end(struct job *job, int rank, const siginfo_t *info)
{
    struct vb_adding *a = &job->adding;
    const char *said = vb_relay_last_error(job->relay, rank);

    if (a->why[0] != '\0')
        return;
    snprintf(a->why, sizeof(a->why),
             "a process that was to join has ended before it did (%s %d)%s%s",
             info->si_code == CLD_EXITED ? "exit code" : "signal", info->si_status,
             said[0] != '\0' ? ": " : "", said);
}

void vb_job_end_of_newcomer(struct job *job, int rank, const siginfo_t *info)
{
    bool starts = job->remote != NULL && !job->remote->has_hello[rank];
    bool knows = job->adding.why[0] != '\0';

    if (job->o->elastic && info->si_status != 0) { /* the ranks may have begun to rely on it */
        job->lost[rank] = (struct vb_lost){.dead = true, .said = true, .at_ns = vb_clock_ns()};
    }
    if (job->stage != RUNNING)
        return;
    if (starts && !knows)
        vb_job_say_death(job, rank, info, true);
    else if (!starts && !knows)
        vb_relay_warn(job->relay,
                      "a process that was to join has ended before it did (%s %d); training goes "
                      "on",
                      info->si_code == CLD_EXITED ? "exit code" : "signal", info->si_status);
    if (starts)
        explain_no_start(job, rank, info);
    else
        explain_end(job, rank, info);
}

void vb_job_wrong_program(struct job *job, int rank, const char *why)
{
    if (job->adding.under_way && job->adding.why[0] == '\0')
        snprintf(job->adding.why, sizeof(job->adding.why), "%s", why);
    if (job->pids[rank] > 0)
        kill(-job->pids[rank], SIGKILL);
}

/* ---- a request ------------------------------------------------------------------------------- */

static bool is_here(const char *host)
{
    char name[VB_HOST_NAME] = "";

    return strcmp(host, "-") == 0 || strcmp(host, "localhost") == 0 ||
           (gethostname(name, sizeof(name) - 1) == 0 && strcmp(host, name) == 0);
}

/* Returns NULL if the job can take ranks now; otherwise why not. */
static const char *why_not_now(struct job *job)
{
    if (job->stage != RUNNING)
        return "the job is about to end";
    if (!vb_job_has_begun(job))
        return "training has not begun on all ranks; ask again in a moment";
    if (job->adding.under_way)
        return "the ranks that were asked for before have not joined yet; ask again in a moment";
    if (job->causes.doors[0] == '\0')
        return "nobody can join this job: it has not said where";
    if (job->o->outlive && job->pids[0] <= 0)
        return "rank 0 is gone, and nobody can join without it";
    if (job->spawner.links != NULL)
        return "the ranks of --link have networks that are made at the start";
    return NULL;
}

/* Finds the host, for which *at_p is its number in the list of the remote ranks. Answers and
 * returns false if there can be no rank. */
static bool find_host(struct job *job, const struct vb_add_request *ask, int *at_p)
{
    *at_p = -1;
    if (job->remote == NULL && !is_here(ask->host)) {
        refuse(job, ask,
               "the ranks of this job are on one host (--ranks): more of them can be "
               "added here alone, with \"add %d\"; jobs of --hosts take other hosts",
               ask->n);
        return false;
    }
    if (job->remote == NULL)
        return true;
    if (!vb_host_is_name(ask->host)) {
        refuse(job, ask, "name a host, such as \"add %s:%d\"", vb_remote_host(job->remote, 0),
               ask->n);
        return false;
    }
    *at_p = vb_remote_find(job->remote, ask->host);
    if (*at_p < 0)
        refuse(job, ask, "there is no memory for another host");
    return *at_p >= 0;
}

static void take_request(struct job *job)
{
    struct vb_add_request ask = job->causes.ask;
    const char *why = why_not_now(job);
    int at;

    job->causes.ask.n = 0;
    if (why != NULL) {
        refuse(job, &ask, "%s", why);
        return;
    }
    if (job->ranks + ask.n > VB_WORLD_MAX) {
        refuse(job, &ask, "the supervisor has started %d processes, and can start %d", job->ranks,
               VB_WORLD_MAX);
        return;
    }
    if (!find_host(job, &ask, &at))
        return;
    job->adding = (struct vb_adding){.under_way = true, .ask = ask, .at = at, .first = job->ranks};
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Makes a place for one more rank, which has not joined yet. */
static int add_place(struct job *job)
{
    int rank = job->ranks++;

    job->started++;
    job->spawner.ranks = job->ranks;
    job->in_fds[rank] = -1;
    job->again[rank].added = true;
    vb_causes_grow(&job->causes);
    vb_relay_grow(job->relay);
    if (job->remote != NULL)
        vb_remote_place(job->remote, rank, job->adding.at);
    return rank;
}

/* Returns how many have been started that have no number in the job yet. */
static int on_their_way(const struct job *job)
{
    const struct vb_adding *a = &job->adding;
    int i, n = 0;

    for (i = a->first; i < a->first + a->started; i++)
        n += job->pids[i] > 0 && job->causes.numbers[i] < 0;
    return n;
}

/* If one cannot be started, neither can the others. */
static void start_some(struct job *job)
{
    struct vb_adding *a = &job->adding;

    while (a->started < a->ask.n && on_their_way(job) < AT_ONCE && a->why[0] == '\0') {
        a->started++;
        a->deadline_ns = vb_clock_ns() + JOIN_NS;
        if (vb_job_start_joiner(job, add_place(job)) != VB_OK)
            snprintf(a->why, sizeof(a->why), "no process could be started: %s", strerror(errno));
    }
}

/* Returns whether each of them trains or has ended. */
static bool is_settled(struct job *job)
{
    const struct vb_adding *a = &job->adding;
    bool settled = a->started == a->ask.n || a->why[0] != '\0';
    int i;

    for (i = a->first; i < a->first + a->started; i++) {
        if (job->causes.numbers[i] >= 0)
            vb_relay_number(job->relay, i, job->causes.numbers[i]);
        settled = settled && (job->causes.trains[i] >= 0 || job->pids[i] <= 0);
    }
    return settled;
}

void vb_job_check_add(struct job *job)
{
    struct vb_adding *a = &job->adding;

    if (!vb_job_takes_more(job->o))
        return;
    (void)vb_job_has_begun(job); /* reads the news */
    if (job->causes.ask.n > 0)
        take_request(job);
    if (!a->under_way)
        return;
    if (job->stage != RUNNING || job->alive == 0) {
        snprintf(a->why, sizeof(a->why), "the job is about to end");
        finish(job);
        return;
    }
    start_some(job);
    if (is_settled(job) || vb_clock_ns() >= a->deadline_ns)
        finish(job);
}
