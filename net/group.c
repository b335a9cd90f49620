/* SPDX-License-Identifier: MIT
 *
 * How ranks become a group:
 *
 *   1. Rank 0 listens at the root address, the others dial it and prove the secret.
 *   2. The roll call: everybody learns where everybody is.
 *   3. Each rank dials every lower one: one control connection a pair.
 *   4. For each pair the lower rank gives a one-time key; the higher dials a data connection with
 *      it, over a unix socket where both are on one host, over TCP otherwise. Which of the two it
 *      was says which transport the pair has.
 */
#include "net/group_priv.h"
#include "net/route.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEAT_MS 250
#define SILENT_MS 3000
#define QUEUE_DEPTH 128
#define EPOCH 1

/* ---- who and where this rank is -------------------------------------------------------------- */

static void describe(struct vb_group *g, const struct sock_addr *at, const char *unix_name)
{
    struct wire_info *info = &g->peers[g->rank].info;
    char host[WIRE_HOST] = "", boot[WIRE_BOOT_ID] = "";
    struct stat sb;

    memset(info, 0, sizeof(*info));
    info->rank = (uint32_t)g->rank;
    info->pid = (uint32_t)getpid();
    info->netns = stat("/proc/self/ns/net", &sb) == 0 ? (uint64_t)sb.st_ino : 0;
    info->port = (uint32_t)sock_port(at);
    sock_host_text(at, info->addr, sizeof(info->addr));
    if (gethostname(host, sizeof(host) - 1) == 0)
        memcpy(info->host, host, sizeof(host));
    if (vb_probe_line(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id"))
        memcpy(info->boot_id, boot, sizeof(boot));
    snprintf(info->unix_name, sizeof(info->unix_name), "%s", unix_name);
}

static bool same_host(const struct wire_info *a, const struct wire_info *b)
{
    return a->boot_id[0] != '\0' && strcmp(a->boot_id, b->boot_id) == 0 && a->netns != 0 &&
           a->netns == b->netns;
}

/* ---- control connections --------------------------------------------------------------------- */

static vb_status open_unix(char name[WIRE_UNIX_NAME], int *fd_p)
{
    unsigned char random[12];
    size_t i, len;

    auth_random(random, sizeof(random));
    len = (size_t)snprintf(name, WIRE_UNIX_NAME, "verbena-");
    for (i = 0; i < sizeof(random); i++)
        len += (size_t)snprintf(name + len, WIRE_UNIX_NAME - len, "%02x", random[i]);
    return sock_listen_unix(name, fd_p);
}

static vb_status open_control(struct vb_group *g, int listen_fd, int unix_fd)
{
    struct control_opts opts = {.rank = g->rank,
                                .world = g->world,
                                .epoch = EPOCH,
                                .secret = g->opts.secret,
                                .listen_fd = listen_fd,
                                .unix_fd = unix_fd,
                                .beat_ms = BEAT_MS,
                                .silent_ms = SILENT_MS,
                                .alarm = group_wake,
                                .arg = g};

    return control_open(&opts, &g->control);
}

/* The socket of rank 0: given by a supervisor, or made at the root address. */
static vb_status listen_as_root(struct vb_group *g, int *fd_p)
{
    struct sock_addr at;
    vb_status st;

    if (g->opts.root_fd >= 0) {
        if (fcntl(g->opts.root_fd, F_SETFL, O_NONBLOCK) != 0)
            return vb_err_sys("take over descriptor %d", g->opts.root_fd);
        *fd_p = g->opts.root_fd;
        return VB_OK;
    }
    st = sock_resolve(g->opts.root, &at);
    return st == VB_OK ? sock_listen(&at, fd_p) : st;
}

/* The others listen where their route to the root leaves this host: a datagram socket that is
 * connected, and sends nothing, tells. */
static vb_status listen_towards(const struct sock_addr *root, int *fd_p)
{
    struct sock_addr local;
    vb_status st;
    int fd;

    fd = socket(root->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return vb_err_sys("socket");
    if (connect(fd, (const struct sockaddr *)&root->sa, root->len) != 0) {
        st = vb_err_sys("find the way to rank 0");
        close(fd);
        return st;
    }
    st = sock_local(fd, &local);
    close(fd);
    if (st != VB_OK)
        return st;
    if (local.sa.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&local.sa)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&local.sa)->sin_port = 0;
    return sock_listen(&local, fd_p);
}

/* A listening socket, the control thread, and for all but rank 0 the connection to the root. */
static vb_status join(struct vb_group *g, uint64_t deadline)
{
    struct sock_addr root, at;
    char unix_name[WIRE_UNIX_NAME];
    int listen_fd = -1, unix_fd = -1;
    vb_status st;

    st = g->rank == 0 ? VB_OK : sock_resolve(g->opts.root, &root);
    if (st == VB_OK)
        st = g->rank == 0 ? listen_as_root(g, &listen_fd) : listen_towards(&root, &listen_fd);
    if (st != VB_OK)
        return st;
    st = sock_local(listen_fd, &at);
    if (st == VB_OK)
        st = open_unix(unix_name, &unix_fd);
    if (st != VB_OK) {
        close(listen_fd);
        return st;
    }
    describe(g, &at, unix_name);
    st = open_control(g, listen_fd, unix_fd); /* owns both from here on */
    if (st == VB_OK && g->rank > 0)
        st = control_dial(g->control, 0, &root, deadline);
    return st;
}

static vb_status learn_peers(struct vb_group *g, uint64_t deadline)
{
    struct wire_info *infos = calloc((size_t)g->world, sizeof(*infos));
    vb_status st;
    int i;

    if (infos == NULL)
        return vb_err_sys("calloc");
    infos[g->rank] = g->peers[g->rank].info;
    st = control_roll_call(g->control, infos, deadline);
    for (i = 0; i < g->world && st == VB_OK; i++)
        g->peers[i].info = infos[i];
    free(infos);
    return st;
}

/* Where a peer listens. Rank 0 may listen on all addresses; what reached it once will again. */
static vb_status address_of(struct vb_group *g, int rank, struct sock_addr *addr_p)
{
    const struct wire_info *info = &g->peers[rank].info;

    if (rank == 0)
        return sock_resolve(g->opts.root, addr_p);
    if (!sock_from_text(info->addr, (int)info->port, addr_p))
        return vb_err(VB_ERR_INPUT, "rank %d says it listens at %s", rank, info->addr);
    return VB_OK;
}

static vb_status dial_lower(struct vb_group *g, uint64_t deadline)
{
    struct sock_addr addr;
    vb_status st = VB_OK;
    int i;

    for (i = 1; i < g->rank && st == VB_OK; i++) {
        st = address_of(g, i, &addr);
        if (st == VB_OK)
            st = control_dial(g->control, i, &addr, deadline);
    }
    return st == VB_OK ? control_wait_up(g->control, 0, g->world, deadline) : st;
}

static vb_status check_routes(struct vb_group *g)
{
    struct sock_addr local;
    vb_status st;
    int i;

    for (i = 0; i < g->world; i++) {
        if (i == g->rank || same_host(&g->peers[i].info, &g->peers[g->rank].info))
            continue;
        st = control_local_addr(g->control, i, &local);
        if (st == VB_OK)
            st = route_check(&local, i, g->opts.any_interface);
        if (st != VB_OK)
            return st;
    }
    return VB_OK;
}

/* ---- data connections ------------------------------------------------------------------------ */

static vb_status device_for(struct vb_group *g, const struct vb_transport *transport,
                            struct vb_device **dev_p)
{
    struct vb_device_opts opts = {
        .rank = g->rank, .world = g->world, .queue_depth = QUEUE_DEPTH, .crowded = g->opts.crowded};
    struct epoll_event ev = {.events = EPOLLIN};
    struct vb_device *dev;
    vb_status st;
    int d;

    for (d = 0; d < g->n_devices; d++)
        if (ops_of(g->devices[d]) == transport) {
            *dev_p = g->devices[d];
            return VB_OK;
        }
    st = transport->open(&opts, &dev);
    if (st != VB_OK)
        return st;
    ev.data.fd = transport->wait_fd(dev);
    if (epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev) != 0) {
        st = vb_err_sys("epoll_ctl");
        transport->close(dev);
        return st;
    }
    g->devices[g->n_devices++] = dev;
    *dev_p = dev;
    return VB_OK;
}

static int family_of(int fd)
{
    struct sock_addr addr;

    return sock_local(fd, &addr) == VB_OK ? addr.sa.ss_family : AF_UNSPEC;
}

/* Gives a pair's stream to the transport that its kind stands for. */
static vb_status attach(struct vb_group *g, int rank, int fd)
{
    struct peer *peer = &g->peers[rank];
    bool same_process = peer->info.pid == g->peers[g->rank].info.pid;
    vb_status st;

    peer->transport = family_of(fd) == AF_UNIX ? &vb_transport_shm : &vb_transport_tcp;
    st = device_for(g, peer->transport, &peer->dev);
    if (st != VB_OK) {
        close(fd);
        return st;
    }
    return peer->transport->connect(
        peer->dev, rank, fd, same_process && peer->transport == &vb_transport_shm, &peer->ep);
}

/* Same boot, same network, and the unix socket answers: then it is shared memory. */
static vb_status dial_stream(struct vb_group *g, int rank, uint64_t deadline, int *fd_p)
{
    const struct wire_info *info = &g->peers[rank].info;
    bool near = same_host(info, &g->peers[g->rank].info);
    struct sock_addr addr;
    vb_status st;

    if (near && g->opts.transport != VB_TRANSPORT_TCP &&
        sock_connect_unix(info->unix_name, deadline, fd_p) == VB_OK)
        return VB_OK;
    if (g->opts.transport == VB_TRANSPORT_SHM)
        return vb_err(VB_ERR_UNSUPPORTED,
                      "rank %d (%s) cannot be reached through shared memory from here (%s)", rank,
                      info->host, g->peers[g->rank].info.host);
    st = address_of(g, rank, &addr);
    return st == VB_OK ? sock_connect(&addr, deadline, fd_p) : st;
}

static vb_status dial_data(struct vb_group *g, int rank, uint64_t deadline)
{
    unsigned char key[AUTH_KEY_BYTES];
    vb_status st;
    int fd = -1;

    st = control_take_key(g->control, rank, deadline, key);
    if (st != VB_OK)
        return st;
    st = dial_stream(g, rank, deadline, &fd);
    if (st != VB_OK)
        return st;
    st = control_stream_dial(g->control, rank, fd, key, deadline);
    auth_wipe(key, sizeof(key));
    if (st != VB_OK) {
        close(fd);
        return st;
    }
    return attach(g, rank, fd);
}

/* Every key is given before anything is waited for, so no two ranks wait for each other. */
static vb_status connect_data(struct vb_group *g, uint64_t deadline)
{
    vb_status st = VB_OK;
    int i, fd;

    for (i = g->rank + 1; i < g->world && st == VB_OK; i++)
        st = control_give_key(g->control, i);
    for (i = 0; i < g->rank && st == VB_OK; i++)
        st = dial_data(g, i, deadline);
    for (i = g->rank + 1; i < g->world && st == VB_OK; i++) {
        st = control_stream_wait(g->control, i, deadline, &fd);
        if (st == VB_OK)
            st = attach(g, i, fd);
    }
    return st;
}

/* ---- open and close -------------------------------------------------------------------------- */

static vb_status check_opts(const struct vb_group_opts *o)
{
    if (o->world < 1 || o->world > VB_WORLD_MAX)
        return vb_err(VB_ERR_USAGE, "a world of %d ranks: must be from 1 to %d", o->world,
                      VB_WORLD_MAX);
    if (o->rank < 0 || o->rank >= o->world)
        return vb_err(VB_ERR_USAGE, "rank %d of %d: must be from 0 to %d", o->rank, o->world,
                      o->world - 1);
    if (o->root == NULL && (o->rank > 0 || o->root_fd < 0))
        return vb_err(VB_ERR_USAGE, "no root address: where does rank 0 listen?");
    if (o->timeout_ms <= 0)
        return vb_err(VB_ERR_USAGE, "a timeout of %d ms", o->timeout_ms);
    return VB_OK;
}

static vb_status group_alloc(const struct vb_group_opts *opts, struct vb_group **group_p)
{
    struct epoll_event ev = {.events = EPOLLIN};
    pthread_mutexattr_t attr;
    struct vb_group *g;

    g = calloc(1, sizeof(*g));
    if (g == NULL) {
        (void)vb_err_sys("calloc");
        return VB_ERR_NO_MEMORY;
    }
    g->opts = *opts;
    g->rank = opts->rank;
    g->world = opts->world;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    g->peers = calloc((size_t)g->world, sizeof(*g->peers));
    g->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ev.data.fd = g->wake_fd;
    *group_p = g; /* the caller closes it, whatever happened */
    if (g->peers == NULL || g->epoll_fd < 0 || g->wake_fd < 0 ||
        epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, g->wake_fd, &ev) != 0)
        return vb_err_sys("open a group");
    return VB_OK;
}

