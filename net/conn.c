/* SPDX-License-Identifier: MIT
 *
 * One control connection: frames in and out, without blocking. All of it under the lock.
 */
#include "net/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MAX (4u << 20) /* a peer that takes in nothing while so much waits is stuck */
#define BLOBS_MAX 8        /* exchanges that a peer may be ahead by */

void conn_init(struct conn *conn)
{
    memset(conn, 0, sizeof(*conn));
    conn->fd = -1;
    conn->stream_fd = -1;
}

static void free_blobs(struct blob *blob)
{
    struct blob *next;

    for (; blob != NULL; blob = next) {
        next = blob->next;
        free(blob);
    }
}

void conn_fini(struct conn *conn)
{

    if (conn->fd >= 0)
        close(conn->fd);
    if (conn->stream_fd >= 0)
        close(conn->stream_fd);
    free_blobs(conn->blobs);
    free_blobs(conn->offers);
    free(conn->payload);
    free(conn->out);
    auth_wipe(conn->session, sizeof(conn->session));
    auth_wipe(conn->one_time, sizeof(conn->one_time));
    conn_init(conn);
}

void conn_up(struct control *c, int rank, int fd, const unsigned char session[AUTH_KEY_BYTES])
{
    struct conn *conn = &c->conns[rank];

    conn->fd = fd;
    conn->seat = SEAT_TAKEN;
    conn->heard_ns = vb_clock_ns();
    memcpy(conn->session, session, AUTH_KEY_BYTES);
    pthread_cond_broadcast(&c->changed);
}

void conn_lose(struct control *c, int rank, const char *why)
{
    struct conn *conn = &c->conns[rank];

    if (c->opts.elastic) {
        seat_end(c, rank, why);
        return;
    }
    if (conn->fd >= 0) {
        close(conn->fd);
        conn->fd = -1;
    }
    if (conn->left || conn->lost || c->stopping)
        return;
    conn->lost = true;
    control_fail(c, VB_ERR_PEER, "rank %d (%s) is lost: %s", rank, control_host(c, rank), why);
}

/* ---- out ------------------------------------------------------------------------------------- */

void conn_flush(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    ssize_t n;

    while (conn->fd >= 0 && conn->out_len > 0) {
        n = send(conn->fd, conn->out, conn->out_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            /* What it sent before it went may still be there to be read: reading finds the end. */
            conn->out_len = 0;
            return;
        }
        conn->out_len -= (size_t)n;
        memmove(conn->out, conn->out + n, conn->out_len);
    }
}

static bool out_grow(struct conn *conn, size_t more)
{
    size_t room = conn->out_room > 0 ? conn->out_room : 4096;
    unsigned char *out;

    while (room < conn->out_len + more)
        room *= 2;
    if (room > OUT_MAX)
        return false;
    if (room == conn->out_room)
        return true;
    out = realloc(conn->out, room);
    if (out == NULL)
        return false;
    conn->out = out;
    conn->out_room = room;
    return true;
}

