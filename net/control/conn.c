/* SPDX-License-Identifier: MIT
 *
 * One control connection: receives and sends frames without blocking, under the lock.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MAX (4u << 20) /* a peer that leaves this many bytes unread is stuck */
#define BLOBS_MAX 8        /* number of exchanges by which a peer may be ahead */
#define READS_A_TURN 64    /* then the other peers have their turn */

void vb_conn_init(struct conn *conn)
{
    memset(conn, 0, sizeof(*conn));
    conn->fd = -1;
    conn->data.fd = -1;
    conn->past.process_fd = -1;
    conn->in.head_len = WIRE_FRAME_HEAD;
}

static void free_blobs(struct blob *blob)
{
    struct blob *next;

    for (; blob != NULL; blob = next) {
        next = blob->next;
        free(blob);
    }
}

void vb_conn_fini(struct conn *conn)
{
    vb_fd_close(&conn->fd);
    vb_fd_close(&conn->data.fd);
    vb_fd_close(&conn->past.process_fd);
    free_blobs(conn->blobs.first);
    free_blobs(conn->join.offers.first);
    free(conn->in.payload);
    free(conn->out.bytes);
    explicit_bzero(&conn->session, sizeof(conn->session));
    explicit_bzero(conn->data.one_time, sizeof(conn->data.one_time));
    vb_conn_init(conn);
}

void vb_conn_up(struct control *c, int rank, int fd, const struct auth_session *session)
{
    struct conn *conn = &c->conns[rank];

    conn->fd = fd;
    conn->slot = SLOT_TAKEN;
    vb_watch_start(c, rank);
    conn->session = *session;
    conn->polled = 0;
    if (!vb_control_poll_rank(c, rank))
        vb_conn_lose(c, rank, strerror(errno));
    pthread_cond_broadcast(&c->changed);
}

void vb_conn_lose(struct control *c, int rank, const char *why)
{
    struct conn *conn = &c->conns[rank];

    if (c->opts.elastic) {
        vb_membership_end(c, rank, why);
        return;
    }
    vb_fd_close(&conn->fd);
    if (conn->end.left || conn->end.lost || c->stopping)
        return;
    conn->end.lost = true;
    vb_control_tell_lost(c, rank, why);
    vb_control_fail(c, VB_ERR_PEER, "rank %d (%s) is lost: %s", rank, vb_control_host(c, rank),
                    why);
}

/* ---- out ------------------------------------------------------------------------------------- */

static void send_out(struct conn *conn)
{
    ssize_t n;

    while (conn->fd >= 0 && conn->out.len > 0) {
        n = send(conn->fd, conn->out.bytes, conn->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            /* The peer is gone. vb_conn_read() reads its last frames and finds the end. */
            conn->out.len = 0;
            return;
        }
        conn->out.len -= (size_t)n;
        memmove(conn->out.bytes, conn->out.bytes + n, conn->out.len);
    }
}

void vb_conn_flush(struct control *c, int rank)
{
    send_out(&c->conns[rank]);
    (void)vb_control_poll_rank(c, rank); /* it succeeds, because the descriptor is known */
}

static bool out_grow(struct conn *conn, size_t more)
{
    size_t room = conn->out.room > 0 ? conn->out.room : 4096;
    unsigned char *out;

    while (room < conn->out.len + more)
        room *= 2;
    if (room > OUT_MAX)
        return false;
    if (room == conn->out.room)
        return true;
    out = realloc(conn->out.bytes, room);
    if (out == NULL)
        return false;
    conn->out.bytes = out;
    conn->out.room = room;
    return true;
}

vb_status vb_conn_send(struct control *c, int rank, uint16_t type, const void *payload,
                       size_t len_bytes)
{
    struct conn *conn = &c->conns[rank];

    if (conn->fd < 0)
        return VB_ERR_PEER;
    if (!out_grow(conn, AUTH_FRAME_ROOM(len_bytes))) {
        vb_conn_lose(c, rank, "the peer does not read what this rank sends");
        return VB_ERR_PEER;
    }
    conn->out.len += vb_auth_frame(&conn->session.out, type, payload, len_bytes,
                                   conn->out.bytes + conn->out.len);
    vb_conn_flush(c, rank);
    return VB_OK;
}

