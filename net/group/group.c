/* SPDX-License-Identifier: MIT
 *
 * How ranks become a group: rank 0 listens at the root address, and the others dial it and prove
 * that they have the secret. In the rendezvous every rank learns the addresses of all others. Each
 * rank dials every lower rank on the control plane. Then the pairs get their data connections
 * (pairs.c).
 */
#include "net/group/group_priv.h"
#include "net/control/root_resolve.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

static vb_status describe(struct vb_group *g, const struct sock_addr *at, const char *unix_name)
{
    struct wire_info *info = &g->peers[g->rank].info;
    char host[WIRE_HOST] = "", boot[WIRE_BOOT_ID] = "";
    struct stat sb;

    memset(info, 0, sizeof(*info));
    info->rank = (uint32_t)g->rank;
    info->netns = stat("/proc/self/ns/net", &sb) == 0 ? (uint64_t)sb.st_ino : 0;
    info->port = (uint32_t)vb_sock_port(at);
    info->door = (uint32_t)g->opts.door;
    vb_sock_host_text(at, info->addr, sizeof(info->addr));
    vb_process_id(&info->process);
    if (gethostname(host, sizeof(host) - 1) == 0)
        memcpy(info->host, host, sizeof(host));
    if (vb_probe_line(boot, sizeof(boot), "/proc/sys/kernel/random/boot_id"))
        memcpy(info->boot_id, boot, sizeof(boot));
    snprintf(info->unix_name, sizeof(info->unix_name), "%s", unix_name);
    return vb_process_token(info->token);
}

static vb_status open_unix(char name[WIRE_UNIX_NAME], int *fd_p)
{
    unsigned char random[12];
    size_t i, len;

    vb_auth_random(random, sizeof(random));
    len = (size_t)snprintf(name, WIRE_UNIX_NAME, "verbena-");
    for (i = 0; i < sizeof(random); i++)
        len += (size_t)snprintf(name + len, WIRE_UNIX_NAME - len, "%02x", random[i]);
    return vb_sock_listen_unix(name, NULL, fd_p);
}

static void tell_lost(void *arg, int rank, const char *why)
{
    const struct vb_group *g = arg;

    if (g->opts.lost != NULL)
        g->opts.lost(g->opts.lost_arg, vb_group_id(g, rank), why);
}

/* Starts the control thread, which takes over listen_fd, also on a new unix socket. */
static vb_status listen_on(struct vb_group *g, int listen_fd)
{
    struct control_opts opts = {.rank = g->rank,
                                .world = g->world,
                                .slots = g->slots,
                                .epoch = g->epoch,
                                .elastic = g->opts.elastic,
                                .agrees = g->opts.agrees,
                                .patience = g->opts.patience,
                                .choice = (uint32_t)g->opts.transport,
                                .secret = g->opts.secret,
                                .listen_fd = listen_fd,
                                .unix_fd = -1,
                                .times = g->times,
                                .heard = g->heard,
                                .alarm = vb_group_wake,
                                .arg = g,
                                .lost = tell_lost,
                                .lost_arg = g,
                                .keeps_losses = g->opts.keeps_losses,
                                .hopeless = g->opts.hopeless,
                                .news = &g->news};
    char unix_name[WIRE_UNIX_NAME];
    struct sock_addr at;
    vb_status st = vb_sock_local(listen_fd, &at);

    if (st == VB_OK)
        st = open_unix(unix_name, &opts.unix_fd);
    if (st == VB_OK)
        st = describe(g, &at, unix_name);
    if (st != VB_OK) {
        close(listen_fd);
        vb_fd_close(&opts.unix_fd);
        return st;
    }
    return vb_control_open(&opts, &g->control);
}

/* The socket is that of the supervisor, or a new one at the root address. */
static vb_status listen_as_root(struct vb_group *g)
{
    char root[VB_ROOT_TEXT];
    int fd = g->opts.root_fd;
    vb_status st = VB_OK;

    if (fd >= 0) {
        if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
            st = vb_err_sys("cannot take over descriptor %d", fd);
    } else { /* vb_root_listen() may change root */
        snprintf(root, sizeof(root), "%s", g->opts.root != NULL ? g->opts.root : "127.0.0.1:0");
        st = vb_root_listen(root, &fd);
    }
    if (st != VB_OK)
        return st;
    g->opts.root_fd = -1;
    return listen_on(g, fd);
}

/* Listens on the address from which this host reaches the root. A connected datagram socket tells
 * this address without sending anything. */
