/* SPDX-License-Identifier: MIT
 *
 * Ranks whose processes have ended, as the supervisor says, which has reaped them or has heard it
 * from the reaper on their host. The news come through standard input over ssh (launch_stdin.c),
 * otherwise through a pipe that a thread of this file reads.
 */
#include "launch/launch_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct vb_reaped {
    pthread_mutex_t lock;
    vb_reaped_fn fn; /* NULL: nobody asks */
    void *arg;
    bool ended[VB_WORLD_MAX];
    int number; /* the rank in the text that is being read; -1: none */
    int digits; /* number of its digits so far */
    int fd;     /* for the thread */
    bool reads; /* there is a thread */
    struct vb_answers *answers;
};

struct vb_reaped *vb_reaped_create(struct vb_answers *answers)
{
    struct vb_reaped *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return NULL;
    pthread_mutex_init(&r->lock, NULL);
    r->number = -1;
    r->answers = answers;
    return r;
}

static void note(struct vb_reaped *r, int rank)
{
    if (rank >= VB_WORLD_MAX || r->ended[rank])
        return;
    r->ended[rank] = true;
    if (r->fn != NULL)
        r->fn(r->arg, rank);
}

static void take_byte(struct vb_reaped *r, char byte)
{
    if (byte == VB_REAPED) {
        r->number = r->digits = 0;
    } else if (r->number >= 0 && byte >= '0' && byte <= '9' && r->number < VB_WORLD_MAX) {
        r->number = 10 * r->number + byte - '0';
        r->digits++;
    } else {
        if (r->number >= 0 && r->digits > 0 && byte == '\n')
            note(r, r->number);
        r->number = -1;
    }
}

void vb_reaped_take(struct vb_reaped *r, const char *bytes, size_t n)
{
    size_t i;

    pthread_mutex_lock(&r->lock);
    for (i = 0; i < n; i++)
        take_byte(r, bytes[i]);
    pthread_mutex_unlock(&r->lock);
}

/* The pipe ends with the supervisor, and the kernel then kills this process. */
static void *read_news(void *arg)
{
    struct vb_reaped *r = arg;
    char bytes[256];
    ssize_t n;

    while ((n = read(r->fd, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR)) {
        if (n <= 0)
            continue;
        vb_reaped_take(r, bytes, (size_t)n);
        vb_answers_take(r->answers, bytes, (size_t)n);
    }
    return NULL;
}

/* Without the thread, deaths on this host that shared memory shows are proved all the same. */
static void start_thread(struct vb_reaped *r, int fd)
{
    pthread_attr_t attr;
    pthread_t thread;
    int err;

    r->fd = fd;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    err = pthread_create(&thread, &attr, read_news, r);
    pthread_attr_destroy(&attr);
    r->reads = err == 0;
    if (err != 0)
        VB_LOG_WARN("no thread can be started that hears from the supervisor which ranks have "
                    "ended: %s",
                    strerror(err));
}

void vb_launch_on_reaped(const struct vb_launch *launch, vb_reaped_fn fn, void *arg)
{
    struct vb_reaped *r = launch->reaped;
    int i;

    if (r == NULL)
        return;
    pthread_mutex_lock(&r->lock);
    r->fn = fn;
    r->arg = arg;
    for (i = 0; fn != NULL && i < VB_WORLD_MAX; i++)
        if (r->ended[i])
            fn(arg, i);
    if (fn != NULL && launch->reaped_fd > 0 && !r->reads)
        start_thread(r, launch->reaped_fd);
    pthread_mutex_unlock(&r->lock);
}

bool vb_launch_hears(const struct vb_launch *launch)
{
    struct vb_reaped *r = launch->reaped;
    bool hears;

    if (r == NULL || launch->over_ssh)
        return r != NULL; /* launch_stdin.c reads */
    pthread_mutex_lock(&r->lock);
    if (!r->reads)
        start_thread(r, launch->reaped_fd);
    hears = r->reads;
    pthread_mutex_unlock(&r->lock);
    return hears;
}