/* ---- in -------------------------------------------------------------------------------------- */

bool vb_conn_keep_blob(const struct conn *conn, struct blob_list *list, int max)
{
    struct blob **at = &list->first, *blob;

    if (list->n == max)
        return false;
    blob = malloc(sizeof(*blob) + conn->in.len);
    if (blob == NULL)
        return false;
    blob->next = NULL;
    blob->tag = vb_wire_u32_decode(conn->in.payload);
    blob->len_bytes = conn->in.len - 4;
    memcpy(blob->bytes, conn->in.payload + 4, blob->len_bytes);
    while (*at != NULL)
        at = &(*at)->next;
    *at = blob;
    list->n++;
    return true;
}

static bool take_info(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (c->opts.rank != 0 || conn->has_info ||
        !vb_wire_info_decode(conn->in.payload, &conn->info) || conn->info.rank != (uint32_t)rank)
        return false;
    conn->has_info = true;
    if (c->opts.elastic && rank == c->joining)
        vb_membership_info_came(c, rank);
    return true;
}

/* Rank 0 sends the table of ranks or, to a joiner, the list of members, once. */
static bool take_table(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    bool members = conn->in.type == WIRE_MEMBERS;

    if (rank != 0 || c->table != NULL || (c->opts.epoch != GROUP_EPOCH) != members ||
        (members && (!c->opts.elastic || conn->in.len % WIRE_MEMBER_BYTES != 0)))
        return false;
    c->table = conn->in.payload;
    c->table_len = conn->in.len;
    conn->in.payload = NULL;
    return true;
}

void vb_conn_text(const struct conn *conn, char *out, size_t size)
{
    size_t i, n = conn->in.len < size - 1 ? conn->in.len : size - 1;

    for (i = 0; i < n; i++)
        out[i] =
            (char)(conn->in.payload[i] >= ' ' && conn->in.payload[i] <= '~' ? conn->in.payload[i]
                                                                            : '?');
    out[n] = '\0';
}

static void take_abort(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    char why[200], gone[CONTROL_WHY];

    vb_conn_text(conn, why, sizeof(why));
    if (c->opts.elastic) {
        snprintf(gone, sizeof(gone), CONTROL_GAVE_UP "%.180s", why);
        conn->end.inactive = conn->end.gave_up = true;
        vb_agree_gone(c, rank, VIEW_LEFT);
        vb_conn_lose(c, rank, gone);
        return;
    }
    conn->end.left = true;
    vb_watch_confirm(c);
    vb_control_tell_lost(c, rank, why);
    vb_control_fail(c, VB_ERR_PEER, "rank %d (%s) gave up: %s", rank, vb_control_host(c, rank),
                    why);
}

/* Handles a complete frame. Returns false if the protocol does not allow the frame. */
static bool take_frame(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    switch (conn->in.type) {
    case WIRE_INFO:
        return take_info(c, rank);
    case WIRE_TABLE:
    case WIRE_MEMBERS:
        return take_table(c, rank);
    case WIRE_ASK:
    case WIRE_BEAT:
    case WIRE_SILENT:
        return vb_watch_frame(c, rank);
    case WIRE_KEY:
        memcpy(conn->data.sealed, conn->in.payload, AUTH_SEALED_BYTES);
        conn->data.has_key = true;
        return true;
    case WIRE_BLOB:
        return vb_conn_keep_blob(conn, &conn->blobs, BLOBS_MAX);
    case WIRE_ABORT:
        take_abort(c, rank);
        return true;
    case WIRE_BYE:
        conn->end.left = true;
        conn->end.left_ns = vb_clock_ns();
        if (c->opts.elastic)
            vb_membership_leave(c, rank);
        return true;
    case WIRE_FOLDER:
    case WIRE_RECORDS:
    case WIRE_RECORD:
        return vb_record_frame(c, rank);
    case WIRE_TIME_ASK:
    case WIRE_TIME:
        return vb_clock_frame(c, rank);
    case WIRE_VIEW:
        return vb_agree_frame(c, rank);
    default:
        return c->opts.elastic && vb_membership_frame(c, rank);
    }
}

/* Returns false if there is no memory for payload and tag. least: what peers may send at a time
 * when nothing may be allocated. */
