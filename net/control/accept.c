/* SPDX-License-Identifier: MIT
 *
 * Callers that have not proved the secret yet. Each listener is a door with its own places, so
 * strangers on the network take no place from callers on the unix socket. A caller is accepted only
 * into a free place; the others wait in the kernel's queue. A stranger that says nothing keeps its
 * place for a few seconds, or for a short time if others wait. So strangers can delay a rank, which
 * dials again if it lost its place, but cannot keep it out, and the work of a wake is bounded.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PENDING_NS (5ull * 1000 * 1000 * 1000)
#define FAIR_NS (100ull * 1000 * 1000) /* a rank sends its call at once */
#define RESERVE 128                    /* places for strangers, beside one for each rank */
#define ACCEPTS_A_WAKE 16
#define QUIET_NS (100ull * 1000 * 1000) /* between wakes for callers while no rank is awaited */
#define SUMMARY_NS (30ull * 1000 * 1000 * 1000)

static void drop(struct pending *p)
{
    if (p->fd >= 0)
        p->door->used--;
    vb_fd_close(&p->fd);
    explicit_bzero(&p->hs, sizeof(p->hs));
}

/* ---- the log of refusals --------------------------------------------------------------------- */

/* Returns true if a line has named this address, with any port. */
static bool is_known(const struct refusals *r, const char *peer)
{
    size_t len = strcspn(peer, "]");
    unsigned i;

    if (peer[len] == '\0')
        len = strcspn(peer, ":");
    for (i = 0; i < r->n_known; i++)
        if (strncmp(r->known[i], peer, len + 1) == 0)
            return true;
    return false;
}

/* The first addresses get a line each. All other refusals are counted, and the pauses between the
 * lines with the count grow, so that no flood fills the log. */
static void refuse(struct control *c, struct pending *p, const char *why)
{
    struct refusals *r = &c->refusals;
    char peer[SOCK_TEXT];

    vb_sock_peer_text(p->fd, peer);
    if (r->n_known < REFUSED_MAX && !is_known(r, peer)) {
        memcpy(r->known[r->n_known++], peer, sizeof(peer));
        VB_LOG_WARN("refused a connection from %s: %s", peer, why);
    } else {
        if (r->pause_ns == 0) {
            r->pause_ns = SUMMARY_NS;
            r->next_ns = vb_clock_ns() + SUMMARY_NS;
        }
        r->n_left_out++;
        memcpy(r->last, peer, sizeof(peer));
        r->last_why = why;
    }
    drop(p);
}

static void summarise(struct refusals *r, uint64_t now)
{
    if (r->n_left_out == 0 || now < r->next_ns)
        return;
    VB_LOG_WARN("refused %llu more connections, the last one from %s: %s", r->n_left_out, r->last,
                r->last_why);
    r->n_left_out = 0;
    r->pause_ns *= 2;
    r->next_ns = now + r->pause_ns;
}

/* ---- places ---------------------------------------------------------------------------------- */

bool vb_door_open(struct door *door, int listen_fd, int ranks)
{
    int i;

    door->listen_fd = listen_fd;
    door->n = ranks + RESERVE;
    door->places = calloc((size_t)door->n, sizeof(*door->places));
    for (i = 0; door->places != NULL && i < door->n; i++)
        door->places[i] = (struct pending){.fd = -1, .door = door};
    if (door->places == NULL) {
        vb_fd_close(&door->listen_fd);
        door->n = 0;
    }
    return door->places != NULL;
}

void vb_door_close(struct door *door)
{
    int i;

    for (i = 0; door->places != NULL && i < door->n; i++)
        drop(&door->places[i]);
    free(door->places);
    vb_fd_close(&door->listen_fd);
}

/* Finds a free place, or else that of the caller that has been silent for longest. A caller that
 * has sent its call keeps its place. *fair_p is the time from which the place can be taken. */
static struct pending *find_place(struct door *door, uint64_t *fair_p)
{
    struct pending *oldest = NULL;
    int i;

