/* SPDX-License-Identifier: MIT
 *
 * Servers and workers are members of a group of their own, beside that of the job: a process with a
 * worker and a server is in it twice, so neither thread ever waits for the other's lock. Its
 * members are found as ranks are: worker 0 listens at a port of its own, which the group of the job
 * is told.
 */
#include "engine/train_async_priv.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The host that the job's ranks have found rank 0 at; without a port, brackets left out. */
static void host_of_root(const struct vb_train_opts *o, char host[VB_ROOT_TEXT])
{
    const char *root = o->group.root, *colon = root != NULL ? strrchr(root, ':') : NULL;
    size_t len = colon != NULL ? (size_t)(colon - root) : 0;

    snprintf(host, VB_ROOT_TEXT, "%s", "127.0.0.1");
    if (len == 0 || len >= VB_ROOT_TEXT)
        return;
    if (root[0] == '[' && root[len - 1] == ']')
        snprintf(host, VB_ROOT_TEXT, "%.*s", (int)len - 2, root + 1);
    else
        snprintf(host, VB_ROOT_TEXT, "%.*s", (int)len, root);
}

static vb_status listen_at(const struct addrinfo *at, int *fd_p)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    vb_status st;

    if (fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, VB_WORLD_MAX) == 0) {
        *fd_p = fd;
        return VB_OK;
    }
    st = vb_err_sys("listen for workers and servers");
    if (fd >= 0)
        close(fd);
    return st;
}

/* 0: nobody can say. */
static int port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len = sizeof(at);

    memset(&at, 0, sizeof(at));
    if (getsockname(fd, &at.any, &len) != 0)
        return 0;
    return ntohs(at.any.sa_family == AF_INET6 ? at.v6.sin6_port : at.v4.sin_port);
}

static vb_status listen_for_members(struct vb_async *a)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[VB_ROOT_TEXT];
    vb_status st;
    int err;

    host_of_root(a->trainer->o, host);
    err = getaddrinfo(host, "0", &want, &found);
    if (err != 0)
        return vb_err(VB_ERR_INPUT, "%s: %s", host, gai_strerror(err));
    st = listen_at(found, &a->root_fd);
    freeaddrinfo(found);
    if (st == VB_OK)
        snprintf(a->root, sizeof(a->root), strchr(host, ':') != NULL ? "[%.240s]:%d" : "%.240s:%d",
                 host, port_of(a->root_fd));
    return st;
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
    unsigned char any = 0;

    while (n > 0)
        any |= bytes[--n];
    return any == 0;
}

vb_status async_find_root(struct vb_async *a)
{
    struct vb_trainer *t = a->trainer;
    vb_status st = VB_OK;

    memcpy(a->secret, t->o->group.secret, sizeof(a->secret));
    if (t->o->group.world == 1 && is_zero(a->secret, sizeof(a->secret)))
        st = vb_secret_make(a->secret); /* one process has told nobody */
    if (st == VB_OK && t->rank == 0)
        st = listen_for_members(a);
    if (st == VB_OK && t->place.group != NULL)
        st = vb_group_broadcast(t->place.group, 0, a->root, sizeof(a->root));
    return st;
}

/* Threads that want a cpu of this host; 2 are there where nobody says otherwise. */
static bool is_crowded(const struct vb_async *a)
{
    const struct vb_trainer *t = a->trainer;
    int cpus = CPU_COUNT(&t->cpus), threads = t->o->threads > 0 ? t->o->threads : 1;
    int here = t->o->local_ranks > 0 ? t->o->local_ranks : t->world;

    return here * threads + (t->o->async.dedicated ? 0 : ps_server_ranks(&a->job)) > cpus;
}

struct vb_group_opts async_group(const struct vb_async *a, int rank)
{
    const struct vb_trainer *t = a->trainer;
    struct vb_group_opts o = t->o->group;
    bool large = strcmp(t->o->model, "lenet") == 0 || strcmp(t->o->model, "alexnet") == 0;

    o.rank = rank;
    o.world = a->job.workers + ps_server_ranks(&a->job);
    o.elastic = true;
    o.seats = o.world + a->job.late;
    memcpy(o.secret, a->secret, sizeof(o.secret));
    o.root = a->root;
    o.root_fd = rank == 0 ? a->root_fd : -1;
    o.announce = NULL;
    o.progress = large && rank < a->job.workers; /* a server does nothing but that */
    o.crowded = is_crowded(a);
    if (o.timeout_ms == 0)
        o.timeout_ms = 60000;
    if (t->place.plan != NULL) {
        o.topo = t->place.topo;
        o.plan = t->place.plan;
        o.plan_rank = t->place.local_rank;
    }
    return o;
}