static bool begin_payload(struct conn_in *in, uint32_t least)
{
    uint32_t room = in->len + WIRE_TAG;

    in->have = 0;
    if (in->room >= room && in->payload != NULL)
        return true; /* the old buffer is used again, so heartbeats allocate nothing */
    free(in->payload);
    in->room = room > least ? room : least;
    in->payload = malloc(in->room);
    return in->payload != NULL;
}

/* All bytes of the head are there. If the length varies, the tag of the head follows first: no
 * memory is taken for a length that the peer has not sent. Returns what is wrong, or NULL. */
static const char *take_head(struct control *c, struct conn *conn)
{
    struct conn_in *in = &conn->in;
    uint32_t least = c->opts.agrees ? WIRE_VIEW_BYTES + WIRE_TAG : 128;
    const char *fault;

    if (in->head_len == WIRE_FRAME_HEAD) {
        if (!vb_wire_frame_decode(in->head, c->opts.world, &in->len, &in->type))
            return "the head of a control frame is invalid: it was injected or damaged on the way, "
                   "or the peer is faulty";
        if (vb_wire_length_varies(in->type)) {
            in->head_len += WIRE_TAG;
            return NULL;
        }
    } else {
        fault = vb_auth_check(&conn->session, in->head, NULL, 0, in->head + WIRE_FRAME_HEAD);
        if (fault != NULL)
            return fault;
    }
    return begin_payload(in, least) ? NULL : "there is no memory for what the peer sends";
}

/* Payload and tag are there. */
static const char *take_payload(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct conn_in *in = &conn->in;
    const char *fault =
        vb_auth_check(&conn->session, in->head, in->payload, in->len, in->payload + in->len);

    if (fault != NULL)
        return fault;
    in->head_have = 0;
    in->head_len = WIRE_FRAME_HEAD;
    if (take_frame(c, rank))
        return NULL;
    return in->type == WIRE_RECORD
               ? "the peer sent a record that is damaged, or for a file that is "
                 "not its own"
               : "the peer sent a frame out of order";
}

/* Reads once. Returns false if there was nothing to read, or with *why_p if the connection is
 * broken or closed. */
static bool read_some(struct control *c, int rank, const char **why_p)
{
    struct conn *conn = &c->conns[rank];
    struct conn_in *in = &conn->in;
    bool in_head = in->head_have < in->head_len;
    unsigned char *to = in_head ? in->head + in->head_have : in->payload + in->have;
    size_t want = in_head ? in->head_len - in->head_have : in->len + WIRE_TAG - in->have;
    ssize_t n = recv(conn->fd, to, want, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        conn->end.inactive = n == 0;
        *why_p =
            n < 0 ? vb_watch_broken(c, rank, errno) : vb_watch_closed(c, rank, in->head_have > 0);
        return false;
    }
    if (in_head)
        in->head_have += (size_t)n;
    else
        in->have += (uint32_t)n;
    return true;
}

/* max: number of reads, of which a frame takes two or three. */
static void read_frames(struct control *c, int rank, int max)
{
    struct conn *conn = &c->conns[rank];
    struct conn_in *in = &conn->in;
    const char *why = NULL;
    bool in_head;

    while (conn->fd >= 0 && why == NULL && max-- > 0) {
        in_head = in->head_have < in->head_len;
        if (!read_some(c, rank, &why))
            break;
        if (in_head && in->head_have == in->head_len)
            why = take_head(c, conn);
        else if (!in_head && in->have == in->len + WIRE_TAG)
            why = take_payload(c, rank);
        /* Only a frame, or the payload after a head, that was proved counts as heard. Otherwise
         * somebody on the way could keep a dead peer alive. */
        if (why == NULL && (in->head_have == 0 || in->head_have == sizeof(in->head)))
            conn->beat.heard_ns = conn->beat.frame_ns = vb_clock_ns();
    }
    if (why != NULL)
        vb_conn_lose(c, rank, why);
    pthread_cond_broadcast(&c->changed);
}

void vb_conn_read(struct control *c, int rank)
{
    read_frames(c, rank, INT_MAX);
}

void vb_conn_read_some(struct control *c, int rank)
{
    read_frames(c, rank, READS_A_TURN);
}
