/* SPDX-License-Identifier: MIT
 *
 * Records on their way to the root, which is rank 0, or the rank that leads the job when rank 0 is
 * gone. A rank queues them, and its control thread sends them: no faster than the rate of the
 * options, and only while few bytes are under way, so that heartbeats never wait long behind them.
 * The root hands each record to a function that copies it; nothing here writes to a disk. A peer
 * that sends faster than the rate loses records, which are counted.
 */
#include "net/control/control_priv.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define RATE 1000000u
#define QUEUE_BYTES ((size_t)512 << 10)
#define UNDER_WAY_MAX 16384 /* bytes that the peer has not acknowledged */
#define AGAIN_NS 5000000u   /* how soon a full socket is looked at again */

/* The root accepts somewhat more than a rank may send: what it has not read for a while comes at
 * once. */
#define RECEIVE_TIMES 1.25
#define RECEIVE_S 4

/* ---- rates ----------------------------------------------------------------------------------- */

static void rate_set(struct rate *rate, double per_s, double most)
{
    rate->per_ns = per_s / 1e9;
    rate->most = most > 2.0 * WIRE_RECORD_BYTES_MAX ? most : 2.0 * WIRE_RECORD_BYTES_MAX;
    rate->left = rate->most;
    rate->at_ns = 0;
}

bool vb_rate_take(struct rate *rate, double bytes, uint64_t now)
{
    if (rate->at_ns != 0 && now > rate->at_ns)
        rate->left += (double)(now - rate->at_ns) * rate->per_ns;
    if (rate->left > rate->most)
        rate->left = rate->most;
    rate->at_ns = now;
    if (rate->left < bytes)
        return false;
    rate->left -= bytes;
    return true;
}

uint64_t vb_rate_wait_ns(const struct rate *rate, double bytes)
{
    return rate->left >= bytes ? 0 : (uint64_t)((bytes - rate->left) / rate->per_ns) + 1;
}

static double bytes_per_s(const struct control *c)
{
    return (double)(c->records.bytes_per_s > 0 ? c->records.bytes_per_s : RATE);
}

void vb_control_record_rate(struct control *c, uint64_t per_s)
{
    int i;

    pthread_mutex_lock(&c->lock);
    c->records.bytes_per_s = per_s;
    rate_set(&c->records.out, bytes_per_s(c), bytes_per_s(c) / 4);
    for (i = 0; i < c->opts.slots; i++)
        c->conns[i].record.in.per_ns = 0; /* set again when the next record comes */
    pthread_mutex_unlock(&c->lock);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static void tell(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];

    if (rank == c->opts.rank || rank == c->joining || conn->slot != SLOT_TAKEN ||
        vb_conn_send(c, rank, WIRE_FOLDER, c->records.token, VB_FOLDER_TOKEN) != VB_OK)
        return;
    conn->record.told = true;
    if (conn->record.state == WIRE_RECORDS_END) /* of an earlier use of this group */
        conn->record.state = 0;
}

void vb_control_offer_folder(struct control *c, const unsigned char token[VB_FOLDER_TOKEN])
{
    int i;

    pthread_mutex_lock(&c->lock);
    c->records.root = c->opts.rank;
    memcpy(c->records.token, token, VB_FOLDER_TOKEN);
    c->records.has_token = true;
    for (i = 0; i < c->opts.slots; i++)
        tell(c, i);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
}

void vb_record_joined(struct control *c, int rank)
{
    if (c->records.has_token)
        tell(c, rank);
}

bool vb_control_take_folder(struct control *c, unsigned char token_p[VB_FOLDER_TOKEN])
{
    bool taken;

    pthread_mutex_lock(&c->lock);
    taken = c->records.has_token && c->opts.rank != c->records.root;
    if (taken) {
        memcpy(token_p, c->records.token, VB_FOLDER_TOKEN);
        c->records.has_token = false;
    }
    pthread_mutex_unlock(&c->lock);
    return taken;
}

static vb_status say(struct control *c, const struct wire_records *r)
{
    unsigned char bytes[WIRE_RECORDS_BYTES];

    vb_wire_records_encode(r, bytes);
    return vb_conn_send(c, c->records.root, WIRE_RECORDS, bytes, sizeof(bytes));
}

