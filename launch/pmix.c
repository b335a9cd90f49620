/* SPDX-License-Identifier: MIT
 *
 * PMIx is how mpirun and srun --mpi=pmix tell processes their rank. It also carries a line from
 * rank 0: rank 0 puts it, all ranks meet at a fence, and the others get it.
 *
 * Not every server respects the timeouts of PMIx, so this file does the waiting. The fence and the
 * get call back from a thread of the library. Calls that wait only for the server of this host run
 * in a thread of their own. If the server does not answer, that thread stays in the library until
 * the process ends, which is soon.
 */
#include "launch/launch_priv.h"

#include <pmix.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEY "verbena.root"
#define LINE_BYTES 512 /* size of the buffer for the line of rank 0 */

struct reply {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    pmix_status_t code;
    char *line; /* the result of a get */
};

static vb_status failed(const char *what, pmix_status_t code)
{
    return vb_err(VB_ERR_PEER, "%s: %s", what, PMIx_Error_string(code));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static struct reply *reply_create(void)
{
    struct reply *r = calloc(1, sizeof(*r));
    pthread_condattr_t attr;

    if (r == NULL)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

static void reply_destroy(struct reply *r)
{
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    if (r->line != NULL)
        explicit_bzero(r->line, strlen(r->line)); /* the line holds the secret */
    free(r->line);
    free(r);
}

static void on_done(pmix_status_t code, void *arg)
{
    struct reply *r = arg;

    pthread_mutex_lock(&r->lock);
    r->code = code;
    r->done = true;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* False: the deadline has passed. The reply must not be freed then: the library may write to it. */
static bool reply_came(struct reply *r, uint64_t deadline)
{
    struct timespec at = {.tv_sec = (time_t)(deadline / 1000000000),
                          .tv_nsec = (long)(deadline % 1000000000)};
    bool done;
    int err = 0;

    pthread_mutex_lock(&r->lock);
    while (!r->done && err == 0)
        err = pthread_cond_timedwait(&r->changed, &r->lock, &at);
    done = r->done;
    pthread_mutex_unlock(&r->lock);
    return done;
}

struct call {
    struct reply *reply;
    vb_status (*fn)(struct call *c);
    struct launch_found found;
    char line[LINE_BYTES]; /* may hold the secret */
    vb_status st;
};

static void *call_main(void *arg)
{
    struct call *c = arg;

    c->st = c->fn(c);
    on_done(PMIX_SUCCESS, c->reply);
    return NULL;
}

static void call_destroy(struct call *c)
{
    if (c != NULL && c->reply != NULL)
        reply_destroy(c->reply);
    if (c != NULL)
        explicit_bzero(c->line, sizeof(c->line));
    free(c);
}

static double seconds_since(uint64_t begin)
{
    return (double)(vb_clock_ns() - begin) / 1e9;
}

/* Runs fn in a thread. fn works on a copy of found, which is copied back if fn ends in time. line:
 * for fn, or NULL; it is kept if fn does not end, and then leaks. */
static vb_status call_within(vb_status (*fn)(struct call *c), const char *what, uint64_t deadline,
                             struct launch_found *found, const char *line)
{
    struct call *c = calloc(1, sizeof(*c));
    uint64_t begin = vb_clock_ns();
    pthread_t thread;
    vb_status st;

    if (c != NULL)
        *c = (struct call){.reply = reply_create(), .fn = fn, .found = *found};
    if (c != NULL && line != NULL)
        snprintf(c->line, sizeof(c->line), "%s", line);
    if (c == NULL || c->reply == NULL || pthread_create(&thread, NULL, call_main, c) != 0) {
        call_destroy(c);
        return vb_err(VB_ERR_NO_MEMORY, "%s: no memory for a thread", what);
    }
    if (!reply_came(c->reply, deadline)) {
        pthread_detach(thread);
        return vb_err(VB_ERR_TIMEOUT,
                      "%s: the PMIx server of this host has not answered within %.1f s; "
                      "--timeout waits longer" LAUNCH_ALONE,
                      what, seconds_since(begin));
    }
    pthread_join(thread, NULL);
    *found = c->found;
    st = c->st;
    call_destroy(c);
    return st;
}

/* ---- rank and world -------------------------------------------------------------------------- */

/* Asks for a number about a process or, with PMIX_RANK_WILDCARD, about the job. */
static vb_status ask(const pmix_proc_t *who, const char *key, int64_t max, int *value_p)
{
    pmix_value_t *value = NULL;
    pmix_status_t code = PMIx_Get(who, key, NULL, 0, &value);
    int64_t n = -1;

    if (code != PMIX_SUCCESS)
        return failed(key, code);
    if (value->type == PMIX_UINT32)
        n = value->data.uint32;
    else if (value->type == PMIX_UINT16)
        n = value->data.uint16;
    else if (value->type == PMIX_PROC_RANK)
        n = value->data.rank;
    PMIX_VALUE_RELEASE(value);
    if (n < 0 || n > max)
        return vb_err(VB_ERR_PEER, "%s: the PMIx server did not return a number from 0 to %lld",
                      key, (long long)max);
    *value_p = (int)n;
    return VB_OK;
}

static vb_status join(struct call *c)
{
    struct launch_found *found = &c->found;
    pmix_proc_t me, all;
    vb_status st;
    pmix_status_t code = PMIx_Init(&me, NULL, 0);

    if (code != PMIX_SUCCESS)
        return vb_err(
            VB_ERR_PEER,
            "PMIX_RANK is set, but the PMIx server that set it cannot be reached: %s" LAUNCH_ALONE,
            PMIx_Error_string(code));
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    st = ask(&all, PMIX_JOB_SIZE, VB_WORLD_MAX, &found->world);
    if (st == VB_OK)
        st = ask(&all, PMIX_LOCAL_SIZE, found->world, &found->local_ranks);
    if (st == VB_OK)
        st = ask(&me, PMIX_LOCAL_RANK, found->local_ranks - 1, &found->local_rank);
    if (st == VB_OK && (found->world < 1 || me.rank >= (pmix_rank_t)found->world))
        st = vb_err(VB_ERR_PEER, "PMIx: rank %u is impossible in a job of %d ranks", me.rank,
                    found->world);
    if (st != VB_OK) {
        (void)PMIx_Finalize(NULL, 0);
        return st;
    }
    found->rank = (int)me.rank;
    found->one_host = found->local_ranks == found->world;
    snprintf(found->job, sizeof(found->job), "%.*s", PMIX_MAX_NSLEN, me.nspace);
    found->by = LAUNCH_BY_PMIX;
    return VB_OK;
}

vb_status vb_pmix_join(uint64_t deadline, struct launch_found *found)
{
    return call_within(join, "PMIx_Init", deadline, found, NULL);
}

static vb_status leave(struct call *c)
{
    (void)c;
    (void)PMIx_Finalize(NULL, 0);
    return VB_OK;
}

vb_status vb_pmix_leave(uint64_t deadline)
{
    struct launch_found nobody = {.by = LAUNCH_BY_NOBODY};

    return call_within(leave, "PMIx_Finalize", deadline, &nobody, NULL);
}

/* ---- the line of rank 0 ---------------------------------------------------------------------- */

static void on_value(pmix_status_t code, pmix_value_t *value, void *arg)
{
    struct reply *r = arg;

    if (code == PMIX_SUCCESS && value != NULL && value->type == PMIX_STRING)
        r->line = strdup(value->data.string);
    on_done(code, r);
}

static vb_status reply_wait(struct reply *r, const char *what, pmix_status_t started,
                            uint64_t deadline)
{
    uint64_t begin = vb_clock_ns();

    if (started == PMIX_OPERATION_SUCCEEDED)
        return VB_OK;
    if (started != PMIX_SUCCESS)
        return failed(what, started);
    if (!reply_came(r, deadline))
        return vb_err(VB_ERR_TIMEOUT,
                      "%s: no answer within %.1f s: a rank has not come this far, or the PMIx "
                      "server hangs; --timeout waits longer" LAUNCH_ALONE,
                      what, seconds_since(begin));
    return r->code == PMIX_SUCCESS ? VB_OK : failed(what, r->code);
}

static vb_status fence(uint64_t deadline)
{
    struct reply *r = reply_create();
    pmix_info_t info;
    bool collect = true;
    vb_status st;

    if (r == NULL)
        return vb_err_sys("calloc");
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    st = reply_wait(r, "PMIx_Fence", PMIx_Fence_nb(NULL, 0, &info, 1, on_done, r), deadline);
    if (st != VB_ERR_TIMEOUT)
        reply_destroy(r);
    return st;
}

static vb_status get(const char *job, uint64_t deadline, char *line, size_t size)
{
    struct reply *r = reply_create();
    pmix_proc_t root;
    vb_status st;

    if (r == NULL)
        return vb_err_sys("calloc");
    PMIX_LOAD_PROCID(&root, job, 0);
    st = reply_wait(r, "PMIx_Get", PMIx_Get_nb(&root, KEY, NULL, 0, on_value, r), deadline);
    if (st == VB_OK && (r->line == NULL || strlen(r->line) >= size))
        st = vb_err(VB_ERR_PEER, "PMIx_Get: rank 0 has stored an unexpected value");
    if (st == VB_OK)
        snprintf(line, size, "%s", r->line);
    if (st != VB_ERR_TIMEOUT)
        reply_destroy(r);
    return st;
}

static vb_status put(struct call *c)
{
    pmix_value_t value;
    pmix_status_t code;

    PMIX_VALUE_LOAD(&value, c->line, PMIX_STRING);
    code = PMIx_Put(PMIX_GLOBAL, KEY, &value);
    if (value.data.string != NULL)
        explicit_bzero(value.data.string, strlen(value.data.string));
    PMIX_VALUE_DESTRUCT(&value);
    if (code == PMIX_SUCCESS)
        code = PMIx_Commit();
    return code == PMIX_SUCCESS ? VB_OK : failed("PMIx_Put", code);
}

vb_status vb_pmix_share(const struct launch_found *found, uint64_t deadline, char *line,
                        size_t size)
{
    struct launch_found own = *found;
    vb_status st = VB_OK;

    if (found->rank == 0)
        st = call_within(put, "PMIx_Put", deadline, &own, line);
    if (st == VB_OK)
        st = fence(deadline);
    if (st == VB_OK && found->rank != 0)
        st = get(found->job, deadline, line, size);
    return st;
}

const char *vb_launch_pmix_library(void)
{
    return PMIx_Get_version();
}
