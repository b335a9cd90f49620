/* SPDX-License-Identifier: MIT
 *
 * Seats of an elastic group: who may come late, and who is gone.
 *
 *   newcomer -> rank 0   calls, proves the secret
 *   rank 0 -> newcomer   seat: its rank, and the epoch that begins with it
 *   newcomer -> rank 0   info
 *   rank 0 -> members    admit: that rank, of that epoch, may call
 *   members -> rank 0    admitted, once nothing is left of who had the seat before
 *   rank 0 -> newcomer   members: whom to call
 *   newcomer -> rank 0   joined, when it is connected with all; the next one may come
 *
 * All of that is done by control threads. What a member does with a newcomer's data connection, and
 * with that of a peer who is gone, the group does when it next makes progress: news says so.
 */
#include "net/control_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOIN_NS 30000000000u /* for a newcomer to connect with all */
#define OFFERS_MAX 64        /* windows that a peer may be ahead by */

void seat_news(struct control *c)
{
    if (!c->opts.elastic)
        return;
    if (c->opts.news != NULL) /* pairs with the acquire in member_work() */
        atomic_store_explicit(c->opts.news, true, memory_order_release);
    if (c->opts.alarm != NULL)
        c->opts.alarm(c->opts.arg);
}

static bool is_here(const struct conn *conn)
{
    return conn->seat == SEAT_TAKEN && conn->fd >= 0;
}

/* ---- who goes -------------------------------------------------------------------------------- */