void vb_control_sees_folder(struct control *c, bool sees)
{
    const struct wire_records r = {.state = sees ? WIRE_RECORDS_SEES : WIRE_RECORDS_SENDS};

    pthread_mutex_lock(&c->lock);
    (void)say(c, &r);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
}

/* ---- sending --------------------------------------------------------------------------------- */

static bool queue_open(struct records *r)
{
    if (r->queue == NULL)
        r->queue = malloc(QUEUE_BYTES);
    return r->queue != NULL;
}

static vb_status enqueue(struct control *c, const struct wire_record *record)
{
    size_t need = 4 + 2 + strlen(record->file) + record->len_bytes, len;
    struct records *r = &c->records;

    if (need > QUEUE_BYTES - r->len)
        return VB_AGAIN;
    if (need > QUEUE_BYTES - r->first - r->len) {
        memmove(r->queue, r->queue + r->first, r->len);
        r->first = 0;
    }
    len = vb_wire_record_encode(record, r->queue + r->first + r->len + 4);
    vb_wire_u32_encode((uint32_t)len, r->queue + r->first + r->len);
    r->len += 4 + len;
    return VB_OK;
}

/* Nobody takes the records that wait. */
static void drop_queue(struct records *r)
{
    size_t at;

    for (at = 0; at < r->len; r->unsent_rows++) /* each has a row or more */
        at += 4 + vb_wire_u32_decode(r->queue + r->first + at);
    r->unsent_bytes += r->len;
    r->len = r->first = 0;
}

/* Returns whether the socket has so much to send that heartbeats would wait. */
static bool is_full(const struct conn *conn)
{
    int n = 0;

    return conn->out.len > 0 || (ioctl(conn->fd, SIOCOUTQ, &n) == 0 && n > UNDER_WAY_MAX);
}

uint64_t vb_record_send_due(struct control *c, uint64_t now)
{
    struct records *r = &c->records;
    uint32_t len;

    while (r->len > 0) {
        if (c->conns[r->root].fd < 0) {
            drop_queue(r);
            break;
        }
        len = vb_wire_u32_decode(r->queue + r->first);
        if (is_full(&c->conns[r->root]))
            return now + AGAIN_NS;
        if (!vb_rate_take(&r->out, len, now))
            return now + vb_rate_wait_ns(&r->out, len);
        r->stats.sent++;
        r->stats.sent_bytes += len;
        r->first += 4 + len;
        r->len -= 4 + len;
        (void)vb_conn_send(c, r->root, WIRE_RECORD, r->queue + r->first - len, len);
        pthread_cond_broadcast(&c->changed);
    }
    return UINT64_MAX;
}

/* The caller holds the lock. */
static vb_status send_record(struct control *c, const struct wire_record *record)
{
    struct records *r = &c->records;
    vb_status st;

    if (c->conns[r->root].fd < 0)
        return VB_ERR_PEER;
    if (!queue_open(r))
        return VB_ERR_NO_MEMORY;
    if (r->out.per_ns == 0)
        rate_set(&r->out, bytes_per_s(c), bytes_per_s(c) / 4);
    st = enqueue(c, record);
    (void)vb_record_send_due(c, vb_clock_ns());
    return st;
}

vb_status vb_control_send_record(struct control *c, const char *file, bool first, const void *bytes,
                                 size_t len_bytes)
{
    struct wire_record record = {.first = first, .bytes = bytes, .len_bytes = len_bytes};
    bool waits;
    vb_status st;

    if (len_bytes == 0 || len_bytes > VB_RECORD_BYTES_MAX ||
        !vb_wire_record_name_ok(file, c->opts.rank))
        return VB_ERR_USAGE;
    snprintf(record.file, sizeof(record.file), "%s", file);
    pthread_mutex_lock(&c->lock);
    st = c->opts.rank == c->records.root ? VB_ERR_USAGE : send_record(c, &record);
    waits = c->records.len > 0;
    pthread_mutex_unlock(&c->lock);
    if (waits)
        vb_control_wake(c);
    return st;
}