vb_status conn_send(struct control *c, int rank, uint16_t type, const void *payload,
                    size_t len_bytes)
{
    struct conn *conn = &c->conns[rank];

    if (conn->fd < 0)
        return VB_ERR_PEER;
    if (!out_grow(conn, WIRE_FRAME_HEAD + len_bytes)) {
        conn_lose(c, rank, "it takes in nothing");
        return VB_ERR_PEER;
    }
    wire_frame_encode((uint32_t)len_bytes, type, conn->out + conn->out_len);
    if (len_bytes > 0)
        memcpy(conn->out + conn->out_len + WIRE_FRAME_HEAD, payload, len_bytes);
    conn->out_len += WIRE_FRAME_HEAD + len_bytes;
    conn_flush(c, rank);
    return VB_OK;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* Keeps a frame behind those that came before it. False: memory, or the peer runs amok. */
bool conn_keep_blob(struct conn *conn, struct blob **list, int *n, int max)
{
    struct blob **at = list, *blob;

    if (*n == max)
        return false;
    blob = malloc(sizeof(*blob) + conn->payload_len);
    if (blob == NULL)
        return false;
    blob->next = NULL;
    blob->tag = wire_u32_decode(conn->payload);
    blob->len_bytes = conn->payload_len - 4;
    memcpy(blob->bytes, conn->payload + 4, blob->len_bytes);
    while (*at != NULL)
        at = &(*at)->next;
    *at = blob;
    ++*n;
    return true;
}

static bool take_info(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (c->opts.rank != 0 || conn->has_info || !wire_info_decode(conn->payload, &conn->info) ||
        conn->info.rank != (uint32_t)rank)
        return false;
    conn->has_info = true;
    return !c->opts.elastic || seat_info_came(c, rank);
}

static bool take_table(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (rank != 0 || c->table != NULL || c->opts.epoch != GROUP_EPOCH)
        return false;
    c->table = conn->payload;
    c->table_len = conn->payload_len;
    conn->payload = NULL;
    return true;
}

void conn_text(const struct conn *conn, char *out, size_t size)
{
    size_t i, n = conn->payload_len < size - 1 ? conn->payload_len : size - 1;

    for (i = 0; i < n; i++)
        out[i] =
            (char)(conn->payload[i] >= ' ' && conn->payload[i] <= '~' ? conn->payload[i] : '?');
    out[n] = '\0';
}

static void take_abort(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    char why[200], gone[CONTROL_WHY];

    conn_text(conn, why, sizeof(why));
    if (c->opts.elastic) {
        snprintf(gone, sizeof(gone), "it gave up: %.180s", why);
        conn->ended = true;
        conn_lose(c, rank, gone);
        return;
    }
    conn->left = true;
    control_fail(c, VB_ERR_PEER, "rank %d (%s) gave up: %s", rank, control_host(c, rank), why);
}

/* A whole frame has come. False: a peer of ours would not send that. */
static bool take_frame(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    switch (conn->type) {
    case WIRE_INFO:
        return take_info(c, rank);
    case WIRE_TABLE:
        return take_table(c, rank);
    case WIRE_BEAT:
        conn->step = wire_u64_decode(conn->payload);
        return true;
    case WIRE_KEY:
        memcpy(conn->sealed, conn->payload, AUTH_SEALED_BYTES);
        conn->has_key = true;
        return true;
    case WIRE_BLOB:
        return conn_keep_blob(conn, &conn->blobs, &conn->n_blobs, BLOBS_MAX);
    case WIRE_ABORT:
        take_abort(c, rank);
        return true;
    case WIRE_BYE:
        conn->left = true;
        conn->left_ns = vb_clock_ns();
        if (c->opts.elastic)
            seat_leave(c, rank);
        return true;
    default:
        return c->opts.elastic && seat_frame(c, rank);
    }
}

/* Prepares for the payload that the head in hand announces. */
static bool begin_payload(struct control *c, struct conn *conn)
{
    if (!wire_frame_decode(conn->head, c->opts.world, &conn->payload_len, &conn->type))
        return false;
    conn->payload_have = 0;
    if (conn->payload_room >= conn->payload_len && conn->payload != NULL)
        return true; /* heartbeats allocate nothing */
    free(conn->payload);
    conn->payload_room = conn->payload_len > 64 ? conn->payload_len : 64;
    conn->payload = malloc(conn->payload_room);
    return conn->payload != NULL;
}

/* Reads some; 1: a step forward, 0: nothing there, -1: broken or closed (why says which). */
static int read_some(struct control *c, struct conn *conn, const char **why_p)
{
    bool in_head = conn->head_have < WIRE_FRAME_HEAD;
    unsigned char *to = in_head ? conn->head + conn->head_have : conn->payload + conn->payload_have;
    size_t want =
        in_head ? WIRE_FRAME_HEAD - conn->head_have : conn->payload_len - conn->payload_have;
    ssize_t n = want > 0 ? recv(conn->fd, to, want, MSG_DONTWAIT) : 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 || (n == 0 && want > 0)) {
        conn->ended = n == 0;
        *why_p = n == 0 ? "its connection closed" : "its connection failed";
        return -1;
    }
    if (!in_head) {
        conn->payload_have += (uint32_t)n;
        return 1;
    }
    conn->head_have += (size_t)n;
    if (conn->head_have == WIRE_FRAME_HEAD && !begin_payload(c, conn)) {
        *why_p = "it sent a frame that there is not";
        return -1;
    }
    return 1;
}

void conn_read(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    const char *why = NULL;
    int rc = 1;

    while (conn->fd >= 0 && rc > 0) {
        rc = read_some(c, conn, &why);
        if (rc > 0)
            conn->heard_ns = vb_clock_ns();
        if (rc > 0 && conn->head_have == WIRE_FRAME_HEAD &&
            conn->payload_have == conn->payload_len) {
            conn->head_have = 0;
            if (!take_frame(c, rank)) {
                why = "it sent a frame out of place";
                rc = -1;
            }
        }
    }
    if (rc < 0)
        conn_lose(c, rank, why);
    pthread_cond_broadcast(&c->changed);
}
