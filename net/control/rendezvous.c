/* SPDX-License-Identifier: MIT
 *
 * The exchanges of ranks that start a group: control connections, the table of ranks and their
 * addresses, keys for data connections, and the blobs of vb_control_exchange().
 */
#include "net/control/control_priv.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REMIND_NS (3ull * 1000 * 1000 * 1000) /* then again, after growing pauses */
#define AGAIN_NS (10ull * 1000 * 1000 * 1000)
#define LOOK_NS                                                                                    \
    (1ull * 1000 * 1000 * 1000) /* between two looks whether a rank is known not to come */
#define LATER_NS (2ull * 1000 * 1000 * 1000) /* the others wait this much longer than rank 0 */

/* ---- connecting ------------------------------------------------------------------------------ */

static struct wire_call call_to(struct control *c, int rank, enum wire_kind kind)
{
    struct wire_call call = {.version = WIRE_VERSION,
                             .kind = (uint16_t)kind,
                             .rank = (uint32_t)c->opts.rank,
                             .to = (uint32_t)rank,
                             .world = (uint32_t)c->opts.world,
                             .epoch = c->conns[rank].epoch};

    vb_auth_random(call.nonce, sizeof(call.nonce));
    return call;
}

/* After a hang-up the listener is there, unless its process has just ended. */
static uint64_t connect_until(uint64_t deadline, int tries)
{
    uint64_t soon = vb_clock_ns() + AGAIN_NS;

    return tries > 0 && soon < deadline ? soon : deadline;
}

/* Connects and proves the secret. A listener with too many callers hangs up on some before they
 * have proved anything, so this rank dials again until the deadline. A verdict is final. */
static vb_status dial(struct control *c, int rank, enum wire_kind kind, control_connect_fn connect,
                      void *arg, const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                      int *fd_p, unsigned char session[AUTH_KEY_BYTES])
{
    struct timespec pause = {.tv_nsec = 10 * 1000000};
    struct wire_call call;
    vb_status st;
    int tries;

    for (tries = 0;; tries++) {
        call = call_to(c, rank, kind);
        st = connect(arg, connect_until(deadline, tries), fd_p);
        if (st != VB_OK)
            return st;
        st = vb_handshake_call(*fd_p, &call, key, deadline, session);
        if (st == VB_OK)
            return VB_OK;
        vb_fd_close(fd_p);
        if (st != VB_ERR_PEER)
            return st;
        if (vb_clock_ns() >= deadline)
            return vb_err(st, "rank %d (%s) hung up %d times before the handshake was complete",
                          rank, vb_control_host(c, rank), tries + 1);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 500 * 1000000)
            pause.tv_nsec *= 2;
    }
}

struct listener {
    struct control *c;
    struct sock_addr at;
};

static bool is_hopeless(const struct control *c)
{
    return c->opts.hopeless != NULL && atomic_load(c->opts.hopeless);
}

/* It may be the listener that does not come. */
static vb_status connect_with_hope(const struct listener *to, uint64_t deadline, int *fd_p)
{
    struct timespec pause = {.tv_nsec = 10 * 1000000};
    vb_status st = VB_AGAIN;
    uint64_t soon;

    while (!is_hopeless(to->c) && vb_clock_ns() < deadline &&
           (st == VB_AGAIN || st == VB_ERR_TIMEOUT)) {
        soon = vb_clock_ns() + LOOK_NS;
        st = vb_sock_connect_once(&to->at, soon < deadline ? soon : deadline, fd_p);
        if (st == VB_OK)
            return VB_OK;
        nanosleep(&pause, NULL);
    }
    return is_hopeless(to->c)
               ? vb_err(VB_ERR_PEER, "the connection is given up, because a rank does not come")
               : vb_sock_connect(&to->at, deadline, fd_p); /* says why it fails */
}

static vb_status connect_tcp(void *arg, uint64_t deadline, int *fd_p)
{
    const struct listener *to = arg;

    return to->c->opts.hopeless != NULL ? connect_with_hope(to, deadline, fd_p)
                                        : vb_sock_connect(&to->at, deadline, fd_p);
}

