/* SPDX-License-Identifier: MIT
 *
 * How a rank to which rank 0 has given a slot connects to one member after another. It calls the
 * member on the control plane and proves that it has the secret. Both send their cards and derive
 * the transport of the pair as at the start of the job, except that a pair that would be measured
 * uses TCP. The member sends a one-time key, or waits until the joiner calls over RDMA. The joiner
 * connects.
 *
 * The member does its part when it makes progress. It waits only for the few round trips of an RDMA
 * connection. Messages from other ranks are queued meanwhile.
 */
#include "net/control/call.h"
#include "net/control/root_resolve.h"
#include "net/group/group_priv.h"

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAIR_NS 5000000000u /* timeout for the connection of one pair */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t pair_deadline(const struct vb_group *g)
{
    return vb_clock_ns() + (uint64_t)(PAIR_NS * g->opts.patience);
}

/* Opens our RDMA device if this pair may use RDMA. theirs may be NULL: not known yet. */
static vb_status verbs_for(struct vb_group *g, int rank, const struct wire_card *theirs,
                           struct vb_device **verbs_p)
{
    bool asked = g->opts.transport == VB_TRANSPORT_VERBS;
    vb_status st;

    *verbs_p = vb_pair_device(g, &vb_transport_verbs);
    if (*verbs_p != NULL || (!asked && g->opts.transport != VB_TRANSPORT_AUTO))
        return VB_OK;
    if (!asked && (vb_pair_same_host(g, rank) || !vb_net_rdma_any_usable() ||
                   (theirs != NULL && theirs->rdma != WIRE_RDMA_HARD)))
        return VB_OK;
    st = vb_pair_device_open(g, &vb_transport_verbs, verbs_p);
    if (st == VB_OK || asked)
        return st;
    VB_LOG_WARN("continuing without RDMA");
    *verbs_p = NULL;
    return VB_OK;
}

static vb_status connect_verbs(struct vb_group *g, int rank, struct vb_device *verbs,
                               const struct wire_card *theirs, enum vb_link_role role,
                               uint64_t deadline)
{
    struct vb_ep *ep;
    vb_status st = vb_pair_connect_verbs(g, rank, verbs, &theirs->address, role, deadline, &ep);

    if (st == VB_OK)
        vb_pair_take_verbs(g, rank, verbs, ep);
    return st;
}

/* ---- the member's side ----------------------------------------------------------------------- */

/* Sends our card, derives the transport of the pair, and sends a key or connects over RDMA. */
static vb_status answer_card(struct vb_group *g, int rank, const struct wire_card *theirs)
{
    struct peer *peer = &g->peers[rank];
    struct vb_device *verbs = NULL;
    struct wire_card mine;
    vb_status st;

    if (theirs->choice != (uint32_t)g->opts.transport)
        return vb_err(VB_ERR_USAGE,
                      "rank %d (%s) was started with a different --transport than this rank", rank,
                      peer->info.host);
    st = verbs_for(g, rank, theirs, &verbs);
    if (st == VB_OK)
        st = vb_pair_card(g, verbs, &mine);
    if (st == VB_OK)
        st = vb_control_send_card(g->control, rank, &mine);
    if (st != VB_OK)
        return st;
    peer->join_step = JOIN_STREAM;
    peer->join_deadline = pair_deadline(g);
    if (vb_pair_way(g, &mine, theirs, rank) != WAY_VERBS)
        return vb_control_give_key(g->control, rank);
    peer->join_step = JOIN_WINDOWS;
    return connect_verbs(g, rank, verbs, theirs, VB_LINK_ANSWER, pair_deadline(g));
}

/* Over a unix socket the joiner sends first, and the connection must not wait for that. */
static bool has_data(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    struct sock_addr addr;

    return vb_sock_local(fd, &addr) != VB_OK || addr.sa.ss_family != AF_UNIX ||
           poll(&pfd, 1, 0) != 0;
}