/* What the pairs of this rank have: "shm", "tcp", "shm+tcp", or "self" when it is alone. */
static void name_transports(struct vb_group *g)
{
    int d;

    if (g->n_devices == 0)
        snprintf(g->transports, sizeof(g->transports), "self");
    for (d = 0; d < g->n_devices; d++) {
        size_t len = strlen(g->transports);

        snprintf(g->transports + len, sizeof(g->transports) - len, "%s%s", d > 0 ? "+" : "",
                 ops_of(g->devices[d])->name);
    }
}

static vb_status group_join(struct vb_group *g)
{
    uint64_t deadline = group_deadline(g);
    vb_status st;

    st = auth_init();
    if (st == VB_OK)
        st = join(g, deadline);
    if (st == VB_OK)
        st = learn_peers(g, deadline);
    if (st == VB_OK)
        st = dial_lower(g, deadline);
    if (st == VB_OK)
        st = check_routes(g);
    if (st == VB_OK)
        st = connect_data(g, deadline);
    if (st != VB_OK)
        return st;
    name_transports(g);
    if (g->opts.progress && strstr(g->transports, "tcp") != NULL) {
        st = progress_start(g);
        if (st != VB_OK)
            return st;
    }
    return coll_open(g);
}

vb_status vb_group_open(const struct vb_group_opts *opts, struct vb_group **group_p)
{
    struct vb_group *g = NULL;
    vb_status st;

    st = check_opts(opts);
    if (st == VB_OK)
        st = group_alloc(opts, &g);
    if (st == VB_OK)
        st = group_join(g);
    if (st != VB_OK) {
        if (g != NULL && g->control != NULL)
            vb_group_abort(g, "it could not join the group");
        vb_group_close(g);
        return st;
    }
    *group_p = g;
    return VB_OK;
}