vb_status vb_control_dial(struct control *c, int rank, const struct sock_addr *to,
                          uint64_t deadline)
{
    unsigned char key[AUTH_KEY_BYTES];
    struct auth_session session;
    struct listener at = {c, *to};
    int fd;
    vb_status st =
        dial(c, rank, WIRE_CONTROL, connect_tcp, &at, c->opts.secret, deadline, &fd, key);

    if (st != VB_OK)
        return st;
    vb_auth_session(&session, key, AUTH_CALLER);
    pthread_mutex_lock(&c->lock);
    vb_conn_up(c, rank, fd, &session);
    pthread_mutex_unlock(&c->lock);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(&session, sizeof(session));
    vb_control_wake(c);
    return VB_OK;
}

vb_status vb_control_local_addr(struct control *c, int rank, struct sock_addr *addr_p)
{
    vb_status st = VB_ERR_PEER;

    pthread_mutex_lock(&c->lock);
    if (c->conns[rank].fd >= 0)
        st = vb_sock_local(c->conns[rank].fd, addr_p);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void vb_control_pair_key(struct control *c, int rank, unsigned char key[AUTH_KEY_BYTES])
{
    pthread_mutex_lock(&c->lock);
    vb_auth_code(c->conns[rank].session.key, "verbena pair   1", NULL, 0, key);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the table of ranks ---------------------------------------------------------------------- */

static bool is_calling(const struct control *c, int rank)
{
    const struct pending *p;
    int d, i;

    for (d = 0; d < DOORS; d++)
        for (i = 0; c->doors[d].used > 0 && i < c->doors[d].n; i++) {
            p = &c->doors[d].places[i];
            if (p->fd >= 0 && p->hs.state == HANDSHAKE_PROOF && p->hs.call.rank == (uint32_t)rank)
                return true;
        }
    return false;
}

static void stage_of(struct control *c, int rank, char *out, size_t size)
{
    if (c->conns[rank].fd >= 0)
        snprintf(out, size, "connected, has not sent its address");
    else if (is_calling(c, rank))
        snprintf(out, size, "connecting, has not proved the secret");
    else if (c->conns[rank].refused != WIRE_WELCOME)
        snprintf(out, size, "refused: %s", vb_wire_verdict_str(c->conns[rank].refused));
    else
        snprintf(out, size, "never seen");
}

/* Writes "2 (never seen), 3 (connected, ...)" and returns how many are missing. */
static int list_missing(struct control *c, char *out, size_t size)
{
    char stage[128];
    size_t len = 0;
    int i, n = 0;

    out[0] = '\0';
    for (i = 1; i < c->opts.world; i++) {
        if (c->conns[i].has_info)
            continue;
        stage_of(c, i, stage, sizeof(stage));
        if (len < size)
            len +=
                (size_t)snprintf(out + len, size - len, "%s%d (%s)", n > 0 ? ", " : "", i, stage);
        n++;
    }
    return n;
}

/* Returns a rank that has come and is gone again; -1: none. An elastic group, too, begins only with
 * all ranks. */
static int find_gone(const struct control *c)
{
    int i;

    for (i = 1; i < c->opts.world; i++)
        if (c->conns[i].end.lost || c->conns[i].end.left)
            return i;
    return -1;
}

/* A rank that was refused knows why, and so does the list. */
static vb_status give_up(const char *missing)
{
    vb_status st = vb_err(VB_ERR_TIMEOUT, "gave up waiting for missing ranks: %s", missing);

    if (strstr(missing, "never seen") != NULL)
        vb_log_fix("sudo nft list ruleset   # does a firewall drop their connections to this host? "
                   "Otherwise they did not start, or have another --root");
    return st;
}

static vb_status collect_infos(struct control *c, uint64_t deadline)
{
    uint64_t pause = REMIND_NS, remind = vb_clock_ns() + pause;
    char missing[256];
    int gone;

    while (list_missing(c, missing, sizeof(missing)) > 0) {
        if (atomic_load_explicit(&c->failed, memory_order_relaxed) != VB_OK) {
            VB_LOG_ERROR("ranks that were still missing: %s", missing);
            return vb_control_say_failure(c);
        }
        gone = find_gone(c);
        if (gone >= 0)
            return vb_err(VB_ERR_PEER, "rank %d (%s) is gone before all ranks have come: %s", gone,
                          vb_control_host(c, gone), c->conns[gone].end.why);
        if (vb_control_wait_change(c, remind < deadline ? remind : deadline))
            continue;
        list_missing(c, missing, sizeof(missing)); /* callers do not signal `changed` */
        if (vb_clock_ns() >= deadline)
            return give_up(missing);
        VB_LOG_WARN("still waiting for ranks %s", missing);
        pause *= 2;
        remind += pause;
    }
    return VB_OK;
}

static vb_status send_table(struct control *c, struct wire_info *infos, uint64_t deadline)
{
    size_t len = (size_t)c->opts.world * WIRE_INFO_BYTES;
    unsigned char *table;
    int i;
    vb_status st = collect_infos(c, deadline);

    if (st != VB_OK)
        return st;
    table = calloc(1, len);
    if (table == NULL)
        return vb_err_sys("calloc");
    for (i = 0; i < c->opts.world; i++) {
        if (i > 0)
            infos[i] = c->conns[i].info;
        else
            c->conns[0].info = infos[0]; /* joiners get it later */
        vb_wire_info_encode(&infos[i], table + (size_t)i * WIRE_INFO_BYTES);
    }
    for (i = 1; i < c->opts.world && st == VB_OK; i++)
        st = vb_conn_send(c, i, WIRE_TABLE, table, len);
    free(table);
    return st;
}

static vb_status send_info(struct control *c, struct wire_info *infos, uint64_t deadline)
{
    unsigned char mine[WIRE_INFO_BYTES];
    vb_status st;
    int i;

    vb_wire_info_encode(&infos[c->opts.rank], mine);
    st = vb_conn_send(c, 0, WIRE_INFO, mine, sizeof(mine));
    if (st == VB_OK) /* this rank waits longer than rank 0, which logs the missing ranks */
        st = vb_control_wait_for(c, 0, AWAITED_TABLE, "the table of ranks", deadline + LATER_NS);
    for (i = 0; i < c->opts.world && st == VB_OK; i++) {
        if (!vb_wire_info_decode(c->table + (size_t)i * WIRE_INFO_BYTES, &infos[i]) ||
            infos[i].rank != (uint32_t)i)
            return vb_err(VB_ERR_INPUT, "rank 0 sent a table with an invalid entry for rank %d", i);
        c->conns[i].info = infos[i];
    }
    return st;
}

vb_status vb_control_rendezvous(struct control *c, struct wire_info *infos, uint64_t deadline)
{
    vb_status st;

    pthread_mutex_lock(&c->lock);
    if (c->opts.rank == 0)
        st = send_table(c, infos, deadline);
    else
        st = send_info(c, infos, deadline);
    if (st == VB_OK)
        vb_agree_know(c);
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}

/* ---- data connections ------------------------------------------------------------------------ */

vb_status vb_control_give_key(struct control *c, int rank)
{
    struct conn *conn = &c->conns[rank];
    unsigned char sealed[AUTH_SEALED_BYTES];
    vb_status st;

    pthread_mutex_lock(&c->lock);
    vb_auth_random(conn->data.one_time, sizeof(conn->data.one_time));
    vb_auth_seal(conn->session.key, conn->data.one_time, sealed);
    conn->data.key_given = true;
    st = vb_conn_send(c, rank, WIRE_KEY, sealed, sizeof(sealed));
    pthread_mutex_unlock(&c->lock);
    vb_control_wake(c);
    return st;
}

vb_status vb_control_take_key(struct control *c, int rank, uint64_t deadline,
                              unsigned char key[AUTH_KEY_BYTES])
{
    vb_status st;

    pthread_mutex_lock(&c->lock);
    st = vb_control_wait_for(c, rank, AWAITED_KEY, "a key for the data connection", deadline);
    if (st == VB_OK && !vb_auth_unseal(c->conns[rank].session.key, c->conns[rank].data.sealed, key))
        st = vb_err(VB_ERR_ACCESS, "rank %d sent a key that this rank cannot decrypt", rank);
    c->conns[rank].data.has_key = false;
    pthread_mutex_unlock(&c->lock);
    return st;
}

vb_status vb_control_stream_dial(struct control *c, int rank, control_connect_fn connect, void *arg,
                                 const unsigned char key[AUTH_KEY_BYTES], uint64_t deadline,
                                 int *fd_p)
{
    unsigned char session[AUTH_KEY_BYTES];
    vb_status st = dial(c, rank, WIRE_DATA, connect, arg, key, deadline, fd_p, session);

    explicit_bzero(session, sizeof(session));
    return st;
}

vb_status vb_control_stream_wait(struct control *c, int rank, uint64_t deadline, int *fd_p)
{
    vb_status st;

    pthread_mutex_lock(&c->lock);
    st = vb_control_wait_for(c, rank, AWAITED_STREAM, "its data connection", deadline);
    if (st == VB_OK) {
        *fd_p = c->conns[rank].data.fd;
        c->conns[rank].data.fd = -1;
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* ---- exchange -------------------------------------------------------------------------------- */

/* Blobs arrive in order, so the next one of a peer must have the expected tag. */
static vb_status take_blob(struct control *c, int rank, uint32_t tag, void *out, size_t len,
                           const char *what, uint64_t deadline)
{
    struct blob *blob;
    vb_status st = vb_control_wait_for(c, rank, AWAITED_BLOB, what, deadline);

    if (st != VB_OK)
        return st;
    blob = c->conns[rank].blobs.first;
    if (blob->tag != tag || blob->len_bytes != len)
        return vb_err(VB_ERR_INPUT,
                      "rank %d (%s) takes part in a different exchange: expected exchange %u with "
                      "%zu bytes (%s), found exchange %u with %u bytes",
                      rank, vb_control_host(c, rank), tag, len, what, blob->tag, blob->len_bytes);
    memcpy(out, blob->bytes, len);
    c->conns[rank].blobs.first = blob->next;
    c->conns[rank].blobs.n--;
    free(blob);
    return VB_OK;
}

vb_status vb_control_exchange(struct control *c, const void *blob, size_t len_bytes, void *all,
                              const char *what, uint64_t deadline)
{
    unsigned char frame[4 + CONTROL_BLOB_MAX];
    char *out = all;
    vb_status st = VB_OK;
    uint32_t tag;
    int i;

    if (len_bytes > CONTROL_BLOB_MAX)
        return vb_err(VB_ERR_USAGE,
                      "%s: %zu bytes are too many to exchange, at most %d are possible", what,
                      len_bytes, CONTROL_BLOB_MAX);
    pthread_mutex_lock(&c->lock);
    tag = c->next_tag++;
    vb_wire_u32_encode(tag, frame);
    memcpy(frame + 4, blob, len_bytes);
    for (i = 0; i < c->opts.world; i++)
        if (i != c->opts.rank)
            vb_conn_send(c, i, WIRE_BLOB, frame, 4 + len_bytes); /* or take_blob() fails */
    memcpy(out + (size_t)c->opts.rank * len_bytes, blob, len_bytes);
    for (i = 0; i < c->opts.world && st == VB_OK; i++)
        if (i != c->opts.rank)
            st = take_blob(c, i, tag, out + (size_t)i * len_bytes, len_bytes, what, deadline);
    c->complete = c->complete || st == VB_OK; /* every rank has sent to every other */
    pthread_mutex_unlock(&c->lock);
    return st;
}