/* Returns VB_AGAIN if the stream of the joiner is not ready. */
static vb_status take_stream(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];
    int fd;

    if (peer->join_fd < 0)
        peer->join_fd = vb_control_take_stream(g->control, rank);
    if (peer->join_fd < 0)
        return VB_AGAIN;
    if (!has_data(peer->join_fd)) {
        if (vb_clock_ns() > peer->join_deadline)
            return vb_err(VB_ERR_TIMEOUT, "rank %d (%s) connected but sent nothing", rank,
                          peer->info.host);
        atomic_store_explicit(&g->news, true, memory_order_relaxed); /* look again */
        return VB_AGAIN;
    }
    fd = peer->join_fd;
    peer->join_fd = -1;
    peer->join_step = JOIN_WINDOWS;
    return vb_pair_attach(g, rank, fd, pair_deadline(g));
}

int vb_joiner_step(struct vb_group *g, int rank)
{
    struct peer *peer = &g->peers[rank];
    struct wire_member member;
    struct wire_card card;
    vb_status st = VB_OK;
    int n = 0;

    if (peer->join_step == JOIN_NONE && vb_control_take_card(g->control, rank, &member, &card)) {
        peer->info = member.info;
        peer->epoch = member.epoch;
        peer->n_sent = peer->n_came = 0;
        st = answer_card(g, rank, &card);
        n++;
    }
    if (st == VB_OK && peer->join_step == JOIN_STREAM)
        st = take_stream(g, rank);
    if (st == VB_OK && peer->join_step == JOIN_WINDOWS) {
        n += vb_window_exchange_take(g, rank);
        if (vb_window_exchange_has_all(g, rank))
            vb_member_admit(g, rank);
    }
    if (st < 0)
        vb_control_lose(g->control, rank, "no data connection could be made");
    return n;
}

/* ---- the joiner's side ----------------------------------------------------------------------- */

/* The member answers the call at once or never, so the call has a short deadline. But it sends its
 * card only when it makes progress. */
static vb_status connect_member(struct vb_group *g, int rank, uint64_t deadline)
{
    struct vb_device *verbs = NULL;
    struct wire_card mine, theirs;
    struct sock_addr addr;
    vb_status st = VB_OK;

    if (rank != 0) /* rank 0 gave us the slot over this connection */
        st = vb_pair_address_of(g, rank, &addr);
    if (st == VB_OK && rank != 0)
        st = vb_control_dial(g->control, rank, &addr, earlier(deadline, pair_deadline(g)));
    if (st == VB_OK)
        st = vb_group_check_route(g, rank);
    if (st == VB_OK)
        st = verbs_for(g, rank, NULL, &verbs);
    if (st == VB_OK)
        st = vb_pair_card(g, verbs, &mine);
    if (st == VB_OK)
        st = vb_control_send_card(g->control, rank, &mine);
    if (st == VB_OK)
        st = vb_control_wait_card(g->control, rank, deadline, &theirs);
    if (st != VB_OK)
        return st;
    if (vb_pair_way(g, &mine, &theirs, rank) == WAY_VERBS)
        return connect_verbs(g, rank, verbs, &theirs, VB_LINK_CALL,
                             earlier(deadline, pair_deadline(g)));
    return vb_pair_dial(g, rank, deadline);
}

/* A member that dies meanwhile is marked as gone. If rank 0 dies, the join fails. */
static vb_status connect_members(struct vb_group *g, const struct wire_member *members,
                                 uint64_t deadline)
{
    vb_status st;
    int i;

    for (i = 0; i < g->slots; i++) {
        if (i == g->rank || members[i].epoch == 0)
            continue;
        g->peers[i].info = members[i].info;
        st = connect_member(g, i, deadline);
        if (st != VB_OK && (i == 0 || (st != VB_ERR_PEER && st != VB_ERR_TIMEOUT)))
            return st;
        g->peers[i].member = st == VB_OK;
        g->peers[i].gone = st != VB_OK;
        if (st != VB_OK) {
            snprintf(g->peers[i].why, sizeof(g->peers[i].why),
                     "the rank was gone when this rank joined");
            vb_control_lose(g->control, i, g->peers[i].why);
        }
    }
    return VB_OK;
}

