/* SPDX-License-Identifier: MIT
 *
 * The members of an elastic group: how a rank joins (docs/protocol.md), and how one is removed. The
 * control threads do all of this. The group itself opens the data connection of a joiner and closes
 * that of a peer that is gone, when it next makes progress: `news` tells it to do so.
 */
#include "net/control/control_priv.h"

#include <stdlib.h>
#include <string.h>

#define JOIN_NS 30000000000u /* time for a joiner to connect with all members */
#define OFFERS_MAX 64        /* number of windows by which a peer may be ahead */

void vb_membership_news(struct control *c)
{
    if (!c->opts.elastic)
        return;
    if (c->opts.news != NULL) /* pairs with the acquire in vb_member_work() */
        atomic_store_explicit(c->opts.news, true, memory_order_release);
    if (c->opts.alarm != NULL)
        c->opts.alarm(c->opts.arg);
}

static bool is_member(const struct conn *conn)
{
    return conn->slot == SLOT_TAKEN && conn->fd >= 0;
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* Sends the joiner the list of the members that it must connect with. */
static void send_members(struct control *c)
{
    size_t room = (size_t)c->opts.slots * WIRE_MEMBER_BYTES, len = 0;
    unsigned char *bytes = malloc(room);
    struct wire_member member;
    int i;

    for (i = 0; i < c->opts.slots && bytes != NULL; i++) {
        if (i == c->joining || (i != c->opts.rank && !is_member(&c->conns[i])))
            continue;
        member.epoch = i == c->opts.rank ? c->opts.epoch : c->conns[i].epoch;
        member.info = c->conns[i].info;
        vb_wire_member_encode(&member, bytes + len);
        len += WIRE_MEMBER_BYTES;
    }
    if (bytes != NULL)
        (void)vb_conn_send(c, c->joining, WIRE_MEMBERS, bytes, len);
    free(bytes); /* NULL: nothing was sent, and the joiner will miss its deadline */
}

/* Once all members have admitted the joiner, it gets the list of members. */
static void check_admitted(struct control *c)
{
    int i;

    if (c->joining < 0 || c->sent_members || !c->conns[c->joining].has_info)
        return;
    for (i = 0; i < c->opts.slots; i++)
        if (c->conns[i].join.admit_due && is_member(&c->conns[i]))
            return;
    c->sent_members = true;
    send_members(c);
}

static void stop_joining(struct control *c, int rank)
{
    if (c->joining == rank)
        c->joining = -1;
}

/* If a peer has dropped this rank and no other is left, this rank was stopped or cut off. */
static void check_isolated(struct control *c)
{
    const struct conn *by = NULL;
    int i;

    for (i = 0; i < c->opts.slots && !c->opts.agrees; i++) {
        if (is_member(&c->conns[i]))
            return;
        if (c->conns[i].end.dropped_us)
            by = &c->conns[i];
    }
    if (by != NULL)
        vb_control_fail(c, VB_ERR_PEER, "this rank is out of the group: %s", by->end.why);
}

void vb_membership_end(struct control *c, int rank, const char *why)
{
    struct conn *conn = &c->conns[rank];

    if (conn->slot != SLOT_TAKEN || c->stopping || conn->end.left) {
        vb_fd_close(&conn->fd);
        if (conn->slot == SLOT_TAKEN && conn->end.left)
            conn->slot = SLOT_ENDED; /* its last notes have arrived */
        vb_membership_news(c);
        return;
    }
    conn->slot = SLOT_ENDED; /* set first because sending may call this function again */
    conn->end.lost = true;
    if (conn->end.sign_ns == 0)
        conn->end.sign_ns = vb_watch_last_sign(conn);
    conn->end.inactive |= c->joining == rank;
    vb_control_tell_lost(c, rank, why);
    snprintf(conn->end.why, sizeof(conn->end.why), "%s", why);
    if (c->opts.agrees && !c->complete) /* nobody goes on alone before the job has begun */
        vb_control_fail(c, VB_ERR_PEER, "rank %d (%s) is lost: %s", rank, vb_control_host(c, rank),
                        why);
    vb_agree_gone(c, rank, conn->end.silent ? VIEW_SILENT : VIEW_LOST);
    if (conn->fd >= 0 && !conn->end.dropped_us)
        (void)vb_conn_send(c, rank, WIRE_DROPPED, why, strnlen(why, CONTROL_WHY));
    vb_fd_close(&conn->fd);
    stop_joining(c, rank);
    check_admitted(c);
    check_isolated(c);
    pthread_cond_broadcast(&c->changed);
    vb_membership_news(c);
}

void vb_membership_leave(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    snprintf(conn->end.why, sizeof(conn->end.why), "the rank left");
    vb_fd_close(&conn->fd); /* so that the peer need not wait for this rank */
    vb_agree_gone(c, rank, VIEW_LEFT);
    stop_joining(c, rank);
    check_admitted(c);
}

/* The kernel of a peer that has died closes its connections one after another. A peer whose control
 * connection stays open has not died, or nobody can tell: it must not be taken for dead, because it
 * may serve others (engine/ps/ps_parted.c). */
bool vb_membership_cut(struct control *c, int rank, const char *why)
{
    struct conn *conn = &c->conns[rank];

    if (!c->opts.elastic || !is_member(conn) || conn->end.left)
        return false;
    if (conn->end.cut_ns == 0) {
        conn->end.cut_ns = vb_clock_ns();
        snprintf(conn->end.why, sizeof(conn->end.why), "%s", why);
    }
    return true;
}

static void lose_cut(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    char why[CONTROL_WHY];

    memcpy(why, conn->end.why, sizeof(why));
    conn->end.silent = true;
    vb_conn_lose(c, rank, why);
}

void vb_membership_check(struct control *c, uint64_t now)
{
    struct conn *conn;
    int i;

    for (i = 0; i < c->opts.slots; i++) {
        conn = &c->conns[i];
        if (conn->slot == SLOT_TAKEN && conn->end.left &&
            now > conn->end.left_ns + vb_control_patient(c, LEAVE_NS)) {
            conn->slot = SLOT_ENDED;
            vb_membership_news(c);
        }
        if (is_member(conn) && conn->end.cut_ns != 0 &&
            now > conn->end.cut_ns + (uint64_t)c->opts.times.close_ms * 1000000u)
            lose_cut(c, i);
    }
    if (c->joining >= 0 && now > c->joining_until)
        vb_conn_lose(c, c->joining, "the rank did not join in time");
}

static bool take_dropped(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    char text[CONTROL_WHY - 32], why[CONTROL_WHY];

    vb_conn_text(conn, text, sizeof(text));
    snprintf(why, sizeof(why), "the peer dropped this rank: %s", text);
    conn->end.dropped_us = true;
    vb_agree_dropped(c, rank);
    vb_conn_lose(c, rank, why);
    if (rank == 0 && !c->opts.agrees) /* otherwise the view decides which of the two goes on */
        vb_control_fail(c, VB_ERR_PEER, "rank 0 (%s) dropped this rank: %s", vb_control_host(c, 0),
                        text);
    return true;
}

static enum vb_end how_it_ended(const struct conn *conn)
{
    if (conn->end.left)
        return VB_END_LEFT;
    if (conn->end.dropped_us)
        return VB_END_DROPPED_US;
    if (conn->end.gave_up)
        return VB_END_GAVE_UP;
    return conn->end.silent ? VB_END_SILENT : VB_END_DIED;
}

bool vb_control_take_ended(struct control *c, struct control_end *end_p)
{
    struct conn *conn;
    bool found = false;
    int i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < c->opts.slots && !found; i++) {
        conn = &c->conns[i];
        if (conn->slot != SLOT_ENDED || conn->end.reported)
            continue;
        found = conn->end.reported = true;
        end_p->rank = i;
        end_p->how = how_it_ended(conn);
        end_p->sign_ns = conn->end.sign_ns;
        memcpy(end_p->why, conn->end.why, sizeof(end_p->why));
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Returns true if other members may share memory with `rank`. */
static bool has_neighbours(const struct control *c, int rank)
{
    int i;

    if (c->opts.choice == VB_TRANSPORT_TCP || c->opts.choice == VB_TRANSPORT_VERBS)
        return false;
    for (i = 0; i < c->opts.slots; i++)
        if (i != rank && (i == c->opts.rank || is_member(&c->conns[i])) &&
            vb_wire_info_same_host(&c->conns[i].info, &c->conns[rank].info))
            return true;
    return false;
}

/* A process that lives may write to memory that it has mapped, also after it was dropped. */
static enum unfenced unfenced_of(const struct control *c, int rank, int process_fd)
{
    const struct conn *conn = &c->conns[rank];

    if (conn->end.left || !conn->has_info || !has_neighbours(c, rank))
        return UNFENCED_NONE;
    if (process_fd >= 0)
        return UNFENCED_UNTIL_END;
    return conn->end.inactive ? UNFENCED_NONE : UNFENCED_FOREVER;
}

static bool may_still_write(const struct conn *conn)
{
    return conn->past.unfenced == UNFENCED_FOREVER || (conn->past.unfenced == UNFENCED_UNTIL_END &&
                                                       !vb_process_ended(conn->past.process_fd, 0));
}

/* Returns an empty slot that no rank has had yet, or else the one that has been empty for longest,
 * because its peers had the most time to clean up. -1: no slot is empty. */
static int find_empty(const struct control *c)
{
    int i, best = -1;

    for (i = 0; i < c->opts.slots; i++)
        if (i != c->opts.rank && c->conns[i].slot == SLOT_EMPTY && !may_still_write(&c->conns[i]) &&
            (best < 0 || c->conns[i].past.freed < c->conns[best].past.freed))
            best = i;
    return best;
}

/* Returns true if a slot will soon be empty. */
static bool any_ending(const struct control *c)
{
    int i;

    for (i = 0; i < c->opts.slots; i++)
        if (c->conns[i].slot == SLOT_ENDED || c->conns[i].end.left)
            return true;
    return false;
}

enum wire_verdict vb_membership_judge_join(struct control *c)
{
    if (c->opts.agrees)
        return vb_callers_judge(c);
    if (!c->opts.elastic || c->opts.rank != 0 || c->stopping)
        return WIRE_CLOSED;
    if (!c->open || c->joining >= 0) /* ranks join one at a time, after the start of the job */
        return WIRE_BUSY;
    if (find_empty(c) >= 0)
        return WIRE_WELCOME;
    return any_ending(c) ? WIRE_BUSY : WIRE_FULL;
}

bool vb_membership_give_slot(struct control *c, int fd, const struct auth_session *session)
{
    int slot = c->joining < 0 ? find_empty(c) : -1;
    unsigned char bytes[WIRE_SLOT_BYTES];
    struct wire_slot given;

    if (slot < 0)
        return false;
    c->joining = slot;
    c->sent_members = false;
    c->joining_until = vb_clock_ns() + vb_control_patient(c, JOIN_NS);
    c->conns[slot].epoch = ++c->epoch;
    vb_conn_up(c, slot, fd, session);
    given = (struct wire_slot){.slot = (uint32_t)slot,
                               .epoch = c->epoch,
                               .world = (uint32_t)c->opts.world,
                               .slots = (uint32_t)c->opts.slots,
                               .choice = c->opts.choice};
    vb_wire_slot_encode(&given, bytes);
    (void)vb_conn_send(c, slot, WIRE_SLOT, bytes, sizeof(bytes));
    return true;
}

/* Asks all members to admit the joiner. */
void vb_membership_info_came(struct control *c, int rank)
{
    unsigned char bytes[WIRE_MEMBER_BYTES];
    int i;
    struct wire_member member = {.epoch = c->conns[rank].epoch, .info = c->conns[rank].info};

    vb_wire_member_encode(&member, bytes);
    for (i = 0; i < c->opts.slots; i++) {
        c->conns[i].join.admit_due = i != rank && is_member(&c->conns[i]);
        if (c->conns[i].join.admit_due)
            (void)vb_conn_send(c, i, WIRE_ADMIT, bytes, sizeof(bytes));
    }
    check_admitted(c);
}

/* Lets a rank connect from now on, and tells rank 0 so. */
static void expect(struct control *c, int rank, const struct wire_member *member)
{
    struct conn *conn = &c->conns[rank];
    unsigned char bytes[WIRE_ADMITTED_BYTES];

    conn->slot = SLOT_EXPECTED;
    conn->epoch = member->epoch;
    conn->info = member->info;
    conn->has_info = true;
    vb_wire_u32_encode((uint32_t)rank, bytes);
    vb_wire_u32_encode(member->epoch, bytes + 4);
    (void)vb_conn_send(c, 0, WIRE_ADMITTED, bytes, sizeof(bytes));
}

/* Rank 0 has decided that the former rank of the slot is gone, so it is now lost here, too. */
static bool take_admit(struct control *c, int rank)
{
    struct wire_member member;
    struct conn *conn;

    if (rank != 0 || !vb_wire_member_decode(c->conns[0].in.payload, &member) ||
        member.info.rank >= (uint32_t)c->opts.slots || member.info.rank == 0 ||
        member.info.rank == (uint32_t)c->opts.rank || member.epoch <= c->epoch)
        return false;
    c->epoch = member.epoch;
    conn = &c->conns[member.info.rank];
    if (conn->slot == SLOT_TAKEN && conn->end.left)
        conn->slot = SLOT_ENDED;
    else if (conn->slot == SLOT_TAKEN)
        vb_conn_lose(c, (int)member.info.rank, "the slot was given to another rank");
    if (conn->slot == SLOT_ENDED) {
        conn->join.admit = member;
        conn->join.admit_waits = true;
        vb_membership_news(c);
    } else {
        expect(c, (int)member.info.rank, &member);
    }
    return true;
}

static bool take_admitted(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (c->opts.rank != 0)
        return false;
    if (c->joining >= 0 && vb_wire_u32_decode(conn->in.payload) == (uint32_t)c->joining &&
        vb_wire_u32_decode(conn->in.payload + 4) == c->conns[c->joining].epoch) {
        conn->join.admit_due = false;
        check_admitted(c);
    }
    return true; /* otherwise the frame is about a joiner that is gone */
}

void vb_control_slot_clean(struct control *c, int rank, int process_fd)
{
    struct conn *conn = &c->conns[rank];
    struct wire_member admit;
    enum unfenced unfenced;
    bool waits;

    pthread_mutex_lock(&c->lock);
    admit = conn->join.admit;
    waits = conn->join.admit_waits;
    unfenced = unfenced_of(c, rank, process_fd);
    vb_conn_fini(conn);
    conn->past.unfenced = unfenced;
    conn->past.process_fd = process_fd;
    conn->past.freed = ++c->n_freed;
    if (waits)
        expect(c, rank, &admit);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static bool take_card(struct control *c, struct conn *conn)
{
    struct wire_card card;

    if (conn->join.has_card || !vb_wire_card_decode(conn->in.payload, &card))
        return false;
    memcpy(conn->join.card, conn->in.payload, sizeof(conn->join.card));
    conn->join.has_card = true;
    vb_membership_news(c);
    return true;
}

static bool take_offer(struct control *c, struct conn *conn)
{
    struct wire_offer offer;

    if (!vb_wire_offer_decode(conn->in.payload, &offer) ||
        !vb_conn_keep_blob(conn, &conn->join.offers, OFFERS_MAX))
        return false;
    vb_membership_news(c);
    return true;
}

bool vb_membership_frame(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    switch (conn->in.type) {
    case WIRE_ADMIT:
        return take_admit(c, rank);
    case WIRE_ADMITTED:
        return take_admitted(c, rank);
    case WIRE_JOINED:
        stop_joining(c, rank);
        if (c->opts.rank == 0)
            vb_record_joined(c, rank);
        return c->opts.rank == 0;
    case WIRE_CARD:
        return take_card(c, conn);
    case WIRE_OFFER:
        return take_offer(c, conn);
    case WIRE_DROPPED:
        return take_dropped(c, rank);
    default:
        return false; /* also for WIRE_SLOT, which is allowed only as the first frame */
    }
}