vb_status vb_group_listen_towards(struct vb_group *g, const struct sock_addr *root)
{
    struct sock_addr local;
    vb_status st;
    int fd = socket(root->sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return vb_err_sys("socket");
    if (connect(fd, (const struct sockaddr *)&root->sa, root->len) != 0) {
        st = vb_err_sys("cannot find the route to rank 0 (%s)", g->opts.root);
        vb_log_fix("ip route   # this host must have a route to that address, and no rule may "
                   "forbid it");
        close(fd);
        return st;
    }
    st = vb_sock_local(fd, &local);
    close(fd);
    if (st != VB_OK)
        return st;
    if (local.sa.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&local.sa)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&local.sa)->sin_port = 0;
    st = vb_sock_listen(&local, NULL, &fd);
    return st == VB_OK ? listen_on(g, fd) : st;
}

static vb_status meet_root(struct vb_group *g, uint64_t deadline)
{
    struct sock_addr root;
    vb_status st;

    if (g->rank == 0)
        return listen_as_root(g);
    st = vb_root_resolve(g->opts.root, &root);
    if (st == VB_OK)
        st = vb_group_listen_towards(g, &root);
    if (st != VB_OK)
        return st;
    st = vb_control_dial(g->control, 0, &root, deadline);
    if (st == VB_ERR_TIMEOUT)
        vb_root_fix(g->opts.root);
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
    st = vb_control_rendezvous(g->control, infos, deadline);
    for (i = 0; i < g->world && st == VB_OK; i++)
        g->peers[i].info = infos[i];
    free(infos);
    return st;
}

static vb_status dial_lower(struct vb_group *g, uint64_t deadline)
{
    struct sock_addr addr;
    vb_status st = VB_OK;
    int i;

    for (i = 1; i < g->rank && st == VB_OK; i++) {
        st = vb_pair_address_of(g, i, &addr);
        if (st == VB_OK)
            st = vb_control_dial(g->control, i, &addr, deadline);
    }
    return st == VB_OK ? vb_control_wait_up(g->control, 0, g->world, deadline) : st;
}

vb_status vb_group_check_route(struct vb_group *g, int rank)
{
    struct sock_addr local;
    vb_status st;

    if (rank == g->rank || vb_pair_same_host(g, rank))
        return VB_OK;
    st = vb_control_local_addr(g->control, rank, &local);
    return st == VB_OK ? vb_route_check(&local, rank, g->opts.any_interface) : st;
}

static void peers_init(struct vb_group *g)
{
    int i;

    for (i = 0; i < g->slots; i++) {
        g->peers[i].join_fd = -1;
        g->peers[i].process_fd = g->peers[i].gone_process_fd = -1;
        g->peers[i].epoch = g->epoch;
        g->peers[i].transport = i == g->rank ? NULL : &vb_transport_nobody;
    }
    g->peers[g->rank].member = true;
}

vb_status vb_group_alloc(const struct vb_group_opts *opts, struct vb_group **group_p)
{
    struct epoll_event ev = {.events = EPOLLIN};
    pthread_mutexattr_t attr;
    struct vb_group *g = calloc(1, sizeof(*g));

    if (g == NULL) {
        (void)vb_err_sys("calloc");
        return VB_ERR_NO_MEMORY;
    }
    g->opts = *opts;
    g->opts.root_fd = opts->rank == 0 ? opts->root_fd : -1;
    if (g->opts.patience == 0)
        g->opts.patience = 1;
    g->opts.timeout_ms = (int)(g->opts.timeout_ms * g->opts.patience);
    vb_times_of(g->opts.detect_s, g->opts.patience, &g->times);
    g->rank = opts->rank;
    g->world = opts->world;
    g->slots = opts->slots > 0 ? opts->slots : opts->world;
    g->epoch = GROUP_EPOCH;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&g->front.lock, &attr);
    pthread_mutexattr_destroy(&attr);
    vb_traffic_init(&g->traffic);
    g->peers = calloc((size_t)g->slots, sizeof(*g->peers));
    g->waits = calloc((size_t)g->slots, sizeof(*g->waits));
    g->heard = calloc((size_t)g->slots, sizeof(*g->heard));
    if (g->peers != NULL)
        peers_init(g);
    g->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ev.data.fd = g->wake_fd;
    *group_p = g; /* the caller closes the group, also after a failure */
    if (g->peers == NULL || g->waits == NULL || g->heard == NULL || g->epoll_fd < 0 ||
        g->wake_fd < 0 || epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, g->wake_fd, &ev) != 0)
        return vb_err_sys("cannot open a group");
    return vb_regroup_open(g);
}

