/* SPDX-License-Identifier: MIT
 *
 * The steps of joining an elastic group. Members and joiners exchange cards, window offers and data
 * connections; a joiner asks rank 0 for a slot and for the list of members.
 */
#include "net/control/control_priv.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_MS 100
#define CONNECT_NS 3000000000u

void vb_control_open_slots(struct control *c)
{
    pthread_mutex_lock(&c->lock);
    c->open = true;
    pthread_mutex_unlock(&c->lock);
}

uint32_t vb_control_epoch(struct control *c)
{
    uint32_t epoch;

    pthread_mutex_lock(&c->lock);
    epoch = c->epoch;
    pthread_mutex_unlock(&c->lock);
    return epoch;
}

/* ---- cards and streams ----------------------------------------------------------------------- */

static bool take_card(struct conn *conn, struct wire_card *card_p)
{
    if (!conn->join.has_card || conn->join.card_taken || conn->slot != SLOT_TAKEN)
        return false;
    conn->join.card_taken = true;
    /* This succeeds, because the card was checked when it came. */
    return vb_wire_card_decode(conn->join.card, card_p);
}

bool vb_control_take_card(struct control *c, int rank, struct wire_member *member_p,
                          struct wire_card *card_p)
{
    struct conn *conn = &c->conns[rank];
    bool taken;

    pthread_mutex_lock(&c->lock);
    taken = take_card(conn, card_p);
    if (taken)
        *member_p = (struct wire_member){.epoch = conn->epoch, .info = conn->info};
    pthread_mutex_unlock(&c->lock);
    return taken;
}

static vb_status send_frame(struct control *c, int rank, uint16_t type, const void *bytes,
                            size_t len)
{
    vb_status st;

    pthread_mutex_lock(&c->lock);
    st = vb_conn_send(c, rank, type, bytes, len);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}

vb_status vb_control_send_card(struct control *c, int rank, const struct wire_card *card)
{
    unsigned char bytes[WIRE_CARD_BYTES];

    vb_wire_card_encode(card, bytes);
    return send_frame(c, rank, WIRE_CARD, bytes, sizeof(bytes));
}

vb_status vb_control_wait_card(struct control *c, int rank, uint64_t deadline,
                               struct wire_card *card_p)
{
    vb_status st;

    pthread_mutex_lock(&c->lock);
    st = vb_control_wait_for(c, rank, AWAITED_CARD, "its list of transports", deadline);
    if (st == VB_OK && !take_card(&c->conns[rank], card_p))
        st = VB_ERR_PEER;
    pthread_mutex_unlock(&c->lock);
    return st;
}

int vb_control_take_stream(struct control *c, int rank)
{
    int fd;

    pthread_mutex_lock(&c->lock);
    fd = c->conns[rank].data.fd;
    c->conns[rank].data.fd = -1;
    pthread_mutex_unlock(&c->lock);
    return fd;
}

/* ---- offers ---------------------------------------------------------------------------------- */