    *fair_p = 0;
    for (i = 0; i < door->n; i++) {
        struct pending *p = &door->places[i];

        if (p->fd < 0)
            return p;
        if (p->hs.state == HANDSHAKE_CALL && (oldest == NULL || p->since < oldest->since))
            oldest = p;
    }
    *fair_p = oldest != NULL ? oldest->since + FAIR_NS : UINT64_MAX;
    return oldest;
}

uint64_t vb_door_opens(struct door *door)
{
    uint64_t fair = 0;

    if (door->used == door->n)
        (void)find_place(door, &fair);
    return fair > door->shut_until ? fair : door->shut_until;
}

/* The process has no descriptor left. Trying again at once would only use up the CPU. */
static void shut(struct control *c, struct door *door)
{
    struct rlimit limit = {0};
    int err = errno;

    door->shut_until = vb_clock_ns() + (uint64_t)c->opts.times.beat_ms * 1000000u;
    if (c->said_shut)
        return;
    c->said_shut = true;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    VB_LOG_WARN("cannot accept connections for now: %s; this process may have %llu open files, and "
                "%s raises the limit",
                strerror(err), (unsigned long long)limit.rlim_cur,
                err == ENFILE ? "sysctl fs.file-max" : "ulimit -n");
}

/* Returns -1 if nobody waits or no connection can be accepted now. */
static int accept_one(struct control *c, struct door *door)
{
    int fd;

    do {
        fd = accept4(door->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0 && errno != EAGAIN)
        shut(c, door);
    return fd;
}

/* True if a rank of the job has yet to connect. */
static bool awaits_rank(const struct control *c)
{
    int i;

    for (i = 0; i < c->opts.slots; i++)
        if (i != c->opts.rank && (c->conns[i].slot == SLOT_EXPECTED || c->conns[i].data.key_given))
            return true;
    return false;
}

/* Once all ranks are connected only joiners can call, which can wait. So a flood of strangers
 * cannot take the CPU from the ranks by waking this thread for every connection. */
void vb_door_answer(struct control *c, struct door *door)
{
    struct pending *p;
    uint64_t now = vb_clock_ns(), fair;
    int i, fd, on = 1;

    if (!awaits_rank(c))
        door->shut_until = now + QUIET_NS;
    for (i = 0; i < ACCEPTS_A_WAKE; i++) {
        p = find_place(door, &fair);
        fd = p != NULL && now >= fair ? accept_one(c, door) : -1;
        if (p == NULL || fd < 0)
            return;
        if (p->fd >= 0)
            refuse(c, p,
                   "too many connections are open at once, and this one was silent for the longest "
                   "time");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* unix sockets refuse it */
        p->fd = fd;
        p->since = now;
        door->used++;
        vb_handshake_init(&p->hs, (uint32_t)c->opts.rank, c->opts.epoch);
        if (!vb_control_poll_place(c, door, p))
            refuse(c, p, strerror(errno));
        else
            vb_pending_read(c, p); /* the call of a rank that has waited in the queue is here */
    }
}

void vb_pending_expire(struct control *c, uint64_t now)
{
    uint64_t limit = vb_control_patient(c, PENDING_NS);
    int d, i;

    for (d = 0; d < DOORS; d++)
        for (i = 0; c->doors[d].used > 0 && i < c->doors[d].n; i++)
            if (c->doors[d].places[i].fd >= 0 && now >= c->doors[d].places[i].since + limit)
                refuse(c, &c->doors[d].places[i],
                       "the caller did not prove in time that it knows the secret");
    summarise(&c->refusals, now);
}

/* ---- the handshake --------------------------------------------------------------------------- */

/* A handshake_judge_fn. */
static enum wire_verdict judge(void *arg, const struct wire_call *call,
                               unsigned char key[AUTH_KEY_BYTES], uint32_t *epoch_p)
{
    struct control *c = arg;
    struct conn *conn;

    if (c->opts.secret == NULL)
        return WIRE_CLOSED;
    if (call->kind == WIRE_JOIN) {
        *epoch_p = 0; /* a joiner cannot know the epoch */
        memcpy(key, c->opts.secret, AUTH_KEY_BYTES);
        return vb_membership_judge_join(c);
    }
    if (call->world != (uint32_t)c->opts.world)
        return WIRE_BAD_WORLD;
    if (call->rank >= (uint32_t)c->opts.slots || call->rank == (uint32_t)c->opts.rank)
        return WIRE_BAD_RANK;
    conn = &c->conns[call->rank];
    *epoch_p = conn->epoch;
    if (call->epoch != conn->epoch)
        return WIRE_BAD_EPOCH; /* the caller had this slot before, or nobody has it */
    if (call->kind == WIRE_CONTROL) {
        if (conn->slot != SLOT_EXPECTED)
            return WIRE_BAD_RANK;
        memcpy(key, c->opts.secret, AUTH_KEY_BYTES);
        return WIRE_WELCOME;
    }
    if (!conn->data.key_given || conn->data.fd >= 0)
        return WIRE_BAD_RANK;
    memcpy(key, conn->data.one_time, AUTH_KEY_BYTES);
    return WIRE_WELCOME;
}

/* The descriptor has another owner now. */
static void hand_over(struct pending *p)
{
    p->fd = -1;
    p->door->used--;
}

/* The caller has proved the secret. Another one may have taken its slot since the call. */
static void admit(struct control *c, struct pending *p)
{
    const struct wire_call *call = &p->hs.call;
    struct auth_session session;
    struct conn *conn;

    vb_auth_session(&session, p->hs.session, AUTH_LISTENER);
    vb_control_unpoll(c, p->fd);
    if (call->kind == WIRE_JOIN) {
        if (c->opts.agrees ? vb_callers_take(c, p->fd, &session)
                           : vb_membership_give_slot(c, p->fd, &session))
            hand_over(p);
        drop(p);
        return;
    }
    conn = &c->conns[call->rank];
    if (call->kind == WIRE_CONTROL && conn->slot == SLOT_EXPECTED && conn->epoch == call->epoch) {
        vb_conn_up(c, (int)call->rank, p->fd, &session);
        hand_over(p);
    } else if (call->kind == WIRE_DATA && conn->data.key_given && conn->epoch == call->epoch) {
        conn->data.fd = p->fd;
        conn->data.key_given = false; /* a key can be used once */
        explicit_bzero(conn->data.one_time, sizeof(conn->data.one_time));
        hand_over(p);
        pthread_cond_broadcast(&c->changed);
        vb_membership_news(c);
    }
    drop(p);
}

/* Remembers why a rank was refused, for the list of missing ranks. Whoever called as this rank has
 * proved nothing, so this is only a hint. */
static void note_verdict(struct control *c, const struct handshake *hs)
{
    if (!hs->garbage && hs->call.kind == WIRE_CONTROL && hs->call.rank < (uint32_t)c->opts.slots)
        c->conns[hs->call.rank].refused = hs->verdict;
}

void vb_pending_read(struct control *c, struct pending *p)
{
    unsigned char in[WIRE_CALL_BYTES], out[WIRE_ANSWER_BYTES];
    size_t reply;
    ssize_t n = recv(p->fd, in, vb_handshake_wants(&p->hs), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        refuse(c, p, "the caller closed the connection before it proved that it knows the secret");
        return;
    }
    reply = vb_handshake_feed(&p->hs, in, (size_t)n, judge, c, out);
    /* A new socket always has space for these bytes; if it has not, the caller is not a peer. */
    if (reply > 0 && send(p->fd, out, reply, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)reply)
        refuse(c, p, "the caller does not read the answer");
    else if (p->hs.state == HANDSHAKE_REFUSED && p->hs.verdict == WIRE_BUSY)
        drop(p); /* the joiner will try again */
    else if (p->hs.state == HANDSHAKE_REFUSED) {
        note_verdict(c, &p->hs);
        refuse(c, p,
               p->hs.garbage ? "the caller is not a Verbena program"
                             : vb_wire_verdict_str(p->hs.verdict));
    } else if (p->hs.state == HANDSHAKE_DONE)
        admit(c, p);
}