/* "shm", "tcp", "shm+verbs", or "self" if this is the only rank. */
static void name_transports(struct vb_group *g)
{
    int d;

    if (g->n_devices == 0)
        snprintf(g->transports, sizeof(g->transports), "self");
    for (d = 0; d < g->n_devices; d++) {
        size_t len = strlen(g->transports);

        snprintf(g->transports + len, sizeof(g->transports) - len, "%s%s", d > 0 ? "+" : "",
                 vb_device_transport(g->devices[d])->name);
    }
}

/* In an elastic group a later joiner may use a transport that needs the progress thread. */
vb_status vb_group_set_going(struct vb_group *g)
{
    bool needed;

    name_transports(g);
    needed = g->n_devices > 0 && strcmp(g->transports, "shm") != 0;
    return g->opts.progress && (needed || g->opts.elastic) ? vb_progress_start(g) : VB_OK;
}

static uint64_t opening_deadline(const struct vb_group *g)
{
    if (g->opts.open_ms <= 0)
        return group_deadline(g);
    return vb_clock_ns() + (uint64_t)(g->opts.open_ms * g->opts.patience * 1e6);
}

static vb_status connect_all(struct vb_group *g)
{
    uint64_t deadline = opening_deadline(g);
    int i;
    vb_status st = vb_auth_init();

    if (st == VB_OK)
        st = meet_root(g, deadline);
    if (st == VB_OK)
        st = learn_peers(g, deadline);
    if (st == VB_OK)
        st = dial_lower(g, deadline);
    for (i = 0; i < g->world && st == VB_OK; i++)
        st = vb_group_check_route(g, i);
    if (st == VB_OK)
        st = vb_pairs_connect(g, deadline);
    if (st != VB_OK)
        return st;
    for (i = 0; i < g->world; i++)
        g->peers[i].member = true;
    st = vb_group_set_going(g);
    if (st == VB_OK)
        st = vb_group_sync_open(g);
    return st;
}

vb_status vb_group_open(const struct vb_group_opts *opts, struct vb_group **group_p)
{
    struct vb_group *g = NULL;
    vb_status st = vb_group_check_opts(opts);

    if (st == VB_OK)
        st = vb_group_alloc(opts, &g);
    if (st == VB_OK)
        st = connect_all(g);
    if (st != VB_OK) {
        if (g != NULL && g->control != NULL)
            vb_group_abort(g, "this rank could not open the group");
        vb_group_close(g);
        return st;
    }
    if (g->rank == 0 && opts->announce != NULL && !vb_pairs_all_local(g))
        opts->announce(g->why);
    *group_p = g;
    return VB_OK;
}

void vb_group_keep(struct vb_group *g, void *memory)
{
    struct kept *kept = calloc(1, sizeof(*kept));

    if (kept == NULL)
        return; /* leak the memory, because a device may still write to it */
    *kept = (struct kept){.next = g->kept, .memory = memory};
    g->kept = kept;
}

void vb_group_close(struct vb_group *g)
{
    struct kept *kept;
    int i, d;

    if (g == NULL)
        return;
    vb_window_destroy(g->sync.win); /* its channel stays open, because notes may still come */
    vb_progress_stop(g);
    vb_control_close(g->control); /* before disconnect, so that peers read our goodbye first */
    for (i = 0; g->peers != NULL && i < g->slots; i++) {
        if (g->peers[i].ep != NULL)
            g->peers[i].transport->disconnect(g->peers[i].ep);
        vb_fd_close(&g->peers[i].join_fd);
        vb_fd_close(&g->peers[i].process_fd);
        vb_fd_close(&g->peers[i].gone_process_fd);
    }
    while (g->windows != NULL)
        vb_window_release(g->windows);
    for (d = 0; d < g->n_devices; d++)
        vb_device_transport(g->devices[d])->close(g->devices[d]);
    vb_group_sync_close(g); /* after the devices, which use its ops until they are closed */
    while ((kept = g->kept) != NULL) {
        g->kept = kept->next;
        free(kept->memory);
        free(kept);
    }
    vb_fd_close(&g->epoll_fd);
    vb_fd_close(&g->wake_fd);
    vb_fd_close(&g->opts.root_fd); /* not taken over if the group could not be opened */
    pthread_mutex_destroy(&g->front.lock);
    vb_regroup_close(g);
    free(g->ids);
    free(g->peers);
    free(g->waits);
    free(g->heard);
    vb_traffic_fini(&g->traffic);
    free(g);
}