bool vb_control_peek_offer(struct control *c, int rank, struct wire_offer *offer_p)
{
    unsigned char bytes[WIRE_OFFER_BYTES];
    const struct blob *blob;
    bool found;

    pthread_mutex_lock(&c->lock);
    blob = c->conns[rank].join.offers.first;
    found = blob != NULL;
    if (found) {
        vb_wire_u32_encode(blob->tag, bytes);
        memcpy(bytes + 4, blob->bytes, sizeof(bytes) - 4);
        found = vb_wire_offer_decode(bytes, offer_p);
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

void vb_control_drop_offer(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct blob *blob;

    pthread_mutex_lock(&c->lock);
    blob = conn->join.offers.first;
    if (blob != NULL) {
        conn->join.offers.first = blob->next;
        conn->join.offers.n--;
    }
    pthread_mutex_unlock(&c->lock);
    free(blob);
}

vb_status vb_control_send_offer(struct control *c, int rank, const struct wire_offer *offer)
{
    unsigned char bytes[WIRE_OFFER_BYTES];

    vb_wire_offer_encode(offer, bytes);
    return send_frame(c, rank, WIRE_OFFER, bytes, sizeof(bytes));
}

/* ---- a slot for this rank -------------------------------------------------------------------- */

static vb_status read_slot(int fd, uint64_t deadline, struct wire_slot *slot_p,
                           struct auth_session *session)
{
    unsigned char bytes[WIRE_FRAME_HEAD + WIRE_SLOT_BYTES + WIRE_TAG];
    const char *fault;
    uint32_t len;
    uint16_t type;
    vb_status st = vb_sock_read(fd, bytes, sizeof(bytes), deadline);

    if (st != VB_OK)
        return st;
    fault = vb_auth_check(session, bytes, bytes + WIRE_FRAME_HEAD, WIRE_SLOT_BYTES,
                          bytes + WIRE_FRAME_HEAD + WIRE_SLOT_BYTES);
    if (fault != NULL)
        return vb_err(VB_ERR_ACCESS, "rank 0 sent no slot: %s", fault);
    if (!vb_wire_frame_decode(bytes, 1, &len, &type) || type != WIRE_SLOT ||
        !vb_wire_slot_decode(bytes + WIRE_FRAME_HEAD, slot_p))
        return vb_err(VB_ERR_INPUT, "rank 0 sent an invalid slot");
    return VB_OK;
}

/* Returns VB_AGAIN if another rank is joining or got the slot first, or if rank 0 hung up. */
static vb_status ask_once(const struct sock_addr *root, const unsigned char *secret,
                          uint64_t deadline, struct wire_slot *slot_p, int *fd_p,
                          struct auth_session *session_p)
{
    struct wire_call call = {
        .version = WIRE_VERSION, .kind = WIRE_JOIN, .rank = WIRE_NO_RANK, .to = 0};
    uint64_t soon = vb_clock_ns() + CONNECT_NS; /* a group that can be joined already listens */
    unsigned char key[AUTH_KEY_BYTES];
    vb_status st;

    vb_auth_random(call.nonce, sizeof(call.nonce));
    st = vb_sock_connect(root, deadline < soon ? deadline : soon, fd_p);
    if (st != VB_OK)
        return VB_ERR_PEER;
    st = vb_handshake_call(*fd_p, &call, secret, deadline, key);
    if (st == VB_OK) {
        vb_auth_session(session_p, key, AUTH_CALLER);
        st = read_slot(*fd_p, deadline, slot_p, session_p);
    }
    if (st != VB_OK)
        close(*fd_p);
    explicit_bzero(key, sizeof(key));
    return st == VB_ERR_PEER ? VB_AGAIN : st;
}

vb_status vb_control_ask_slot(const struct sock_addr *root,
                              const unsigned char secret[AUTH_KEY_BYTES], uint64_t deadline,
                              struct wire_slot *slot_p, int *fd_p, struct auth_session *session_p)
{
    vb_status st;

    for (;;) {
        st = ask_once(root, secret, deadline, slot_p, fd_p, session_p);
        if (st == VB_ERR_TIMEOUT)
            return vb_err(st, "rank 0 gave this rank no slot in time");
        if (st != VB_AGAIN)
            return st;
        if (vb_clock_ns() >= deadline)
            return vb_err(
                VB_ERR_TIMEOUT,
                "this rank could not join in time because other ranks were joining or called "
                "rank 0");
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

void vb_control_adopt(struct control *c, int rank, int fd, const struct auth_session *session)
{
    pthread_mutex_lock(&c->lock);
    c->conns[rank].epoch = c->opts.epoch;
    vb_conn_up(c, rank, fd, session);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
}

/* This rank calls members with its own epoch, which is newer than theirs. */
static vb_status read_members(struct control *c, struct wire_member *members)
{
    struct wire_member member;
    uint32_t at;

    for (at = 0; at < c->table_len; at += WIRE_MEMBER_BYTES) {
        if (!vb_wire_member_decode(c->table + at, &member) ||
            member.info.rank >= (uint32_t)c->opts.slots ||
            member.info.rank == (uint32_t)c->opts.rank || member.epoch >= c->opts.epoch)
            return vb_err(VB_ERR_INPUT, "rank 0 sent an invalid list of members");
        members[member.info.rank] = member;
        c->conns[member.info.rank].info = member.info;
        c->conns[member.info.rank].has_info = true;
        if (member.info.rank > 0) {
            c->conns[member.info.rank].epoch = c->opts.epoch;
            c->conns[member.info.rank].slot = SLOT_EXPECTED;
        }
    }
    return VB_OK;
}

vb_status vb_control_meet_members(struct control *c, const struct wire_info *mine,
                                  struct wire_member *members, uint64_t deadline)
{
    unsigned char bytes[WIRE_INFO_BYTES];
    vb_status st;

    vb_wire_info_encode(mine, bytes);
    pthread_mutex_lock(&c->lock);
    c->conns[c->opts.rank].info = *mine;
    st = vb_conn_send(c, 0, WIRE_INFO, bytes, sizeof(bytes));
    if (st == VB_OK)
        st = vb_control_wait_for(c, 0, AWAITED_TABLE, "the members", deadline);
    if (st == VB_OK)
        st = read_members(c, members);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void vb_control_joined(struct control *c)
{
    c->complete = true;
    (void)send_frame(c, 0, WIRE_JOINED, NULL, 0);
}