void vb_group_close(struct vb_group *g)
{
    int i, d;

    if (g == NULL)
        return;
    coll_close(g);
    progress_stop(g);
    control_close(g->control); /* first, so that peers read our goodbye before sockets close */
    for (i = 0; g->peers != NULL && i < g->world; i++)
        if (g->peers[i].ep != NULL)
            g->peers[i].transport->disconnect(g->peers[i].ep);
    for (d = 0; d < g->n_devices; d++)
        ops_of(g->devices[d])->close(g->devices[d]);
    if (g->epoll_fd >= 0)
        close(g->epoll_fd);
    if (g->wake_fd >= 0)
        close(g->wake_fd);
    auth_wipe(g->opts.secret, sizeof(g->opts.secret));
    pthread_mutex_destroy(&g->lock);
    free(g->peers);
    free(g);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int vb_group_rank(const struct vb_group *g)
{
    return g->rank;
}

int vb_group_world(const struct vb_group *g)
{
    return g->world;
}

const char *vb_group_host(const struct vb_group *g, int rank)
{
    return g->peers[rank].info.host;
}

const char *vb_group_transport(const struct vb_group *g, int rank)
{
    return g->peers[rank].transport != NULL ? g->peers[rank].transport->name : "self";
}

const char *vb_group_transports(const struct vb_group *g)
{
    return g->transports;
}

void vb_group_abort(struct vb_group *g, const char *why)
{
    control_abort(g->control, why);
}

void vb_group_step(struct vb_group *g)
{
    control_step(g->control);
}
