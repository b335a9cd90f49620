/* SPDX-License-Identifier: MIT
 *
 * One control connection: receives and sends frames without blocking, under the lock.
 */
#include "net/control/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MAX (4u << 20) /* a peer that leaves this many bytes unread is stuck */
#define BLOBS_MAX 8        /* number of exchanges by which a peer may be ahead */

void vb_conn_init(struct conn *conn)
{
    memset(conn, 0, sizeof(*conn));
    conn->fd = -1;
    conn->data.fd = -1;
    conn->past.process_fd = -1;
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
    explicit_bzero(conn->session, sizeof(conn->session));
    explicit_bzero(conn->data.one_time, sizeof(conn->data.one_time));
    vb_conn_init(conn);
}

void vb_conn_up(struct control *c, int rank, int fd, const unsigned char session[AUTH_KEY_BYTES])
{
    struct conn *conn = &c->conns[rank];

    conn->fd = fd;
    conn->slot = SLOT_TAKEN;
    vb_watch_start(c, rank);
    memcpy(conn->session, session, AUTH_KEY_BYTES);
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
    if (!out_grow(conn, WIRE_FRAME_HEAD + len_bytes)) {
        vb_conn_lose(c, rank, "the peer does not read what this rank sends");
        return VB_ERR_PEER;
    }
    vb_wire_frame_encode((uint32_t)len_bytes, type, conn->out.bytes + conn->out.len);
    if (len_bytes > 0)
        memcpy(conn->out.bytes + conn->out.len + WIRE_FRAME_HEAD, payload, len_bytes);
    conn->out.len += WIRE_FRAME_HEAD + len_bytes;
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
        snprintf(gone, sizeof(gone), "the peer gave up: %.180s", why);
        conn->end.inactive = true;
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
    default:
        return c->opts.elastic && vb_membership_frame(c, rank);
    }
}

/* Returns false if the head is invalid or there is no memory for the payload. */
static bool begin_payload(struct control *c, struct conn *conn)
{
    if (!vb_wire_frame_decode(conn->in.head, c->opts.world, &conn->in.len, &conn->in.type))
        return false;
    conn->in.have = 0;
    if (conn->in.room >= conn->in.len && conn->in.payload != NULL)
        return true; /* the old buffer is used again, so heartbeats allocate nothing */
    free(conn->in.payload);
    conn->in.room = conn->in.len > 64 ? conn->in.len : 64;
    conn->in.payload = malloc(conn->in.room);
    return conn->in.payload != NULL;
}

/* Reads once. Returns 1 if the frame made progress, 0 if there was nothing to read, and -1 with
 * *why_p if the connection is broken or closed or the head of the frame is invalid. */
static int read_some(struct control *c, int rank, const char **why_p)
{
    struct conn *conn = &c->conns[rank];
    bool in_head = conn->in.head_have < WIRE_FRAME_HEAD;
    unsigned char *to =
        in_head ? conn->in.head + conn->in.head_have : conn->in.payload + conn->in.have;
    size_t want = in_head ? WIRE_FRAME_HEAD - conn->in.head_have : conn->in.len - conn->in.have;
    ssize_t n = want > 0 ? recv(conn->fd, to, want, MSG_DONTWAIT) : 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 || (n == 0 && want > 0)) {
        conn->end.inactive = n == 0;
        *why_p = n == 0 ? "the connection closed" : vb_watch_broken(c, rank, errno);
        return -1;
    }
    if (!in_head) {
        conn->in.have += (uint32_t)n;
        return 1;
    }
    conn->in.head_have += (size_t)n;
    if (conn->in.head_have == WIRE_FRAME_HEAD && !begin_payload(c, conn)) {
        *why_p = "the peer sent an invalid frame";
        return -1;
    }
    return 1;
}

void vb_conn_read(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    const char *why = NULL;
    int rc = 1;

    while (conn->fd >= 0 && rc > 0) {
        rc = read_some(c, rank, &why);
        if (rc > 0)
            conn->beat.heard_ns = vb_clock_ns();
        if (rc > 0 && conn->in.head_have == WIRE_FRAME_HEAD && conn->in.have == conn->in.len) {
            conn->in.head_have = 0;
            if (!take_frame(c, rank)) {
                why = "the peer sent a frame out of order";
                rc = -1;
            }
        }
    }
    if (rc < 0)
        vb_conn_lose(c, rank, why);
    pthread_cond_broadcast(&c->changed);
}
