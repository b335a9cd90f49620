/* SPDX-License-Identifier: MIT
 *
 * Callers that have not proved the secret yet. A stranger can do no more than occupy one of
 * PENDING_MAX entries for a few seconds and cause one line in the log.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#define PENDING_NS (5ull * 1000 * 1000 * 1000)

void vb_pending_drop(struct pending *p)
{
    vb_fd_close(&p->fd);
    explicit_bzero(&p->hs, sizeof(p->hs));
}

/* Returns true if a warning has named this address, with any port; else remembers it. */
static bool known_stranger(struct control *c, const char *peer)
{
    size_t len = strcspn(peer, "]");
    int i;

    if (peer[len] == '\0')
        len = strcspn(peer, ":");
    for (i = 0; i < c->n_refused && i < REFUSED_MAX; i++)
        if (strncmp(c->refused[i], peer, len + 1) == 0)
            return true;
    snprintf(c->refused[c->n_refused % REFUSED_MAX], SOCK_TEXT, "%s", peer);
    c->n_refused++;
    return false;
}

static void refuse(struct control *c, struct pending *p, const char *why)
{
    char peer[SOCK_TEXT];

    vb_sock_peer_text(p->fd, peer);
    if (!known_stranger(c, peer))
        VB_LOG_WARN("refused a connection from %s: %s", peer, why);
    vb_pending_drop(p);
}

/* If no entry is free, refuses the oldest caller. */
static struct pending *place(struct control *c)
{
    struct pending *oldest = &c->pending[0];
    int i;

    for (i = 0; i < PENDING_MAX; i++) {
        if (c->pending[i].fd < 0)
            return &c->pending[i];
        if (c->pending[i].deadline < oldest->deadline)
            oldest = &c->pending[i];
    }
    refuse(c, oldest,
           "too many connections are open at once, and this one was silent for the longest time");
    return oldest;
}

void vb_accept_new(struct control *c, int listen_fd)
{
    struct pending *p;
    int fd, on = 1;

    for (;;) {
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0)
            return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* unix sockets refuse it */
        p = place(c);
        p->fd = fd;
        p->deadline = vb_clock_ns() + vb_control_patient(c, PENDING_NS);
        vb_handshake_init(&p->hs, (uint32_t)c->opts.rank, c->opts.epoch);
    }
}

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

/* The caller has proved the secret. Another one may have taken its slot since the call. */
static void admit(struct control *c, struct pending *p)
{
    const struct wire_call *call = &p->hs.call;
    struct auth_session session;
    struct conn *conn;

    vb_auth_session(&session, p->hs.session, AUTH_LISTENER);
    if (call->kind == WIRE_JOIN) {
        if (vb_membership_give_slot(c, p->fd, &session))
            p->fd = -1;
        vb_pending_drop(p);
        return;
    }
    conn = &c->conns[call->rank];
    if (call->kind == WIRE_CONTROL && conn->slot == SLOT_EXPECTED && conn->epoch == call->epoch) {
        vb_conn_up(c, (int)call->rank, p->fd, &session);
        p->fd = -1;
    } else if (call->kind == WIRE_DATA && conn->data.key_given && conn->epoch == call->epoch) {
        conn->data.fd = p->fd;
        conn->data.key_given = false; /* a key can be used once */
        explicit_bzero(conn->data.one_time, sizeof(conn->data.one_time));
        p->fd = -1;
        pthread_cond_broadcast(&c->changed);
        vb_membership_news(c);
    }
    vb_pending_drop(p);
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
        vb_pending_drop(p); /* the joiner will try again */
    else if (p->hs.state == HANDSHAKE_REFUSED)
        refuse(c, p,
               p->hs.garbage ? "the caller is not a Verbena program"
                             : vb_wire_verdict_str(p->hs.verdict));
    else if (p->hs.state == HANDSHAKE_DONE)
        admit(c, p);
}

void vb_pending_expire(struct control *c, uint64_t now)
{
    int i;

    for (i = 0; i < PENDING_MAX; i++)
        if (c->pending[i].fd >= 0 && now >= c->pending[i].deadline)
            refuse(c, &c->pending[i], "the caller did not prove in time that it knows the secret");
}