vb_status vb_control_end_records(struct control *c, uint64_t lost_bytes, uint64_t lost_rows,
                                 uint64_t deadline)
{
    struct wire_records r = {
        .state = WIRE_RECORDS_END, .lost_bytes = lost_bytes, .lost_rows = lost_rows};
    vb_status st = VB_OK;

    pthread_mutex_lock(&c->lock);
    while (c->records.len > 0 && c->conns[c->records.root].fd >= 0 && st == VB_OK &&
           atomic_load_explicit(&c->failed, memory_order_relaxed) == VB_OK)
        if (!vb_control_wait_change(c, deadline))
            st = VB_ERR_TIMEOUT;
    drop_queue(&c->records);
    r.lost_rows += c->records.unsent_rows;
    r.lost_bytes += c->records.unsent_bytes;
    c->records.unsent_rows = c->records.unsent_bytes = 0;
    if (say(c, &r) != VB_OK)
        st = VB_ERR_PEER;
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}

/* ---- receiving, at the root ------------------------------------------------------------------ */

void vb_control_on_record(struct control *c, vb_record_fn fn, void *arg)
{
    pthread_mutex_lock(&c->lock);
    c->records.fn = fn;
    c->records.arg = arg;
    pthread_mutex_unlock(&c->lock);
}

/* Returns whether a peer may take this rank for the root. A rank that has led an elastic group may
 * be sent records when it does not lead any more. */
static bool may_receive(const struct control *c)
{
    return c->opts.rank == c->records.root || c->opts.elastic;
}

static bool take_record(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct vb_record_stats *stats = &c->records.stats;
    struct wire_record r;

    if (!may_receive(c) || rank == c->joining || (c->opts.rank == 0 && !conn->has_info) ||
        !vb_wire_record_decode(conn->in.payload, conn->in.len, rank, &r))
        return false;
    if (conn->record.in.per_ns == 0)
        rate_set(&conn->record.in, RECEIVE_TIMES * bytes_per_s(c), RECEIVE_S * bytes_per_s(c));
    if (c->records.fn != NULL && vb_rate_take(&conn->record.in, conn->in.len, vb_clock_ns()) &&
        c->records.fn(c->records.arg, rank, r.file, r.first, r.bytes, r.len_bytes)) {
        stats->received++;
        stats->received_bytes += r.len_bytes;
    } else {
        stats->dropped++;
        stats->dropped_bytes += r.len_bytes;
    }
    return true;
}

static bool take_state(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    struct wire_records r;

    if (!may_receive(c) || !vb_wire_records_decode(conn->in.payload, &r))
        return false;
    conn->record.state = r.state;
    if (r.state == WIRE_RECORDS_END) {
        c->records.stats.lost_bytes += r.lost_bytes;
        c->records.stats.lost_rows += r.lost_rows;
    }
    return true;
}

bool vb_record_frame(struct control *c, int rank)
{
    if (c->conns[rank].in.type == WIRE_RECORD)
        return take_record(c, rank);
    if (c->conns[rank].in.type == WIRE_RECORDS)
        return take_state(c, rank);
    if (rank != 0 && !c->opts.elastic)
        return false;
    if (rank != c->records.root) { /* rank 0 is gone, and this rank leads the others */
        drop_queue(&c->records);
        c->records.root = rank;
    }
    memcpy(c->records.token, c->conns[rank].in.payload, VB_FOLDER_TOKEN);
    c->records.has_token = true;
    return true;
}

static bool all_ended(const struct control *c)
{
    const struct conn *conn;
    int i;

    for (i = 0; i < c->opts.slots; i++) {
        conn = &c->conns[i];
        if (conn->fd >= 0 && !conn->end.left && conn->record.told &&
            conn->record.state != WIRE_RECORDS_SEES && conn->record.state != WIRE_RECORDS_END)
            return false;
    }
    return true;
}

vb_status vb_control_wait_records(struct control *c, uint64_t deadline)
{
    vb_status st = VB_OK;

    pthread_mutex_lock(&c->lock);
    while (st == VB_OK && !all_ended(c) &&
           atomic_load_explicit(&c->failed, memory_order_relaxed) == VB_OK)
        if (!vb_control_wait_change(c, deadline))
            st = VB_ERR_TIMEOUT;
    pthread_mutex_unlock(&c->lock);
    return st;
}

struct vb_record_stats vb_control_record_stats(struct control *c)
{
    struct vb_record_stats stats;

    pthread_mutex_lock(&c->lock);
    stats = c->records.stats;
    pthread_mutex_unlock(&c->lock);
    return stats;
}

void vb_record_free(struct control *c)
{
    free(c->records.queue);
}