static void hang_up(struct conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

/* When all has been said by those who will admit the newcomer, it learns whom to call. */
static void send_members(struct control *c)
{
    size_t room = (size_t)c->opts.seats * WIRE_MEMBER_BYTES, len = 0;
    unsigned char *bytes = malloc(room);
    struct wire_member member;
    int i;

    for (i = 0; i < c->opts.seats && bytes != NULL; i++) {
        if (i == c->joining || (i != c->opts.rank && !is_here(&c->conns[i])))
            continue;
        member.epoch = i == c->opts.rank ? c->opts.epoch : c->conns[i].epoch;
        member.info = c->conns[i].info;
        wire_member_encode(&member, bytes + len);
        len += WIRE_MEMBER_BYTES;
    }
    if (bytes != NULL)
        (void)conn_send(c, c->joining, WIRE_MEMBERS, bytes, len);
    free(bytes); /* NULL: the newcomer's time will be up */
}

static void look_for_admitted(struct control *c)
{
    int i;

    if (c->joining < 0 || c->told_members || !c->conns[c->joining].has_info)
        return;
    for (i = 0; i < c->opts.seats; i++)
        if (c->conns[i].admit_due && is_here(&c->conns[i]))
            return;
    c->told_members = true;
    send_members(c);
}

static void stop_joining(struct control *c, int rank)
{
    if (c->joining == rank)
        c->joining = -1;
}

/* Dropped by one, and nobody else is left: then it was this rank that stood still. */
static void look_for_company(struct control *c)
{
    const struct conn *by = NULL;
    int i;

    for (i = 0; i < c->opts.seats; i++) {
        if (is_here(&c->conns[i]))
            return;
        if (c->conns[i].dropped_us)
            by = &c->conns[i];
    }
    if (by != NULL)
        control_fail(c, VB_ERR_PEER, "this rank is out of the group: %s", by->why);
}

void seat_end(struct control *c, int rank, const char *why)
{
    struct conn *conn = &c->conns[rank];

    if (conn->seat != SEAT_TAKEN || c->stopping || conn->left) {
        hang_up(conn);
        if (conn->seat == SEAT_TAKEN && conn->left)
            conn->seat = SEAT_ENDED; /* its last notes have come */
        seat_news(c);
        return;
    }
    conn->seat = SEAT_ENDED; /* first: sending may come back here */
    conn->lost = true;
    conn->ended |= c->joining == rank;
    snprintf(conn->why, sizeof(conn->why), "%s", why);
    if (conn->fd >= 0 && !conn->dropped_us)
        (void)conn_send(c, rank, WIRE_DROPPED, why, strnlen(why, CONTROL_WHY));
    hang_up(conn);
    stop_joining(c, rank);
    look_for_admitted(c);
    look_for_company(c);
    pthread_cond_broadcast(&c->changed);
    seat_news(c);
}

void seat_leave(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    snprintf(conn->why, sizeof(conn->why), "it left");
    hang_up(conn); /* so that it need not wait */
    stop_joining(c, rank);
    look_for_admitted(c);
}

void seat_look(struct control *c, uint64_t now)
{
    struct conn *conn;
    int i;

    for (i = 0; i < c->opts.seats; i++) {
        conn = &c->conns[i];
        if (conn->seat == SEAT_TAKEN && conn->left &&
            now > conn->left_ns + control_patient(c, LEAVE_NS)) {
            conn->seat = SEAT_ENDED;
            seat_news(c);
        }
    }
    if (c->joining >= 0 && now > c->joining_until)
        conn_lose(c, c->joining, "it did not join in time");
}

static bool take_dropped(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    char text[CONTROL_WHY - 32], why[CONTROL_WHY];

    conn_text(conn, text, sizeof(text));
    snprintf(why, sizeof(why), "it dropped this rank: %s", text);
    conn->dropped_us = true;
    conn_lose(c, rank, why);
    if (rank == 0)
        control_fail(c, VB_ERR_PEER, "rank 0 (%s) dropped this rank: %s", control_host(c, 0), text);
    return true;
}

static enum vb_end how_it_ended(const struct conn *conn)
{
    if (conn->left)
        return VB_END_LEFT;
    if (conn->dropped_us)
        return VB_END_DROPPED_US;
    return conn->silent ? VB_END_SILENT : VB_END_DIED;
}

bool control_take_ended(struct control *c, struct control_end *end_p)
{
    struct conn *conn;
    bool found = false;
    int i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < c->opts.seats && !found; i++) {
        conn = &c->conns[i];
        if (conn->seat != SEAT_ENDED || conn->handed)
            continue;
        found = conn->handed = true;
        end_p->rank = i;
        end_p->how = how_it_ended(conn);
        memcpy(end_p->why, conn->why, sizeof(end_p->why));
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

/* ---- who comes ------------------------------------------------------------------------------- */

/* Whether others share memory with who had a seat. */
static bool has_neighbours(const struct control *c, int rank)
{
    int i;

    if (c->opts.choice == VB_TRANSPORT_TCP || c->opts.choice == VB_TRANSPORT_VERBS)
        return false;
    for (i = 0; i < c->opts.seats; i++)
        if (i != rank && (i == c->opts.rank || is_here(&c->conns[i])) &&
            wire_info_same_host(&c->conns[i].info, &c->conns[rank].info))
            return true;
    return false;
}

/* A process that was dropped, but lives, may still write to memory that is mapped, where its seat
 * was: nobody else is to have the seat. On other hosts than this one nobody can tell when it ends.
 */
static enum seat_ghost ghost_of(const struct control *c, int rank)
{
    const struct conn *conn = &c->conns[rank];

    if (conn->left || !conn->has_info || !has_neighbours(c, rank))
        return GHOST_NONE;
    if (wire_info_same_host(&conn->info, &c->conns[c->opts.rank].info))
        return GHOST_HERE;
    return conn->ended ? GHOST_NONE : GHOST_ELSEWHERE;
}

/* A zombie does nothing any more. */
static bool process_lives(uint32_t pid)
{
    char line[512] = "";
    const char *state;

    if (!vb_probe_line(line, sizeof(line), "/proc/%u/stat", pid))
        return false;
    state = strrchr(line, ')');
    return state == NULL || strlen(state) < 3 || (state[2] != 'Z' && state[2] != 'X');
}

static bool is_haunted(const struct conn *conn)
{
    return conn->ghost == GHOST_ELSEWHERE ||
           (conn->ghost == GHOST_HERE && process_lives(conn->ghost_pid));
}

/* One that nobody had before, else the one that is empty for longest: whoever still has business
 * with the rank that had it has time to end it. */
static int find_empty(const struct control *c)
{
    int i, best = -1;

    for (i = 0; i < c->opts.seats; i++)
        if (i != c->opts.rank && c->conns[i].seat == SEAT_EMPTY && !is_haunted(&c->conns[i]) &&
            (best < 0 || c->conns[i].freed < c->conns[best].freed))
            best = i;
    return best;
}

static bool any_ending(const struct control *c)
{
    int i;

    for (i = 0; i < c->opts.seats; i++)
        if (c->conns[i].seat == SEAT_ENDED || c->conns[i].left)
            return true;
    return false;
}

enum wire_verdict seat_judge_join(struct control *c)
{
    if (!c->opts.elastic || c->opts.rank != 0 || c->stopping)
        return WIRE_CLOSED;
    if (!c->open || c->joining >= 0) /* the first ones come first */
        return WIRE_BUSY;
    if (find_empty(c) >= 0)
        return WIRE_WELCOME;
    return any_ending(c) ? WIRE_BUSY : WIRE_FULL;
}

bool seat_give(struct control *c, int fd, const unsigned char session[AUTH_KEY_BYTES])
{
    int seat = c->joining < 0 ? find_empty(c) : -1;
    unsigned char bytes[WIRE_SEAT_BYTES];
    struct wire_seat given;

    if (seat < 0)
        return false;
    c->joining = seat;
    c->told_members = false;
    c->joining_until = vb_clock_ns() + control_patient(c, JOIN_NS);
    c->conns[seat].epoch = ++c->epoch;
    conn_up(c, seat, fd, session);
    given = (struct wire_seat){.seat = (uint32_t)seat,
                               .epoch = c->epoch,
                               .world = (uint32_t)c->opts.world,
                               .seats = (uint32_t)c->opts.seats,
                               .choice = c->opts.choice};
    wire_seat_encode(&given, bytes);
    (void)conn_send(c, seat, WIRE_SEAT, bytes, sizeof(bytes));
    return true;
}

bool seat_info_came(struct control *c, int rank)
{
    unsigned char bytes[WIRE_MEMBER_BYTES];
    struct wire_member member;
    int i;

    if (rank != c->joining)
        return true; /* the roll call */
    member = (struct wire_member){.epoch = c->conns[rank].epoch, .info = c->conns[rank].info};
    wire_member_encode(&member, bytes);
    for (i = 0; i < c->opts.seats; i++) {
        c->conns[i].admit_due = i != rank && is_here(&c->conns[i]);
        if (c->conns[i].admit_due)
            (void)conn_send(c, i, WIRE_ADMIT, bytes, sizeof(bytes));
    }
    look_for_admitted(c);
    return true;
}

static void expect(struct control *c, int rank, const struct wire_member *member)
{
    struct conn *conn = &c->conns[rank];
    unsigned char bytes[WIRE_ADMITTED_BYTES];

    conn->seat = SEAT_EXPECTED;
    conn->epoch = member->epoch;
    conn->info = member->info;
    conn->has_info = true;
    wire_u32_encode((uint32_t)rank, bytes);
    wire_u32_encode(member->epoch, bytes + 4);
    (void)conn_send(c, 0, WIRE_ADMITTED, bytes, sizeof(bytes));
}

/* Rank 0 knows better than we do whether who had the seat is still there. */
static bool take_admit(struct control *c, int rank)
{
    struct wire_member member;
    struct conn *conn;

    if (rank != 0 || !wire_member_decode(c->conns[0].payload, &member) ||
        member.info.rank >= (uint32_t)c->opts.seats || member.info.rank == 0 ||
        member.info.rank == (uint32_t)c->opts.rank || member.epoch <= c->epoch)
        return false;
    c->epoch = member.epoch;
    conn = &c->conns[member.info.rank];
    if (conn->seat == SEAT_TAKEN && conn->left)
        conn->seat = SEAT_ENDED;
    else if (conn->seat == SEAT_TAKEN)
        conn_lose(c, (int)member.info.rank, "its seat was given to another");
    if (conn->seat == SEAT_ENDED) {
        conn->admit = member;
        conn->admit_waits = true;
        seat_news(c);
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
    if (c->joining >= 0 && wire_u32_decode(conn->payload) == (uint32_t)c->joining &&
        wire_u32_decode(conn->payload + 4) == c->conns[c->joining].epoch) {
        conn->admit_due = false;
        look_for_admitted(c);
    }
    return true; /* of one who has gone meanwhile: nothing to do */
}

void control_seat_clean(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct wire_member admit;
    enum seat_ghost ghost;
    uint32_t pid;
    bool waits;

    pthread_mutex_lock(&c->lock);
    admit = conn->admit;
    waits = conn->admit_waits;
    ghost = ghost_of(c, rank);
    pid = conn->info.pid;
    conn_fini(conn);
    conn->ghost = ghost;
    conn->ghost_pid = pid;
    conn->freed = ++c->n_freed;
    if (waits)
        expect(c, rank, &admit);
    pthread_mutex_unlock(&c->lock);
    control_wake(c);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static bool take_card(struct control *c, struct conn *conn)
{
    struct wire_card card;

    if (conn->has_card || !wire_card_decode(conn->payload, &card))
        return false;
    memcpy(conn->card, conn->payload, sizeof(conn->card));
    conn->has_card = true;
    seat_news(c);
    return true;
}

static bool take_offer(struct control *c, struct conn *conn)
{
    struct wire_offer offer;

    if (!wire_offer_decode(conn->payload, &offer) ||
        !conn_keep_blob(conn, &conn->offers, &conn->n_offers, OFFERS_MAX))
        return false;
    seat_news(c);
    return true;
}

static bool take_members(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (rank != 0 || c->opts.epoch == GROUP_EPOCH || c->table != NULL ||
        conn->payload_len % WIRE_MEMBER_BYTES != 0)
        return false;
    c->table = conn->payload;
    c->table_len = conn->payload_len;
    conn->payload = NULL;
    return true;
}

bool seat_frame(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    switch (conn->type) {
    case WIRE_ADMIT:
        return take_admit(c, rank);
    case WIRE_ADMITTED:
        return take_admitted(c, rank);
    case WIRE_MEMBERS:
        return take_members(c, rank);
    case WIRE_JOINED:
        stop_joining(c, rank);
        return c->opts.rank == 0;
    case WIRE_CARD:
        return take_card(c, conn);
    case WIRE_OFFER:
        return take_offer(c, conn);
    case WIRE_DROPPED:
        return take_dropped(c, rank);
    default:
        return false; /* a seat is given before anything else is said */
    }
}