static vb_status connect_to_group(struct vb_group *g, const struct sock_addr *root, int fd,
                                  const struct auth_session *session, uint64_t deadline)
{
    struct wire_member *members = calloc((size_t)g->slots, sizeof(*members));
    vb_status st;

    if (members == NULL)
        st = vb_err_sys("calloc");
    else
        st = vb_group_listen_towards(g, root);
    if (st != VB_OK || members == NULL) {
        close(fd);
        free(members);
        return st;
    }
    vb_control_adopt(g->control, 0, fd, session);
    st = vb_control_meet_members(g->control, &g->peers[g->rank].info, members, deadline);
    if (st == VB_OK)
        st = connect_members(g, members, deadline);
    free(members);
    if (st != VB_OK)
        return st;
    vb_pairs_close_unused(g);
    g->next_window = 1; /* window 0 is of the barrier, which joiners take no part in */
    st = vb_group_set_going(g);
    if (st == VB_OK)
        vb_control_joined(g->control);
    return st;
}

static vb_status alloc_for_slot(const struct vb_group_opts *opts, const struct wire_slot *slot,
                                struct vb_group **group_p)
{
    struct vb_group_opts o = *opts;
    vb_status st;
    int i;

    o.rank = (int)slot->slot;
    o.world = (int)slot->world;
    o.slots = (int)slot->slots;
    if (o.transport == VB_TRANSPORT_AUTO) /* use the choice of the members */
        o.transport = (enum vb_transport_choice)slot->choice;
    o.elastic = true;
    o.root_fd = -1;
    st = vb_group_alloc(&o, group_p);
    if (*group_p == NULL || (*group_p)->peers == NULL)
        return st;
    (*group_p)->epoch = slot->epoch;
    for (i = 0; i < o.slots; i++)
        (*group_p)->peers[i].epoch = slot->epoch; /* no member has a newer epoch */
    return st;
}

static vb_status join_with_slot(const struct vb_group_opts *opts, const struct wire_slot *slot,
                                const struct sock_addr *root, int fd,
                                const struct auth_session *session, uint64_t deadline,
                                struct vb_group **group_p)
{
    struct vb_group *g = NULL;
    vb_status st = alloc_for_slot(opts, slot, &g);

    if (st == VB_OK)
        st = connect_to_group(g, root, fd, session, deadline);
    else
        close(fd);
    if (st != VB_OK) {
        if (g != NULL && g->control != NULL)
            vb_group_abort(g, "this rank could not join the group");
        vb_group_close(g);
        return st;
    }
    *group_p = g;
    return VB_OK;
}

static vb_status check_join(const struct vb_group_opts *opts, uint64_t *deadline_p)
{
    double patience = opts->patience > 0 ? opts->patience : 1;

    if (opts->root == NULL || opts->secret == NULL || opts->timeout_ms <= 0 ||
        opts->timeout_ms * patience > INT_MAX)
        return vb_err(
            VB_ERR_USAGE,
            "joining a group needs the address of rank 0 (root), the secret and a timeout "
            "(VB_GROUP_OPTS_DEFAULT has one)");
    *deadline_p = vb_clock_ns() + (uint64_t)(opts->timeout_ms * patience * 1e6);
    return vb_group_check_times(opts);
}

vb_status vb_group_join(const struct vb_group_opts *opts, struct vb_group **group_p)
{
    struct auth_session session;
    struct wire_slot slot;
    struct sock_addr root;
    uint64_t deadline = 0;
    vb_status st = check_join(opts, &deadline);
    int fd;

    if (st == VB_OK)
        st = vb_auth_init();
    if (st == VB_OK)
        st = vb_root_resolve(opts->root, &root);
    if (st == VB_OK)
        st = vb_control_ask_slot(&root, opts->secret, deadline, &slot, &fd, &session);
    if (st != VB_OK)
        return st;
    st = join_with_slot(opts, &slot, &root, fd, &session, deadline, group_p);
    explicit_bzero(&session, sizeof(session));
    return st;
}

vb_status vb_group_join_called(const struct vb_group_opts *opts, struct vb_caller *caller,
                               struct vb_group **group_p)
{
    struct sock_addr root;
    uint64_t deadline = 0;
    int fd = caller->fd;
    vb_status st = check_join(opts, &deadline);

    if (st != VB_OK)
        return st;
    if (!caller->has_slot || fd < 0)
        return vb_err(VB_ERR_USAGE, "this caller has no slot in the group");
    st = vb_sock_peer(fd, &root); /* of rank 0, which has answered */
    if (st != VB_OK)
        return st;
    caller->fd = -1;
    return join_with_slot(opts, &caller->slot, &root, fd, &caller->session, deadline, group_p);
}
